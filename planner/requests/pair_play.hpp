// A pair of pools in play: what both kinds of hand-off share, and where they differ.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "planner/requests/first_due.hpp"
#include "planner/requests/pair.hpp"
#include "planner/requests/request_slots.hpp"
#include "planner/requests/text_memory.hpp"

namespace shardline {

constexpr double kNoPairEvent = FirstDue::kNever;

/// Of a request that is on its way through both pools: one attempt to answer it.
struct PairWay {
  TraceRequest request;
  TextMemory::Text text;  // of the request, once the way is added: its blocks are empty then
  Arrival arrival;
  std::size_t from = 0, to = 0;  // the replica that prefills it, unless the one that decodes does; that one
  std::size_t group = 0, group_to = 0;      // [R18] of these, once it is there
  std::uint64_t number = 0, number_to = 0;  // at these
  std::uint64_t place = 0;                  // among all requests, as they were sent first
  std::uint64_t serial = 0;                 // among all attempts, from 1 on; 0: forgotten
  Seconds prefilled, reads, there;
  std::uint32_t flows = 0;   // [R14] parts of its cache that are on their way
  std::uint32_t tokens = 0;  // of its cache that went, or go, over links
  double cut = 0;            // of these, that were not carried
  bool came = false, room = false, all_sent = false;
  // [R15] Its prompt is computed; it is given to `to`; all of its cache is there.
  bool computed = false, at_decode = false, handed = false;
  bool one_sided = false;   // [R14] one server of the two is not asked, as the other one refuses it
  bool cache_gone = false;  // its replica that prefilled is
  bool lost = false;        // sent again as another attempt: what engines still hold for it is to be freed
};
using PairWayId = RequestSlots<PairWay>::Id;

/// One of both pools, played. Whoever changes what a replica's engine has, or reads it, ends the stretch of
/// steps that it may be in first (PairPlay::touch), and looks for what comes next there (look()) when done.
class PairPool {
 public:
  using Stepped = std::function<void(std::size_t, const PlayedStep&)>;
  PairPool(const PlayedPool& of, ReplicaPool which,
           std::function<void(std::size_t, const AnsweredRequest&)> answered, Stepped stepped);
  std::size_t size() const { return engines.size(); }
  /// A group of replica i among all.
  std::size_t at(std::size_t i, std::size_t group) const { return i * groups.count + group; }
  bool up(std::size_t i) const { return engines[i] != nullptr; }
  /// Sees what is next at replica i after anything has happened there.
  void look(std::size_t i);
  void wake(std::size_t i, Seconds at) {
    if (engines[i]->asleep()) engines[i]->wake(at);
    look(i);
  }
  /// [R15] Replica i has an empty engine; it is gone.
  void start(std::size_t i, const std::vector<Scheduler*>& of_groups, Seconds now);
  void end(std::size_t i);
  /// Who comes to replica i, in the order of arrival; who does not any more.
  void come(std::size_t i, PairWayId id, Seconds arrival);
  PairWayId take_coming(std::size_t i);
  bool comes(std::size_t i, PairWayId id) const;
  void stay(std::size_t i, PairWayId id);

  const ReplicaPool which;
  const StepTimes& times;
  const ReplicaGroups groups;
  const std::function<void(std::size_t, const AnsweredRequest&)> answered;
  const Stepped stepped;  // nothing: nobody looks
  ReplicaRouter router;
  std::vector<Scheduler*> schedulers;                  // by at()
  std::vector<std::unique_ptr<Scheduler>> renewed;     // of replicas that are back
  std::vector<std::unique_ptr<PlayedEngine>> engines;  // nullptr: down
  std::vector<std::vector<PairWayId>> ways;            // by replica and number there
  std::vector<std::vector<PairWayId>> group_ways;      // by at() and number there
  std::vector<ServedRequests> past;                    // what replicas served before they died
  std::vector<Seconds> since;                          // when each began
  // By replica: a stretch ends, somebody comes (or ends a stretch by it), steps begin.
  FirstDue ends, arrivals, begins;

 private:
  struct Coming {
    Seconds arrival;
    PairWayId id;
  };
  std::vector<std::deque<Coming>> coming_;  // to each replica, in order
};

/// Of what a pair is played.
struct PairParts {
  const PlayedPool& prefill;
  const PlayedPool& decode;
  const TransferRates& links;
  const ClusterLoad& load;
  const PlayedEngine::Answered& answered;
  const PairFailures& failures;
  ServedTimeline* timeline;  // nullptr: nobody looks
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
  /// Something of a hand-off that a step has left and that goes on its way, or to a router, at its time; or
  /// [R15] what becomes then of a request that was lost: `frees` what an engine holds for it, `again` sends
  /// it.
  struct Between {
    enum class Kind : std::uint8_t { hand_off, frees, again };
    Seconds at;
    std::uint64_t order;
    PairWayId way;
    std::uint64_t serial;
    Kind kind = Kind::hand_off;
    std::uint32_t tokens = 0;  // [R14] that go over links from then on
    bool last = false;
    bool operator>(const Between& b) const { return at > b.at || (at == b.at && order > b.order); }
  };
  /// What an error says of an engine that stands still: what requests hold, and who has it.
  struct Stand {
    const char *holds, *others, *rules;
  };

