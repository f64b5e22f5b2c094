#include "calibrate/validate/kv_runahead_truth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "models/model/catalog.hpp"
#include "planner/scenario/scenario_parts.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

namespace {

struct Column {
  std::string key;
  int gpus = 0;  // 0: the row's
  double network = 0;
  ChainMethod method = ChainMethod::tsp;
};

// "tsp", "kvr_e", "kvr_s", "base_1gpu" and "gpu4_10GBps" are times; other known columns describe the row.
std::optional<Column> time_column(const std::string& key) {
  if (key == "tsp") return Column{key, 0, 0, ChainMethod::tsp};
  if (key == "kvr_e") return Column{key, 0, 0, ChainMethod::kvr_even};
  if (key == "kvr_s") return Column{key, 0, 0, ChainMethod::kvr_searched};
  if (key == "base_1gpu") return Column{key, 1, 0, ChainMethod::one_gpu};
  Column c{key, 0, 0, ChainMethod::kvr_searched};
  int network = 0;
  const char* end = key.data() + key.size();
  if (!key.starts_with("gpu")) return std::nullopt;
  const auto gpus = std::from_chars(key.data() + 3, end, c.gpus);
  if (gpus.ec != std::errc{} || gpus.ptr == end || *gpus.ptr != '_') return std::nullopt;
  const auto rate = std::from_chars(gpus.ptr + 1, end, network);
  if (rate.ec != std::errc{} || std::string_view(rate.ptr, end) != "GBps") return std::nullopt;
  if (c.gpus < 2 || c.gpus > 1024 || network < 1) return std::nullopt;
  c.network = network;
  return c;
}

class ChainReader {
 public:
  ChainReader(const Catalogs& catalogs, ChainTruth& out)
      : catalogs_(catalogs), out_(out), models_(catalog_names(catalogs.models)) {}

  void read(const Reader& root) {
    for (const char* key : {"paper", "system", "models", "methods", "counts", "formulas", "figure_claims"}) {
      if (root.find(key)) out_.not_compared.emplace_back(key);
    }
    if (const auto v = root.find("machine")) read_machine(*v);
    if (const auto v = root.find("noise")) read_noise(*v);
    if (const auto v = root.find("figure9")) read_figure(*v);
    for (const char* key : {"table1", "table2", "table3"}) {
      if (const auto v = root.find(key)) read_table(key, *v);
    }
    if (const auto v = root.find("partitions")) {
      for (const Reader& item : v->items()) read_partition(item);
    }
    if (const auto v = root.find("calibration")) {
      for (const Reader& item : v->items()) read_mark(item);
    }
    root.no_other_keys();
    if (root.is_map() && out_.values.empty() && out_.partitions.empty())
      root.fault("nothing to compare", {"expected at least one of: table1, table2, table3, partitions"});
  }

 private:
  std::string read_model(const Reader& r) { return models_[r.one_of(models_)]; }

