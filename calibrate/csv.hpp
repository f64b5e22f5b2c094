// Lines and cells of a table of measurements, and the faults found in them.
#pragma once

#include <cstddef>
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
/// The cells of a line, separated by commas.
std::vector<CsvCell> csv_cells(std::string_view line, CsvStyle style = CsvStyle::plain);

/// No count of a kernel or a message is greater: tokens, rows and bytes (1 TiB) of what one GPU does at once.
inline constexpr double kMostCount = 1099511627776.0;

/// A text by lines, counted from 0. Faults are collected until finish().
class CsvText {
 public:
  /// Refers to `text` and to `file`, the name that messages show.
  CsvText(const std::string& file, const std::string& text);

  const std::string& file() const { return file_; }
  const std::vector<std::string_view>& lines() const { return lines_; }

  /// Of a row as a whole, or of a cell of the column that is called `name`.
  void fault(std::size_t line, std::string what, std::vector<std::string> details = {});
  void fault(std::size_t line, const CsvCell& cell, std::string_view name, std::string what,
             std::vector<std::string> details = {});
  std::size_t faults() const { return faults_.size(); }
  /// So many faults that reading on says nothing new.
  bool hopeless() const;
  /// Throws UserError with all faults, if there are any.
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
  std::vector<std::string_view> lines_;
  std::vector<Diagnostic> faults_;
};

}  // namespace shardline
