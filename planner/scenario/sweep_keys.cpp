#include "planner/scenario/sweep_keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "planner/engines/launchable.hpp"
#include "planner/scenario/everyday.hpp"
#include "planner/scenario/scenario_parts.hpp"

namespace shardline::scenario_parts {

namespace {

constexpr int kLargestBatch = 65536;  // that a list may name
constexpr int kMostGroups = 8192;     // of attention and microbatches: no more than GPUs

const char* phase_text(StepKind kind) {
  return kind == StepKind::decode ? "decode" : kind == StepKind::prefill ? "prefill" : "mixed";
}

// A strategy of another phase, or as engines name it; false: neither.
bool explain(const Reader& item, StepKind kind, const std::vector<std::string>& names) {
  if (!item.is_scalar()) return false;
  const std::string name = item.text();
  if (const auto id = find_strategy(name); id && !strategy(*id).runs(kind)) {
    const Strategy& s = strategy(*id);
    item.fault(fmt::format("{} is for phase: {}, the phase here is {}", name,
                           s.prefills ? "prefill" : phase_text(StepKind::decode), phase_text(kind)),
               expected_one_of("", names));
    return true;
  }
  const std::string same = strategy_of_engines(name);
  if (same.empty()) return false;
  std::vector<std::string> details = expected_one_of("", names);
  if (std::find(names.begin(), names.end(), same) != names.end())
    details.push_back(fmt::format("did you mean {}?", same));
  item.fault(fmt::format("{}: unknown name {}", item.path(), name), std::move(details));
  return true;
}

std::vector<StrategyId> read_strategies(const Reader& r, StepKind kind) {
  std::vector<std::string> names;
  for (const Strategy* s : strategies()) {
    if (s->runs(kind)) names.emplace_back(s->name);
  }
  std::vector<StrategyId> out;
  for (const Reader& item : r.items()) {
    const bool known = item.is_scalar() && std::find(names.begin(), names.end(), item.text()) != names.end();
    if (!known && explain(item, kind, names)) continue;
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

std::vector<DegreeRange> read_degrees(const Reader& r) {
  std::vector<DegreeRange> out;
  for (const DegreeField& degree : kDegrees) {
    // The last two have values that stand for others where they are left out.
    if (degree.member == &Plan::dense_tp || degree.member == &Plan::in_flight) continue;
    if (const auto v = r.find(degree.key)) out.push_back({degree.member, read_counts(*v, 8192)});
  }
  r.no_other_keys(instead_in_degrees);
  return out;
}

std::vector<int> read_option(const Reader& r, const Option& option) {
  if (option.words.empty())
    return option.tokens ? read_token_counts(r, option.least, option.most)
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
std::vector<OptionRange> read_options(const Reader& r, const std::vector<StrategyId>& asked, StepKind kind) {
  std::vector<OptionRange> out;
  const auto of_phase = [&](const Option& o) { return !o.lists && o.means(kind); };
  for (const StrategyId id : asked) {
    for (const Option* option : strategy(id).options) {
      const auto same = [&](const OptionRange& known) { return known.option == option; };
      if (!of_phase(*option) || std::any_of(out.begin(), out.end(), same)) continue;
      if (const auto v = r.find(option->key)) out.push_back({option, read_option(*v, *option)});
    }
  }
  for (const StrategyId id : asked) {
    const auto* parts = strategy(id).parts;
    if (parts != nullptr && r.has(parts->key))
      r.at(parts->key)
          .fault(
              fmt::format("options.{}: parts are searched for, and even ones tried beside them", parts->key));
  }
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
      r.at(key).fault(fmt::format("options.{} is for {}", key,
                                  kind == StepKind::prefill  ? "decoding"
                                  : kind == StepKind::decode ? "prefill"
                                                             : "steps that prefill alone"));
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

}  // namespace

namespace {

// Every batch that makes one of these numbers of users, by attention groups and microbatches that share them
// evenly.
std::vector<int> batches_of(const std::vector<int>& users, int most_groups) {
  std::vector<int> out;
  for (const int n : users) {
    for (int least = 1; least <= n / least; ++least) {  // of a pair of divisors
      if (n % least != 0) continue;
      if (least <= most_groups) out.push_back(n / least);
      if (n / least <= most_groups) out.push_back(least);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

Constraints read_constraints(const Reader& r, StepKind kind, bool serves) {
  Constraints c;
  const auto time = [&](const char* key, Seconds& out) {
    if (const auto v = r.find(key)) out = v->quantity<Seconds>(Seconds(1e-9), Seconds(1e6));
  };
  time(kind != StepKind::prefill ? "ttl" : "ttft", c.time);
  if (kind != StepKind::prefill && r.has("ttft")) {
    time("ttft", c.ttft);
    if (!serves)
      r.at("ttft").fault(
          "constraints.ttft is for prefills and for sweeps with a workload; steps that decode have no first "
          "token",
          {"expected constraints.ttl, or a workload"});
  }
  if (const auto v = r.find("memory")) c.memory = v->quantity<Bytes>(Bytes(1e6), Bytes(1e15));
  // Where it is no key it is not offered as one, either.
  if (const auto v = serves || r.has("pool_gpus") ? r.find("pool_gpus") : std::nullopt) {
    c.pool_gpus = static_cast<int>(v->integer(1, 1'000'000));
    if (!serves)
      v->fault("constraints.pool_gpus is for sweeps with a workload: others have no pools",
               {"expected gpus, the GPUs of a plan, or a workload"});
  }
  r.no_other_keys(instead_in_constraints);
  return c;
}

namespace {

// [P22] `prefill_strategies`, of pools that prefill; where it is absent, those of `listed` that prefill, and
// those for prompts alone that the engine runs.
std::vector<StrategyId> read_prefills(const Reader& root, const std::vector<StrategyId>& listed,
                                      const EngineProfile* engine, bool serves) {
  std::vector<StrategyId> out;
  // Where it is no key it is not offered as one, either.
  if (const auto v =
          serves || root.has("prefill_strategies") ? root.find("prefill_strategies") : std::nullopt) {
    if (!serves)
      v->fault("prefill_strategies is for sweeps with a workload: others have no pools",
               {"expected strategies, or a workload"});
    return read_strategies(*v, StepKind::prefill);
  }
  if (!serves) return out;
  for (const StrategyId id : listed) {
    if (strategy(id).prefills) out.push_back(id);
  }
  for (const Strategy* s : strategies()) {
    if (engine != nullptr && s->prefills && !s->decodes && !s->mixes && has_feature(*engine, *s))
      out.push_back(id_of(*s));
  }
  return out;
}

}  // namespace

SearchOptions read_search(const Reader& root, int system_gpus, StepKind kind, const std::vector<int>* users,
                          const EngineProfile* engine) {
  SearchOptions o;
  o.strategies = read_strategies(root.at("strategies"), kind);
  o.prefills = read_prefills(root, o.strategies, engine, users != nullptr);
  refuse_old_keys(root);
  const Reader gpus = root.at("gpus");
  o.gpus = read_counts(gpus, 8192);
  if (!o.gpus.empty() && o.gpus.back() > system_gpus) {
    gpus.fault(fmt::format("gpus reaches {} but the system has {}", o.gpus.back(), system_gpus));
  }
  if (users != nullptr) o.users = *users;
  if (o.users.empty()) {
    o.batches = read_counts(root.at("batch"), kLargestBatch);
  } else {
    o.batches = batches_of(o.users, std::min(system_gpus, kMostGroups));
    if (const auto v = root.find("batch"))
      v->fault("batch follows from workload.users: leave one of them out",
               {"users are those of the whole deployment, a batch those of an attention group"});
  }
  if (const auto v = root.find("pipeline_stages")) o.space.stages = read_counts(*v, 4096);
  if (const auto v = root.find("degrees")) o.space.degrees = read_degrees(*v);
  if (const auto v = root.find("duplicate_kv")) o.space.duplicate_kv = v->boolean();
  if (const auto v = root.find("options")) o.space.options = read_options(*v, o.strategies, kind);
  if (const auto v = root.find("all_reduce")) {
    o.all_reduce =
        static_cast<AllReduceRule>(v->one_of({"fastest", "one_shot", "two_shot", "ring", "tree", "nvls"}));
  }
  const std::span<const NamedMetric> metrics = metrics_of(kind);
  std::vector<std::string> names;
  for (const NamedMetric& m : metrics) names.emplace_back(m.name);
  if (kind == StepKind::prefill) {
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
  return o;
}

Comparison read_comparison(const Reader& root, const SearchOptions& o, StepKind kind) {
  Comparison c;
  if (kind == StepKind::prefill) {
    if (root.has("compare"))
      root.at("compare").fault("compare is for sweeps of steps that decode",
                               {"a prefill's answer shows each strategy by itself"});
    return c;
  }
  if (const auto v = root.find("compare")) {
    c.candidate = read_strategies(v->at("candidate"), kind);
    c.baseline = read_strategies(v->at("baseline"), kind);
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

void refuse_sweep_keys(const Reader& root) {
  for (const char* key : {"strategies", "prefill_strategies", "gpus", "batch", "pipeline_stages", "degrees",
                          "options", "pareto", "compare"}) {
    if (const auto v = root.find(key)) v->fault(fmt::format("{} is for sweeps", key));
  }
}

}  // namespace shardline::scenario_parts
