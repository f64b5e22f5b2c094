// SGLang's two servers of a pair as its event loops go round, iteration by iteration, pages one by one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/radix_tree.hpp"
#include "planner/requests/sglang_scheduler.hpp"

namespace shardline {

// The engine ends, or aborts a request.
struct PlainStop : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct PlainRequest {
  std::size_t id = 0;  // of all
  std::uint32_t prompt = 0, answer = 0;
  std::vector<std::uint64_t> text;  // pages of it, as far as others may have them
  std::uint32_t computed = 0, sent = 0, output = 0;
  bool room = false, here = false, began = false, finished = false, retracted = false;
  bool failed = false;      // it will never be here
  std::uint32_t pages = 0;  // its own, those of the tree among them where they are its own text
  RadixNode node = 0;
  std::uint32_t in_tree = 0;
};

// A batch that is launched and its result still to come.
struct PlainBatch {
  StepBatch work;
  std::vector<PlainRequest*> requests;
  std::vector<std::uint32_t> ends;  // of prompts: tokens computed with it
  double end = 0;
};

// disaggregation/prefill.py, event_loop_{normal,overlap}_disagg_prefill.
class PlainPrefill {
 public:
  using Sent = std::function<void(PlainRequest&, std::uint32_t tokens, bool last)>;
  PlainPrefill(const SglangKnobs& k, Sent sent) : k_(k), sent_(std::move(sent)) {
    free_ = k.max_total_tokens / k.page_size;
  }
  void receive(PlainRequest* r) { bootstrap_.push_back(r); }
  bool busy() const { return !bootstrap_.empty() || !waiting_.empty() || chunked_ != nullptr; }
  // Whether it had no room, which it will not have.
  bool forget_unroomed(PlainRequest* r, bool roomed) { return !roomed && std::erase(bootstrap_, r) > 0; }

  std::optional<PlainBatch> decide() {
    for (auto it = bootstrap_.begin(); it != bootstrap_.end();) {
      if (!(*it)->room) {
        ++it;
        continue;
      }
      if (metadata_ == 2 * k_.max_running_requests) break;
      ++metadata_;
      waiting_.push_back(*it);
      it = bootstrap_.erase(it);
    }
    if (chunked_ != nullptr) cache_unfinished(*chunked_);
    return prefill();
  }
  void result(const PlainBatch& b) {
    for (std::size_t i = 0; i < b.requests.size(); ++i) {
      PlainRequest& r = *b.requests[i];
      const bool last = b.ends[i] == r.prompt;
      sent_(r, b.ends[i] - r.sent, last);
      r.sent = b.ends[i];
      if (!last) continue;
      cache_unfinished(r);
      inflight_.push_back(&r);
    }
  }
  // Behind each result, and all the time where there is none.
  void poll() {
    for (auto it = inflight_.begin(); it != inflight_.end();) {
      if (!(*it)->here) {
        ++it;
        continue;
      }
      release(**it);
      --metadata_;
      --slots_;
      it = inflight_.erase(it);
    }
  }

 private:
  std::uint32_t ceil(std::uint32_t tokens) const { return (tokens + k_.page_size - 1) / k_.page_size; }
  std::int64_t tokens_free() const {
    return static_cast<std::int64_t>((free_ + tree_.evictable()) * k_.page_size);
  }
  std::span<const std::uint64_t> text(PlainRequest& r, std::uint32_t pages) const {
    for (std::size_t i = r.text.size(); i < pages; ++i)
      r.text.push_back(chain_hash((std::uint64_t{1} << 62) + r.id, i));
    return std::span(r.text).first(pages);
  }
  void cache_unfinished(PlainRequest& r) {
    if (k_.disable_radix_cache) return;
    const std::uint32_t whole = r.computed / k_.page_size;
    const std::uint64_t twice = tree_.insert(text(r, whole)).pages;
    for (std::uint64_t i = r.in_tree; i < twice; ++i) ++free_;
    const RadixNode node = tree_.match(text(r, whole)).node;
    tree_.unlock(r.node);
    tree_.lock(node);
    r.node = node;
    r.in_tree = whole;
  }
  void release(PlainRequest& r) {
    if (!k_.disable_radix_cache) {
      tree_.insert(text(r, r.in_tree));
      tree_.unlock(r.node);
    }
    for (std::uint32_t i = r.in_tree; i < ceil(r.computed); ++i) ++free_;
  }

