// vLLM's scheduler with drafts, in the engine's own terms: slow, and what VllmDraftScheduler must be equal
// to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/draft_law.hpp"
#include "planner/requests/vllm_scheduler.hpp"

namespace shardline {

// schedule(), _update_after_schedule() and update_from_output() of both of its schedulers, with NixlConnector
// where it has a role; blocks one by one. A step's lengths are those of the texts when it begins.
class PlainVllmDrafts : public Scheduler {
 public:
  PlainVllmDrafts(const VllmKnobs& knobs, DraftLaw law)
      : PlainVllmDrafts(knobs, PairRole::none, std::move(law)) {}
  PlainVllmDrafts(const VllmKnobs& knobs, PairRole role, DraftLaw law)
      : k_(knobs),
        role_(role),
        law_(std::move(law)),
        pool_(knobs.num_gpu_blocks, knobs.enable_prefix_caching) {}

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
    r->do_remote_prefill = role_ == PairRole::decodes && !request.local_prefill;
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
    for (const Scheduled& s : outputs_.front().scheduled) {
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
    if (decide()) return true;
    // An engine's loop goes on at once, where a pair's is not one of several groups.
    const bool lost = std::exchange(lost_blocks_, false);
    if (role_ == PairRole::none || !outputs_.empty() || (told_.empty() && !lost)) return false;
    look_at_once();
    return decide();
  }
  void schedule_or_dummy() override {
    if (!decide()) outputs_.push_back({{}, std::exchange(told_, {})});
  }
  void look_at_once() override { transfers_finished(std::exchange(told_, {}), true); }
  void take_reads(std::vector<Read>& out) override {
    for (const Read& r : std::exchange(reads_, {})) out.push_back(r);
  }
  void has_read(Id id) override { told_.push_back(id); }
  void was_read(std::uint64_t number, bool /*at_once*/) override { told_.push_back(number); }
  bool read_fails(Id id) override {
    all_[id]->invalid_blocks = true;
    told_.push_back(id);
    return k_.recompute_failed_loads;
  }
  void take_failed(std::vector<Failed>& out) override {
    for (const Failed& f : std::exchange(failed_, {})) out.push_back(f);
  }

  Ended finish_steps(std::uint64_t /*steps*/ = 1) override {
    const Output output = std::move(outputs_.front());
    const std::vector<Scheduled>& out = output.scheduled;
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
        if (role_ == PairRole::prefills)
          sending_[r.seen.number] = r.blocks;  // request_finished
        else
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
    transfers_finished(output.told, false);
    return {ended_};
  }

 private:
  struct Req {
    Scheduler::Request seen;
    Id id = 0;
    bool runs = false, began = false;
    // WAITING_FOR_REMOTE_KVS, in finished_recving_kv_req_ids, whether anything came.
    bool do_remote_prefill = false, remote_kvs = false, finished_recving = false, invalid_blocks = false;
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
  struct Output {
    std::vector<Scheduled> scheduled;
    std::vector<std::uint64_t> told;  // what the worker says of transfers at its end
  };

  bool decide() {
    std::vector<Scheduled> out;
    std::uint32_t token_budget = k_.max_num_batched_tokens;
    lost_blocks_ = !schedule_running(out, token_budget);
    if (!lost_blocks_) schedule_waiting(out, token_budget);
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
    outputs_.push_back({std::move(out), std::exchange(told_, {})});
    return true;
  }

