// Tables of engines' options (tests/planner/engine_options), and what is wrong with a command line or a YAML
// file by them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "planner/engines/launch_files.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

class OptionTable {
 public:
  /// "vllm", "sglang", "trtllm".
  explicit OptionTable(const std::string& engine);

  struct Row {
    std::string kind, type, otherwise, since, source;  // otherwise: its default
  };
  /// nullptr: no such option of that kind (serve, yaml, front, ...).
  const Row* find(const std::string& kind, const std::string& name) const;
  std::size_t size() const { return rows_.size(); }
  const std::multimap<std::string, Row>& rows() const { return rows_; }

  /// Of options and their values: unknown ones, later ones than `version`, values of another type,
  /// repetitions.
  std::vector<std::string> faults(const std::string& kind, const std::string& version,
                                  const std::vector<std::string>& arguments,
                                  std::map<std::string, std::string>& values) const;
  /// The same of a YAML text.
  std::vector<std::string> yaml_faults(const std::string& kind, const std::string& version,
                                       const std::string& text,
                                       std::map<std::string, std::string>& values) const;

 private:
  void check(const std::string& kind, const std::string& version, const std::string& name,
             const std::string& value, std::vector<std::string>& faults) const;
  std::multimap<std::string, Row> rows_;  // by name
};

/// Whether a value is of a type of the tables: int, float, bool, str, json, enum:a|b, list:int, list:str,
/// flag; each:TYPE is TYPE.
bool is_of_type(const std::string& value, const std::string& type);
/// "0.10.2" against "0.24.0", "<= 1.3.0rc20" against "1.3.0rc20": by the three numbers.
bool is_in(const std::string& since, const std::string& version);

/// What a script called: its words, the text of the file after -c, and the variables it was called with.
struct Called {
  int code = 0;
  std::vector<std::string> words;
  std::string config;
  std::map<std::string, std::string> environment;
};
/// Runs a script with these variables; programs of engines are stand-ins that note how they are called.
class ScriptRunner {
 public:
  ScriptRunner();
  ~ScriptRunner();
  ScriptRunner(const ScriptRunner&) = delete;
  ScriptRunner& operator=(const ScriptRunner&) = delete;
  void write(const std::vector<LaunchFile>& files) const;
  Called run(const std::string& script, const std::map<std::string, std::string>& variables) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace shardline
