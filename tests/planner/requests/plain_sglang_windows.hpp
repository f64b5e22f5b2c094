// SGLang's scheduler for models with windows, in the engine's own terms: slow, and what SglangScheduler with
// sliding_window must be equal to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/sglang_scheduler.hpp"
#include "sim/base/error.hpp"
#include "tests/planner/requests/plain_window_kv.hpp"

namespace shardline {

// get_next_batch_to_run(), PrefillAdder, prepare_for_decode() and process_batch_result() one after another,
// with batches that are objects, a slot for each token and a tree of slots.
class PlainSglangWindows : public Scheduler {
 public:
  struct Counts {
    std::uint64_t dropped = 0, parked = 0, refused_for_windows = 0, mixed = 0;
  };

  explicit PlainSglangWindows(const SglangKnobs& knobs)
      : k_(knobs),
        page_(knobs.page_size),
        kv_(knobs),
        ratio_(first_ratio()),
        running_batch_(std::make_shared<Batch>()) {}

  std::optional<Id> add(const TraceRequest& request, std::uint32_t text_block = kTraceBlock) override {
    const std::int64_t max_req_len = std::min<std::int64_t>(k_.context_length, kv_.full) - 1;
    if (request.input >= max_req_len - 5) return std::nullopt;
    const std::int64_t max_new =
        std::min(request.output, std::max<std::int64_t>(1, max_req_len - request.input - 1));
    // These would wait for ever.
    if (request.input + clip(max_new) + page_ >= kv_.full) return std::nullopt;
    const std::int64_t step =
        chunks() ? std::min<std::int64_t>(request.input, k_.chunked_prefill_size) : request.input;
    if (std::max<std::int64_t>(step, k_.sliding_window) + page_ >= kv_.swa) return std::nullopt;
    auto r = std::make_shared<Req>();
    r->seen.prompt = static_cast<std::uint32_t>(request.input);
    r->seen.answer = static_cast<std::uint32_t>(max_new);
    r->seen.number = added_++;
    r->last_node = kv_.tree.root();
    for (std::uint32_t t = 0; t < r->seen.prompt; ++t) {
      const std::size_t word = t / text_block;
      r->text.push_back(word < request.blocks.size() ? chain_hash(request.blocks[word], t % text_block)
                                                     : r->own_token(t));
    }
    ++alive_;
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
  void rests() override { ratio_ = first_ratio(); }
  void forget(Id id) override { unused_.push_back(id); }
  std::size_t depth() const override { return k_.disable_overlap_schedule ? 1 : 2; }
  std::size_t decided() const override { return results_.size(); }
  std::uint64_t steps_alike() const override { return 1; }
  const Scheduler::Request& request(Id id) const override { return all_[id]->seen; }
  std::size_t running() const override { return alive_ - waiting_queue_.size(); }
  std::size_t waiting() const override { return waiting_queue_.size(); }
  std::uint64_t preemptions() const override { return retractions_; }
  double kv_held() const override {
    const auto held = [](std::int64_t left, std::int64_t of) { return 1 - double(left) / double(of); };
    return std::max(held(kv_.full_left(), kv_.full), held(kv_.swa_left(), kv_.swa));
  }
  const StepBatch& front() const override { return results_.front().work; }
  const PlainWindowKv& kv() const { return kv_; }
  const Counts& counts() const { return counts_; }

  bool schedule() override {
    if (chunked_req_ != nullptr && chunked_req_->extend_end > chunked_req_->prefix_len) {
      kv_.cache_unfinished(*chunked_req_);
      chunked_req_->prefix_len = chunked_req_->extend_end;
    }
    if (last_batch_ != nullptr && last_batch_->extend) {
      const Ptr chunked = last_batch_->chunked;
      std::erase_if(last_batch_->reqs,
                    [&](const Ptr& r) { return r->finished || r == chunked_req_ || r == chunked; });
      const auto& reqs = last_batch_->reqs;
      if (!reqs.empty() && running_batch_->reqs.empty())
        running_batch_ = last_batch_;
      else
        running_batch_->reqs.insert(running_batch_->reqs.end(), reqs.begin(), reqs.end());
    }
    const auto done = [](const Ptr& r) { return r->finished; };
    const bool fewer = std::any_of(running_batch_->reqs.begin(), running_batch_->reqs.end(), done);
    last_batch_ = get_new_batch_prefill();
    if (last_batch_ == nullptr) last_batch_ = update_running_batch();
    if (last_batch_ == nullptr && results_.empty() && !fewer && alive_ > 0)
      throw EngineStops("SGLang stands still");
    if (last_batch_ == nullptr) return false;
    last_batch_->forward_iter = ++forward_ct_;
    Result out{{}, last_batch_->reqs, last_batch_->decoding, last_batch_->chunked};
    if (!last_batch_->extend) out.decoding = out.reqs;
    for (const Ptr& r : out.reqs) {
      if (is_in(r, out.decoding)) {
        ++out.work.decodes;
        out.work.cached += static_cast<std::uint64_t>(r->held() - 1);
        out.work.longest = std::max(out.work.longest, static_cast<std::uint32_t>(r->held() - 1));
      } else {
        out.work.prompts.push_back({static_cast<std::uint32_t>(r->extend_end - r->prefix_len),
                                    static_cast<std::uint32_t>(r->prefix_len)});
      }
    }
    results_.push_back(std::move(out));
    return true;
  }

  Ended finish_steps(std::uint64_t /*steps*/ = 1) override {
    const Result out = std::move(results_.front());
    results_.pop_front();
    ended_.clear();
    for (const Ptr& r : out.reqs) {
      if (r->finished || r->is_retracted || r == out.chunked) continue;
      r->text.push_back(r->own_token(r->text.size()));
      r->finished = r->outputs() >= r->seen.answer;
      ended_.push_back(r->id);
      if (r->finished)
        leave(*r);
      else if (!is_in(r, out.decoding))
        kv_.cache_unfinished(*r);
    }
    for (const Ptr& r : out.reqs) r->is_retracted = false;
    return {ended_};
  }

 private:
  using Req = PlainWindowReq;
  using Ptr = std::shared_ptr<Req>;
  struct Batch {
    std::vector<Ptr> reqs, decoding;
    Ptr chunked;
    bool extend = false;
    std::uint64_t forward_iter = 0;
  };
  struct Result {
    StepBatch work;
    std::vector<Ptr> reqs, decoding;
    Ptr chunked;
  };

  static bool is_in(const Ptr& r, const std::vector<Ptr>& of) {
    return std::find(of.begin(), of.end(), r) != of.end();
  }
  bool chunks() const { return k_.chunked_prefill_size > 0; }
  double first_ratio() const { return std::min(1.0, k_.init_new_token_ratio * k_.schedule_conservativeness); }
  double min_ratio() const { return std::min(1.0, first_ratio() * k_.min_new_token_ratio_factor); }
  std::int64_t ceil_align(std::int64_t tokens) const { return (tokens + page_ - 1) / page_ * page_; }
  std::int64_t clip(std::int64_t tokens) const {
    return std::min<std::int64_t>(tokens, k_.clip_max_new_tokens_estimation);
  }
  std::int64_t answer_left(const Req& r) const { return std::int64_t{r.seen.answer} - r.outputs(); }

  void leave(Req& r) {
    --alive_;
    r.seen.done = true;
    kv_.cache_finished(r);
  }

  struct PrefillAdder {
    double rem_total_token_offset = 0;
    std::int64_t cur_rem_token_offset = 0, rem_input = 0, rem_chunk = 0, rem_swa_token_offset = 0;
    std::vector<Ptr> can_run_list;
    Ptr new_chunked_req;
  };
  double rem_total(const PrefillAdder& a) const { return double(kv_.full_left()) - a.rem_total_token_offset; }
  std::int64_t rem_swa(const PrefillAdder& a) const { return kv_.swa_left() - a.rem_swa_token_offset; }
  std::int64_t swa_budget_for_req(const PrefillAdder& a, std::int64_t extend) const {
    const std::int64_t alloc = chunks() ? std::min(extend, a.rem_chunk) : extend;
    return std::max<std::int64_t>(alloc, k_.sliding_window) + page_;
  }
  void update(PrefillAdder& a, const Ptr& r, std::int64_t tokens, std::int64_t max_new) const {
    r->extend_end = r->prefix_len + tokens;
    a.can_run_list.push_back(r);
    const std::int64_t extend = ceil_align(tokens);
    a.rem_total_token_offset += double(extend + max_new + page_);
    a.cur_rem_token_offset += extend + page_;
    a.rem_input -= extend;
    a.rem_swa_token_offset += swa_budget_for_req(a, extend);
    a.rem_chunk -= extend;
  }
  // What is left of its prompt behind the part, if any.
  Ptr add_chunked_req(PrefillAdder& a) {
    const Ptr r = chunked_req_;
    const std::int64_t rem =
        std::min({a.rem_chunk, static_cast<std::int64_t>(rem_total(a)), rem_swa(a) - page_});
    if (rem <= 0) {
      ++counts_.parked;
      return r;
    }
    const std::int64_t extend = r->fill - r->prefix_len;
    const bool truncated = extend > rem;
    update(a, r, std::min(extend, rem), truncated ? 0 : clip(r->seen.answer));
    return truncated ? r : nullptr;
  }
  // Whether it goes on.
  bool add_one_req(PrefillAdder& a) {
    if (k_.prefill_max_requests > 0 && a.can_run_list.size() >= k_.prefill_max_requests) return false;
    const Ptr r = waiting_queue_.front();
    r->fill = r->seqlen();
    const auto [slots, node] = kv_.tree.match_prefix(part_of(r->text, 0, r->text.size() - 1));
    const auto prefix = static_cast<std::int64_t>(slots.size());
    const std::int64_t extend = r->fill - prefix, paged = ceil_align(extend);
    const double total = double(extend + clip(answer_left(*r)) + page_);
    const auto no_token = [&] {
      if (total >= rem_total(a)) return true;
      const bool windows = swa_budget_for_req(a, extend) >= rem_swa(a);
      counts_.refused_for_windows += windows ? 1 : 0;
      return windows;
    };
    if (no_token()) return false;
    if (!chunks() && !a.can_run_list.empty() && paged >= a.rem_input) return false;
    const int uuid = kv_.tree.inc_lock_ref(node);
    std::int64_t now = extend;
    bool fits = !no_token();
    if (fits && chunks() && paged > a.rem_chunk) {
      now = a.rem_chunk < 0 ? 0 : a.rem_chunk / page_ * page_;
      fits = now > 0;
    }
    if (!fits) {
      kv_.tree.dec_lock_ref(node, uuid);
      return false;
    }
    waiting_queue_.pop_front();
    r->last_node = node;
    r->swa_uuid_for_lock = uuid;
    r->slots = slots;
    r->prefix_len = r->cache_protected_len = prefix;
    if (!r->began) r->seen.found = static_cast<std::uint32_t>(prefix);
    r->began = true;
    if (now < extend) a.new_chunked_req = r;
    update(a, r, now, now < extend ? 0 : clip(r->seen.answer));
    return rem_total(a) > 0 && kv_.full_left() - a.cur_rem_token_offset > 0 && rem_swa(a) > 0 &&
           a.rem_input > 0 && (!chunks() || a.rem_chunk > 0);
  }
  // batch_is_full is reset in every step, as is_hybrid_swa.
  std::shared_ptr<Batch> get_new_batch_prefill() {
    if (waiting_queue_.empty() && chunked_req_ == nullptr) return nullptr;
    const std::size_t bs = running_batch_->reqs.size(), most = k_.max_running_requests;
    const std::size_t allocatable = most - std::min(bs, most);
    if (allocatable == 0 && chunked_req_ == nullptr) return nullptr;
    const std::int64_t mixed = k_.enable_mixed_chunk ? std::int64_t(bs) : 0;
    PrefillAdder a;
    a.rem_input = k_.max_prefill_tokens - mixed;
    a.rem_chunk = k_.chunked_prefill_size - mixed;
    a.rem_total_token_offset = double(mixed);
    a.cur_rem_token_offset = mixed;
    for (const Ptr& r : running_batch_->reqs)
      if (!r->finished) a.rem_total_token_offset += double(clip(answer_left(*r))) * ratio_;
    if (chunked_req_ != nullptr) chunked_req_ = add_chunked_req(a);
    while (!waiting_queue_.empty() && a.can_run_list.size() < allocatable && add_one_req(a)) {
    }
    if (a.can_run_list.empty()) return nullptr;
    if (a.new_chunked_req != nullptr) {
      SL_CHECK(chunked_req_ == nullptr, "one prompt is cut");
      chunked_req_ = a.new_chunked_req;
    }
    auto batch = std::make_shared<Batch>();
    batch->reqs = a.can_run_list;
    batch->chunked = chunked_req_;
    batch->extend = true;
    std::int64_t asked = 0;
    for (const Ptr& r : batch->reqs) asked += r->extend_end - r->prefix_len + (page_ > 1 ? page_ : 0);
    kv_.tree.evict_from_tree_cache(asked);
    for (const Ptr& r : batch->reqs) kv_.extend(*r, r->extend_end);
    if (k_.enable_mixed_chunk) mix(*batch);
    return batch;
  }
  void mix(Batch& batch) {
    std::vector<Ptr>& reqs = running_batch_->reqs;
    std::erase_if(reqs, [](const Ptr& r) { return r->finished; });
    if (!reqs.empty()) {
      prepare_for_decode();
      batch.decoding = reqs;
      batch.reqs.insert(batch.reqs.end(), reqs.begin(), reqs.end());
      ++counts_.mixed;
    }
    running_batch_ = std::make_shared<Batch>();
  }

  bool check_decode_mem(const std::vector<Ptr>& reqs) {
    std::int64_t tokens = 0;
    for (const Ptr& r : reqs) tokens += r->held() % page_ == 0 ? page_ : 0;
    kv_.tree.evict_from_tree_cache(tokens);
    return kv_.pools.available() >= tokens;
  }
  void prepare_for_decode() {
    maybe_evict_swa();
    kv_.tree.evict_from_tree_cache(std::int64_t(running_batch_->reqs.size()) * page_);
    for (const Ptr& r : running_batch_->reqs) {
      kv_.extend(*r, r->held() + 1);
      ++r->decode_batch_idx;
    }
  }
  void maybe_evict_swa() {
    if (running_batch_->forward_iter % k_.swa_eviction_interval != 0) return;
    for (const Ptr& r : running_batch_->reqs)
      if (r->decode_batch_idx >= 1 && kv_.evict_swa(*r)) ++counts_.dropped;
  }
  std::shared_ptr<Batch> update_running_batch() {
    std::vector<Ptr>& reqs = running_batch_->reqs;
    std::erase_if(reqs, [](const Ptr& r) { return r->finished; });
    if (reqs.empty()) return nullptr;
    if (check_decode_mem(reqs))
      ratio_ = std::max(ratio_ - (first_ratio() - min_ratio()) / k_.new_token_ratio_decay_steps, min_ratio());
    else
      retract_decode();
    prepare_for_decode();
    running_batch_->extend = false;
    running_batch_->chunked = nullptr;
    running_batch_->decoding.clear();
    return running_batch_;
  }
  void retract_decode() {
    std::vector<Ptr> sorted = running_batch_->reqs;
    std::stable_sort(sorted.begin(), sorted.end(), [](const Ptr& a, const Ptr& b) {
      return a->outputs() != b->outputs() ? a->outputs() > b->outputs() : a->seen.prompt < b->seen.prompt;
    });
    for (bool first = true; first || !check_decode_mem(sorted); first = false) {
      if (sorted.size() == 1) break;
      const Ptr r = sorted.back();
      sorted.pop_back();
      kv_.retract(*r, std::int64_t(sorted.size()), k_.retract_decode_steps);
      for (const Result& one : results_) r->is_retracted = r->is_retracted || is_in(r, one.reqs);
      ++r->seen.preempted;
      ++retractions_;
      waiting_queue_.push_back(r);
    }
    running_batch_->reqs = sorted;
    double decoded = 0, most = 0;
    for (const Ptr& r : sorted) {
      decoded += r->outputs();
      most += r->seen.answer;
    }
    ratio_ = std::min(1.0, (decoded + k_.retract_decode_steps * double(sorted.size())) / (most + 1));
  }

  SglangKnobs k_;
  const std::int64_t page_;
  PlainWindowKv kv_;
  double ratio_;
  std::vector<Ptr> all_;
  std::shared_ptr<Batch> running_batch_, last_batch_;
  std::deque<Ptr> waiting_queue_;
  std::deque<Result> results_;
  Ptr chunked_req_;
  std::uint64_t forward_ct_ = 0;
  std::vector<Id> unused_, ended_;
  std::uint64_t retractions_ = 0, added_ = 0;
  std::size_t alive_ = 0;
  Counts counts_;
};

}  // namespace shardline