  /// Of who is sent now, and comes to its first engines at `request.arrival`.
  virtual void route(PairWay&& way, Seconds now) = 0;
  /// Requests that wait, each once.
  virtual double waiting() const = 0;
  /// Of who has come to an engine of the pool, which has taken it; or whether the engine may refuse it.
  virtual void taken(const PairPool& /*pool*/, PairWayId /*id*/) {}
  virtual bool may_refuse(const PairPool& pool, const PairWay& way) const = 0;
  virtual void computed(PairWayId id) = 0;
  virtual void pass(const Between& b) = 0;
  /// All of a request's cache is at the engine that decodes.
  virtual void carried(PairWayId /*id*/, Seconds /*at*/) {}
  /// Engine i of the pool has decided steps, or some of its steps have ended.
  virtual void went_on(const PairPool& pool, std::size_t i) = 0;
  /// Of who is answered: the parts of its TTFT, and whether the engines would have given it up.
  virtual void note_parts(const PairWay& way, Seconds first) = 0;
  virtual Stand stand() const = 0;
  /// [R15] A replica of the pool that way `id` is at is gone, as of now. Whether its request is to be sent
  /// again; the way is forgotten, or what is left of it is cared for.
  virtual bool loses(const PairPool& pool, PairWayId id, Seconds now) = 0;
  /// [R15] What an engine holds for a way that was lost is free.
  virtual void free_lost(PairWayId id, Seconds now) = 0;

  double waiting_in(const PairPool& pool) const;
  /// At `at` somebody looks at replica i, or something happens to it: the step that is under way is known.
  void touch(PairPool& pool, std::size_t i, Seconds at);
  /// Who has begun to read at replica i, or has room, since this was asked last: tokens of each.
  const std::vector<std::pair<PairWayId, std::uint32_t>>& take_reads(std::size_t i);
  void begin_transfer(Seconds at, PairWayId id, std::uint32_t tokens);
  void push(Seconds at, PairWayId id, Between::Kind kind, std::uint32_t tokens = 0, bool last = false) {
    between_.push({at, ordered_++, id, ways_[id].serial, kind, tokens, last});
  }
  /// The replica that prefilled it is told that a request was read, or never will be.
  void release(const PairWay& way, Seconds at);
  Scheduler& prefiller(const PairWay& w) { return *prefill_.schedulers[prefill_.at(w.from, w.group)]; }
  PairWayId add(PairWay&& way);
  /// The request of a way that was added, with its text; until the next one.
  TraceRequest& whole(const PairWay& way);
  /// A copy with its text, to be sent again.
  PairWay copy(PairWayId id) const;
  /// An attempt ends, answered or not: its tokens are counted.
  void forget(PairWayId id, bool answered = false);
  /// Sent again by the router, which knows at once; the way from a user is not gone again.
  void send_again(PairWay way, Seconds now);
  bool never_fails() const { return failures_.all.empty(); }
  bool any_up(bool prefill) const {
    return decode_.router.any_up() && (!prefill || prefill_.router.any_up());
  }

  const ClusterLoad& load_;
  PairPool prefill_, decode_;
  const std::int64_t max_local_prefill_;
  TransferLinks links_;
  TextMemory texts_;  // of ways
  RequestSlots<PairWay> ways_;
  std::priority_queue<Between, std::vector<Between>, std::greater<>> between_;
  std::vector<Scheduler::Id> readers_;  // by way, in the group that it is to be answered by
  bool more_ = true;
  PairRun out_;

 private:
  // [R15] A replica dies, or is back.
  struct Event {
    Seconds time;
    PairPool* pool;
    std::size_t replica = 0;
    bool up = false;
  };

  bool next_event();
  void go_between();
  void send();
  void give(PairWay&& way, Seconds now);
  void arrive(PairPool& pool, std::size_t i);
  bool take(PairPool& pool, std::size_t i, PairWayId id);
  void in_group(PairPool& pool, std::size_t i, PairWayId id, std::size_t group);
  void take_dealt(PairPool& pool, std::size_t i);
  void show(std::size_t replica, AnsweredRequest a, const PairWay& way);
  void prefilled(std::size_t i, const AnsweredRequest& a);
  void begin(PairPool& pool, std::size_t i);
  void end_transfer();
  void handed_over(PairWayId id, Seconds at);
  void leave(std::size_t i, const AnsweredRequest& a);
  void notice_circles(const PlayedEngine& engine);
  [[noreturn]] void stands_still() const;
  void finish();
  // pair_failures.cpp
  void plan_failures();
  static void name_text(PairWay& way);
  Seconds next_failure() const;
  void fail(PairWayId id, Seconds at);
  void happen(const Event& e);
  void go_down(PairPool& pool, std::size_t i, Seconds at);
  std::vector<PairWayId> ways_at(const PairPool& pool, std::size_t i) const;
  void let_die(PairPool& pool, std::size_t i);

  const PlayedEngine::Answered& answered_;
  const PairFailures& failures_;
  ServedTimeline* const timeline_;
  std::vector<Event> events_;
  std::size_t next_event_ = 0;
  TraceRequest whole_;
  std::vector<PairWay> homeless_;  // while all of a pool are down
  std::vector<Scheduler::Read> reads_;
  std::vector<std::pair<PairWayId, std::uint32_t>> reading_;
  std::vector<std::pair<Seconds, double>> waits_;
  std::uint64_t requests_ = 0, done_ = 0, refused_ = 0, ordered_ = 0, attempts_ = 0;
  std::uint64_t circling_ = 0;  // engines that have begun, one after another, and only computed what they had
};

/// [R12] Where the pool that decodes reads, [R21] one after the other, pair_reads.cpp; [R14] where the one
/// that prefills sends, pair_sends.cpp.
std::unique_ptr<PairPlay> play_of_reads(const PairParts& parts);
std::unique_ptr<PairPlay> play_of_sends(const PairParts& parts);
std::unique_ptr<PairPlay> play_of_turns(const PairParts& parts);

}  // namespace shardline
