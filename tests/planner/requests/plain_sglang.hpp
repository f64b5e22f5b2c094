// SGLang's server of a pair for prompts as its event loop goes round, iteration by iteration, pages one by
// one.
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
  std::vector<std::uint64_t> next;  // the first token behind each of its prompt's pages
  std::uint32_t computed = 0, sent = 0, output = 0;
  std::uint64_t stream = 0;
  std::uint32_t verified = 0, seq_len = 0;  // steps with drafts; tokens with those of the step under way
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
  std::vector<std::uint32_t> ends;     // of prompts: tokens computed with it
  std::vector<std::uint32_t> accepts;  // of drafts: tokens that the step yields
  double end = 0;
};

// disaggregation/prefill.py, event_loop_{normal,overlap}_disagg_prefill.
class PlainPrefill {
 public:
  using Sent = std::function<void(PlainRequest&, std::uint32_t tokens, bool last)>;
  /// `pairs`: the tree has pairs of tokens, as with drafts.
  PlainPrefill(const SglangKnobs& k, Sent sent, bool pairs = false)
      : k_(k), sent_(std::move(sent)), pairs_(pairs) {
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
  // Of so many tokens those that are whole pages, of pairs: a page of N has N + 1 tokens.
  std::vector<std::uint64_t> text(PlainRequest& r, std::uint32_t tokens) const {
    std::vector<std::uint64_t> out;
    for (std::uint32_t end = k_.page_size; end + (pairs_ ? 1 : 0) <= tokens; end += k_.page_size) {
      const std::size_t i = out.size();
      const std::uint64_t page =
          i < r.text.size() ? r.text[i] : chain_hash((std::uint64_t{1} << 62) + r.id, i);
      out.push_back(pairs_ ? chain_hash(page, r.next[i]) : page);
    }
    return out;
  }
  void cache_unfinished(PlainRequest& r) {
    if (k_.disable_radix_cache) return;
    const auto all = text(r, r.computed);
    const std::uint64_t twice = tree_.insert(all).pages;
    for (std::uint64_t i = r.in_tree; i < twice; ++i) ++free_;
    const RadixNode node = tree_.match(all).node;
    tree_.unlock(r.node);
    tree_.lock(node);
    r.node = node;
    r.in_tree = static_cast<std::uint32_t>(all.size());
  }
  void release(PlainRequest& r) {
    if (!k_.disable_radix_cache) {
      tree_.insert(text(r, r.computed));
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
      if (!k_.disable_radix_cache) found = tree_.match(text(r, r.prompt - 1));
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
  const bool pairs_;
  std::uint64_t free_;
  RadixTree tree_;
  std::deque<PlainRequest*> bootstrap_, waiting_;
  std::vector<PlainRequest*> inflight_;
  PlainRequest* chunked_ = nullptr;
  std::size_t slots_ = 0, metadata_ = 0;
};

}  // namespace shardline
