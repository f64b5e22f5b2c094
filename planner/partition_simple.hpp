// A context partition for a KV-Runahead plan, searched by simulation. planner/README.md [C13].
#pragma once

#include "planner/evaluate.hpp"

namespace shardline {

struct FoundPartition {
  std::vector<long long> parts;  // tokens of each rank
  Seconds ttft;
  int evaluations = 0;  // simulations
};

/// Starts from partitions of equal work and moves tokens between any two parts in falling strides, as long as
/// the simulated time falls. `plan` is of kv_runahead on sequences of equal length, each of at least
/// cp tokens; its partition is not looked at. Deterministic; the result is never slower than equal parts.
FoundPartition best_partition_by_events(Evaluator& evaluator, Plan plan);

}  // namespace shardline
