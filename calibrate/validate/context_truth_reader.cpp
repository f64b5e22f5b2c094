#include "calibrate/validate/context_truth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "models/model/catalog.hpp"
#include "planner/scenario/scenario_parts.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

namespace {

using Id = TruthTableId;
using Column = TruthColumn;

constexpr long long kLongest = scenario_parts::kLongest;
const std::vector<std::string> kVariants{"pass-KV", "pass-Q"};

const std::vector<Column>& columns_of(Id id) {
  static const std::array<std::vector<Column>, 6> kColumns{
      {{Column::ttft, Column::ttit},
       {Column::pass_kv, Column::pass_q},
       {Column::send_recv, Column::attn, Column::all2all},
       {Column::ttft, Column::ttit},
       {Column::ttft, Column::ttit},
       {Column::attn_op, Column::attn_loop, Column::send_recv, Column::all2all, Column::whole_pass_q}}};
  return kColumns[static_cast<std::size_t>(id)];
}

struct FigureSpec {
  TruthFigure::Kind kind;
  const char *id, *unit;
};
using Figure = TruthFigure::Kind;
constexpr std::array kFigures{FigureSpec{Figure::achieved_rate, "cp16_1m_flops", "TFLOP/s"},
                              FigureSpec{Figure::standalone_rate, "fa3_standalone_8k", "TFLOP/s"},
                              FigureSpec{Figure::parallel_efficiency, "parallel_efficiency", "1"},
                              FigureSpec{Figure::mfu, "mfu", "1"},
                              FigureSpec{Figure::prefill_flops, "total_flops_1m", "FLOP"},
                              FigureSpec{Figure::tp16_over_cp2, "tp16_vs_cp2_text", "1"},
                              FigureSpec{Figure::tp64_over_cp8, "tp64_vs_cp8_text", "1"}};

// Reads one file; holds what its tables share.
class TruthReader {
 public:
  TruthReader(const Catalogs& catalogs, ContextTruth& out) : catalogs_(catalogs), out_(out) {}

  void read(const Reader& root) {
    bool any = false;
    for (const char* key : {"paper", "systems", "setup", "formulas", "table2", "external_anchor"}) {
      if (root.find(key)) out_.not_compared.emplace_back(key);
    }
    if (const auto v = root.find("model")) read_model(*v);
    if (const auto v = root.find("headline")) {
      any = true;
      read_headline(*v);
    }
    for (const Id id : {Id::table4, Id::table5, Id::table6, Id::table7, Id::table8}) {
      if (const auto v = root.find(to_string(id))) {
        any = true;
        read_table(id, *v);
      }
    }
    root.no_other_keys();
    if (root.is_map() && !any) {
      root.fault("nothing to compare",
                 {"expected at least one of: headline, table4, table5, table6, table7, table8"});
    }
  }

 private:
  // Times are predicted for one model: a table of another must not be compared with it.
  void read_model(const Reader& r) {
    const Model m = load_model("llama-3.1-405b", catalogs_.models);
    const std::string name = r.at("name").text();
    if (!name.empty() && name != "llama3-405b" && name != m.name)
      r.at("name").fault("model.name: times are predicted for " + m.name + " only, found " + name,
                         {"expected one of: llama3-405b, " + m.name});
    const auto dimension = [&](const char* key, int ours) {
      const auto v = r.find(key);
      if (!v) return;
      const auto theirs = v->integer(1, limits::kWidth);
      if (v->is_scalar() && theirs != ours && v->text() == std::to_string(theirs))
        v->fault(fmt::format("{}: {} has {}, found {}", v->path(), m.name, ours, theirs));
    };
    dimension("layers", m.layers());
    dimension("d_model", m.hidden);
    dimension("d_ffn", m.ffns.front().inner);
    dimension("heads_q", m.attentions.front().q_heads);
    dimension("heads_kv", m.attentions.front().kv_heads);
    dimension("head_dim", m.attentions.front().head_dim);
  }

