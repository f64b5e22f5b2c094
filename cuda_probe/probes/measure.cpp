#include "cuda_probe/probes/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

Seconds median_of(std::span<const Seconds> samples) {
  std::vector<Seconds> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
}

// Times of the warm-up.
std::vector<Seconds> warm_up(const MeasureRule& rule, const TakeSample& take) {
  std::vector<Seconds> taken;
  Seconds spent{0};
  do {
    taken.push_back(take().time);
    spent += taken.back();
    if (taken.size() >= 2 * rule.window) {
      const std::span<const Seconds> all(taken);
      const Seconds last = median_of(all.last(rule.window));
      const Seconds before = median_of(all.last(2 * rule.window).first(rule.window));
      if (std::abs(last / before - 1) <= rule.settled) break;
    }
  } while (taken.size() < rule.most_warm_up && spent < rule.warm_up_budget);
  return taken;
}

}  // namespace

Measured measure(const MeasureRule& rule, const TakeSample& take) {
  SL_CHECK(rule.window >= 1, "a window holds a sample");
  Measured out;
  const std::vector<Seconds> warm = warm_up(rule, take);
  out.warm_up = warm.size();
  StoppingRule stop = rule.stop;
  if (warm.back() > rule.long_call) stop.least = std::min(stop.least, rule.least_of_long);

  std::vector<Reading> kept;
  Sampler sampler(stop);
  double highest = 0;
  const auto slow = [&](const Reading& k) {
    return k.clock > 0 && !k.capped && k.clock < rule.lowest_clock * highest;
  };
  while (out.stop == Stop::no) {
    const Reading r = take();
    if (r.clock > highest) {
      highest = r.clock;
      // Samples that now count as slow are taken back.
      const auto removed = std::erase_if(kept, slow);
      if (removed > 0) {
        out.discarded += removed;
        sampler = Sampler(stop);
        for (const Reading& k : kept) sampler.add(k.time);
      }
    }
    if (r.throttled || slow(r)) {
      ++out.discarded;
    } else {
      kept.push_back(r);
      sampler.add(r.time);
    }
    const std::size_t all = out.discarded + kept.size();
    if (all >= stop.least &&
        static_cast<double>(out.discarded) > rule.most_discarded * static_cast<double>(all)) {
      out.dropped =
          fmt::format("{} of {} samples were taken while the device was throttled", out.discarded, all);
      return out;
    }
    out.stop = sampler.stop();
  }
  out.samples = sampler.count();
  out.median = sampler.median();
  out.p10 = sampler.quantile(0.1);
  out.p90 = sampler.quantile(0.9);
  out.relative_error = sampler.relative_error();
  out.drift = sampler.drift();
  out.drifted = sampler.drifted();
  for (const Reading& k : kept) {
    if (k.clock <= 0) continue;
    out.lowest_clock = out.lowest_clock > 0 ? std::min(out.lowest_clock, k.clock) : k.clock;
    out.highest_clock = std::max(out.highest_clock, k.clock);
  }
  return out;
}

std::string to_string(const MeasureRule& r) {
  return fmt::format(
      "until half the median's {:g} % interval is {:g} % of it; {} to {} samples, {} at most, calls above {} "
      "{} samples at least; warm-up until medians of {} agree to {:g} %, {} samples or {} at most; samples "
      "below {:g} % of the highest clock (but for the power limit) or throttled are discarded, shapes with "
      "over {:g} % of these dropped",
      100 * r.stop.confidence, 100 * r.stop.relative_error, r.stop.least, r.stop.most,
      to_string(r.stop.budget), to_string(r.long_call), std::min(r.stop.least, r.least_of_long), r.window,
      100 * r.settled, r.most_warm_up, to_string(r.warm_up_budget), 100 * r.lowest_clock,
      100 * r.most_discarded);
}

Seconds share_of(Seconds budget, Seconds spent, std::span<const double> weights) {
  SL_CHECK(!weights.empty(), "there is a family to run");
  double all = 0;
  for (const double w : weights) all += w;
  return std::max(Seconds(0), budget - spent) * (weights[0] / all);
}

}  // namespace shardline