  std::optional<PlainBatch> prefill() {
    std::int64_t input = k_.max_prefill_tokens, chunk = k_.chunked_prefill_size, total = 0, current = 0;
    const bool chunks = k_.chunked_prefill_size > 0;
    std::vector<std::pair<PlainRequest*, std::uint32_t>> run;
    const auto charge = [&](std::uint32_t tokens, std::uint32_t answer) {
      const std::int64_t paged = std::int64_t{ceil(tokens)} * k_.page_size;
      total += paged + answer + k_.page_size;
      current += paged + k_.page_size;
      input -= paged;
      chunk -= paged;
    };
    PlainRequest* cut = nullptr;
    if (chunked_ != nullptr) {
      std::int64_t tokens = std::min(chunk, tokens_free() - total);
      if (tokens <= 0) tokens = chunk;
      const std::uint32_t rest = chunked_->prompt - chunked_->computed;
      if (rest > tokens) cut = chunked_;
      const auto now =
          static_cast<std::uint32_t>(std::min<std::int64_t>(rest, std::max<std::int64_t>(1, tokens)));
      run.emplace_back(chunked_, now);
      charge(now, cut != nullptr ? 0 : 1);
    }
    const std::size_t places = k_.max_running_requests - slots_;
    while (!waiting_.empty() && run.size() < places) {
      if (k_.prefill_max_requests > 0 && run.size() >= k_.prefill_max_requests) break;
      PlainRequest& r = *waiting_.front();
      RadixTree::Match found{};
      if (!k_.disable_radix_cache) found = tree_.match(text(r, (r.prompt - 1) / k_.page_size));
      const auto prefix = static_cast<std::uint32_t>(found.pages * k_.page_size);
      const std::uint32_t rest = r.prompt - prefix;
      if (rest + 1 + k_.page_size >= tokens_free() - total) break;
      if (!chunks && !run.empty() && std::int64_t{ceil(rest)} * k_.page_size >= input) break;
      tree_.lock(found.node);
      std::uint32_t tokens = rest;
      bool fits = rest + 1 + k_.page_size < tokens_free() - total;
      if (fits && chunks && std::int64_t{ceil(rest)} * k_.page_size > chunk) {
        tokens = static_cast<std::uint32_t>(std::max<std::int64_t>(chunk, 0) / k_.page_size * k_.page_size);
        fits = tokens > 0;
        if (fits) cut = &r;
      }
      if (!fits) {
        tree_.unlock(found.node);
        break;
      }
      waiting_.pop_front();
      r.node = found.node;
      r.in_tree = ceil(prefix);
      r.computed = prefix;
      ++slots_;
      run.emplace_back(&r, tokens);
      charge(tokens, cut == &r ? 0 : 1);
      if (tokens_free() - total <= 0 || tokens_free() - current <= 0 || input <= 0 || (chunks && chunk <= 0))
        break;
    }
    if (run.empty()) return std::nullopt;
    chunked_ = cut;
    return launch(run);
  }

  PlainBatch launch(const std::vector<std::pair<PlainRequest*, std::uint32_t>>& run) {
    PlainBatch out;
    std::uint64_t tokens = 0;
    for (const auto& [r, now] : run) tokens += now + (k_.page_size > 1 ? k_.page_size : 0);
    if (free_ * k_.page_size < tokens) free_ += tree_.evict((tokens + k_.page_size - 1) / k_.page_size);
    for (const auto& [r, now] : run) {
      for (std::uint32_t p = ceil(r->computed); p < ceil(r->computed + now); ++p) {
        if (free_ == 0) throw PlainStop("prefill is out of pages");
        --free_;
      }
      out.work.prompts.push_back({now, r->computed});
      r->computed += now;
      out.requests.push_back(r);
      out.ends.push_back(r->computed);
    }
    return out;
  }

  const SglangKnobs k_;
  const Sent sent_;
  std::uint64_t free_;
  RadixTree tree_;
  std::deque<PlainRequest*> bootstrap_, waiting_;
  std::vector<PlainRequest*> inflight_;
  PlainRequest* chunked_ = nullptr;
  std::size_t slots_ = 0, metadata_ = 0;
};

// disaggregation/decode.py, event_loop_{normal,overlap}_disagg_decode.
class PlainDecode {
 public:
  using Told = std::function<void(PlainRequest&)>;
  PlainDecode(const SglangKnobs& k, Told room, Told token)
      : k_(k), room_(std::move(room)), token_(std::move(token)), free_(k.max_total_tokens / k.page_size) {}
  void receive(PlainRequest* r) { prealloc_.push_back(r); }
  bool busy() const {
    return !prealloc_.empty() || !retracted_.empty() || !transfer_.empty() || !waiting_.empty() ||
           !running_.empty();
  }
  std::uint64_t retractions = 0;

  std::optional<PlainBatch> decide() {
    queues();
    prebuilt();
    std::erase_if(running_, [](const PlainRequest* r) { return r->finished; });
    if (running_.empty()) return std::nullopt;
    if (!enough(running_)) retract();
    PlainBatch out;
    for (PlainRequest* r : running_) {
      if (r->computed % k_.page_size == 0) take_page(*r);
      ++out.work.decodes;
      out.work.cached += r->computed;
      out.work.longest = std::max(out.work.longest, r->computed);
      ++r->computed;
      out.requests.push_back(r);
    }
    return out;
  }
  void result(const PlainBatch& b) {
    for (PlainRequest* r : b.requests) {
      if (r->finished || r->retracted) continue;
      ++r->output;
      r->finished = r->output == r->answer;
      token_(*r);
      if (r->finished) release(*r);
    }
  }

