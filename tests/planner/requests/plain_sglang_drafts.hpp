// SGLang's scheduler with drafts, in the engine's own terms: slow, and what SglangScheduler with a law must
// be equal to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/draft_law.hpp"
#include "planner/requests/radix_tree.hpp"
#include "planner/requests/sglang_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

// get_next_batch_to_run(), PrefillAdder, prepare_for_decode() and process_batch_result() one after another.
// Texts are tokens, of which the tree has pairs; pages are counted one by one. A step's lengths are those of
// the texts when it begins.
class PlainSglangDrafts : public Scheduler {
 public:
  PlainSglangDrafts(const SglangKnobs& knobs, DraftLaw law)
      : k_(knobs),
        law_(std::move(law)),
        free_(knobs.max_total_tokens / knobs.page_size),
        ratio_(first_ratio()) {}

  std::optional<Id> add(const TraceRequest& request, std::uint32_t text_block = kTraceBlock) override {
    const std::int64_t pool = std::int64_t{k_.max_total_tokens} / k_.page_size * k_.page_size;
    const std::int64_t max_req_len = std::min<std::int64_t>(k_.context_length, pool) - 1;
    if (request.input >= max_req_len - 5) return std::nullopt;
    const std::int64_t max_new =
        std::min(request.output, std::max<std::int64_t>(1, max_req_len - request.input - 1));
    if (request.input + std::min<std::int64_t>(max_new, k_.clip_max_new_tokens_estimation) + k_.page_size >=
        pool)
      return std::nullopt;  // it would wait for ever
    auto r = std::make_shared<Req>();
    r->seen.prompt = static_cast<std::uint32_t>(request.input);
    r->seen.answer = static_cast<std::uint32_t>(max_new);
    r->seen.number = added_++;
    r->stream = request.number;
    for (std::uint32_t t = 0; t < r->seen.prompt; ++t) {
      const std::size_t word = t / text_block;
      r->text.push_back(word < request.blocks.size() ? chain_hash(request.blocks[word], t % text_block)
                                                     : own_token(*r, t));
    }
    ++alive_;
    Id id = static_cast<Id>(all_.size());
    if (unused_.empty()) {
      all_.push_back(r);
    } else {
      id = unused_.back();
      unused_.pop_back();
      all_[id] = r;
    }
    r->id = id;
    waiting_queue_.push_back(r);
    return id;
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
    return 1 - static_cast<double>(available()) / static_cast<double>(pages());
  }
  std::uint64_t available_pages() const { return available(); }
  std::uint64_t pages() const { return k_.max_total_tokens / k_.page_size; }

  const StepBatch& front() const override {
    batch_ = results_.front().work;
    for (const auto& r : results_.front().reqs) {
      if (!batch_.prompts.empty()) continue;
      ++batch_.decodes;
      batch_.cached += r->kv;
      batch_.longest = std::max(batch_.longest, r->kv);
    }
    return batch_;
  }

  bool schedule() override {
    if (chunked_req_ != nullptr) cache_unfinished(*chunked_req_);
    if (last_batch_extends_) {
      // The last batch loses who is done and who is still in parts, and joins those that run.
      const std::size_t had = last_batch_.size();
      std::erase_if(last_batch_, [&](const auto& r) { return r->finished || r == chunked_req_; });
      if (last_batch_.size() < had) batch_is_full_ = false;
      if (!last_batch_.empty() && running_batch_.empty()) batch_is_full_ = false;
      running_batch_.insert(running_batch_.end(), last_batch_.begin(), last_batch_.end());
    }
    last_batch_.clear();
    last_batch_extends_ = false;
    return prefill() || decode();
  }

  Ended finish_steps(std::uint64_t /*steps*/ = 1) override {
    const Result out = std::move(results_.front());
    results_.pop_front();
    ended_.clear();
    for (const auto& r : out.reqs) {
      if (r->finished || r->is_retracted) continue;
      if (!out.work.prompts.empty()) {
        if (r == out.chunked) continue;
        answer(*r, 1);
        if (!r->finished) cache_unfinished(*r);
      } else {
        const std::uint32_t accepted = law_.tokens(r->stream, r->verify_ct++, law_.drafts());
        r->kv_committed_len += accepted;
        r->kv += accepted;
        answer(*r, accepted);
      }
      ended_.push_back(r->id);
      if (r->finished) release(*r);
    }
    for (const auto& r : out.reqs) r->is_retracted = false;
    return {ended_};
  }

