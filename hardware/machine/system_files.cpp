// Where files of systems lie, and what they are called.
#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "hardware/machine/system.hpp"
#include "sim/base/error.hpp"
#include "sim/base/folder.hpp"

namespace shardline {

std::filesystem::path system_file(const std::string& name_or_path, const std::filesystem::path& catalog_dir) {
  const std::filesystem::path path(name_or_path);
  if (path.has_parent_path() || path.extension() == ".yaml" || path.extension() == ".yml") return path;
  const std::vector<std::string> names = system_names(catalog_dir);
  if (std::find(names.begin(), names.end(), name_or_path) == names.end()) {
    std::vector<std::string> details = expected_one_of(name_or_path, names);
    details.push_back("or the path of a .yaml file");
    throw UserError({Diagnostic{{}, "unknown system " + name_or_path, std::move(details)}});
  }
  return catalog_dir / (name_or_path + ".yaml");
}

std::vector<std::string> system_names(const std::filesystem::path& catalog_dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (const std::filesystem::path& entry : folder_entries(catalog_dir, error)) {
    if (entry.extension() == ".yaml") names.push_back(entry.stem().string());
  }
  if (error) throw UserError("cannot read the folder " + catalog_dir.string() + ": " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace shardline