 private:
  std::int64_t free_tokens() const { return static_cast<std::int64_t>(free_ * k_.page_size); }
  std::int64_t reserved() const {
    return static_cast<std::int64_t>(running_.size() + transfer_.size() + waiting_.size()) *
           k_.num_reserved_decode_tokens;
  }
  std::int64_t clip(std::uint32_t answer) const {
    return std::min(answer, k_.clip_max_new_tokens_estimation);
  }
  std::size_t slots() const { return k_.max_running_requests + k_.disaggregation_decode_extra_slots; }
  void take_page(PlainRequest& r) {
    if (free_ == 0) throw PlainStop("decode is out of pages");
    --free_;
    ++r.pages;
  }
  void take(PlainRequest& r, std::uint32_t tokens) {
    ++held_;
    for (std::uint32_t t = 0; t < tokens; t += k_.page_size) take_page(r);
    r.computed = tokens;
  }
  void release(PlainRequest& r) {
    --held_;
    for (; r.pages > 0; --r.pages) ++free_;
  }
  bool enough(const std::vector<PlainRequest*>& of) const {
    std::uint64_t pages = 0;
    for (const PlainRequest* r : of) pages += r->computed % k_.page_size == 0 ? 1 : 0;
    return pages <= free_;
  }

  void queues() {
    std::int64_t room = free_tokens() - reserved();
    while (!retracted_.empty() && held_ < slots()) {
      PlainRequest& r = *retracted_.front();
      const std::uint32_t fill = r.prompt + (r.output > 0 ? r.output - 1 : 0);
      const std::int64_t needs = std::int64_t{fill} + k_.num_reserved_decode_tokens;
      if (needs > room) break;
      room -= needs;
      r.retracted = false;
      take(r, fill);
      resumed_.push_back(&r);
      retracted_.pop_front();
    }
    waiting_.insert(waiting_.end(), resumed_.begin(), resumed_.end());
    resumed_.clear();
    if (!retracted_.empty()) return;
    preallocate();
    for (auto it = transfer_.begin(); it != transfer_.end();) {
      if ((*it)->failed) {
        release(**it);
        it = transfer_.erase(it);
        continue;
      }
      if (!(*it)->here) {
        ++it;
        continue;
      }
      waiting_.push_back(*it);
      it = transfer_.erase(it);
    }
  }
  void preallocate() {
    std::erase_if(prealloc_, [](const PlainRequest* r) { return r->failed; });
    std::int64_t retractable = 0;
    for (const PlainRequest* r : running_) retractable += r->prompt + r->output;
    while (!prealloc_.empty() && held_ < slots() && transfer_.size() < 2 * k_.max_running_requests) {
      PlainRequest& r = *prealloc_.front();
      std::int64_t single = 0;
      for (std::size_t i = 0; i < running_.size(); ++i) {
        const std::int64_t one = clip(running_[i]->answer) + running_[i]->prompt - retractable;
        single = i == 0 ? one : std::max(single, one);
      }
      const std::int64_t allocatable = free_tokens() - std::max(reserved(), single);
      if (std::max<std::int64_t>(r.prompt + k_.num_reserved_decode_tokens,
                                 r.prompt + clip(r.answer) - retractable) > allocatable)
        return;
      take(r, r.prompt);
      prealloc_.pop_front();
      transfer_.push_back(&r);
      room_(r);
    }
  }
  void prebuilt() {
    std::vector<PlainRequest*> join;
    for (std::size_t i = running_.size(); i < k_.max_running_requests && !waiting_.empty(); ++i) {
      join.push_back(waiting_.front());
      waiting_.pop_front();
    }
    for (PlainRequest* r : join) {
      if (!r->began) {
        r->began = true;
        r->output = 1;
        r->finished = r->answer == 1;
        token_(*r);
      }
      if (r->finished)
        release(*r);
      else
        running_.push_back(r);
    }
  }
  void retract() {
    std::vector<PlainRequest*> order = running_;
    std::stable_sort(order.begin(), order.end(), [](const PlainRequest* a, const PlainRequest* b) {
      return a->output != b->output ? a->output > b->output : a->prompt < b->prompt;
    });
    for (bool first = true; first || !enough(order); first = false) {
      if (order.size() == 1) break;
      PlainRequest& r = *order.back();
      order.pop_back();
      release(r);
      r.retracted = true;
      retracted_.push_back(&r);
      ++retractions;
    }
    running_ = order;
  }

  const SglangKnobs k_;
  const Told room_, token_;
  std::uint64_t free_;
  std::size_t held_ = 0;
  std::deque<PlainRequest*> prealloc_, retracted_, waiting_;
  std::vector<PlainRequest*> transfer_, running_, resumed_;
};

}  // namespace shardline
