// Lines and cells of a table of measurements, and the faults found in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"

namespace shardline {

struct CsvCell {
  std::string_view text;  // without spaces around it
  int column;             // one-based, in its line
};

/// quotes: a cell between double quotes may hold commas, and its text is what stands between them.
enum class CsvStyle : bool { plain, quotes };
/// No table that is read has more columns: those that are published have at most 30.
inline constexpr std::size_t kMostColumns = 256;
/// The cells of a line, separated by commas; of a line that has more than kMostColumns, one more than those.
std::vector<CsvCell> csv_cells(std::string_view line, CsvStyle style = CsvStyle::plain);

/// No count of a kernel or a message is greater: tokens, rows and bytes (1 TiB) of what one GPU does at once.
inline constexpr double kMostCount = 1099511627776.0;

/// The lines of a text, without their ends. A text may be nothing but ends of lines, so that no line takes
/// more memory than the place of its end.
class CsvLines {
 public:
  explicit CsvLines(const std::string& text) : text_(text) {}
  /// The next one ends at `end`, of a text that has less than 4 GiB.
  void add(std::size_t end) { ends_.push_back(static_cast<std::uint32_t>(end)); }
  void reserve(std::size_t lines) { ends_.reserve(lines); }

  std::size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  std::string_view operator[](std::size_t line) const;

 private:
  const std::string& text_;
  std::vector<std::uint32_t> ends_;  // of the line's last byte but the line feed
};

/// A text by lines, counted from 0. Faults are collected until finish(): the first 50, and how many more.
class CsvText {
 public:
  /// Refers to `text` and to `file`, the name that messages show. Throws UserError where a line has more than
  /// 64 KiB: what is said of a cell, and done with it, is then small. Throws Cancelled.
  CsvText(const std::string& file, const std::string& text);

  const std::string& file() const { return file_; }
  const CsvLines& lines() const { return lines_; }
  /// The line's cells. Throws UserError, with the faults so far, where there are more than kMostColumns.
  std::vector<CsvCell> cells(std::size_t line, CsvStyle style = CsvStyle::plain);

  /// Of a row as a whole, or of a cell of the column that is called `name`.
  void fault(std::size_t line, std::string what, std::vector<std::string> details = {});
  void fault(std::size_t line, const CsvCell& cell, std::string_view name, std::string what,
             std::vector<std::string> details = {});
  /// How many, those that are counted alone too.
  std::size_t faults() const { return faults_.size() + unlisted_; }
  /// So many faults that reading on says nothing new.
  bool hopeless() const;
  /// Throws UserError if there are any faults: with those that are kept, how many more there are, and behind
  /// which line nothing was read for them.
  void finish();

  /// Where each column of a header stands, by its name. A name that stands twice is a fault: a reader would
  /// take either.
  std::map<std::string_view, std::size_t> places(std::size_t line, const std::vector<CsvCell>& header);

  /// The cell's value: a finite number, an integer from `lowest` to `highest`, a positive time. Without one
  /// there is a fault that names `what`.
  std::optional<double> number(std::size_t line, const CsvCell& cell, std::string_view what);
  std::optional<double> integer(std::size_t line, const CsvCell& cell, std::string_view what, double lowest,
                                double highest = kMostCount);
  std::optional<double> time(std::size_t line, const CsvCell& cell, std::string_view what);

 private:
  const std::string& file_;
  CsvLines lines_;
  std::vector<Diagnostic> faults_;
  std::size_t unlisted_ = 0, last_fault_ = 0;  // a line
};

}  // namespace shardline
