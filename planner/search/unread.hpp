// Numbers of a system file that were changed beside its calibration and that no price reads: fits stand in
// for them. hardware/README.md, "Prices by measurement".
#pragma once

#include <span>
#include <vector>

#include "planner/search/evaluate.hpp"

namespace shardline {

/// One warning per number that the system file gives otherwise than the machine which was measured, and that
/// no price of these plans depends on. Located in the system file. None without a calibration, or where it
/// does not say what was measured. The plans must pass check.
std::vector<Diagnostic> unread_parameters(Evaluator& evaluator, std::span<const Plan> plans);

}  // namespace shardline
