#include "sim/engine/background.hpp"

#include <cmath>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"

namespace shardline {

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
