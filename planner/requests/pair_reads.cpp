// Pairs of pools where the one that decodes reads caches when it has room: [R12] as under vLLM's
// NixlConnector, [R21] one after the other, as under TensorRT-LLM.
#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "planner/requests/pair_play.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

class ReadingPair : public PairPlay {
 public:
  using PairPlay::PairPlay;

 protected:
  void route(PairWay&& way, Seconds now) override {
    const bool local = way.request.local_prefill;
    PairPool& first = local ? decode_ : prefill_;
    const std::size_t to = first.router.route(way.request, now);
    (local ? way.to : way.from) = to;
    way.at_decode = local;
    const Seconds arrival = way.request.arrival;
    first.come(to, add(std::move(way)), arrival);
  }

  double waiting() const override { return waiting_in(prefill_) + waiting_in(decode_); }

  bool may_refuse(const PairPool& pool, const PairWay& way) const override {
    return &pool == &prefill_ || way.request.local_prefill;
  }

  void computed(PairWayId id) override { push(ways_[id].prefilled, id, Between::Kind::hand_off); }

  // To a router, as who is sent.
  void pass(const Between& b) override {
    PairWay& w = ways_[b.way];
    if (!decode_.router.any_up()) {
      PairWay way = copy(b.way);
      leave_blocks(b.way, w.prefilled + Seconds(PairRun::kLease));
      send_again(std::move(way), b.at);
      return;
    }
    w.request.arrival = b.at + load_.path;
    w.to = decode_.router.route(whole(w), b.at);
    w.at_decode = true;
    decode_.come(w.to, b.way, w.request.arrival);
  }

  void went_on(const PairPool& pool, std::size_t i) override {
    if (&pool != &decode_) return;
    const auto began = take_reads(i);  // one that fails at once ends the engine's stretch, and is here again
    for (const auto& [id, tokens] : began) {
      PairWay& w = ways_[id];
      w.all_sent = true;
      if (w.cache_gone)
        fail_read(id, w.reads);
      else
        begin_read(w.reads, id, tokens);
    }
    if (never_fails()) return;
    const PlayedEngine& e = *decode_.engines[i];
    for (std::size_t g = 0; g < decode_.groups.count; ++g) {
      failed_.clear();
      decode_.schedulers[decode_.at(i, g)]->take_failed(failed_);
      for (const Scheduler::Failed& f : failed_)
        push(f.at_once ? e.decided_at() : e.now(), decode_.group_ways[decode_.at(i, g)][f.number],
             Between::Kind::again);
    }
  }

  virtual void begin_read(Seconds at, PairWayId id, std::uint32_t tokens) { begin_transfer(at, id, tokens); }

  void note_parts(const PairWay& way, Seconds first) override {
    out_.prompt.add((way.prefilled - way.arrival.time).value);
    out_.room.add((way.reads - way.prefilled).value);
    out_.transfer.add((way.there - way.reads).value);
    out_.begin.add((first - way.there).value);
  }

  // [R15] NIXL gives an error for a read, which the worker says as it says that one has ended.
  void fail_read(PairWayId id, Seconds at) {
    PairWay& w = ways_[id];
    ++out_.failed_loads;
    out_.lost_tokens += static_cast<double>(w.tokens) - w.cut;
    w.tokens = 0;
    w.cut = 0;
    w.there = at;
    touch(decode_, w.to, at);
    const bool here = decode_.schedulers[decode_.at(w.to, w.group_to)]->read_fails(readers_[id]);
    decode_.wake(w.to, at);
    if (here) ++out_.recomputed;
  }

  bool loses(const PairPool& pool, PairWayId id, Seconds now) override {
    PairWay& w = ways_[id];
    if (&pool == &decode_) {
      if (w.request.local_prefill || w.handed || w.cache_gone)
        forget(id);
      else
        leave_blocks(id, std::max(now, lease_of(w, now)));
      return true;
    }
    if (!w.computed) {
      forget(id);
      return true;
    }
    w.cache_gone = true;
    if (w.lost || w.handed) return false;
    if (w.all_sent) fail_read(id, now);
    return false;
  }

