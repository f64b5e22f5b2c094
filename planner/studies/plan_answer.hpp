// The answer of `shardline plan`: a sweep of the question's scenario, the plans around its target, and where
// none meets it the nearest, and what more GPUs would give.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/memory.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/studies/kept_targets.hpp"
#include "planner/studies/plan_cost.hpp"
#include "planner/studies/plan_question.hpp"
#include "planner/studies/sweep.hpp"

namespace shardline {

/// A plan of the answer, and how often it is started on the GPUs that there are.
struct PlannedPoint {
  Point point;  // of one copy
  bool meets = true;
  Rating rating;
  ErrorTerms ttft;  // what errors of prices do to its TTFT, where a workload is served
  /// As many as the GPUs hold; of a question with a rate as many as carry it, or as the GPUs hold where these
  /// carry less.
  long long copies = 1;
  double most_per_s = 0;   // requests/s that all copies carry within the target, of a question with a rate
  double limit_per_s = 0;  // likewise, of any number of users: there they are saturated
};

/// What takes the time of the best plan.
struct BestPlan {
  Breakdown breakdown;  // of a step that decodes, or of the prefill
  MemoryUse memory;
  std::optional<ServedPlan> served;
  std::vector<Diagnostic> warnings =
      {};  // where narrow types do not pay, and the like: SimulatedPlan::narrow
};

/// The best plan on the fewest GPUs beyond the asked ones that meets the target, else the one that comes
/// nearest on any number of them that was looked at.
struct WiderPlan {
  int gpus = 0;
  PlannedPoint best;
  int most = 0;  // GPUs that were looked at
};

/// The fewest GPUs on which all users who were asked for are served at once, none of them waiting for memory,
/// within the target: of plans whose copies and groups share them as those of the rows do.
struct FewerGpus {
  int gpus = 0;  // of all copies
  PlannedPoint best;
  double tokens_per_s_gpu = 0;  // of all copies over these GPUs alone
};

/// Users of all replicas of a pair that decode.
long long users_of(const PoolPair& pair);

struct PlanAnswer {
  PlanQuestion question;
  PlanDefaults defaults;
  std::string scenario;  // YAML: sweep of it with `asked` is `sweep`; with by_copies it has more batches
  Study study;           // of that text
  SweepQuestion asked;
  SweepAnswer sweep;
  std::vector<PlannedPoint> plans;  // five at most: those that meet the target, best first, and the nearest
  /// Of each strategy that none of these is of within what was asked for, the best that is, best first: as
  /// those are ranked. Nothing where nothing was asked for.
  std::vector<PlannedPoint> others;
  bool met = false;        // some plan fits and meets the target
  bool by_copies = false;  // plans of each number of GPUs were searched for by themselves
  /// Where the target is met and users were asked for: rows have all GPUs, among which users are shared so
  /// that they answer most, and fewer GPUs may do. Nothing: no fewer than those of a row do.
  std::optional<FewerGpus> fewer = std::nullopt;
  std::optional<BestPlan> best;    // of plans.front()
  std::optional<WiderPlan> wider;  // where none meets it; nothing: no plan fits more GPUs, either
  /// Pools of their own for prompts and answers, in whole replicas on the GPUs of the question or on those
  /// that pool_gpus gives to pools, that meet the target for as many users or requests as it has: the pair
  /// that answers most. Nothing: none does, or nothing is served.
  std::optional<PoolPair> pools = std::nullopt;
  /// Where no plan meets the target: the answer for a published checkpoint of the model in narrower types,
  /// of which one does, or, where no plan fits, fits; its question names that one as model. Nothing: none is
  /// known.
  std::shared_ptr<const PlanAnswer> narrower = nullptr;

  /// Whether times, users or a rate were asked for.
  bool has_target() const { return asked.has_target() || question.users > 0 || question.rate > 0; }
  /// GPUs over which rates of all copies are spread: all there are, or of a question with a rate those taken.
  int gpus_of(const PlannedPoint& p) const;
  /// Users of all copies: of a question with a rate the mean number that it keeps busy.
  double users_of(const PlannedPoint& p) const;
  /// Tokens/s of all copies over gpus_of(): answered ones, of a prefill new ones of one copy and its GPUs.
  double tokens_per_s_gpu(const PlannedPoint& p) const;
  /// Of all copies; 0 where nobody is served.
  double requests_per_s(const PlannedPoint& p) const;
  /// [P32] Joules are of the boards that work, which idle for the part of the time that a rate leaves them;
  /// money is for gpus_of(), idle ones too.
  PlanCost cost_of(const PlannedPoint& p) const;

 private:
  /// The part of what the copies carry that the rate asks for; 1 without one.
  double used(const PlannedPoint& p) const;
};

/// Each time of the question; nothing where none was asked for. `time` and `ttft` as Point has them, the
/// former of steps alone; `served`: it is a TPOT.
std::vector<AskedTime> asked_times(const PlanAnswer& answer, bool served, Seconds time, Seconds ttft);

/// What of a target a plan misses by most: the part by which it is above ("TPOT", 0.09 of 5.44 s for 5 s).
struct Miss {
  std::string what;
  double part = 0;
  Seconds time;
};
Miss miss_of(const PlanAnswer& answer, const Point& point);
/// Users were asked for, and some of them wait for memory: fewer share the copy, which makes its TPOT short.
/// No such plan is a near miss where another serves all at once.
bool some_wait(const PlanAnswer& answer, const Point& point);
/// What a target of time is about: TPOT or TTL, and of a prefill under an engine its steps and the request
/// path around them, which Point::time is without.
Seconds time_with_path(const PlanAnswer& answer, Seconds time);
inline Seconds time_with_path(const PlanAnswer& answer, const Point& p) {
  return time_with_path(answer, p.time);
}

/// The question with its defaults, scenario and study; nothing is searched for.
PlanAnswer asked_plan(const PlanQuestion& question, const Catalogs& catalogs);

/// Throws UserError as plan_defaults() and scenarios do. `progress` in plans, may throw to stop.
PlanAnswer answer_plan(const PlanQuestion& question, const Catalogs& catalogs,
                       const std::function<void(std::uint64_t done, std::uint64_t total)>& progress);

}  // namespace shardline