  void read_machine(const Reader& r) {
    ChainMachine m;
    const std::vector<std::string> systems = system_names(catalogs_.systems);
    m.system = systems[r.at("system").one_of(systems)];
    if (const auto networks = r.find("networks")) {
      for (const std::string& key : networks->keys()) {
        int rate = 0;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), rate);
        if (error != std::errc{} || end != key.data() + key.size() || rate < 1)
          networks->fault("machine.networks: expected GB/s as an integer, found " + key);
        m.networks[rate] = systems[networks->at(key).one_of(systems)];
      }
    }
    const Reader models = r.at("models");
    for (const std::string& key : models.is_map() ? models.keys() : std::vector<std::string>{}) {
      const Reader costs = models.at(key);
      ChainModelCosts& c = m.models[key];
      if (const auto v = costs.find("score_traffic"))
        c.score_traffic = v->quantity<Bytes>(Bytes(0), Bytes(1000));
      if (const auto v = costs.find("host_layer"))
        c.host_layer = v->quantity<Seconds>(Seconds(0), Seconds(1));
      costs.no_other_keys();
    }
    r.no_other_keys();
    out_.machine = std::move(m);
  }

  void read_noise(const Reader& r) {
    ChainNoise n;
    r.find("place");
    n.model = read_model(r.at("model"));
    for (const Reader& item : r.at("contexts").items())
      n.contexts.push_back(item.integer(64, scenario_parts::kLongest));
    if (n.contexts.empty()) r.fault("noise.contexts is empty");
    n.gpus = static_cast<int>(r.at("gpus").integer(2, 64));
    n.traffic = scenario_parts::read_noise(r.at("traffic"));
    n.tsp_average = r.at("tsp_average").number(0, 10);
    n.tsp_most = r.at("tsp_most").number(1e-3, 10);
    n.even_most = r.at("kvr_e_most").number(1e-3, 10);
    n.searched_most = r.at("kvr_s_most").number(1e-3, 10);
    if (const auto v = r.find("speedups")) {
      for (const Reader& item : v->items()) {
        n.speedups.push_back({static_cast<int>(item.at("gpus").integer(2, 64)),
                              item.at("quiet").number(0, 10), item.at("noisy").number(0, 10)});
        item.no_other_keys();
      }
    }
    r.no_other_keys();
    out_.noise = std::move(n);
  }

  void read_figure(const Reader& r) {
    ChainFigure f;
    r.find("place");
    f.model = read_model(r.at("model"));
    for (const Reader& item : r.at("rows").items()) {
      f.rows.push_back({static_cast<int>(item.at("gpus").integer(2, 64)),
                        item.at("context").integer(64, scenario_parts::kLongest),
                        item.at("speedup").number(0.01, 100)});
      item.no_other_keys();
    }
    if (f.rows.empty()) r.fault("figure9.rows is empty");
    r.no_other_keys();
    out_.figure = std::move(f);
  }

  void read_table(const std::string& table, const Reader& r) {
    const double unit = std::array{1.0, 1e-3, 1e-6}[r.at("unit").one_of({"s", "ms", "us"})];
    for (const char* key : {"title", "at", "note", "bandwidth_GB_per_s"}) r.find(key);
    std::string model;
    if (const auto v = r.find("model")) model = read_model(*v);
    std::vector<std::string> columns;
    const Reader names = r.at("columns");
    for (const Reader& item : names.items()) {
      columns.push_back(item.text());
      const bool known = time_column(columns.back()) || columns.back() == "model" ||
                         columns.back() == "context" || columns.back() == "gpus" ||
                         columns.back() == "speedup";
      if (!known)
        item.fault("unknown column " + columns.back(),
                   {"expected one of: model, context, gpus, tsp, kvr_e, kvr_s, speedup, base_1gpu, or "
                    "gpuN_MGBps for N GPUs at M GB/s"});
    }
    for (const Reader& row : r.at("rows").items()) read_row(table, row, columns, model, unit);
    r.no_other_keys();
  }

  void read_row(const std::string& table, const Reader& row, const std::vector<std::string>& columns,
                const std::string& model, double unit) {
    const std::vector<Reader> cells = row.items();
    if (cells.size() != columns.size()) {
      row.fault(fmt::format("{}: {} values for {} columns", row.path(), cells.size(), columns.size()));
      return;
    }
    ChainValue common;
    common.table = table;
    common.model = model;
    std::vector<std::pair<Column, Reader>> times;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (columns[i] == "model") common.model = read_model(cells[i]);
      if (columns[i] == "context") common.context = cells[i].integer(1, scenario_parts::kLongest);
      if (columns[i] == "gpus") common.gpus = static_cast<int>(cells[i].integer(2, 1024));
      if (const auto column = time_column(columns[i]); column && !cells[i].is_null())
        times.emplace_back(*column, cells[i]);
    }
    if (common.model.empty() || common.context == 0) {
      row.fault(row.path() + ": a row needs a model and a context");
      return;
    }
    for (const auto& [column, cell] : times) {
      ChainValue v = common;
      v.column = column.key;
      v.gpus = column.gpus > 0 ? column.gpus : common.gpus;
      v.network = column.network;
      v.method = column.method;
      v.time = Seconds(cell.number(1e-6, 1e6) * unit);
      v.where = cell.location();
      const std::string key = measurement(v);
      if (std::find(seen_.begin(), seen_.end(), key) != seen_.end()) {
        cell.fault(cell.path() + ": given twice");
        continue;
      }
      seen_.push_back(key);
      out_.values.push_back(std::move(v));
    }
  }

  void read_partition(const Reader& r) {
    ChainPartition p;
    p.id = r.at("id").text();
    for (const char* key : {"place", "note", "delta1", "strides", "tsp", "kvr"}) r.find(key);
    if (!r.has("model")) {
      for (const char* key : {"context", "ratios", "boundaries"}) r.find(key);
      out_.not_compared.push_back("partitions." + p.id);
      r.no_other_keys();
      return;
    }
    p.model = read_model(r.at("model"));
    p.gpus = static_cast<int>(r.at("gpus").integer(2, 1024));
    p.context = r.at("context").integer(p.gpus, scenario_parts::kLongest);
    if (const auto v = r.find("ratios")) {
      for (const Reader& item : v->items()) p.ratios.push_back(item.number(1e-6, 1));
    }
    if (const auto v = r.find("boundaries")) {
      p.coarse = true;
      double before = -1;
      for (const Reader& item : v->items()) {
        const auto at = static_cast<double>(item.integer(0, p.context));
        if (before >= 0) p.ratios.push_back((at - before) / static_cast<double>(p.context));
        before = at;
      }
    }
    if (static_cast<int>(p.ratios.size()) != p.gpus)
      r.fault(fmt::format("{}: {} parts for {} GPUs", r.path(), p.ratios.size(), p.gpus));
    if (const auto v = r.find("between")) {
      for (const Reader& item : v->items())
        p.between.push_back(item.integer(p.gpus, scenario_parts::kLongest));
      if (p.between.size() != 2 || p.between[0] >= p.context || p.between[1] <= p.context)
        v->fault(v->path() + ": expected two contexts, one below and one above");
    } else if (const auto note = r.find("note"); note && note->text().starts_with("interpolated")) {
      p.between = {8192, 12288};
    }
    r.no_other_keys();
    out_.partitions.push_back(std::move(p));
  }

  void read_mark(const Reader& r) {
    ChainValue v;
    const std::vector<std::string> tables{"table1", "table2", "table3"};
    v.table = tables[r.at("table").one_of(tables)];
    v.model = r.has("model") ? read_model(r.at("model")) : "llama-7b";
    r.find("model");
    v.context = r.at("context").integer(1, scenario_parts::kLongest);
    if (const auto gpus = r.find("gpus")) v.gpus = static_cast<int>(gpus->integer(1, 1024));
    const auto column = time_column(r.at("column").text());
    if (!column) {
      r.at("column").fault("no column of times: " + r.at("column").text());
    } else {
      if (column->gpus > 0) v.gpus = column->gpus;
      v.network = column->network;
      v.method = column->method;
      out_.fitted.push_back(measurement(v));
    }
    r.no_other_keys();
  }

  const Catalogs& catalogs_;
  ChainTruth& out_;
  std::vector<std::string> models_;
  std::vector<std::string> seen_;
};

