// Which requests each step of SGLang computes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/requests/decided_step.hpp"
#include "planner/requests/draft_law.hpp"
#include "planner/requests/radix_tree.hpp"
#include "planner/requests/request_slots.hpp"
#include "planner/requests/scheduler.hpp"
#include "planner/requests/sglang_windows.hpp"
#include "planner/requests/text_memory.hpp"
#include "planner/serving/trace.hpp"

namespace shardline {

/// [R14] Names of options of a server that decodes for another.
inline constexpr const char* kReservedTokens = "num_reserved_decode_tokens";
inline constexpr const char* kExtraSlots = "disaggregation_decode_extra_slots";

/// Options of `sglang.launch_server`, under its names but for the words in brackets; those from
/// new_token_ratio on are variables of its environment (SGLANG_..., environ.py).
struct SglangKnobs {
  bool disable_overlap_schedule = false;            // a step is decided when the one before ends
  bool enable_mixed_chunk = false;                  // requests decode beside the prompts of a step
  bool disable_radix_cache = false;                 // nothing is found again
  std::uint32_t chunked_prefill_size = 8192;        // tokens of prompts in a step; 0: whole prompts
  std::uint32_t max_prefill_tokens = 16384;         // likewise, where prompts are not cut
  std::uint32_t prefill_max_requests = 0;           // prompts that begin in a step; 0: any number
  std::uint32_t max_running_requests = 2048;        // that decode at once
  std::uint32_t page_size = 1;                      // tokens
  std::uint32_t context_length = 8192;              // tokens of a prompt and its answer
  std::uint32_t max_total_tokens = 131072;          // that the KV cache has room for [whole pages]
  double schedule_conservativeness = 1;             // scales init_new_token_ratio
  double init_new_token_ratio = 0.7;                // of what is left of answers, for which room is kept
  double min_new_token_ratio_factor = 0.14;         // of that, after
  std::uint32_t new_token_ratio_decay_steps = 600;  // steps that decode
  std::uint32_t clip_max_new_tokens_estimation = 4096;
  std::uint32_t retract_decode_steps = 20;
  std::uint32_t swa_eviction_interval = 128;  // batches between two looks for windows to drop [R22]
  // Of the prefill delayer [R40], under their names without prefill_delayer_ but for the first.
  bool enable_prefill_delayer = false;
  std::uint32_t max_delay_passes = 30;   // steps in which prompts wait for those of other groups, less 1
  double token_usage_low_watermark = 0;  // of the KV cache, below which nobody waits; 0: none
  double queue_min_ratio = 0;            // of those that run, for so many of whom prompts wait; 0: none
  std::uint32_t max_delay_ms = 5000;     // that they do
  // Of a pipeline [R37].
  std::uint32_t pp_size = 1;                  // stages [the plan's]
  std::uint32_t pp_max_micro_batch_size = 0;  // of max_running_requests, in each; 0: one pp_size-th
  std::uint32_t pp_async_batch_depth = 0;     // micro-batches beside one for each stage
  // Of models some of whose layers have windows [R22]; 0: none, and no option.
  std::uint32_t sliding_window = 0;    // tokens before its own that a token sees in those
  double swa_full_tokens_ratio = 0.8;  // of max_total_tokens: those of their pool [whole pages]
  // Of a server that decodes for another [R14].
  std::uint32_t num_reserved_decode_tokens = 512;       // kept free for each request
  std::uint32_t disaggregation_decode_extra_slots = 0;  // places beside max_running_requests
};

/// Most that run of one micro-batch [R37]; of all where there are no stages.
std::uint32_t running_of_batch(const SglangKnobs& knobs);

/// [R40] What a replica's groups hold their prompts back by.
DelayerKnobs delayer_of(const SglangKnobs& knobs);

/// Pages of the pool of layers with windows; 0 where the model has none.
std::uint64_t window_pages(const SglangKnobs& knobs);

/// The scheduler of SGLang under its policy fcfs [R8]: prompts before everything else. While there are any
/// that fit, steps compute prompts, and those that decode wait (unless enable_mixed_chunk); else all that run
/// decode. A prompt begins if its rest and all of its answer fit beside the part of others' answers that
/// new_token_ratio says. Where a step that decodes finds no page, those with the fewest tokens of answer lose
/// theirs (are retracted) and wait last in line. After somebody did not fit nobody is tried until one that
/// runs is done.
///
/// With the overlap schedule two steps are decided at a time, without knowledge of what the one under way
/// gives: who has its last token is a row of one more step, and who is retracted loses the token under way.
///
/// With drafts [R17] a step verifies 1 + k tokens of each that decodes, and pages for twice as many are taken
/// ahead of what is known to be accepted, whichever schedule it is. What a step yields is drawn when it ends;
/// each is played, as none is known to be like the one before. A prompt never has requests that decode beside
/// it.
///
/// Rules, read at commits near 0.5.14, none of which is its tag, and in annotated copies of unknown commits
/// beside them: sgl-project/sglang, python/sglang/srt: managers/schedule_policy.py, `PrefillAdder`
/// (add_one_req, add_chunked_req, _update_prefill_budget, budget_state) at 00550cd11b35;
/// managers/scheduler.py, `event_loop_overlap`, `get_next_batch_to_run`,
/// `_get_new_batch_prefill_raw` and `update_running_batch` at 0003215cf146; managers/schedule_batch.py,
/// `retract_decode`, `check_decode_mem` and `release_req`; mem_cache/radix_cache.py, `cache_finished_req` and
/// `cache_unfinished_req` at 006b0e3d317f; of drafts: speculative/eagle_info_v2.py, `prepare_for_decode`, and
/// managers/utils.py, `get_alloc_len_per_decode`, at 006b0e3d317f.
/// In stages [R37] each of several micro-batches has requests of its own, in turn, and no row is in vain; see
/// sglang_pipeline.cpp.
/// With windows [R22] each page of a text is one of two pools, of which the second is short; see
/// SglangWindows.
/// Not here: other policies than fcfs, drafts in trees or of other algorithms than EAGLE, layers with states,
/// priorities, hierarchical caches, `ignore_eos` without a cache.
class SglangScheduler : public Scheduler {
 public:
  struct Request : Scheduler::Request {
    std::uint32_t generated = 0, in_flight = 0;  // tokens of the answer, those of steps under way among them
    std::uint32_t computed = 0;                  // tokens with KV, up to the step decided last; with drafts
                                                 // those that are known to be accepted
    std::uint32_t allocated = 0;        // tokens that pages are there for, of who decodes with drafts
    std::uint32_t verified = 0;         // steps with drafts of it that have ended
    std::uint64_t stream = 0;           // TraceRequest::number
    std::uint32_t fill = 0;             // tokens that its prompt had when it began: more if retracted
    std::uint32_t kept = 0;             // pages of it that are in the tree and locked
    WindowTree::Boundary boundary = 0;  // and where locks of their windows end
    std::uint32_t gone = 0;             // tokens whose windows were dropped; whole pages
    std::uint32_t decoded = 0;          // rows, since it began
    bool began = false;
    std::uint32_t sent = 0;   // tokens of its prompt that went to the other engine
    bool fails = false;       // it will never have all from there
    RadixNode node = 0;       // where those end
    std::uint32_t pages = 0;  // its text, as far as it was needed: in pages_, less one; 0: nowhere
    TextMemory::Text text;    // of the trace's blocks, in texts_
    std::uint32_t known() const { return generated - in_flight; }
  };

