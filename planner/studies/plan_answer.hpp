// The answer of `shardline plan`: a sweep of the question's scenario, the plans around its target, and where
// none meets it the nearest, and what more GPUs would give.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/memory.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/studies/plan_question.hpp"
#include "planner/studies/sweep.hpp"

namespace shardline {

/// A plan of the answer.
struct PlannedPoint {
  Point point;
  bool meets = true;
  Rating rating;
  ErrorTerms ttft;  // what errors of prices do to its TTFT, where a workload is served
};

/// What takes the time of the best plan.
struct BestPlan {
  Breakdown breakdown;  // of a step that decodes, or of the prefill
  MemoryUse memory;
  std::optional<ServedPlan> served;
};

/// The best plan on the fewest GPUs beyond the asked ones that meets the target, else the one that comes
/// nearest on any number of them that was looked at.
struct WiderPlan {
  int gpus = 0;
  PlannedPoint best;
  int most = 0;  // GPUs that were looked at
};

struct PlanAnswer {
  PlanQuestion question;
  PlanDefaults defaults;
  std::string scenario;  // YAML: sweep of it with `asked` is `sweep`
  Study study;           // of that text
  SweepQuestion asked;
  SweepAnswer sweep;
  std::vector<PlannedPoint> plans;  // five at most: those that meet the target, best first, and the nearest
  bool met = false;                 // some plan fits and meets the target
  std::optional<BestPlan> best;     // of plans.front()
  std::optional<WiderPlan> wider;   // where none meets it; nothing: no plan fits more GPUs, either
};

/// What of a target a plan misses by most: the part by which it is above ("TPOT", 0.09 of 5.44 s for 5 s).
struct Miss {
  std::string what;
  double part = 0;
  Seconds time;
};
Miss miss_of(const PlanAnswer& answer, const Point& point);

/// Throws UserError as plan_defaults() and scenarios do. `progress` in plans, may throw to stop.
PlanAnswer answer_plan(const PlanQuestion& question, const Catalogs& catalogs,
                       const std::function<void(std::uint64_t done, std::uint64_t total)>& progress);

}  // namespace shardline
