// SGLang with pipeline stages as event_loop_pp goes round, iteration by iteration, in the engine's own terms:
// slow, and what SglangScheduler played by the clock of its stages must be equal to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planner/requests/played_engine.hpp"
#include "planner/requests/radix_tree.hpp"
#include "planner/requests/sglang_scheduler.hpp"
#include "tests/planner/requests/plain_ring.hpp"
#include "tests/planner/requests/plain_sglang.hpp"

namespace shardline {

class PlainSglangPipeline {
 public:
  PlainSglangPipeline(const SglangKnobs& knobs, const StageTimes& times)
      : k_(knobs),
        ring_(times, knobs.pp_async_batch_depth),
        size_(knobs.pp_size + knobs.pp_async_batch_depth),
        most_(knobs.pp_max_micro_batch_size > 0 ? knobs.pp_max_micro_batch_size
                                                : std::max(1U, knobs.max_running_requests / knobs.pp_size)),
        free_(knobs.max_total_tokens / knobs.page_size),
        first_ratio_(std::min(1.0, knobs.init_new_token_ratio * knobs.schedule_conservativeness)),
        ratio_(first_ratio_),
        mbs_(size_),
        last_mbs_(size_),
        running_mbs_(size_) {
    for (Ref& b : running_mbs_) b = std::make_shared<Batch>();
  }

  // Throws PlainStop where the engine ends with an error, or a request.
  std::vector<AnsweredRequest> play(const std::vector<TraceRequest>& requests) {
    std::size_t next = 0, nothing = 0;
    while (answers_.size() < requests.size()) {
      bool server_is_idle = true;
      for (std::size_t mb = 0; mb < size_; ++mb) {
        // With nothing to do for a while only somebody who comes changes anything; whose turn it is then is
        // anybody's guess, here that of who was last.
        if (nothing >= 2 * size_ && nothing % size_ == size_ - 1 && added_ == answers_.size() &&
            next < requests.size())
          now_ = std::max(now_, requests[next].arrival.value);
        if (nothing > 8 * size_ && added_ > answers_.size()) throw PlainStop("the engine stands still");
        while (next < requests.size() && requests[next].arrival.value <= now_) add(requests[next++]);
        iteration(mb);
        nothing = mbs_[mb] ? 0 : nothing + 1;
        server_is_idle = server_is_idle && !mbs_[mb];
      }
      if (server_is_idle) ratio_ = first_ratio_;
    }
    return answers_;
  }

  std::uint64_t available() const { return free_ + tree_.evictable(); }
  std::uint64_t retractions = 0, batches = 0, chunks = 0, closed = 0;

 private:
  struct Req {
    AnsweredRequest seen;
    std::vector<std::uint64_t> words;
    std::uint32_t output = 0, fill = 0, computed = 0, in_tree = 0;
    bool began = false, finished = false, holds = false;
    RadixNode node = 0;
  };
  using ReqRef = std::shared_ptr<Req>;
  struct Batch {
    std::vector<ReqRef> reqs;
    ReqRef chunked_req;
    bool extend = false, batch_is_full = false;
    std::size_t number = 0;  // of those that were launched
    void filter(const ReqRef& a = {}, const ReqRef& b = {}) {
      std::erase_if(reqs, [&](const ReqRef& r) { return r->finished || r == a || r == b; });
    }
  };
  using Ref = std::shared_ptr<Batch>;

  void add(const TraceRequest& request) {
    auto r = std::make_shared<Req>();
    r->seen.number = added_++;
    r->seen.came = request.arrival;
    r->seen.prompt = static_cast<std::uint32_t>(request.input);
    const std::int64_t most =
        std::min<std::int64_t>(k_.context_length, k_.max_total_tokens / k_.page_size * k_.page_size) - 1;
    r->seen.answer = static_cast<std::uint32_t>(
        std::min<std::int64_t>(request.output, std::max<std::int64_t>(1, most - request.input - 1)));
    r->words = request.blocks;
    waiting_.push_back(std::move(r));
  }

