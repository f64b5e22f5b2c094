#include "sim/queue/quantiles.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Doubles as integers in the same order, so that halving an interval of them ends after 64 times.
constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
std::uint64_t order_of(double v) {
  const auto bits = std::bit_cast<std::uint64_t>(v + 0.0);  // -0 is 0
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
double at_order(std::uint64_t order) {
  return std::bit_cast<double>((order & kSign) != 0 ? order & ~kSign : ~order);
}

// Value number i of a run in ascending order.
double ascending(const ValueRun& run, std::uint32_t i) {
  return run.value(run.slope < 0 ? run.count - 1 - i : i);
}

// How many values of a run are at most x. Division finds it, but for rounding: the values themselves decide.
std::uint32_t up_to(const ValueRun& run, double x) {
  const double first = ascending(run, 0);
  if (first > x) return 0;
  if (ascending(run, run.count - 1) <= x) return run.count;
  // Now first <= x < last, so there are two values at least and a slope.
  const double guess = std::floor((x - first) / std::abs(run.slope)) + 1;
  auto low = std::uint32_t{1}, high = run.count - 1;  // at least so many, at most so many
  auto at = static_cast<std::uint32_t>(std::clamp(guess, 1.0, static_cast<double>(high)));
  for (int tries = 0;; ++tries) {
    const bool enough = ascending(run, at - 1) <= x;  // value number `at` is in
    if (enough && ascending(run, at) > x) return at;
    if (enough) {
      low = at + 1;
      at = std::min(high, at + 1);
    } else {
      high = at - 1;
      at = std::max(low, at - 1);
    }
    // Far off only where many values round to the same: halve.
    if (tries > 1) at = low + (high - low) / 2;
  }
}

double first_of(const ValueRun& run) { return ascending(run, 0); }
double last_of(const ValueRun& run) { return ascending(run, run.count - 1); }

}  // namespace

void RunQuantiles::add(const ValueRun& run) {
  if (run.count == 0 || run.weight == 0) return;
  // Of one value the last is the first.
  const double begin = run.value(0), end = run.count == 1 ? begin : run.value(run.count - 1);
  const double first = std::min(begin, end), last = std::max(begin, end);
  // Value 0 is one of both, and finite only where start and slope are.
  SL_CHECK(std::isfinite(first) && std::isfinite(last), "values of a run are finite");
  if (blocks_.empty()) blocks_.emplace_back();
  if (blocks_.back().runs.size() == kBlock && !blocks_.back().condense()) {
    blocks_.back().pack();
    blocks_.emplace_back();
    blocks_.back().runs.reserve(kBlock);
  }
  blocks_.back().runs.push_back(run);
  const double values = static_cast<double>(run.count);
  sum_ += run.weight * (values * run.start + run.slope * (values * (values - 1) / 2));
  least_ = count_ == 0 ? first : std::min(least_, first);
  most_ = count_ == 0 ? last : std::max(most_, last);
  count_ += std::uint64_t{run.count} * run.weight;
}

// The first of equal runs is found by a hash of all but its weight: open addressing, at most half full.
bool RunQuantiles::Block::condense() {
  constexpr std::size_t kPlaces = 2 * kBlock;
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> places(kPlaces, kNone);
  std::size_t kept = 0;
  for (const ValueRun run : runs) {
    std::uint64_t hash = (order_of(run.start) ^ run.count) * 0x9e3779b97f4a7c15ULL;
    hash = (hash ^ (hash >> 32) ^ order_of(run.slope)) * 0xbf58476d1ce4e5b9ULL;
    std::size_t at = (hash >> 32) % kPlaces;
    const auto differs = [&](const ValueRun& other) {
      return other.start != run.start || other.slope != run.slope || other.count != run.count;
    };
    while (places[at] != kNone && differs(runs[places[at]])) at = (at + 1) % kPlaces;
    if (places[at] != kNone &&
        run.weight <= std::numeric_limits<std::uint32_t>::max() - runs[places[at]].weight) {
      runs[places[at]].weight += run.weight;
    } else {
      places[at] = static_cast<std::uint32_t>(kept);
      runs[kept++] = run;
    }
  }
  runs.resize(kept);
  return kept <= kBlock / 2;
}

