// Which requests each step of vLLM computes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "planner/requests/request_slots.hpp"
#include "planner/requests/run_pool.hpp"
#include "planner/requests/scheduler.hpp"
#include "planner/requests/steady_requests.hpp"
#include "planner/requests/step_times.hpp"
#include "planner/serving/trace.hpp"

namespace shardline {

/// [R15] Name of an option of a server that decodes for another.
inline constexpr const char* kLoadFailurePolicy = "kv_load_failure_policy";

/// Options of `vllm serve`, under its names but for the words in brackets.
struct VllmKnobs {
  bool async_scheduling = true;  // a step is decided when the one before begins, not when it ends
  std::uint32_t max_num_batched_tokens = 8192;     // 2048 below 70 GiB of HBM and on A100
  std::uint32_t max_num_seqs = 1024;               // 256 there
  std::uint32_t long_prefill_token_threshold = 0;  // 0: none
  bool enable_chunked_prefill = true;
  bool scheduler_reserve_full_isl = true;  // the whole prompt must fit before its first part is computed
  double watermark = 0;                    // part of the blocks that a new request leaves free
  bool enable_prefix_caching = true;
  bool recompute_failed_loads = false;  // [kv_load_failure_policy recompute, of a server that decodes: R15]
  std::uint32_t block_size = 16;        // tokens
  std::uint32_t max_model_len = 8192;   // tokens of a prompt and its answer
  std::uint32_t num_gpu_blocks = 8192;  // that requests can have [without the null block]

  /// That hold so many tokens of a request.
  std::uint32_t blocks_of(std::uint64_t tokens) const {
    return static_cast<std::uint32_t>((tokens + block_size - 1) / block_size);
  }
  /// Of a request that lacks so many tokens, what a part of its prompt may have.
  std::uint32_t part_of(std::uint32_t tokens) const {
    const std::uint32_t most = long_prefill_token_threshold;
    return most > 0 ? std::min(tokens, most) : tokens;
  }
  /// Sets the prompt and the answer of a request that came, which is cut at max_model_len, and its text in
  /// the pool. False, and nothing is set, where the engine refuses it: prompt and one token are longer. Its
  /// text are the ids of blocks of `text_block` tokens, a multiple of block_size (checked).
  bool accept(const TraceRequest& request, std::uint32_t text_block, RunPool& pool, Scheduler::Request& of,
              RunPool::Share& share) const;
};

/// Throws UserError where the engine would not start: a request of max_model_len must fit in all blocks and,
/// without chunks, in the tokens of a step (vllm/config/scheduler.py,
/// `SchedulerConfig.verify_max_model_len` at v0.24.0), for nobody would ever begin it.
void require_start(const VllmKnobs& knobs);

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
/// In pairs: the same file at b4622cf924bc and .../kv_connector/v1/nixl_connector.py at 0f120751344c.
/// Not here: drafts (VllmDraftScheduler), layers with windows or states, priorities, encoders, other
/// connectors.
class VllmScheduler : public Scheduler {
 public:
  /// [R19] Steps after which engines of a replica ask each other whether anybody has requests left
  /// (v1/engine/core.py, DPEngineCoreProc._has_global_unfinished_reqs).
  static constexpr std::uint64_t kWave = 32;
  struct Request : Scheduler::Request {
    /// alone: runs, and is looked at in every step. steady: decodes in every step. ending: its last token is
    /// decided, and it was steady. reading: waits with its blocks, among those that wait.
    enum class State : std::uint8_t { waiting, alone, steady, ending, reading };
    State state = State::waiting;
    bool began = false;
    bool remote = false;                        // its prompt is still to be read
    bool read = false;                          // and was
    bool fails = false;                         // or cannot be
    std::uint32_t computed = 0, generated = 0;  // tokens, up to the step that was decided last, or `since`
    std::uint64_t since = 0;                    // steps that were decided before it was steady
    std::uint64_t last = 0;                     // the step of its last token, from 1 on
    std::uint64_t place = 0;                    // among those that run
    RunPool::Share share;                       // its blocks, or more where it is steady
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

