#include "calibrate/measurement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "calibrate/aiconfigurator.hpp"
#include "calibrate/csv.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/read_text.hpp"

namespace shardline {

namespace {

using enum ColumnKind;

constexpr const char* kEngine = "engine";
constexpr std::size_t kMostProvenance = 1000;  // ours are 6

bool has_column(const std::vector<CsvCell>& header, std::string_view wanted) {
  return std::any_of(header.begin(), header.end(), [&](const CsvCell& c) { return c.text == wanted; });
}

bool is_word(const ColumnSpec& c) { return c.kind == name || c.kind == optional_name; }

std::string engine_text(const std::string& engine, const std::string& version) {
  return version.empty() ? engine : engine + "_" + version;
}

constexpr std::array kSampled{"median_us", "p10_us", "p90_us", "samples"};

// Numbers from 0 of what is not equal to anything before. Flat: a million nodes of a map take a third of a
// second to be given back, and nobody is asked meanwhile.
class RowSet {
 public:
  // The number of the earlier one of which `same` holds, or a new one: as many as there were.
  template <class Same>
  std::size_t add(std::size_t hash, const Same& same) {
    if (2 * (hashes_.size() + 1) > slots_.size()) grow();
    std::size_t slot = first_slot(hash);
    for (; slots_[slot] != kFree; slot = (slot + 1) % slots_.size()) {
      if (hashes_[slots_[slot]] == hash && same(slots_[slot])) return slots_[slot];
    }
    slots_[slot] = static_cast<std::uint32_t>(hashes_.size());
    hashes_.push_back(hash);
    return slots_[slot];
  }

 private:
  static constexpr std::uint32_t kFree = std::numeric_limits<std::uint32_t>::max();

  // The number of slots is a power of two: the upper bits of a product depend on all of the hash [Knuth 6.4].
  std::size_t first_slot(std::size_t hash) const {
    return (std::uint64_t{hash} * 0x9e3779b97f4a7c15U >> 32) % slots_.size();
  }
  void grow() {
    slots_.assign(std::max<std::size_t>(64, 2 * slots_.size()), kFree);
    CancelCheck check;
    for (std::size_t i = 0; i < hashes_.size(); ++i) {
      check();
      std::size_t slot = first_slot(hashes_[i]);
      while (slots_[slot] != kFree) slot = (slot + 1) % slots_.size();
      slots_[slot] = static_cast<std::uint32_t>(i);
    }
  }

  std::vector<std::uint32_t> slots_;
  std::vector<std::size_t> hashes_;
};

class Parser {
 public:
  explicit Parser(CsvText& text) : text_(text) {}

  MeasurementTable run(std::size_t header) {
    read_header(header);
    text_.finish();  // without its columns no row means anything
    header_ = header;
    reserve(text_.lines().size() - header - 1);
    CancelCheck check;  // tables have ten thousands of rows
    for (std::size_t i = header + 1; i < text_.lines().size() && !text_.hopeless(); ++i) {
      check();
      if (!text_.lines()[i].empty()) read_row(i);
    }
    if (table_.size() == 0 && text_.faults() == 0) throw UserError(text_.file() + " has no rows");
    text_.finish();
    return std::move(table_);
  }

 private:
  // What a cell is: a column of the family (shape), one of the times, or the engine.
  struct Role {
    int shape = -1, time = -1;  // time: index into kSampled; 0 for latency_us
    bool engine = false;
  };
  struct RowCells {
    std::vector<double> numbers;
    std::vector<std::string> words;
    std::array<double, 4> times{0, 0, 0, 0};
    std::string engine, version;
  };

  // A table that belongs to no family says so; what it lacks of one would mislead.
  void refuse_unpriced(std::size_t line, const std::vector<CsvCell>& cells) const {
    for (const UnpricedSpec& u : unpriced_tables()) {
      const bool all = std::all_of(u.columns.begin(), u.columns.end(),
                                   [&](std::string_view wanted) { return has_column(cells, wanted); });
      if (!all) continue;
      Location where;
      where.file = text_.file();
      where.line = static_cast<int>(line) + 1;
      where.column = 1;
      where.source_line = std::string(text_.lines()[line].substr(0, 200));
      where.source_cut = text_.lines()[line].size() > 200;
      throw UnpricedTable({Diagnostic{where, fmt::format("a table of {}: no form prices it", u.what), {}}});
    }
  }

