// The pieces of a row of a trace; for trace.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

struct TraceCell {
  std::string_view text;  // without spaces around it
  std::size_t column;     // one-based
};
/// Cells between commas; of a line that has more than kMostTraceCells, one more than those: a trace has 4
/// columns, and a line of millions of commas is none of one.
inline constexpr std::size_t kMostTraceCells = 256;
std::vector<TraceCell> trace_cells(std::string_view line);

struct BlockRun {
  std::uint64_t first, last;  // both included
};
/// "7" or "3-7", ascending.
std::optional<BlockRun> block_run(std::string_view text);

/// "2023-11-16 18:17:03.9799600", with up to 7 digits of a second's parts and perhaps +00:00: in units of 100
/// ns since 1970.
std::optional<std::int64_t> clock_tick(std::string_view text);

/// A line of JSON that is an object of numbers and lists of numbers, walked key by key without a copy of it.
class JsonRow {
 public:
  explicit JsonRow(std::string_view line) : line_(line) {}

  /// Goes to the next key and its value; false at the end and at an error.
  bool next();
  /// Why it ended before the line did; empty if it did not. At column().
  const std::string& error() const { return error_; }

  const std::string& key() const { return key_; }
  std::size_t key_column() const { return key_column_; }
  bool is_array() const { return array_; }
  std::string_view value() const { return value_; }               // of a number, as it stands there
  const std::vector<std::uint64_t>& ids() const { return ids_; }  // of a list
  std::size_t column() const { return column_; }                  // of the value or the error

 private:
  void skip();
  bool take(char c);
  bool fail(std::string what);
  bool read_key();
  bool read_value();
  bool read_ids();
  std::string_view number();

  std::string_view line_, value_;
  std::size_t at_ = 0, key_column_ = 1, column_ = 1;
  std::string key_, error_;
  std::vector<std::uint64_t> ids_;
  bool begun_ = false, array_ = false;
};

}  // namespace shardline