  std::string read_system(const Reader& r) {
    const std::string name = r.text();
    if (name == "gtt" || name == "gti") return "h100-" + name;
    if (name.empty()) {
      if (r.is_scalar()) r.fault(r.path() + " is empty");
      return name;
    }
    const std::filesystem::path path(name);
    if (path.has_parent_path() || path.extension() == ".yaml" || path.extension() == ".yml") {
      try {
        load_system(name, catalogs_.systems);
      } catch (const UserError& e) {
        std::vector<std::string> lines;
        std::istringstream what(e.what());
        for (std::string line; std::getline(what, line);) lines.push_back("  " + line);
        r.fault(fmt::format("{}: {} cannot be used", r.path(), name), std::move(lines));
      }
      return name;
    }
    std::vector<std::string> names = system_names(catalogs_.systems);
    if (std::find(names.begin(), names.end(), name) != names.end()) return name;
    names.insert(names.end(), {"gtt", "gti"});
    std::vector<std::string> details = expected_one_of(name, names);
    details.emplace_back("or the path of a .yaml file");
    r.fault(r.path() + ": unknown system " + name, std::move(details));
    return name;
  }

  // No GPUs after a fault.
  static ContextPlan read_plan(const Reader& r) {
    const std::string text = r.text();
    const auto plan = parse_parallelism(text);
    if (!plan && r.is_scalar())
      r.fault(fmt::format("{}: unknown parallelism {}", r.path(), text),
              {"expected for instance TP8 or CP4xTP8"});
    return plan.value_or(ContextPlan{1, 0});
  }

  static bool read_variant(const Reader& r) { return scenario_parts::choice(r, kVariants) == 1u; }

  static std::string read_unit(const Reader& r) {
    static const std::vector<std::string> kUnits{"s", "ms", "us"};
    return kUnits[scenario_parts::choice(r, kUnits).value_or(0)];
  }

  // Nothing for null. Only messages may take no time: a plan on one rank sends none.
  static std::optional<Seconds> read_time(const Reader& r, Column column, const std::string& unit) {
    if (r.is_null()) return std::nullopt;
    const double v = r.number(0, 1e12);
    const bool message = column == Column::send_recv || column == Column::all2all;
    if (v <= 0 && !message && r.is_scalar() && r.text().find_first_not_of("0.") == std::string::npos)
      r.fault(fmt::format("{}: expected a positive time, found {}", r.path(), r.text()));
    return Seconds(v * unit_seconds(unit));
  }

  static void read_calibration(const Reader& row, const std::vector<std::pair<std::string, Column>>& keys,
                               TruthRow& out) {
    const auto v = row.find("calibration");
    if (!v) return;
    const auto mark = [&](Column c) { out.calibration[static_cast<std::size_t>(c)] = true; };
    if (!v->is_sequence()) {
      if (v->boolean()) {
        for (const auto& [key, column] : keys) mark(column);
      }
      return;
    }
    std::vector<std::string> names;
    for (const auto& [key, column] : keys) names.push_back(key);
    for (const Reader& item : v->items()) {
      if (const auto i = scenario_parts::choice(item, names)) mark(keys[*i].second);
    }
  }

  // The row's own, or the one that all rows of the table share.
  static std::optional<Reader> own_or_shared(const Reader& row, const Reader& table, const char* key) {
    const auto own = row.find(key);
    const auto shared = table.find(key);
    if (own) return own;
    if (!shared) row.fault(fmt::format("missing key {} in {} or in {}", key, row.path(), table.path()));
    return shared;
  }

  // Negative after a fault.
  static long long count(const Reader& r, long long lowest) {
    const long long n = r.integer(lowest, kLongest);
    return r.is_scalar() && r.text() == std::to_string(n) ? n : -1;
  }
  static bool sound(const TruthRow& row) { return row.plan.tpa > 0 && row.tokens > 0 && row.cached >= 0; }

  // A printed rate has two to four digits.
  static void check_miss_rate(const Reader& r, double miss, long long fresh, long long cached) {
    const double exact = static_cast<double>(fresh) / static_cast<double>(fresh + cached);
    if (std::abs(miss - exact) > 0.0051)
      r.fault(fmt::format("{}: T/(P+T) is {:.4g}, found {}", r.path(), exact, r.text()));
  }