  // _update_from_kv_xfer_finished, and of reads that failed (`kv_load_failure_policy`).
  void transfers_finished(const std::vector<std::uint64_t>& told, bool at_once) {
    for (const std::uint64_t it : told) {
      if (role_ == PairRole::prefills) {
        pool_.release(sending_.at(it));
        sending_.erase(it);
        continue;
      }
      const auto r = all_[it];
      if (!r->invalid_blocks || (k_.recompute_failed_loads && r->seen.found > 0)) {
        r->finished_recving = true;
        continue;
      }
      pool_.release(r->blocks);
      r->blocks.clear();
      r->cached_blocks = 0;
      r->remote_kvs = r->invalid_blocks = r->began = false;
      if (k_.recompute_failed_loads) continue;
      failed_.push_back({r->seen.number, at_once});
      std::erase(waiting_, r);
      unused_.push_back(r->id);
    }
  }

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
    for (const auto& r : std::vector<std::shared_ptr<Req>>(waiting_.begin(), waiting_.end())) {
      if (token_budget == 0 || running_.size() == k_.max_num_seqs) break;
      if (r->remote_kvs && !r->finished_recving) continue;
      if (r->remote_kvs) update_waiting_for_remote_kv(*r);
      const std::uint32_t was_computed = r->num_computed_tokens;
      std::vector<KvBlock> hits;
      if (was_computed == 0) hits = computed_blocks(*r);
      const std::uint32_t computed = was_computed + static_cast<std::uint32_t>(hits.size()) * k_.block_size;
      // get_num_new_matched_tokens
      const std::uint32_t external = r->do_remote_prefill ? r->seen.prompt - computed : 0;
      std::uint32_t num_new = external > 0 ? 0 : r->num_tokens - computed;
      if (k_.long_prefill_token_threshold > 0) num_new = std::min(num_new, k_.long_prefill_token_threshold);
      if (!k_.enable_chunked_prefill && num_new > token_budget) break;
      num_new = std::min(num_new, token_budget);
      // effective_lookahead_tokens
      const std::uint32_t lookahead = was_computed == 0 ? 0 : law_.drafts();
      const std::uint32_t slots = std::min(computed + external + num_new + lookahead, k_.max_model_len);
      const std::size_t has = r->blocks.size() + hits.size();
      const auto more = [&](std::uint32_t tokens) {
        return std::max<std::size_t>(blocks(tokens), has) - has;
      };
      const std::uint32_t kept =
          running_.empty() ? 0 : static_cast<std::uint32_t>(k_.watermark * pool_.size());
      const std::uint32_t held = pool_.idle(hits) + kept;
      if (k_.scheduler_reserve_full_isl && more(r->num_tokens) + held > pool_.available()) break;
      if (more(slots) + held > pool_.available()) break;
      pool_.hold(hits);
      if (was_computed == 0 && has == hits.size()) {
        r->cached_blocks = hits.size();
        r->blocks = std::move(hits);
        if (!r->began) r->seen.found = computed;
      }
      r->began = true;
      r->num_computed_tokens = computed;
      if (external > 0) {
        pool_.take(static_cast<std::uint32_t>(more(slots)), r->blocks);
        r->do_remote_prefill = false;
        r->num_computed_tokens = 0;
        r->remote_kvs = true;
        reads_.push_back({r->id, r->seen.number, external});
        continue;
      }
      const bool fits = allocate(*r, num_new, lookahead);
      EXPECT_TRUE(fits);
      std::erase(waiting_, r);
      running_.push_back(r);
      r->runs = true;
      token_budget -= num_new;
      out.push_back(scheduled(r, num_new, 0));
      r->remote_kvs = false;
    }
  }

  void update_waiting_for_remote_kv(Req& r) {
    // _update_requests_with_invalid_blocks: what was found here is valid.
    if (r.invalid_blocks) {
      r.num_computed_tokens = r.seen.found;
      return;
    }
    r.num_computed_tokens =
        std::min(static_cast<std::uint32_t>(r.blocks.size()) * k_.block_size, r.num_tokens);
    if (r.num_computed_tokens == r.num_tokens) --r.num_computed_tokens;
    cache(r, r.num_computed_tokens);
  }

  // One that decodes: all of its text but the last token is computed, and some of it was answered.
  Scheduled scheduled(const std::shared_ptr<Req>& r, std::uint32_t tokens, std::uint32_t drafts) const {
    const std::uint32_t known = r->num_tokens + r->num_output_placeholders;
    return {r,
            tokens,
            r->num_computed_tokens,
            drafts,
            r->num_computed_tokens + 1 == known && (known > r->seen.prompt || r->finished_recving),
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
  PairRole role_;
  DraftLaw law_;
  BlockPool pool_;
  std::vector<std::shared_ptr<Req>> all_, running_;
  std::deque<std::shared_ptr<Req>> waiting_;
  std::deque<Output> outputs_;
  std::vector<std::uint64_t> told_;
  std::vector<Read> reads_;
  std::vector<Failed> failed_;
  std::map<std::uint64_t, std::vector<KvBlock>> sending_;  // by number
  std::vector<Id> unused_, ended_;
  mutable StepBatch batch_;
  std::uint64_t preemptions_ = 0, added_ = 0;
  bool lost_blocks_ = false;  // somebody, in the step decided last
};

}  // namespace shardline
