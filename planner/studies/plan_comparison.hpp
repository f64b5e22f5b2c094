// Two plans of one study side by side. planner/README.md [P13], [P24].
#pragma once

#include <string>
#include <vector>

#include "planner/studies/knobs.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "planner/studies/told_apart.hpp"

namespace shardline {

/// What a row of the comparison is: parts, kinds of ops and bases each add up to the step (parts with
/// waiting), and memory to its total.
/// `tpot`: of a served workload, what a token takes beside the step that all others are of.
enum class ComparedAs : std::uint8_t { tpot, part, kind, basis, communication, memory };
std::string_view to_string(ComparedAs as);

struct ComparedRow {
  ComparedAs as = ComparedAs::part;
  std::string name;
  double first = 0, second = 0;  // seconds; of memory bytes
};

struct PlanComparison {
  SimulatedPlan first, second;
  PlanTimes first_times, second_times;  // of those that fit
  std::vector<ComparedRow> rows;        // what either has; where both fit, else memory alone
  double time_ratio = 0;        // of PlanTimes::time(), the second's over the first's; 0: one does not fit
  double rate_ratio = 0;        // of tokens/s/GPU
  ErrorBand shared, unrelated;  // of ln(true time_ratio / time_ratio), by what fits get wrong
  ErrorBand rate_shared;        // of rate_ratio
  bool both() const { return time_ratio > 0; }
  bool told_apart(FitErrors errors) const;
};

/// Both plans must pass check. `a` and `b` are evaluators of the study's case, left at the plans.
PlanComparison compare_plans(const Study& study, Evaluator& a, Evaluator& b, const Plan& first,
                             const Plan& second);

}  // namespace shardline
