// A text read line by line in bounded memory, however long it is, and the faults found in its lines.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"

namespace shardline {

/// Lines of a stream, one at a time: what is held is one line and a buffer.
class LineReader {
 public:
  /// Longer lines are cut, and say so.
  static constexpr std::size_t kLongest = std::size_t{1} << 22;

  /// Refers to `in`; `name` is what messages show.
  LineReader(std::istream& in, std::string name);

  /// Goes to the next line; false after the last. One of more than 256 MiB, as devices have it, is the last.
  /// Throws Cancelled.
  bool next();
  const std::string& name() const { return name_; }
  /// Without its end, a line feed or carriage return and line feed. Valid until next().
  std::string_view line() const { return line_; }
  /// One-based.
  int number() const { return number_; }
  /// The line was longer than kLongest; line() is its beginning.
  bool cut() const { return cut_; }

  /// A fault of the line that it stands at, for UserError. `column` is one-based, in bytes.
  Diagnostic fault(std::size_t column, std::string what, std::vector<std::string> details = {}) const;

 private:
  bool fill();

  std::istream& in_;
  std::string name_, line_, buffer_;
  std::size_t at_ = 0;
  int number_ = 0;
  bool cut_ = false;
};

}  // namespace shardline
