// One engine and the requests in it, from step to step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "planner/requests/group_router.hpp"
#include "planner/requests/pipeline_clock.hpp"
#include "planner/requests/prefill_delayer.hpp"
#include "planner/requests/scheduler.hpp"
#include "planner/requests/served_series.hpp"
#include "planner/requests/text_memory.hpp"
#include "sim/queue/quantiles.hpp"

namespace shardline {

/// One request that was answered. Times since the beginning of the trace.
struct AnsweredRequest {
  std::uint64_t number = 0;   // in the order in which they came, those that were refused not counted
  Seconds came, first, last;  // its first and its last token
  std::uint32_t prompt = 0, answer = 0, found = 0, preempted = 0;  // tokens; times
};

/// One step of all attention groups, or a stretch of `steps` that only decode with the same requests. [R36]
/// Of a pipeline: from the end of the step before to its own.
struct PlayedStep {
  Seconds from, to;
  std::uint64_t steps = 1;
  std::uint32_t decodes = 0;        // requests that get a token in each
  std::uint32_t prompts = 0;        // parts of prompts
  std::uint64_t prompt_tokens = 0;  // of these
  std::size_t waiting = 0;          // requests that have not begun
  double held = 0;                  // the part of the KV cache that requests hold
};

/// Seconds. TPOT is of requests of two tokens at least, (last - first) / (answer - 1); ITL is of every token
/// but the first of each.
struct ServedRequests {
  RunQuantiles ttft, tpot, itl, e2e;
  std::uint64_t answered = 0, refused = 0, preemptions = 0;
  std::uint64_t steps = 0, events = 0;  // an event plays one step or a stretch of them
  std::uint64_t prompt_tokens = 0, found_tokens = 0, answer_tokens = 0;
  Seconds end, busy;     // of the last step; all steps together
  Seconds prompting;     // steps with prompts
  double held = 0;       // the part of the KV caches that requests hold, times seconds of steps
  double running = 0;    // likewise the requests that have begun
  double most_held = 0;  // of the fullest group's
  /// [R19] Steps in which no group computed anything, which are none of `steps`, and what they took.
  std::uint64_t dummies = 0;
  Seconds dummy_time;
  StepEnergy energy;    // [R39] of all steps, dummies and cut ones too
  ServedSeries series;  // the same over time
};

/// Adds what a later engine of the same replica served.
void merge(ServedRequests& to, const ServedRequests& more);

/// [R5] Who comes during a step waits for its end. With `jump`, steps that are alike are played as one event.
///
/// [R10] Attention groups have a scheduler each, and a step of all of them begins and ends together; who has
/// nothing to do in a step takes part in it nevertheless. Steps are decided for all groups at once, so that a
/// request that comes to a group without any waits as others do.
///
/// [R19] Where engines run dummy batches (ReplicaGroups::wave) a replica with requests never stops, and one
/// without goes on until its engines ask each other whether anybody has any left.
///
/// [R40] Where prompts are held back (ReplicaGroups::delayer) groups say first, before every step, whether
/// they have any.
///
/// [R36] Where times are of stages, as many steps as the scheduler decides ahead are on their way together;
/// they end in their order. [R38] There may be events in which an engine only decides the next one.
class PlayedEngine {
 public:
  using Answered = std::function<void(const AnsweredRequest&)>;
  using Stepped = std::function<void(const PlayedStep&)>;

  /// Refers to both.
  PlayedEngine(Scheduler& scheduler, const StepTimes& times, bool jump, Answered answered = {},
               Stepped stepped = {});
  /// Of several attention groups alike, whose schedulers decide equally many steps ahead (checked).
  PlayedEngine(std::vector<Scheduler*> schedulers, const ReplicaGroups& groups, const StepTimes& times,
               bool jump, Answered answered = {}, Stepped stepped = {});

