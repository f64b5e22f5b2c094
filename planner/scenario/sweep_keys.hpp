// The keys of a scenario that say which plans a sweep looks at.
#pragma once

#include "planner/scenario/scenario.hpp"

namespace shardline::scenario_parts {

/// strategies, gpus, batch, degrees, options, ... of `root`. `users` of a workload that pins them, in place
/// of the batch.
SearchOptions read_search(const Reader& root, int system_gpus, StepKind kind, const std::vector<int>* users);
Comparison read_comparison(const Reader& root, const SearchOptions& o, StepKind kind);

/// Faults for those keys where another question is asked.
void refuse_sweep_keys(const Reader& root);

}  // namespace shardline::scenario_parts
