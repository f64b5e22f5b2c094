// What the copies of a plan on the GPUs of a question carry. Inside of plan_answer.cpp. planner/README.md
// [P26].
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "planner/studies/plan_answer.hpp"

namespace shardline::plan_parts {

using Show = std::function<void(std::uint64_t, std::uint64_t)>;

/// Plans that are shown, in all; of them at most so many beside the target.
inline constexpr std::size_t kShown = 5, kBeside = 2;

/// Whether a point of a copy is within the times asked for.
bool within_target(const PlanAnswer& answer, const Point& point);

/// The largest part by which one of these is above what was asked for, as miss_of() says it; near misses are
/// ranked by it.
double excess_of(const PlanAnswer& answer, const Point& point);

/// Of `ranked`, best first, those that meet the target and are the first of a strategy that none of `shown`
/// within it is of: PlanAnswer::others. A Deployed has `point` and `meets`.
template <class Deployed>
std::vector<Deployed> other_strategies(const std::vector<Deployed>& shown,
                                       const std::vector<Deployed>& ranked) {
  std::set<StrategyId> told;
  for (const Deployed& d : shown)
    if (d.meets) told.insert(d.point.plan.strategy);
  std::vector<Deployed> out;
  for (const Deployed& d : ranked)
    if (d.meets && told.insert(d.point.plan.strategy).second) out.push_back(d);
  return out;
}

/// Whether plans of each number of GPUs are best searched for by themselves: users or a rate are shared among
/// copies, or copies of some plans leave GPUs idle, so that the frontier of single plans is not theirs.
bool shares_among_copies(const PlanAnswer& answer);
struct PlannedCopies {
  /// Five at most, the best first: most tokens/s of all copies that meet the target, or with a rate fewest
  /// GPUs, then the nearest that do not.
  std::vector<PlannedPoint> plans;
  std::vector<PlannedPoint> others;  // PlanAnswer::others
  /// Of a rate that none of them carries: the fewest GPUs beyond that do, if the system has so many.
  std::optional<WiderPlan> wider;
};
PlannedCopies planned_copies(const PlanAnswer& answer, const Show& show);

/// PlanAnswer::fewer of an answer with its plans: every number of GPUs below those of its rows is searched,
/// in every size of its copies, from the fewest on.
std::optional<FewerGpus> fewer_gpus(const PlanAnswer& answer, const Show& show);

}  // namespace shardline::plan_parts
