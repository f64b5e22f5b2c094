// Which requests each step of TensorRT-LLM computes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/requests/awaited_ends.hpp"
#include "planner/requests/decided_step.hpp"
#include "planner/requests/draft_law.hpp"
#include "planner/requests/hash_marks.hpp"
#include "planner/requests/request_slots.hpp"
#include "planner/requests/scheduler.hpp"
#include "planner/requests/steady_requests.hpp"
#include "planner/requests/trtllm_pool.hpp"
#include "planner/serving/trace.hpp"

namespace shardline {

/// capacity_scheduler_policy. guaranteed_no_evict: a request begins when all of its answer fits beside those
/// of all that began. max_utilization: when its prompt fits; who began last is paused where blocks are out.
/// static_batch: as the first, and none begins while any decodes.
enum class TrtllmPolicy : std::uint8_t { guaranteed_no_evict, max_utilization, static_batch };
/// context_chunking_policy.
enum class TrtllmChunking : std::uint8_t { first_come_first_served, equal_progress };

/// [R21] Name of an option of a server that decodes for another.
inline constexpr const char* kBufferTokens = "max_tokens_in_buffer";

/// Options of trtllm-serve, under the names of its YAML but for the words in brackets.
struct TrtllmKnobs {
  TrtllmPolicy capacity_scheduler_policy = TrtllmPolicy::guaranteed_no_evict;
  TrtllmChunking context_chunking_policy = TrtllmChunking::first_come_first_served;
  bool disable_overlap_scheduler = false;  // a step is decided when the one before ends
  bool enable_chunked_prefill = false;     // true in the launch files of `shardline sweep`
  bool enable_block_reuse = true;          // text that is cached is found
  std::uint32_t max_batch_size = 2048;
  std::uint32_t max_num_tokens = 8192;         // of a step
  std::uint32_t batch_wait_timeout_iters = 0;  // steps that prompts wait for more of them; 0: none
  double batch_wait_max_tokens_ratio = 0;      // of max_num_tokens, from which they do not
  std::uint32_t tokens_per_block = 32;
  std::uint32_t max_seq_len = 8192;  // tokens of a prompt and its answer
  std::uint32_t blocks = 4096;       // of the KV cache [max_tokens / tokens_per_block]
  // Of a server that decodes for another [R21]: tokens of prompts that are read at once, a longer one alone.
  std::uint32_t max_tokens_in_buffer = 0;  // 0: any number
  bool reads_found = false;  // what is found here is read, too [the other server's reuse is off]
  // [R23] Of a model whose layers keep states: one of each request that has begun, and one that pads CUDA
  // graphs, as the engine has max_batch_size + 1 of them.
  std::uint32_t state_slots = 0;             // 0: there are no states
  std::uint32_t pipeline_parallel_size = 1;  // stages [the plan's: R38]
};

/// The scheduler of TensorRT-LLM's PyTorch backend [R9]: which of the active requests fit the cache
/// (capacity), then which of those fit a step (micro batch): those that decode in the order in which they
/// came, then prompts. A prompt has all of its blocks from its first part on. What is computed is found by
/// others when the step with the prompt's last part has ended, or when the request leaves; a prompt that
/// begins with a block that another one is about to fill is held until it can be found.
///
/// With the overlap scheduler two steps are decided at a time; a request whose last token is decided is in no
/// further one, but keeps its blocks and its place.
///
/// Those that decode are looked at together, so that a step costs nothing for each of them, where all of them
/// are in every step: none is ever paused, a step has tokens for all that are active, and nothing is drawn.
/// Else each is looked at.
///
/// With drafts [R20] a step verifies 1 + k tokens of each that decodes, or none where the budget has no room
/// for all, and its blocks are for all of them; those that rejected drafts had are free when the step has
/// ended. What it yields is drawn then: with the overlap scheduler the step decided meanwhile may have rows
/// of it in vain. Each step is played.
///
/// Rules: NVIDIA/TensorRT-LLM: tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py,
/// `PyMicroBatchScheduler`, `GuaranteedNoEvictPolicy` and `MaxUtilizationPolicy` at 002f3cc3d055, which
/// mirror cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp (at 02a10fed0dbf) and microBatchScheduler.cpp
/// (at 0a949d3128bf); kvCacheManager.cpp, `getNeededBlocksOneStep`, `getRemainingBlocksToCompletion` and
/// `addSequence` at b35ac1b64368, with reuse credited as since pull requests 11637 and 15066: of the cache
/// only blocks that others hold, of a step's tokens all that is found; py_executor.py,
/// `_executor_loop_overlap`,
/// `_schedule` and `_waiting_requests`. Of drafts: README.md [R20].
/// In a pair of pools [R21] one that prefills keeps the blocks of what it has computed until they were read,
/// which it learns at ends of steps. One that decodes takes blocks of the prompt for a request that comes,
/// reads into them, and the token that came with it is the client's when the first row of it is decided.
///
/// [R38] In stages a step is decided whenever the first of them has taken the one before, of max_batch_size
/// requests at most, and whoever has a token under way is in none; as many requests are active as all stages
/// together have places for. Each step is played, and each request looked at in it.
///
/// Not here: partial reuse of a block, beams, drafts in trees or of other servers, attention DP's balance,
/// several window sizes, LoRA. A token under way when a request is paused counts.
class TrtllmScheduler : public Scheduler {
 public:
  /// What of a text less its last token is in the cache, and when that was looked up.
  struct Found {
    TrtllmPool::Found now;
    std::uint64_t decision = 0;
  };
  struct Request : Scheduler::Request {
    // asks: for blocks, to read its prompt; comes: it is being read; arrived: it was, and has no row yet.
    enum class State : std::uint8_t { asks, comes, arrived, context, generation, to_complete };
    State state = State::context;
    std::uint32_t generated = 0;   // tokens of the answer, up to the step decided last, or `since`; with
                                   // drafts those that are known
    std::uint32_t in_flight = 0;   // with drafts: steps under way
    std::uint64_t last = 0;        // without: the step of its last token that is decided, from 1 on
    std::uint64_t since = 0;       // steps that were decided before it was counted together with others
    std::uint32_t all_blocks = 0;  // that its prompt and answer fill
    std::uint32_t context = 0;     // tokens of its prompt, and what it had when it was paused
    std::uint32_t cached = 0;      // tokens with KV, up to the step decided last, or `since`;
                                   // with drafts those that are known to be accepted
    std::uint32_t kv = 0;          // with drafts: tokens that it has blocks for
    std::uint32_t drafts = 0;      // that it has: k from the end of its first prompt on
    std::uint32_t verified = 0;    // steps with drafts of it that have ended
    std::uint64_t stream = 0;      // TraceRequest::number
    bool began = false, stored = false;  // ever; its context can be found
    TrtllmPool::Share share;  // it has fewer blocks than it holds where it is counted together with others
    Found look;               // the last one
    std::uint32_t bound = 0, least = 0;  // of those whose number this is, blocks that it lacks at least
    bool first_chunk() const { return state == State::context && share.blocks == 0; }
  };

