#include "calibrate/validate/apb_truth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "models/model/catalog.hpp"
#include "planner/scenario/scenario_parts.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

namespace {

constexpr std::array<const char*, kApbMethods> kMethods{"FLASHATTN", "MINFERENCE", "ULYSSES",
                                                        "RINGATTN",  "STARATTN",   "APB"};
constexpr std::array<const char*, 10> kColumns{
    "qkv", "retaining_head", "communication", "attention", "o_proj",
    "ffn", "others",         "block",         "prefill",   "speed"};

// The paper's tables with speeds or what follows from them. The first four are compared where they give
// times.
constexpr std::array<const char*, 9> kTables{"table5",  "table8",  "table9",  "table12", "table13",
                                             "table14", "table15", "table16", "table18"};

// "131072", "128K".
std::optional<long long> length(const std::string& text) {
  const bool kilo = text.ends_with('K');
  const std::string digits = kilo ? text.substr(0, text.size() - 1) : text;
  if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(digits) * (kilo ? 1024 : 1);
}

template <class Id, std::size_t N>
std::optional<Id> named(const std::array<const char*, N>& names, const std::string& text) {
  for (std::size_t i = 0; i < N; ++i) {
    if (text == names[i]) return static_cast<Id>(i);
  }
  return std::nullopt;
}

struct Mark {
  std::string table;
  ApbMethod method = ApbMethod::apb;
  long long tokens = 0;            // 0: every length
  std::vector<ApbColumn> columns;  // empty: every column
  bool operator()(const ApbValue& v) const {
    return base_table(v.table) == table && v.method == method && v.batch == 1 && v.task.empty() &&
           (tokens == 0 || tokens == v.tokens) &&
           (columns.empty() || std::find(columns.begin(), columns.end(), v.column) != columns.end());
  }
};

class ApbReader {
 public:
  ApbReader(const Catalogs& catalogs, ApbTruth& out) : models_(catalog_names(catalogs.models)), out_(out) {}

  std::vector<Mark> marks;

  void read(const Reader& root) {
    for (const std::string& key : root.is_map() ? root.keys() : std::vector<std::string>{}) {
      const Reader at = root.at(key);
      if (is_table(at, key)) {
        read_table(key, at);
      } else if (key == "headline") {
        read_headline(at);
      } else if (key == "generation") {
        out_.generation = at.quantity<Seconds>(Seconds(0), Seconds(1e4));
      } else if (key == "minference") {
        read_calls(at);
      } else if (key == "calibration") {
        read_marks(at);
      } else if (key != "paper" && key != "setup" && key != "sizes") {
        out_.not_compared.push_back(key);
      }
    }
  }

 private:
  struct Row {
    ApbMethod method;
    std::string model;
    long long tokens = 0;
    int batch = 1;
  };

  // Faults for a table that the paper does not have, and for a name that is nearly a table's.
  bool is_table(const Reader& at, const std::string& key) const {
    static const std::vector<std::string> names(kTables.begin(), kTables.end());
    const std::string base = base_table(key);
    const auto known = std::find(names.begin(), names.end(), base);
    if (known != names.end()) {
      if (!at.is_map() || !at.has("rows")) return false;
      return known - names.begin() >= 4 || (at.has("unit") && is_unit(at.at("unit").text()));
    }
    if (base.starts_with("table") || !nearest_name(key, names).empty())
      at.fault("the paper has no " + key + " with times", expected_one_of(base, names));
    return false;
  }

  static bool is_unit(const std::string& text) {
    return text == "s" || text == "ms" || text == "us" || text.starts_with("tok");
  }

  bool is_model(const std::string& text) const {
    return std::find(models_.begin(), models_.end(), text) != models_.end();
  }

  void read_headline(const Reader& at) {
    for (const Reader& item : at.is_sequence() ? at.items() : std::vector<Reader>{}) {
      const std::string claim = item.is_map() && item.has("claim") ? item.at("claim").text() : "";
      double* const to = claim == "APB over FlashAttn"  ? &out_.over_flash
                         : claim == "APB over RingAttn" ? &out_.over_ring
                         : claim == "APB over StarAttn" ? &out_.over_star
                                                        : nullptr;
      if (to) *to = item.at("value").number(0.001, 1e6);
      if (!to) out_.not_compared.push_back(claim.empty() ? item.path() : "headline: " + claim);
    }
  }

  void read_calls(const Reader& at) {
    at.find("at");
    out_.calls.model = models_[at.at("model").one_of(models_)];
    at.at("unit").one_of({"s"});
    for (const Reader& n : at.at("tokens").items())
      out_.calls.tokens.push_back(n.integer(1, scenario_parts::kLongest));
    const Reader rows = at.at("rows");
    for (auto [key, to] :
         {std::pair{"FLASHATTN", &out_.calls.flash}, {"MINFERENCE", &out_.calls.minference}}) {
      const Reader row = rows.at(key);
      for (const Reader& time : row.items()) to->push_back(time.number(1e-9, 1e6));
      if (to->size() != out_.calls.tokens.size() || to->empty())
        row.fault(
            fmt::format("{}: {} values for {} lengths", row.path(), to->size(), out_.calls.tokens.size()));
    }
    rows.no_other_keys();
    at.no_other_keys();
  }