  // Nobody reads them: the replica that prefilled keeps them for so long.
  void leave_blocks(PairWayId id, Seconds until) {
    PairWay& w = ways_[id];
    if (w.cache_gone) {
      forget(id);
      return;
    }
    w.lost = true;
    w.at_decode = false;
    push(until, id, Between::Kind::frees);
  }

  // Heartbeats are of all requests that a replica has and has not read, from its beginning on.
  Seconds lease_of(const PairWay& w, Seconds now) const {
    const Seconds since = decode_.since[w.to];
    const Seconds beat =
        since + Seconds(PairRun::kLeaseBeat) * std::floor((now - since).value / PairRun::kLeaseBeat);
    const Seconds first = w.prefilled + Seconds(PairRun::kLease);
    return beat < w.request.arrival ? first : std::max(first, beat + Seconds(PairRun::kExtension));
  }

  void free_lost(PairWayId id, Seconds now) override {
    const PairWay& w = ways_[id];
    if (!w.cache_gone) release(w, now);
    forget(id);
  }

  // One that lost its blocks waits in front of those that hold theirs and have read, and the scheduler looks
  // no further.
  Stand stand() const override { return {"blocks", "read theirs", "[R12]"}; }

  std::vector<Scheduler::Failed> failed_;
};

// [R21] A group that decodes asks for one cache after the other, in the order in which requests had their
// blocks, and one that prefills gives one after the other, in the order in which it was asked.
class TurnsPair : public ReadingPair {
 public:
  explicit TurnsPair(const PairParts& parts)
      : ReadingPair(parts), asking_(decode_.schedulers.size()), giving_(prefill_.schedulers.size()) {
    SL_CHECK(max_local_prefill_ == 0, "none is computed where it is answered");
  }

 private:
  struct Turn {
    PairWayId id;
    std::uint32_t tokens;
  };
  using Line = std::deque<Turn>;

  Line& reader_of(const PairWay& w) { return asking_[decode_.at(w.to, w.group_to)]; }
  Line& giver_of(const PairWay& w) { return giving_[prefill_.at(w.from, w.group)]; }

  void begin_read(Seconds at, PairWayId id, std::uint32_t tokens) override {
    Line& reader = reader_of(ways_[id]);
    reader.push_back({id, tokens});
    if (reader.size() == 1) ask(at, reader.front());
  }

  void ask(Seconds at, const Turn& turn) {
    Line& giver = giver_of(ways_[turn.id]);
    giver.push_back(turn);
    if (giver.size() == 1) begin_transfer(at, turn.id, turn.tokens);
  }

  void carried(PairWayId id, Seconds at) override {
    const PairWay& w = ways_[id];
    Line &reader = reader_of(w), &giver = giver_of(w);
    SL_CHECK(reader.front().id == id && giver.front().id == id, "who was carried had its turn");
    reader.pop_front();
    giver.pop_front();
    if (!giver.empty()) begin_transfer(at, giver.front().id, giver.front().tokens);
    if (!reader.empty()) ask(at, reader.front());
  }

  void note_parts(const PairWay& way, Seconds first) override {
    ReadingPair::note_parts(way, first);
    if ((way.there - way.prefilled).value > PairRun::kGiven) ++out_.given_up;
  }

  Stand stand() const override { return {"blocks", "theirs", "[R21]"}; }

  std::vector<Line> asking_, giving_;  // by group
};

}  // namespace

std::unique_ptr<PairPlay> play_of_turns(const PairParts& parts) { return std::make_unique<TurnsPair>(parts); }

std::unique_ptr<PairPlay> play_of_reads(const PairParts& parts) {
  return std::make_unique<ReadingPair>(parts);
}

}  // namespace shardline
