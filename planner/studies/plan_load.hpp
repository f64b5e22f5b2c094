// Plans under any number of users: the largest that a target allows, and how many copies of a deployment
// carry a rate of requests. planner/README.md [P26].
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "planner/scenario/scenario.hpp"
#include "planner/serving/served_plan.hpp"

namespace shardline {

/// How a plan shards, whatever its batch is and however that is cut.
Plan sharding_of(Plan plan);

/// The point that a search has of a plan, of any number of users. One object per thread.
class PlanLoad {
 public:
  /// Of steps that decode, served where the study has a workload.
  explicit PlanLoad(const Study& study);
  PlanLoad(const PlanLoad&) = delete;  // evaluators point to the case
  PlanLoad& operator=(const PlanLoad&) = delete;

  /// Of so many users per attention group and microbatch. Served, those whose caches do not fit wait; of bare
  /// kernels nothing is found then.
  std::optional<Point> at(Plan sharding, int users);
  /// Requests/s that one copy answers, served: users / (TTFT + TPOT x (output - 1)), by Little's law over the
  /// closed loop [P19].
  double requests_per_s(const Point& point) const;

 private:
  Case case_, roomy_;
  std::optional<ServedWorkload> workload_;
  Evaluator evaluator_;
  std::unique_ptr<ServedEvaluator> serving_;
};

/// The largest users per group from 1 to `most` that `meets` accepts, if it accepts all below them; 0: none.
/// Looks at powers of two, then bisects.
int largest_that_meets(int most, const std::function<bool(int users)>& meets);

/// Batches between those of the study's search with which its shardings come closest to the target from
/// below: of each sharding the largest that `meets`. Ascending, without those that the search has.
std::vector<int> batches_at_target(const Study& study, const std::vector<Plan>& plans,
                                   const std::function<bool(const Point&)>& meets);

/// A sharding as it carries a rate.
struct CarriedRate {
  Point point;  // of one copy with the users that its share keeps busy; of none that carries it, its most
  long long copies = 0;
  double most_per_s = 0;   // requests/s of one copy, within the target
  double limit_per_s = 0;  // of any number of users, whatever they wait: it is saturated there
};
/// The least copies that carry so many requests/s within the target; nothing where no users meet it, with
/// most_per_s 0 and limit_per_s in `limit`.
std::optional<CarriedRate> carried_rate(PlanLoad& load, const Plan& sharding, double requests_per_s,
                                        const std::function<bool(const Point&)>& meets);

}  // namespace shardline