 private:
  struct Req {
    Scheduler::Request seen;
    Id id = 0;
    std::uint64_t stream = 0;
    std::vector<std::uint64_t> text;  // origin_input_ids + output_ids
    bool finished = false, is_retracted = false, began = false;
    std::uint32_t kv_committed_len = 0, kv_allocated_len = 0, verify_ct = 0;
    std::uint32_t kv = 0;  // seq_lens
    std::uint32_t fill = 0, protected_len = 0;
    RadixNode last_node = 0;
    std::uint32_t outputs() const { return static_cast<std::uint32_t>(text.size()) - seen.prompt; }
  };
  using Ptr = std::shared_ptr<Req>;
  struct Result {
    StepBatch work;  // of prompts
    std::vector<Ptr> reqs;
    Ptr chunked;
  };

  static std::uint64_t own_token(const Req& r, std::uint64_t at) {
    return chain_hash((std::uint64_t{1} << 61) | r.seen.number, at);
  }
  double first_ratio() const { return std::min(1.0, k_.init_new_token_ratio * k_.schedule_conservativeness); }
  double min_ratio() const { return std::min(1.0, first_ratio() * k_.min_new_token_ratio_factor); }
  std::uint64_t available() const { return free_ + tree_.evictable(); }
  std::int64_t available_tokens() const { return static_cast<std::int64_t>(available()) * k_.page_size; }
  std::int64_t ceil_align(std::int64_t tokens) const {
    return (tokens + k_.page_size - 1) / k_.page_size * k_.page_size;
  }
  std::uint32_t clip(std::uint32_t tokens) const {
    return std::min(tokens, k_.clip_max_new_tokens_estimation);
  }
  void evict(std::int64_t tokens) {
    if (static_cast<std::int64_t>(free_ * k_.page_size) < tokens)
      free_ += tree_.evict(static_cast<std::uint64_t>(ceil_align(tokens)) / k_.page_size);
  }
  void alloc(std::int64_t from, std::int64_t to) {
    for (std::int64_t t = ceil_align(from); t < ceil_align(to); t += k_.page_size) {
      if (free_ == 0) throw UserError("out of pages");
      --free_;
    }
  }
  void give_back(std::int64_t from, std::int64_t to) {
    for (std::int64_t t = ceil_align(from); t < ceil_align(to); t += k_.page_size) ++free_;
  }
  // RadixKey with is_bigram, page_aligned: pages of pairs of the first `tokens` tokens.
  std::vector<std::uint64_t> pairs(const Req& r, std::uint32_t tokens) const {
    std::vector<std::uint64_t> out;
    for (std::uint32_t begin = 0; begin + k_.page_size < tokens; begin += k_.page_size) {
      std::uint64_t page = 7;
      for (std::uint32_t i = begin; i < begin + k_.page_size; ++i)
        page = chain_hash(chain_hash(page, r.text[i]), r.text[i + 1]);
      out.push_back(page);
    }
    return out;
  }
  void cache_unfinished(Req& r) {
    if (k_.disable_radix_cache) return;
    const auto key = pairs(r, r.kv_committed_len);
    const auto found = static_cast<std::uint32_t>(tree_.insert(key).pages) * k_.page_size;
    give_back(r.protected_len, std::max(found, r.protected_len));
    const RadixNode node = tree_.match(key).node;
    tree_.unlock(r.last_node);
    tree_.lock(node);
    r.last_node = node;
    r.protected_len = static_cast<std::uint32_t>(key.size()) * k_.page_size;
  }
  void release(Req& r) {
    --alive_;
    r.seen.done = true;
    if (k_.disable_radix_cache) return give_back(0, r.kv_allocated_len);
    const auto key = pairs(r, r.kv_committed_len);
    const auto found = static_cast<std::uint32_t>(tree_.insert(key).pages) * k_.page_size;
    give_back(r.protected_len, std::max(found, r.protected_len));
    give_back(static_cast<std::int64_t>(key.size()) * k_.page_size, r.kv_allocated_len);
    tree_.unlock(r.last_node);
  }
  void answer(Req& r, std::uint32_t tokens) {
    for (; tokens > 0; --tokens) r.text.push_back(own_token(r, r.text.size()));
    r.finished = r.outputs() >= r.seen.answer;
  }

