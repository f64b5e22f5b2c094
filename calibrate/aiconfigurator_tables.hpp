// The kinds of AIConfigurator's tables: their columns, and what a row of each becomes in our families.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardline::aiconfigurator {

/// count: an integer from 1; size: from 0, an empty cell is 0; word: not empty; text: any; the others: times.
enum class CellKind : std::uint8_t { count, size, word, text, milliseconds, microseconds };

struct Column {
  const char* name;
  CellKind kind = CellKind::count;
  bool optional = false;  // where it is missing: 0, or an empty word
};

/// A cell of a row of ours.
struct Field {
  Field(const char* c, double n) : column(c), number(n) {}
  Field(const char* c, std::string w) : column(c), word(std::move(w)) {}
  const char* column;
  double number = 0;
  std::string word;
};

/// A row of ours.
struct Made {
  const char* family;
  double microseconds;
  std::vector<Field> fields;  // one for each column of the family
};

/// AIConfigurator's name of a type, and ours.
struct Name {
  std::string_view theirs, ours;
};

/// One row of a table. The function of its kind says what it becomes: rows of ours, or nothing for a reason.
struct Row {
  /// Cells of the columns: numbers (times in microseconds) and words. SL_CHECK the name.
  double number(std::string_view column) const;
  std::string_view word(std::string_view column) const;
  /// Our name for the word of `column`; if it is none of `names` the row is left out.
  std::string named(std::string_view column, std::span<const Name> names);
  void leave_out(std::string reason);
  void add(const char* family, double microseconds, std::vector<Field> fields);

  std::vector<std::string_view> columns;
  std::vector<double> numbers;
  std::vector<std::string_view> words;
  std::vector<Made> made;
  std::string left_out;  // the first reason; `made` counts only where there is none
};

struct Table {
  const char* name;
  std::span<const Column> columns;  // beside the common ones
  std::span<const char* const> op_names;
  void (*read)(Row& row);
};
std::span<const Table> tables();

/// With these every table begins.
std::span<const Column> common_columns();
/// These may stand in any table; they say nothing of the shape.
std::span<const char* const> ignored_columns();

}  // namespace shardline::aiconfigurator
