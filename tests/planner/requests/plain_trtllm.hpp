// An executor of TensorRT-LLM's [R9], [R21] written plainly: everything is counted anew in each iteration.
// Without block reuse.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <stdexcept>
#include <vector>

#include "planner/requests/group_router.hpp"
#include "planner/requests/trtllm_scheduler.hpp"

namespace shardline {

class PlainTrtllm {
 public:
  enum class State : std::uint8_t { asks, comes, arrived, context, decodes };
  struct Request {
    std::size_t id;
    std::uint32_t prompt, answer;
    State state = State::context;
    std::uint32_t context = 0;  // tokens that it computes as a prompt
    std::uint32_t cached = 0, blocks = 0;
    std::uint32_t tokens = 0, under_way = 0;  // of the answer; decided and not ended among them
    bool read = false, done = false;
  };
  struct Part {
    Request* request;
    bool token;
  };
  struct Batch {
    StepBatch work;
    std::vector<Part> parts;
  };
  // What the engine dies of.
  struct Dead : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  PlainTrtllm(const TrtllmKnobs& knobs, bool prefills) : k_(knobs), prefills_(prefills) {}

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
      if (!p.token) continue;
      Request& r = *p.request;
      --r.under_way;
      r.done = r.tokens == r.answer && r.under_way == 0;
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

  std::vector<Request*> firsts, reads;  // of the iteration
  std::uint64_t pauses = 0;

 private:
  std::uint32_t in_blocks(std::uint32_t tokens) const {
    return (tokens + k_.tokens_per_block - 1) / k_.tokens_per_block;
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
        else if (r->state != State::context)
          needs = in_blocks(r->cached + 1) - in_blocks(r->cached);
        else if (r->blocks == 0)
          needs = in_blocks(r->context);
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
      r->blocks = r->cached = 0;
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
      take(*r, r->prompt);
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
        const std::uint32_t all = r->context - r->cached;
        if (!k_.enable_chunked_prefill) {
          if (tokens + all > k_.max_num_tokens) break;
          tokens += all;
        }
        prompts.push_back(r);
        continue;
      }
      if (r->state == State::decodes && r->tokens == r->answer) continue;
      if (tokens == k_.max_num_tokens) break;
      ++tokens;
      rows.push_back(r);
    }
    Batch out;
    std::uint32_t room = k_.max_num_tokens - static_cast<std::uint32_t>(rows.size());
    for (Request* r : prompts) {
      std::uint32_t size = std::min(r->context - r->cached, room);
      if (size < r->context - r->cached) size = size / k_.tokens_per_block * k_.tokens_per_block;
      room -= size;
      if (size > 0) compute(*r, size, out);
    }
    for (Request* r : rows) {
      if (r->state == State::arrived) first(*r);
      take(*r, r->cached + 1);
      ++out.work.decodes;
      out.work.cached += r->cached;
      out.work.longest = std::max(out.work.longest, r->cached);
      ++r->cached;
      give_token(*r, out);
    }
    if (out.parts.empty()) return std::nullopt;
    return out;
  }
  void compute(Request& r, std::uint32_t size, Batch& out) {
    take(r, r.context);
    out.work.prompts.push_back({size, r.cached});
    r.cached += size;
    if (r.cached < r.context) {
      out.parts.push_back({&r, false});
      return;
    }
    r.state = State::decodes;
    give_token(r, out);
  }
  static void give_token(Request& r, Batch& out) {
    ++r.tokens;
    ++r.under_way;
    out.parts.push_back({&r, true});
  }

  const TrtllmKnobs k_;
  const bool prefills_;
  std::deque<Request*> queue_, active_, kept_;
  std::vector<Request*> fitting_;
};

}  // namespace shardline
