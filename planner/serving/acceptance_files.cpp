// Acceptance from files: a user's own, in YAML or CSV, and the fitted curves that come with the project.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "planner/serving/acceptance.hpp"
#include "planner/serving/trace_row.hpp"
#include "sim/base/read_text.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

namespace {

constexpr double kLeastParameter = 1e-6;
// Of a table in CSV: a row for each number of drafts has some hundred bytes.
constexpr std::size_t kLargestAcceptance = std::size_t{1} << 20;
constexpr std::size_t kMostFaults = 100;  // then nothing new is said

AcceptanceForm read_form(const Reader& at) {
  AcceptanceForm form;
  form.p = at.at("p").number(kLeastParameter, 1);
  const Reader g = at.at("g");
  form.g = g.number(kLeastParameter, 64);
  if (form.g > 1)
    g.fault(
        fmt::format("{}: {} would make every draft more probable than the one before it", g.path(), form.g),
        {"expected above 0, at most 1; what your drafts do beyond that, a table says"});
  return form;
}

/// Faults between rows, told by `fault` of a row's place in `points`: a k twice, a mean outside 1 to 1 + k.
template <class Fault>
void check_points(const std::vector<MeasuredAcceptance>& points, Fault&& fault) {
  std::vector<bool> seen(kMostDrafts + 1, false);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const MeasuredAcceptance& point = points[i];
    auto&& known = seen[static_cast<std::size_t>(point.k)];
    if (known) fault(i, "drafts", fmt::format("{} drafts are given twice", point.k));
    known = true;
    if (point.mean < 1 || point.mean > 1 + point.k)
      fault(i, "mean",
            fmt::format("a step with {} drafts yields from 1 to {} tokens, not {}", point.k, 1 + point.k,
                        point.mean));
  }
}

AcceptanceCurve curve_of(std::vector<MeasuredAcceptance> points, std::optional<AcceptanceForm> form) {
  if (points.empty()) return AcceptanceCurve(*form);
  std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.k < b.k; });
  return AcceptanceCurve(std::move(points), form);
}

AcceptanceCurve read_yaml(const Document& document) {
  const auto curve = read_acceptance(document, document.root());
  document.finish();
  return *curve;
}

/// A CSV of two columns, row by row, with every fault.
class CsvTable {
 public:
  CsvTable(const std::string& file, const std::string& text) : file_(file) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      lines_.push_back(line);
    }
  }

  AcceptanceCurve read() {
    read_header();
    for (std::size_t i = 1; i < lines_.size() && faults_.empty(); ++i) rows_.push_back(i);
    for (const std::size_t row : rows_) {
      if (faults_.size() < kMostFaults) read_row(row);
    }
    if (faults_.empty() && points_.empty())
      fault(lines_.empty() ? 0 : lines_.size() - 1, 1, "", "no row of drafts and mean");
    if (faults_.empty())
      check_points(points_, [&](std::size_t i, const char* key, const std::string& what) {
        const bool first = std::string_view(key) == "drafts";
        fault(static_cast<std::size_t>(points_[i].where.line - 1),
              first ? columns_[i].first : columns_[i].second, key, what);
      });
    if (!faults_.empty()) throw UserError(std::move(faults_));
    return curve_of(std::move(points_), std::nullopt);
  }

 private:
  Location place(std::size_t line, std::size_t column, std::string key) const {
    Location where;
    where.file = file_;
    where.line = static_cast<int>(line) + 1;
    where.column = static_cast<int>(column);
    where.source_line = line < lines_.size() ? lines_[line] : "";
    where.key = std::move(key);
    return where;
  }
  void fault(std::size_t line, std::size_t column, std::string key, std::string what,
             std::vector<std::string> details = {}) {
    faults_.push_back({place(line, column, std::move(key)), std::move(what), std::move(details)});
  }

  void read_header() {
    const auto cells = trace_cells(lines_.empty() ? "" : lines_[0]);
    if (cells.size() != 2 || cells[0].text != "drafts" || cells[1].text != "mean")
      fault(0, 1, "", "unknown columns", {"expected the header drafts,mean"});
  }
  template <class Number>
  Number cell(std::size_t line, const TraceCell& at, const char* key, Number low, Number high,
              const char* wanted) {
    Number value{};
    const char* const end = at.text.data() + at.text.size();
    const auto [stop, error] = std::from_chars(at.text.data(), end, value);
    if (error != std::errc{} || stop != end || !(value >= low && value <= high))
      fault(line, at.column, key, fmt::format("{}: found {}", key, at.text), {wanted});
    return value;
  }
  void read_row(std::size_t line) {
    if (lines_[line].find_first_not_of(" \t") == std::string::npos) return;
    const auto cells = trace_cells(lines_[line]);
    if (cells.size() != 2)
      return fault(
          line, 1, "",
          cells.size() > kMostTraceCells ? "a row of too many cells" : fmt::format("{} cells", cells.size()),
          {"expected two: drafts,mean"});
    const std::size_t before = faults_.size();
    const std::string integer = fmt::format("expected an integer from 1 to {}", kMostDrafts);
    const int k = cell<int>(line, cells[0], "drafts", 1, kMostDrafts, integer.c_str());
    const double mean = cell<double>(line, cells[1], "mean", 0, 1e6, "expected a number of tokens of a step");
    if (faults_.size() > before) return;
    points_.push_back({k, mean, place(line, cells[0].column, "drafts")});
    columns_.emplace_back(cells[0].column, cells[1].column);
  }

  const std::string& file_;
  std::vector<std::string> lines_;
  std::vector<std::size_t> rows_;
  std::vector<MeasuredAcceptance> points_;
  std::vector<std::pair<std::size_t, std::size_t>> columns_;
  std::vector<Diagnostic> faults_;
};

