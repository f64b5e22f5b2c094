// Pairs of pools where the one that decodes reads caches when it has room [R12], as under vLLM's
// NixlConnector.
#include <algorithm>
#include <utility>

#include "planner/requests/pair_play.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

class ReadingPair : public PairPlay {
 public:
  using PairPlay::PairPlay;

 private:
  void route(PairWay&& way) override {
    way.request.local_prefill = way.request.input <= max_local_prefill_;
    PairPool& first = way.request.local_prefill ? decode_ : prefill_;
    const std::size_t to = way.from = first.router.route(way.request, way.arrival.time);
    first.coming[to].push_back(ways_.add(std::move(way)));
  }

  double waiting() const override { return waiting_in(prefill_) + waiting_in(decode_); }

  bool may_refuse(const PairPool& pool, const PairWay& way) const override {
    return &pool == &prefill_ || way.request.local_prefill;
  }

  void computed(PairWayId id, const AnsweredRequest& prompt) override {
    out_.prompt.add((prompt.last - prompt.came).value);
    between_.push({prompt.last, ordered_++, id});
  }

  // To a router, as who is sent.
  void pass(const Between& b) override {
    PairWay& w = ways_[b.way];
    w.request.arrival = b.at + load_.path;
    decode_.coming[decode_.router.route(w.request, b.at)].push_back(b.way);
  }

  // Nobody comes to the pool that decodes but by way of the other one, unless prompts may stay there.
  Seconds until(const PairPool& pool, std::size_t i) const override {
    Seconds until{kNoPairEvent};
    if (more_) {
      const bool at_once = &pool == &prefill_ || max_local_prefill_ > 0;
      until = std::min(until, load_.arrivals->next_time() + load_.path * (at_once ? 1.0 : 2.0));
    }
    if (&pool == &prefill_) return std::min(until, links_.earliest_of_sender(i));
    until =
        std::min({until, prefill_.earliest(prefill_.size()) + load_.path, links_.earliest_of_receiver(i)});
    if (!between_.empty()) until = std::min(until, between_.top().at + load_.path);
    for (std::size_t p = 0; p < prefill_.size(); ++p)
      if (!prefill_.coming[p].empty())
        until = std::min(until, ways_[prefill_.coming[p].front()].request.arrival + load_.path);
    return until;
  }

  void went_on(const PairPool& pool, std::size_t i) override {
    if (&pool != &decode_) return;
    for (const auto& [id, tokens] : take_reads(i)) {
      PairWay& w = ways_[id];
      w.all_sent = true;
      out_.room.add((w.reads - w.prefilled).value);
      begin_transfer(w.reads, id, tokens);
    }
  }

  void note_transfer(const PairWay& way) override {
    out_.transfer.add((way.there - way.reads).value);
    if ((way.there - way.prefilled).value > PairRun::kKept) ++out_.given_up;
  }

  // One that lost its blocks waits in front of those that hold theirs and have read, and the scheduler looks
  // no further.
  Stand stand() const override { return {"blocks", "read theirs", "[R12]"}; }
};

}  // namespace

std::unique_ptr<PairPlay> play_of_reads(const PairParts& parts) {
  return std::make_unique<ReadingPair>(parts);
}

}  // namespace shardline