  void read_header(std::size_t line) {
    const std::vector<CsvCell> cells = text_.cells(line);
    refuse_unpriced(line, cells);
    const auto has = [&](std::string_view wanted) { return has_column(cells, wanted); };
    // The family that shares most columns, and of those the one that lacks fewest.
    std::pair<int, int> best{0, 0};
    for (const FamilySpec& f : families()) {
      int shared = 0;
      for (const ColumnSpec& c : f.columns) shared += has(c.name) ? 1 : 0;
      const std::pair score{shared, shared - static_cast<int>(f.columns.size())};
      if (shared > 0 && (table_.family == nullptr || score > best)) {
        best = score;
        table_.family = &f;
      }
    }
    if (table_.family == nullptr) {
      std::vector<std::string> names;
      for (const FamilySpec& f : families()) names.emplace_back(f.name);
      text_.fault(line, "no column of any family of measurements",
                  {"families: " + fmt::format("{}", fmt::join(names, ", "))});
      return;
    }
    sampled_ = std::any_of(kSampled.begin(), kSampled.end(), has);
    std::vector<std::string> expected;
    for (const ColumnSpec& c : table_.family->columns) expected.emplace_back(c.name);
    for (const char* c : kSampled) {
      if (sampled_ || std::string_view(c) == kSampled[0]) expected.emplace_back(sampled_ ? c : "latency_us");
    }
    const std::size_t needed = expected.size();
    expected.emplace_back(kEngine);
    std::vector<bool> seen(expected.size(), false);
    for (const CsvCell& c : cells) {
      const auto at =
          static_cast<std::size_t>(std::find(expected.begin(), expected.end(), c.text) - expected.begin());
      if (at == expected.size()) {
        text_.fault(line, c, c.text,
                    fmt::format("unknown column {} in a table of {}", c.text, table_.family->name),
                    expected_one_of(c.text, expected));
        roles_.push_back({});
        continue;
      }
      if (seen[at]) text_.fault(line, c, c.text, fmt::format("column {} stands twice", c.text));
      seen[at] = true;
      const auto shapes = table_.family->columns.size();
      roles_.push_back(at < shapes   ? Role{static_cast<int>(at), -1, false}
                       : at < needed ? Role{-1, static_cast<int>(at - shapes), false}
                                     : Role{-1, -1, true});
    }
    for (std::size_t i = 0; i < needed; ++i) {
      const bool optional = i < table_.family->columns.size() && table_.family->columns[i].optional;
      if (!seen[i] && !optional)
        text_.fault(line, {"", 1}, expected[i],
                    fmt::format("missing column {} in a table of {}", expected[i], table_.family->name));
    }
    table_.numbers.resize(table_.family->columns.size());
    table_.words.resize(table_.family->columns.size());
  }

  void read_row(std::size_t line) {
    const std::vector<CsvCell> cells = text_.cells(line);
    if (cells.size() != roles_.size()) {
      text_.fault(line, fmt::format("{} cells, but {} columns", cells.size(), roles_.size()));
      return;
    }
    const std::size_t before = text_.faults();
    const auto columns = table_.family->columns;
    RowCells row;
    row.numbers.assign(columns.size(), 0);
    row.words.resize(columns.size());
    for (std::size_t i = 0; i < cells.size(); ++i) read_cell(line, cells[i], roles_[i], row);
    if (sampled_ && text_.faults() == before &&
        !(row.times[1] <= row.times[0] && row.times[0] <= row.times[2]))
      text_.fault(line, fmt::format("p10_us {} <= median_us {} <= p90_us {} does not hold", row.times[1],
                                    row.times[0], row.times[2]));
    if (text_.faults() == before) keep_row(line, std::move(row));
  }