  void iteration(std::size_t mb) {
    const std::size_t next = (mb + 1) % size_;
    mbs_[mb] = get_next_batch_to_run(mb);
    const bool buffers = k_.pp_async_batch_depth > 0;
    const double before = buffers && mbs_[next] ? ring_.sees(mbs_[next]->number) : 0;
    if (mbs_[mb]) {
      mbs_[mb]->number = ring_.count();
      ++batches;
    }
    ring_.launch(mbs_[mb] ? work_ : StepBatch{}, std::max(now_, before));
    if (!mbs_[next]) return;
    now_ = std::max(now_, buffers ? before : ring_.sees(mbs_[next]->number));
    process(*mbs_[next]);
    last_mbs_[next] = mbs_[next];
  }

  Ref get_next_batch_to_run(std::size_t mb) {
    Ref& running = running_mbs_[mb];
    const Ref last = last_mbs_[mb];
    if (chunked_) cache_unfinished(*chunked_);
    if (last && last->extend) {
      const std::size_t before = last->reqs.size();
      last->filter(chunked_, last->chunked_req);
      if (last->reqs.size() < before) running->batch_is_full = false;
      if (!last->reqs.empty()) {
        if (running->reqs.empty())
          running = std::make_shared<Batch>(Batch{last->reqs, {}, false, false, 0});
        else
          running->reqs.insert(running->reqs.end(), last->reqs.begin(), last->reqs.end());
      }
      last->extend = false;  // it is the running batch from here on, or merged
    }
    if (Ref batch = get_new_batch_prefill(*running)) return batch;
    if (running->reqs.empty()) return {};
    return update_running_batch(*running);
  }

  std::size_t allocatable(std::size_t running) const {
    const std::size_t budget = most_ > running ? most_ - running : 0;
    return std::min<std::size_t>(budget, k_.max_running_requests - slots_);
  }

  Ref get_new_batch_prefill(Batch& running) {
    if ((running.batch_is_full || waiting_.empty()) && !chunked_) return {};
    if (allocatable(running.reqs.size()) == 0 && !chunked_) {
      running.batch_is_full = true;
      return {};
    }
    Adder a{*this, running};
    const ReqRef chunked = std::exchange(chunked_, nullptr);
    if (chunked) a.add_chunked(chunked);
    while (!waiting_.empty()) {
      if (a.run.size() >= allocatable(running.reqs.size())) running.batch_is_full = true;
      if (running.batch_is_full) break;
      const ReqRef r = waiting_.front();
      const std::size_t before = a.run.size();
      const int outcome = a.add_one(r);
      if (a.run.size() > before) waiting_.pop_front();
      if (outcome == Adder::kNoToken) {
        running.batch_is_full = true;
        if (running.reqs.empty()) ++closed;
      }
      if (outcome != Adder::kContinue) break;
    }
    if (a.run.empty()) return {};
    chunked_ = a.cut;
    return prepare_for_extend(a.run);
  }