  /// How many steps may be decided at once, and how many are and have not ended.
  std::size_t depth() const override { return knobs_.async_scheduling ? 2 : 1; }
  std::size_t decided() const override { return count_; }
  /// Decides the next step, fewer than depth() being decided (checked); false if there is nothing to do.
  bool schedule() override;
  void schedule_or_dummy() override;
  void look_at_once() override { notice(told_, true); }
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

  void take_reads(std::vector<Read>& out) override;
  void has_read(Id id) override { told_.push_back(id); }
  void was_read(std::uint64_t number, bool /*at_once*/) override { told_.push_back(number); }
  bool read_fails(Id id) override {
    requests_[id].fails = true;
    told_.push_back(id);
    return knobs_.recompute_failed_loads;
  }
  void take_failed(std::vector<Failed>& out) override;
  CacheWay cache_way() const override { return role_ == PairRole::none ? CacheWay::none : CacheWay::read; }
  bool waits_for_transfers() const override { return reading_ > 0 || !kept_blocks_.empty(); }

  const Request& request(Id id) const override { return requests_[id]; }
  std::size_t running() const override { return running_; }
  std::size_t waiting() const override { return waiting_.size(); }
  std::uint64_t preemptions() const override { return preemptions_; }
  double kv_held() const override {
    return 1 - static_cast<double>(pool_.available()) / static_cast<double>(pool_.size());
  }
  const RunPool& pool() const { return pool_; }

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
    std::vector<std::uint64_t> told;  // that hand-offs ended: what its worker says at its end
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
  /// Where a step has nothing in it: false, or it stays as a dummy batch.
  bool decide(bool dummy = false);
  void admit_waiting(Step& step, std::uint32_t& budget);
  bool admit(Step& step, Id id, std::uint32_t& budget);
  bool read(Id id, const RunPool::Found& found);
  bool go_on_after_read(Step& step, Id id, std::uint32_t& budget);
  bool go_on_alone(Step& step, Id id, std::uint32_t& budget);
  std::uint32_t watermark() const;
  void run(Step& step, Id id, std::uint32_t tokens, std::uint32_t& budget);
  void notice(std::vector<std::uint64_t>& told, bool at_once);
  void fail(Id id, bool at_once);
  void preempt(Id id);
  void count(Step& step, Id id, std::uint32_t tokens);
  void more_alike(std::uint64_t steps_more);
  void leave(Id id);
  void keep(Request& r);

  VllmKnobs knobs_;
  PairRole role_;
  RunPool pool_;
  RequestSlots<Request> requests_;
  SteadyRequests steady_;      // those that run are these,
  std::vector<Id> ending_;     // these, among them,
  std::vector<Id> alone_;      // and behind them these, in the order in which they began
  std::size_t running_ = 0;    // all of them
  std::vector<Id> ended_;      // named
  std::vector<Id> some_;       // for a moment
  std::vector<Id> unsettled_;  // `before` of the next step
  std::deque<Id> waiting_;
  std::array<Step, 2> steps_;  // decided, not ended; a ring
  std::size_t first_ = 0, count_ = 0;
  std::uint64_t decided_ = 0, finished_ = 0;  // steps, ever
  std::uint64_t preemptions_ = 0, added_ = 0, places_ = 0;
  // Of pairs: reads that nobody was told of, requests that read, what ended and no step in progress says yet
  // (ids of those that read, numbers of those that were read), and blocks of those that are done, by number.
  std::vector<Read> reads_;
  std::vector<Failed> failed_;
  std::size_t reading_ = 0;
  std::vector<std::uint64_t> told_;
  std::unordered_map<std::uint64_t, RunPool::Share> kept_blocks_;
  bool kept_ = true;  // nobody lost its blocks in the step decided last
};

}  // namespace shardline
