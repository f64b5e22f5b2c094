// An executor of TensorRT-LLM's [R9], [R21] written plainly: everything is counted anew in each iteration.
// Without block reuse; with drafts [R20] or without.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "planner/requests/draft_law.hpp"
#include "planner/requests/group_router.hpp"
#include "planner/requests/trtllm_scheduler.hpp"

namespace shardline {

class PlainTrtllm {
 public:
  enum class State : std::uint8_t { asks, comes, arrived, context, decodes, ends };
  struct Request {
    std::size_t id;
    std::uint32_t prompt, answer;
    State state = State::context;
    std::uint32_t context = 0;  // tokens that it computes as a prompt
    std::uint32_t cached = 0, blocks = 0;
    std::uint32_t tokens = 0, under_way = 0;  // of the answer; decided and not ended among them
    bool read = false, done = false;
    // With drafts: tokens are those that are known, under_way is of steps, and blocks are for `kv` tokens.
    std::uint64_t stream = 0;
    std::uint32_t verified = 0, kv = 0, drafts = 0;
  };
  struct Part {
    Request* request;
    bool token, decodes;
  };
  struct Batch {
    StepBatch work;
    std::vector<Part> parts;
  };
  // What the engine dies of.
  struct Dead : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  PlainTrtllm(const TrtllmKnobs& knobs, bool prefills, DraftLaw law)
      : k_(knobs), prefills_(prefills), law_(std::move(law)), rows_(1 + law_.drafts()) {}

  void receive(Request* r) {
    r->context = r->prompt;
    if (!prefills_) r->state = State::asks;
    queue_.push_back(r);
  }
  GroupLoad load() const {
    GroupLoad out;
    for (const auto* list : {&queue_, &active_}) {
      for (const Request* r : *list) {
        ++out.requests;
        out.tokens += r->prompt;
      }
    }
    return out;
  }

  std::optional<Batch> decide() {
    while (!queue_.empty() && active_.size() < k_.max_batch_size) {
      active_.push_back(queue_.front());
      queue_.pop_front();
    }
    poll();
    for (Request* r : active_)
      if (drafting() && r->state == State::decodes && r->under_way > 0 && r->tokens + 1 >= r->answer)
        r->state = State::ends;
    fitting_.clear();
    std::vector<Request*> asking;
    if (k_.capacity_scheduler_policy == TrtllmPolicy::max_utilization)
      fit_by_need(asking);
    else
      fit_whole(asking);
    begin_reads(asking);
    return batch();
  }

  // Who has a token of it.
  std::vector<Request*> result(const Batch& b) {
    std::vector<Request*> out;
    for (const Part& p : b.parts) {
      Request& r = *p.request;
      if (!p.token || (drafting() && r.done)) continue;  // a part of a prompt, or rows in vain
      --r.under_way;
      if (drafting()) accept(r, p.decodes);
      r.done = r.tokens == r.answer && (drafting() || r.under_way == 0);
      out.push_back(&r);
      if (!r.done) continue;
      std::erase(active_, &r);
      if (prefills_) {
        if (r.blocks == 0) throw Dead("nothing is left to read");
        kept_.push_back(&r);
      } else {
        r.blocks = 0;
      }
    }
    return out;
  }
  // Rows of a step that begins, as far as tokens are known then.
  static void recount(Batch& b) {
    b.work.decodes = b.work.longest = 0;
    b.work.cached = 0;
    for (const Part& p : b.parts) {
      if (!p.decodes) continue;
      ++b.work.decodes;
      b.work.cached += p.request->cached;
      b.work.longest = std::max(b.work.longest, p.request->cached);
    }
  }
  bool drafting() const { return rows_ > 1; }

  std::vector<Request*> firsts, reads;  // of the iteration
  std::uint64_t pauses = 0;

 private:
  std::uint32_t in_blocks(std::uint32_t tokens) const {
    return (tokens + k_.tokens_per_block - 1) / k_.tokens_per_block;
  }
  // What was accepted of a step, whose other tokens give their blocks back.
  void accept(Request& r, bool decodes) {
    const std::uint32_t yields = decodes ? law_.tokens(r.stream, r.verified++, rows_ - 1) : 1;
    r.tokens = std::min(r.answer, r.tokens + yields);
    if (r.blocks == 0) {  // paused meanwhile
      r.context = r.prompt + r.tokens;
      return;
    }
    if (!decodes) return;
    r.cached += yields;
    if (r.tokens == r.answer) return;
    r.kv -= rows_ - yields;
    r.blocks = in_blocks(r.kv);
  }
  std::uint32_t free() const {
    std::uint32_t held = 0;
    for (const auto* list : {&active_, &kept_})
      for (const Request* r : *list) held += r->blocks;
    return k_.blocks - held;
  }
  void take(Request& r, std::uint32_t tokens) {
    const std::uint32_t all = std::max(r.blocks, in_blocks(tokens));
    if (all - r.blocks > free()) throw Dead("no free blocks left");
    r.blocks = all;
    r.kv = tokens;
  }

  void poll() {
    if (prefills_) {
      for (Request* r : kept_)
        if (r->read) r->blocks = 0;
      std::erase_if(kept_, [](const Request* r) { return r->read; });
      return;
    }
    for (Request* r : active_) {
      if (r->state != State::comes || !r->read) continue;
      r->state = State::arrived;
      if (r->answer == 1) first(*r);
    }
    std::erase_if(active_, [](Request* r) {
      if (r->done) r->blocks = 0;
      return r->done;
    });
  }
  void first(Request& r) {
    r.state = State::decodes;
    r.tokens = 1;
    r.done = r.answer == 1;
    firsts.push_back(&r);
  }

