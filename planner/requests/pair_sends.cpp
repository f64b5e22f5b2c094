// Pairs of pools where the one that prefills sends what it computes to who has room for it [R14], as under
// SGLang.
#include <algorithm>
#include <utility>

#include "planner/requests/pair_play.hpp"

namespace shardline {

// A router sends a request to a server of each pool at once. Who is refused by one is answered by neither.
void PairPlay::route_to_both(PairWay&& w) {
  const Seconds now = w.arrival.time;
  w.from = prefill_.router.route(w.request, now);
  w.to = decode_.router.route(w.request, now);
  TraceRequest prompt = w.request;
  prompt.output = 1;
  const std::size_t from = w.from, to = w.to;
  const bool answers = decode_.schedulers[to]->takes(w.request);
  const bool computes = prefill_.schedulers[from]->takes(prompt);
  const PairWayId id = ways_.add(std::move(w));
  if (answers || !computes) prefill_.coming[from].push_back(id);
  if (computes) decode_.coming[to].push_back(id);
}

// To a replica that decodes only the end of a hand-off, or who comes, brings anything. A part of a cache goes
// when its step has ended, and its way takes a fixed time at least.
Seconds PairPlay::until_sent(const PairPool& pool, std::size_t i) const {
  Seconds until{kNoPairEvent};
  if (&pool == &prefill_) return until;  // steps with prompts are played one by one
  if (more_) until = load_.arrivals->next_time() + load_.path;
  Seconds part{kNoPairEvent};  // no part goes before, but for those that are on their way
  if (!between_.empty()) part = between_.top().at;
  for (std::size_t p = 0; p < prefill_.size(); ++p) {
    if (!prefill_.coming[p].empty()) part = std::min(part, ways_[prefill_.coming[p].front()].request.arrival);
    if (prefill_.engines[p]->idle()) continue;
    if (prefill_.plays(p)) {
      part = std::min(part, prefill_.engines[p]->now());
      continue;
    }
    // It sleeps until it has pages again, or somebody has room.
    part = std::min(part, links_.earliest());
    for (std::size_t d = 0; d < decode_.size(); ++d)
      if (d != i && decode_.plays(d)) part = std::min(part, decode_.engines[d]->now());
    for (std::size_t d = 0; d < decode_.size(); ++d)
      if (!decode_.coming[d].empty()) part = std::min(part, ways_[decode_.coming[d].front()].request.arrival);
  }
  return std::min({until, links_.earliest_of_receiver(i), part + fixed_});
}

void PairPlay::give_rooms(std::size_t i) {
  reads_.clear();
  decode_.schedulers[i]->take_reads(reads_);
  for (const Scheduler::Read& r : reads_) {
    const PairWayId id = decode_.ways[i][r.number];
    PairWay& w = ways_[id];
    w.reads = decode_.engines[i]->decided_at();
    w.room = true;
    out_.room.add((w.reads - w.arrival.time).value);
    if (readers_.size() <= id) readers_.resize(id + 1);
    readers_[id] = {i, r.id};
    if (w.came) tell_room(id, w.reads);
  }
}

void PairPlay::tell_room(PairWayId id, Seconds at) {
  const PairWay& w = ways_[id];
  prefill_.schedulers[w.from]->has_room(w.number);
  prefill_.wake(w.from, at);
}

void PairPlay::queue_sent(std::size_t i) {
  sent_.clear();
  prefill_.schedulers[i]->take_sent(sent_);
  const Seconds at = prefill_.engines[i]->now();  // the end of the step that computed it
  for (const Scheduler::Sent& s : sent_)
    between_.push({at, ordered_++, prefill_.ways[i][s.number], s.tokens, s.last});
}

void PairPlay::send_part() {
  const Between b = between_.top();
  between_.pop();
  PairWay& w = ways_[b.way];
  w.all_sent = b.last;
  begin_transfer(w.to, b.at, b.way, b.tokens);
}

}  // namespace shardline
