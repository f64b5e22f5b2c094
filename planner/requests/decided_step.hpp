// What a scheduler has decided of a step.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/requests/scheduler.hpp"
#include "planner/requests/step_times.hpp"
#include "sim/base/error.hpp"

namespace shardline {

/// A step that is decided and has not ended: what it computes, and whose tokens it computes.
struct DecidedStep {
  struct Part {
    Scheduler::Id id;
    bool token;  // not a part of a prompt before its last
    bool operator==(const Part&) const = default;
  };
  StepBatch batch;
  std::vector<Part> parts;  // named
  // Who decodes beside them, and who did up to the step before (Scheduler::Ended).
  std::uint32_t others = 0;
  std::vector<Scheduler::Id> before;

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

/// At most so many of them as the ring has places, the last ones decided while the first is under way; their
/// lists keep their memory.
template <class Ring>
class DecidedRing {
 public:
  explicit DecidedRing(Ring steps = {}) : steps_(std::move(steps)) {}

  std::size_t most() const { return steps_.size(); }
  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  DecidedStep& front() { return steps_[first_]; }
  const DecidedStep& front() const { return steps_[first_]; }
  DecidedStep& back() { return steps_[last()]; }
  const DecidedStep& back() const { return steps_[last()]; }
  /// One more, of nobody.
  DecidedStep& add() {
    SL_CHECK(count_ < steps_.size(), "few enough steps are decided");
    ++count_;
    DecidedStep& step = back();
    step.batch.decodes = step.batch.longest = 0;
    step.batch.cached = 0;
    step.batch.prompts.clear();
    step.parts.clear();
    step.others = 0;
    step.before.clear();
    return step;
  }
  void drop_back() { --count_; }
  /// The first has ended; it stays as it is until the next one is added.
  void pop_front() {
    if (++first_ == steps_.size()) first_ = 0;
    --count_;
  }

 private:
  std::size_t last() const {
    const std::size_t at = first_ + count_ - 1;
    return at < steps_.size() ? at : at - steps_.size();
  }
  Ring steps_;
  std::size_t first_ = 0, count_ = 0;
};
using DecidedSteps = DecidedRing<std::array<DecidedStep, 2>>;

}  // namespace shardline