ChainTruth read_truth(const std::string& name, const Document& document, const Catalogs& catalogs) {
  ChainTruth out;
  out.file = name;
  ChainReader(catalogs, out).read(document.root());
  document.finish();
  return out;
}

void mark(ChainTruth& truth, const std::vector<std::string>& fitted) {
  for (ChainValue& v : truth.values) {
    if (std::find(fitted.begin(), fitted.end(), measurement(v)) != fitted.end()) v.calibration = true;
  }
}

}  // namespace

const ChainModelCosts* ChainMachine::of(const std::string& model) const {
  if (const auto it = models.find(model); it != models.end()) return &it->second;
  for (const auto& [name, costs] : models) {
    if (model.starts_with(name)) return &costs;
  }
  return nullptr;
}

std::string measurement(const ChainValue& v) {
  return fmt::format("{} {} {} GPUs, {} GB/s, {} tokens", v.model, static_cast<int>(v.method), v.gpus,
                     v.network, v.context);
}

ChainTruth parse_chain_truth(const std::string& name, const std::string& text, const Catalogs& catalogs) {
  return read_truth(name, Document::parse(name, text), catalogs);
}

ChainTruth load_chain_truth(const std::filesystem::path& file, const Catalogs& catalogs) {
  return read_truth(file.string(), Document::load(file), catalogs);
}

ChainTruth chain_truth_of(const std::string& file, const Catalogs& catalogs) {
  const ChainTruth shipped = load_chain_truth(
      catalogs.models.parent_path().parent_path() / "calibrate/validate/kv_runahead.yaml", catalogs);
  ChainTruth truth = file.empty() ? shipped : load_chain_truth(file, catalogs);
  if (!truth.machine) {
    truth.machine = shipped.machine;
    if (!truth.noise) truth.noise = shipped.noise;
    if (!truth.figure) truth.figure = shipped.figure;
  }
  mark(truth, shipped.fitted);
  mark(truth, truth.fitted);
  return truth;
}

}  // namespace shardline
