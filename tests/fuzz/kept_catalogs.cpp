// Models and systems that were read once, for targets whose every input names some of the catalogue: to read
// them again took most of an execution, and has targets of its own. The linker puts these in place of the
// readers (--wrap, CMakeLists.txt); what a reader refuses is asked of it each time.
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "hardware/machine/system.hpp"
#include "models/model/catalog.hpp"

#define SHARDLINE_WRAPPED_MODEL                                                                          \
  "_ZN9shardline10load_modelERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNSt10filesystem7__" \
  "cxx114pathES7_"
#define SHARDLINE_WRAPPED_SYSTEM                                                                          \
  "_ZN9shardline11load_systemERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNSt10filesystem7__" \
  "cxx114pathERKSt6vectorIS5_SaIS5_EE"

namespace shardline::fuzz {

Model read_model(const std::string& name, const std::filesystem::path& folder,
                 const std::string& as) __asm__("__real_" SHARDLINE_WRAPPED_MODEL);
System read_system(const std::string& name, const std::filesystem::path& folder,
                   const std::vector<std::string>& settings) __asm__("__real_" SHARDLINE_WRAPPED_SYSTEM);

Model kept_model(const std::string& name, const std::filesystem::path& folder,
                 const std::string& as) __asm__("__wrap_" SHARDLINE_WRAPPED_MODEL);
System kept_system(const std::string& name, const std::filesystem::path& folder,
                   const std::vector<std::string>& settings) __asm__("__wrap_" SHARDLINE_WRAPPED_SYSTEM);

namespace {

// Names of the catalogue alone: what a path leads to may change.
bool may_be_kept(const std::string& name) { return name.find('/') == std::string::npos; }

}  // namespace

Model kept_model(const std::string& name, const std::filesystem::path& folder, const std::string& as) {
  static auto& kept = *new std::map<std::tuple<std::string, std::string, std::string>, Model>;
  if (!may_be_kept(name)) return read_model(name, folder, as);
  const std::tuple key{name, folder.string(), as};
  auto at = kept.find(key);
  if (at == kept.end()) at = kept.emplace(key, read_model(name, folder, as)).first;
  return at->second;
}

System kept_system(const std::string& name, const std::filesystem::path& folder,
                   const std::vector<std::string>& settings) {
  static auto& kept = *new std::map<std::tuple<std::string, std::string, std::vector<std::string>>, System>;
  if (!may_be_kept(name)) return read_system(name, folder, settings);
  const std::tuple key{name, folder.string(), settings};
  auto at = kept.find(key);
  if (at == kept.end()) at = kept.emplace(key, read_system(name, folder, settings)).first;
  return at->second;
}

}  // namespace shardline::fuzz
