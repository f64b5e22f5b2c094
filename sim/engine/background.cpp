#include "sim/engine/background.hpp"

#include <cmath>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), a bijection of 64 bits.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

}  // namespace

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  return mix(mix(mix(seed + kGolden) + kGolden * (stream + 1)) + kGolden * (counter + 1));
}

double random_unit(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  return (static_cast<double>(random_bits(seed, stream, counter) >> 12) + 0.5) * 0x1p-52;
}

double exponential(double u) {
  int exponent = 0;
  double m = std::frexp(u, &exponent);  // exact, in [0.5, 1)
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 artanh z, by its series; |z| < 0.172, so the rest is below 1e-17.
  const double z = (m - 1) / (m + 1), square = z * z;
  double sum = 0;
  for (int k = 21; k > 0; k -= 2) sum = sum * square + 1.0 / k;
  return -(2 * z * sum + exponent * 0.69314718055994531);
}

void Background::add(BurstSource source) {
  SL_CHECK(std::isfinite(source.mean_burst.value) && source.mean_burst > Seconds(0) &&
               std::isfinite(source.mean_gap.value) && source.mean_gap > Seconds(0) && source.flows > 0,
           "bursts and gaps have positive finite means, and bursts a flow at least");
  sources_.push_back(std::move(source));
}

std::vector<Span> Background::bursts(std::size_t source, Seconds end) const {
  std::vector<Span> out;
  double begin = 0;
  for (BurstClock clock(*this, source); begin < end.value; clock.advance()) {
    if (clock.on()) out.push_back({Seconds(begin), Seconds(clock.until())});
    begin = clock.until();
  }
  return out;
}

BurstClock::BurstClock(const Background& background, std::size_t source)
    : mean_{background.sources()[source].mean_gap.value, background.sources()[source].mean_burst.value},
      seed_(background.seed()),
      stream_(source) {
  on_ = random_unit(seed_, stream_, counter_++) * (mean_[0] + mean_[1]) < mean_[1];
  until_ = length();  // exponential lengths have no memory: what is left of one is as long as a new one
}

double BurstClock::length() {
  return mean_[on_ ? 1 : 0] * exponential(random_unit(seed_, stream_, counter_++));
}

void BurstClock::advance() {
  on_ = !on_;
  until_ += length();
}

}  // namespace shardline
