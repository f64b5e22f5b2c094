// What all of vLLM's schedulers have in common: requests, blocks, and the connector of a pair of pools.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "planner/requests/run_pool.hpp"
#include "planner/requests/scheduler.hpp"
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
  std::uint32_t pipeline_parallel_size = 1;  // [the plan's: R36]

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

/// What any of them knows of a request.
struct VllmRequest : Scheduler::Request {
  bool began = false;
  bool remote = false;                        // its prompt is still to be read
  bool reading = false;                       // waits with its blocks, among those that wait
  bool read = false;                          // the cache that it waits for is there,
  bool fails = false;                         // or cannot be read
  std::uint32_t computed = 0, generated = 0;  // tokens
  RunPool::Share share;                       // its blocks
};

/// A scheduler of vLLM's with its KV cache and, in a pair of pools [R12], what NixlConnector adds to it.
/// Those of each kind decide what a step computes; what hand-offs change is the same for all.
///
/// Rules: vllm-project/vllm, vllm/v1/core/sched/scheduler.py at b4622cf924bc and
/// .../kv_connector/v1/nixl_connector.py at 0f120751344c.
class VllmConnected : public Scheduler {
 public:
  /// [R19] Steps after which engines of a replica ask each other whether anybody has requests left
  /// (v1/engine/core.py, DPEngineCoreProc._has_global_unfinished_reqs).
  static constexpr std::uint64_t kWave = 32;

  /// Decides the next step, fewer than depth() being decided (checked); false if there is nothing to do.
  bool schedule() override;
  void schedule_or_dummy() override;
  void look_at_once() override { notice(told_, true); }

  void take_reads(std::vector<Read>& out) override;
  void has_read(Id id) override { told_.push_back(id); }
  void was_read(std::uint64_t number, bool /*at_once*/) override { told_.push_back(number); }
  bool read_fails(Id id) override;
  void take_failed(std::vector<Failed>& out) override;
  CacheWay cache_way() const override { return role_ == PairRole::none ? CacheWay::none : CacheWay::read; }
  bool waits_for_transfers() const override { return reading_ > 0 || !kept_blocks_.empty(); }

  bool circles() const override { return circles_at_ == changes_; }

  std::size_t depth() const override { return knobs_.async_scheduling ? 2 : 1; }
  std::size_t waiting() const override { return waiting_.size(); }
  std::uint64_t preemptions() const override { return preemptions_; }
  double kv_held() const override {
    return 1 - static_cast<double>(pool_.available()) / static_cast<double>(pool_.size());
  }
  const RunPool& pool() const { return pool_; }

 protected:
  /// Throws as require_start().
  VllmConnected(const VllmKnobs& knobs, PairRole role);

  /// What a worker says at the end of a step: who has read, by id, or was, by number.
  using Told = std::vector<std::uint64_t>;

  virtual VllmRequest& held(Id id) = 0;
  /// A request that waits and will never be computed is forgotten.
  virtual void drop(Id id) = 0;
  /// The next step, which has all that was told. Where it has nothing in it: false, or it stays as a dummy
  /// batch.
  virtual bool decide(bool dummy) = 0;

  /// Sets what is known of a request that came; false where the engine refuses it.
  bool come(const TraceRequest& request, std::uint32_t text_block, VllmRequest& r);
  /// Blocks that whoever begins leaves free.
  std::uint32_t watermark() const {
    return running() == 0 ? 0 : static_cast<std::uint32_t>(knobs_.watermark * pool_.size());
  }
  /// Tokens of the first part of one that begins, of `known` tokens of which this was found: it has their
  /// blocks then. 0 where the step or the cache has no room for it.
  std::uint32_t begin_computing(VllmRequest& r, const RunPool::Found& found, std::uint32_t known,
                                std::uint32_t budget);
  /// The blocks of a prompt that was found so far are taken and it is read; false where not all have room.
  bool begin_read(Id id, const RunPool::Found& found);
  /// Those that wait begin, in order, as long as the step that is being decided has room for them, or begin
  /// to read; others go past those that read. `admit(id)` begins with one, or says that it cannot. `run(id,
  /// tokens)` goes on with one that has its blocks already, with `lookahead` tokens more.
  template <class Admit, class Run>
  void admit_waiting(const std::uint32_t& budget, std::uint32_t lookahead, Admit admit, Run run);
  /// What was told is known, and nothing is told any more.
  void notice(Told& told, bool at_once);
  /// Somebody has one token more: what is computed next is not what was.
  void changed() { ++changes_; }
  /// Of one that lost its blocks with nobody beside it: it begins again, where what others hold, who wait for
  /// it, leaves room for its first part and never for the rest.
  void lost_alone(const VllmRequest& r);
  /// The blocks and the text of one that is done: kept for who will read them, or free.
  void let_go(VllmRequest& r);

  VllmKnobs knobs_;
  PairRole role_;
  RunPool pool_;
  std::deque<Id> waiting_;
  // That hand-offs ended, and no step in progress says yet: ids of those that read, numbers of those that
  // were read.
  Told told_;
  std::uint64_t preemptions_ = 0;
  bool kept_ = true;  // nobody lost its blocks in the step decided last

 private:
  /// Of one that waited with its blocks and does not any more, tokens of its next step, for which it then has
  /// blocks with `lookahead` more; 0 where there is no room in the step or the cache.
  std::uint32_t go_on(VllmRequest& r, std::uint32_t lookahead, std::uint32_t budget);
  void fail(Id id, bool at_once);
  void keep(VllmRequest& r);

  std::vector<Read> reads_;  // that nobody was told of
  std::vector<Failed> failed_;
  std::size_t reading_ = 0;                                        // requests
  std::unordered_map<std::uint64_t, RunPool::Share> kept_blocks_;  // of those that are done, by number
  std::uint64_t added_ = 0;
  // Changes: who came, tokens, what was told. After how many of them the last one lost its blocks alone, and
  // by number who; and when that had happened to it before.
  std::uint64_t changes_ = 1, lost_ = 0, lost_at_ = 0, circles_at_ = 0;
};

template <class Admit, class Run>
void VllmConnected::admit_waiting(const std::uint32_t& budget, std::uint32_t lookahead, Admit admit,
                                  Run run) {
  std::size_t at = 0;  // behind those that read
  while (kept_ && at < waiting_.size() && budget > 0 && running() < knobs_.max_num_seqs) {
    const Id id = waiting_[at];
    VllmRequest& r = held(id);
    if (r.reading && !r.read) {
      ++at;
      continue;
    }
    if (r.reading) {
      const std::uint32_t tokens = go_on(r, lookahead, budget);
      if (tokens == 0) break;
      run(id, tokens);
    } else if (!admit(id)) {
      break;
    }
    if (r.reading) continue;
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace shardline