  // schedule_policy.py, PrefillAdder.
  struct Adder {
    static constexpr int kContinue = 0, kNoToken = 1, kOther = 2;
    Adder(PlainSglangPipeline& of, const Batch& running)
        : e(of), input(of.k_.max_prefill_tokens), chunk(of.k_.chunked_prefill_size) {
      for (const ReqRef& r : running.reqs) total += e.clip(r->seen.answer - r->output) * e.ratio_;
    }
    double rem_total() const { return static_cast<double>(e.available() * e.k_.page_size) - total; }
    void charge(std::uint32_t tokens, std::uint32_t answer) {
      const std::int64_t paged = std::int64_t{e.ceil(tokens)} * e.k_.page_size;
      total += static_cast<double>(paged + answer + e.k_.page_size);
      current += paged + e.k_.page_size;
      input -= paged;
      chunk -= paged;
    }
    void add_chunked(const ReqRef& r) {
      std::int64_t tokens = std::min(chunk, static_cast<std::int64_t>(rem_total()));
      if (tokens <= 0) tokens = chunk;
      const std::uint32_t rest = r->fill - r->computed;
      if (rest > tokens) cut = r;
      const auto now = static_cast<std::uint32_t>(std::min<std::int64_t>(rest, tokens));
      run.emplace_back(r, now);
      charge(now, cut ? 0 : e.clip(r->seen.answer));
    }
    int add_one(const ReqRef& r) {
      if (e.k_.prefill_max_requests > 0 && run.size() >= e.k_.prefill_max_requests) return kOther;
      r->fill = r->seen.prompt + r->output;
      RadixTree::Match found{};
      if (!e.k_.disable_radix_cache) found = e.tree_.match(e.text(*r, r->fill - 1));
      const auto prefix = static_cast<std::uint32_t>(found.pages * e.k_.page_size);
      const std::uint32_t rest = r->fill - prefix, paged = e.ceil(rest) * e.k_.page_size;
      const bool in_parts = e.k_.chunked_prefill_size > 0;
      const double asks = rest + e.clip(r->seen.answer - r->output) + e.k_.page_size;
      if (asks >= rem_total()) return kNoToken;
      if (!in_parts && !run.empty() && paged >= input) return kOther;
      e.tree_.lock(found.node);
      if (asks >= rem_total()) {
        e.tree_.unlock(found.node);
        return kNoToken;
      }
      std::uint32_t tokens = rest;
      if (in_parts && paged > chunk) {
        tokens =
            static_cast<std::uint32_t>(std::max<std::int64_t>(chunk, 0) / e.k_.page_size * e.k_.page_size);
        if (tokens == 0) {
          e.tree_.unlock(found.node);
          return kOther;
        }
        cut = r;
      }
      r->node = found.node;
      r->in_tree = e.ceil(prefix);
      r->computed = prefix;
      if (!std::exchange(r->began, true)) r->seen.found = prefix;
      run.emplace_back(r, tokens);
      charge(tokens, cut == r ? 0 : e.clip(r->seen.answer));
      const auto left = static_cast<std::int64_t>(e.available() * e.k_.page_size) - current;
      if (rem_total() <= 0 || left <= 0) return kNoToken;
      return input <= 0 || (in_parts && chunk <= 0) ? kOther : kContinue;
    }
    PlainSglangPipeline& e;
    double total = 0;
    std::int64_t current = 0, input, chunk;
    std::vector<std::pair<ReqRef, std::uint32_t>> run;
    ReqRef cut;
  };

  Ref prepare_for_extend(const std::vector<std::pair<ReqRef, std::uint32_t>>& run) {
    auto out = std::make_shared<Batch>();
    out->extend = true;
    out->chunked_req = chunked_;
    if (chunked_) ++chunks;
    std::uint64_t tokens = 0;
    for (const auto& [r, now] : run) tokens += now + (k_.page_size > 1 ? k_.page_size : 0);
    evict(tokens);
    work_ = {};
    for (const auto& [r, now] : run) {
      if (!std::exchange(r->holds, true)) ++slots_;
      for (std::uint32_t p = ceil(r->computed); p < ceil(r->computed + now); ++p) take_page();
      work_.prompts.push_back({now, r->computed});
      r->computed += now;
      out->reqs.push_back(r);
    }
    return out;
  }

  Ref update_running_batch(Batch& running) {
    const std::size_t before = running.reqs.size();
    running.filter();
    if (running.reqs.empty()) {
      running.batch_is_full = false;
      return {};
    }
    if (!enough(running.reqs))
      retract(running);
    else
      ratio_ = std::max(ratio_ - (first_ratio_ - least()) / k_.new_token_ratio_decay_steps, least());
    if (running.reqs.size() < before) running.batch_is_full = false;
    if (running.reqs.empty()) return {};
    evict(running.reqs.size() * k_.page_size);
    work_ = {};
    for (const ReqRef& r : running.reqs) {
      if (r->computed % k_.page_size == 0) take_page();
      ++work_.decodes;
      work_.cached += r->computed;
      work_.longest = std::max(work_.longest, r->computed);
      ++r->computed;
    }
    return std::make_shared<Batch>(Batch{running.reqs, {}, false, false, 0});
  }

