#include "planner/search/nearest.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "planner/search/memory.hpp"
#include "planner/serving/served_plan.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

double excess(const Point& p, Seconds most_time, Seconds most_ttft) {
  double out = 0;
  if (most_time > Seconds(0)) out = std::max(out, p.time / most_time - 1);
  if (most_ttft > Seconds(0)) out = std::max(out, p.ttft / most_ttft - 1);
  return out;
}

std::vector<Point> nearest_points(const Case& c, const SearchOptions& options,
                                  const std::vector<Candidate>& candidates) {
  const std::size_t threads = thread_count(options.threads);
  const auto cache = std::make_shared<FabricCache>(c.system.fabric);
  std::vector<std::unique_ptr<ServedEvaluator>> evaluators(threads);
  std::vector<std::optional<Point>> served(candidates.size());
  parallel_for(0, candidates.size(), threads, [&](std::size_t i, std::size_t slot) {
    const Candidate& u = candidates[i];
    if (u.first == u.last) return;
    if (!evaluators[slot]) evaluators[slot] = std::make_unique<ServedEvaluator>(c, options.all_reduce, cache);
    Point& p = served[i].emplace(Point{u.plan, Seconds(0), Bytes(0)});
    p.plan.batch = u.runs > 0 ? u.runs : options.batches[u.first];
    p.waiting = options.batches[u.first] - p.plan.batch;
    p.memory = memory_use(c, p.plan).total();
    evaluators[slot]->serve(*options.workload, p);
  });
  std::vector<Point> out;
  for (const std::optional<Point>& p : served) {
    if (p && p->decoding > 0) out.push_back(*p);
  }
  const auto rank = [&](const Point& p) {
    return std::tuple(excess(p, options.most_time, options.most_ttft), -value(Metric::throughput, p));
  };
  std::stable_sort(out.begin(), out.end(), [&](const Point& a, const Point& b) { return rank(a) < rank(b); });
  double most = 0;
  std::erase_if(out, [&](const Point& p) {
    if (value(Metric::throughput, p) <= most) return true;
    most = value(Metric::throughput, p);
    return false;
  });
  return out;
}

void leave_out_decoders(const Case& c, SearchOptions& o, SearchResult& result) {
  std::erase_if(o.strategies, [&](StrategyId id) {
    if (serves_prompts(c, id)) return false;
    result.without_plans.emplace_back(id, "that prefills beside decoding: it needs a pool for prefills");
    result.frontiers.emplace(id, Frontier(o.x, o.y));
    return true;
  });
}

std::vector<Point> nearest_points(const Case& c, SearchOptions o) {
  SearchResult counts;
  leave_out_decoders(c, o, counts);
  return nearest_points(c, o, enumerate_candidates(c, o, counts));
}

}  // namespace shardline
