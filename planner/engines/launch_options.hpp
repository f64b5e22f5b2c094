// Options of an engine as data: what its command lines, its YAML files and what `simulate` prints are written
// from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/shell_word.hpp"

namespace shardline {

/// "--tensor-parallel-size" and "8", or a YAML key with its section: "kv_cache_config.dtype" and "fp8".
struct LaunchOption {
  std::string name;
  std::string value;      // empty: a flag, which has none
  bool variable = false;  // the value is of the shell: "$MODEL"
  bool operator==(const LaunchOption&) const = default;
};

using LaunchOptions = std::vector<LaunchOption>;

/// Sets an option: in place where it is there, so that none stands twice; else behind the others.
void put(LaunchOptions& options, const std::string& name, const std::string& value = "");
void put(LaunchOptions& options, const std::string& name, long long value);
/// A value that the shell expands, quoted: put_variable(o, "--port", "PORT") is --port "$PORT".
void put_variable(LaunchOptions& options, const std::string& name, const std::string& variable);
/// nullptr: it is not there.
const LaunchOption* find(const LaunchOptions& options, std::string_view name);

/// "--tp-size 8"
std::string command_text(const LaunchOption& option);
/// Lines of a YAML file: keys of one section stand together, where its first one does.
std::vector<std::string> yaml_lines(const LaunchOptions& options);

}  // namespace shardline
