// Recorded traces that are not the project's own: the environment names their folder.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "planner/serving/trace.hpp"

namespace shardline::testing {

/// The text of NAME.gz in the folder that SHARDLINE_TRACES names, unpacked by gzip; nothing if it names none.
inline std::optional<std::string> recorded(const std::string& name) {
  const char* const folder = std::getenv("SHARDLINE_TRACES");
  if (folder == nullptr) return std::nullopt;
  const std::string command = "gzip -dc '" + (std::filesystem::path(folder) / (name + ".gz")).string() + "'";
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  char buffer[1 << 16];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  return pclose(pipe) == 0 ? std::optional(text) : std::nullopt;
}

/// All requests of a trace; `name` is the file that faults name.
inline std::vector<TraceRequest> read_all(const std::string& name, const std::string& text) {
  std::istringstream in(text);
  TraceReader reader(in, name);
  std::vector<TraceRequest> out;
  for (TraceRequest row; reader.next(row);) out.push_back(row);
  return out;
}

}  // namespace shardline::testing
