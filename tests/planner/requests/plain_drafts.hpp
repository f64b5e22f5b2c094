// vLLM's scheduler with drafts, in the engine's own terms: slow, and what VllmDraftScheduler must be equal
// to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/draft_law.hpp"
#include "planner/requests/vllm_scheduler.hpp"

namespace shardline {

// schedule(), _update_after_schedule() and update_from_output() of both of its schedulers, one after another;
// blocks one by one. A step's lengths are those of the texts when it begins.
class PlainVllmDrafts : public Scheduler {
 public:
  PlainVllmDrafts(const VllmKnobs& knobs, DraftLaw law)
      : k_(knobs), law_(std::move(law)), pool_(knobs.num_gpu_blocks, knobs.enable_prefix_caching) {}

  std::optional<Id> add(const TraceRequest& request, std::uint32_t text_block = kTraceBlock) override {
    if (request.input >= k_.max_model_len) return std::nullopt;
    auto r = std::make_shared<Req>();
    r->seen.prompt = static_cast<std::uint32_t>(request.input);
    r->seen.answer =
        static_cast<std::uint32_t>(std::min<std::int64_t>(request.output, k_.max_model_len - request.input));
    r->seen.number = added_++;
    r->num_tokens = r->text = r->seen.prompt;
    r->stream = request.number;
    r->words = request.blocks;
    r->text_block = text_block;
    Id id = 0;  // the one that was left last, as the slots of any scheduler
    if (unused_.empty()) {
      id = static_cast<Id>(all_.size());
      all_.push_back(r);
    } else {
      id = unused_.back();
      unused_.pop_back();
      all_[id] = r;
    }
    r->id = id;
    waiting_.push_back(r);
    return id;
  }
  void forget(Id id) override { unused_.push_back(id); }
  std::size_t depth() const override { return k_.async_scheduling ? 2 : 1; }
  std::size_t decided() const override { return outputs_.size(); }
  std::uint64_t steps_alike() const override { return 1; }
  const Scheduler::Request& request(Id id) const override { return all_[id]->seen; }
  std::size_t running() const override { return running_.size(); }
  std::size_t waiting() const override { return waiting_.size(); }
  std::uint64_t preemptions() const override { return preemptions_; }
  double kv_held() const override {
    return 1 - static_cast<double>(pool_.available()) / static_cast<double>(pool_.size());
  }
  const BlockPool& pool() const { return pool_; }

  const StepBatch& front() const override {
    batch_ = {};
    for (const Scheduled& s : outputs_.front()) {
      if (!s.decodes) {
        batch_.prompts.push_back({s.tokens, s.past});
        continue;
      }
      const std::uint32_t cached = s.request->text - 1;
      ++batch_.decodes;
      batch_.cached += cached;
      batch_.longest = std::max(batch_.longest, cached);
    }
    return batch_;
  }

  bool schedule() override {
    std::vector<Scheduled> out;
    std::uint32_t token_budget = k_.max_num_batched_tokens;
    if (schedule_running(out, token_budget)) schedule_waiting(out, token_budget);
    if (out.empty()) return false;
    // _update_after_schedule
    for (Scheduled& s : out) {
      Req& r = *s.request;
      r.num_computed_tokens += s.tokens;
      s.chunk = r.num_computed_tokens < r.num_tokens + r.num_output_placeholders;
      if (s.chunk || !k_.async_scheduling) continue;
      r.num_output_placeholders += 1 + s.drafts;
      r.spec_token_ids = law_.drafts();
    }
    outputs_.push_back(std::move(out));
    return true;
  }

