// SGLang's server of a pair that decodes as its event loop goes round.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "planner/requests/draft_law.hpp"
#include "tests/planner/requests/plain_sglang.hpp"

namespace shardline {

// disaggregation/decode.py, event_loop_{normal,overlap}_disagg_decode.
class PlainDecode {
 public:
  using Told = std::function<void(PlainRequest&)>;
  PlainDecode(const SglangKnobs& k, Told room, Told token, DraftLaw law = {})
      : k_(k),
        law_(std::move(law)),
        room_(std::move(room)),
        token_(std::move(token)),
        free_(k.max_total_tokens / k.page_size) {}
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
      while (r->pages < pages_next(*r)) take_page(*r);
      const std::uint32_t cached = law_.drafts() > 0 ? r->seq_len : r->computed;
      ++out.work.decodes;
      out.work.cached += cached;
      out.work.longest = std::max(out.work.longest, cached);
      out.requests.push_back(r);
      if (law_.drafts() == 0) {
        ++r->computed;
        continue;
      }
      // The worker's own: the server learns of it when the step has ended.
      out.accepts.push_back(
          law_.tokens(r->stream, r->verified + (r->seq_len > r->computed ? 1 : 0), law_.drafts()));
      r->seq_len += out.accepts.back();
    }
    return out;
  }
  void result(const PlainBatch& b) {
    for (std::size_t i = 0; i < b.requests.size(); ++i) {
      PlainRequest* r = b.requests[i];
      if (r->finished || r->retracted) continue;
      r->output += b.accepts.empty() ? 1 : b.accepts[i];
      if (!b.accepts.empty()) {
        r->computed += b.accepts[i];
        ++r->verified;
      }
      r->output = std::min(r->output, r->answer);
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
    r.computed = r.seq_len = tokens;
  }
  void release(PlainRequest& r) {
    --held_;
    for (; r.pages > 0; --r.pages) ++free_;
  }
  bool enough(const std::vector<PlainRequest*>& of) const {
    std::uint64_t pages = 0;
    for (const PlainRequest* r : of) pages += std::max(pages_next(*r), r->pages) - r->pages;
    return pages <= free_;
  }
  // That it has for its next step: a token more, or what two steps may accept behind what is known.
  std::uint32_t pages_next(const PlainRequest& r) const {
    const std::uint32_t tokens = r.computed + (law_.drafts() > 0 ? 2 * (1 + law_.drafts()) : 1);
    return (tokens + k_.page_size - 1) / k_.page_size;
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
  const DraftLaw law_;
  const Told room_, token_;
  std::uint64_t free_;
  std::size_t held_ = 0;
  std::deque<PlainRequest*> prealloc_, retracted_, waiting_;
  std::vector<PlainRequest*> transfer_, running_, resumed_;
};

}  // namespace shardline
