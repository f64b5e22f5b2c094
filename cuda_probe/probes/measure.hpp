// Measuring one shape: warm-up, samples until the median is exact enough, samples of a throttled device left
// out. Knows no GPU: a function takes the samples. README.md [B1]-[B3].
#pragma once

#include <functional>
#include <span>
#include <string>

#include "cuda_probe/sampler.hpp"

namespace shardline {

/// One sample: the time of one call with cold caches, and the state of the device just after it.
struct Reading {
  Seconds time;
  double clock = 0;        // of the multiprocessors in MHz; 0: unknown
  bool throttled = false;  // slowed down by heat, by the power brake or by other hardware protection
  bool capped = false;     // the power limit holds the clock down
};
using TakeSample = std::function<Reading()>;

struct MeasureRule {
  StoppingRule stop;
  // Warm-up ends when the medians of two consecutive windows differ by `settled` at most, after
  // `most_warm_up` samples, or when they took `warm_up_budget`; at least one sample is taken.
  std::size_t window = 3, most_warm_up = 30;
  double settled = 0.05;
  Seconds warm_up_budget{0.1};
  // Calls longer than `long_call` need `least_of_long` samples only: few shapes would take all the time.
  Seconds long_call{0.03};
  std::size_t least_of_long = 5;
  // A sample is discarded where the device was throttled or its clock below this part of the highest that
  // any sample of the shape saw, unless the power limit is why: engines live with that too.
  double lowest_clock = 0.75;
  double most_discarded = 0.5;  // part of all samples beyond which the shape is dropped
};

struct Measured {
  Seconds median, p10, p90;
  std::size_t samples = 0, discarded = 0, warm_up = 0;
  Stop stop = Stop::no;
  double drift = 0, relative_error = 0;
  bool drifted = false;
  double lowest_clock = 0, highest_clock = 0;  // of the kept samples, MHz; 0: unknown
  std::string dropped;                         // why there is no result; empty: there is one

  bool valid() const { return dropped.empty(); }
};

/// Takes samples until the rule is met. Exceptions of `take` pass through.
Measured measure(const MeasureRule& rule, const TakeSample& take);

/// "median of >= 10 samples until half its 95 % interval is 1 % of it ...": for the head of a table.
std::string to_string(const MeasureRule& rule);

/// How long the first of several families may run, now that `spent` of `budget` are gone: what is left, dealt
/// out by `weights` (of it and of those still to come). What a family does not use goes to the later ones.
Seconds share_of(Seconds budget, Seconds spent, std::span<const double> weights);

}  // namespace shardline
