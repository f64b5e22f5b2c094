// Memory per GPU of a plan, on the fullest pipeline stage. planner/README.md [P2]-[P5].
#pragma once

#include <optional>
#include <string>

#include "planner/engines/kept_memory.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

struct MemoryUse {
  Bytes weights, kv, activations, buffers;
  KeptOf server;  // of what its engine keeps beside them, if it has one
  Bytes total() const { return weights + kv + activations + buffers; }
};

MemoryUse memory_use(const Case& c, const Plan& plan);

/// Why the plan does not fit ("needs 213 GB of 176.7 GB per GPU: weights 42 GB, KV 171 GB"), or nothing.
/// Weights and KV may fill usable * capacity; everything together must stay below the capacity.
std::optional<std::string> does_not_fit(const Case& c, const MemoryUse& use);
bool fits(const Case& c, const MemoryUse& use);

/// The case by whose caches an engine admits requests of a workload: whole answers long, if it has room for
/// those before a request starts. Of other cases the case itself.
Case with_room(const Case& c);

/// Largest batch in [1, limit] that fits, or 0. Memory rises with batch, so this bisects.
int largest_batch(const Case& c, Plan plan, int limit);

}  // namespace shardline
