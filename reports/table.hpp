// Text for a terminal: aligned tables and a progress line.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace shardline {

/// A table whose cells that look like numbers are right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// Every line starts with `indent` and ends with a newline; no trailing spaces.
  std::string text(const std::string& indent = "  ") const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// "412003 of 3800800 plans, 402k/s, 8 s left" with a bar, on standard error; silent when that is no
/// terminal.
class Progress {
 public:
  explicit Progress(std::string what, bool enabled);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// At most ten times a second.
  void show(std::uint64_t done, std::uint64_t total);
  static bool terminal();

 private:
  std::string what_;
  bool enabled_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace shardline
