#include "planner/scenario/scenario.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>

#include "models/model/catalog.hpp"
#include "planner/scenario/precision_keys.hpp"
#include "planner/scenario/scenario_parts.hpp"

namespace shardline {

using scenario_parts::choice;
using scenario_parts::read_counts;

namespace {

constexpr int kLargestBatch = 65536;

std::vector<StrategyId> read_strategies(const Reader& r, Phase phase) {
  std::vector<std::string> names;
  for (const Strategy* s : strategies()) {
    if (phase == Phase::decode ? s->decodes : s->prefills) names.emplace_back(s->name);
  }
  std::vector<StrategyId> out;
  for (const Reader& item : r.items()) {
    const auto i = choice(item, names);
    if (!i) continue;
    const StrategyId id = id_of(strategy(names[*i]));
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
  Seconds time{0};  // TTL or TTFT
  Bytes memory{0};
};

Constraints read_constraints(const Reader& r, Phase phase) {
  Constraints c;
  if (const auto v = r.find(phase == Phase::decode ? "ttl" : "ttft"))
    c.time = v->quantity<Seconds>(Seconds(1e-9), Seconds(1e6));
  if (const auto v = r.find("memory")) c.memory = v->quantity<Bytes>(Bytes(1e6), Bytes(1e15));
  r.no_other_keys();
  return c;
}

std::vector<DegreeRange> read_degrees(const Reader& r) {
  std::vector<DegreeRange> out;
  for (const DegreeField& degree : kDegrees) {
    // The last two have values that stand for others where they are left out.
    if (degree.member == &Plan::dense_tp || degree.member == &Plan::in_flight) continue;
    if (const auto v = r.find(degree.key)) out.push_back({degree.member, read_counts(*v, 8192)});
  }
  r.no_other_keys();
  return out;
}

std::vector<int> read_option(const Reader& r, const Option& option) {
  if (option.words.empty())
    return option.tokens ? scenario_parts::read_token_counts(r, option.least, option.most)
                         : read_counts(r, option.most, option.least);
  std::vector<int> out;
  const std::vector<std::string> words(option.words.begin(), option.words.end());
  for (const Reader& item : r.is_sequence() ? r.items() : std::vector{r}) {
    if (const auto i = choice(item, words)) out.push_back(static_cast<int>(*i));
  }
  if (r.is_sequence() && r.items().empty()) r.fault(r.path() + " is empty", expected_one_of("", words));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Of the strategies to look at. Parts of tokens are searched for, whatever is asked.
std::vector<OptionRange> read_options(const Reader& r, const std::vector<StrategyId>& asked, Phase phase) {
  std::vector<OptionRange> out;
  const auto of_phase = [&](const Option& o) {
    return !o.lists && (phase == Phase::decode ? o.decodes : o.prefills);
  };
  for (const StrategyId id : asked) {
    for (const Option* option : strategy(id).options) {
      const auto same = [&](const OptionRange& known) { return known.option == option; };
      if (!of_phase(*option) || std::any_of(out.begin(), out.end(), same)) continue;
      if (const auto v = r.find(option->key)) out.push_back({option, read_option(*v, *option)});
    }
  }
  if (r.has("partition"))
    r.at("partition").fault("options.partition: parts are searched for, and even ones tried beside them");
  // Whom a key is of that none of them reads.
  for (const std::string& key : r.is_map() ? r.keys() : std::vector<std::string>{}) {
    const auto taken = [&](const OptionRange& range) { return key == range.option->key; };
    if (std::any_of(out.begin(), out.end(), taken)) continue;
    std::vector<std::string> names;
    bool swept = false;
    for (const Strategy* s : strategies()) {
      const auto has = [&](const Option* o) { return !o->lists && key == o->key; };
      if (std::none_of(s->options.begin(), s->options.end(), has)) continue;
      names.emplace_back(s->name);
      swept = swept || std::find(asked.begin(), asked.end(), id_of(*s)) != asked.end();
    }
    if (swept)
      r.at(key).fault(
          fmt::format("options.{} is for {}", key, phase == Phase::decode ? "prefill" : "decoding"));
    else if (!names.empty())
      r.at(key).fault(fmt::format("options.{} is for {}, which this scenario does not sweep", key,
                                  fmt::join(names, " and ")));
  }
  r.no_other_keys();
  return out;
}

// Keys of the first edition, each of which was an option or some.
void refuse_old_keys(const Reader& root) {
  constexpr std::pair<const char*, const char*> kOld[]{
      {"hopb_chunks", "options: {chunks: ...}"},
      {"prefill_chunks", "options: {prefill_chunk: ...}"},
      {"layout", "options: {layout: ...}"},
      {"approximate", "options: {anchor: ..., passing: ..., retaining: ...}"}};
  for (const auto& [key, now] : kOld) {
    if (root.has(key)) root.at(key).fault(fmt::format("{} is now written {}", key, now));
  }
}

void read_search(const Reader& root, SearchOptions& o, int system_gpus, Phase phase) {
  o.strategies = read_strategies(root.at("strategies"), phase);
  refuse_old_keys(root);
  const Reader gpus = root.at("gpus");
  o.gpus = read_counts(gpus, 8192);
  if (!o.gpus.empty() && o.gpus.back() > system_gpus) {
    gpus.fault(fmt::format("gpus reaches {} but the system has {}", o.gpus.back(), system_gpus));
  }
  o.batches = read_counts(root.at("batch"), kLargestBatch);
  if (const auto v = root.find("pipeline_stages")) o.space.stages = read_counts(*v, 4096);
  if (const auto v = root.find("degrees")) o.space.degrees = read_degrees(*v);
  if (const auto v = root.find("duplicate_kv")) o.space.duplicate_kv = v->boolean();
  if (const auto v = root.find("options")) o.space.options = read_options(*v, o.strategies, phase);
  if (const auto v = root.find("all_reduce")) {
    o.all_reduce =
        static_cast<AllReduceRule>(v->one_of({"fastest", "one_shot", "two_shot", "ring", "tree", "nvls"}));
  }
  const std::span<const NamedMetric> metrics = metrics_of(phase);
  std::vector<std::string> names;
  for (const NamedMetric& m : metrics) names.emplace_back(m.name);
  if (phase == Phase::prefill) {
    o.x = Metric::gpus;
    o.y = Metric::time;
  }
  if (const auto v = root.find("pareto")) {
    const auto x = choice(v->at("x"), names);
    const auto y = choice(v->at("y"), names);
    if (x) o.x = metrics[*x].metric;
    if (y) o.y = metrics[*y].metric;
    if (x && x == y) v->fault("pareto.x and pareto.y are the same metric");
    v->no_other_keys();
  }
}

Comparison read_comparison(const Reader& root, const SearchOptions& o, Phase phase) {
  Comparison c;
  if (const auto v = root.find("compare")) {
    c.candidate = read_strategies(v->at("candidate"), phase);
    c.baseline = read_strategies(v->at("baseline"), phase);
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
  if (tokens % (1 << 20) == 0) return fmt::format("{}Mi tokens", tokens >> 20);
  if (tokens % 1024 == 0) return fmt::format("{}Ki tokens", tokens / 1024);
  return fmt::format("{} tokens", tokens);
}

// ", 1M tokens", ", prefill of 1Mi tokens", ", prefill of 6400 tokens after 121600 cached" or ", prefill of 7
// sequences, 52Ki tokens".
std::string workload_text(Phase phase, long long context, const std::vector<Request>& requests) {
  if (phase == Phase::decode) return ", " + tokens_text(context);
  if (requests.empty()) return "";
  long long fresh = 0, cached = 0;
  for (const Request& r : requests) fresh += r.fresh, cached += r.cached;
  std::string text = ", prefill of ";
  if (requests.size() > 1) text += fmt::format("{} sequences, ", requests.size());
  text += tokens_text(fresh);
  if (cached > 0) text += fmt::format(" after {} cached", tokens_text(cached));
  return text;
}

// Of the first model that the device cannot compute: others would say the same.
void check_precision(const scenario_parts::PrecisionKeys& precision, const std::vector<Model>& models,
                     const System& system, const Reader& root) {
  for (const Model& m : models) {
    if (scenario_parts::check_units(precision, m, system.device, root)) return;
  }
}

std::vector<Model> read_models(const Reader& list, const Catalogs& catalogs) {
  std::vector<Model> models;
  if (list.is_sequence() && list.items().empty())
    list.fault("models is empty", {"expected a list of models"});
  std::vector<std::string> named;
  for (const Reader& r : list.items()) {
    if (!r.is_scalar()) {
      r.fault(r.path() + ": expected the name of a model or a file");
      continue;
    }
    const bool twice = std::find(named.begin(), named.end(), r.text()) != named.end();
    if (twice) r.fault("model " + r.text() + " is listed twice");
    named.push_back(r.text());
    if (auto m = load_at(r, [&](const std::string& name) { return load_model(name, catalogs.models); })) {
      // Results of a model are found by its name.
      const auto same = [&](const Model& other) { return other.name == m->name; };
      if (std::any_of(models.begin(), models.end(), same) && !twice)
        r.fault(fmt::format("the model of {} is named {}, as one before it", r.text(), m->name),
                {"expected models of different names"});
      models.push_back(std::move(*m));
    }
  }
  return models;
}

// The question of a scenario, with its own keys.
Question read_question(const Reader& root, int system_gpus) {
  Question asked;
  if (const auto v = root.find("conversation")) asked = scenario_parts::read_conversation(*v, system_gpus);
  if (const auto v = root.find("thresholds")) {
    if (root.has("conversation"))
      v->fault("a scenario asks for a conversation or for thresholds, not for both");
    asked = scenario_parts::read_thresholds(*v, system_gpus);
  }
  if (const auto v = root.find("partition")) {
    if (root.has("conversation") || root.has("thresholds"))
      v->fault("a scenario asks for partitions, for a conversation or for thresholds, for one of them");
    asked = scenario_parts::read_partition(*v, system_gpus);
  }
  return asked;
}

Phase read_phase(const Reader& root, bool sweeps) {
  Phase phase = sweeps ? Phase::decode : Phase::prefill;
  if (const auto v = root.find("phase")) {
    const auto i = choice(*v, {"decode", "prefill"});
    if (i && !sweeps)
      v->fault("phase is for sweeps: a conversation has both, thresholds and partitions are of prefill");
    if (i == 1u) phase = Phase::prefill;
  }
  return phase;
}

// What is to be served, apart from the model.
struct Workload {
  long long context = 0;
  std::vector<Request> requests;
  bool persistent = false;
  Kernels kernels;
  int block = 16;
};

void read_tokens(const Reader& root, Phase phase, bool sweeps, Workload& w) {
  if (phase == Phase::decode) {
    w.context = root.at("context").tokens(1, scenario_parts::kLongest);
    if (const auto v = root.find("requests"))
      v->fault("requests are for phase: prefill; a decode step has a context");
  } else {
    if (const auto v = root.find("context")) v->fault("context is for phase: decode; a prefill has requests");
    if (sweeps) {
      w.requests = scenario_parts::read_requests(root.at("requests"));
    } else if (const auto v = root.find("requests")) {
      v->fault(
          "requests are for sweeps: a conversation has turns, thresholds have a grid, partitions have "
          "contexts");
    }
  }
}

Workload read_workload(const Reader& root, Phase phase, const Question& asked) {
  Workload w;
  read_tokens(root, phase, std::holds_alternative<Sweep>(asked), w);
  w.persistent = std::holds_alternative<Conversation>(asked) || std::holds_alternative<ThresholdGrid>(asked);
  if (const auto v = root.find("persistent_kv")) {
    w.persistent = v->boolean();
    if (phase == Phase::decode) v->fault("persistent_kv is for prefill");
  }
  if (const auto v = root.find("kernels")) w.kernels = scenario_parts::read_kernels(*v);
  if (const auto v = root.find("kv_block")) w.block = static_cast<int>(v->tokens(1, 1'000'000));
  return w;
}

void refuse_sweep_keys(const Reader& root) {
  for (const char* key :
       {"strategies", "gpus", "batch", "pipeline_stages", "degrees", "options", "pareto", "compare"}) {
    if (const auto v = root.find(key)) v->fault(fmt::format("{} is for sweeps", key));
  }
}

std::optional<NoiseSpec> read_noise_of(const Reader& root, Phase phase, bool sweeps,
                                       const std::optional<System>& system) {
  const auto v = root.find("noise");
  if (!v) return std::nullopt;
  const NoiseSpec noise = scenario_parts::read_noise(*v);
  if (phase == Phase::decode || !sweeps) v->fault("noise is for sweeps of phase: prefill");
  if (system && noise.links == NoiseLinks::network && system->fabric.nodes == 1)
    v->fault(fmt::format("noise.links is network, but {} is one node", system->name),
             {"expected one of: nvlink, all"});
  return noise;
}

Study study_for(const Question& asked, Case served, Phase phase, const Workload& w,
                const Constraints& limits) {
  Study out;
  out.question = asked;
  out.title = fmt::format("{} on {}{}", served.model.name, served.system.name,
                          workload_text(phase, w.context, w.requests));
  out.study = std::move(served);
  out.study.memory_limit = limits.memory;
  out.study.phase = phase;
  out.study.requests = w.requests;
  out.study.persistent_kv = w.persistent;
  out.study.kernels = w.kernels;
  return out;
}

Scenario read_scenario(Document& document, const Catalogs& catalogs, std::optional<Costs> costs) {
  Scenario s;
  const Reader root = document.root();
  s.name = root.at("name").text();
  if (const auto v = root.find("summary")) s.summary = v->text();
  auto system = load_at(root.at("system"),
                        [&](const std::string& name) { return load_system(name, catalogs.systems); });
  if (const auto v = root.find("costs")) {
    const auto i = choice(*v, {"calibrated", "parameters"});
    if (i && !costs) costs = static_cast<Costs>(*i);
  }
  if (system && costs == Costs::parameters) system->calibration.fits.clear();  // its source still has a name
  const std::vector<Model> models = read_models(root.at("models"), catalogs);
  const int system_gpus = system ? system->gpus() : std::numeric_limits<int>::max();
  Question asked = read_question(root, system_gpus);
  Sweep* const sweep = std::get_if<Sweep>(&asked);
  const Phase phase = read_phase(root, sweep != nullptr);
  const Workload workload = read_workload(root, phase, asked);
  const auto precision_at = root.find("precision");
  const auto precision =
      precision_at ? scenario_parts::read_precision(*precision_at) : scenario_parts::PrecisionKeys{};
  const auto routing_at = root.find("routing");
  const Routing routing = routing_at ? read_routing(*routing_at) : Routing{};
  const std::optional<NoiseSpec> noise = read_noise_of(root, phase, sweep != nullptr, system);
  const auto constraints_at = root.find("constraints");
  const Constraints constraints = constraints_at ? read_constraints(*constraints_at, phase) : Constraints{};
  if (sweep != nullptr) {
    read_search(root, sweep->search, system_gpus, phase);
    sweep->compare = read_comparison(root, sweep->search, phase);
    sweep->noise = noise;
    sweep->search.most_time = constraints.time;
  } else {
    refuse_sweep_keys(root);
    if (constraints.time > Seconds(0)) constraints_at->at("ttft").fault("constraints.ttft is for sweeps");
  }
  if (system) check_precision(precision, models, *system, root);
  root.no_other_keys();
  document.finish();
  for (const Model& m : models) {
    Case served = make_case(m, *system, precision.of(m), workload.context, workload.block, routing);
    s.studies.push_back(study_for(asked, std::move(served), phase, workload, constraints));
  }
  return s;
}

}  // namespace

Scenario load_scenario(const std::filesystem::path& file, const Catalogs& catalogs,
                       std::optional<Costs> costs) {
  Document document = Document::load(file);
  Scenario s = read_scenario(document, catalogs, costs);
  s.file = file;
  return s;
}

Scenario parse_scenario(const std::string& name, const std::string& text, const Catalogs& catalogs,
                        std::optional<Costs> costs) {
  Document document = Document::parse(name, text);
  return read_scenario(document, catalogs, costs);
}

}  // namespace shardline
