// When to stop measuring: samples of one kernel's time, its median with a confidence interval, and signs that
// the device changed while it was measured.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

struct StoppingRule {
  double relative_error = 0.01;  // half width of the median's confidence interval over the median
  double confidence = 0.95;      // of that interval; between 0.5 and 0.9999
  std::size_t least = 10, most = 1000;
  Seconds budget{0.5};  // of all samples together; `least` samples are taken in any case
  double drift = 0.05;  // medians of the first and last third may differ by this part
};

enum class Stop { no, exact, most_samples, out_of_budget };

/// Collects samples of one shape, in the order of measurement.
class Sampler {
 public:
  explicit Sampler(const StoppingRule& rule) : rule_(rule) {}

  /// A positive time.
  void add(Seconds sample);
  /// Whether to stop, and why: enough exactness first, then the limits.
  Stop stop() const;

  std::size_t count() const { return samples_.size(); }
  /// Of the samples so far; the mean of the middle two where their number is even. At least one sample.
  Seconds median() const { return quantile(0.5); }
  /// Linear between order statistics, q in [0, 1].
  Seconds quantile(double q) const;

  struct Interval {
    Seconds low, high;
  };
  /// Order statistics that hold the true median with at least the rule's confidence, whatever the
  /// distribution (binomial ranks); the whole range where there are too few samples for that.
  Interval median_interval() const;
  /// Half of the interval's width over the median.
  double relative_error() const;

  /// Median of the last third over that of the first, less 1: clocks that fall make it positive. Zero with
  /// fewer than six samples.
  double drift() const;
  bool drifted() const;

 private:
  const std::vector<double>& sorted() const;
  StoppingRule rule_;
  std::vector<double> samples_;
  mutable std::vector<double> sorted_;  // of the first sorted_.size() samples
  double sum_ = 0;
};

}  // namespace shardline
