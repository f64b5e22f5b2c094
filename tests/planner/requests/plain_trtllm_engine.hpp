// TensorRT-LLM's KV cache manager and schedulers, in the engine's own terms: slow and plain.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/trtllm_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

// KVCacheManager, whose tokens of a sequence and blocks are counted one by one, PyCapacityScheduler and
// PyMicroBatchScheduler.
class PlainTrtllmEngine {
 protected:
  explicit PlainTrtllmEngine(const TrtllmKnobs& knobs)
      : k_(knobs),
        pool_(knobs.blocks, knobs.enable_block_reuse),
        states_(std::max(1U, knobs.state_slots), false) {
    if (has_states()) states_.take(1, padding_);  // CUDA_GRAPH_DUMMY_REQUEST_ID
  }

  enum class State : std::uint8_t { context_init, in_progress, to_complete, complete };
  struct Req {
    Scheduler::Request seen;
    Scheduler::Id id = 0;
    State state = State::context_init;
    std::uint64_t stream = 0;
    std::uint32_t draws = 0, text_block = 0;
    std::int64_t prompt_len = 0, max_new_tokens = 0, num_tokens = 0;
    std::int64_t position = 0, chunk_size = 0, reusable = 0;  // of its context
    std::int64_t py_draft_tokens = 0, num_draft_tokens = 0, py_rewind_len = 0;
    std::int64_t kv_len = 0;  // on the device
    bool began = false, seq = false;
    std::int64_t seq_tokens = 0;
    std::vector<KvBlock> blocks;
    std::vector<KvBlock> states;    // [R23] the last of its blocks for states
    std::int64_t placeholders = 0;  // those before it
    std::vector<bool> stored;
    std::vector<std::uint64_t> words;
    std::vector<BlockHash> chain;
    bool generating() const { return state == State::in_progress || state == State::to_complete; }
    std::int64_t remaining() const { return prompt_len - position; }
  };
  using Ptr = std::shared_ptr<Req>;

  std::int64_t block() const { return k_.tokens_per_block; }
  // Of the capacity scheduler: of all stages together.
  std::size_t max_num_requests() const { return std::size_t{k_.max_batch_size} * k_.pipeline_parallel_size; }
  std::int64_t ceil_div(std::int64_t tokens) const { return (tokens + block() - 1) / block(); }

