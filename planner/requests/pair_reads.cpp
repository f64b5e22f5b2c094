// Pairs of pools where the one that decodes reads caches when it has room [R12], as under vLLM's
// NixlConnector.
#include <algorithm>

#include "planner/requests/pair_play.hpp"

namespace shardline {

void PairPlay::route_to_decode() {
  const Between b = between_.top();
  between_.pop();
  PairWay& w = ways_[b.way];
  w.request.arrival = b.at + load_.path;
  decode_.coming[decode_.router.route(w.request, b.at)].push_back(b.way);
}

// Nobody comes to the pool that decodes but by way of the other one, unless prompts may stay there.
Seconds PairPlay::until_reads(const PairPool& pool, std::size_t i) const {
  Seconds until{kNoPairEvent};
  if (more_) {
    const bool at_once = &pool == &prefill_ || max_local_prefill_ > 0;
    until = std::min(until, load_.arrivals->next_time() + load_.path * (at_once ? 1.0 : 2.0));
  }
  if (&pool == &prefill_) return std::min(until, links_.earliest_of_sender(i));
  until = std::min({until, prefill_.earliest(prefill_.size()) + load_.path, links_.earliest_of_receiver(i)});
  if (!between_.empty()) until = std::min(until, between_.top().at + load_.path);
  for (std::size_t p = 0; p < prefill_.size(); ++p)
    if (!prefill_.coming[p].empty())
      until = std::min(until, ways_[prefill_.coming[p].front()].request.arrival + load_.path);
  return until;
}

void PairPlay::begin_reads(std::size_t i) {
  reads_.clear();
  decode_.schedulers[i]->take_reads(reads_);
  for (const Scheduler::Read& r : reads_) {
    const PairWayId id = decode_.ways[i][r.number];
    PairWay& w = ways_[id];
    w.reads = decode_.engines[i]->decided_at();
    w.all_sent = true;
    out_.room.add((w.reads - w.prefilled).value);
    begin_transfer(i, w.reads, id, r.tokens);
    if (readers_.size() <= id) readers_.resize(id + 1);
    readers_[id] = {i, r.id};
  }
}

}  // namespace shardline
