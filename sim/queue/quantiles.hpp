// Exact quantiles of values that come in runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardline {

/// The values start, start + slope, ..., `count` of them, each `weight` times: what a closed form for many
/// steps gives. Value i is start + slope * i as rounded.
struct ValueRun {
  double start = 0, slope = 0;
  std::uint32_t count = 1, weight = 1;

  double value(std::uint32_t i) const { return start + slope * i; }
};

/// A multiset of values in runs, and its quantiles, exact to the bit, without any of the values: 24 B per
/// run, however long and heavy [S16], and of many different ones 12 B of a run of one value, 8 B where all of
/// those have weight 1. Equal runs become one where few are different: of at most 8,192
/// different runs never more than 16,384 are kept, however many are added. Merging sets in any order gives
/// the same quantiles.
class RunQuantiles {
 public:
  /// Finite values (checked). A run of no values or of weight 0 adds nothing.
  void add(const ValueRun& run);
  void add(double value) { add(ValueRun{value}); }
  void merge(const RunQuantiles& other);

  /// How many values there are, weights counted.
  std::uint64_t count() const { return count_; }
  /// How many runs are kept.
  std::size_t runs() const;
  /// Sum of weight * value over count(), rounded as runs were added; there is a value (checked).
  double mean() const;
  /// The least value that at least q * count() values do not exceed (nearest rank), 0 <= q <= 1; there is a
  /// value.
  double quantile(double q) const;
  /// The part of the values that are at most `value`: how often a target is met. There is a value.
  double part_up_to(double value) const;

 private:
  // Blocks: growing copies nothing, so that memory is what the runs take.
  static constexpr std::size_t kBlock = std::size_t{1} << 14;
  // Runs of one value are apart in blocks that are full.
  struct Block {
    std::vector<ValueRun> runs;
    std::vector<double> values;
    std::vector<std::uint32_t> weights;  // of the values; empty: all 1

    std::size_t size() const { return runs.size() + values.size(); }
    template <class Visit>
    void each(const Visit& visit) const {
      for (const ValueRun& run : runs) visit(run);
      for (std::size_t i = 0; i < values.size(); ++i)
        visit(ValueRun{values[i], 0, 1, weights.empty() ? 1 : weights[i]});
    }
    /// Makes equal runs one; whether at most half of kBlock is left.
    bool condense();
    /// Takes no more memory than it must; nothing is added afterwards.
    void pack();
    /// How many values are at most x.
    std::uint64_t count_up_to(double x) const;
  };

  std::uint64_t count_up_to(double x) const;

  std::vector<Block> blocks_;
  std::uint64_t count_ = 0;
  double sum_ = 0, least_ = 0, most_ = 0;
};

}  // namespace shardline