  static void read_ring_tokens(Id id, const Reader& r, TruthRow& row) {
    row.tokens = count(r.at("T"), 1);
    const auto miss = r.find("miss_rate");
    const double rate = miss ? miss->number(0, 1) : 0;  // 0 after a fault
    const auto cached = id == Id::table4 ? std::optional(r.at("P")) : r.find("P");
    if (cached) {
      row.cached = count(*cached, 0);
      if (rate > 0 && sound(row)) check_miss_rate(*miss, rate, row.tokens, row.cached);
    } else if (!miss) {
      r.fault(fmt::format("missing key P or miss_rate in {}", r.path()));
    } else if (rate * static_cast<double>(kLongest) < static_cast<double>(row.tokens)) {
      row.cached = -1;
      if (rate > 0) miss->fault(fmt::format("{}: T / miss_rate exceeds {} tokens", miss->path(), kLongest));
    } else {
      row.cached = std::llround(static_cast<double>(row.tokens) / rate) - row.tokens;
    }
  }

  TruthRow read_row(Id id, const Reader& r, const Reader& table, const TruthTable& out,
                    const std::string& system) {
    TruthRow row;
    row.system = system;
    row.where = r.location();
    if (!r.is_map()) {
      r.fault(r.path() + ": expected a mapping");
      return row;
    }
    if (const auto plan = own_or_shared(r, table, "parallelism")) row.plan = read_plan(*plan);
    if (id == Id::table4 || id == Id::table5) {
      read_ring_tokens(id, r, row);
      if (id == Id::table5) row.plan.pass_q = read_variant(r.at("variant"));
      if (row.plan.tpa > 0 && row.plan.cp < 2)
        r.fault(fmt::format("{}: passing KV or Q needs at least two ranks of context parallelism", r.path()));
    } else if (id == Id::table8) {
      row.tokens = count(r.at("context"), 1);
      row.batch = static_cast<int>(r.at("batch").integer(1, 1'000'000));
      if (const auto v = r.find("effective_context")) {
        const auto effective = count(*v, 1);
        if (effective > 0 && sound(row) && effective != row.tokens / row.plan.cp)
          v->fault(fmt::format("{}: context / CP is {}, found {}", v->path(), row.tokens / row.plan.cp,
                               effective));
      }
    } else {
      if (const auto v = own_or_shared(r, table, "tokens")) row.tokens = count(*v, 1);
      if (const auto v = r.find("context")) row.label = v->text();
      if (const auto v = r.find("variant")) row.plan.pass_q = read_variant(*v);
      if (const auto v = r.find("batch")) row.batch = static_cast<int>(v->integer(1, 1'000'000));
    }
    std::vector<std::pair<std::string, Column>> keys;
    for (const Column c : out.columns) {
      keys.emplace_back(to_string(c), c);
      if (const auto v = r.find(to_string(c)))
        row.times[static_cast<std::size_t>(c)] = read_time(*v, c, out.unit);
    }
    if (row.batch > 1 && id != Id::table8 && row.time(Column::ttft))
      r.at("ttft").fault(
          fmt::format("{}.ttft: predicted for batch 1 only, found batch {}", r.path(), row.batch));
    read_calibration(r, keys, row);
    r.find("note");
    r.no_other_keys();
    return row;
  }

  void read_table(Id id, const Reader& r) {
    TruthTable table;
    table.id = id;
    table.columns = columns_of(id);
    if (!r.is_map()) {
      r.fault(r.path() + ": expected a mapping with system, unit and rows");
      return;
    }
    const std::string system = read_system(r.at("system"));
    table.unit = read_unit(r.at("unit"));
    for (const char* key : {"title", "at", "repeat", "note", "parallelism"}) r.find(key);
    if (id == Id::table6 || id == Id::table7) r.find("tokens");
    if (id == Id::table4) read_claims(r);
    const Reader rows = r.at("rows");
    if (rows.is_sequence() && rows.items().empty()) rows.fault(rows.path() + " is empty");
    for (const Reader& item : rows.items())
      add(table, item, read_row(id, item, r, table, system), Column::count);
    r.no_other_keys();
    if (!table.rows.empty()) out_.tables.push_back(std::move(table));
  }

