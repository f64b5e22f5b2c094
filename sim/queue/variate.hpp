// A random quantity: what is drawn for an interval, a piece of work, a length.
#pragma once

#include "sim/base/random.hpp"

namespace shardline {

/// A distribution on values above 0, given by its mean and spread [S12]. The spread is the coefficient of
/// variation: standard deviation over mean.
class Variate {
 public:
  /// Always this value, from 0.
  static Variate fixed(double value);
  /// Mean positive; spread 1.
  static Variate exponential(double mean);
  /// Mean and spread positive: shape 1 / spread^2. Spread 1 is exponential, below 1 more even, above it
  /// clustered.
  static Variate gamma(double mean, double spread);
  /// Mean and spread positive: a heavier tail than gamma.
  static Variate lognormal(double mean, double spread);
  /// From 0 <= low to high.
  static Variate uniform(double low, double high);

  double draw(RandomStream& stream) const;
  double mean() const { return mean_; }
  double variance() const { return mean_ * mean_ * spread_ * spread_; }

 private:
  enum class Kind : unsigned char { fixed, exponential, gamma, lognormal, uniform };
  Variate(Kind kind, double mean, double spread);

  Kind kind_;
  double mean_, spread_;
  double shape_ = 0,
         scale_ = 0;  // gamma: its own; lognormal: deviation and mean of the logarithm; uniform: low, width
};

}  // namespace shardline
