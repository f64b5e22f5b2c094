// An engine of vLLM's with pipeline stages, loop by loop, in the engine's own terms: slow, and what
// VllmPipelineScheduler played by the clock of its stages must be equal to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/played_engine.hpp"
#include "planner/requests/vllm_connected.hpp"

namespace shardline {

/// run_busy_loop() of one engine: it takes who came, and step_with_batch_queue() schedules as long as the
/// queue has room, else waits for its oldest batch. Blocks are single ones, and batches of nobody are
/// batches.
class PlainPipeline {
 public:
  PlainPipeline(const VllmKnobs& knobs, const StageTimes& times)
      : k_(knobs),
        times_(times),
        pp_(times.count()),
        pool_(knobs.num_gpu_blocks, knobs.enable_prefix_caching) {}

  std::vector<AnsweredRequest> play(const std::vector<TraceRequest>& requests) {
    std::size_t next = 0;
    for (;;) {
      if (running_.empty() && waiting_.empty() && queue_.empty()) {
        if (next == requests.size()) break;
        now_ = std::max(now_, requests[next].arrival.value);
      }
      while (next < requests.size() && requests[next].arrival.value <= now_) add(requests[next++]);
      if (!running_.empty() || !waiting_.empty()) {
        queue_.push_back(schedule());
        const std::size_t size = pp_ + (k_.async_scheduling ? 1 : 0);
        if (queue_.size() < size) continue;
      }
      const Batch done = std::move(queue_.front());
      queue_.pop_front();
      now_ = std::max(now_, end_of(done.number));
      update_from_output(done);
    }
    return answers_;
  }

  std::uint32_t available() const { return pool_.available(); }
  std::uint64_t preemptions = 0, batches = 0;  // with somebody

 private:
  struct Req {
    AnsweredRequest seen;
    bool runs = false, began = false, done = false, first = false;
    std::uint32_t num_tokens = 0, num_computed_tokens = 0, num_output_placeholders = 0, in_flight = 0;
    std::uint64_t next_decode_eligible_step = 0;
    std::size_t cached_blocks = 0;
    std::vector<std::uint64_t> words;
    std::vector<KvBlock> blocks;
    std::vector<BlockHash> chain;
  };
  using Ref = std::shared_ptr<Req>;
  struct Scheduled {
    Ref request;
    std::uint32_t tokens = 0, past = 0;
    bool decodes = false, chunk = false;
  };
  struct Batch {
    std::size_t number = 0;  // of all, from 0 on
    std::vector<Scheduled> scheduled;
  };
  // Of a batch, ever: when each stage was free of it, when the next one had it, and whether it has tokens.
  struct Times {
    std::vector<double> free, had;
    bool empty = true, tokens = false;
  };

  void add(const TraceRequest& request) {
    auto r = std::make_shared<Req>();
    r->seen.number = added_++;
    r->seen.came = request.arrival;
    r->seen.prompt = static_cast<std::uint32_t>(request.input);
    r->seen.answer =
        static_cast<std::uint32_t>(std::min<std::int64_t>(request.output, k_.max_model_len - request.input));
    r->num_tokens = r->seen.prompt;
    r->words = request.blocks;
    waiting_.push_back(std::move(r));
  }

  Batch schedule() {
    ++current_step_;
    Batch out{ever_.size(), {}};
    std::uint32_t token_budget = k_.max_num_batched_tokens;
    if (schedule_running(out.scheduled, token_budget)) schedule_waiting(out.scheduled, token_budget);
    StepBatch work;
    bool tokens = false;
    for (Scheduled& s : out.scheduled) {  // _update_after_schedule
      Req& r = *s.request;
      if (s.decodes) {
        ++work.decodes;
        work.cached += s.past;
        work.longest = std::max(work.longest, s.past);
      } else {
        work.prompts.push_back({s.tokens, s.past});
      }
      r.num_computed_tokens += s.tokens;
      s.chunk = r.num_computed_tokens < r.num_tokens + r.num_output_placeholders;
      if (s.chunk) continue;
      tokens = true;
      ++r.in_flight;
      if (!k_.async_scheduling) continue;
      ++r.num_output_placeholders;
      r.next_decode_eligible_step = current_step_ + pp_;
    }
    batches += work.empty() ? 0 : 1;
    pass(work, tokens);
    return out;
  }

  // When each stage has done with one more batch.
  void pass(const StepBatch& work, bool tokens) {
    const std::size_t n = ever_.size();
    Times& t = ever_.emplace_back();
    t.empty = work.empty();
    t.tokens = tokens;
    if (work.empty()) return;
    std::vector<StageTime> of(pp_);
    times_.of(work, of);
    double begins = now_;
    if (n >= pp_ && ever_[n - pp_].tokens) begins = std::max(begins, end_of(n - pp_));
    for (std::size_t s = 0; s < pp_; ++s) {
      if (last_) begins = std::max(begins, last_->free[s]);
      const double had_before = last_ ? last_->had[s] : 0;
      t.free.push_back(begins + of[s].occupied.value);
      t.had.push_back(std::max(begins + of[s].busy.value, had_before) + of[s].handed.value);
      begins = t.had.back();
    }
    last_ = t;
  }

  // Of one with nobody, when the one before has ended.
  double end_of(std::size_t batch) const {
    for (std::size_t i = batch + 1; i-- > 0;)
      if (!ever_[i].empty) return ever_[i].had.back();
    return 0;
  }

