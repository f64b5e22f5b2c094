// What a scheduler has decided of a step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/requests/scheduler.hpp"
#include "planner/requests/step_times.hpp"

namespace shardline {

/// A step that is decided and has not ended: what it computes, and whose tokens it computes.
struct DecidedStep {
  struct Part {
    Scheduler::Id id;
    bool token;  // not a part of a prompt before its last
    bool operator==(const Part&) const = default;
  };
  StepBatch batch;
  std::vector<Part> parts;

  /// One more request decodes, with so many tokens cached.
  void add_decode(std::uint32_t cached) {
    ++batch.decodes;
    batch.cached += cached;
    batch.longest = std::max(batch.longest, cached);
  }
  /// The step so many steps of the same requests later.
  void advance(std::uint32_t steps) {
    batch.cached += std::uint64_t{steps} * batch.decodes;
    batch.longest += steps;
  }
};

}  // namespace shardline
