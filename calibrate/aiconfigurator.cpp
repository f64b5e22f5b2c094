#include "calibrate/aiconfigurator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "calibrate/aiconfigurator_tables.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace aiconfigurator {

namespace {

std::size_t position(const Row& row, std::string_view column) {
  const auto at = std::find(row.columns.begin(), row.columns.end(), column);
  SL_CHECK(at != row.columns.end(), fmt::format("the table has a column {}", column));
  return static_cast<std::size_t>(at - row.columns.begin());
}

}  // namespace

double Row::number(std::string_view column) const { return numbers[position(*this, column)]; }

std::string_view Row::word(std::string_view column) const { return words[position(*this, column)]; }

std::string Row::named(std::string_view column, std::span<const Name> names) {
  const std::string_view found = word(column);
  std::vector<std::string> theirs;
  for (const Name& n : names) {
    if (found == n.theirs) return std::string(n.ours);
    theirs.emplace_back(n.theirs);
  }
  const std::string near = nearest_name(found, theirs);
  leave_out(near.empty() ? fmt::format("{} {}", column, found)
                         : fmt::format("{} {} (did you mean {}?)", column, found, near));
  return {};
}

void Row::leave_out(std::string reason) {
  if (left_out.empty()) left_out = std::move(reason);
}

void Row::add(const char* family, double microseconds, std::vector<Field> fields) {
  made.push_back({family, microseconds, std::move(fields)});
}

}  // namespace aiconfigurator

namespace {

using namespace aiconfigurator;

bool is_number(CellKind kind) { return kind != CellKind::word && kind != CellKind::text; }
const char* unit(CellKind kind) {
  return kind == CellKind::milliseconds   ? "milliseconds"
         : kind == CellKind::microseconds ? "microseconds"
                                          : nullptr;
}
bool is_time(CellKind kind) { return unit(kind) != nullptr; }

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const std::size_t half = v.size() / 2;
  return v.size() % 2 == 1 ? v[half] : (v[half - 1] + v[half]) / 2;
}

