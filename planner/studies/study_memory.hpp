// How much memory of this machine the questions of a scenario other than a sweep need, and requests that are
// served one by one, before they are worked on. planner/README.md [P31].
#pragma once

#include <cstdint>

#include "planner/scenario/scenario.hpp"
#include "sim/base/memory_limit.hpp"

namespace shardline {

/// `threads`: 0 means all cores, as for the studies.
MemoryNeed need_of_thresholds(const ThresholdGrid& grid, int threads);
MemoryNeed need_of_partitions(const PartitionGrid& grid, int threads);
MemoryNeed need_of_conversation(const Conversation& talk);

/// Of requests that are played one by one, whose latencies are kept for quantiles; of users of a closed loop
/// (or 0); of replicas of an engine, each with so many blocks of KV cache; of `texts` blocks of kTraceBlock
/// tokens that prompts of users who wait have, counted in each place that keeps them.
MemoryNeed need_of_requests(std::uint64_t requests, long long users, int replicas, double blocks,
                            double texts = 0);

/// Of recorded prompts of so many blocks of text together, computed in so many steps in both variants of a
/// ring.
MemoryNeed need_of_prompts(std::uint64_t prompts, std::uint64_t blocks, std::uint64_t steps, int threads);

}  // namespace shardline
