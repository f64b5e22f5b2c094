// When steps end that are on their way through the stages of a pipeline together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "planner/requests/step_times.hpp"

namespace shardline {

/// [R36] Steps pass the stages in the order in which they were decided, one in a stage at a time. A stage
/// begins with one when it is free of the one before and the stage before has handed it over, over a link
/// that carries one at a time. The first stage begins besides not before the engine has decided the step,
/// and not before the tokens of the step that was decided as many before as there are stages are back: who
/// goes on from those may be in it.
class PipelineClock {
 public:
  explicit PipelineClock(const StageTimes& times);
  /// The engine decides one more step.
  void decided(Seconds now) { decided_.push_back(now); }
  /// When the first of the decided steps ends that nobody asked for yet: its tokens are there. `answers`:
  /// there are any. One without a batch is nowhere on its way, and ends with the one before.
  Seconds next_ends(const StepBatch& batch, bool answers);

 private:
  struct Stage {
    Seconds free, link_free;
  };
  const StageTimes& times_;
  std::vector<Stage> stages_;
  std::vector<StageTime> batch_;  // of the step that is looked at
  std::vector<Seconds> tokens_;   // of the last steps, as many as there are stages: a ring
  std::deque<Seconds> decided_;
  std::uint64_t steps_ = 0;
  Seconds last_;  // the end of the last step
};

}  // namespace shardline
