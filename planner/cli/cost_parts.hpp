// Cost and energy in tables of points.
#pragma once

#include <string>
#include <vector>

#include "planner/studies/plan_cost.hpp"

namespace shardline::cli {

/// Columns that stand last in tables of points, and their cells: empty where a number is not known.
const std::vector<std::string>& cost_columns();
std::vector<std::string> cost_cells(const PlanCost& cost);

}  // namespace shardline::cli
