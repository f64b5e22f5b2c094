#include "planner/studies/ring_timing.hpp"
#include "planner/strategies/strategy.hpp"

#include <memory>

#include "planner/search/evaluate.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

namespace {

// One thread's copy of the case, whose request changes from point to point.
struct Worker {
  Case study;
  Evaluator evaluator;
  Worker(const Case& c, std::shared_ptr<FabricCache> cache)
      : study(c), evaluator(study, AllReduceRule::fastest, std::move(cache)) {}
};

}  // namespace

Plan ring_plan(StrategyId id, int ranks, int tpa) {
  Plan p;
  p.strategy = id;
  p.cp = ranks;
  p.tpa = p.tpf = tpa;
  return p;
}

RingTimer ring_timer(const Case& c, int tpa, int threads) {
  const std::size_t count = thread_count(threads);
  const auto cache = std::make_shared<FabricCache>(c.system.fabric);
  return [&c, tpa, count, cache](int ranks, std::span<const TokenSplit> splits) {
    std::vector<RingPoint> out(splits.size());
    std::vector<std::unique_ptr<Worker>> workers(count);
    const Plan kv = ring_plan(strategy_id("ring_pass_kv"), ranks, tpa),
               q = ring_plan(strategy_id("ring_pass_q"), ranks, tpa);
    parallel_for(0, splits.size(), count, [&](std::size_t i, std::size_t slot) {
      if (!workers[slot]) workers[slot] = std::make_unique<Worker>(c, cache);
      Worker& w = *workers[slot];
      w.study.batch = prefill_batch({{splits[i].cached, splits[i].fresh}});
      out[i] = {ranks, splits[i].fresh, splits[i].cached, w.evaluator.simulate(kv), w.evaluator.simulate(q)};
    });
    return out;
  };
}

Shares ring_shares(const Case& c, int ranks, int tpa, std::span<const RingPoint> requests, int samples,
                   int threads) {
  if (c.system.calibration.empty()) return {0, 0, 0, 1};
  const std::size_t count = thread_count(threads);
  const std::size_t picked = std::min(requests.size(), static_cast<std::size_t>(samples));
  const auto cache = std::make_shared<FabricCache>(c.system.fabric);
  std::vector<std::unique_ptr<Worker>> workers(count);
  std::vector<Shares> found(2 * picked);
  parallel_for(0, found.size(), count, [&](std::size_t i, std::size_t slot) {
    if (!workers[slot]) workers[slot] = std::make_unique<Worker>(c, cache);
    const RingPoint& p = requests[i / 2 * requests.size() / picked];
    workers[slot]->study.batch = prefill_batch({{p.cached, p.fresh}});
    const StrategyId id = i % 2 == 0 ? strategy_id("ring_pass_kv") : strategy_id("ring_pass_q");
    found[i] = rating_of(workers[slot]->evaluator, ring_plan(id, ranks, tpa)).shares;
  });
  Shares mean;
  for (const Shares& s : found) mean += s * (1 / static_cast<double>(found.size()));
  return mean;
}

RingErrors ring_errors(const Case& c, int ranks, int tpa, const TokenSplit& request) {
  Worker w(c, std::make_shared<FabricCache>(c.system.fabric));
  w.study.batch = prefill_batch({{request.cached, request.fresh}});
  const auto of = [&](const char* id) {
    return rating_of(w.evaluator, ring_plan(strategy_id(id), ranks, tpa)).errors;
  };
  return {of("ring_pass_kv"), of("ring_pass_q")};
}

DerivedTable derive_table(const ThresholdGrid& g, int ranks, const RingTimer& time) {
  const LookupGrid grid = LookupGrid::covering(ranks, g.fresh_from, g.fresh_to, g.lowest_miss_rate,
                                               g.fresh_per_octave, g.miss_per_octave);
  RefinedTable refined = refined_table(grid, ranks, g.total_to, time);
  std::vector<TokenSplit> known;
  for (const RingPoint& p : refined.points) known.push_back({p.fresh, p.cached});
  const TokenRange range{g.fresh_from, g.fresh_to, g.lowest_miss_rate, g.total_to};
  const auto tests = test_points(range, ranks, static_cast<std::size_t>(g.test_points), known);
  return {std::move(refined), time(ranks, tests)};
}

RingSetting ring_setting(const Case& c, int ranks, int tpa, bool achieved) {
  const Device& d = c.system.device;
  RingSetting s;
  s.q_heads = c.model.attentions.front().q_heads;
  s.kv_heads = c.model.attentions.front().kv_heads;
  s.element_bytes = bytes_per_element(c.precision.kv);
  s.compute = d.peak[static_cast<std::size_t>(c.precision.math)] * (achieved ? d.attention() : 1.0) * tpa;
  const FabricSpec& f = c.system.fabric;
  const bool inside = ranks * tpa <= f.gpus_per_node;
  const BytesPerSecond link = inside ? f.nvlink.bandwidth : f.network.bandwidth;
  const double share = inside ? f.nvlink.efficiency : f.network.efficiency * f.network.send_recv_share;
  s.bandwidth = link * (achieved ? share : 1.0) * tpa;
  return s;
}

}  // namespace shardline
