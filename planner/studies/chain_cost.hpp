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

class KnownLayers;
/// Layers priced so far by the length of a part, for chains of one case that are priced by one CostModel: the
/// chains of many plans differ in their number of ranks alone. One object per thread, of 30 MB at most.
std::shared_ptr<KnownLayers> known_layers();

/// What `plan`, a chain of sequences of one length, takes of a layer at least: chain_time() of any partition
/// is at most what events say of the plan with it. All sequences of its batch together; of several stages
/// without messages and hosts; where its ranks share experts without their dispatch. With Pricing::floor no
/// price falls when tokens or prefix grow, but that of a part that begins earlier by kLargestDip at most, as
/// partition_bound() needs. Refers to `cost`, which is to outlive it; its layers are of `known` if given.
inline constexpr double kLargestDip = 0.005;  // of fitted prices, whose queries then see fewer keys each
ChainCost least_chain_cost(const Case& c, const Plan& plan, CostModel& cost, Pricing how,
                           std::shared_ptr<KnownLayers> known = nullptr);

/// What a search of `plan`'s partitions rests on: chain_cost() of it, and least_chain_cost() at exact prices,
/// which share their work where they can. `cost` goes by `rule`; `cache` is for one of its own otherwise.
/// Layers that `cost` prices are of `known` if given.
struct ChainCosts {
  ChainCost closed, least;
};
ChainCosts chain_costs(const Case& c, const Plan& plan, CostModel& cost, AllReduceRule rule,
                       std::shared_ptr<FabricCache> cache = nullptr,
                       std::shared_ptr<KnownLayers> known = nullptr);

}  // namespace shardline
