// Pairs of pools where the one that prefills sends what it computes to who has room for it [R14], as under
// SGLang.
#include <algorithm>
#include <cmath>
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
  void route(PairWay&& way, Seconds now) override {
    way.from = prefill_.router.route(way.request, now);
    way.to = decode_.router.route(way.request, now);
    TraceRequest prompt = way.request;
    prompt.output = 1;
    const std::size_t from = way.from, to = way.to;
    const bool answers = decode_.schedulers[decode_.at(to, 0)]->takes(way.request);  // groups are alike
    const bool computes = prefill_.schedulers[prefill_.at(from, 0)]->takes(prompt);
    way.at_decode = true;
    way.one_sided = !answers || !computes;
    const Seconds arrival = way.request.arrival;
    const PairWayId id = add(std::move(way));
    if (answers || !computes) prefill_.come(from, id, arrival);
    if (computes) decode_.come(to, id, arrival);
  }

  // Who waits where it is prefilled waits in the other pool, too.
  double waiting() const override { return waiting_in(decode_); }

  // Of the two only who prefills asks for its text; where replicas die it is sent again.
  void taken(const PairPool& pool, PairWayId id) override {
    if (&pool != &prefill_) return;
    if (never_fails()) texts_.drop(ways_[id].text);
    if (ways_[id].room) tell_room(id, ways_[id].reads);
  }
  bool may_refuse(const PairPool& /*pool*/, const PairWay& /*way*/) const override { return true; }

  void computed(PairWayId /*id*/) override {}

  // [R15] What goes to a server that is gone fails at once, and the last part of it ends the hand-off.
  void pass(const Between& b) override {
    PairWay& w = ways_[b.way];
    if (w.cache_gone) return;
    w.all_sent = b.last;
    if (!w.lost)
      begin_transfer(b.at, b.way, b.tokens);
    else if (b.last)
      free_lost(b.way, b.at);
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
      if (w.came && !w.cache_gone) tell_room(read.first, w.reads);
    }
  }

  void tell_room(PairWayId id, Seconds at) {
    const PairWay& w = ways_[id];
    touch(prefill_, w.from, at);
    prefiller(w).has_room(w.number);
    prefill_.wake(w.from, at);
  }

  void queue_sent(std::size_t i) {
    const Seconds at = prefill_.engines[i]->now();  // the end of the step that computed it
    for (std::size_t g = 0; g < prefill_.groups.count; ++g) {
      sent_.clear();
      prefill_.schedulers[prefill_.at(i, g)]->take_sent(sent_);
      for (const Scheduler::Sent& s : sent_)
        push(at, prefill_.group_ways[prefill_.at(i, g)][s.number], Between::Kind::hand_off, s.tokens, s.last);
    }
  }

  void note_parts(const PairWay& way, Seconds first) override {
    out_.room.add((way.reads - way.arrival.time).value);
    out_.prompt.add((way.prefilled - way.reads).value);
    out_.transfer.add((way.there - way.prefilled).value);
    out_.begin.add((first - way.there).value);
    const double kept = (way.there - way.reads).value, waited = (way.reads - way.request.arrival).value;
    if (std::max(kept, waited) > PairRun::kSent) ++out_.given_up;
  }

  bool loses(const PairPool& pool, PairWayId id, Seconds now) override {
    const PairWay& w = ways_[id];
    if (w.one_sided) return loses_one_sided(pool, id);
    return &pool == &prefill_ ? loses_prefill(id, now) : loses_decode(id, now);
  }

  // Where it is to be refused.
  bool loses_one_sided(const PairPool& pool, PairWayId id) {
    const bool comes =
        &pool == &prefill_ ? decode_.comes(ways_[id].to, id) : prefill_.comes(ways_[id].from, id);
    if (comes) return false;
    forget(id);
    return true;
  }

  // The server that decodes has its pages until it misses the other one's health twice.
  bool loses_prefill(PairWayId id, Seconds now) {
    PairWay& w = ways_[id];
    const bool again = !w.lost && !w.handed;
    if (w.lost) {
      forget(id);
    } else if (w.handed) {
      w.cache_gone = true;
    } else if (w.request.arrival > now) {
      decode_.stay(w.to, id);
      forget(id);
    } else {
      w.lost = w.cache_gone = true;
      push(missed(decode_.since[w.to], now), id, Between::Kind::frees);
    }
    return again;
  }

  // The second time after `now` that a server that is up since then asks.
  static Seconds missed(Seconds since, Seconds now) {
    const double beats = std::ceil(std::max(0.0, (now - since).value) / PairRun::kHealthBeat);
    return since + Seconds(PairRun::kHealthBeat) * (std::max(1.0, beats) + PairRun::kHealthMisses - 1);
  }

  // The server that prefills forgets who has no room there, and computes all others in vain.
  bool loses_decode(PairWayId id, Seconds now) {
    PairWay& w = ways_[id];
    if (w.lost || w.handed) {
      const bool again = !w.lost;
      forget(id);
      return again;
    }
    if (!w.room) {
      if (w.came) {
        touch(prefill_, w.from, now);
        prefiller(w).lose_room(w.number);
        prefill_.look(w.from);
        prefill_.router.answers(w.from, static_cast<double>(w.request.input), now);
      } else {
        prefill_.stay(w.from, id);
      }
      forget(id);
    } else {
      w.lost = true;
      w.at_decode = false;
      if (w.all_sent) free_lost(id, now);
    }
    return true;
  }

  void free_lost(PairWayId id, Seconds now) override {
    const PairWay& w = ways_[id];
    if (!w.cache_gone) {
      release(w, now);
    } else if (decode_.comes(w.to, id)) {
      decode_.stay(w.to, id);
    } else {
      touch(decode_, w.to, now);
      decode_.schedulers[decode_.at(w.to, w.group_to)]->give_up(w.number_to);
      decode_.wake(w.to, now);
      decode_.router.answers(w.to, static_cast<double>(w.request.input), now);
    }
    forget(id);
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
