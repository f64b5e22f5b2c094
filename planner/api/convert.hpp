// From the answers of planner/studies to the structs of this folder. Not installed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/api/run.hpp"
#include "planner/api/simulate.hpp"
#include "planner/api/sweep.hpp"
#include "planner/studies/kept_targets.hpp"
#include "planner/studies/plan_cost.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "planner/studies/sweep.hpp"

namespace shardline::api {

/// Of the build.
const char* version();

std::vector<Diagnostic> diagnostics_of(std::span<const shardline::Diagnostic> faults);
/// Both lists, as commands print them.
std::vector<Diagnostic> warnings_of(const std::vector<shardline::Diagnostic>& unread,
                                    const std::vector<shardline::Diagnostic>& narrow);
/// rates_of_what().
std::string what_of(const Study& study);
Setting setting_of(const Study& study);
Engine engine_of(const Case& c);
/// Nothing where the study has none.
std::optional<Workload> asked_workload(const Study& study);
Costs costs_of(const System& system);
Precision precision_of(const Case& c);

Estimate estimate(double value, const ErrorRange& error);
std::optional<Estimate> estimate_of(const std::optional<CostNumber>& number);
Shares shares_of(const shardline::Shares& shares);

/// A point of a study. `rating` and `ttft`, what errors do to its TTFT, may be null: ends of intervals are
/// then unknown.
PlanPoint plan_point(const Study& study, const Point& point, const Rating* rating, const ErrorTerms* ttft);

NoiseSpec noise_of(const shardline::NoiseSpec& noise);
NoisyPlan noisy_plan(const Plan& plan, const NoiseEffect& effect);

std::vector<PoolPair> pool_pairs_of(const Study& study, const SweepAnswer& answer);

/// The most time per token of the least tokens/s of a user that is asked, 0 of none. Throws UserError of what
/// is no rate.
/// A target that a machine may keep or miss: from 1 ns to 1e9 s.
Seconds target_time(const char* option, double seconds);
Seconds time_of_rate(const std::optional<double>& tokens_per_s_user);
/// What a sweep of this study is asked: with the scenario's own target where the question has none. Throws
/// UserError of a target that means nothing for its kind of steps.
shardline::SweepQuestion question_for(const Study& study, const SweepQuestion& question, int threads);
/// The answer of one study to `asked`, which is question_for() of it.
ModelSweep model_sweep(const Study& study, const shardline::SweepQuestion& asked, const SweepAnswer& answer);
/// The plans that a sweep is for: those that meet its target, or without one those per budget (steps that
/// decode) or of the frontier (prefills). Without the commands that simulate them.
std::vector<Winner> winners_of(const Study& study, const shardline::SweepQuestion& asked,
                               const SweepAnswer& answer);
/// Everything but `command`, `version`, `scenario`, `question`, `files` and the winners' `simulate`.
RunRecord run_record(const Study& study, const shardline::SweepQuestion& asked, const SweepAnswer& answer);

/// Whether a sweep ends well: some model has a plan, and every one has what it was asked for.
class SweepVerdict {
 public:
  void add(const Study& study, const shardline::SweepQuestion& asked, const SweepAnswer& answer);
  bool met() const { return any_ && met_; }

 private:
  bool any_ = false, met_ = true;
};

MemoryUse memory_of(const System& system, const shardline::MemoryUse& memory);
/// Of the step that was broken down.
Breakdown breakdown_of(const System& system, const shardline::Breakdown& breakdown);
/// Everything but `version`, `command`, `scenario` and `question`. `evaluator` is where simulate_plan() left
/// it.
SimulateResult simulate_result(const Study& study, const SimulatedPlan& simulated, int copies);

/// Parts of it, for answers that have them.
PlanPoint outcome_of(const Study& study, const SimulatedPlan& simulated);
Served served_of(const Study& study, const SimulatedPlan& simulated);
Collective collective_of(const PricedCollective& collective);

}  // namespace shardline::api
