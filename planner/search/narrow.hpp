// Narrow types that do not pay: ops that take longer than the kernel of a wider type would. planner/README.md
// [P15].
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/search/evaluate.hpp"

namespace shardline {

/// An op as a plan runs it, and what it would take with weights (or a cache) and arithmetic of type `wide`.
struct NarrowLoss {
  std::string op;
  Dtype stored, math, wide;
  Seconds time, wider;
  double ratio() const { return time / wider; }
};

/// The least that a wider type would take for this op, where that is clearly less; of products with weights
/// and attention. Prices of one rank of class 0.
std::optional<NarrowLoss> narrow_loss(CostModel& cost, const Op& op);

/// One warning that names the op of these plans that loses most, with both times and how many of their ops
/// lose; none where all pay. An engine could keep that matrix or cache in the wider type, at the price of its
/// memory. The plans must pass check.
std::vector<Diagnostic> narrow_warnings(const Case& c, std::span<const Plan> plans,
                                        AllReduceRule rule = AllReduceRule::fastest);

}  // namespace shardline
