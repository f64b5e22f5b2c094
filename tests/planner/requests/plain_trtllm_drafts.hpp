// TensorRT-LLM's PyTorch executor with drafts, in the engine's own terms: slow, and what TrtllmScheduler with
// a law must be equal to. Without one it is [R9], iteration by iteration.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planner/requests/draft_law.hpp"
#include "tests/planner/requests/plain_trtllm_engine.hpp"

namespace shardline {

// _executor_loop_overlap(), or _executor_loop(): schedule, pause, prepare_resources, sample_async,
// update_requests, update_request_states, handle_responses and update_resources one after another. A step's
// lengths are those on the device when it begins.
class PlainTrtllmDrafts : public Scheduler, private PlainTrtllmEngine {
 public:
  PlainTrtllmDrafts(const TrtllmKnobs& knobs, DraftLaw law)
      : PlainTrtllmEngine(knobs),
        law_(std::move(law)),
        max_draft_len_(law_.drafts()),
        num_extra_kv_tokens_(std::max<std::int64_t>(0, max_draft_len_ - 1)) {}

  std::optional<Id> add(const TraceRequest& request, std::uint32_t text_block = kTraceBlock) override {
    if (request.input >= k_.max_seq_len) return std::nullopt;
    if (!k_.enable_chunked_prefill && request.input > k_.max_num_tokens) return std::nullopt;
    auto r = std::make_shared<Req>();
    r->seen.prompt = static_cast<std::uint32_t>(request.input);
    r->seen.answer =
        static_cast<std::uint32_t>(std::min<std::int64_t>(request.output, k_.max_seq_len - request.input));
    r->seen.number = added_++;
    r->prompt_len = r->num_tokens = request.input;
    r->max_new_tokens = r->seen.answer;
    r->stream = request.number;
    r->words = request.blocks;
    r->text_block = text_block;
    r->id = static_cast<Id>(all_.size());
    if (unused_.empty()) {
      all_.push_back(r);
    } else {
      r->id = unused_.back();
      unused_.pop_back();
      all_[r->id] = r;
    }
    waiting_queue_.push_back(r);
    return r->id;
  }
  void forget(Id id) override { unused_.push_back(id); }
  std::size_t depth() const override { return k_.disable_overlap_scheduler ? 1 : 2; }
  std::size_t decided() const override { return batches_.size(); }
  std::uint64_t steps_alike() const override { return 1; }
  const Scheduler::Request& request(Id id) const override { return all_[id]->seen; }
  std::size_t running() const override {
    return static_cast<std::size_t>(
        std::count_if(active_requests_.begin(), active_requests_.end(), [](const Ptr& r) { return r->seq; }));
  }
  std::size_t waiting() const override { return active_requests_.size() + waiting_queue_.size() - running(); }
  std::uint64_t preemptions() const override { return pauses_; }
  double kv_held() const override {
    return 1 - static_cast<double>(pool_.available()) / static_cast<double>(pool_.size());
  }
  const BlockPool& pool() const { return pool_; }
  const BlockPool& states() const { return states_; }

  const StepBatch& front() const override {
    work_ = {};
    for (const Context& c : batches_.front().contexts)
      work_.prompts.push_back({static_cast<std::uint32_t>(c.tokens), static_cast<std::uint32_t>(c.past)});
    for (const Ptr& r : batches_.front().generations) {
      ++work_.decodes;
      work_.cached += static_cast<std::uint64_t>(r->kv_len);
      work_.longest = std::max(work_.longest, static_cast<std::uint32_t>(r->kv_len));
    }
    return work_;
  }

  bool schedule() override {
    while (!waiting_queue_.empty() && active_requests_.size() < k_.max_batch_size) {
      active_requests_.push_back(waiting_queue_.front());
      waiting_queue_.pop_front();
    }
    for (const Ptr& r : active_requests_)
      r->num_draft_tokens = r->generating() ? max_draft_len_ : r->py_draft_tokens;
    newly_contributed_.clear();
    for (const Ptr& r : active_requests_)
      if (r->state == State::context_init && r->seq) contribute(*r);
    std::vector<Ptr> fitting, paused;
    if (k_.capacity_scheduler_policy == TrtllmPolicy::max_utilization)
      max_utilization(fitting, paused);
    else
      no_evict(fitting);
    std::vector<Ptr> contexts, generations;
    micro_batch(fitting, contexts, generations);
    if (waiting_requests(contexts, generations)) contexts.clear();
    for (const Ptr& r : paused) terminate(*r, true);
    to_pause_ = std::move(paused);
    if (contexts.empty() && generations.empty()) {
      if (batches_.empty()) pause();
      return false;
    }
    Batch batch;
    prepare_resources(contexts, generations, batch);
    const bool any = !batch.contexts.empty() || !batch.generations.empty();
    if (any) batches_.push_back(std::move(batch));
    if (!any || batches_.size() > 1) {
      if (batches_.empty()) pause();
      return any;
    }
    pause();
    update_request_states(batches_.back());
    return true;
  }

