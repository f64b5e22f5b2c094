#include "planner/published/apb_truth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "models/catalog.hpp"
#include "planner/published/context_truth.hpp"
#include "planner/scenario_parts.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

namespace {

constexpr std::array<const char*, kApbMethods> kMethods{"FLASHATTN", "MINFERENCE", "ULYSSES",
                                                        "RINGATTN",  "STARATTN",   "APB"};
constexpr std::array<const char*, 10> kColumns{
    "qkv", "retaining_head", "communication", "attention", "o_proj",
    "ffn", "others",         "block",         "prefill",   "speed"};

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
    return v.table == table && v.method == method && (tokens == 0 || tokens == v.tokens) &&
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
      if (key.starts_with("table") && at.is_map() && at.has("rows")) {
        read_table(key, at);
      } else if (key == "headline") {
        read_headline(at);
      } else if (key == "generation") {
        out_.generation = at.quantity<Seconds>(Seconds(0), Seconds(1e4));
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
  };

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
    const bool speeds = id == "table15" || id == "table18";
    table_.unit = at.has("unit") ? at.at("unit").text() : speeds ? "tok/s" : id == "table16" ? "ms" : "s";
    rate_ = table_.unit.starts_with("tok");
    if (!rate_)
      table_.scale =
          unit_seconds(std::vector<std::string>{"s", "ms", "us"}[at.at("unit").one_of({"s", "ms", "us"})]);
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

  void read_listed(const Reader& item, Row row) {
    const std::string name = item.at("method").text();
    const auto method = named<ApbMethod>(kMethods, name);
    if (!method) return out_.not_compared.push_back(table_.id + ": " + name);
    row.method = *method;
    if (item.has("model")) row.model = item.at("model").text();
    for (const char* key : {"tokens", "n"}) {
      if (item.has(key)) row.tokens = item.at(key).integer(1, scenario_parts::kLongest);
    }
    for (const std::string& key : item.keys()) {
      if (key != "method" && key != "model" && key != "tokens" && key != "n") add(item.at(key), key, row);
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
    ApbValue v{table_.id, row.model, row.method, rate_ ? ApbColumn::speed : ApbColumn::prefill, row.tokens};
    if (const auto column = named<ApbColumn>(kColumns, label)) {
      v.column = *column;
    } else if (is_model(label)) {
      v.model = label;
    } else if (!label.empty() && label != "SG1" && label != "time" && label != "ttft") {
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
  return catalogs.models.parent_path().parent_path() / "planner/published/apb.yaml";
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
  if (truth.over_flash == 0) truth.over_flash = own.over_flash;
  if (truth.over_ring == 0) truth.over_ring = own.over_ring;
  if (truth.over_star == 0) truth.over_star = own.over_star;
  return truth;
}

}  // namespace

const char* to_string(ApbMethod m) { return kMethods[static_cast<std::size_t>(m)]; }
const char* to_string(ApbColumn c) { return kColumns[static_cast<std::size_t>(c)]; }

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
