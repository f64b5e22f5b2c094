// Which requests each step of vLLM computes where a plan has pipeline stages.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/requests/decided_step.hpp"
#include "planner/requests/vllm_listed.hpp"

namespace shardline {

// `generated` is of tokens that are known, `computed` of all that is decided.
struct VllmPipelineRequest : VllmRequest {
  bool running = false;
  std::uint32_t under_way = 0;  // tokens of steps that have not ended
  std::uint64_t eligible = 0;   // the first step, from 1 on, that may have it
  std::uint32_t known() const { return prompt + generated; }
  void lose() { computed = 0; }
};

/// [R36] VllmScheduler's rules [R4] with as many steps decided and not ended as there are stages, and one
/// more with async scheduling. Without it whoever has a token under way has nothing to compute. With it a
/// request whose token is under way is in no step before the one as many later as there are stages, by when
/// its token is back where it is embedded; parts of a prompt follow one another in any case. A step that is
/// left with nobody takes its turn among those that are decided, as long as any of these has somebody: so
/// whoever comes meanwhile waits for the end of the first.
///
/// Each step is played, and each request looked at in it.
///
/// Rules: vllm-project/vllm, vllm/v1/engine/core.py, `step_with_batch_queue` at 00080ee13c7a;
/// vllm/config/vllm.py, `max_concurrent_batches` at 000fc94b754f; vllm/v1/core/sched/async_scheduler.py,
/// `_update_after_schedule` at 014b23503270 (next_decode_eligible_step).
/// Not here: drafts, pairs of pools.
class VllmPipelineScheduler : public VllmListed<VllmPipelineRequest> {
 public:
  /// Of several stages (checked). Throws as require_start().
  explicit VllmPipelineScheduler(const VllmKnobs& knobs);

  std::size_t depth() const override { return steps_.most(); }
  std::size_t decided() const override { return steps_.size(); }
  const StepBatch& front() const override;
  StageOrder stage_order() const override { return {knobs_.pipeline_parallel_size}; }
  const StepBatch& back() const override { return steps_.back().batch; }
  bool back_answers() const override;
  std::uint64_t steps_alike() const override { return 1; }
  Ended finish_steps(std::uint64_t steps = 1) override;

 private:
  using Request = VllmPipelineRequest;
  using Part = DecidedStep::Part;

  const DecidedStep& front_step() const;
  std::uint32_t lacks(const Request& r) const;
  void schedule_running(DecidedStep& step, std::uint32_t& budget);
  bool admit(DecidedStep& step, Id id, std::uint32_t& budget);
  void count(DecidedStep& step, Id id, std::uint32_t tokens);
  bool decide(bool dummy) override;

  DecidedRing<std::vector<DecidedStep>> steps_;  // decided, not ended
  std::size_t busy_ = 0;                         // of these with somebody in them
  std::uint64_t schedule_ = 0;                   // steps, ever, those with nobody too
};

}  // namespace shardline