  double least() const { return std::min(1.0, first_ratio_ * k_.min_new_token_ratio_factor); }
  bool enough(const std::vector<ReqRef>& reqs) {
    std::uint64_t pages = 0;
    for (const ReqRef& r : reqs) pages += r->computed % k_.page_size == 0 ? 1 : 0;
    evict(pages * k_.page_size);
    return pages <= free_;
  }
  void retract(Batch& running) {
    std::vector<ReqRef> order = running.reqs;
    std::stable_sort(order.begin(), order.end(), [](const ReqRef& a, const ReqRef& b) {
      return a->output != b->output ? a->output > b->output : a->seen.prompt < b->seen.prompt;
    });
    std::vector<ReqRef> gone;
    for (bool first = true; first || !enough(order); first = false) {
      if (order.size() == 1) break;
      gone.push_back(order.back());
      order.pop_back();
      Req& r = *gone.back();
      free_ += ceil(r.computed) - r.in_tree;
      tree_.unlock(std::exchange(r.node, 0));
      r.holds = false;
      --slots_;
      evict(order.size() * k_.retract_decode_steps);
      r.computed = r.in_tree = 0;
      ++r.seen.preempted;
      ++retractions;
    }
    if (!enough(order)) throw PlainStop("the last one has no room");
    running.reqs = order;
    double known = 0, asked = 0;
    for (const ReqRef& r : order) {
      known += r->output;
      asked += r->seen.answer;
    }
    ratio_ =
        std::min(1.0, (known + k_.retract_decode_steps * static_cast<double>(order.size())) / (asked + 1));
    for (const ReqRef& r : gone) waiting_.push_back(r);
  }

  void process(const Batch& batch) {
    for (const ReqRef& ref : batch.reqs) {
      Req& r = *ref;
      if (ref == batch.chunked_req) continue;
      ++r.output;
      if (r.output == 1) r.seen.first = Seconds(now_);
      r.seen.last = Seconds(now_);
      r.finished = r.output == r.seen.answer;
      if (r.finished) {
        release(ref);
        answers_.push_back(r.seen);
      } else if (batch.extend) {
        cache_unfinished(r);
      }
    }
  }
  void release(const ReqRef& ref) {
    Req& r = *ref;
    if (!k_.disable_radix_cache) {
      const auto all = text(r, r.computed);
      const std::uint64_t twice = tree_.insert(all).pages;
      for (std::uint64_t i = r.in_tree; i < twice; ++i) ++free_;
      free_ += ceil(r.computed) - all.size();
      tree_.unlock(r.node);
    } else {
      free_ += ceil(r.computed);
    }
    --slots_;
  }
  void cache_unfinished(Req& r) {
    if (k_.disable_radix_cache) return;
    const auto all = text(r, r.computed);
    const std::uint64_t twice = tree_.insert(all).pages;
    for (std::uint64_t i = r.in_tree; i < twice; ++i) ++free_;
    const RadixNode node = tree_.match(all).node;
    tree_.lock(node);
    tree_.unlock(r.node);
    r.node = node;
    r.in_tree = static_cast<std::uint32_t>(all.size());
  }

  std::uint32_t clip(std::uint32_t tokens) const {
    return std::min(tokens, k_.clip_max_new_tokens_estimation);
  }
  std::uint32_t ceil(std::uint32_t tokens) const { return (tokens + k_.page_size - 1) / k_.page_size; }
  void evict(std::uint64_t tokens) {
    if (free_ * k_.page_size < tokens) free_ += tree_.evict((tokens + k_.page_size - 1) / k_.page_size);
  }
  void take_page() {
    if (free_ == 0) throw PlainStop("out of pages");
    --free_;
  }
  std::vector<std::uint64_t> text(const Req& r, std::uint32_t tokens) const {
    std::vector<std::uint64_t> out;
    const std::size_t parts = kTraceBlock / k_.page_size;
    for (std::size_t i = 0; i < tokens / k_.page_size; ++i) {
      const bool given = i < r.seen.prompt / k_.page_size && i / parts < r.words.size();
      out.push_back(given ? chain_hash(r.words[i / parts], i % parts)
                          : chain_hash((std::uint64_t{1} << 62) + r.seen.number, i));
    }
    return out;
  }

  const SglangKnobs k_;
  PlainRing ring_;
  const std::size_t size_, most_;
  std::uint64_t free_;  // pages
  RadixTree tree_;
  const double first_ratio_;
  double ratio_, now_ = 0;
  std::size_t slots_ = 0;
  std::uint64_t added_ = 0;
  std::vector<Ref> mbs_, last_mbs_, running_mbs_;
  ReqRef chunked_;
  std::deque<ReqRef> waiting_;
  StepBatch work_;  // of the batch that was made last
  std::vector<AnsweredRequest> answers_;
};

}  // namespace shardline
