// The engine's way with many tasks on one resource: a crowd instead of a sharing problem [S11].
#include <algorithm>

#include "sim/engine/engine.hpp"

namespace shardline {

namespace {

// The weight of equal_rate tasks that use this pipe alone [S4], free of the rounding of each one's own. Units
// have none.
double rate_weight(const Machine& machine, ResourceId resource) {
  if (machine.unit(resource) != Unit::bytes) return 1;
  return machine.fastest_pipe().value / machine.capacity(resource);
}

}  // namespace

// Background flows are as equal_rate tasks on this pipe alone.
double Engine::weight_beside(ResourceId resource) const {
  const int flows = flows_beside(resource);
  return flows == 0 ? 0 : flows * rate_weight(*machine_, resource);
}

Crowd* Engine::open_crowd_of(TaskId task) {
  if (crowd_count_ == 0 || graph_->demands(task).size() > 1) return nullptr;
  return open_crowd_on(pools_[graph_->demands(task).front().resource]);
}

Crowd* Engine::open_crowd_on(const Pool& pool) {
  return pool.crowd != kNone && crowds_[pool.crowd].is_open() ? &crowds_[pool.crowd] : nullptr;
}

// A task begins on a resource that has a crowd.
void Engine::join(Crowd& crowd, TaskId task) {
  crowd.advance(now_);
  if (graph_->demands(task).size() == 1) {
    crowd.add(task, flows_[task].left, graph_->sharing(task));
  } else {
    disperse(crowd);
  }
}

// Makes a crowd of the group just collected, if it is one.
bool Engine::gather(ResourceId resource) {
  if (group_.size() < kCrowd || territory_.size() > 1) return false;
  const auto alone_here = [&](TaskId task) { return graph_->demands(task).size() == 1; };
  if (!std::all_of(group_.begin(), group_.end(), alone_here)) return false;
  Pool& used = pools_[resource];
  if (used.crowd == kNone) {
    used.crowd = crowd_count_++;
    if (crowds_.size() < crowd_count_) crowds_.resize(crowd_count_);
  }
  Crowd& crowd = crowds_[used.crowd];
  crowd.open(now_, group_.front(), rate_weight(*machine_, resource));
  for (const TaskId task : group_) {
    Flow& flow = flows_[task];
    settle(flow);
    flow.ticket = 0;
    crowd.add(task, flow.left, graph_->sharing(task));
  }
  return share_crowd(resource);
}

// The members go on as tasks of a group; whose speeds are to be set now.
void Engine::disperse(Crowd& crowd) {
  for (const Crowd::Member& member : crowd.members()) {
    Flow& flow = flows_[member.task];
    flow.left = crowd.left(member, graph_->sharing(member.task));
    flow.since = now_;
    flow.speed = 0;
    settle(flow);
  }
  crowd.close();
}

// Whether the resource has a crowd, which is then shared among anew.
bool Engine::share_crowd(ResourceId resource) {
  Crowd* const open = open_crowd_on(pools_[resource]);
  if (open == nullptr) return false;
  Crowd& crowd = *open;
  crowd.advance(now_);
  if (crowd.size() <= kFew) {
    disperse(crowd);
    return false;
  }
  pools_[resource].visit = visit_;
  crowd.share(weight_beside(resource));
  flows_[crowd.awaited().task].ticket = 0;
  const Crowd::Member& next = crowd.await();
  const Sharing sharing = graph_->sharing(next.task);
  const double left = crowd.left(next, sharing);
  const bool rounding = left < kRoundingRest * flows_[next.task].alone;
  schedule(next.task, rounding ? now_ : crowd.end(left, sharing));
  if (rates_ != nullptr) list_rates(crowd);
  return true;
}

void Engine::list_rates(const Crowd& crowd) {
  for (const Crowd::Member& member : crowd.members()) {
    Flow& flow = flows_[member.task];
    const double speed = crowd.speed(graph_->sharing(member.task));
    if (flow.speed == speed) continue;
    flow.speed = speed;
    rates_->push_back({Seconds(now_), member.task, PerSecond(speed / flow.alone)});
  }
}

// The end of the member awaited, and of those who end with it.
void Engine::end_first(Crowd& crowd, Timeline& out) {
  const TwoDoubles until = crowd.awaited().end;
  while (crowd.size() > 0 && !(until < crowd.next().end)) {
    const TaskId task = crowd.next().task;
    crowd.pop(graph_->sharing(task));
    unlink(task);
    finish(task, out);
  }
}

}  // namespace shardline