  /// Throws UserError where max_seq_len does not fit all blocks, a request's drafts do not fit a step, or
  /// options beside states are not played.
  explicit TrtllmScheduler(const TrtllmKnobs& knobs, PairRole role = PairRole::none, DraftLaw law = {});
  TrtllmScheduler(const TrtllmKnobs& knobs, DraftLaw law)
      : TrtllmScheduler(knobs, PairRole::none, std::move(law)) {}

  /// Refused, as the engine does, where the prompt and a token exceed max_seq_len or, without chunks, the
  /// prompt exceeds max_num_tokens. Its answer is cut to what max_seq_len leaves.
  std::optional<Id> add(const TraceRequest& request, std::uint32_t text_block = kTraceBlock) override;
  bool takes(const TraceRequest& request) const override;
  void forget(Id id) override;
  std::size_t depth() const override { return steps_.most(); }
  std::size_t decided() const override { return steps_.size(); }
  /// Throws UserError where the engine ends with an error: without chunks, a request that was paused may have
  /// become longer than a step; EngineStops where blocks that capacity counted are not there.
  bool schedule() override;
  bool decides_again() const override {
    return left_early_ || (role_ != PairRole::none && !pausing_.empty());
  }
  const StepBatch& front() const override;
  StageOrder stage_order() const override;
  const StepBatch& back() const override { return steps_.back().batch; }
  std::uint64_t steps_alike() const override;
  Ended finish_steps(std::uint64_t steps = 1) override;
  const Request& request(Id id) const override { return requests_[id]; }
  std::size_t running() const override { return started_; }
  std::size_t waiting() const override { return here_ - started_; }
  std::uint64_t preemptions() const override { return paused_; }
  double kv_held() const override {
    return 1 - static_cast<double>(pool_.available()) / static_cast<double>(pool_.size());
  }
  const TrtllmPool& pool() const { return pool_; }
  /// Decisions in which nobody that waits was looked up for one behind it, as a bound says that it has no
  /// room.
  std::uint64_t barred() const { return barred_; }

