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

/// Requests that are played one by one, as memory is needed for them.
struct PlayedRequests {
  std::uint64_t all = 0;  // their latencies are kept for quantiles
  /// Of a closed loop, each of whom waits at most once; 0: they come when they like, and as many as come may
  /// wait at once, however fast they are answered.
  long long users = 0;
  /// Ids of blocks of the prompts of all that may wait at once, counted in each place that keeps them.
  double texts = 0;
  bool in_pairs = false;    // of pools that prefill and decode: both have them, and who sends them
  bool sent_again = false;  // replicas die: who sends them keeps them, too
  int replicas = 1;         // of an engine, attention groups each as one
  double blocks = 0;        // of the KV cache of each
};
MemoryNeed need_of_requests(const PlayedRequests& played);

/// Of recorded prompts of so many blocks of text together, computed in so many steps in both variants of a
/// ring.
MemoryNeed need_of_prompts(std::uint64_t prompts, std::uint64_t blocks, std::uint64_t steps, int threads);

}  // namespace shardline
