#include "tests/planner/api/document.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "tests/planner/api/schema.hpp"

namespace shardline::api {

namespace {

std::string read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool begins(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }

bool is_plain(const Json& value, const std::string& type) {
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  // NaN and infinity are null, so every number may be.
  if (type == "number") return value.is_number() || value.is_null();
  return type == "text" && value.is_string();
}

std::string faults_of_struct(const Json& value, const StructText& s, const std::string& path) {
  std::string out;
  for (const FieldText& f : s.fields) {
    const auto at = value.find(f.name);
    out += at == value.end() ? path + "." + f.name + " is missing\n"
                             : faults_of(*at, f.type, path + "." + f.name);
  }
  for (const auto& [key, unused] : value.items()) {
    const std::string name = key;
    const bool known =
        std::any_of(s.fields.begin(), s.fields.end(), [&](const FieldText& f) { return f.name == name; });
    if (!known && !(name == "schema" && !s.schema.empty()))
      out += path + "." + name + " is documented nowhere\n";
  }
  return out;
}

}  // namespace

std::string faults_of(const Json& value, const std::string& type, const std::string& path) {
  const std::string none = " or null";
  if (type.size() > none.size() && type.substr(type.size() - none.size()) == none)
    return value.is_null() ? "" : faults_of(value, type.substr(0, type.size() - none.size()), path);
  const auto wrong = [&] { return fmt::format("{}: {} expected, found {}\n", path, type, value.dump()); };
  std::string out;
  if (begins(type, "list of ")) {
    if (!value.is_array()) return wrong();
    for (std::size_t i = 0; i < value.size(); ++i)
      out += faults_of(value[i], type.substr(8), fmt::format("{}[{}]", path, i));
    return out;
  }
  if (begins(type, "object of ")) {
    if (!value.is_object()) return wrong();
    for (const auto& [key, of] : value.items()) out += faults_of(of, type.substr(10), path + "." + key);
    return out;
  }
  for (const StructText& s : all_structs()) {
    if (s.name == type) return value.is_object() ? faults_of_struct(value, s, path) : wrong();
  }
  return is_plain(value, type) ? "" : wrong();
}

std::string faults_of_document(const Json& document) {
  if (!document.is_object() || !document.contains("schema")) return "no document\n";
  for (const StructText& s : all_structs()) {
    if (!s.schema.empty() && document["schema"] == s.schema) return faults_of_struct(document, s, "$");
  }
  return "no schema " + document["schema"].dump() + "\n";
}

Ran run_shardline(const std::string& arguments, const std::string& folder) {
  const std::string command =
      fmt::format("cd '{0}' && SHARDLINE_DATA='{1}' '{2}' {3} > stdout.txt 2> stderr.txt < /dev/null", folder,
                  SHARDLINE_SOURCE_DIR, SHARDLINE_PROGRAM, arguments);
  const int status = std::system(command.c_str());
  if (!WIFEXITED(status)) throw std::runtime_error("did not end by itself: " + command);
  return {WEXITSTATUS(status), read(folder + "/stdout.txt"), read(folder + "/stderr.txt")};
}

std::string scratch_folder(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(SHARDLINE_BINARY_DIR) / ("api_" + name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const auto& entry : std::filesystem::directory_iterator(SHARDLINE_SOURCE_DIR "/tests/golden")) {
    if (entry.path().extension() == ".yaml") std::filesystem::copy(entry.path(), folder);
  }
  return folder.string();
}

}  // namespace shardline::api