std::string counted(std::size_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

// What a table of one GPU and a few versions has, many times over.
constexpr std::size_t kMostReasons = 50, kQuoted = 100;  // rows' reasons and versions; bytes of a cell

class TableReader {
 public:
  TableReader(CsvText& text, std::size_t header) : text_(text), header_(header) {}

  MeasurementTable run() {
    choose_table();
    read_header();
    text_.finish();  // without its columns no row means anything
    CancelCheck check;
    for (std::size_t i = header_ + 1; i < text_.lines().size() && !text_.hopeless(); ++i) {
      check();
      if (!text_.lines()[i].empty()) read_row(i);
    }
    text_.finish();
    if (times_.empty()) refuse();
    for (const auto& t : times_) table_.median.emplace_back(median(t) / 1e6);
    table_.low = table_.high = table_.median;
    table_.samples.assign(times_.size(), 0);
    table_.provenance = {{"source", fmt::format("AIConfigurator, {}", fmt::join(releases_, ", "))},
                         {"gpu", device_.value_or("")}};
    table_.notes = notes();
    return std::move(table_);
  }

 private:
  std::vector<CsvCell> cells(std::size_t line) const { return text_.cells(line, CsvStyle::quotes); }

  // The kind of table that shares most columns, and of those the one that lacks fewest.
  void choose_table() {
    const std::vector<CsvCell> head = cells(header_);
    std::pair<int, int> best{0, 0};
    for (const Table& t : tables()) {
      int shared = 0, needed = 0;
      for (const Column& c : t.columns) {
        needed += c.optional ? 0 : 1;
        shared += std::any_of(head.begin(), head.end(), [&](const CsvCell& h) { return h.text == c.name; });
      }
      const std::pair score{shared, shared - needed};
      if (shared > 0 && (kind_ == nullptr || score > best)) {
        best = score;
        kind_ = &t;
      }
    }
    for (const Column& c : common_columns()) columns_.push_back(c);
    if (kind_ != nullptr) columns_.insert(columns_.end(), kind_->columns.begin(), kind_->columns.end());
  }

  void read_header() {
    const std::vector<CsvCell> head = cells(header_);
    row_.numbers.resize(columns_.size());
    row_.words.resize(columns_.size());
    std::vector<std::string> expected;
    for (const Column& c : columns_) {
      row_.columns.emplace_back(c.name);
      expected.emplace_back(c.name);
    }
    const auto op =
        std::find_if(head.begin(), head.end(), [](const CsvCell& c) { return c.text == "op_name"; });
    const std::size_t faults = text_.faults();
    std::vector<bool> seen(columns_.size(), false);
    for (const CsvCell& c : head) {
      const auto at =
          static_cast<std::size_t>(std::find(expected.begin(), expected.end(), c.text) - expected.begin());
      const bool index = c.text.empty() && roles_.empty();  // pandas writes one unless told not to
      roles_.push_back(at < expected.size() ? static_cast<int>(at) : -1);
      if (at < expected.size()) {
        if (seen[at]) text_.fault(header_, c, c.text, fmt::format("column {} stands twice", c.text));
        seen[at] = true;
      } else if (const auto ignored = ignored_columns();
                 !index && std::find(ignored.begin(), ignored.end(), c.text) == ignored.end()) {
        text_.fault(header_, c, c.text, unknown_column(c.text), expected_one_of(c.text, expected));
      }
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (seen[i] || columns_[i].optional) continue;
      const char* in = unit(columns_[i].kind);
      text_.fault(header_, {"", 1}, columns_[i].name,
                  fmt::format("missing column {}{} in {}", columns_[i].name,
                              in != nullptr ? fmt::format(" ({})", in) : "", description()));
    }
    if (kind_ == nullptr) {
      std::vector<std::string> kinds;
      for (const Table& t : tables()) kinds.emplace_back(t.name);
      text_.fault(header_, "no column of a table of AIConfigurator that is read",
                  {fmt::format("tables that are read: {}", fmt::join(kinds, ", "))});
    }
    if (text_.faults() == faults || op == head.end()) return;
    // A table of another kind is better told so than what it lacks.
    const auto column = static_cast<std::size_t>(op - head.begin());
    CancelCheck check;
    for (std::size_t i = header_ + 1; i < text_.lines().size(); ++i) {
      check();
      const std::vector<CsvCell> row = cells(i);
      if (column >= row.size()) continue;
      if (!known_op(row[column].text)) throw UserError(no_counterpart(i, row[column]));
      return;
    }
  }

  std::string description() const {
    return kind_ == nullptr ? "a table of AIConfigurator"
                            : fmt::format("AIConfigurator's table of {}", kind_->name);
  }

  std::string unknown_column(std::string_view name) const {
    return fmt::format("unknown column {} in {}", name.empty() ? "without a name" : name, description());
  }

  static bool known_op(std::string_view op) {
    return std::any_of(tables().begin(), tables().end(), [&](const Table& t) {
      return std::any_of(t.op_names.begin(), t.op_names.end(), [&](const char* o) { return op == o; });
    });
  }

  std::vector<Diagnostic> no_counterpart(std::size_t line, const CsvCell& op) const {
    std::vector<std::string> ops;
    for (const Table& t : tables()) {
      for (const char* o : t.op_names) {
        if (std::find(ops.begin(), ops.end(), o) == ops.end()) ops.emplace_back(o);
      }
    }
    Location where;
    where.file = text_.file();
    where.line = static_cast<int>(line) + 1;
    where.column = op.column;
    where.key = "op_name";
    where.source_line = std::string(text_.lines()[line].substr(0, 200));
    where.source_cut = text_.lines()[line].size() > 200;
    return {{where, fmt::format("op_name: no family holds AIConfigurator's {}", op.text),
             expected_one_of(op.text, ops)}};
  }

  void read_row(std::size_t line) {
    const std::vector<CsvCell> row = cells(line);
    // A row measured without power ends before the columns of power.
    const bool cut =
        row.size() < roles_.size() && std::all_of(roles_.begin() + static_cast<std::ptrdiff_t>(row.size()),
                                                  roles_.end(), [](int role) { return role < 0; });
    if (row.size() != roles_.size() && !cut) {
      text_.fault(line, fmt::format("{} cells, but {} columns", row.size(), roles_.size()));
      return;
    }
    const std::size_t before = text_.faults();
    std::fill(row_.numbers.begin(), row_.numbers.end(), 0);
    std::fill(row_.words.begin(), row_.words.end(), std::string_view());
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (roles_[i] >= 0) read_cell(line, row[i], static_cast<std::size_t>(roles_[i]));
    }
    if (text_.faults() != before) return;
    row_.made.clear();
    row_.left_out.clear();
    if (const std::string reason = stranger(); !reason.empty()) {
      row_.leave_out(reason);
    } else {
      kind_->read(row_);
    }
    for (const Made& m : row_.made) {
      if (row_.left_out.empty() && m.microseconds <= 0) row_.leave_out("a time of 0");
      if (row_.left_out.empty() && table_.family != nullptr &&
          std::string_view(m.family) != table_.family->name)
        row_.leave_out(fmt::format("op_name {} in a table of {}", row_.word("op_name"), table_.family->name));
    }
    if (!row_.left_out.empty()) {
      leave_out();
      return;
    }
    for (const Made& m : row_.made) add(line, m);
  }

  // Reasons name what stands in the row, and are all shown.
  void leave_out() {
    const auto known = left_out_.find(row_.left_out);
    if (known != left_out_.end())
      ++known->second;
    else if (left_out_.size() < kMostReasons)
      left_out_.emplace(row_.left_out, 1);
    else
      ++others_left_out_;
  }

  void read_cell(std::size_t line, const CsvCell& cell, std::size_t at) {
    const Column& column = columns_[at];
    if (is_time(column.kind)) {
      const double v = text_.number(line, cell, column.name).value_or(0);
      if (v < 0 || v > kMostCount)
        text_.fault(
            line, cell, column.name,
            fmt::format("{}: expected {} from 0, found {}", column.name, unit(column.kind), cell.text));
      row_.numbers[at] = column.kind == CellKind::milliseconds ? v * 1e3 : v;
    } else if (is_number(column.kind)) {
      if (cell.text.empty() && column.kind == CellKind::size) return;
      row_.numbers[at] =
          text_.integer(line, cell, column.name, column.kind == CellKind::count ? 1 : 0).value_or(1);
    } else {
      row_.words[at] = cell.text;
      if (column.kind == CellKind::word && cell.text.empty())
        text_.fault(line, cell, column.name, fmt::format("{} is empty", column.name));
      if (cell.text.find_first_of(",\"") != cell.text.npos && column.kind == CellKind::word)
        text_.fault(line, cell, column.name,
                    fmt::format("{}: expected a name without commas and quotes", column.name));
    }
  }

  // Why the row does not belong to the table, or nothing.
  std::string stranger() {
    const std::string_view op = row_.word("op_name"), device = row_.word("device");
    if (std::none_of(kind_->op_names.begin(), kind_->op_names.end(), [&](const char* o) { return op == o; }))
      return fmt::format("op_name {}", op.substr(0, kQuoted));
    if (!device_) device_ = device;
    if (device != *device_)
      return fmt::format("device {}, the first row's is {}", device.substr(0, kQuoted),
                         device_->substr(0, kQuoted));
    const std::string release = fmt::format("{} {}", row_.word("framework"), row_.word("version"));
    if (std::find(releases_.begin(), releases_.end(), release) == releases_.end()) {
      if (releases_.size() == kMostReasons) return fmt::format("more than {} versions", kMostReasons);
      releases_.push_back(release);
    }
    return {};
  }

  void add(std::size_t line, const Made& made) {
    if (table_.family == nullptr) {
      table_.family = &family(made.family);
      table_.numbers.resize(table_.family->columns.size());
      table_.words.resize(table_.family->columns.size());
    }
    const auto columns = table_.family->columns;
    std::vector<const Field*> fields;
    std::string key;
    for (const ColumnSpec& c : columns) {
      fields.push_back(&field(made, c));
      key += fmt::format("{}|{}|", fields.back()->number, fields.back()->word);
      if (fields.back()->number <= kMostCount) continue;
      text_.fault(line, {"", 1}, c.name, fmt::format("{}: {} is too great", c.name, fields.back()->number));
      return;
    }
    const auto [at, fresh] = shapes_.emplace(std::move(key), times_.size());
    if (fresh) {
      times_.emplace_back();
      table_.file_rows.push_back(line - header_);
    }
    times_[at->second].push_back(made.microseconds);
    for (std::size_t i = 0; fresh && i < columns.size(); ++i) {
      if (columns[i].kind == ColumnKind::name || columns[i].kind == ColumnKind::optional_name) {
        table_.words[i].push_back(fields[i]->word);
      } else {
        table_.numbers[i].push_back(fields[i]->number);
      }
    }
  }

  static const Field& field(const Made& made, const ColumnSpec& column) {
    static const Field none{"", 0};
    const auto at = std::find_if(made.fields.begin(), made.fields.end(),
                                 [&](const Field& f) { return f.column == std::string_view(column.name); });
    SL_CHECK(at != made.fields.end() || column.optional,
             fmt::format("rows of {} have a {}", made.family, column.name));
    return at != made.fields.end() ? *at : none;
  }

  [[noreturn]] void refuse() const {
    if (left_out_.empty()) throw UserError(text_.file() + " has no rows");
    Diagnostic d{{}, fmt::format("{}: no row has a counterpart in a family", text_.file()), notes()};
    throw UserError({d});
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> out;
    for (const auto& [reason, rows] : left_out_)
      out.push_back(fmt::format("{}: {} left out: {}", text_.file(), counted(rows, "row"), reason));
    if (others_left_out_ > 0)
      out.push_back(fmt::format("{}: {} left out for other reasons than those {}", text_.file(),
                                counted(others_left_out_, "row"), kMostReasons));
    std::size_t repeated = 0, rows = 0;
    for (const auto& t : times_) {
      if (t.size() < 2) continue;
      ++repeated;
      rows += t.size();
    }
    if (repeated > 0)
      out.push_back(fmt::format("{}: {} of {} replaced by the median of each shape", text_.file(),
                                counted(rows, "row"), counted(repeated, "shape")));
    return out;
  }

  CsvText& text_;
  std::size_t header_;
  const Table* kind_ = nullptr;
  std::vector<Column> columns_;  // common ones, then those of the kind
  std::vector<int> roles_;       // of the file's columns: index into columns_, or -1
  Row row_;
  MeasurementTable table_;
  std::optional<std::string> device_;
  std::vector<std::string> releases_;  // framework and version
  std::map<std::string, std::size_t> left_out_;
  std::size_t others_left_out_ = 0;
  std::unordered_map<std::string, std::size_t> shapes_;  // row of each shape
  std::vector<std::vector<double>> times_;               // of each row, in microseconds
};

}  // namespace

bool is_aiconfigurator(std::string_view header) {
  const std::vector<CsvCell> head = csv_cells(header, CsvStyle::quotes);
  const auto columns = common_columns();
  return std::count_if(columns.begin(), columns.end(), [&](const Column& c) {
           return std::any_of(head.begin(), head.end(), [&](const CsvCell& h) { return h.text == c.name; });
         }) >= 2;
}

MeasurementTable read_aiconfigurator(CsvText& text, std::size_t header) {
  return TableReader(text, header).run();
}

}  // namespace shardline
