// From a question of one line, and to its answer. Not installed.
#pragma once

#include "planner/api/options.hpp"
#include "planner/api/plan.hpp"
#include "planner/studies/plan_answer.hpp"

namespace shardline::api {

/// Requests a second that may be asked for: one in eleven days, and more than any service has.
inline constexpr double kLeastRate = 1e-6, kMostRate = 1e9;

/// With threads, engine, costs, any_gpus and any_context of the options. Throws UserError that names options
/// of the command line: numbers out of range, more GPUs than the system has, targets that mean nothing here.
shardline::PlanQuestion plan_question_of(const PlanQuestion& asked, const RunOptions& options,
                                         const Catalogs& catalogs);

/// Everything but `version`, `command` and `question`.
PlanResult plan_result(const PlanAnswer& answer);

}  // namespace shardline::api
