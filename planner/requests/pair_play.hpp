// A pair of pools in play: what both kinds of hand-off share, and where they differ.
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "planner/requests/pair.hpp"
#include "planner/requests/request_slots.hpp"

namespace shardline {

constexpr double kNoPairEvent = std::numeric_limits<double>::infinity();

/// Of a request that is on its way through both pools.
struct PairWay {
  TraceRequest request;
  Arrival arrival;
  std::size_t from = 0, to = 0;  // the replica that prefills it, unless the one that decodes does; that one
  std::uint64_t number = 0;      // at `from`
  Seconds prefilled, reads, there;
  std::uint32_t flows = 0;  // [R14] parts of its cache that are on their way
  bool came = false, room = false, all_sent = false;
};
using PairWayId = RequestSlots<PairWay>::Id;

/// One of both pools, played.
class PairPool {
 public:
  PairPool(const PlayedPool& of, const std::function<void(std::size_t, const AnsweredRequest&)>& answered);
  std::size_t size() const { return engines.size(); }
  bool plays(std::size_t i) const { return !engines[i]->idle() && !engines[i]->asleep(); }
  /// Nobody but who comes later is answered before by others than `but`. Who sleeps may go on at any time.
  Seconds earliest(std::size_t but) const;
  void wake(std::size_t i, Seconds at) {
    if (engines[i]->asleep()) engines[i]->wake(at);
  }

  ReplicaRouter router;
  std::vector<Scheduler*> schedulers;
  std::vector<std::unique_ptr<PlayedEngine>> engines;
  std::vector<std::deque<PairWayId>> coming;  // to each replica, in order
  std::vector<std::vector<PairWayId>> ways;   // by replica and number there
};

/// [R12], [R14] Both pools from event to event.
class PairPlay {
 public:
  PairPlay(const PlayedPool& prefill, const PlayedPool& decode, const TransferRates& links,
           const ClusterLoad& load, const PlayedEngine::Answered& answered);
  PairRun run(std::uint64_t requests, const std::function<void(std::uint64_t)>& step);

 private:
  struct Between {
    Seconds at;
    std::uint64_t order;
    PairWayId way;
    std::uint32_t tokens = 0;  // [R14] that go over links from then on
    bool last = false;
    bool operator>(const Between& b) const { return at > b.at || (at == b.at && order > b.order); }
  };

  bool next_event();
  void send();
  void arrive(PairPool& pool, std::size_t i);
  bool take(PairPool& pool, std::size_t i, PairWayId id);
  void prefilled(std::size_t i, const AnsweredRequest& a);
  void play(PairPool& pool, std::size_t i);
  void end_transfer();
  void begin_transfer(std::size_t to, Seconds at, PairWayId id, std::uint32_t tokens);
  void handed_over(PairWayId id, Seconds at);
  void leave(std::size_t i, const AnsweredRequest& a);
  [[noreturn]] void stands_still() const;
  void finish();

  // Where the pool that decodes reads, pair_reads.cpp.
  void route_to_decode();
  Seconds until_reads(const PairPool& pool, std::size_t i) const;
  void begin_reads(std::size_t i);
  // Where the one that prefills sends, pair_sends.cpp.
  void route_to_both(PairWay&& w);
  Seconds until_sent(const PairPool& pool, std::size_t i) const;
  void give_rooms(std::size_t i);
  void tell_room(PairWayId id, Seconds at);
  void queue_sent(std::size_t i);
  void send_part();

  const ClusterLoad& load_;
  const PlayedEngine::Answered& answered_;
  PairPool prefill_, decode_;
  const bool sends_;
  const std::int64_t max_local_prefill_;
  const Seconds fixed_;  // before anything of a hand-off flows
  TransferLinks links_;
  RequestSlots<PairWay> ways_;
  std::priority_queue<Between, std::vector<Between>, std::greater<>> between_;
  std::vector<std::pair<std::size_t, Scheduler::Id>> readers_;  // by way
  std::vector<Scheduler::Read> reads_;
  std::vector<Scheduler::Sent> sent_;
  std::vector<std::pair<Seconds, double>> waits_;
  std::uint64_t requests_ = 0, done_ = 0, refused_ = 0, ordered_ = 0;
  bool more_ = true;
  PairRun out_;
};

}  // namespace shardline
