#include "sim/queue/quantiles.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

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

using Blocks = std::vector<std::vector<ValueRun>>;

std::uint64_t count_up_to(const Blocks& blocks, double x) {
  std::uint64_t sum = 0;
  for (const auto& block : blocks) {
    for (const ValueRun& run : block) sum += std::uint64_t{up_to(run, x)} * run.weight;
  }
  return sum;
}

template <class Predicate>
std::size_t count_of(const Blocks& blocks, const Predicate& predicate) {
  std::size_t sum = 0;
  for (const auto& block : blocks) {
    sum += static_cast<std::size_t>(std::count_if(block.begin(), block.end(), predicate));
  }
  return sum;
}

double first_of(const ValueRun& run) { return ascending(run, 0); }
double last_of(const ValueRun& run) { return ascending(run, run.count - 1); }

}  // namespace

void RunQuantiles::add(const ValueRun& run) {
  if (run.count == 0 || run.weight == 0) return;
  const double first = first_of(run), last = last_of(run);
  SL_CHECK(
      std::isfinite(run.start) && std::isfinite(run.slope) && std::isfinite(first) && std::isfinite(last),
      "values of a run are finite");
  if (blocks_.empty() || (blocks_.back().size() == kBlock && !condense(blocks_.back()))) {
    blocks_.emplace_back();
    if (blocks_.size() > 1) blocks_.back().reserve(kBlock);
  }
  blocks_.back().push_back(run);
  const double values = static_cast<double>(run.count);
  sum_ += run.weight * (values * run.start + run.slope * (values * (values - 1) / 2));
  least_ = count_ == 0 ? first : std::min(least_, first);
  most_ = count_ == 0 ? last : std::max(most_, last);
  count_ += std::uint64_t{run.count} * run.weight;
}

bool RunQuantiles::condense(std::vector<ValueRun>& block) {
  std::sort(block.begin(), block.end(), [](const ValueRun& a, const ValueRun& b) {
    return std::tie(a.start, a.slope, a.count) < std::tie(b.start, b.slope, b.count);
  });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < block.size(); ++i) {
    ValueRun& last = block[kept];
    const ValueRun& run = block[i];
    const bool equal = last.start == run.start && last.slope == run.slope && last.count == run.count;
    if (equal && run.weight <= std::numeric_limits<std::uint32_t>::max() - last.weight) {
      last.weight += run.weight;
    } else {
      block[++kept] = run;
    }
  }
  block.resize(kept + 1);
  return block.size() <= kBlock / 2;
}

void RunQuantiles::merge(const RunQuantiles& other) {
  if (&other == this) {
    merge(RunQuantiles(other));
    return;
  }
  for (const auto& block : other.blocks_) {
    for (const ValueRun& run : block) add(run);
  }
}

std::size_t RunQuantiles::runs() const {
  std::size_t sum = 0;
  for (const auto& block : blocks_) sum += block.size();
  return sum;
}

double RunQuantiles::mean() const {
  SL_CHECK(count_ > 0, "a mean has values");
  return sum_ / static_cast<double>(count_);
}

double RunQuantiles::part_up_to(double value) const {
  SL_CHECK(count_ > 0, "a part is one of values");
  return static_cast<double>(count_up_to(blocks_, value)) / static_cast<double>(count_);
}

double RunQuantiles::quantile(double q) const {
  SL_CHECK(count_ > 0, "a quantile has values");
  SL_CHECK(q >= 0 && q <= 1, "a quantile is from 0 to 1");
  const auto total = static_cast<double>(count_);
  const auto rank = static_cast<std::uint64_t>(std::clamp(std::ceil(q * total), 1.0, total));
  std::uint64_t low = order_of(least_), high = order_of(most_);  // the value is between, both included
  std::uint64_t below = 0;                                       // values of runs left out that lie below
  Blocks near;                                                   // runs not left out, once they are few
  const Blocks* runs = &blocks_;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const std::uint64_t sum = below + count_up_to(*runs, at_order(middle));
    (sum < rank ? low : high) = sum < rank ? middle + 1 : middle;
    // A run with no value between is settled; what is left becomes less about as fast as the interval.
    const double from = at_order(low), to = at_order(high);
    const auto open = [&](const ValueRun& run) { return first_of(run) <= to && last_of(run) >= from; };
    if (runs == &blocks_ && count_of(*runs, open) > this->runs() / 8) continue;
    std::vector<ValueRun> left;
    for (const auto& block : *runs) {
      for (const ValueRun& run : block) {
        if (open(run)) {
          left.push_back(run);
        } else if (last_of(run) < from) {
          below += std::uint64_t{run.count} * run.weight;
        }
      }
    }
    near.assign(1, std::move(left));
    runs = &near;
  }
  return at_order(low);
}

}  // namespace shardline
