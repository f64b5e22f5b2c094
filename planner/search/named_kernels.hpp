// Kernels that a question names and that do not price what its plans run.
#pragma once

#include <span>
#include <vector>

#include "planner/search/evaluate.hpp"

namespace shardline {

/// One warning per family of which a kernel is named and some op of these plans is priced by another one,
/// because the named one was not measured for the op's types: with both names. The plans must pass check.
std::vector<Diagnostic> unused_kernels(const Case& c, std::span<const Plan> plans,
                                       AllReduceRule rule = AllReduceRule::fastest);

}  // namespace shardline
