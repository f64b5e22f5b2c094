// Replicas in whose groups nobody goes on: dummy batches [R19], and who computes the same for ever.
#include <algorithm>

#include "planner/requests/played_engine.hpp"

namespace shardline {

bool PlayedEngine::unfinished() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const Group& g) { return g.scheduler->running() + g.scheduler->waiting() > 0; });
}

bool PlayedEngine::circles() const {
  bool any = false;
  for (const Group& g : groups_) {
    const bool circles = g.scheduler->circles();
    if (!circles && g.scheduler->running() > 0) return false;
    any = any || circles;
  }
  return any;
}

// [R19] Whether the replica goes on.
bool PlayedEngine::decide_or_dummy() {
  if (wave_ % rule_.wave == 0 && !unfinished()) {
    wave_ = 0;
    if (steps_.empty())
      for (Group& g : groups_) g.scheduler->look_at_once();
    return false;
  }
  ++wave_;
  for (Group& g : groups_) g.scheduler->schedule_or_dummy();
  steps_.emplace_back(groups_.size(), 1);
  return true;
}

}  // namespace shardline