  struct PrefillAdder {
    std::int64_t rem_input, rem_chunk, cur_offset;
    double total_offset;
    std::vector<std::pair<Ptr, std::uint32_t>> can_run;
    Ptr new_chunked;
  };
  double rem_total(const PrefillAdder& a) const {
    return static_cast<double>(available_tokens()) - a.total_offset;
  }
  void update(PrefillAdder& a, const Ptr& r, std::uint32_t extend) const {
    const std::int64_t aligned = ceil_align(extend);
    a.can_run.emplace_back(r, extend);
    a.total_offset +=
        static_cast<double>(aligned + (a.new_chunked == r ? 0 : clip(r->seen.answer)) + k_.page_size);
    a.cur_offset += aligned + k_.page_size;
    a.rem_input -= aligned;
    a.rem_chunk -= aligned;
  }
  void add_chunked_req(PrefillAdder& a) const {
    auto tokens = std::min(a.rem_chunk, static_cast<std::int64_t>(rem_total(a)));
    if (tokens <= 0) tokens = a.rem_chunk;
    const std::uint32_t rest = chunked_req_->fill - chunked_req_->kv_committed_len;
    if (rest > tokens) a.new_chunked = chunked_req_;
    update(a, chunked_req_,
           static_cast<std::uint32_t>(std::min<std::int64_t>(rest, std::max<std::int64_t>(1, tokens))));
  }
  // Whether it goes on.
  bool add_one_req(PrefillAdder& a) {
    const bool chunks = k_.chunked_prefill_size > 0;
    const Ptr r = waiting_queue_.front();
    r->fill = static_cast<std::uint32_t>(r->text.size());
    RadixTree::Match match{};
    if (!k_.disable_radix_cache) match = tree_.match(pairs(*r, r->fill - 1));
    const auto prefix = static_cast<std::uint32_t>(match.pages) * k_.page_size;
    const std::uint32_t extend = r->fill - prefix;
    const double total = static_cast<double>(extend + clip(r->seen.answer - r->outputs()) + k_.page_size);
    batch_is_full_ = total >= rem_total(a);
    if (batch_is_full_ || (!chunks && !a.can_run.empty() && ceil_align(extend) >= a.rem_input)) return false;
    tree_.lock(match.node);
    batch_is_full_ = total >= rem_total(a);
    std::uint32_t now = extend;
    if (chunks && ceil_align(extend) > a.rem_chunk)
      now = static_cast<std::uint32_t>(std::max<std::int64_t>(a.rem_chunk, 0) / k_.page_size * k_.page_size);
    if (batch_is_full_ || now == 0) {
      tree_.unlock(match.node);
      return false;
    }
    if (now < extend) a.new_chunked = r;
    waiting_queue_.pop_front();
    r->last_node = match.node;
    r->protected_len = r->kv_committed_len = r->kv_allocated_len = prefix;
    if (!r->began) r->seen.found = prefix;
    r->began = true;
    update(a, r, now);
    batch_is_full_ = rem_total(a) <= 0 || static_cast<double>(available_tokens() - a.cur_offset) <= 0;
    return !batch_is_full_ && a.rem_input > 0 && (!chunks || a.rem_chunk > 0);
  }
  bool prefill() {
    if ((batch_is_full_ || waiting_queue_.empty()) && chunked_req_ == nullptr) return false;
    const std::size_t bs = running_batch_.size(), most = k_.max_running_requests;
    PrefillAdder a{k_.max_prefill_tokens, k_.chunked_prefill_size, 0, 0, {}, {}};
    for (const Ptr& r : running_batch_)
      if (!r->finished) a.total_offset += clip(r->seen.answer - r->outputs()) * ratio_;
    if (chunked_req_ != nullptr) add_chunked_req(a);
    for (bool more = true; more && !waiting_queue_.empty();) {
      if (a.can_run.size() >= most - std::min(bs, most)) batch_is_full_ = true;
      const bool enough = k_.prefill_max_requests > 0 && a.can_run.size() >= k_.prefill_max_requests;
      more = !batch_is_full_ && !enough && add_one_req(a);
    }
    if (a.can_run.empty()) return false;
    chunked_req_ = a.new_chunked;
    extend_batch(a.can_run);
    return true;
  }
  void extend_batch(const std::vector<std::pair<Ptr, std::uint32_t>>& can_run) {
    std::int64_t asked = 0;
    for (const auto& [r, now] : can_run) asked += now + (k_.page_size > 1 ? k_.page_size : 0);
    evict(asked);
    Result out;
    out.chunked = chunked_req_;
    for (const auto& [r, now] : can_run) {
      alloc(r->kv_committed_len, r->kv_committed_len + now);
      out.work.prompts.push_back({now, r->kv_committed_len});
      r->kv_committed_len += now;
      r->kv = r->kv_allocated_len = r->kv_committed_len;
      out.reqs.push_back(r);
      last_batch_.push_back(r);
    }
    last_batch_extends_ = true;
    results_.push_back(std::move(out));
  }

