// How much one frontier gains over another: not only at its best point.
#pragma once

#include <vector>

#include "planner/search/pareto.hpp"

namespace shardline {

struct GainPoint {
  double slack = 0;  // TTL budget / the baseline's lowest TTL, minus 1
  double gain = 0;   // tokens/s/GPU of the candidate over the baseline's, both within the budget
};

struct Gain {
  double interactivity = 0;  // lowest TTL of the baseline over that of the candidate
  double throughput =
      0;  // tokens/s/GPU at the baseline's lowest TTL: the published "same latency budget" gain
  double geometric_mean = 0;  // of GainPoint::gain over budgets of 1 to 2 times the baseline's lowest TTL
  std::vector<GainPoint> curve;
};

/// Frontiers must be on (tokens/s/user, tokens/s/GPU) and not empty. The mean is over `steps` + 1 equally
/// spaced budgets.
Gain gain(const std::vector<Point>& candidate, const std::vector<Point>& baseline, int steps = 100);

/// The point with most tokens/s/GPU within a TTL budget, or null.
const Point* best_within(const std::vector<Point>& frontier, Seconds ttl);

}  // namespace shardline
