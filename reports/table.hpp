// Text for a terminal: aligned tables and a progress line.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace shardline {

/// A table whose cells that look like numbers are right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// The header first.
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }
  /// Every line starts with `indent` and ends with a newline; no trailing spaces.
  std::string text(const std::string& indent = "  ") const;
  /// The same in at most `width` columns; 0: any width. In this order, as far as needed: headers and cells
  /// of words go on in further lines; columns of the names in `least` are left out, the first of
  /// `least` first, all of a name together, and a line below says which; the last column stands below its
  /// rows (before anything is left out, where its words, such as a plan's, take more than half of the width);
  /// the table is cut into tables one below the other that have all columns. Only a word that is longer than
  /// the line is wider.
  std::string text_within(std::size_t width, std::span<const std::string_view> least) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// "412003/3800800 plans, 402000 plans/s, 8 s left" with a bar, on standard error; silent when that is no
/// terminal, or one that knows no escape sequences. `unit`: what is counted.
class Progress {
 public:
  explicit Progress(std::string what, bool enabled, std::string unit = "plans");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// At most ten times a second.
  void show(std::uint64_t done, std::uint64_t total);
  static bool terminal();
  /// Whether the time that is left is said yet, of `done` steps in `seconds`: after a second, in which at
  /// least a hundredth of the steps was done, or after ten seconds in any case.
  static bool tells_time_left(double seconds, std::uint64_t done, std::uint64_t total);

 private:
  void wait_for_first(const std::stop_token& stop);

  std::string what_, unit_;
  bool enabled_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool shown_ = false;
  std::uint64_t first_done_ = 0;  // steps of the first that was told: they hold what is done once (tables
                                  // that later steps find filled), and their pace says little of the rest
  std::chrono::steady_clock::time_point start_, first_, last_;
  std::jthread waiting_;  // says that the first steps are under way where they take longer than a second
};

/// The same of work whose size becomes known as its parts begin, done by any threads.
class StepProgress {
 public:
  StepProgress(std::string what, bool enabled, std::string unit)
      : progress_(std::move(what), enabled, std::move(unit)) {}
  void expect(std::uint64_t more);
  /// One step begins: those before it are done.
  void step();

 private:
  std::mutex mutex_;
  Progress progress_;
  std::uint64_t begun_ = 0, total_ = 0;
};

}  // namespace shardline