  // Whether nobody was preempted.
  bool schedule_running(std::vector<Scheduled>& out, std::uint32_t& token_budget) {
    bool preempted = false;
    for (std::size_t i = 0; i < running_.size() && token_budget > 0; ++i) {
      const Ref r = running_[i];
      if (r->num_output_placeholders > 0 &&
          r->num_computed_tokens + 2 - r->num_output_placeholders >= r->seen.prompt + r->seen.answer)
        continue;
      if (current_step_ < r->next_decode_eligible_step) continue;
      std::uint32_t num_new = r->num_tokens + r->num_output_placeholders - r->num_computed_tokens;
      if (k_.long_prefill_token_threshold > 0) num_new = std::min(num_new, k_.long_prefill_token_threshold);
      num_new = std::min({num_new, token_budget, k_.max_model_len - 1 - r->num_computed_tokens});
      if (num_new == 0) continue;
      bool fits = allocate(*r, num_new);
      while (!fits) {
        const Ref last = running_.back();
        running_.pop_back();
        preempt(last);
        preempted = true;
        if (last == r) break;
        fits = allocate(*r, num_new);
      }
      if (!fits) break;
      token_budget -= num_new;
      out.push_back(scheduled(r, num_new));
    }
    return !preempted;
  }

  void preempt(const Ref& r) {
    pool_.release(r->blocks);
    r->blocks.clear();
    r->cached_blocks = r->num_computed_tokens = 0;
    r->runs = false;
    ++r->seen.preempted;
    ++preemptions;
    waiting_.push_front(r);
  }

  void schedule_waiting(std::vector<Scheduled>& out, std::uint32_t& token_budget) {
    while (!waiting_.empty() && token_budget > 0 && running_.size() < k_.max_num_seqs) {
      const Ref r = waiting_.front();
      if (r->in_flight > 0) break;
      std::vector<KvBlock> hits = computed_blocks(*r);
      const auto computed = static_cast<std::uint32_t>(hits.size()) * k_.block_size;
      std::uint32_t num_new = r->num_tokens - computed;
      if (k_.long_prefill_token_threshold > 0) num_new = std::min(num_new, k_.long_prefill_token_threshold);
      if (!k_.enable_chunked_prefill && num_new > token_budget) break;
      num_new = std::min(num_new, token_budget);
      const std::uint32_t asked = k_.scheduler_reserve_full_isl ? r->num_tokens : computed + num_new;
      const auto kept = running_.empty() ? 0U : static_cast<std::uint32_t>(k_.watermark * pool_.size());
      if (k_.blocks_of(asked) - hits.size() + pool_.idle(hits) + kept > pool_.available()) break;
      pool_.hold(hits);
      r->cached_blocks = hits.size();
      r->blocks = std::move(hits);
      if (!std::exchange(r->began, true)) r->seen.found = computed;
      r->num_computed_tokens = computed;
      allocate(*r, num_new);
      waiting_.pop_front();
      running_.push_back(r);
      r->runs = true;
      token_budget -= num_new;
      out.push_back(scheduled(r, num_new));
    }
  }

  void update_from_output(const Batch& batch) {
    for (const Scheduled& s : batch.scheduled) {
      Req& r = *s.request;
      if (s.chunk) continue;
      --r.in_flight;
      ++r.num_tokens;
      if (k_.async_scheduling) {
        --r.num_output_placeholders;
        if (r.runs) cache(r, r.num_computed_tokens - r.num_output_placeholders);
      }
      r.seen.last = Seconds(now_);
      if (!std::exchange(r.first, true)) r.seen.first = Seconds(now_);
      if (r.num_tokens < r.seen.prompt + r.seen.answer) continue;
      pool_.release(r.blocks);
      answers_.push_back(r.seen);
      std::erase(running_, s.request);
      std::erase(waiting_, s.request);
    }
  }

  static Scheduled scheduled(const Ref& r, std::uint32_t tokens) {
    const std::uint32_t known = r->num_tokens + r->num_output_placeholders;
    const bool decodes = tokens == 1 && r->num_computed_tokens + 1 == known && known > r->seen.prompt;
    return {r, tokens, r->num_computed_tokens, decodes, false};
  }
  void extend(Req& r, std::size_t count) const {
    extend_chain(r.chain, count, {r.words, kTraceBlock, k_.block_size, r.seen.prompt, r.seen.number});
  }
  void cache(Req& r, std::uint32_t tokens) {
    if (!k_.enable_prefix_caching) return;
    const std::size_t full = tokens / k_.block_size;
    extend(r, full);
    for (; r.cached_blocks < full; ++r.cached_blocks)
      pool_.fill(r.blocks[r.cached_blocks], r.chain[r.cached_blocks]);
  }
  std::vector<KvBlock> computed_blocks(Req& r) const {
    std::vector<KvBlock> out;
    if (!k_.enable_prefix_caching) return out;
    const std::size_t most = (r.num_tokens - 1) / k_.block_size;
    extend(r, most);
    pool_.find(std::span(r.chain).first(most), out);
    return out;
  }
  bool allocate(Req& r, std::uint32_t num_new) {
    const std::size_t needed = k_.blocks_of(r.num_computed_tokens + num_new);
    const std::size_t more = needed > r.blocks.size() ? needed - r.blocks.size() : 0;
    if (more > pool_.available()) return false;
    pool_.take(static_cast<std::uint32_t>(more), r.blocks);
    cache(r, std::min(r.num_computed_tokens + num_new, r.num_tokens));
    return true;
  }

  VllmKnobs k_;
  const StageTimes& times_;
  const std::size_t pp_;
  BlockPool pool_;
  double now_ = 0;
  std::uint64_t current_step_ = 0, added_ = 0;
  std::vector<Ref> running_;
  std::deque<Ref> waiting_;
  std::deque<Batch> queue_;
  std::vector<Times> ever_;
  std::optional<Times> last_;  // with somebody
  std::vector<AnsweredRequest> answers_;
};

}  // namespace shardline