  void read_cell(std::size_t line, const CsvCell& c, const Role& role, RowCells& row) {
    if (role.engine) {
      const std::size_t end = std::min(c.text.find_first_of("_ "), c.text.size());
      row.engine = c.text.substr(0, end);
      row.version = c.text.substr(std::min(end + 1, c.text.size()));
      if (row.engine.empty()) text_.fault(line, c, kEngine, "engine: expected a name, or a name_version");
      return;
    }
    if (role.time >= 0) {
      const auto t = static_cast<std::size_t>(role.time);
      const char* what = sampled_ ? kSampled[t] : "latency_us";
      row.times[t] = (t == 3 ? text_.integer(line, c, what, 1) : text_.time(line, c, what)).value_or(1);
      return;
    }
    const auto s = static_cast<std::size_t>(role.shape);
    const ColumnSpec& spec = table_.family->columns[s];
    if (spec.kind == optional_size && c.text.empty()) return;
    if (!is_word(spec)) {
      row.numbers[s] = text_.integer(line, c, spec.name, spec.kind == count ? 1 : 0).value_or(1);
      return;
    }
    row.words[s] = std::string(c.text);
    if (c.text.empty() && spec.kind == name)
      text_.fault(line, c, spec.name, fmt::format("{} is empty", spec.name));
    if (!c.text.empty() && !spec.words.empty() &&
        std::none_of(spec.words.begin(), spec.words.end(), [&](const char* w) { return c.text == w; })) {
      text_.fault(line, c, spec.name, fmt::format("{}: unknown name {}", spec.name, c.text),
                  expected_one_of(c.text, std::vector<std::string>(spec.words.begin(), spec.words.end())));
    }
  }

  void reserve(std::size_t rows) {
    const auto columns = table_.family->columns;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (is_word(columns[i])) {
        table_.words[i].reserve(rows);
      } else {
        table_.numbers[i].reserve(rows);
      }
    }
    table_.engines.reserve(rows);
    table_.versions.reserve(rows);
    for (auto* times : {&table_.median, &table_.low, &table_.high}) times->reserve(rows);
    table_.samples.reserve(rows);
    table_.file_rows.reserve(rows);
  }

  static std::size_t hash_of(const RowCells& row) {
    std::size_t out = std::hash<std::string>()(row.engine) * 31 + std::hash<std::string>()(row.version);
    for (const double v : row.numbers) out = out * 1000003 + std::hash<double>()(v);
    for (const std::string& w : row.words) out = out * 1000003 + std::hash<std::string>()(w);
    return out;
  }

  // Whether the table's row `at` is of the same engine and shape.
  bool is_row(std::size_t at, const RowCells& row) const {
    const auto columns = table_.family->columns;
    bool same = table_.engines[at] == row.engine && table_.versions[at] == row.version;
    for (std::size_t i = 0; i < columns.size() && same; ++i)
      same =
          is_word(columns[i]) ? table_.words[i][at] == row.words[i] : table_.numbers[i][at] == row.numbers[i];
    return same;
  }

  void keep_row(std::size_t line, RowCells row) {
    const auto columns = table_.family->columns;
    const std::size_t earlier = shapes_.add(hash_of(row), [&](std::size_t at) { return is_row(at, row); });
    if (earlier < table_.size()) {
      text_.fault(line, fmt::format("the shape of line {} again", table_.file_rows[earlier] + header_ + 1),
                  {"expected each shape once"});
      return;
    }
    table_.file_rows.push_back(line - header_);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (is_word(columns[i])) {
        table_.words[i].push_back(std::move(row.words[i]));
      } else {
        table_.numbers[i].push_back(row.numbers[i]);
      }
    }
    if (!row.engine.empty()) {
      std::pair<std::string, std::string> from{kEngine, engine_text(row.engine, row.version)};
      if (std::find(table_.provenance.begin(), table_.provenance.end(), from) == table_.provenance.end())
        table_.provenance.push_back(std::move(from));
    }
    table_.engines.push_back(std::move(row.engine));
    table_.versions.push_back(std::move(row.version));
    table_.median.emplace_back(row.times[0] / 1e6);
    table_.low.emplace_back((sampled_ ? row.times[1] : row.times[0]) / 1e6);
    table_.high.emplace_back((sampled_ ? row.times[2] : row.times[0]) / 1e6);
    table_.samples.push_back(sampled_ ? static_cast<std::int64_t>(row.times[3]) : 0);
  }

  CsvText& text_;
  std::vector<Role> roles_;  // of the file's columns
  bool sampled_ = false;     // median and percentiles, not one value
  MeasurementTable table_;
  RowSet shapes_;
  std::size_t header_ = 0;  // its line
};