  std::int64_t required(const std::vector<Ptr>& reqs) const {
    const std::int64_t alloc_len = 1 + law_.drafts();
    std::int64_t total = 0;
    for (const Ptr& r : reqs) {
      const std::int64_t x =
          std::max<std::int64_t>(0, r->kv_committed_len + 2 * alloc_len - r->kv_allocated_len);
      total += ceil_align(r->kv_allocated_len + x) - ceil_align(r->kv_allocated_len);
    }
    return total;
  }
  bool check_decode_mem(const std::vector<Ptr>& reqs) {
    evict(required(reqs));
    return static_cast<std::int64_t>(free_ * k_.page_size) >= required(reqs);
  }
  bool decode() {
    const std::size_t initial = running_batch_.size();
    std::erase_if(running_batch_, [](const Ptr& r) { return r->finished; });
    if (running_batch_.size() < initial) batch_is_full_ = false;
    if (running_batch_.empty()) return false;
    if (check_decode_mem(running_batch_)) {
      const double decay = (first_ratio() - min_ratio()) / k_.new_token_ratio_decay_steps;
      ratio_ = std::max(ratio_ - decay, min_ratio());
    } else {
      retract_decode();
    }
    std::int64_t needed = 0;
    for (const Ptr& r : running_batch_)
      needed += r->kv_committed_len + 2 * (1 + law_.drafts()) - r->kv_allocated_len;
    evict(needed + (k_.page_size > 1 ? static_cast<std::int64_t>(running_batch_.size()) * k_.page_size : 0));
    Result out;
    for (const Ptr& r : running_batch_) {
      const std::uint32_t next = r->kv_committed_len + 2 * (1 + law_.drafts());
      alloc(r->kv_allocated_len, next);
      r->kv_allocated_len = next;
      out.reqs.push_back(r);
    }
    results_.push_back(std::move(out));
    return true;
  }
  void retract_decode() {
    std::vector<Ptr> sorted = running_batch_;
    std::stable_sort(sorted.begin(), sorted.end(), [](const Ptr& a, const Ptr& b) {
      return a->outputs() != b->outputs() ? a->outputs() > b->outputs() : a->seen.prompt < b->seen.prompt;
    });
    std::vector<Ptr> retracted;
    for (bool first = true; first || !check_decode_mem(sorted); first = false) {
      if (sorted.size() == 1) break;
      const Ptr r = sorted.back();
      sorted.pop_back();
      give_back(r->protected_len, r->kv_allocated_len);
      tree_.unlock(r->last_node);
      r->last_node = 0;
      evict(static_cast<std::int64_t>(sorted.size()) * k_.retract_decode_steps);
      r->kv_committed_len = r->kv_allocated_len = r->protected_len = 0;
      // Its part of the step under way is skipped; without one it is not.
      for (const Result& one : results_)
        r->is_retracted = r->is_retracted || std::find(one.reqs.begin(), one.reqs.end(), r) != one.reqs.end();
      ++r->seen.preempted;
      ++retractions_;
      retracted.push_back(r);
    }
    running_batch_ = sorted;
    double decoded = 0, most = 0;
    for (const Ptr& r : sorted) {
      decoded += r->outputs();
      most += r->seen.answer;
    }
    ratio_ =
        std::min(1.0, (decoded + k_.retract_decode_steps * static_cast<double>(sorted.size())) / (most + 1));
    waiting_queue_.insert(waiting_queue_.end(), retracted.begin(), retracted.end());
    if (!retracted.empty()) batch_is_full_ = false;
  }

  SglangKnobs k_;
  DraftLaw law_;
  RadixTree tree_;
  std::uint64_t free_;
  double ratio_;
  std::vector<Ptr> all_, running_batch_, last_batch_;
  std::deque<Ptr> waiting_queue_;
  std::deque<Result> results_;
  Ptr chunked_req_;
  bool batch_is_full_ = false, last_batch_extends_ = false;
  std::vector<Id> unused_, ended_;
  mutable StepBatch batch_;
  std::uint64_t retractions_ = 0, added_ = 0;
  std::size_t alive_ = 0;
};

}  // namespace shardline