  Ended finish_steps(std::uint64_t /*steps*/ = 1) override {
    const std::vector<Scheduled> out = std::move(outputs_.front());
    outputs_.pop_front();
    ended_.clear();
    std::vector<std::shared_ptr<Req>> stopped;
    for (const Scheduled& s : out) {
      Req& r = *s.request;
      if (r.seen.done || s.chunk) continue;
      const std::uint32_t sampled = s.drafts > 0 ? law_.tokens(r.stream, r.draws++, s.drafts) : 1;
      r.text += sampled;  // in the worker, which knows no end
      const std::uint32_t rejected = s.drafts - (sampled - 1);
      if (r.num_computed_tokens > 0) r.num_computed_tokens -= rejected;
      if (r.num_output_placeholders > 0) r.num_output_placeholders -= rejected;
      const bool was_running = r.runs;
      std::uint32_t taken = 0;
      while (taken < sampled && !r.seen.done) {
        ++taken;
        ++r.num_tokens;
        r.seen.done = r.num_tokens >= k_.max_model_len || r.num_tokens - r.seen.prompt >= r.seen.answer;
      }
      if (k_.async_scheduling) {
        r.num_output_placeholders -= taken;
        if (was_running) cache(r, r.num_computed_tokens - r.num_output_placeholders);
      }
      ended_.push_back(r.id);
      if (r.seen.done) {
        pool_.release(r.blocks);
        r.blocks.clear();
        stopped.push_back(s.request);
      }
    }
    for (const auto& r : stopped) {
      std::erase(running_, r);
      std::erase(waiting_, r);
    }
    // update_draft_token_ids
    if (!k_.async_scheduling) {
      for (const Scheduled& s : out)
        if (!s.request->seen.done) s.request->spec_token_ids = s.chunk ? 0 : law_.drafts();
    }
    return {ended_};
  }

 private:
  struct Req {
    Scheduler::Request seen;
    Id id = 0;
    bool runs = false, began = false;
    std::uint32_t num_tokens = 0, num_computed_tokens = 0, num_output_placeholders = 0, spec_token_ids = 0;
    std::uint32_t text = 0, draws = 0, text_block = 0;
    std::size_t cached_blocks = 0;
    std::uint64_t stream = 0;
    std::vector<std::uint64_t> words;
    std::vector<KvBlock> blocks;
    std::vector<BlockHash> chain;
  };
  struct Scheduled {
    std::shared_ptr<Req> request;
    std::uint32_t tokens = 0, past = 0, drafts = 0;
    bool decodes = false, chunk = false;
  };

