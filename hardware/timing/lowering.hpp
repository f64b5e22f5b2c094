// Schedule -> TaskGraph: one block of a representative rank (folded), or every rank, stage and repetition
// (unfolded).
#pragma once

#include <optional>

#include "hardware/cost/kernel_cost.hpp"

namespace shardline {

/// Appends the tasks of one block for one representative rank to `graph` (cleared first). Task i is op
/// block.first+i. Lanes run in order: an op also waits for the previous op of its lane.
void lower_block(const Schedule& schedule, const Block& block, CostModel& cost, TaskGraph& graph);

/// Whom lower_unfolded plays: every rank, or one rank of each class (exact where ranks of a class are alike).
enum class Players : std::uint8_t { ranks, classes };
int players(const Schedule& schedule, Players who);
/// How the members of a collective move: each through its own port at its own pace, or all at the pace of the
/// slowest, as one task [H58] that has the tag of the first member.
enum class Meeting : std::uint8_t { apart, in_step };

/// Every stage, every repetition of every block, for one pass of one microbatch. A collective starts when all
/// members of its group are ready; a message of a ring when its two ends are. Blocks end in a barrier on each
/// rank alone, so lag travels from layer to layer. Tags are player * ops + op, kJoinTag for joins without
/// work.
inline constexpr std::uint32_t kJoinTag = ~std::uint32_t{0};
void lower_unfolded(const Schedule& schedule, CostModel& cost, TaskGraph& graph, Players who = Players::ranks,
                    Meeting meeting = Meeting::apart);

/// Tasks of an unfolded graph: what a stage waits for first, and what its last block before the hand-off ends
/// with.
struct StageMarks {
  std::vector<TaskId> first, last;
};

/// Pass time of one microbatch: the sum of makespans over all runs of its blocks [H16]; where ranks are of
/// several classes, the makespan of lower_unfolded by classes [H19].
struct PassTime {
  Seconds latency;  // one microbatch through all stages
  Seconds busiest;  // stage that is occupied longest by one microbatch
};

/// Scratch space of one thread.
struct PassScratch {
  TaskGraph graph;
  Timeline timeline;
  Engine engine;
  Machine machine;
  std::vector<double> makespans;    // of the schedule's blocks
  std::vector<double> times, ends;  // of a block's ops
  Machine wide;                     // of `wide_players` ranks
  int wide_players = 0;
  explicit PassScratch(const CostModel& cost) : machine(cost.machine()) {}
};

PassTime simulate_pass(const Schedule& schedule, CostModel& cost, PassScratch& scratch);
/// Whether simulate_pass plays all layers of all classes in one graph, and not layer by layer until they
/// repeat [H19].
bool plays_all_layers(const Schedule& schedule);
/// simulate_pass() of a schedule that plays all layers, to the bit and without their graph. Nothing where
/// tasks may share a resource, or where it has several rounds.
std::optional<PassTime> replay_layers(const Schedule& schedule, CostModel& cost, const PassScratch& scratch);

/// The sum of the blocks' makespans over a pass; with several rounds, of those on its longest path [H20].
PassTime add_up(const Schedule& schedule, const std::vector<double>& makespans);

/// token_time() of add_up() for several batches at once, to the bit: seconds to out[i] from
/// makespans[block * out.size() + i]. The schedule has one round.
void token_times(const Schedule& schedule, std::span<const double> makespans, std::span<double> out);

/// Makespan of one block, in seconds, where ranks are alike and no lane is detached: what simulate_pass()
/// adds up, and likewise bound_pass().
double simulate_block(const Schedule& schedule, const Block& block, CostModel& cost, PassScratch& scratch);
double bound_block(const Schedule& schedule, const Block& block, CostModel& cost, PassScratch& scratch);

/// What one stage does in one round: when it starts and ends, and when the next stage has what it sends.
struct RoundTime {
  int stage = 0;  // copies counted
  int round = 0;
  Seconds start, end, sent;
};
/// [H20] Every stage and round of a pass, stage by stage, from the makespans of the blocks. Of schedules
/// whose ranks are all alike.
std::vector<RoundTime> play_rounds(const Schedule& schedule, const std::vector<double>& makespans);
/// How often each block lies on the longest path through these rounds.
std::vector<double> executions_on_path(const Schedule& schedule, const std::vector<RoundTime>& rounds);

/// Lower bound of simulate_pass by the longest path with every resource to itself: no engine, no contention
/// [H17].
PassTime bound_pass(const Schedule& schedule, CostModel& cost, PassScratch& scratch);

/// Steady-state time per token of one microbatch [S: steady_period].
Seconds token_time(const Schedule& schedule, const PassTime& pass);

}  // namespace shardline