/// Rows of drafts and mean, with the faults of each and, where there are none, those between rows.
std::vector<MeasuredAcceptance> read_table(const Document& document, const Reader& table) {
  std::vector<MeasuredAcceptance> points;
  const std::vector<Reader> items = table.items();
  if (table.is_sequence() && items.empty())
    table.fault("table is empty", {"expected rows of drafts and mean"});
  for (const Reader& item : items) {
    const int k = static_cast<int>(item.at("drafts").integer(1, kMostDrafts));
    points.push_back({k, item.at("mean").number(0, 1e6), item.location()});
    item.no_other_keys();
  }
  if (!document.faulty())
    check_points(points, [&](std::size_t i, const char* key, const std::string& what) {
      const Reader at = items[i].at(key);
      at.fault(at.path() + ": " + what);
    });
  return points;
}

// Names are unique: a second curve of a name would silently be another one.
void check_names(const std::vector<PublishedAcceptance>& curves, const std::vector<Reader>& items) {
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const auto same = [&](const PublishedAcceptance& c) { return c.name() == curves[i].name(); };
    if (std::any_of(curves.begin(), curves.begin() + static_cast<std::ptrdiff_t>(i), same))
      items[i].fault(fmt::format("{} is named twice", curves[i].name()));
  }
}

std::vector<PublishedAcceptance> read_published(const Document& document) {
  const Reader root = document.root();
  const std::string source = root.at("source").text();
  std::vector<PublishedAcceptance> out;
  const std::vector<Reader> items = root.at("curves").items();
  for (const Reader& item : items) {
    PublishedAcceptance curve;
    curve.model = item.at("model").text();
    curve.method = item.at("method").text();
    curve.thinking = item.at("thinking").one_of({"on", "off"}) == 0 ? "on" : "off";
    curve.form = read_form(item);
    curve.most_drafts = static_cast<int>(item.at("drafts").integer(2, kMostDrafts));
    const Reader error = item.at("error");
    curve.median_error = error.at("median").number(0, 1);
    curve.largest_error = error.at("largest").number(curve.median_error, 1);
    curve.points = read_table(document, item.at("table"));
    std::sort(curve.points.begin(), curve.points.end(),
              [](const auto& a, const auto& b) { return a.k < b.k; });
    curve.source = fmt::format("{}, {}", source, item.at("file").text());
    if (error.is_map()) error.no_other_keys();
    if (item.is_map()) item.no_other_keys();
    out.push_back(std::move(curve));
  }
  check_names(out, items);
  if (root.is_map()) root.no_other_keys();
  document.finish();
  return out;
}

}  // namespace

std::optional<AcceptanceCurve> read_acceptance(const Document& document, const Reader& root) {
  root.keys();  // a fault where it is no mapping
  std::optional<AcceptanceForm> form;
  const auto table = root.find("table");
  if (!table || root.has("p") || root.has("g")) form = read_form(root);
  std::vector<MeasuredAcceptance> points;
  if (table) points = read_table(document, *table);
  root.no_other_keys();
  if (document.faulty()) return std::nullopt;
  return curve_of(std::move(points), form);
}

std::string PublishedAcceptance::name() const {
  return fmt::format("{}-{}-thinking-{}", model, method, thinking);
}

AcceptanceCurve PublishedAcceptance::curve() const {
  return AcceptanceCurve(points, form, {name(), method, source});
}

std::vector<PublishedAcceptance> parse_published_acceptance(const std::string& file,
                                                            const std::string& text) {
  return read_published(Document::parse(file, text));
}

std::vector<PublishedAcceptance> load_published_acceptance(const std::filesystem::path& file) {
  return read_published(Document::load(file));
}

AcceptanceCurve parse_acceptance(const std::string& file, const std::string& text) {
  if (std::filesystem::path(file).extension() == ".csv") return CsvTable(file, text).read();
  return read_yaml(Document::parse(file, text));
}

AcceptanceCurve load_acceptance(const std::filesystem::path& file) {
  if (file.extension() == ".csv") return parse_acceptance(file.string(), read_text(file, kLargestAcceptance));
  return read_yaml(Document::load(file));
}

AcceptanceCurve acceptance_named(const std::string& name_or_path, const std::filesystem::path& published) {
  const std::filesystem::path path(name_or_path);
  const std::string type = path.extension().string();
  if (path.has_parent_path() || type == ".yaml" || type == ".yml" || type == ".csv")
    return load_acceptance(path);
  const std::vector<PublishedAcceptance> curves = load_published_acceptance(published);
  std::vector<std::string> names;
  names.reserve(curves.size());
  for (const PublishedAcceptance& curve : curves) names.push_back(curve.name());
  const auto curve_of = [&](const std::string& name) {
    return curves[static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin())]
        .curve();
  };
  std::error_code error;  // a file of just this name goes before a name in other capitals
  const auto named = name_in_any_case(name_or_path, names);
  if (named == name_or_path) return curve_of(*named);
  if (std::filesystem::exists(path, error)) return load_acceptance(path);
  if (named) return curve_of(*named);
  std::vector<std::string> details = expected_one_of(name_or_path, names);
  details.emplace_back("or {p, g}, {table: [{drafts, mean}]}, or a file of yours (.yaml, .csv)");
  throw UserError({Diagnostic{{}, "no published acceptance is called " + name_or_path, std::move(details)}});
}

}  // namespace shardline