  // The KV cache manager.
  std::span<const BlockHash> chain(Req& r, std::int64_t blocks) const {
    extend_chain(r.chain, static_cast<std::size_t>(blocks),
                 {r.words, r.text_block, k_.tokens_per_block, r.seen.prompt, r.seen.number});
    return std::span(r.chain).first(static_cast<std::size_t>(blocks));
  }
  std::vector<KvBlock> lookup(Req& r) const {
    std::vector<KvBlock> out;
    if (k_.enable_block_reuse) pool_.find(chain(r, (r.prompt_len - 1) / block()), out);
    return out;
  }
  void allocate(Req& r) {
    if (pool_.available() == 0) throw UserError("Can't allocate new blocks. No free blocks left.");
    pool_.take(1, r.blocks);
    r.stored.push_back(false);
  }
  // allocateBlock() of the window of states: the first is a block, others are placeholders before it.
  bool has_states() const { return k_.state_slots > 0; }
  void allocate_state(Req& r) {
    if (!has_states()) return;
    if (!r.states.empty()) {
      ++r.placeholders;
      return;
    }
    if (states_.available() == 0) throw UserError("Can't allocate new blocks for window size -1");
    states_.take(1, r.states);
  }
  void add_sequence(Req& r) {
    for (std::int64_t i = 0; i < ceil_div(r.prompt_len); ++i) allocate_state(r);
    r.blocks = lookup(r);
    pool_.hold(r.blocks);
    r.stored.assign(r.blocks.size(), true);
    r.position = static_cast<std::int64_t>(r.blocks.size()) * block();
    if (!r.began) r.seen.found = static_cast<std::uint32_t>(r.position);
    r.began = r.seq = true;
    while (static_cast<std::int64_t>(r.blocks.size()) < ceil_div(r.prompt_len)) allocate(r);
    r.seq_tokens = r.prompt_len;
  }
  void add_token(Req& r) {
    ++r.seq_tokens;
    if ((r.seq_tokens - 1) % block() != 0) return;
    allocate(r);
    allocate_state(r);
  }
  void remove_token(Req& r) {
    --r.seq_tokens;
    if (r.seq_tokens % block() != 0) return;
    pool_.release(std::span(r.blocks).last(1), true);
    r.blocks.pop_back();
    r.stored.pop_back();
  }
  void store(Req& r, std::int64_t tokens) {
    if (!k_.enable_block_reuse) return;
    const auto keys = chain(r, tokens / block());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (r.stored[i] || pool_.holds_text(keys[i])) continue;
      pool_.fill(r.blocks[i], keys[i]);
      r.stored[i] = true;
    }
  }
  void terminate(Req& r, bool paused) {
    std::int64_t usable = r.num_tokens - 1;
    if (r.state == State::context_init) usable = std::min(usable, r.position);
    store(r, usable);
    pool_.release(r.blocks, false);
    states_.release(r.states, false);
    r.states.clear();
    r.placeholders = 0;
    r.blocks.clear();
    r.stored.clear();
    r.seq = false;
    pauses_ += paused ? 1 : 0;
    r.seen.preempted += paused ? 1 : 0;
  }

  // PyCapacityScheduler.
  const BlockHash* new_context_block(Req& r) const {
    if (!k_.enable_block_reuse) return nullptr;
    for (const BlockHash& h : chain(r, (r.prompt_len - 1) / block()))
      if (!pool_.holds_text(h)) return &h;
    return nullptr;
  }
  bool contribute(Req& r) {
    const BlockHash* const fresh = new_context_block(r);
    return fresh == nullptr || newly_contributed_.insert(*fresh).second;
  }
  bool beneficial_to_skip(Req& r) { return r.state == State::context_init && !r.seq && !contribute(r); }
  std::int64_t held_by_others(Req& r) const {
    const auto found = lookup(r);
    return static_cast<std::int64_t>(found.size()) - pool_.idle(found);
  }
  std::int64_t remaining_blocks_to_completion(Req& r) const {
    return ceil_div(r.prompt_len + r.max_new_tokens) - static_cast<std::int64_t>(r.blocks.size()) -
           (r.seq ? 0 : held_by_others(r));
  }
  // Of the window of states.
  std::int64_t remaining_states_to_completion(const Req& r) const {
    return has_states() && r.state == State::context_init && !r.seq ? 1 : 0;
  }
  std::int64_t needed_blocks_one_step(Req& r) const {
    if (r.state == State::context_init)
      return r.seq ? 0 : ceil_div(r.prompt_len + r.num_draft_tokens) - held_by_others(r);
    const std::int64_t generated = r.seq_tokens - r.prompt_len;
    const std::int64_t to_add = std::min(r.num_draft_tokens + 1, r.max_new_tokens - generated);
    return ceil_div(r.seq_tokens + to_add) - ceil_div(r.seq_tokens);
  }
  void no_evict(std::vector<Ptr>& fitting) {
    const bool is_static = k_.capacity_scheduler_policy == TrtllmPolicy::static_batch;
    std::int64_t available = pool_.available(), slots = states_.available();
    std::vector<Ptr> pending;
    for (const Ptr& r : active_requests_) {
      if (fitting.size() >= max_num_requests()) break;
      if (!r->generating()) {
        pending.push_back(r);
        continue;
      }
      fitting.push_back(r);
      available -= remaining_blocks_to_completion(*r);
      slots -= remaining_states_to_completion(*r);
    }
    if (is_static && !fitting.empty()) return;
    for (const Ptr& r : pending) {
      if (!is_static && beneficial_to_skip(*r)) continue;
      if (fitting.size() >= max_num_requests() || remaining_blocks_to_completion(*r) > available ||
          remaining_states_to_completion(*r) > slots)
        break;
      fitting.push_back(r);
      available -= remaining_blocks_to_completion(*r);
      slots -= remaining_states_to_completion(*r);
    }
  }
  void max_utilization(std::vector<Ptr>& fitting, std::vector<Ptr>& paused) {
    std::map<std::uint32_t, std::uint32_t> refs;  // mSchedulingRefCount
    for (const Ptr& r : active_requests_)
      for (const KvBlock b : r->blocks) refs[b] = pool_.holders(b);
    std::int64_t free = pool_.available(), scheduled = 0;
    auto end = active_requests_.size();
    for (std::size_t i = 0; i < end;) {
      Req& r = *active_requests_[i];
      if (beneficial_to_skip(r)) {
        ++i;
      } else if (fitting.size() < max_num_requests() && scheduled + needed_blocks_one_step(r) <= free) {
        scheduled += needed_blocks_one_step(r);
        fitting.push_back(active_requests_[i++]);
      } else {
        std::size_t last = end;
        while (last > i && !active_requests_[last - 1]->seq) --last;
        if (last == i) break;
        end = last - 1;
        paused.push_back(active_requests_[end]);
        for (const KvBlock b : active_requests_[end]->blocks) free += --refs[b] == 0 ? 1 : 0;
      }
    }
  }

  // PyMicroBatchScheduler.
  static std::int64_t compute(std::int64_t chunk, std::int64_t reusable, std::int64_t remaining) {
    if (reusable <= 0 || reusable + chunk < remaining) return chunk;
    return std::max<std::int64_t>(0, remaining - reusable);
  }
  void micro_batch(const std::vector<Ptr>& fitting, std::vector<Ptr>& contexts,
                   std::vector<Ptr>& generations) const {
    const std::int64_t most = k_.max_num_tokens;
    std::int64_t tokens = 0, chunked = 0;
    std::vector<Ptr> to_be_chunked;
    std::size_t count = 0;
    bool all_fit = true;
    for (const Ptr& r : fitting) {
      if (r->state == State::to_complete || inflight_req_ids_.count(r->id) > 0) continue;
      if (r->state == State::context_init) {
        r->chunk_size = r->remaining();
        r->reusable = r->seq ? 0 : static_cast<std::int64_t>(lookup(*r).size()) * block();
        std::int64_t cost = compute(r->chunk_size, r->reusable, r->remaining()) + r->num_draft_tokens;
        if (!k_.enable_chunked_prefill) {
          cost = std::max<std::int64_t>(1, cost);
          if (cost > most) throw UserError("Context compute tokens exceeds limit");
          if (tokens + cost > most) break;
          contexts.push_back(r);
          tokens += cost;
        } else {
          all_fit = all_fit && cost <= most;
          chunked += std::min(cost, most);
          to_be_chunked.push_back(r);
        }
      } else {
        if (tokens + 1 + r->num_draft_tokens > most) break;
        generations.push_back(r);
        tokens += 1 + r->num_draft_tokens;
      }
      if (++count >= k_.max_batch_size) break;
    }
    if (!all_fit || chunked > most - tokens) chunk(to_be_chunked, most - tokens);
    for (const Ptr& r : to_be_chunked)
      if (r->chunk_size > 0) contexts.push_back(r);
  }
  void chunk(const std::vector<Ptr>& requests, std::int64_t capacity) const {
    const std::int64_t most = k_.max_num_tokens;
    if (k_.context_chunking_policy == TrtllmChunking::first_come_first_served) {
      for (const Ptr& r : requests) {
        const std::int64_t all = r->remaining(), reusable = std::min(r->reusable, all);
        std::int64_t size = all;
        if (capacity < compute(all, reusable, all)) size = capacity;
        if (compute(size, reusable, all) > most) size = std::min(most, all);
        if (size < all) size = size / block() * block();
        r->chunk_size = size;
        capacity -= std::min(capacity, compute(size, reusable, all));
      }
      return;
    }
    for (const Ptr& r : requests) r->chunk_size = 0;
    std::int64_t tokens = 0, loop = 1;
    while (tokens < capacity && loop > 0) {
      loop = 0;
      for (const Ptr& r : requests) {
        const std::int64_t past = r->chunk_size, all = r->remaining(), reusable = std::min(r->reusable, all);
        const std::int64_t size = std::min(past + block(), all);
        const std::int64_t more = compute(size, reusable, all) - compute(past, reusable, all);
        if (tokens + more > capacity || size > most) continue;
        r->chunk_size = size;
        tokens += more;
        loop += size - past;
      }
    }
  }
  bool waiting_requests(const std::vector<Ptr>& contexts, const std::vector<Ptr>& generations) {
    if (k_.batch_wait_timeout_iters == 0 && k_.batch_wait_max_tokens_ratio <= 0) return false;
    if (contexts.empty() || generations.empty()) return false;
    std::int64_t tokens = 0;
    for (const Ptr& r : contexts) tokens += compute(r->chunk_size, r->reusable, r->remaining());
    for (const Ptr& r : generations) tokens += 1 + r->num_draft_tokens;
    const bool wait = waited_iters_ < k_.batch_wait_timeout_iters &&
                      static_cast<double>(tokens) < k_.batch_wait_max_tokens_ratio * k_.max_num_tokens;
    waited_iters_ = wait ? waited_iters_ + 1 : 0;
    return wait;
  }

  TrtllmKnobs k_;
  BlockPool pool_, states_;
  std::vector<KvBlock> padding_;
  std::vector<Ptr> active_requests_;
  std::set<BlockHash> newly_contributed_;
  std::set<Scheduler::Id> inflight_req_ids_;  // of several stages
  std::uint32_t waited_iters_ = 0;
  std::uint64_t pauses_ = 0;
};

}  // namespace shardline