  /// Throws UserError where a step has room for no page, where drafts and enable_mixed_chunk are asked for,
  /// of windows with drafts, in pairs and without a prefix cache, and of stages with any of these and with
  /// enable_mixed_chunk.
  explicit SglangScheduler(const SglangKnobs& knobs, PairRole role = PairRole::none, DraftLaw law = {});

  /// Refused, as the engine does, where the prompt is longer than context_length or the pool less 6 tokens;
  /// and where it would wait for ever, as its rest, its answer and a page are more than the pool. Its answer
  /// is cut to what fits.
  std::optional<Id> add(const TraceRequest& request, std::uint32_t text_block = kTraceBlock) override;
  void rests() override;
  bool takes(const TraceRequest& request) const override { return answer_of(request).has_value(); }
  void forget(Id id) override;
  std::size_t depth() const override { return steps_.most(); }
  std::size_t decided() const override { return steps_.size(); }
  /// Throws UserError where a prompt that was begun finds no page: the engine ends with an error there. In
  /// stages EngineStops, also where the last that decodes in a micro-batch finds none.
  bool schedule() override;
  PromptBid prompt_bid() override;
  void hold_prompts(bool hold) override { held_ = hold; }
  bool decides_again() const override { return role_ == PairRole::decodes && changed_ && steps_.empty(); }
  const StepBatch& front() const override;
  const StepBatch& back() const override { return steps_.back().batch; }
  StageOrder stage_order() const override;
  std::uint64_t steps_alike() const override;
  Ended finish_steps(std::uint64_t steps = 1) override;
  const Request& request(Id id) const override { return requests_[id]; }
  std::size_t running() const override { return live_ - waiting(); }
  std::size_t waiting() const override {
    return waiting_.size() + asks_.size() + comes_.size() + lost_.size() + handshakes_.size();
  }
  std::uint64_t preemptions() const override { return retractions_; }
  double kv_held() const override;

