// What traffic of others on the links does to the time of a plan. hardware/README.md [H58].
#pragma once

#include <vector>

#include "hardware/timing/noise.hpp"
#include "planner/search/evaluate.hpp"

namespace shardline {

/// Times of one plan, quiet and beside the background traffic of each seed.
struct NoiseEffect {
  Seconds quiet;
  std::vector<Seconds> times;  // by seed, from the first on
  Seconds mean, least, most;
  Seconds deviation;  // of the sample, n - 1; zero of one seed

  /// Time lost on average, as a part of the quiet time; negative if gained.
  double loss() const { return mean / quiet - 1; }
  double loss_of(Seconds time) const { return time / quiet - 1; }
  double spread() const { return deviation / quiet; }
};

/// The statistics of `times`, which are not empty.
NoiseEffect noise_effect(Seconds quiet, std::vector<Seconds> times);

/// Plays a plan beside the traffic of every seed. The plan must pass check. Throws UserError where there is
/// too much to play: NoisyPass::kMostTasks, or more than kMostBursts in a run. `threads`: 0 for all cores;
/// results do not depend on it.
NoiseEffect noise_effect(Evaluator& evaluator, const Plan& plan, const NoiseSpec& noise, int threads = 1);

inline constexpr double kMostBursts = 1e8;

}  // namespace shardline