  void read_marks(const Reader& at) {
    for (const Reader& item : at.items()) {
      Mark m;
      m.table = item.at("table").text();
      m.method = static_cast<ApbMethod>(item.at("method").one_of({kMethods.begin(), kMethods.end()}));
      if (const auto v = item.find("tokens")) m.tokens = v->integer(1, scenario_parts::kLongest);
      if (const auto v = item.find("columns")) {
        for (const Reader& c : v->items())
          m.columns.push_back(static_cast<ApbColumn>(c.one_of({kColumns.begin(), kColumns.end()})));
      }
      item.no_other_keys();
      marks.push_back(std::move(m));
    }
  }

  void read_table(const std::string& id, const Reader& at) {
    table_ = {id, at.has("title") ? at.at("title").text() : id, "", 1};
    const std::string base = base_table(id);
    const bool speeds = base == "table15" || base == "table18";
    table_.unit = at.has("unit") ? at.at("unit").text() : speeds ? "tok/s" : base == "table16" ? "ms" : "s";
    rate_ = table_.unit.starts_with("tok");
    if (at.has("unit") && !is_unit(table_.unit)) at.at("unit").one_of({"s", "ms", "us", "tok/s"});
    if (!rate_) table_.scale = table_.unit == "us" ? 1e-6 : table_.unit == "ms" ? 1e-3 : 1;
    Row row{ApbMethod::apb, at.has("model") ? at.at("model").text() : "llama-3.1-8b", 131'072};
    columns_.clear();
    lengths_.clear();
    if (at.has("columns")) {
      for (const Reader& c : at.at("columns").items()) columns_.push_back(c.text());
    }
    if (at.has("tokens")) {
      const Reader tokens = at.at("tokens");
      for (const Reader& n : tokens.is_sequence() ? tokens.items() : std::vector<Reader>{tokens})
        lengths_.push_back(n.integer(1, scenario_parts::kLongest));
      row.tokens = lengths_.empty() ? row.tokens : lengths_.front();
    }
    if (at.has("batch")) row.batch = batch_of(at.at("batch"));
    at.allow_other_keys();
    const std::size_t before = out_.values.size();
    read_rows(at.at("rows"), row);
    if (out_.values.size() > before) out_.tables.push_back(table_);
  }

  // Rows are named by method, or by model and then method; a list names both in each row.
  void read_rows(const Reader& rows, Row row) {
    if (rows.is_sequence()) {
      for (const Reader& item : rows.items()) read_listed(item, row);
      return;
    }
    for (const std::string& key : rows.keys()) {
      const Reader at = rows.at(key);
      if (const auto method = named<ApbMethod>(kMethods, key)) {
        row.method = *method;
        read_values(at, row);
      } else if (is_model(key)) {
        Row of = row;
        of.model = key;
        read_rows(at, of);
      } else {
        out_.not_compared.push_back(table_.id + ": " + key);
      }
    }
  }

  static int batch_of(const Reader& at) { return static_cast<int>(at.integer(1, 1024)); }

  // A list as long as `columns`, one of which is "method".
  void read_tuple(const Reader& item, Row row) {
    const auto cells = item.items();
    const auto at_column = [&](const char* name) {
      const auto it = std::find(columns_.begin(), columns_.end(), name);
      return it == columns_.end() ? columns_.size() : static_cast<std::size_t>(it - columns_.begin());
    };
    if (cells.size() != columns_.size() || at_column("method") == columns_.size())
      return item.fault("a row that is a list needs `columns` as many, one of them method");
    const std::string name = cells[at_column("method")].text();
    const auto method = named<ApbMethod>(kMethods, name);
    if (!method) return out_.not_compared.push_back(table_.id + ": " + name);
    row.method = *method;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string& column = columns_[i];
      if (column == "model") row.model = cells[i].text();
      if (column == "tokens" || column == "n") row.tokens = cells[i].integer(1, scenario_parts::kLongest);
      if (column == "batch") row.batch = batch_of(cells[i]);
    }
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!is_key(columns_[i])) add(cells[i], columns_[i], row);
    }
  }

  static bool is_key(const std::string& name) {
    return name == "method" || name == "model" || name == "tokens" || name == "n" || name == "batch";
  }

  void read_listed(const Reader& item, Row row) {
    if (item.is_sequence()) return read_tuple(item, row);
    const std::string name = item.at("method").text();
    const auto method = named<ApbMethod>(kMethods, name);
    if (!method) return out_.not_compared.push_back(table_.id + ": " + name);
    row.method = *method;
    if (item.has("model")) row.model = item.at("model").text();
    for (const char* key : {"tokens", "n"}) {
      if (item.has(key)) row.tokens = item.at(key).integer(1, scenario_parts::kLongest);
    }
    if (item.has("batch")) row.batch = batch_of(item.at("batch"));
    for (const std::string& key : item.keys()) {
      if (!is_key(key)) add(item.at(key), key, row);
    }
  }

  void read_values(const Reader& at, Row row) {
    if (at.is_map()) {
      for (const std::string& key : at.keys()) add(at.at(key), key, row);
      return;
    }
    if (!at.is_sequence()) return add(at, columns_.empty() ? "" : columns_.front(), row);
    const auto items = at.items();
    const bool by_length = columns_.empty();
    const std::size_t places = by_length ? lengths_.size() : columns_.size();
    if (items.size() != places) {
      at.fault(fmt::format("{}: {} values for {} {}", at.path(), items.size(), places,
                           by_length ? "lengths" : "columns"));
      return;
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (by_length) row.tokens = lengths_[i];
      add(items[i], by_length ? "" : columns_[i], row);
    }
  }

  void add(const Reader& at, const std::string& label, const Row& row) {
    ApbValue v{table_.id,  row.model, "", row.method, rate_ ? ApbColumn::speed : ApbColumn::prefill,
               row.tokens, row.batch};
    if (const auto column = named<ApbColumn>(kColumns, label)) {
      v.column = *column;
    } else if (is_model(label)) {
      v.model = label;
    } else if (const auto tokens = length(label)) {
      v.tokens = *tokens;
    } else if (rate_ && !label.empty()) {
      if (label != "SG1") v.task = label;
    } else if (!label.empty() && label != "time" && label != "ttft" && label != "prefill_time") {
      const std::string what = table_.id + ": " + label;
      if (std::find(out_.not_compared.begin(), out_.not_compared.end(), what) == out_.not_compared.end())
        out_.not_compared.push_back(what);
      return;
    }
    if (at.is_null() || at.text() == "OOM" || at.text() == "-") return;
    if (!is_model(v.model))
      return at.fault("no model is called " + v.model, expected_one_of(v.model, models_));
    v.published = at.number(1e-9, 1e12) * (rate_ ? 1 : table_.scale);
    out_.values.push_back(std::move(v));
  }

  std::vector<std::string> models_;
  ApbTruth& out_;
  ApbTable table_;
  bool rate_ = false;
  std::vector<std::string> columns_;
  std::vector<long long> lengths_;
};

