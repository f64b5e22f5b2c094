// The keys of a scenario that say which plans a sweep looks at.
#pragma once

#include "planner/scenario/scenario.hpp"

namespace shardline::scenario_parts {

/// strategies, gpus, batch, degrees, options, ... of `root`.
/// `users`: of a workload that pins them, in place of the batch; nullptr: there is none. `engine`: nullptr:
/// bare kernels.
SearchOptions read_search(const Reader& root, int system_gpus, StepKind kind, const std::vector<int>* users,
                          const EngineProfile* engine);
Comparison read_comparison(const Reader& root, const SearchOptions& o, StepKind kind);

/// What a plan of a study has to keep to.
struct Constraints {
  Seconds time{0};    // TTL or TTFT
  Seconds ttft{0};    // of a workload, beside TPOT
  Bytes memory{0};    // of a GPU
  int pool_gpus = 0;  // of a workload's pools together
};
/// `constraints`; serves: of a workload.
Constraints read_constraints(const Reader& r, StepKind kind, bool serves);

/// Faults for those keys where another question is asked.
void refuse_sweep_keys(const Reader& root);

}  // namespace shardline::scenario_parts
