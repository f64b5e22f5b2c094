// Which requests each step of TensorRT-LLM computes where a plan has pipeline stages [R38].
#include <algorithm>
#include <iterator>

#include "planner/requests/trtllm_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

void TrtllmScheduler::require_stages_played() const {
  if (!staged()) return;
  // _executor_loop_pp does nothing with paused_requests: NVIDIA/TensorRT-LLM#18115.
  if (evicts())
    throw UserError({Diagnostic{{},
                                "capacity_scheduler_policy=MAX_UTILIZATION: TensorRT-LLM pauses nobody where "
                                "there are stages, so that "
                                "blocks that it counts on are not there",
                                {"GUARANTEED_NO_EVICT, the engine's default, or STATIC_BATCH"}}});
  // PyExecutor.__init__: "Drafting is not supported for selected executor loop", of drafters of their own.
  if (drafts()) throw UserError("drafts in stages are not played yet under TensorRT-LLM");
  if (role_ != PairRole::none) throw UserError("stages in pairs of pools are not played yet");
  if (knobs_.state_slots > 0) throw UserError("states of requests in stages are not played yet");
}

// py_executor.py, _executor_loop_pp: rank 0 launches a batch, waits until its own part of the one before is
// done and sent on, and takes the sample states that have come back. It asks for those of a batch from the
// iteration on that is pp_size - 1 later (executed_microbatch_id).
StageOrder TrtllmScheduler::stage_order() const {
  SL_CHECK(staged(), "only engines with stages pass steps on");
  StageOrder out;
  out.looks_behind = knobs_.pipeline_parallel_size - 1;
  return out;
}

// Those that decode and have no token under way (inflight_req_ids). A prompt has one with its last part.
void TrtllmScheduler::fit_who_is_back() {
  std::copy_if(decoding_.begin(), decoding_.end(), std::back_inserter(fitting_),
               [this](Id id) { return !under_way(requests_[id]); });
}

}  // namespace shardline
