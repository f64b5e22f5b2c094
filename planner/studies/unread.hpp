// Numbers of a system file that were changed beside its calibration and change no time: fits stand in for
// them. hardware/README.md, "Prices by measurement".
#pragma once

#include <span>
#include <vector>

#include "planner/search/evaluate.hpp"

namespace shardline {

/// One warning per number that the system file gives otherwise than the machine which was measured, and
/// without which each of these plans takes as long: so they were timed, with that machine's number in its
/// place. Each also says whether that is so with costs: parameters. Located in the system file or the
/// setting. None of what a file of the catalogue says by itself, without a calibration, or where that does
/// not say what was measured. The plans must pass check.
std::vector<Diagnostic> unread_parameters(const Case& c, std::span<const Plan> plans,
                                          AllReduceRule rule = AllReduceRule::fastest);

}  // namespace shardline
