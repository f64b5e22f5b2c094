// One plan of a study: its time and what that consists of, its memory, and how to launch it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/engines/deploy.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/search/noise.hpp"
#include "planner/serving/served_plan.hpp"

namespace shardline {

struct PricedCollective {
  Op op;        // of class 0
  OpCost cost;  // points into the evaluator's system
  Seconds alone;
};

struct SimulatedPlan {
  Plan plan;                       // with the partition that was searched for, where it takes one
  std::optional<Refusal> refusal;  // of the case's engine, which does not start it
  MemoryUse memory;
  std::optional<std::string> misfit;  // why it does not fit; then nothing below is set
  Breakdown breakdown;
  std::vector<PricedCollective> collectives;  // each kind of message once, in the order of the schedule
  std::optional<NoiseEffect> noise;           // of studies with noise
  std::optional<ServedPlan> served;           // of studies with a workload, the plan's users
  ErrorTerms ttft_errors;                     // of its TTFT, likewise
  std::vector<Deployment> deployments;
  std::vector<Diagnostic> unread;  // unread_parameters()
  std::vector<Diagnostic> narrow;  // narrow_warnings()
};

/// The study of a model, or the first for an empty name. Throws UserError.
const Study& study_of(const Scenario& scenario, const std::string& model);

/// A plan by its text. Throws UserError if it is none or is impossible for the study.
Plan possible_plan(const Study& study, const std::string& text);

/// `evaluator` is of the study's case, must outlive the result and is left at the plan. The plan must pass
/// check.
SimulatedPlan simulate_plan(const Study& study, Evaluator& evaluator, Plan plan);

}  // namespace shardline
