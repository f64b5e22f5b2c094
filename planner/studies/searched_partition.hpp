// The context partition of a KV-Runahead plan: the closed form's best, polished by simulating the plan's own
// schedule. What a sweep, `simulate`, `partition` and `validate` use. planner/README.md [C13].
#pragma once

#include "planner/search/evaluate.hpp"
#include "planner/studies/chain_cost.hpp"
#include "planner/studies/partition_study.hpp"

namespace shardline {

/// The largest power of two, up to 128 (a tile of attention kernels), of which an equal part has 1024 or
/// more; 1 at least. So a boundary is off by 0.1 % of a part at most.
long long partition_granule(long long context, int ranks);

/// Whether `plan` leaves its partition open and could have one: of kv_runahead, on sequences of equal length.
bool takes_partition(const Case& c, const Plan& plan);

/// Times of partitions of `plan` by event simulation; a partition is simulated once. The evaluator must
/// outlive it.
ChainEvaluator simulated_chain(Evaluator& evaluator, const Plan& plan);

/// For studies: a chain of kv_runahead of `ranks` ranks of `tpa` GPUs, with one sequence of `context` tokens,
/// priced as `simulate` prices it. One rank: a prefill without a chain.
EvaluatorFactory simulated_chains(const Case& c, int tpa);

/// [P12] How far the time of a chain of simulated_chains() with these parts may be off.
ErrorTerms errors_of_chain(const Case& c, int tpa, const std::vector<long long>& parts);

/// [C13] The partition found, its TTFT (that of evaluator.simulate, to the last digit), never above that of
/// equal parts. The closed form is of one sequence per layer and rank; with several, events alone decide.
/// Needs takes_partition and a plan that passes check. Deterministic. `known` holds layers by the prices of
/// this evaluator, from its other plans and for them; may be null.
PartitionResult searched_partition(Evaluator& evaluator, const Plan& plan,
                                   std::shared_ptr<FabricCache> cache = nullptr,
                                   std::shared_ptr<KnownLayers> known = nullptr);

/// [C13] A lower bound of searched_partition().ttft, of any batch, without a simulation. Needs the same.
Seconds least_time_of_partitions(Evaluator& evaluator, const Plan& plan,
                                 std::shared_ptr<KnownLayers> known = nullptr);

}  // namespace shardline
