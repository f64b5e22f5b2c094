// Kernels that price what plans run and are not what was asked for: not the one that a question names, or one
// that does more than the checkpoint needs.
#pragma once

#include <span>
#include <vector>

#include "planner/search/evaluate.hpp"

namespace shardline {

/// One warning per family of which a kernel is named and some op of these plans is priced by another one,
/// because the named one was not measured for the op's types: with both names. The plans must pass check.
std::vector<Diagnostic> unused_kernels(const Case& c, std::span<const Plan> plans,
                                       AllReduceRule rule = AllReduceRule::fastest);

/// One warning where products of FP8 weights with static scales are priced by a kernel that searches for
/// scales, because none without was measured or derived of it (calibrate/README.md [F8]): they are too slow
/// by that search. The plans must pass check.
std::vector<Diagnostic> searched_scales(const Case& c, std::span<const Plan> plans,
                                        AllReduceRule rule = AllReduceRule::fastest);

}  // namespace shardline
