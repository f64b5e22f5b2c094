// Which requests each step of vLLM computes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/requests/request_slots.hpp"
#include "planner/requests/steady_requests.hpp"
#include "planner/requests/step_times.hpp"
#include "planner/requests/vllm_connected.hpp"

namespace shardline {

/// The scheduler of vLLM V1 under its policy fcfs [R4], a step at a time: first the requests that run, in the
/// order in which they began to, then those that wait, in the order in which they came. Where blocks are out
/// the last one that runs loses its own and waits again, first in line, to be computed anew.
///
/// With async scheduling two steps are decided at a time: a request whose last token is in a step that has
/// not ended is in no further one, but keeps its place and its blocks; whoever comes waits for a step more.
///
/// Of those that run, the first ones that only decode are looked at together: a step costs nothing for each
/// of them as long as all have room. Where they have not, and behind the first prompt, each is looked at.
///
/// Rules: vllm-project/vllm, vllm/v1/core/sched/scheduler.py, `schedule`, `_preempt_request` and
/// `_update_after_schedule` at 00024d314514; vllm/v1/core/kv_cache_manager.py, `get_computed_blocks`,
/// `allocate_slots` and `free` at 003df2961dd8, whose caller passes scheduler_reserve_full_isl and
/// has_scheduled_reqs=bool(self.running).
/// Not here: drafts (VllmDraftScheduler), layers with windows or states, priorities, encoders, other
/// connectors.
class VllmScheduler : public VllmConnected {
 public:
  /// `computed` and `generated` are up to the step that was decided last, or `since`; `share` has fewer
  /// blocks than it holds where it is steady.
  struct Request : VllmRequest {
    /// alone: runs, and is looked at in every step. steady: decodes in every step. ending: its last token is
    /// decided, and it was steady.
    enum class State : std::uint8_t { waiting, alone, steady, ending };
    State state = State::waiting;
    std::uint64_t since = 0;  // steps that were decided before it was steady
    std::uint64_t last = 0;   // the step of its last token, from 1 on
    std::uint64_t place = 0;  // among those that run
    std::uint32_t tokens() const { return prompt + generated; }
  };

  /// Throws as require_start().
  explicit VllmScheduler(const VllmKnobs& knobs, PairRole role = PairRole::none);

  /// A request that came. Refused, as the engine does, where prompt and one token exceed max_model_len; its
  /// answer is cut there. Its text are the ids of blocks of `text_block` tokens, a multiple of block_size
  /// (checked); without them it shares nothing.
  std::optional<Id> add(const TraceRequest& request, std::uint32_t text_block = kTraceBlock) override;
  /// One that is done (checked) leaves its id to another.
  void forget(Id id) override;

  std::size_t decided() const override { return count_; }
  /// The first step that is decided and has not ended. There is one (checked).
  const StepBatch& front() const override;

  /// How many steps, from front() on, are sure to be alike if nobody comes: the same requests decode,
  /// nobody's last token is in one before the last of them, and blocks suffice. Those not yet decided are
  /// among them. 1 where prompts are in it, or fewer than depth() steps are decided. [R19] Of dummy batches
  /// any number, where nothing was told that may end them.
  std::uint64_t steps_alike() const override;
  /// front() and steps like it have ended, at most steps_alike(): every request that is computed up to its
  /// end has one more token for each.
  Ended finish_steps(std::uint64_t steps = 1) override;

  const Request& request(Id id) const override { return requests_[id]; }
  std::size_t running() const override { return running_; }

 private:
  struct Part {
    Id id;
    bool token;  // not a part of a prompt before its last
    bool last;   // of its answer
  };
  // That is decided and has not ended.
  struct Step {
    StepBatch batch;
    std::vector<Part> parts;  // named; of requests that decode, those that are not among the others
    std::uint32_t others = 0;
    std::vector<Id> before;
    Told told;
  };

  std::uint32_t blocks_of(std::uint64_t tokens) const { return knobs_.blocks_of(tokens); }
  // When a step is decided at most one has not ended.
  std::uint32_t in_flight(const Request& r) const { return r.last > finished_ ? 1 : 0; }
  Step& step_at(std::size_t i) { return steps_[(first_ + i) % steps_.size()]; }
  const Step& step_at(std::size_t i) const { return steps_[(first_ + i) % steps_.size()]; }
  bool grow(Request& r, std::uint32_t tokens);
  void fill(Request& r);
  Step& add_step();
  void decode_steady(Step& step);
  void end_steady(Step& step, std::uint64_t decided);
  void settle(Request& r, std::uint64_t decided) const;
  void part_steady(Step& step);
  void join_steady();
  bool schedule_alone(Step& step, std::uint32_t& budget);
  bool admit(Step& step, Id id, std::uint32_t& budget);
  void run(Step& step, Id id, std::uint32_t tokens, std::uint32_t& budget);
  void preempt(Id id);
  void count(Step& step, Id id, std::uint32_t tokens);
  void more_alike(std::uint64_t steps_more);
  void leave(Id id);
  VllmRequest& held(Id id) override { return requests_[id]; }
  void drop(Id id) override;
  bool decide(bool dummy) override;

  RequestSlots<Request> requests_;
  SteadyRequests steady_;      // those that run are these,
  std::vector<Id> ending_;     // these, among them,
  std::vector<Id> alone_;      // and behind them these, in the order in which they began
  std::size_t running_ = 0;    // all of them
  std::vector<Id> ended_;      // named
  std::vector<Id> some_;       // for a moment
  std::vector<Id> unsettled_;  // `before` of the next step
  std::array<Step, 2> steps_;  // decided, not ended; a ring
  std::size_t first_ = 0, count_ = 0;
  std::uint64_t decided_ = 0, finished_ = 0;  // steps, ever
  std::uint64_t places_ = 0;
};

}  // namespace shardline
