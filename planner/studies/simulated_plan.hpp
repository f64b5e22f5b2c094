// One plan of a study: its time and what that consists of, its memory, and whether an engine starts it.
#pragma once

#include <optional>
#include <string>
#include <vector>

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

/// What a message was priced as: the algorithm that was fastest, or the library or engine that was measured.
std::string algorithm_text(const OpCost& cost);
/// Of what message_bytes() of an op of this kind is the size.
const char* message_meaning(OpKind kind);

struct SimulatedPlan {
  /// With the partition that was searched for, where it takes one; of a workload with the largest batch that
  /// memory has room for, if it was asked for more.
  Plan plan;
  Plan asked;                      // as it was asked for
  std::optional<Refusal> refusal;  // of the case's engine, which does not start it
  MemoryUse memory;
  std::optional<std::string> misfit;  // why it does not fit; then nothing below is set
  Breakdown breakdown;
  std::vector<PricedCollective> collectives;  // each kind of message once, in the order of the schedule
  std::optional<NoiseEffect> noise;           // of studies with noise
  std::optional<ServedPlan> served;           // of studies with a workload, the plan's users
  ErrorTerms ttft_errors;                     // of its TTFT, likewise
  std::vector<Diagnostic> unread;             // unread_parameters(), and unchecked_model()
  std::vector<Diagnostic> narrow;             // narrow_warnings()
};

/// The study of a model, or the first for an empty name. Throws UserError.
const Study& study_of(const Scenario& scenario, const std::string& model);

/// A plan by its text. Throws UserError if it is none or is impossible for the study.
Plan possible_plan(const Study& study, const std::string& text);

/// `evaluator` is of the study's case, must outlive the result and is left at the plan. The plan must pass
/// check.
SimulatedPlan simulate_plan(const Study& study, Evaluator& evaluator, Plan plan);

/// Of a plan that was asked for with more requests than memory has room for: that those are not what is
/// described, where nothing but its steps is. Nothing where all run, and where their wait is in its TTFT.
std::optional<Diagnostic> waiting_note(const SimulatedPlan& s);

}  // namespace shardline
