// One pool of a pair: its replicas, who comes to them, and what is next at each.
#include <algorithm>
#include <utility>

#include "planner/requests/pair_play.hpp"

namespace shardline {

PairPool::PairPool(const PlayedPool& of, ReplicaPool pool,
                   std::function<void(std::size_t, const AnsweredRequest&)> on_answer, Stepped on_step)
    : which(pool),
      times(*of.times),
      groups(of.groups),
      answered(std::move(on_answer)),
      stepped(std::move(on_step)),
      router(of.router, of.schedulers.size() / of.groups.count),
      schedulers(of.schedulers.size()),
      renewed(of.schedulers.size()),
      engines(of.schedulers.size() / of.groups.count),
      ways(engines.size()),
      group_ways(of.schedulers.size()),
      past(engines.size()),
      since(engines.size()),
      ends(engines.size()),
      arrivals(engines.size()),
      begins(engines.size()),
      coming_(engines.size()) {
  for (std::size_t i = 0; i < size(); ++i) {
    std::vector<Scheduler*> own;
    for (std::size_t g = 0; g < groups.count; ++g) own.push_back(of.schedulers[at(i, g)].get());
    start(i, own, Seconds(0));
  }
}

void PairPool::start(std::size_t i, const std::vector<Scheduler*>& of_groups, Seconds now) {
  for (std::size_t g = 0; g < groups.count; ++g) schedulers[at(i, g)] = of_groups[g];
  PlayedEngine::Stepped steps;
  if (stepped) steps = [this, i](const PlayedStep& s) { stepped(i, s); };
  engines[i] = std::make_unique<PlayedEngine>(
      of_groups, groups, times, true, [this, i](const AnsweredRequest& a) { answered(i, a); },
      std::move(steps));
  engines[i]->wake(now);
  since[i] = now;
}

void PairPool::end(std::size_t i) {
  if (renewed[at(i, 0)] == nullptr)  // its first life
    past[i] = engines[i]->take_served();
  else
    merge(past[i], engines[i]->take_served());
  engines[i].reset();
  coming_[i].clear();
  ways[i].clear();
  for (std::size_t g = 0; g < groups.count; ++g) group_ways[at(i, g)].clear();
  look(i);
}

// Who comes during a step waits for its end. Who comes to an engine with nothing to do does not, although it
// may have been played to the end of its last step already.
void PairPool::look(std::size_t i) {
  Seconds end{kNoPairEvent}, arrival = end, begin = end;
  if (up(i) && !engines[i]->dead()) {
    const PlayedEngine& e = *engines[i];
    if (!coming_[i].empty()) arrival = coming_[i].front().arrival;
    if (e.open()) {
      end = e.ends();
    } else if (!e.asleep() && !e.idle()) {
      begin = e.now();
      arrival = std::max(arrival, begin);
    }
  }
  ends.set(i, end);
  arrivals.set(i, arrival);
  begins.set(i, begin);
}

void PairPool::come(std::size_t i, PairWayId id, Seconds arrival) {
  std::deque<Coming>& to = coming_[i];
  const auto earlier = [](Seconds a, const Coming& b) { return a < b.arrival; };
  const auto at = to.insert(std::upper_bound(to.begin(), to.end(), arrival, earlier), {arrival, id});
  if (at == to.begin()) look(i);
}

PairWayId PairPool::take_coming(std::size_t i) {
  const PairWayId id = coming_[i].front().id;
  coming_[i].pop_front();
  return id;
}

bool PairPool::comes(std::size_t i, PairWayId id) const {
  return std::any_of(coming_[i].begin(), coming_[i].end(), [&](const Coming& c) { return c.id == id; });
}

void PairPool::stay(std::size_t i, PairWayId id) {
  std::erase_if(coming_[i], [&](const Coming& c) { return c.id == id; });
  look(i);
}

}  // namespace shardline