std::filesystem::path shipped(const Catalogs& catalogs) {
  return catalogs.models.parent_path().parent_path() / "calibrate/validate/apb.yaml";
}

ApbTruth read(Document document, const Catalogs& catalogs, std::vector<Mark>& marks) {
  ApbTruth truth;
  ApbReader reader(catalogs, truth);
  reader.read(document.root());
  if (truth.values.empty() && !document.faulty())
    document.root().fault("nothing to compare: no table has a value");
  document.finish();
  marks = std::move(reader.marks);
  return truth;
}

void mark(ApbTruth& truth, const std::vector<Mark>& marks) {
  for (ApbValue& v : truth.values) {
    for (const Mark& m : marks) v.calibration = v.calibration || m(v);
  }
}

ApbTruth complete(ApbTruth truth, std::vector<Mark> marks, const Catalogs& catalogs) {
  std::vector<Mark> fitted;
  const ApbTruth own = read(Document::load(shipped(catalogs)), catalogs, fitted);
  marks.insert(marks.end(), fitted.begin(), fitted.end());
  mark(truth, marks);
  if (truth.generation <= Seconds(0)) truth.generation = own.generation;
  if (truth.calls.tokens.empty()) truth.calls = own.calls;
  if (truth.over_flash == 0) truth.over_flash = own.over_flash;
  if (truth.over_ring == 0) truth.over_ring = own.over_ring;
  if (truth.over_star == 0) truth.over_star = own.over_star;
  return truth;
}

}  // namespace

std::string base_table(const std::string& id) { return id.substr(0, id.find('_')); }

const char* to_string(ApbMethod m) { return kMethods[static_cast<std::size_t>(m)]; }
const char* to_string(ApbColumn c) { return kColumns[static_cast<std::size_t>(c)]; }

Seconds ApbHeadCalls::each(int heads) const { return Seconds((minference.front() - flash.front()) / heads); }

ApbTruth parse_apb_truth(const std::string& name, const std::string& text, const Catalogs& catalogs) {
  std::vector<Mark> marks;
  ApbTruth truth = read(Document::parse(name, text), catalogs, marks);
  return complete(std::move(truth), std::move(marks), catalogs);
}

ApbTruth load_apb_truth(const std::string& file, const Catalogs& catalogs) {
  std::vector<Mark> marks;
  ApbTruth truth =
      read(Document::load(file.empty() ? shipped(catalogs) : std::filesystem::path(file)), catalogs, marks);
  truth = complete(std::move(truth), std::move(marks), catalogs);
  truth.file = file;
  return truth;
}

}  // namespace shardline