  void add(TruthTable& table, const Reader& r, TruthRow row, Column column) {
    if (sound(row)) {
      const std::string key = fmt::format("{} {}", to_string(table.id), measurement(table.id, row, column));
      const auto [at, fresh] = rows_.emplace(key, row.where.line);
      if (!fresh) r.fault(fmt::format("{} repeats the row at line {}", r.path(), at->second));
    }
    table.rows.push_back(std::move(row));
  }

  void read_claims(const Reader& table) {
    const auto claims = table.find("claims");
    if (!claims) return;
    for (const Reader& c : claims->items()) {
      const std::string id = c.at("id").text();
      if (id == "tipping_point")
        out_.tipping_tokens = count(c.at("T"), 1);
      else if (!id.empty())
        out_.not_compared.push_back("table4.claims." + id);
    }
  }

  void read_headline(const Reader& r) {
    TruthTable table;
    table.columns = columns_of(Id::headline);
    std::map<std::string, int> ids;
    for (const Reader& item : r.items()) {
      const std::string id = item.at("id").text();
      const auto [at, fresh] = ids.emplace(id, item.location().line);
      if (!fresh && !id.empty())
        item.at("id").fault(fmt::format("{}: {} is already at line {}", item.path(), id, at->second));
      const std::string metric = item.has("metric") ? item.at("metric").text() : "";
      if (metric == "TTFT" || metric == "TTIT") {
        read_headline_time(item, id, metric == "TTFT" ? Column::ttft : Column::ttit, table);
      } else if (id == "gti_scaling") {
        out_.gti_claim = true;
        for (const char* key : {"system", "claim", "place", "note"}) item.find(key);
        item.no_other_keys();
      } else {
        read_figure(item, id);
      }
    }
    if (!table.rows.empty()) out_.tables.push_back(std::move(table));
  }

  void read_headline_time(const Reader& r, const std::string& id, Column column, TruthTable& table) {
    TruthRow row;
    row.label = id;
    row.where = r.location();
    row.system = read_system(r.at("system"));
    row.plan = read_plan(r.at("parallelism"));
    if (const auto v = r.find("variant")) row.plan.pass_q = read_variant(*v);
    row.tokens = count(r.at("tokens"), 1);
    const std::string unit = read_unit(r.at("unit"));
    row.times[static_cast<std::size_t>(column)] = read_time(r.at("value"), column, unit);
    read_calibration(r, {{"value", column}}, row);
    for (const char* key : {"metric", "place", "note"}) r.find(key);
    r.no_other_keys();
    add(table, r, std::move(row), column);
  }

  void read_figure(const Reader& r, const std::string& id) {
    const auto spec =
        std::find_if(kFigures.begin(), kFigures.end(), [&](const FigureSpec& s) { return id == s.id; });
    if (spec == kFigures.end()) {
      if (!id.empty()) out_.not_compared.push_back("headline." + id);
      return;
    }
    TruthFigure f;
    f.kind = spec->kind;
    f.id = id;
    f.unit = spec->unit;
    f.where = r.location();
    f.system = r.has("system") ? read_system(r.at("system")) : "h100-gtt";
    const Reader value = r.at("value");
    if (!value.is_null()) f.value = value.number(0, 1e30);
    if (const auto unit = r.find("unit"); unit && unit->text() != spec->unit)
      unit->fault(fmt::format("{}: expected {}, found {}", unit->path(), spec->unit, unit->text()));
    for (const char* key : {"system", "metric", "claim", "place", "note"}) r.find(key);
    r.no_other_keys();
    if (f.value > 0) out_.figures.push_back(std::move(f));
  }

  const Catalogs& catalogs_;
  ContextTruth& out_;
  std::map<std::string, int> rows_;
};

ContextTruth read_truth(const std::string& name, const Document& document, const Catalogs& catalogs) {
  ContextTruth out;
  out.file = name;
  TruthReader(catalogs, out).read(document.root());
  document.finish();
  return out;
}

}  // namespace

ContextTruth parse_context_truth(const std::string& name, const std::string& text, const Catalogs& catalogs) {
  return read_truth(name, Document::parse(name, text), catalogs);
}

ContextTruth load_context_truth(const std::filesystem::path& file, const Catalogs& catalogs) {
  return read_truth(file.string(), Document::load(file), catalogs);
}

}  // namespace shardline
