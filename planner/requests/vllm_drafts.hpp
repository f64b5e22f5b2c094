// Which requests each step of vLLM computes where drafts are verified.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "planner/requests/draft_law.hpp"
#include "planner/requests/vllm_listed.hpp"

namespace shardline {

// `generated` is of tokens that are known, `computed` if all that is decided is accepted.
struct VllmDraftRequest : VllmRequest {
  bool running = false;
  std::uint64_t stream = 0;       // TraceRequest::number
  std::uint32_t verified = 0;     // steps with drafts of it that have ended
  std::uint32_t promised = 0;     // tokens of steps that have not ended, all drafts accepted
  std::uint32_t next_drafts = 0;  // that its next step verifies
  std::uint32_t part = 0;         // of the step decided last that it was in
  std::uint32_t known() const { return prompt + generated; }
  void lose() { computed = next_drafts = 0; }
};

/// [R16] VllmScheduler's rules [R4] with k drafts of each request that decodes, as of EAGLE and modules of
/// multi-token prediction: 1 + k rows of it count to the budget, its blocks have room for k tokens more, and
/// what a step yields of it is drawn when the step ends. Who loses drafts keeps the blocks that they had.
/// What is found of a text is a block less: the module needs the hidden states of the last one.
///
/// With async scheduling a step is decided as if all drafts of the one before were accepted: rows, blocks and
/// the end of the context count so, and whoever is then found to be answered already is a row in vain. Only
/// who lacks a single token is in no further step.
///
/// Each step is played, and each request looked at in it: none is known to be like the one before, but dummy
/// batches are.
///
/// In pairs of pools, whose servers both have the module: blocks for drafts are taken with the first step
/// after the read, which has none yet, and a request that then finds no room for them waits with its blocks.
///
/// Rules: vllm-project/vllm, vllm/v1/core/sched/scheduler.py, `schedule` and `update_from_output` at
/// 00024d314514 (num_tokens_with_spec, num_output_placeholders, num_lookahead_tokens,
/// effective_lookahead_tokens); sched/async_scheduler.py at 7ab8a61c8012; kv_cache_manager.py,
/// `allocate_slots` at 003df2961dd8; single_type_kv_cache_manager.py, `find_longest_cache_hit` at
/// 002f34915134 (use_eagle); config/speculative.py, `use_eagle` (of modules too).
class VllmDraftScheduler : public VllmListed<VllmDraftRequest> {
 public:
  /// With at least one draft (checked). Throws as VllmScheduler does.
  VllmDraftScheduler(const VllmKnobs& knobs, DraftLaw law) : VllmDraftScheduler(knobs, PairRole::none, law) {}
  VllmDraftScheduler(const VllmKnobs& knobs, PairRole role, DraftLaw law);

  std::optional<Id> add(const TraceRequest& request, std::uint32_t text_block = kTraceBlock) override;

  std::size_t decided() const override { return steps_.size(); }
  const StepBatch& front() const override;
  std::uint64_t steps_alike() const override;
  Ended finish_steps(std::uint64_t steps = 1) override;

 private:
  using Request = VllmDraftRequest;
  // Of a step that is decided and has not ended.
  struct Part {
    Id id;
    bool token;            // not a part of a prompt before its last
    bool decodes;          // else a part of a prompt
    bool gone;             // answered already: a row in vain
    std::uint32_t drafts;  // verified
    std::uint32_t cached;  // of one that decodes, as far as it is known now
  };
  struct Step {
    StepBatch batch;
    std::vector<Part> parts;
    Told told;
  };

  bool surely_ends(const Request& r) const;
  void schedule_running(Step& step, std::uint32_t& budget);
  bool admit(Step& step, Id id, std::uint32_t& budget);
  void run(Step& step, Id id, std::uint32_t tokens, std::uint32_t& budget);
  void count(Step& step, Id id, std::uint32_t tokens);
  void end(const Part& part);
  static void recount(Step& step);
  bool decide(bool dummy) override;

  DraftLaw law_;
  std::deque<Step> steps_;  // decided, not ended
};

}  // namespace shardline
