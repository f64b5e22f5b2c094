#include "cuda_probe/sampler.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

double quantile_of(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// Smallest d such that at most d - 1 of n fair coins show heads with probability above `tail` / 2, less one:
// order statistics d and n - 1 - d (from 0) hold the median with probability 1 - tail at least. Nothing can
// be left out where even that of no heads is too likely.
std::size_t outer_ranks(std::size_t n, double tail) {
  double probability = std::pow(0.5, static_cast<double>(n));  // of exactly k heads
  double below = 0;                                            // of fewer than k + 1
  std::size_t k = 0;
  while (k < n / 2) {
    below += probability;
    if (below > tail / 2) break;
    probability *= static_cast<double>(n - k) / static_cast<double>(k + 1);
    ++k;
  }
  return k == 0 ? 0 : k - 1;
}

}  // namespace

void Sampler::add(Seconds sample) {
  SL_CHECK(sample > Seconds(0) && std::isfinite(sample.value), "a sample is a positive time");
  samples_.push_back(sample.value);
  sum_ += sample.value;
}

const std::vector<double>& Sampler::sorted() const {
  SL_CHECK(!samples_.empty(), "there is a sample");
  if (sorted_.size() != samples_.size()) {
    sorted_ = samples_;
    std::sort(sorted_.begin(), sorted_.end());
  }
  return sorted_;
}

Seconds Sampler::quantile(double q) const {
  SL_CHECK(q >= 0 && q <= 1, "a quantile lies between 0 and 1");
  return Seconds(quantile_of(sorted(), q));
}

Sampler::Interval Sampler::median_interval() const {
  const std::vector<double>& s = sorted();
  // 2^-n underflows beyond a thousand samples; the normal limit is exact enough long before.
  const std::size_t n = s.size();
  std::size_t left_out;
  if (n <= 500) {
    left_out = outer_ranks(n, 1 - rule_.confidence);
  } else {
    // Two-sided normal quantile by bisection of erfc.
    double low = 0, high = 8;
    for (int i = 0; i < 60; ++i) {
      const double z = (low + high) / 2;
      (std::erfc(z / std::sqrt(2.0)) > 1 - rule_.confidence ? low : high) = z;
    }
    const double rank = static_cast<double>(n) / 2 - high * std::sqrt(static_cast<double>(n)) / 2 - 1;
    left_out = static_cast<std::size_t>(std::max(0.0, std::floor(rank)));
  }
  return {Seconds(s[left_out]), Seconds(s[n - 1 - left_out])};
}

double Sampler::relative_error() const {
  const Interval i = median_interval();
  return (i.high - i.low) / (median() * 2.0);
}

Stop Sampler::stop() const {
  if (count() < rule_.least) return Stop::no;
  if (relative_error() <= rule_.relative_error) return Stop::exact;
  if (count() >= rule_.most) return Stop::most_samples;
  return Seconds(sum_) >= rule_.budget ? Stop::out_of_budget : Stop::no;
}

double Sampler::drift() const {
  const std::size_t third = count() / 3;
  if (third < 2) return 0;
  const auto median_of = [&](std::size_t first) {
    std::vector<double> part(samples_.begin() + static_cast<std::ptrdiff_t>(first),
                             samples_.begin() + static_cast<std::ptrdiff_t>(first + third));
    std::sort(part.begin(), part.end());
    return quantile_of(part, 0.5);
  };
  return median_of(count() - third) / median_of(0) - 1;
}

bool Sampler::drifted() const { return std::abs(drift()) > rule_.drift; }

}  // namespace shardline
