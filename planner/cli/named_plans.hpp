// Plans that are named beside a question of one line: which of its words are theirs, too. For explain and
// compare.
#pragma once

#include <optional>
#include <string>

#include "planner/studies/knobs.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/simulated_plan.hpp"

namespace shardline::cli {

/// A plan that was named, with the users that it has.
struct LinePlan {
  std::string text;      // with a batch
  long long copies = 1;  // on the GPUs of the question, that share its users
};

/// A plan whose text names no batch has a copy's share of the question's users, as `plan` gives it. Throws
/// UserError where a word of the line would be lost: --gpus or --nodes of fewer GPUs than the plan has, a
/// batch beside --users that is no copy's share of them (of bare kernels, whose users are a least number, a
/// smaller one), --rate, which finds users and does not say them.
LinePlan named_plan(const PlanAnswer& asked, const std::string& text);

/// A plan that is named beside a scenario: where that has one number of users, a text without a batch has
/// them, and none has others. Throws UserError where it would, and where a text without a batch leaves
/// several.
std::string plan_of_scenario(const Study& study, const std::string& text);

/// Whether the plan is within the targets of the line; false where it does not fit, nothing without targets.
std::optional<bool> met_by(const PlanAnswer& asked, const SimulatedPlan& plan, const PlanTimes& times);

/// "keeps TPOT at most 20 ms", "misses TPOT at most 20 ms: TPOT +12 %"; empty without targets.
std::string kept_text(const PlanAnswer& asked, const PlanTimes& times);
/// The same of the constraints of a scenario. The plan must fit.
std::string kept_text(const Study& study, const SimulatedPlan& plan);

}  // namespace shardline::cli