  Ended finish_steps(std::uint64_t /*steps*/ = 1) override {
    const Batch batch = std::move(batches_.front());
    batches_.pop_front();
    ended_.clear();
    update_requests(batch);
    pause();
    if (!batches_.empty()) update_request_states(batches_.front());
    for (const Context& c : batch.contexts)
      if (c.last && c.request->seq) store(*c.request, c.request->prompt_len);
    for (const Ptr& r : active_requests_)
      if (r->state == State::complete && r->seq) terminate(*r, false);
    for (const Ptr& r : active_requests_) r->seen.done = r->state == State::complete;
    std::erase_if(active_requests_, [](const Ptr& r) { return r->seen.done; });
    for (const Ptr& r : batch.generations) {
      if (r->state == State::complete || r->state == State::context_init) continue;
      for (; r->py_rewind_len > 0; --r->py_rewind_len) remove_token(*r);
    }
    return {ended_};
  }

 private:
  struct Context {
    Ptr request;
    std::int64_t tokens, past;
    bool last;
  };
  struct Batch {
    std::vector<Context> contexts;
    std::vector<Ptr> generations;
  };

  // The executor's loop.
  void prepare_resources(const std::vector<Ptr>& contexts, const std::vector<Ptr>& generations, Batch& out) {
    std::int64_t budget = k_.max_num_tokens;
    for (const Ptr& r : generations) budget -= 1 + r->num_draft_tokens;
    for (const Ptr& r : contexts) {
      if (!r->seq) {
        add_sequence(*r);
        for (std::int64_t i = 0; i < num_extra_kv_tokens_ + r->py_draft_tokens; ++i) add_token(*r);
      }
      std::int64_t size = std::min(r->chunk_size, r->remaining());
      if (size < r->remaining()) size = (r->position + size) / block() * block() - r->position;
      if (k_.enable_chunked_prefill && size > budget)
        size = std::max(r->position, (r->position + budget) / block() * block()) - r->position;
      if (size == 0) continue;
      budget = std::max<std::int64_t>(0, budget - size);
      r->chunk_size = size;
      out.contexts.push_back({r, size, r->position, size == r->remaining()});
      if (out.contexts.back().last) r->py_draft_tokens = max_draft_len_;  // sample_async
    }
    for (const Ptr& r : generations) {
      for (std::int64_t i = 0; i < 1 + r->py_draft_tokens; ++i) add_token(*r);
      out.generations.push_back(r);
    }
  }
  void update_request_states(const Batch& batch) const {
    const auto next = [&](Req& r) {
      const bool completes = r.num_tokens - r.prompt_len + 1 >= r.max_new_tokens;
      r.state = !k_.disable_overlap_scheduler && completes ? State::to_complete : State::in_progress;
    };
    for (const Context& c : batch.contexts) {
      c.request->position += c.tokens;
      if (c.request->remaining() == 0) next(*c.request);
    }
    for (const Ptr& r : batch.generations)
      if (r->state != State::complete) next(*r);
  }
  void update_requests(const Batch& batch) {
    for (const Context& c : batch.contexts) {
      if (!c.last) continue;
      c.request->kv_len = c.request->prompt_len;
      add_new_tokens(*c.request, 1);
    }
    for (const Ptr& r : batch.generations) {
      if (r->state == State::complete) continue;
      const std::uint32_t accepted = law_.tokens(r->stream, r->draws++, law_.drafts());
      r->kv_len += accepted;
      r->py_rewind_len = max_draft_len_ + 1 - accepted;
      add_new_tokens(*r, accepted);
    }
  }
  void add_new_tokens(Req& r, std::uint32_t tokens) {
    for (std::uint32_t i = 0; i < tokens && r.state != State::complete; ++i) {
      ++r.num_tokens;
      if (r.num_tokens - r.prompt_len >= r.max_new_tokens) r.state = State::complete;
    }
    ended_.push_back(r.id);
  }
  void pause() {
    for (const Ptr& r : std::exchange(to_pause_, {})) {
      if (r->state == State::complete) continue;
      r->max_new_tokens -= r->num_tokens - r->prompt_len;
      r->prompt_len = r->num_tokens;
      r->position = 0;
      r->state = State::context_init;
    }
  }

  DraftLaw law_;
  std::int64_t max_draft_len_, num_extra_kv_tokens_;
  std::vector<Ptr> all_, to_pause_;
  std::vector<Id> unused_, ended_;
  std::deque<Ptr> waiting_queue_;
  std::deque<Batch> batches_;
  mutable StepBatch work_;
  std::uint64_t added_ = 0;
};

}  // namespace shardline
