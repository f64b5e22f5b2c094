// The keys of a scenario that say which plans a sweep looks at.
#pragma once

#include "planner/scenario/scenario.hpp"

namespace shardline::scenario_parts {

/// strategies, gpus, batch, degrees, options, ... of `root`.
SearchOptions read_search(const Reader& root, int system_gpus, Phase phase);
Comparison read_comparison(const Reader& root, const SearchOptions& o, Phase phase);

/// Faults for those keys where another question is asked.
void refuse_sweep_keys(const Reader& root);

}  // namespace shardline::scenario_parts
