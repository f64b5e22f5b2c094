// Schedulers of vLLM's that look at each request that runs, one after the other, in each step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "planner/requests/request_slots.hpp"
#include "planner/requests/vllm_connected.hpp"
#include "sim/base/error.hpp"

namespace shardline {

/// Requests R are VllmRequest with `running`, whether it is among those, and lose(), which forgets what was
/// computed of one whose blocks are gone.
template <class R>
class VllmListed : public VllmConnected {
 public:
  std::optional<Id> add(const TraceRequest& request, std::uint32_t text_block = kTraceBlock) override {
    R r;
    if (!come(request, text_block, r)) return std::nullopt;
    const Id id = requests_.add(std::move(r));
    waiting_.push_back(id);
    return id;
  }
  void forget(Id id) override {
    SL_CHECK(requests_[id].done, "only requests that are done are forgotten");
    requests_.forget(id);
  }
  const Scheduler::Request& request(Id id) const override { return requests_[id]; }
  std::size_t running() const override { return running_.size(); }

 protected:
  using VllmConnected::VllmConnected;

  /// The first tokens of one are computed and known: its blocks of them may be found.
  void fill(R& r, std::uint32_t tokens) {
    const std::uint32_t full = tokens / knobs_.block_size;
    if (knobs_.enable_prefix_caching && full > r.share.filled) pool_.fill(r.share, full);
  }
  void run(Id id) {
    requests_[id].running = true;
    running_.push_back(id);
  }
  /// Blocks of one that runs for so many tokens in all: those that began last lose theirs for it, and false
  /// where it is the last itself, which then loses its own.
  bool make_room(Id id, std::uint64_t tokens) {
    const std::uint32_t blocks = knobs_.blocks_of(std::min<std::uint64_t>(tokens, knobs_.max_model_len));
    while (!pool_.grow(requests_[id].share, blocks)) {
      const Id last = running_.back();
      running_.pop_back();
      preempt(last);
      kept_ = false;
      if (last == id) return false;
    }
    return true;
  }
  /// It has all of its answer. Its blocks may be lost already: then it waited while its last token was under
  /// way.
  void leave(Id id) {
    R& r = requests_[id];
    if (r.running)
      std::erase(running_, id);
    else
      std::erase(waiting_, id);
    r.done = true;
    let_go(r);
  }
  VllmRequest& held(Id id) override { return requests_[id]; }
  void drop(Id id) override {
    std::erase(waiting_, id);
    requests_.forget(id);
  }

  RequestSlots<R> requests_;
  std::vector<Id> running_;  // in the order in which they began
  std::vector<Id> ended_;    // of the step that ended last

 private:
  void preempt(Id id) {
    R& r = requests_[id];
    pool_.release(r.share);
    r.lose();
    r.running = false;
    ++r.preempted;
    ++preemptions_;
    waiting_.push_front(id);
  }
};

}  // namespace shardline