  // Those that decode first, then whoever fits with all of its answer.
  void fit_whole(std::vector<Request*>& asking) {
    std::int64_t left = free();
    const auto lacks = [&](const Request& r) {
      return std::int64_t{in_blocks(r.prompt + r.answer)} - r.blocks;
    };
    bool anybody = false;
    for (Request* r : active_) {
      if (r->state == State::context || r->state == State::asks) continue;
      anybody = true;
      left -= lacks(*r);
      if (r->state != State::comes) fitting_.push_back(r);
    }
    if (k_.capacity_scheduler_policy == TrtllmPolicy::static_batch && anybody) return;
    for (const State of : {State::asks, State::context}) {
      for (Request* r : active_) {
        if (r->state != of) continue;
        if (lacks(*r) > left) break;
        left -= lacks(*r);
        (of == State::asks ? asking : fitting_).push_back(r);
      }
    }
  }
  // Whoever fits with its next step; the last that began makes room.
  void fit_by_need(std::vector<Request*>& asking) {
    std::int64_t left = free();
    std::vector<Request*> paused;
    const auto is_paused = [&](const Request* r) {
      return std::find(paused.begin(), paused.end(), r) != paused.end();
    };
    for (Request* r : active_) {
      if (r->state == State::comes) continue;
      while (!is_paused(r)) {
        std::int64_t needs = 0;
        if (r->state == State::asks)
          needs = in_blocks(r->prompt);
        else if (r->state != State::context && drafting())
          needs = std::int64_t{in_blocks(std::min(r->kv + rows_, r->prompt + r->answer))} - in_blocks(r->kv);
        else if (r->state != State::context)
          needs = in_blocks(r->cached + 1) - in_blocks(r->cached);
        else if (r->blocks == 0)
          needs = in_blocks(r->context + r->drafts);
        if (needs <= left) {
          left -= needs;
          (r->state == State::asks ? asking : fitting_).push_back(r);
          break;
        }
        Request* last = nullptr;
        bool behind = false;
        for (Request* other : active_) {
          behind = behind || other == r;
          if (behind && other->blocks > 0 && other->state != State::comes && !is_paused(other)) last = other;
        }
        if (last == nullptr) {
          pause_all(paused);
          return;
        }
        left += last->blocks;
        paused.push_back(last);
      }
      // Nobody behind one that is paused is looked at: those were paused before it.
      if (is_paused(r)) break;
    }
    pause_all(paused);
  }
  void pause_all(const std::vector<Request*>& paused) {
    for (Request* r : paused) {
      ++pauses;
      r->blocks = r->cached = r->kv = 0;
      r->context = r->prompt + r->tokens;
      r->state = State::context;
    }
  }

  void begin_reads(const std::vector<Request*>& asking) {
    const std::uint32_t window = in_blocks(k_.max_tokens_in_buffer);
    for (Request* r : asking) {
      std::uint32_t coming = 0;
      for (const Request* other : active_)
        if (other->state == State::comes) coming += in_blocks(other->prompt);
      if (window > 0 && coming > 0 && coming + in_blocks(r->prompt) > window) return;
      take(*r, r->prompt + rows_ - 1 - (drafting() ? 1 : 0));
      r->drafts = rows_ - 1;
      r->cached = r->prompt;
      r->state = State::comes;
      reads.push_back(r);
    }
  }

  std::optional<Batch> batch() {
    std::vector<Request*> prompts, rows;
    std::uint32_t tokens = 0;
    for (Request* r : fitting_) {
      if (rows.size() + prompts.size() == k_.max_batch_size) break;
      if (r->state == State::context) {
        const std::uint32_t all = r->context - r->cached + r->drafts;
        if (!k_.enable_chunked_prefill) {
          if (tokens + all > k_.max_num_tokens) break;
          tokens += all;
        }
        prompts.push_back(r);
        continue;
      }
      if (r->state == State::ends || (r->state == State::decodes && r->tokens == r->answer)) continue;
      if (tokens + rows_ > k_.max_num_tokens) break;
      tokens += rows_;
      rows.push_back(r);
    }
    Batch out;
    std::uint32_t room = k_.max_num_tokens - rows_ * static_cast<std::uint32_t>(rows.size());
    for (Request* r : prompts) {
      std::uint32_t size = std::min(r->context - r->cached, room);
      if (size < r->context - r->cached) size = size / k_.tokens_per_block * k_.tokens_per_block;
      room -= size;
      if (size > 0) compute(*r, size, out);
    }
    for (Request* r : rows) {
      if (r->state == State::arrived) first(*r);
      take(*r, drafting() ? r->kv + rows_ : r->cached + 1);
      ++out.work.decodes;
      out.work.cached += r->cached;
      out.work.longest = std::max(out.work.longest, r->cached);
      if (!drafting()) ++r->cached;
      give_token(*r, out, true);
    }
    if (out.parts.empty()) return std::nullopt;
    return out;
  }
  void compute(Request& r, std::uint32_t size, Batch& out) {
    if (r.blocks == 0) take(r, r.context + (drafting() ? rows_ - 2 + r.drafts : 0));
    out.work.prompts.push_back({size, r.cached});
    r.cached += size;
    if (r.cached < r.context) {
      out.parts.push_back({&r, false, false});
      return;
    }
    r.state = State::decodes;
    r.drafts = rows_ - 1;
    give_token(r, out, false);
  }
  void give_token(Request& r, Batch& out, bool decodes) const {
    if (!drafting()) ++r.tokens;
    ++r.under_way;
    out.parts.push_back({&r, true, decodes});
  }

  const TrtllmKnobs k_;
  const bool prefills_;
  const DraftLaw law_;
  const std::uint32_t rows_;  // of who decodes
  std::deque<Request*> queue_, active_, kept_;
  std::vector<Request*> fitting_;
};

}  // namespace shardline