  void take_reads(std::vector<Read>& out) override;
  void has_read(Id id) override;
  void was_read(std::uint64_t number, bool at_once) override;
  CacheWay cache_way() const override { return role_ == PairRole::none ? CacheWay::none : CacheWay::in_turn; }
  void take_firsts(std::vector<Id>& out) override;
  bool waits_for_transfers() const override { return coming_.size() + kept_.size() > 0; }

 private:
  struct Chunk {
    Id id;
    std::uint32_t left, reusable, size;  // tokens
  };

  // What prompts that begin or go on may have: blocks, at least and as counted for all but uncounted_; slots.
  struct Room {
    std::int64_t blocks, counted, slots;
  };

  // Of a walk along those that wait, in which the cache had no room for somebody: how many blocks they lack
  // at least, as long as it stands.
  struct Bound {
    std::uint32_t number = 0;  // of walks
    bool stands = false;
    std::int64_t blocks = 0;    // of those of it that wait
    std::uint64_t last = 0;     // of it, by number
    std::uint64_t decided = 0;  // steps, when the walk began
    std::int64_t room = 0;      // blocks, then
  };

  std::uint32_t blocks_of(std::uint64_t tokens) const;
  void take_blocks(Request& r, std::uint64_t tokens);
  [[noreturn]] void lack_blocks() const;
  const TrtllmPool::Found& found(Id id);
  std::uint32_t held(Id id);
  bool better_skipped(Id id);
  std::int64_t to_completion(Id id);
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};
  std::uint64_t first_behind(std::uint64_t number, std::uint32_t left);
  bool fits(Id id, Room& room);
  void count_found(Room& room);
  void fit_prompts(std::int64_t available);

  // Prompts that wait in front of one that has tokens of a step, trtllm_bound.cpp.
  bool bars(std::uint64_t first, const Room& room, std::int64_t passed);
  void begin_bound(const Room& room);
  void add_to_bound(Id id, std::uint64_t first);
  void end_bound(std::deque<Id>::const_iterator from, std::uint64_t first);
  void leave_bound(Id id);
  bool is_in_bound(const Request& r) const { return bound_.stands && r.bound == bound_.number; }
  std::int64_t next_blocks(Id id);
  void require_states_played() const;
  std::int64_t free_slots() const;
  void fit_no_evict();
  void fit_max_utilization();
  void choose();
  void cut_in_order(std::uint32_t capacity);
  void cut_equally(std::uint32_t capacity);
  static std::uint32_t cost(std::uint32_t size, std::uint32_t reusable, std::uint32_t left);
  bool held_back();
  void pause(Id id);
  void activate(Id id);
  // Into a list of those that came before it and behind it.
  template <class List>
  void put(List& list, Id id) {
    auto at = list.end();
    while (at != list.begin() && requests_[*std::prev(at)].number > requests_[id].number) --at;
    list.insert(at, id);
  }
  template <class List>
  static void take_out(List& list, Id id) {
    const auto at = std::find(list.begin(), list.end(), id);
    SL_CHECK(at != list.end(), "who is taken out is there");
    list.erase(at);
  }
  std::size_t active() const { return here_ - queue_.size(); }
  std::size_t places() const { return std::size_t{knobs_.max_batch_size} * knobs_.pipeline_parallel_size; }
  bool evicts() const { return knobs_.capacity_scheduler_policy == TrtllmPolicy::max_utilization; }
  std::int64_t owes(const Request& r) const { return std::int64_t{r.all_blocks} - r.share.blocks; }
  // Requests that decode, or will end.
  std::size_t decoding() const { return started_ - prompts_.size(); }
  void decode(Id id);
  void complete(Request& r);
  void decode_no_more(Id id);
  bool awaits_end() const;
  void await_end(Id id);
  void await_ends();
  void wait_no_more(Id id);
  std::uint32_t take_text(Id id, std::uint32_t tokens);
  void begin(Id id);
  bool compute_prompt(const Chunk& c, std::uint32_t& budget);
  void add_token(Id id);
  void store(Request& r, std::uint32_t tokens);
  void leave(Id id);
  void leave_done();

