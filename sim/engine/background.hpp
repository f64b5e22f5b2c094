// Traffic of others on a machine's resources: bursts that come and go at random, the same for every run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/machine.hpp"
#include "sim/engine/timeline.hpp"

namespace shardline {

/// Bursts with gaps between them; both lengths are exponential [S10].
struct BurstSource {
  std::vector<ResourceId> resources;  // each gets `flows` flows of its own while a burst lasts
  Seconds mean_burst, mean_gap;       // both positive
  int flows = 1;                      // at least one
};

/// Sources of a machine's background traffic. The stream of a source is its index.
class Background {
 public:
  explicit Background(std::uint64_t seed = 0) : seed_(seed) {}

  /// Checked: positive finite means, a flow at least.
  void add(BurstSource source);

  bool empty() const { return sources_.empty(); }
  std::uint64_t seed() const { return seed_; }
  std::span<const BurstSource> sources() const { return sources_; }
  /// Bursts of a source that begin before `end`; the last may end later. What the engine plays.
  std::vector<Span> bursts(std::size_t source, Seconds end) const;

 private:
  std::uint64_t seed_;
  std::vector<BurstSource> sources_;
};

/// One source in time: whether a burst is on, and until when that holds.
class BurstClock {
 public:
  /// At time zero, in the long-run state: a burst with probability mean_burst / (mean_burst + mean_gap).
  BurstClock(const Background& background, std::size_t source);

  bool on() const { return on_; }
  double until() const { return until_; }  // in s
  void advance();

 private:
  double length();

  double mean_[2];  // of a gap, of a burst
  std::uint64_t seed_, stream_, counter_ = 0;
  bool on_ = false;
  double until_ = 0;
};

}  // namespace shardline
