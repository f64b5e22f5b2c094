// Boundaries of a chain counted in granules, and the proof that a partition is the best of its granularity.
#pragma once

#include "planner/studies/partition.hpp"

namespace shardline {

/// Ends of the ranks' parts in granules; the last is all of them.
using GranuleEnds = std::vector<long long>;

class GranularChain {
 public:
  /// Keeps a reference to `cost`. SL_CHECKs a granule for every rank.
  GranularChain(const ChainCost& cost, const PartitionProblem& problem);

  /// The rank whose part is [before, end) granules; counted in priced().
  ChainStep step(long long before, long long end) const;
  std::vector<long long> partition(const GranuleEnds& ends) const;
  /// The largest loop or message.
  Seconds period(const GranuleEnds& ends) const;

  /// A partition whose loops and messages take at most `limit`, with every end as early as in any of them, or
  /// as late. False if there is none; `next` then falls to the least time that was in the way.
  bool pack_early(Seconds limit, GranuleEnds& ends, Seconds& next) const;
  bool pack_late(Seconds limit, GranuleEnds& ends) const;

  const ChainCost& cost() const { return cost_; }
  int ranks() const { return problem_.ranks; }
  long long granules() const { return granules_; }
  std::uint64_t priced() const { return priced_; }

 private:
  long long tokens(long long end) const {
    return end == granules_ ? problem_.context : end * problem_.granularity;
  }
  const ChainCost& cost_;
  PartitionProblem problem_;
  long long granules_;
  mutable std::uint64_t priced_ = 0;
};

struct Proof {
  bool complete = false;  // no partition is faster than `better`, or than what was given if that is empty
  GranuleEnds better;     // faster than what was given
  Seconds bound;          // of every partition
};

/// [K4] Looks at all partitions that may be faster than `known` (which takes `time`), rank by rank from the
/// last, keeping those that no other beats in time, fill and period. Gives up above `budget` steps. `period`
/// is the least of any partition.
Proof prove(const GranularChain& chain, Seconds period, const GranuleEnds& known, Seconds time,
            std::uint64_t budget);

}  // namespace shardline