  // Whether nobody was preempted.
  bool schedule_running(std::vector<Scheduled>& out, std::uint32_t& token_budget) {
    bool preempted = false;
    for (std::size_t i = 0; i < running_.size() && token_budget > 0; ++i) {
      const auto r = running_[i];
      if (r->num_output_placeholders > 0 &&
          r->num_computed_tokens + 2 - r->num_output_placeholders >= r->seen.prompt + r->seen.answer)
        continue;
      long num_new = long{r->num_tokens} + r->spec_token_ids + r->num_output_placeholders -
                     static_cast<long>(r->num_computed_tokens);
      if (k_.long_prefill_token_threshold > 0)
        num_new = std::min<long>(num_new, k_.long_prefill_token_threshold);
      num_new = std::min<long>(num_new, token_budget);
      num_new = std::min(num_new, long{k_.max_model_len} - 1 - r->num_computed_tokens);
      if (num_new == 0) continue;
      const bool fits = allocate_or_preempt(r, static_cast<std::uint32_t>(num_new), preempted);
      if (!fits) break;
      token_budget -= static_cast<std::uint32_t>(num_new);
      std::uint32_t drafts = 0;
      if (r->spec_token_ids > 0) {
        const long of_step = num_new + r->num_computed_tokens - r->num_tokens - r->num_output_placeholders;
        if (of_step > 0) drafts = std::min(r->spec_token_ids, static_cast<std::uint32_t>(of_step));
        r->spec_token_ids = 0;
      }
      out.push_back(scheduled(r, static_cast<std::uint32_t>(num_new), drafts));
    }
    return !preempted;
  }
  bool allocate_or_preempt(const std::shared_ptr<Req>& r, std::uint32_t num_new, bool& preempted) {
    while (!allocate(*r, num_new, law_.drafts())) {
      const auto last = running_.back();
      running_.pop_back();
      pool_.release(last->blocks);
      last->blocks.clear();
      last->cached_blocks = 0;
      last->runs = false;
      last->num_computed_tokens = last->spec_token_ids = 0;
      ++last->seen.preempted;
      ++preemptions_;
      waiting_.push_front(last);
      preempted = true;
      if (last == r) return false;
    }
    return true;
  }
  void schedule_waiting(std::vector<Scheduled>& out, std::uint32_t& token_budget) {
    while (!waiting_.empty() && token_budget > 0 && running_.size() < k_.max_num_seqs) {
      const auto r = waiting_.front();
      std::vector<KvBlock> hits = computed_blocks(*r);
      const auto computed = static_cast<std::uint32_t>(hits.size()) * k_.block_size;
      std::uint32_t num_new = r->num_tokens - computed;
      if (k_.long_prefill_token_threshold > 0) num_new = std::min(num_new, k_.long_prefill_token_threshold);
      if (!k_.enable_chunked_prefill && num_new > token_budget) break;
      num_new = std::min(num_new, token_budget);
      const std::uint32_t kept =
          running_.empty() ? 0 : static_cast<std::uint32_t>(k_.watermark * pool_.size());
      const std::uint32_t held = pool_.idle(hits) + kept;
      if (k_.scheduler_reserve_full_isl && blocks(r->num_tokens) - hits.size() + held > pool_.available())
        break;
      if (blocks(computed + num_new) - hits.size() + held > pool_.available()) break;
      pool_.hold(hits);
      r->cached_blocks = hits.size();
      r->blocks = std::move(hits);
      r->num_computed_tokens = computed;
      if (!r->began) r->seen.found = computed;
      r->began = r->runs = true;
      const bool fits = allocate(*r, num_new, 0);
      EXPECT_TRUE(fits);
      waiting_.pop_front();
      running_.push_back(r);
      token_budget -= num_new;
      out.push_back(scheduled(r, num_new, 0));
    }
  }

  // One that decodes: all of its text but the last token is computed, and some of it was answered.
  Scheduled scheduled(const std::shared_ptr<Req>& r, std::uint32_t tokens, std::uint32_t drafts) const {
    const std::uint32_t known = r->num_tokens + r->num_output_placeholders;
    return {r,
            tokens,
            r->num_computed_tokens,
            drafts,
            r->num_computed_tokens + 1 == known && known > r->seen.prompt,
            false};
  }
  std::uint32_t blocks(std::uint64_t tokens) const {
    return static_cast<std::uint32_t>((tokens + k_.block_size - 1) / k_.block_size);
  }
  void extend(Req& r, std::size_t count) const {
    extend_chain(r.chain, count, {r.words, r.text_block, k_.block_size, r.seen.prompt, r.seen.number});
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
    if (!out.empty()) out.pop_back();  // use_eagle
    return out;
  }
  bool allocate(Req& r, std::uint32_t num_new, std::uint32_t lookahead) {
    const std::uint32_t need_slot = std::min(r.num_computed_tokens + num_new + lookahead, k_.max_model_len);
    const std::size_t needed = blocks(need_slot);
    const std::size_t more = needed > r.blocks.size() ? needed - r.blocks.size() : 0;
    if (more > pool_.available()) return false;
    pool_.take(static_cast<std::uint32_t>(more), r.blocks);
    cache(r, std::min(r.num_computed_tokens + num_new, r.num_tokens));
    return true;
  }

  VllmKnobs k_;
  DraftLaw law_;
  BlockPool pool_;
  std::vector<std::shared_ptr<Req>> all_, running_;
  std::deque<std::shared_ptr<Req>> waiting_;
  std::deque<std::vector<Scheduled>> outputs_;
  std::vector<Id> unused_, ended_;
  mutable StepBatch batch_;
  std::uint64_t preemptions_ = 0, added_ = 0;
};

}  // namespace shardline
