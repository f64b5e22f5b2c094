#include "sim/queue/variate.hpp"

#include <cmath>

#include "sim/base/error.hpp"

namespace shardline {

Variate::Variate(Kind kind, double mean, double spread) : kind_(kind), mean_(mean), spread_(spread) {
  SL_CHECK(std::isfinite(mean) && std::isfinite(spread) && mean >= 0 && spread >= 0,
           "mean and spread of a variate are finite and not negative");
}

Variate Variate::fixed(double value) { return {Kind::fixed, value, 0}; }

Variate Variate::exponential(double mean) {
  SL_CHECK(mean > 0, "the mean of an exponential variate is positive");
  return {Kind::exponential, mean, 1};
}

Variate Variate::gamma(double mean, double spread) {
  SL_CHECK(mean > 0 && spread > 0, "mean and spread of a gamma variate are positive");
  Variate out(Kind::gamma, mean, spread);
  out.shape_ = 1 / (spread * spread);
  out.scale_ = mean / out.shape_;
  return out;
}

Variate Variate::lognormal(double mean, double spread) {
  SL_CHECK(mean > 0 && spread > 0, "mean and spread of a lognormal variate are positive");
  Variate out(Kind::lognormal, mean, spread);
  const double variance = natural_log(1 + spread * spread);
  out.shape_ = std::sqrt(variance);
  out.scale_ = natural_log(mean) - variance / 2;
  return out;
}

Variate Variate::uniform(double low, double high) {
  SL_CHECK(0 <= low && low <= high && high > 0, "a uniform variate lies from 0 <= low to high > 0");
  Variate out(Kind::uniform, (low + high) / 2, (high - low) / std::sqrt(3.0) / (low + high));
  out.shape_ = low;
  out.scale_ = high - low;
  return out;
}

double Variate::draw(RandomStream& stream) const {
  switch (kind_) {
    case Kind::fixed:
      return mean_;
    case Kind::exponential:
      return mean_ * stream.exponential();
    case Kind::gamma:
      return scale_ * stream.gamma(shape_);
    case Kind::lognormal:
      return natural_exp(scale_ + shape_ * stream.normal());
    case Kind::uniform:
      return shape_ + scale_ * stream.unit();
  }
  SL_CHECK(false, "every kind of variate is drawn");
}

}  // namespace shardline
