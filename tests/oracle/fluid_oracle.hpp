// A slow, obvious second implementation of the engine's rules, for tests.
#pragma once

#include "sim/engine/machine.hpp"
#include "sim/engine/task_graph.hpp"
#include "sim/engine/timeline.hpp"

namespace shardline {

/// Plays the graph by stepping from one end to the next; at each step all rates are filled anew, naively,
/// over all active tasks, in progress per second (not normalised to speeds as the engine does) and in long
/// double.
Timeline fluid_oracle(const TaskGraph& graph, const Machine& machine);

}  // namespace shardline
