#include "tests/planner/engine_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "planner/engines/launch_options.hpp"
#include "tests/planner/support.hpp"

namespace shardline {

namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

bool is_number(const std::string& text, bool whole) {
  std::size_t used = 0;
  try {
    whole ? static_cast<void>(std::stoll(text, &used)) : static_cast<void>(std::stod(text, &used));
  } catch (const std::exception&) {
    return false;
  }
  return used == text.size();
}

std::vector<std::string> words_of(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::stringstream in(text);
  for (std::string word; std::getline(in, word, separator);) out.push_back(word);
  return out;
}

std::array<int, 3> numbers_of(const std::string& version) {
  std::array<int, 3> out{};
  std::size_t at = version.find_first_of("0123456789");
  for (int& n : out) {
    while (at < version.size() && version[at] >= '0' && version[at] <= '9')
      n = n * 10 + (version[at++] - '0');
    if (at >= version.size() || version[at] != '.') break;
    ++at;
  }
  return out;
}

void flatten(const Reader& r, const std::string& path,
             std::vector<std::pair<std::string, std::string>>& out) {
  if (r.is_map()) {
    for (const std::string& key : r.keys()) flatten(r.at(key), path.empty() ? key : path + "." + key, out);
  } else if (r.is_sequence()) {
    std::string all;
    for (const Reader& item : r.items()) all += (all.empty() ? "" : ",") + item.text();
    out.emplace_back(path, all);
  } else {
    out.emplace_back(path, r.is_null() ? "null" : r.text());
  }
}

}  // namespace

bool is_of_type(const std::string& value, const std::string& type) {
  if (type == "int") return is_number(value, true);
  if (type == "float") return is_number(value, false);
  if (type == "bool") return value == "true" || value == "false";
  if (type == "flag") return value.empty();
  if (type == "section") return value == "null";  // its keys have rows of their own
  if (type == "str") return !value.empty();
  if (type == "json") {
    const Document d = Document::parse("json", value);
    return d.root().is_map();
  }
  const std::string rest = type.substr(type.find(':') + 1);
  if (type.starts_with("each:")) return is_of_type(value, rest);
  if (type.starts_with("enum:")) {
    const std::vector<std::string> names = words_of(rest, '|');
    return std::find(names.begin(), names.end(), value) != names.end();
  }
  const std::vector<std::string> items = words_of(value, ',');
  return type.starts_with("list:") && !items.empty() &&
         std::all_of(items.begin(), items.end(), [&](const std::string& i) { return is_of_type(i, rest); });
}

bool is_in(const std::string& since, const std::string& version) {
  return numbers_of(since) <= numbers_of(version);
}

OptionTable::OptionTable(const std::string& engine) {
  std::stringstream in(text_of(source_path("tests/planner/engine_options/" + engine + ".csv")));
  std::string line;
  std::getline(in, line);  // names of the columns
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = cells_of(line);
    rows_.emplace(cells.at(0), Row{cells.at(1), cells.at(2), cells.at(3), cells.at(4), cells.at(5)});
  }
}

const OptionTable::Row* OptionTable::find(const std::string& kind, const std::string& name) const {
  for (auto [at, end] = rows_.equal_range(name); at != end; ++at) {
    if (at->second.kind == kind) return &at->second;
  }
  return nullptr;
}

void OptionTable::check(const std::string& kind, const std::string& version, const std::string& name,
                        const std::string& value, std::vector<std::string>& faults) const {
  const Row* row = find(kind, name);
  if (row == nullptr) {
    faults.push_back("unknown " + name);
  } else if (!is_in(row->since, version)) {
    faults.push_back(name + " came with " + row->since);
  } else if (!is_of_type(value, row->type)) {
    faults.push_back(name + "=" + value + " is no " + row->type);
  }
}

std::vector<std::string> OptionTable::faults(const std::string& kind, const std::string& version,
                                             const std::vector<std::string>& arguments,
                                             std::map<std::string, std::string>& values) const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    const Row* row = find(kind, name);
    std::string value;
    if (row != nullptr && row->type != "flag" && i + 1 < arguments.size()) value = arguments[++i];
    const bool many = row != nullptr && row->type.find("list:") != std::string::npos;
    while (many && i + 1 < arguments.size() && !arguments[i + 1].starts_with("--"))
      value += "," + arguments[++i];
    check(kind, version, name, value, out);
    const auto [at, first] = values.emplace(name, value);
    if (!first && row != nullptr && row->type.starts_with("each:")) {
      at->second += " " + value;
    } else if (!first) {
      out.push_back(name + " stands twice");
    }
  }
  return out;
}

std::vector<std::string> OptionTable::yaml_faults(const std::string& kind, const std::string& version,
                                                  const std::string& text,
                                                  std::map<std::string, std::string>& values) const {
  std::vector<std::pair<std::string, std::string>> flat;
  Document document = Document::parse(kind, text);  // refuses repeated keys
  flatten(document.root(), "", flat);
  std::vector<std::string> out;
  try {
    document.finish();
  } catch (const UserError& e) {
    out.emplace_back(e.what());
  }
  for (const auto& [name, value] : flat) {
    check(kind, version, name, value, out);
    values.emplace(name, value);
  }
  return out;
}

ScriptRunner::ScriptRunner() {
  std::string name = (std::filesystem::temp_directory_path() / "shardline-launch-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder_ = name;
  std::filesystem::create_directories(folder_ / "bin");
  // By what bash has built in: there are thousands of calls, and a process takes ten milliseconds where those
  // are slow.
  for (const char* program : {"vllm", "python3", "trtllm-serve", "srun", "mpirun", "nginx"}) {
    const auto file = folder_ / "bin" / program;
    std::ofstream(file) << "#!/bin/bash\nprintf '%s\\n' " << program << " \"$@\" > \"$NOTES\"\n"
                        << "for n in $(compgen -e); do echo \"$n=${!n}\"; done > \"$NOTES.env\"\n"
                        << "[ \"${2:-}\" != -c ] || echo \"$(< \"$3\")\" > \"$NOTES.config\"\n"
                        << "[ \"${1:-}\" != -c ] || echo \"$(< \"$2\")\" > \"$NOTES.config\"\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
}

ScriptRunner::~ScriptRunner() {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

void ScriptRunner::write(const std::vector<LaunchFile>& files) const {
  for (const LaunchFile& f : files) std::ofstream(folder_ / f.name) << f.text;
}

Called ScriptRunner::run(const std::string& script,
                         const std::map<std::string, std::string>& variables) const {
  const auto notes = folder_ / "notes";
  std::filesystem::remove(notes);
  std::filesystem::remove(notes.string() + ".config");
  std::filesystem::remove(notes.string() + ".env");
  const std::string file = shell_word((folder_ / script).string());
  std::string command = "bash -n " + file + " && env -i NOTES=" + shell_word(notes.string()) +
                        " PATH=" + shell_word((folder_ / "bin").string() + ":/usr/bin:/bin") +
                        " TMPDIR=" + shell_word(folder_.string());
  for (const auto& [name, value] : variables) command += " " + name + "=" + shell_word(value);
  Called out;
  out.code = std::system((command + " bash " + file + " 2> /dev/null").c_str());
  out.words = words_of(text_of(notes), '\n');
  out.config = text_of(notes.string() + ".config");
  for (const std::string& line : words_of(text_of(notes.string() + ".env"), '\n'))
    out.environment.emplace(line.substr(0, line.find('=')), line.substr(line.find('=') + 1));
  return out;
}

}  // namespace shardline