  void take_reads(std::vector<Read>& out) override;
  void has_read(Id id) override;
  void was_read(std::uint64_t number, bool at_once) override;
  bool waits_for_transfers() const override { return role_ != PairRole::none && live_ + kept_.size() > 0; }
  CacheWay cache_way() const override { return role_ == PairRole::none ? CacheWay::none : CacheWay::sent; }
  void has_room(std::uint64_t number) override;
  void give_up(std::uint64_t number) override;
  void lose_room(std::uint64_t number) override;
  void take_sent(std::vector<Sent>& out) override;
  void take_firsts(std::vector<Id>& out) override;

  /// Pages that nobody uses, those of texts that can be lost among them.
  std::uint64_t available_pages() const {
    return free_ + (windows_ ? windows_->tree.evictable().full : tree_.evictable());
  }
  std::uint64_t pages() const { return knobs_.max_total_tokens / knobs_.page_size; }
  /// The pool of layers with windows; nothing where the model has none.
  const SglangWindows* windows() const { return windows_.get(); }
  double new_token_ratio() const;

 private:
  enum class Outcome : std::uint8_t { taken, no_token, other };
  struct Budget {  // of a step with prompts; tokens
    double total_offset = 0;
    std::int64_t current_offset = 0, input = 0, chunk = 0, window_offset = 0;
    std::vector<Id> begun;
    std::vector<std::uint32_t> tokens;  // of each
    std::optional<Id> cut;              // of whose prompt a part is left, the last of them
  };

  // [R37] What a micro-batch has of its own; the members of these names are those of the one whose turn it
  // is, and of all requests where there are no stages.
  struct MicroBatch {
    std::vector<Id> running, last;
    std::uint32_t finished = 0;
    std::optional<Id> last_cut;
    bool full = false, last_prompts = false, last_fewer = false;
  };

  double first_ratio() const;
  double ratio_after(std::uint64_t steps) const;
  std::uint32_t pages_of(std::uint64_t tokens) const;
  std::uint32_t clipped(std::uint32_t tokens) const;
  // Pages of a text of so many tokens that the tree may have.
  std::uint32_t text_pages(std::uint32_t tokens) const;
  std::optional<std::uint32_t> answer_of(const TraceRequest& request) const;
  void extend_text(Request& r, std::size_t pages);
  std::span<const std::uint64_t> text_of(const Request& r, std::size_t pages) const;
  void drop_text(Request& r);
  void evict_for(std::uint64_t tokens);
  void lock(Request& r, RadixNode node);
  void unlock(Request& r);
  void keep_prompt(Id id, std::uint32_t tokens);
  void leave(Request& r);
  void forget_early(Id id);
  void merge_last();
  std::size_t places_to_begin() const;
  Budget budget() const;
  double room(const Budget& b) const;
  void charge(Budget& b, std::uint32_t tokens, std::uint32_t answer) const;
  Outcome add_waiting(Id id, Budget& b);
  bool add_cut(Budget& b);
  Outcome state(const Budget& b) const;
  bool schedule_prompts();
  void compute_prompts(const Budget& b);
  bool schedule_decodes();
  void decode_all(DecidedStep& step);
  std::uint64_t pages_to_decode(std::span<const Id> ids) const;
  void retract();
  void release_retracted(Id id, std::size_t others);
  void more_alike(std::uint32_t steps);
  Ended end_front(std::uint64_t steps);

  bool lacks(std::uint64_t pages) const { return free_ < pages || (windows_ && windows_->free < pages); }
  void take(std::uint64_t pages) {
    free_ -= pages;
    if (windows_) windows_->free -= pages;
  }
  std::uint64_t least_free() const { return windows_ ? std::min(free_, windows_->free) : free_; }

  // In stages, sglang_pipeline.cpp.
  bool staged() const { return !batches_.empty(); }
  void begin_stages();
  void exchange(MicroBatch& with);
  bool take_turn();
  bool schedule_turn();
  Ended end_turn();

