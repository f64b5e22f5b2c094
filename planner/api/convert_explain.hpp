// From explanations and comparisons of planner/studies to the structs of this folder. Not installed.
#pragma once

#include "planner/api/compare.hpp"
#include "planner/api/explain.hpp"
#include "planner/studies/explanation.hpp"
#include "planner/studies/plan_comparison.hpp"

namespace shardline::api {

/// Everything but `version`, `command`, `scenario` and `question`.
ExplainResult explain_result(const Study& study, const Explanation& explanation);
CompareResult compare_result(const Study& study, const PlanComparison& comparison);

}  // namespace shardline::api
