#include "planner/search/nearest.hpp"

#include <memory>
#include <utility>

#include "planner/search/memory.hpp"
#include "planner/serving/served_plan.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

std::optional<Point> nearest_ttft(const Case& c, const SearchOptions& options,
                                  const std::vector<Candidate>& candidates) {
  const std::size_t threads = thread_count(options.threads);
  const auto cache = std::make_shared<FabricCache>(c.system.fabric);
  std::vector<std::unique_ptr<ServedEvaluator>> evaluators(threads);
  std::vector<std::optional<Point>> points(candidates.size());
  parallel_for(0, candidates.size(), threads, [&](std::size_t i, std::size_t slot) {
    const Candidate& u = candidates[i];
    if (u.first == u.last) return;
    if (!evaluators[slot]) evaluators[slot] = std::make_unique<ServedEvaluator>(c, options.all_reduce, cache);
    Point& p = points[i].emplace(Point{u.plan, Seconds(0), Bytes(0)});
    p.plan.batch = u.runs > 0 ? u.runs : options.batches[u.first];
    p.waiting = options.batches[u.first] - p.plan.batch;
    p.memory = memory_use(c, p.plan).total();
    evaluators[slot]->serve(*options.workload, p);
  });
  std::optional<Point> best;
  const auto rank = [&](const Point& p) {
    return std::pair(options.most_time > Seconds(0) && p.time > options.most_time, p.ttft);
  };
  for (const std::optional<Point>& p : points) {
    if (p && p->decoding > 0 && (!best || rank(*p) < rank(*best))) best = p;
  }
  return best;
}

}  // namespace shardline