  // Steps that decode, trtllm_decoding.cpp.
  void decode_all(DecidedStep& step);
  void decode_steady(DecidedStep& step);
  void end_steady(DecidedStep& step, std::uint64_t decided);
  void in_order_of_coming(DecidedStep& step);
  void take_steady(std::uint64_t steps);
  void join_steady();
  bool all_alike(const DecidedStep& first, const DecidedStep& last) const;
  void more_alike(std::uint64_t steps);
  std::uint64_t most_alike() const;
  std::uint64_t blocks_for(std::uint64_t steps) const;

  // In stages, trtllm_pipeline.cpp.
  bool staged() const { return knobs_.pipeline_parallel_size > 1; }
  void require_stages_played() const;
  bool under_way(const Request& r) const { return r.last > finished_; }
  void fit_who_is_back();

  // Of pairs, trtllm_pair.cpp.
  void notice();
  void begin_reads();
  void begin_read(Id id);
  void take_first(Id id);
  void keep(Request& r);

  // With drafts, trtllm_drafts.cpp.
  bool drafts() const { return law_.drafts() > 0; }
  std::uint32_t rows() const { return 1 + law_.drafts(); }
  void require_room_for_drafts() const;
  void leave_out_who_ends();
  std::int64_t blocks_to_verify(const Request& r) const;
  void add_tokens(Request& r, std::uint32_t tokens);
  void verify_all(DecidedStep& step);
  void rewind(Request& r, std::uint32_t rejected);
  void end_verified(Id id, bool verified);
  Ended finish_verified();
  void recount(DecidedStep& step);

  TrtllmKnobs knobs_;
  const PairRole role_;
  const DraftLaw law_;
  const bool
      in_order_;  // prompts have tokens of a step in the order in which they came, each all that it can
  const bool together_;  // those that decode are looked at together
  TrtllmPool pool_;
  AwaitedEnds ends_;                    // of waiting_, where awaits_end(), of who came before
  std::uint64_t awaited_ = 0;           // this one
  std::vector<std::uint64_t> new_ids_;  // for a moment
  RequestSlots<Request> requests_;
  // Active requests, in the order in which they came: those that have no blocks; those whose prompts have and
  // go on; those that decode, or will end; and those that read. All, under max_utilization. Where together_,
  // those that decode are steady_, but for those that have no row yet, and who will end is in no list.
  std::deque<Id> waiting_;
  std::vector<Id> prompts_, decoding_, coming_, active_;
  SteadyRequests steady_;
  std::size_t completing_ = 0;  // of those that decode, whose last token is decided
  std::int64_t owed_ = 0;       // blocks that those lack for their answers who decode or read
  std::deque<Id> queue_;        // beyond max_batch_size
  std::vector<Id> ended_, leaving_;
  DecidedRing<std::vector<DecidedStep>> steps_;
  // Of the step that is being decided.
  std::vector<Id> fitting_, pausing_, generating_, reading_;
  std::vector<Chunk> chunks_;
  std::vector<Id> joining_;  // steady_
  std::vector<Id> some_;     // for a moment
  std::uint64_t decisions_ = 0;
  std::uint64_t decided_ = 0, finished_ = 0;  // steps, ever; without drafts
  std::vector<Id> uncounted_;                 // of those that fit
  Bound bound_;
  std::optional<Id> found_last_;  // looked up in the pool
  std::uint64_t barred_ = 0;
  HashMarks about_;             // blocks that prompts are about to fill
  std::uint64_t reserved_ = 0;  // blocks for prompts that fit, under max_utilization
  std::uint32_t waited_ = 0;    // steps that prompts were held back
  bool undisturbed_ = false;    // nobody was paused or held back
  std::uint64_t paused_ = 0, added_ = 0;
  std::size_t here_ = 0, started_ = 0;  // not done; of these with blocks that are not read into

  // [R21] Whose read has ended, by id, or who was read, by number, since a step was decided; who began to
  // read, or had the first token, since these were last asked for.
  std::vector<std::uint64_t> told_;
  std::vector<Read> reads_;
  std::vector<Id> firsts_;
  bool left_early_ = false;  // somebody had all of its answer when a step was decided: a place is free
  std::uint64_t coming_blocks_ = 0;                            // of their prompts
  std::unordered_map<std::uint64_t, TrtllmPool::Share> kept_;  // of those that are done, by number
};

}  // namespace shardline