void RunQuantiles::Block::pack() {
  const auto single = [](const ValueRun& run) { return run.count == 1; };
  const auto singles = static_cast<std::size_t>(std::count_if(runs.begin(), runs.end(), single));
  const bool light = std::none_of(runs.begin(), runs.end(),
                                  [&](const ValueRun& run) { return single(run) && run.weight > 1; });
  std::vector<ValueRun> others;
  others.reserve(runs.size() - singles);
  values.reserve(singles);
  if (!light) weights.reserve(singles);
  for (const ValueRun& run : runs) {
    if (!single(run)) {
      others.push_back(run);
      continue;
    }
    values.push_back(run.start);
    if (!light) weights.push_back(run.weight);
  }
  runs = std::move(others);
}

std::uint64_t RunQuantiles::Block::count_up_to(double x) const {
  std::uint64_t sum = 0;
  each([&](const ValueRun& run) { sum += std::uint64_t{up_to(run, x)} * run.weight; });
  return sum;
}

std::uint64_t RunQuantiles::count_up_to(double x) const {
  std::uint64_t sum = 0;
  CancelCheck check;
  for (const Block& block : blocks_) {
    check();
    sum += block.count_up_to(x);
  }
  return sum;
}

void RunQuantiles::merge(const RunQuantiles& other) {
  if (&other == this) {
    merge(RunQuantiles(other));
    return;
  }
  for (const Block& block : other.blocks_) {
    check_cancelled();  // of millions of requests there are thousands
    block.each([&](const ValueRun& run) { add(run); });
  }
}

std::size_t RunQuantiles::runs() const {
  std::size_t sum = 0;
  for (const Block& block : blocks_) sum += block.size();
  return sum;
}

double RunQuantiles::mean() const {
  SL_CHECK(count_ > 0, "a mean has values");
  return sum_ / static_cast<double>(count_);
}

double RunQuantiles::part_up_to(double value) const {
  SL_CHECK(count_ > 0, "a part is one of values");
  return static_cast<double>(count_up_to(value)) / static_cast<double>(count_);
}

double RunQuantiles::quantile(double q) const {
  SL_CHECK(count_ > 0, "a quantile has values");
  SL_CHECK(q >= 0 && q <= 1, "a quantile is from 0 to 1");
  const auto total = static_cast<double>(count_);
  const auto rank = static_cast<std::uint64_t>(std::clamp(std::ceil(q * total), 1.0, total));
  std::uint64_t low = order_of(least_), high = order_of(most_);  // the value is between, both included
  std::uint64_t below = 0;                                       // values of runs left out that lie below
  Block near;                                                    // runs not left out, once they are few
  bool few = false;
  while (low < high) {
    check_cancelled();
    const std::uint64_t middle = low + (high - low) / 2;
    const double at = at_order(middle);
    const std::uint64_t sum = below + (few ? near.count_up_to(at) : count_up_to(at));
    (sum < rank ? low : high) = sum < rank ? middle + 1 : middle;
    // A run with no value between is settled; what is left becomes less about as fast as the interval.
    const double from = at_order(low), to = at_order(high);
    const auto open = [&](const ValueRun& run) { return first_of(run) <= to && last_of(run) >= from; };
    std::size_t count = 0;
    if (!few) {
      for (const Block& block : blocks_) block.each([&](const ValueRun& run) { count += open(run) ? 1 : 0; });
      if (count > runs() / 8) continue;
    }
    std::vector<ValueRun> left;
    left.reserve(count);
    const auto keep = [&](const ValueRun& run) {
      if (open(run)) {
        left.push_back(run);
      } else if (last_of(run) < from) {
        below += std::uint64_t{run.count} * run.weight;
      }
    };
    if (few) {
      near.each(keep);
    } else {
      for (const Block& block : blocks_) block.each(keep);
    }
    near.runs = std::move(left);
    few = true;
  }
  return at_order(low);
}

}  // namespace shardline