  /// The end of the last step, or when somebody came to an engine with nothing to do.
  Seconds now() const { return now_; }
  bool idle() const;
  /// [R12] Its requests wait for hand-offs, and there is nothing to compute: it goes on when one ends, or
  /// when somebody comes.
  bool asleep() const { return asleep_; }
  void wake(Seconds now);
  /// Some group computes the same for ever (Scheduler::circles()), and none anything else.
  bool circles() const;
  /// When steps were last decided: reads that began then began there.
  Seconds decided_at() const { return decided_at_; }
  /// Requests that have not begun.
  std::size_t waiting() const;
  /// A request reaches the engine at request.arrival, at most now() unless idle() or asleep() (checked), and
  /// was sent at `came`. False where it is refused, which is counted.
  bool take(const TraceRequest& request, Seconds came);
  /// The group that the last one who was taken went to, of requests that do not wait in front of groups.
  std::size_t taken_by() const { return taken_by_; }
  /// Whether requests wait in front of groups; and who went from there to a group when begin() decided steps,
  /// in the order in which groups got them: `request` is its number among all that were taken.
  bool queues() const { return rule_.routing == GroupRouting::from_queue; }
  const std::vector<Dealt>& dealt() const { return dealt_; }
  /// Plays the next event of an engine that is not idle: steps that are alike, as many as begin before
  /// `until`. An engine in which everybody lost its blocks decides again.
  void play(Seconds until);
  /// The same in two parts, for those who do not know until when nothing changes: begins the event, and a
  /// stretch of several steps stays open. Its last step is then the one that is under way at `at`, not before
  /// now(), or that ends there; nothing where none is open. Meanwhile nobody else touches the engine or its
  /// schedulers (take() checks it), and now() is when the stretch began.
  void begin();
  void end(Seconds at);
  bool open() const { return open_ > 0; }
  /// When an open stretch ends unless it is ended before.
  Seconds ends() const;

  const ServedRequests& served() const { return out_; }
  /// What was served, up to now.
  ServedRequests take_served();

  /// [R13] It dies then: a step that would end later does not end, and nobody gets its tokens.
  void die_at(Seconds time) { dies_ = time; }
  bool dead() const { return dead_; }

 private:
  struct Times {
    Seconds came, first, last;  // its last token, unless the scheduler counts it among others
    std::uint64_t number = 0;
    bool any = false;
  };
  struct Group {
    Scheduler* scheduler = nullptr;
    std::vector<Times> requests = {};  // by id
    std::uint64_t tokens = 0;          // of prompts of those that it has
  };
  // In the queue in front of groups.
  struct Queued {
    TraceRequest request;   // without its text
    TextMemory::Text text;  // in texts_
    Seconds came;
    std::uint64_t number = 0;
  };

  static bool idle(const Scheduler& s) { return s.decided() == 0 && s.running() + s.waiting() == 0; }
  bool give(Group& group, const TraceRequest& request, Seconds came, std::uint64_t number);
  void queue(const TraceRequest& r, Seconds came);
  void deal();
  void decide();
  bool decide_once();
  void hold_prompts();
  bool unfinished() const;
  bool decide_or_dummy();
  void take_firsts(Group& group);
  void look_at_groups();
  std::uint64_t steps_alike() const;
  void step();
  bool pass_stages();
  void end_open();
  void die();
  void account(Seconds from, Seconds took, std::uint64_t steps);
  PlayedStep account_time(Seconds from, Seconds took);
  void finish(Group& group, Seconds from, std::uint64_t steps);
  bool token(Group& group, Scheduler::Id id, Seconds from, std::uint64_t steps);
  void leave(Group& group, Scheduler::Id id);
  void hold(Seconds from, Seconds to);

  std::vector<Group> groups_;
  const ReplicaGroups rule_;
  TextMemory texts_;  // of the queue
  std::deque<Queued> queue_;
  std::vector<Dealt> dealt_;
  GroupRouter router_;
  const StepTimes& times_;
  const bool jump_;
  const Answered answered_;
  const Stepped stepped_;
  // Steps that are decided and have not ended, and which groups compute something in each: at least one.
  std::deque<std::vector<char>> steps_;
  std::vector<char> works_;                // of the step that ended last: the next one takes its memory
  std::vector<const StepBatch*> batches_;  // of the first of them, by group
  DecodeStretch stretch_;                  // of the steps that are open
  std::uint64_t open_ = 0;
  bool prompts_ = false, dummy_ = false;
  std::optional<PipelineClock> clock_;  // [R36]
  std::optional<Seconds> since_;        // [R38] the end of a step, where the engine decided behind it
  std::uint64_t wave_ = 0;  // steps that were decided since somebody came to a replica that had stopped
  std::vector<GroupRouter::Counts> counts_;
  std::vector<Scheduler::Id> firsts_;
  std::uint64_t taken_ = 0;
  std::size_t taken_by_ = 0;
  Seconds now_, decided_at_;
  bool asleep_ = false, dead_ = false;
  bool left_early_ = false;  // somebody had all of its answer when steps were decided last
  Seconds dies_{std::numeric_limits<double>::infinity()};
  std::optional<PrefillDelayer> delayer_;  // [R40]
  std::vector<PromptBid> bids_;
  bool bidden_ = false, held_ = false;  // somebody could begin prompts in the step decided last; none may
  int tries_ = 0;                       // that decided nothing, one after another
  ServedRequests out_;
};

}  // namespace shardline
