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

/// Of what a pair is played.
struct PairParts {
  const PlayedPool& prefill;
  const PlayedPool& decode;
  const TransferRates& links;
  const ClusterLoad& load;
  const PlayedEngine::Answered& answered;
};

/// Both pools from event to event. What follows from how caches get from one to the other is a class of its
/// own for each CacheWay.
class PairPlay {
 public:
  explicit PairPlay(const PairParts& parts);
  virtual ~PairPlay() = default;
  PairPlay(const PairPlay&) = delete;
  PairPlay& operator=(const PairPlay&) = delete;
  PairRun run(std::uint64_t requests, const std::function<void(std::uint64_t)>& step);

 protected:
  /// Something of a hand-off that a step has left and that goes on its way, or to a router, at its time.
  struct Between {
    Seconds at;
    std::uint64_t order;
    PairWayId way;
    std::uint32_t tokens = 0;  // [R14] that go over links from then on
    bool last = false;
    bool operator>(const Between& b) const { return at > b.at || (at == b.at && order > b.order); }
  };
  /// What an error says of an engine that stands still: what requests hold, and who has it.
  struct Stand {
    const char *holds, *others, *rules;
  };

  /// Of who is sent now, and comes to its first engines at `request.arrival`.
  virtual void route(PairWay&& way) = 0;
  /// Requests that wait, each once.
  virtual double waiting() const = 0;
  /// Of who has come to an engine of the pool, which has taken it; or whether the engine may refuse it.
  virtual void taken(const PairPool& /*pool*/, PairWayId /*id*/) {}
  virtual bool may_refuse(const PairPool& pool, const PairWay& way) const = 0;
  /// A prompt has been computed.
  virtual void computed(PairWayId id, const AnsweredRequest& prompt) = 0;
  virtual void pass(const Between& b) = 0;
  /// Until when nothing but who comes changes what engine i of the pool decides.
  virtual Seconds until(const PairPool& pool, std::size_t i) const = 0;
  /// Engine i of the pool has gone on.
  virtual void went_on(const PairPool& pool, std::size_t i) = 0;
  /// All of a cache is there: its time, and whether the engines would have given the request up.
  virtual void note_transfer(const PairWay& way) = 0;
  virtual Stand stand() const = 0;

  double waiting_in(const PairPool& pool) const;
  /// Who has begun to read at replica i, or has room, since this was asked last: tokens of each.
  const std::vector<std::pair<PairWayId, std::uint32_t>>& take_reads(std::size_t i);
  void begin_transfer(Seconds at, PairWayId id, std::uint32_t tokens);

  const ClusterLoad& load_;
  PairPool prefill_, decode_;
  const std::int64_t max_local_prefill_;
  const Seconds fixed_;  // before anything of a hand-off flows
  TransferLinks links_;
  RequestSlots<PairWay> ways_;
  std::priority_queue<Between, std::vector<Between>, std::greater<>> between_;
  std::uint64_t ordered_ = 0;
  bool more_ = true;
  PairRun out_;

 private:
  bool next_event();
  void send();
  void arrive(PairPool& pool, std::size_t i);
  bool take(PairPool& pool, std::size_t i, PairWayId id);
  void prefilled(std::size_t i, const AnsweredRequest& a);
  void play(PairPool& pool, std::size_t i);
  void end_transfer();
  void handed_over(PairWayId id, Seconds at);
  void leave(std::size_t i, const AnsweredRequest& a);
  [[noreturn]] void stands_still() const;
  void finish();

  const PlayedEngine::Answered& answered_;
  std::vector<std::pair<std::size_t, Scheduler::Id>> readers_;  // by way
  std::vector<Scheduler::Read> reads_;
  std::vector<std::pair<PairWayId, std::uint32_t>> reading_;
  std::vector<std::pair<Seconds, double>> waits_;
  std::uint64_t requests_ = 0, done_ = 0, refused_ = 0;
};

/// [R12] Where the pool that decodes reads, pair_reads.cpp; [R14] where the one that prefills sends,
/// pair_sends.cpp.
std::unique_ptr<PairPlay> play_of_reads(const PairParts& parts);
std::unique_ptr<PairPlay> play_of_sends(const PairParts& parts);

}  // namespace shardline
