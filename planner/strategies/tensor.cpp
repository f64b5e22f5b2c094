// Tensor parallelism: every matrix and the heads are split over all GPUs. Beyond the KV heads, KV is
// replicated and its reads stop shrinking. Two all-reduces a layer. Experts are split by EP x TPF with tokens
// replicated, so they need no dispatch. Ignored: overlap of the all-reduces with computation.
#include "planner/layers/context_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  Plan p;
  p.strategy = id_of(kTensor);
  p.tpa = gpus;
  if (gpus > least_q_heads(c.model)) return;
  std::vector<Plan> splits;
  with_expert_splits(c, p, gpus, splits);
  out.insert(out.end(), splits.begin(), splits.end());
  for (const Plan& split : splits) with_prefill_chunks(c, split, space, out);
}

void verify(const VerifyTrial& trial, std::vector<Plan>& out) {
  Plan p = trial.base;
  verify_in_chunks(trial, p, out);
}

constexpr const Option* kOptions[]{&kPrefillChunk, &kDrafts};

}  // namespace

const Strategy kTensor{
    .name = "tensor",
    .summary = "TP: heads, FFN and projections split over all GPUs",
    .source = "arXiv 1909.08053",
    .decodes = true,
    .prefills = true,
    .mixes = true,
    .degrees = kTensorDegrees,
    .options = kOptions,
    .local_attention = true,
    .chosen_keys = true,
    .compressed = true,
    .states = true,
    .launched_as = LaunchedAs::tensor,
    .enumerate = enumerate,
    .prefill_attention = attend_own,
    .prefill_buffers = unsharded_buffers,
    .verify = verify,
};

}  // namespace shardline
