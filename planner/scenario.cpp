#include "planner/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <sstream>

#include "models/catalog.hpp"

namespace shardline {

namespace {

constexpr int kLargestBatch = 65536;

// Reader::one_of, but nothing where it recorded a fault: a first name in its place would cause faults that
// are none.
std::optional<std::size_t> choice(const Reader& r, const std::vector<std::string>& names) {
  const std::size_t i = r.one_of(names);
  return r.is_scalar() && r.text() == names[i] ? std::optional(i) : std::nullopt;
}

// False if the value is none of the names.
bool read_dtype(const Reader& map, std::string_view key, Dtype& out) {
  static const std::vector<std::string> names{"fp4", "fp8", "bf16", "fp32"};
  const auto v = map.find(key);
  if (!v) return true;
  const auto i = choice(*v, names);
  if (i) out = static_cast<Dtype>(*i);
  return i.has_value();
}

// Sets `math_known` to whether the arithmetic type could be read.
Precision read_precision(const Reader& r, bool& math_known) {
  Precision p;
  read_dtype(r, "weights", p.weights);
  read_dtype(r, "kv", p.kv);
  math_known = r.is_map() && read_dtype(r, "math", p.math);
  read_dtype(r, "activations", p.activations);
  read_dtype(r, "dispatch", p.dispatch);
  r.no_other_keys();
  return p;
}

// A list, or {from, to} with an optional step: `double` or a number to add.
std::vector<int> read_counts(const Reader& r, int highest) {
  std::vector<int> out;
  bool reversed = false;
  if (r.is_sequence()) {
    for (const Reader& item : r.items()) out.push_back(static_cast<int>(item.integer(1, highest)));
  } else if (r.is_map()) {
    const auto from = static_cast<int>(r.at("from").integer(1, highest));
    const auto to = static_cast<int>(r.at("to").integer(1, highest));
    reversed = from > to;
    if (reversed) r.fault(fmt::format("{} runs from {} to {}: from must not exceed to", r.path(), from, to));
    int step = 1;
    bool doubles = false;
    if (const auto s = r.find("step")) {
      const bool number = s->is_scalar() && s->text().find_first_of("0123456789") != std::string::npos;
      if (number || !s->is_scalar()) {
        step = static_cast<int>(s->integer(1, highest));
      } else {
        doubles = true;
        if (s->text() != "double")
          s->fault(fmt::format("{}: expected an integer or double, found {}", s->path(), s->text()));
      }
    }
    r.no_other_keys();
    for (int n = from; n <= to; n = doubles ? 2 * n : n + step) out.push_back(n);
  } else {
    out.push_back(static_cast<int>(r.integer(1, highest)));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  if (out.empty() && !reversed)
    r.fault(r.path() + " is empty", {"expected a number, a list of numbers or {from: 1, to: 64}"});
  return out;
}

std::vector<StrategyId> read_strategies(const Reader& r) {
  std::vector<std::string> names;
  for (const Strategy* s : strategies()) names.emplace_back(s->name);
  std::vector<StrategyId> out;
  for (const Reader& item : r.items()) {
    const auto i = choice(item, names);
    if (!i) continue;
    const StrategyId id = strategies()[*i]->id;
    if (std::find(out.begin(), out.end(), id) != out.end())
      item.fault("strategy " + item.text() + " is listed twice");
    out.push_back(id);
  }
  if (r.is_sequence() && r.items().empty()) r.fault(r.path() + " is empty", expected_one_of("", names));
  return out;
}

Routing read_routing(const Reader& r) {
  Routing routing;
  const auto kind = choice(r.at("kind"), {"uniform", "zipf"});
  if (kind == 1u) {
    routing.kind = RoutingKind::zipf;
    routing.skew = r.at("skew").number(0, kLargestSkew);
  } else if (const auto skew = r.find("skew"); skew && kind) {
    skew->fault(
        "routing.skew is for kind: zipf; every expert is as popular as the others with kind: uniform");
  }
  if (const auto v = r.find("load")) {
    routing.load = v->one_of({"mean", "busiest"}) == 0 ? ExpertLoad::mean : ExpertLoad::busiest;
  }
  r.no_other_keys();
  return routing;
}

struct Constraints {
  Seconds ttl{0};
  Bytes memory{0};
};

Constraints read_constraints(const Reader& r) {
  Constraints c;
  if (const auto v = r.find("ttl")) c.ttl = v->quantity<Seconds>(Seconds(1e-9), Seconds(1e6));
  if (const auto v = r.find("memory")) c.memory = v->quantity<Bytes>(Bytes(1e6), Bytes(1e15));
  r.no_other_keys();
  return c;
}

std::vector<DegreeRange> read_degrees(const Reader& r) {
  static constexpr std::array<std::pair<const char*, int Plan::*>, 6> kDegrees{{{"pp", &Plan::pp},
                                                                                {"dp", &Plan::dp},
                                                                                {"kvp", &Plan::kvp},
                                                                                {"tpa", &Plan::tpa},
                                                                                {"ep", &Plan::ep},
                                                                                {"tpf", &Plan::tpf}}};
  std::vector<DegreeRange> out;
  for (const auto& [name, member] : kDegrees) {
    if (const auto v = r.find(name)) out.push_back({member, read_counts(*v, 8192)});
  }
  r.no_other_keys();
  return out;
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
  if (const auto v = root.find("degrees")) o.space.degrees = read_degrees(*v);
  if (const auto v = root.find("duplicate_kv")) o.space.duplicate_kv = v->boolean();
  if (const auto v = root.find("hopb_chunks")) o.space.chunks = read_counts(*v, 4096);
  if (const auto v = root.find("all_reduce")) {
    o.all_reduce =
        static_cast<AllReduceRule>(v->one_of({"fastest", "one_shot", "two_shot", "ring", "tree", "nvls"}));
  }
  if (const auto v = root.find("pareto")) {
    const auto x = choice(v->at("x"), metric_names());
    const auto y = choice(v->at("y"), metric_names());
    if (x) o.x = static_cast<Metric>(*x);
    if (y) o.y = static_cast<Metric>(*y);
    if (x && x == y) v->fault("pareto.x and pareto.y are the same metric");
    v->no_other_keys();
  }
}

Comparison read_comparison(const Reader& root, const SearchOptions& o) {
  Comparison c;
  if (const auto v = root.find("compare")) {
    c.candidate = read_strategies(v->at("candidate"));
    c.baseline = read_strategies(v->at("baseline"));
    v->no_other_keys();
    // A strategy that could not be read may be the one that is missing.
    if (root.at("strategies").items().size() != o.strategies.size()) return c;
    for (const Reader& list : {v->at("candidate"), v->at("baseline")}) {
      for (const Reader& item : list.is_sequence() ? list.items() : std::vector<Reader>{}) {
        const auto named = [&](StrategyId id) { return to_string(id) == item.text(); };
        const auto known = [&](const Strategy* strategy) { return strategy->name == item.text(); };
        if (!item.is_scalar() || std::none_of(strategies().begin(), strategies().end(), known)) continue;
        if (std::none_of(o.strategies.begin(), o.strategies.end(), named)) {
          item.fault(fmt::format("compare names {}, which strategies does not list", item.text()));
        }
      }
    }
  }
  return c;
}

// An error while loading a named model or system is reported where the scenario names it.
template <class Load>
auto load_at(const Reader& r, Load load) -> std::optional<decltype(load(r.text()))> {
  const std::string name = r.text();
  if (name.empty()) {
    if (r.is_scalar()) r.fault(r.path() + " is empty");
    return std::nullopt;
  }
  try {
    return load(name);
  } catch (const UserError& e) {
    if (e.diagnostics().size() == 1 && e.diagnostics()[0].where.line == 0) {
      r.fault(e.diagnostics()[0].what, e.diagnostics()[0].details);
    } else {
      std::vector<std::string> lines;
      std::istringstream what(e.what());
      for (std::string line; std::getline(what, line);) lines.push_back("  " + line);
      r.fault(r.text() + " has faults of its own", std::move(lines));
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
  const auto system = load_at(root.at("system"),
                              [&](const std::string& name) { return load_system(name, catalogs.systems); });
  std::vector<Model> models;
  const Reader list = root.at("models");
  if (list.is_sequence() && list.items().empty())
    list.fault("models is empty", {"expected a list of models"});
  std::vector<std::string> named;
  for (const Reader& r : list.items()) {
    if (!r.is_scalar()) {
      r.fault(r.path() + ": expected the name of a model or a file");
      continue;
    }
    if (std::find(named.begin(), named.end(), r.text()) != named.end())
      r.fault("model " + r.text() + " is listed twice");
    named.push_back(r.text());
    if (auto m = load_at(r, [&](const std::string& name) { return load_model(name, catalogs.models); })) {
      models.push_back(std::move(*m));
    }
  }
  const long long context = root.at("context").tokens(1, 1'000'000'000);
  int block = 16;
  if (const auto v = root.find("kv_block")) block = static_cast<int>(v->tokens(1, 1'000'000));
  bool math_known = true;
  const auto precision_at = root.find("precision");
  const Precision precision = precision_at ? read_precision(*precision_at, math_known) : Precision{};
  const auto routing_at = root.find("routing");
  const Routing routing = routing_at ? read_routing(*routing_at) : Routing{};
  SearchOptions options;
  read_search(root, options, system ? system->gpus() : std::numeric_limits<int>::max());
  const Comparison comparison = read_comparison(root, options);
  const auto constraints_at = root.find("constraints");
  const Constraints constraints = constraints_at ? read_constraints(*constraints_at) : Constraints{};
  options.ttl_budget = constraints.ttl;
  if (system && math_known && system->device.achieved(precision.math) <= FlopsPerSecond(0)) {
    const auto given = precision_at ? precision_at->find("math") : std::nullopt;
    std::string units;
    for (const Dtype t : {Dtype::fp4, Dtype::fp8, Dtype::bf16, Dtype::fp32}) {
      if (system->device.achieved(t) > FlopsPerSecond(0))
        units += fmt::format("{}{}", units.empty() ? "" : ", ", to_string(t));
    }
    (given          ? *given
     : precision_at ? *precision_at
                    : root)
        .fault(fmt::format("precision.math is {}{}, which {} has no unit for", to_string(precision.math),
                           given ? "" : " where it is not given", system->device.name),
               {"expected one of: " + units});
  }
  root.no_other_keys();
  document.finish();
  for (Model& m : models) {
    const std::string title = fmt::format("{} on {}, {}", m.name, system->name, tokens_text(context));
    s.studies.push_back(
        {make_case(std::move(m), *system, precision, context, block, routing), options, comparison, title});
    s.studies.back().study.memory_limit = constraints.memory;
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
