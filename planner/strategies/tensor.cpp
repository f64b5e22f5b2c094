// Tensor parallelism: every matrix and the heads are split over all GPUs. Beyond the KV heads, KV is
// replicated and its reads stop shrinking. Two all-reduces a layer. Experts are split by EP x TPF with tokens
// replicated, so they need no dispatch. Ignored: overlap of the all-reduces with computation.
#include "planner/layers/context_step.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  Plan p;
  p.strategy = StrategyId::tensor;
  p.tpa = gpus;
  if (gpus > c.model.attention.q_heads) return;
  std::vector<Plan> splits;
  with_expert_splits(c, p, gpus, splits);
  out.insert(out.end(), splits.begin(), splits.end());
  for (const Plan& split : splits) with_prefill_chunks(c, split, space, out);
}

std::optional<std::string> check(const Case&, const Plan& p) {
  if (p.pp > 1 || p.dp > 1 || p.kvp > 1 || p.in_flight > 1) return "tensor uses tpa, tpf and ep only";
  return std::nullopt;
}

void lower(Schedule& s, const Case& c, const Plan& p) { lower_unsharded(s, c, p); }

}  // namespace

const Strategy kTensor{StrategyId::tensor,
                       "tensor",
                       "TP: heads, FFN and projections split over all GPUs",
                       "arXiv 1909.08053",
                       true,
                       true,
                       false,
                       enumerate,
                       check,
                       lower};

}  // namespace shardline
