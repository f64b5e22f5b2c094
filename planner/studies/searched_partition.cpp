#include "planner/studies/searched_partition.hpp"
#include "planner/search/provenance.hpp"
#include "planner/strategies/strategy.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "sim/base/error.hpp"

namespace shardline {

long long partition_granule(long long context, int ranks) {
  constexpr long long kTile = 128, kPerRank = 1024;
  long long granule = 1;
  while (granule < kTile && context / (2 * granule * ranks) >= kPerRank) granule *= 2;
  return granule;
}

bool takes_partition(const Case& c, const Plan& plan) {
  const auto* parts = strategy(plan.strategy).parts;
  if (parts == nullptr || plan.cp < 2 || plan[*parts] != Parts::searched || c.batch.prefill.empty())
    return false;
  const Segment& first = c.batch.prefill.front();
  return first.fresh >= plan.cp &&
         std::all_of(c.batch.prefill.begin(), c.batch.prefill.end(),
                     [&](const Segment& r) { return r.cached == 0 && r.fresh == first.fresh; });
}

ChainEvaluator simulated_chain(Evaluator& evaluator, const Plan& plan) {
  const auto known = std::make_shared<std::map<std::vector<long long>, Seconds>>();
  return [&evaluator, plan, known](std::span<const long long> parts) {
    const auto [at, added] = known->try_emplace({parts.begin(), parts.end()});
    if (!added) return at->second;
    Plan chain = plan;
    list_parts(chain, at->first);
    at->second = evaluator.simulate(chain);
    return at->second;
  };
}

namespace {

Plan chain_of(int ranks, int tpa) {
  Plan plan;
  plan.tpa = plan.tpf = tpa;
  if (ranks == 1) return plan;
  plan.strategy = strategy_id("kv_runahead");
  plan.cp = ranks;
  return plan;
}

}  // namespace

ErrorTerms errors_of_chain(const Case& c, int tpa, const std::vector<long long>& parts) {
  Case one = c;
  one.batch = prefill_batch({{0, std::accumulate(parts.begin(), parts.end(), 0LL)}});
  Evaluator evaluator(one);
  Plan plan = chain_of(static_cast<int>(parts.size()), tpa);
  if (parts.size() > 1) list_parts(plan, parts);
  return rating_of(evaluator, plan).errors;
}

EvaluatorFactory simulated_chains(const Case& c, int tpa) {
  const auto cache = std::make_shared<FabricCache>(c.system.fabric);
  return [c, tpa, cache](int ranks, long long context) -> ChainEvaluator {
    // The evaluator refers to its case, and the closure owns both.
    struct Bench {
      Case c;
      Evaluator evaluator;
      Bench(const Case& from, long long tokens, std::shared_ptr<FabricCache> shared)
          : c(with(from, tokens)), evaluator(c, AllReduceRule::fastest, std::move(shared)) {}
      static Case with(Case one, long long tokens) {
        one.batch = prefill_batch({{0, tokens}});
        return one;
      }
    };
    const auto bench = std::make_shared<Bench>(c, context, cache);
    const Plan plan = chain_of(ranks, tpa);
    if (ranks == 1)
      return [bench, plan](std::span<const long long>) { return bench->evaluator.simulate(plan); };
    if (const auto reason = check_plan(bench->c, plan))
      throw UserError(to_string(plan) + " is impossible: " + *reason);
    return [bench, time = simulated_chain(bench->evaluator, plan)](std::span<const long long> parts) {
      return time(parts);
    };
  };
}

namespace {

// [C13] So many that a search ends within seconds also where one chain is millions of tasks in a graph. A
// replay without one is six times as fast; the number is kept, for partitions depend on it.
std::uint64_t affordable_chains(const Schedule& s) {
  if (!plays_all_layers(s)) return std::numeric_limits<std::uint64_t>::max();
  constexpr double kTasks = 4e6;
  double tasks = 0;
  const std::vector<double> runs = executions(s);
  for (std::size_t b = 0; b < runs.size(); ++b)
    tasks += runs[b] * static_cast<double>(s.blocks[b].last - s.blocks[b].first) * s.classes;
  return static_cast<std::uint64_t>(std::max(16.0, kTasks / tasks));
}

// Of one search: the times that it knows only fall, so that what was a bound above one stays one.
auto tried_chain(Evaluator& evaluator, const Plan& plan) {
  return [&evaluator, plan, tried = std::map<std::vector<long long>, Seconds>()](
             std::span<const long long> parts, Seconds known) mutable {
    const auto [at, added] = tried.try_emplace({parts.begin(), parts.end()});
    if (!added) return at->second;
    Plan chain = plan;
    list_parts(chain, at->first);
    return at->second = evaluator.simulate_below(known, chain);
  };
}

}  // namespace

PartitionResult searched_partition(Evaluator& evaluator, const Plan& plan, std::shared_ptr<FabricCache> cache,
                                   std::shared_ptr<KnownLayers> known) {
  const Case& c = evaluator.study();
  SL_CHECK(takes_partition(c, plan), "the plan takes a partition");
  const long long context = c.batch.prefill.front().fresh;
  const PartitionProblem problem{context, plan.cp, partition_granule(context, plan.cp)};
  // No proof: it is of the closed form, and its bound is not asked for.
  PartitionSearch search{simulated_chain(evaluator, plan), 0};
  search.exact(even_partition(problem));  // is asked for again, and is known then
  search.most_exact = affordable_chains(evaluator.schedule());
  const ChainCosts costs =
      chain_costs(c, plan, evaluator.cost(), evaluator.all_reduce(), std::move(cache), std::move(known));
  search.least = &costs.least;
  search.trial = tried_chain(evaluator, plan);
  return best_partition(costs.closed, problem, search).best;
}

Seconds least_time_of_partitions(Evaluator& evaluator, const Plan& plan, std::shared_ptr<KnownLayers> known) {
  const Case& c = evaluator.study();
  SL_CHECK(takes_partition(c, plan), "the plan takes a partition");
  const long long context = c.batch.prefill.front().fresh;
  constexpr double kRounding = 1e-9;  // events add the same costs in another order
  const double dip = c.system.calibration.empty() ? 0 : kLargestDip;
  return partition_bound(least_chain_cost(c, plan, evaluator.cost(), Pricing::floor, std::move(known)),
                         {context, plan.cp, partition_granule(context, plan.cp)}, dip) *
         (1 - kRounding);
}

}  // namespace shardline
