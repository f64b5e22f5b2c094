// Requests that wait in front of an engine's attention groups [R11].
#include <algorithm>
#include <vector>

#include "planner/requests/played_engine.hpp"
#include "sim/base/error.hpp"

namespace shardline {

void PlayedEngine::queue(const TraceRequest& r, Seconds came) {
  queue_.push_back(
      {{r.arrival, r.input, r.output, {}, r.local_prefill, r.number}, texts_.keep(r.blocks), came, taken_});
}

// Those at the front of the queue for whom there are places in all groups together.
void PlayedEngine::deal() {
  if (queue_.empty()) return;
  std::vector<GroupLoad> loads;
  std::size_t places = rule_.places * groups_.size();
  for (const Group& g : groups_) {
    loads.push_back({g.scheduler->running() + g.scheduler->waiting(), g.tokens});
    places -= loads.back().requests;
  }
  std::vector<std::uint64_t> tokens;
  for (std::size_t i = 0; i < std::min(places, queue_.size()); ++i)
    tokens.push_back(static_cast<std::uint64_t>(queue_[i].request.input));
  for (const Dealt& d : deal_together(tokens, loads)) {
    Queued& q = queue_[d.request];
    q.request.blocks.assign(q.text.begin(), q.text.end());
    texts_.drop(q.text);
    const bool taken = give(groups_[d.group], q.request, q.came, q.number);
    SL_CHECK(taken, "who waits in the queue is taken");
    dealt_.push_back({q.number, d.group});
  }
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(tokens.size()));
}

}  // namespace shardline
