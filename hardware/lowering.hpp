// Schedule -> TaskGraph: one block of a representative rank (folded), or every rank, stage and repetition
// (unfolded).
#pragma once

#include "hardware/kernel_cost.hpp"

namespace shardline {

/// Appends the tasks of one block for one representative rank to `graph` (cleared first). Task i is op
/// block.first+i. Lanes run in order: an op also waits for the previous op of its lane.
void lower_block(const Schedule& schedule, const Block& block, CostModel& cost, TaskGraph& graph);

/// Every rank of every stage, every repetition of every block, for one pass of one microbatch. Collectives
/// start when all members of their group are ready. Task tags are rank * ops + op. Used to prove folding and
/// for small systems.
void lower_unfolded(const Schedule& schedule, CostModel& cost, TaskGraph& graph);

/// Folded pass time of one microbatch: sum of makespans over all runs of its blocks [H16].
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
  std::vector<double> makespans;  // of the schedule's blocks
  std::vector<double> ends;
  explicit PassScratch(const CostModel& cost) : machine(cost.machine()) {}
};

PassTime simulate_pass(const Schedule& schedule, CostModel& cost, PassScratch& scratch);

/// Lower bound of simulate_pass by the longest path with every resource to itself: no engine, no contention
/// [H17].
PassTime bound_pass(const Schedule& schedule, CostModel& cost, PassScratch& scratch);

/// Steady-state time per token of one microbatch [S: steady_period].
Seconds token_time(const Schedule& schedule, const PassTime& pass);

}  // namespace shardline