  // With windows, sglang_windows.cpp.
  void begin_windows();
  bool windows_fit(std::int64_t prompt) const;
  std::int64_t windows_of(std::int64_t tokens, const Budget& b) const;
  std::int64_t window_room(const Budget& b) const;
  bool no_room(double total, std::uint32_t rest, const Budget& b, const WindowTree::Pages& before);
  void give_back(const WindowTree::Pages& pages);
  void evict_both(std::uint64_t tokens);
  void keep_with_windows(Request& r, std::uint32_t whole);
  void leave_with_windows(Request& r, std::uint32_t held, std::uint32_t whole);
  void drop_windows();
  void drop_windows_alike(std::uint32_t steps);
  void drop_before(Request& r, std::uint32_t length);
  void stand_still() const;
  std::uint64_t refusals_alike(std::uint64_t most) const;

  // With drafts, sglang_drafts.cpp.
  bool drafts() const { return law_.drafts() > 0; }
  void join_pages(const Request& r, std::vector<std::uint64_t>& pages, std::size_t from) const;
  std::uint32_t held_tokens(const Request& r) const;
  std::uint32_t asked_tokens(const Request& r) const;
  std::uint64_t pages_to_verify(std::span<const Id> ids) const;
  void verify_all(DecidedStep& step);
  void end_verified(Request& r) const;
  void leave_next_step(Id id);
  void recount_next_step();

  // Of pairs, sglang_pair.cpp. Of who prefills:
  void notice();
  void release_read();
  void send(const DecidedStep& step);
  void keep(Id id);
  // Of who decodes:
  bool schedule_answers();
  std::size_t places() const;
  std::int64_t reserved() const;
  void take_pages(Id id, std::uint32_t tokens);
  void resume_lost();
  void give_room();
  void look_for_read();
  void drop_failed(bool with_pages);
  void begin_read();

  SglangKnobs knobs_;
  const PairRole role_;
  const DraftLaw law_;
  RadixTree tree_;
  std::uint64_t free_;                      // pages
  std::unique_ptr<SglangWindows> windows_;  // of those of a model with windows; its tree is in place of tree_
  TextMemory texts_;
  RequestSlots<std::vector<std::uint64_t>> pages_;  // of those that were looked at: few of those that wait
  RequestSlots<Request> requests_;
  std::vector<Id> ended_, retracted_;
  std::deque<Id> waiting_;
  std::vector<Id> running_;     // the running batch
  std::uint32_t finished_ = 0;  // beside them, done since a step that decodes was decided
  std::vector<Id> last_;        // in the step decided last, if it has prompts
  std::optional<Id> last_cut_;  // of these, of whose prompt a part was left then
  std::optional<Id> cut_;       // of its prompt a part is computed
  DecidedRing<std::vector<DecidedStep>> steps_;
  bool full_ = false;             // nobody is tried
  bool held_ = false;             // [R40] nobody begins in the step that is decided next
  std::uint32_t most_begun_ = 0;  // prompts of one step
  bool last_prompts_ = false, last_fewer_ = false;
  double ratio_from_;
  std::uint64_t ratio_steps_ = 0;  // that decoded since
  std::uint32_t text_block_ = kTraceBlock;
  std::uint64_t retractions_ = 0, added_ = 0;
  std::size_t live_ = 0;

  // [R37] Micro-batches, none where there are no stages; whose turn it is; and how many of the decided steps
  // compute something.
  std::vector<MicroBatch> batches_;
  std::size_t turn_ = 0, busy_ = 0;
  bool round_idles_ = true;  // nobody has computed anything since the first one's turn

  // [R14] Requests hold so many places of the request pool, of who prefills until they were read.
  std::size_t slots_ = 0;
  // Of who prefills: who waits for room by number, who has it, those that were computed and not read, and
  // their numbers when they were; what steps have computed.
  NumberedIds handshakes_;
  std::set<std::pair<std::uint64_t, Id>> roomed_;
  std::unordered_map<std::uint64_t, std::pair<Request, std::uint64_t>> kept_;  // and which of them it is
  std::vector<std::uint64_t> told_;
  std::vector<Sent> sent_;
  std::uint64_t kept_order_ = 0;
  std::size_t buffers_ = 0;  // of metadata, in use
  // Of who decodes: who asks for room (and, in waiting_, whose cache is here), whose cache comes, and who
  // lost it, in order; who has room, or the first token, since these were last asked for.
  std::deque<Id> asks_, lost_;
  std::vector<Id> comes_, firsts_;
  std::vector<Read> rooms_;
  std::size_t failing_ = 0;  // of those
  std::vector<Id> arrived_;  // whose cache is here, of those whose cache comes
  // Who is done and still counted among those that run, until a step is decided: prompt and answer.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> gone_;
  bool changed_ = false;  // the next step may be decided otherwise, though nothing happens meanwhile
};

}  // namespace shardline
