#include "planner/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "models/catalog.hpp"

namespace shardline {

namespace {

constexpr int kLargestBatch = 65536;

std::optional<Dtype> read_dtype(const Reader& r) {
  static const std::vector<std::string> names{"fp4", "fp8", "bf16", "fp32"};
  return static_cast<Dtype>(r.one_of(names));
}

Precision read_precision(const Reader& r) {
  Precision p;
  if (const auto v = r.find("weights")) p.weights = *read_dtype(*v);
  if (const auto v = r.find("kv")) p.kv = *read_dtype(*v);
  if (const auto v = r.find("math")) p.math = *read_dtype(*v);
  if (const auto v = r.find("activations")) p.activations = *read_dtype(*v);
  if (const auto v = r.find("dispatch")) p.dispatch = *read_dtype(*v);
  r.no_other_keys();
  return p;
}

// A list, or {from, to} with an optional step: `double` or a number to add.
std::vector<int> read_counts(const Reader& r, int highest) {
  std::vector<int> out;
  if (r.is_sequence()) {
    for (const Reader& item : r.items()) out.push_back(static_cast<int>(item.integer(1, highest)));
  } else if (r.is_map()) {
    const auto from = static_cast<int>(r.at("from").integer(1, highest));
    const auto to = static_cast<int>(r.at("to").integer(1, highest));
    if (from > to) r.fault(fmt::format("{} runs from {} to {}: from must not exceed to", r.path(), from, to));
    int step = 1;
    bool doubles = false;
    if (const auto s = r.find("step")) {
      if (s->is_scalar() && s->text() == "double") doubles = true;
      else step = static_cast<int>(s->integer(1, highest));
    }
    r.no_other_keys();
    for (int n = from; n <= to; n = doubles ? 2 * n : n + step) out.push_back(n);
  } else {
    out.push_back(static_cast<int>(r.integer(1, highest)));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  if (out.empty()) r.fault(r.path() + " is empty", {"expected a number, a list of numbers or {from: 1, to: 64}"});
  return out;
}

std::vector<StrategyId> read_strategies(const Reader& r) {
  std::vector<std::string> names;
  for (const Strategy* s : strategies()) names.emplace_back(s->name);
  std::vector<StrategyId> out;
  for (const Reader& item : r.items()) {
    const StrategyId id = strategies()[item.one_of(names)]->id;
    if (std::find(out.begin(), out.end(), id) != out.end()) item.fault("strategy " + item.text() + " is listed twice");
    out.push_back(id);
  }
  if (out.empty()) r.fault(r.path() + " is empty", {"expected a list of strategies"});
  return out;
}

Routing read_routing(const Reader& r) {
  Routing routing;
  routing.kind = r.at("kind").one_of({"uniform", "zipf"}) == 0 ? RoutingKind::uniform : RoutingKind::zipf;
  if (routing.kind == RoutingKind::zipf) routing.skew = r.at("skew").number(0, kLargestSkew);
  if (const auto v = r.find("load")) {
    routing.load = v->one_of({"mean", "busiest"}) == 0 ? ExpertLoad::mean : ExpertLoad::busiest;
  }
  r.no_other_keys();
  return routing;
}

void read_search(const Reader& root, SearchOptions& o, int system_gpus) {
  o.strategies = read_strategies(root.at("strategies"));
  const Reader gpus = root.at("gpus");
  o.gpus = read_counts(gpus, 8192);
  if (!o.gpus.empty() && o.gpus.back() > system_gpus) {
    gpus.fault(fmt::format("gpus reaches {} but the system has {}", o.gpus.back(), system_gpus));
  }
  o.batches = read_counts(root.at("batch"), kLargestBatch);
  if (const auto v = root.find("pipeline_stages")) o.space.stages = read_counts(*v, 4096);
  if (const auto v = root.find("duplicate_kv")) o.space.duplicate_kv = v->boolean();
  if (const auto v = root.find("hopb_chunks")) o.space.chunks = read_counts(*v, 4096);
  if (const auto v = root.find("all_reduce")) {
    o.all_reduce = static_cast<AllReduceRule>(
        v->one_of({"fastest", "one_shot", "two_shot", "ring", "tree", "nvls"}));
  }
  if (const auto v = root.find("pareto")) {
    o.x = static_cast<Metric>(v->at("x").one_of(metric_names()));
    o.y = static_cast<Metric>(v->at("y").one_of(metric_names()));
    if (o.x == o.y) v->fault("pareto.x and pareto.y are the same metric");
    v->no_other_keys();
  }
  if (const auto v = root.find("constraints")) {
    if (const auto ttl = v->find("ttl")) o.ttl_budget = ttl->quantity<Seconds>(Seconds(1e-9), Seconds(1e6));
    v->no_other_keys();
  }
}

Comparison read_comparison(const Reader& root, const SearchOptions& o) {
  Comparison c;
  if (const auto v = root.find("compare")) {
    c.candidate = read_strategies(v->at("candidate"));
    c.baseline = read_strategies(v->at("baseline"));
    v->no_other_keys();
    for (const auto& list : {c.candidate, c.baseline}) {
      for (const StrategyId id : list) {
        if (std::find(o.strategies.begin(), o.strategies.end(), id) == o.strategies.end()) {
          v->fault(fmt::format("compare names {}, which strategies does not list", to_string(id)));
        }
      }
    }
  }
  return c;
}

// An error while loading a named model or system is reported where the scenario names it.
template <class Load>
auto load_at(const Reader& r, Load load) -> std::optional<decltype(load(r.text()))> {
  try {
    return load(r.text());
  } catch (const UserError& e) {
    if (e.diagnostics().size() == 1 && e.diagnostics()[0].where.line == 0) {
      r.fault(e.diagnostics()[0].what, e.diagnostics()[0].details);
    } else {
      r.fault(r.text() + " has faults of its own", {e.what()});
    }
    return std::nullopt;
  }
}

std::string tokens_text(long long tokens) {
  if (tokens % 1'000'000 == 0) return fmt::format("{}M tokens", tokens / 1'000'000);
  if (tokens % 1024 == 0) return fmt::format("{}Ki tokens", tokens / 1024);
  return fmt::format("{} tokens", tokens);
}

Scenario read_scenario(Document& document, const Catalogs& catalogs) {
  Scenario s;
  const Reader root = document.root();
  s.name = root.at("name").text();
  if (const auto v = root.find("summary")) s.summary = v->text();
  const auto system =
      load_at(root.at("system"), [&](const std::string& name) { return load_system(name, catalogs.systems); });
  std::vector<Model> models;
  for (const Reader& r : root.at("models").items()) {
    if (auto m = load_at(r, [&](const std::string& name) { return load_model(name, catalogs.models); })) {
      models.push_back(std::move(*m));
    }
  }
  const long long context = root.at("context").tokens(1, 1'000'000'000);
  int block = 16;
  if (const auto v = root.find("kv_block")) block = static_cast<int>(v->tokens(1, 1'000'000));
  const Precision precision = root.has("precision") ? read_precision(root.at("precision")) : Precision{};
  const Routing routing = root.has("routing") ? read_routing(root.at("routing")) : Routing{};
  SearchOptions options;
  read_search(root, options, system ? system->gpus() : std::numeric_limits<int>::max());
  const Comparison comparison = read_comparison(root, options);
  if (system) {
    for (const auto& [what, dtype] : {std::pair{"math", precision.math}}) {
      if (system->device.achieved(dtype) <= FlopsPerSecond(0)) {
        const Reader at = root.has("precision") ? root.at("precision") : root;
        at.fault(fmt::format("precision.{} is {}, which {} has no peak for", what, to_string(dtype), system->device.name));
      }
    }
  }
  root.no_other_keys();
  document.finish();
  for (Model& m : models) {
    const std::string title = fmt::format("{} on {}, {}", m.name, system->name, tokens_text(context));
    s.studies.push_back({make_case(std::move(m), *system, precision, context, block, routing), options, comparison, title});
  }
  return s;
}

}  // namespace

Scenario load_scenario(const std::filesystem::path& file, const Catalogs& catalogs) {
  Document document = Document::load(file);
  Scenario s = read_scenario(document, catalogs);
  s.file = file;
  return s;
}

Scenario parse_scenario(const std::string& name, const std::string& text, const Catalogs& catalogs) {
  Document document = Document::parse(name, text);
  return read_scenario(document, catalogs);
}

}  // namespace shardline
