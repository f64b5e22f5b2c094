// The costs of a KV-Runahead chain, priced op by op as an event simulation prices them.
#pragma once

#include <memory>

#include "hardware/cost/kernel_cost.hpp"
#include "planner/plan/case.hpp"
#include "planner/studies/partition.hpp"

namespace shardline {

/// [K6] One sequence on a chain of `ranks` ranks of `tpa` GPUs each: the layer of a prefill under tensor
/// parallelism (planner/README.md [C4]), with attention over the prefix and keys received in place, or under
/// eager attention [C11] copied; hosts [C12]. Layers of a mixed model are taken as their mean. `c` is a
/// prefill case; its requests are ignored. One object per thread; `cache` may be shared.
ChainCost chain_cost(const Case& c, int ranks, int tpa, std::shared_ptr<FabricCache> cache = nullptr);

}  // namespace shardline
