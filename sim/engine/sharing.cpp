#include "sim/engine/sharing.hpp"

#include <algorithm>
#include <limits>

#include "sim/base/cancel.hpp"

namespace shardline {

void FairShare::clear() {
  tasks_.clear();
  claims_.clear();
  pools_.clear();
}

void FairShare::add_task(double weight) {
  tasks_.push_back({weight, static_cast<std::uint32_t>(claims_.size())});
}

void FairShare::add_claim(std::uint32_t resource, double claim) {
  if (resource >= pools_.size()) pools_.resize(std::size_t{resource} + 1);
  claims_.push_back({claim, resource});
  tasks_.back().claims_end = static_cast<std::uint32_t>(claims_.size());
}

std::span<const FairShare::Claim> FairShare::claims(std::uint32_t task) const {
  const std::uint32_t begin = task == 0 ? 0 : tasks_[task - 1].claims_end;
  return {claims_.data() + begin, tasks_[task].claims_end - begin};
}

double FairShare::fill_level() {
  // Loads are summed anew each round: subtracting would leave the rounding of a large weight in a small one.
  for (Pool& pool : pools_) {
    pool.load = 0;
    pool.growing = 0;
  }
  for (const std::uint32_t task : growing_) {
    for (const Claim& claim : claims(task)) {
      pools_[claim.resource].load += claim.size * tasks_[task].weight;
      ++pools_[claim.resource].growing;
    }
  }
  double lowest = std::numeric_limits<double>::infinity();
  for (Pool& pool : pools_) {
    pool.level = pool.growing > 0 ? pool.left / pool.load : std::numeric_limits<double>::infinity();
    lowest = std::min(lowest, pool.level);
  }
  return lowest;
}

bool FairShare::freeze(std::uint32_t task, double level, double floor) {
  const double weight = tasks_[task].weight;
  double speed = -1;
  for (const Claim& claim : claims(task)) {
    const Pool& pool = pools_[claim.resource];
    if (pool.level > level) continue;
    // The last task of a pool takes what is left, so that a task alone runs at exactly 1.
    speed = pool.growing == 1 ? std::max(pool.left / claim.size, weight * floor)
                              : weight * std::max(level, floor);
    break;
  }
  if (speed < 0) return false;
  speed = std::min(speed, 1.0);
  speeds_[task] = speed;
  for (const Claim& claim : claims(task)) pools_[claim.resource].left -= claim.size * speed;
  return true;
}

std::span<const double> FairShare::solve() {
  const auto count = static_cast<std::uint32_t>(tasks_.size());
  speeds_.resize(count);
  growing_.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) growing_[i] = i;
  for (Pool& pool : pools_) pool.left = 1;
  constexpr std::uint32_t kMany = 256;  // tasks, whose rounds take microseconds each
  double floor = 0;                     // rounding must not let a later round fill less than an earlier one
  while (!growing_.empty()) {
    if (count >= kMany) check_cancelled();
    const double level = fill_level();
    std::erase_if(growing_, [&](std::uint32_t task) { return freeze(task, level, floor); });
    floor = std::max(floor, level);
  }
  return {speeds_.data(), count};
}

}  // namespace shardline
