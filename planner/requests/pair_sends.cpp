// Pairs of pools where the one that prefills sends what it computes to who has room for it [R14], as under
// SGLang.
#include <algorithm>
#include <utility>

#include "planner/requests/pair_play.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

class SendingPair : public PairPlay {
 public:
  explicit SendingPair(const PairParts& parts) : PairPlay(parts) {
    SL_CHECK(max_local_prefill_ == 0, "where prompts are sent none is computed where it is answered");
  }

 private:
  // A router sends a request to a server of each pool at once. Who is refused by one is answered by neither.
  void route(PairWay&& way) override {
    const Seconds now = way.arrival.time;
    way.from = prefill_.router.route(way.request, now);
    way.to = decode_.router.route(way.request, now);
    TraceRequest prompt = way.request;
    prompt.output = 1;
    const std::size_t from = way.from, to = way.to;
    const bool answers = decode_.schedulers[to]->takes(way.request);
    const bool computes = prefill_.schedulers[from]->takes(prompt);
    const PairWayId id = ways_.add(std::move(way));
    if (answers || !computes) prefill_.coming[from].push_back(id);
    if (computes) decode_.coming[to].push_back(id);
  }

  // Who waits where it is prefilled waits in the other pool, too.
  double waiting() const override { return waiting_in(decode_); }

  void taken(const PairPool& pool, PairWayId id) override {
    if (&pool == &prefill_ && ways_[id].room) tell_room(id, ways_[id].reads);
  }
  bool may_refuse(const PairPool& /*pool*/, const PairWay& /*way*/) const override { return true; }

  void computed(PairWayId id, const AnsweredRequest& prompt) override {
    out_.prompt.add((prompt.last - ways_[id].reads).value);
  }

  void pass(const Between& b) override {
    ways_[b.way].all_sent = b.last;
    begin_transfer(b.at, b.way, b.tokens);
  }

  // To a replica that decodes only the end of a hand-off, or who comes, brings anything. A part of a cache
  // goes when its step has ended, and its way takes a fixed time at least.
  Seconds until(const PairPool& pool, std::size_t i) const override {
    Seconds until{kNoPairEvent};
    if (&pool == &prefill_) return until;  // steps with prompts are played one by one
    if (more_) until = load_.arrivals->next_time() + load_.path;
    return std::min({until, links_.earliest_of_receiver(i), next_part(i) + fixed_});
  }

  // No part goes before, but for those that are on their way; whatever else than replica i goes on.
  Seconds next_part(std::size_t i) const {
    Seconds part{kNoPairEvent};
    if (!between_.empty()) part = between_.top().at;
    for (std::size_t p = 0; p < prefill_.size(); ++p) {
      if (!prefill_.coming[p].empty())
        part = std::min(part, ways_[prefill_.coming[p].front()].request.arrival);
      if (prefill_.engines[p]->idle()) continue;
      // One that sleeps does so until it has pages again, or somebody has room.
      part = std::min(part, prefill_.plays(p) ? prefill_.engines[p]->now() : next_room(i));
    }
    return part;
  }

  Seconds next_room(std::size_t i) const {
    Seconds room = links_.earliest();
    for (std::size_t d = 0; d < decode_.size(); ++d) {
      if (d != i && decode_.plays(d)) room = std::min(room, decode_.engines[d]->now());
      if (!decode_.coming[d].empty()) room = std::min(room, ways_[decode_.coming[d].front()].request.arrival);
    }
    return room;
  }

  void went_on(const PairPool& pool, std::size_t i) override {
    if (&pool == &decode_)
      give_rooms(i);
    else
      queue_sent(i);
  }

  void give_rooms(std::size_t i) {
    for (const auto& read : take_reads(i)) {
      PairWay& w = ways_[read.first];
      w.room = true;
      out_.room.add((w.reads - w.arrival.time).value);
      if (w.came) tell_room(read.first, w.reads);
    }
  }

  void tell_room(PairWayId id, Seconds at) {
    const PairWay& w = ways_[id];
    prefill_.schedulers[w.from]->has_room(w.number);
    prefill_.wake(w.from, at);
  }

  void queue_sent(std::size_t i) {
    sent_.clear();
    prefill_.schedulers[i]->take_sent(sent_);
    const Seconds at = prefill_.engines[i]->now();  // the end of the step that computed it
    for (const Scheduler::Sent& s : sent_)
      between_.push({at, ordered_++, prefill_.ways[i][s.number], s.tokens, s.last});
  }

  void note_transfer(const PairWay& way) override {
    out_.transfer.add((way.there - way.prefilled).value);
    const double kept = (way.there - way.reads).value, waited = (way.reads - way.request.arrival).value;
    if (std::max(kept, waited) > PairRun::kSent) ++out_.given_up;
  }

  // One that lost its pages waits for those of others whose caches have come, and nobody looks at these.
  Stand stand() const override { return {"pages", "theirs", "[R14]"}; }

  std::vector<Scheduler::Sent> sent_;
};

}  // namespace

std::unique_ptr<PairPlay> play_of_sends(const PairParts& parts) {
  return std::make_unique<SendingPair>(parts);
}

}  // namespace shardline