// "# key: value"
void read_provenance(std::string_view line, std::vector<std::pair<std::string, std::string>>& out) {
  const std::size_t colon = line.find(": ");
  if (line.size() < 2 || colon == std::string_view::npos) return;
  const std::size_t first = line.find_first_not_of("# ");
  if (first < colon) out.emplace_back(line.substr(first, colon - first), line.substr(colon + 2));
}

std::size_t column_index(const FamilySpec& f, std::string_view column) {
  const auto at =
      std::find_if(f.columns.begin(), f.columns.end(), [&](const ColumnSpec& c) { return c.name == column; });
  SL_CHECK(at != f.columns.end(), fmt::format("{} has no column {}", f.name, column));
  return static_cast<std::size_t>(at - f.columns.begin());
}

}  // namespace

const std::vector<double>& MeasurementTable::number(std::string_view column) const {
  const std::size_t i = column_index(*family, column);
  SL_CHECK(!is_word(family->columns[i]), "the column holds numbers");
  return numbers[i];
}

const std::vector<std::string>& MeasurementTable::word(std::string_view column) const {
  if (column == kEngine) {
    SL_CHECK(engines.size() == size(), "a table that was read names an engine for each row, or \"\"");
    return engines;
  }
  const std::size_t i = column_index(*family, column);
  SL_CHECK(is_word(family->columns[i]), "the column holds names");
  return words[i];
}

MeasurementTable parse_measurements(const std::string& file_name, const std::string& text) {
  CsvText csv(file_name, text);
  const auto& lines = csv.lines();
  std::vector<std::pair<std::string, std::string>> provenance;
  std::size_t header = 0;
  CancelCheck check;
  for (; header < lines.size() && (lines[header].empty() || lines[header][0] == '#'); ++header) {
    check();
    read_provenance(lines[header], provenance);
    if (provenance.size() <= kMostProvenance) continue;
    csv.fault(header, fmt::format("more than {} lines of \"# key: value\"", kMostProvenance));
    csv.finish();
  }
  if (header == lines.size()) throw UserError(file_name + " has no header line");
  MeasurementTable table =
      is_aiconfigurator(lines[header]) ? read_aiconfigurator(csv, header) : Parser(csv).run(header);
  table.engines.resize(table.size());
  table.versions.resize(table.size());
  table.provenance.insert(table.provenance.begin(), provenance.begin(), provenance.end());
  return table;
}

MeasurementTable load_measurements(const std::filesystem::path& file) {
  return parse_measurements(file.string(), read_text(file, kLargestTable));
}

std::string measurement_csv(const MeasurementTable& t) {
  const auto columns = t.family->columns;
  const bool sampled = std::any_of(t.samples.begin(), t.samples.end(), [](std::int64_t n) { return n > 0; });
  const bool engines =
      std::any_of(t.engines.begin(), t.engines.end(), [](const std::string& e) { return !e.empty(); });
  const auto written = [&](std::size_t i) {
    return !columns[i].optional ||
           std::any_of(t.words[i].begin(), t.words[i].end(), [](const auto& w) { return !w.empty(); }) ||
           std::any_of(t.numbers[i].begin(), t.numbers[i].end(), [](double v) { return v != 0; });
  };
  std::string out;
  for (const auto& [key, value] : t.provenance) {
    if (!engines || key != kEngine) out += fmt::format("# {}: {}\n", key, value);
  }
  if (engines) out += fmt::format("{},", kEngine);
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (!written(i)) continue;
    out += fmt::format("{},", columns[i].name);
    shown.push_back(i);
  }
  out += sampled ? "median_us,p10_us,p90_us,samples\n" : "latency_us\n";
  for (std::size_t row = 0; row < t.size(); ++row) {
    if (engines) out += engine_text(t.engines[row], t.versions[row]) + ",";
    for (const std::size_t i : shown)
      out += is_word(columns[i]) ? t.words[i][row] + "," : fmt::format("{:.0f},", t.numbers[i][row]);
    out += fmt::format("{}", t.median[row].value * 1e6);
    if (sampled)
      out += fmt::format(",{},{},{}", t.low[row].value * 1e6, t.high[row].value * 1e6, t.samples[row]);
    out += "\n";
  }
  return out;
}

}  // namespace shardline
