// The discrete-event engine: plays a task graph on a machine.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "sim/engine/background.hpp"
#include "sim/engine/crowd.hpp"
#include "sim/engine/event_heap.hpp"
#include "sim/engine/machine.hpp"
#include "sim/engine/sharing.hpp"
#include "sim/engine/task_graph.hpp"
#include "sim/engine/timeline.hpp"

namespace shardline {

/// From `at` on, until its next change, a task makes `rate` of progress; one unit ends it, with rate zero
/// [S1].
struct RateChange {
  Seconds at;
  TaskId task = 0;
  PerSecond rate;
};

/// Plays graphs, one at a time; keep one engine per thread. Buffers are reused: once they have grown to the
/// largest graph and machine, a run allocates nothing. Results depend on the graph and the machine only.
class Engine {
 public:
  enum class Method : std::uint8_t {
    automatic,  // replay where that is exact [S5], else events
    events,     // events always; slower, same result
  };

  explicit Engine(Method method = Method::automatic) : method_(method) {}

  /// Fills `out` with the spans of the graph's tasks [S1]-[S4]. Every demand names a resource of the machine
  /// in that resource's unit, and no time overflows (checked).
  void run(const TaskGraph& graph, const Machine& machine, Timeline& out);
  /// Also lists every change of a rate, in order of time. Plays events.
  void run(const TaskGraph& graph, const Machine& machine, Timeline& out, std::vector<RateChange>& rates);
  /// With the bursts of `background` [S10], whose resources are the machine's pipes (checked). Without any,
  /// the same bits as without a background.
  void run(const TaskGraph& graph, const Machine& machine, const Background& background, Timeline& out,
           std::vector<RateChange>* rates = nullptr);

  /// Whether the last run was a replay [S5].
  bool replayed() const { return replayed_; }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr double kRoundingRest = 1e-15;  // of a task's work; less than this left is rounding
  // Tasks on one resource and no other that are timed as a crowd, and at which a crowd is not worth it yet.
  static constexpr std::size_t kCrowd = 32, kFew = kCrowd / 2;
  enum class Phase : std::uint8_t { waiting, latency, draining, done };

  /// A task during an event run. Work is counted in seconds at full speed.
  struct Flow {
    double left = 0;   // work left at `since`
    double since = 0;  // when speed last changed
    double speed = 0;
    double end = 0;     // at this speed
    double alone = 0;   // all its work [S2]
    double weight = 0;  // [S4]
    std::uint32_t pending = 0;
    std::uint32_t ticket = 0;  // of its valid event; zero without one
    std::uint32_t visit = 0;
    Phase phase = Phase::waiting;
  };
  /// A demand during an event run, linked into its resource's list while its task drains.
  struct Claim {
    double size = 0;  // part of the capacity used at full speed; zero is never linked
    ResourceId resource = 0;
    TaskId task = 0;
    std::uint32_t next = kNone;
    std::uint32_t previous = kNone;
  };
  /// A resource during a run; stale unless `run` is the current one, so that no run visits unused resources.
  struct Pool {
    std::uint64_t run = 0;
    double free_at = 0;  // replay: end of its last user
    std::uint32_t first = kNone;
    std::uint32_t visit = 0;
    std::uint32_t local = 0;      // index in the sharing problem
    std::uint32_t crowd = kNone;  // of this resource, open or not
  };

  void execute(const TaskGraph& graph, const Machine& machine, Timeline& out);
  bool replay(Timeline& out);
  void play(Timeline& out);
  void prepare();
  double alone(TaskId task) const;
  double weight(TaskId task, double alone_time) const;
  Pool& pool(ResourceId resource);
  void prepare_background();
  void pass_bursts();
  int flows_beside(ResourceId resource) const;

  void start(TaskId task, Timeline& out);
  void begin_work(TaskId task, Timeline& out);
  void finish(TaskId task, Timeline& out);
  void link(TaskId task);
  void unlink(TaskId task);
  std::span<Claim> claims(TaskId task);
  void share(ResourceId seed);
  void collect(ResourceId seed);
  void visit(ResourceId resource);
  void solve();
  void settle(Flow& flow);
  void set_speed(TaskId task, double speed);
  void schedule(TaskId task, double time);

  Crowd* open_crowd_of(TaskId task);
  Crowd* open_crowd_on(const Pool& pool);
  void join(Crowd& crowd, TaskId task);
  void list_rates(const Crowd& crowd);
  bool gather(ResourceId resource);
  void disperse(Crowd& crowd);
  bool share_crowd(ResourceId resource);
  void end_first(Crowd& crowd, Timeline& out);
  double weight_beside(ResourceId resource) const;

  Method method_;
  bool replayed_ = false;
  const TaskGraph* graph_ = nullptr;  // these four are valid during a run only
  const Machine* machine_ = nullptr;
  const Background* background_ = nullptr;  // null without bursts
  std::vector<RateChange>* rates_ = nullptr;
  std::uint64_t run_ = 0;
  double now_ = 0;
  std::uint32_t visit_ = 0;
  std::uint32_t ticket_ = 0;
  std::size_t done_ = 0;

  std::vector<Pool> pools_;
  std::vector<Flow> flows_;
  std::vector<Claim> claims_;
  std::vector<std::uint32_t> successors_begin_;
  std::vector<TaskId> successors_;
  std::vector<TaskId> ready_;
  std::vector<ResourceId> changed_;    // resources whose users changed at now_
  std::vector<TaskId> group_;          // tasks joined by shared resources
  std::vector<ResourceId> territory_;  // their resources
  FairShare fair_share_;
  EventHeap<HeapEvent> events_;
  std::vector<Crowd> crowds_;
  std::uint32_t crowd_count_ = 0;                              // of this run
  std::vector<BurstClock> clocks_;                             // of the background's sources
  std::vector<int> beside_;                                    // flows of the background now, per resource
  std::vector<std::pair<double, std::uint32_t>> next_bursts_;  // heap: when a source begins or ends one
};

/// One run of a fresh engine. For many runs keep an Engine.
Timeline simulate(const TaskGraph& graph, const Machine& machine);

}  // namespace shardline
