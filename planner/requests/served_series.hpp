// What an engine held over time, in intervals of equal length.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

/// Integrals over time of what is constant in each step, in at most kMost intervals from 0 on: where they end
/// before a step does, each two become one. Their length is a power of two in seconds, so that series of
/// replicas fit each other.
class ServedSeries {
 public:
  static constexpr std::size_t kMost = 512;

  /// Per step of an engine. Requests that have begun and that wait, the part of its KV cache that requests
  /// hold, and whether it computes prompts.
  struct State {
    double running = 0, waiting = 0, held = 0;
    bool prompts = false;
  };
  /// Integrals over an interval, in seconds; prompting and decoding are those of steps with prompts and of
  /// others, of all engines together.
  struct Interval {
    double running = 0, waiting = 0, held = 0, prompting = 0, decoding = 0;
  };

  ServedSeries() = default;
  /// One that was recorded elsewhere, as length() and intervals() told it.
  ServedSeries(Seconds length, std::vector<Interval> intervals)
      : length_(length.value), intervals_(std::move(intervals)) {}

  /// The state from `from` to `to`, not before it (checked).
  void add(Seconds from, Seconds to, const State& state);
  /// Adds the series of another engine.
  void merge(const ServedSeries& other);

  Seconds length() const { return Seconds(length_); }
  const std::vector<Interval>& intervals() const { return intervals_; }

 private:
  void widen();

  double length_ = 1.0 / 1024;
  std::vector<Interval> intervals_;
};

}  // namespace shardline
