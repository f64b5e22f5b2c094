// The machines that engines start a server on, and how many of its ranks on each.
#pragma once

#include <optional>

#include "hardware/machine/system.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Machines that run one operating system each: those of the fabric, or where an NVLink domain has more than
/// 8 GPUs the trays that it is made of, of 4 (GB200 and GB300 NVL72: 18 compute trays).
int gpus_per_machine(const System& system);

/// GPUs of a server on each of its machines, which hold its ranks in their order.
struct Machines {
  int count = 1;
  int each = 1;
  int last = 1;  // the last one's
  bool even() const { return each == last; }
  bool operator==(const Machines&) const = default;
};

/// One machine filled after the other, as plans are priced.
Machines filled_machines(const Case& c, const Plan& plan);

// The machines that an engine starts a plan on, each rank as near to the others as it was priced: machines
// are filled, or one NVLink domain joins them. nullopt: the engine has none. Where the case lets trays be
// shared (any_gpus) a plan may have more of them than it fills.

/// Groups of data parallelism that fit a machine are counted on each (--data-parallel-size-local and
/// -start-rank; docs/serving/expert_parallel_deployment.md:96-116); larger ones have whole machines, and
/// ranks are equal parts of --nnodes (engine/arg_utils.py:1908-1940; config/parallel.py, nnodes_within_dp and
/// local_world_size). vllm-project/vllm v0.24.0.
std::optional<Machines> vllm_machines(const Case& c, const Plan& plan);
/// Stages per node and nodes per stage are whole numbers, by integer division, and ranks equal parts
/// (sgl-project/sglang entrypoints/engine.py:1376-1404@49e384ce9d, _calculate_rank_ranges).
std::optional<Machines> sglang_machines(const Case& c, const Plan& plan);
/// A launcher starts the ranks, which take themselves to lie in their order on machines of gpus_per_node
/// (NVIDIA/TensorRT-LLM tensorrt_llm/mapping.py, MappingBase.node_rank and local_rank, near v1.3.0rc20):
/// nothing asks that the last one is full. There always are machines.
std::optional<Machines> trtllm_machines(const Case& c, const Plan& plan);

}  // namespace shardline
