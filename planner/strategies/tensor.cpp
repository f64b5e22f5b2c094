// Tensor parallelism: every matrix and the heads are split over all GPUs. Beyond the KV heads, KV is
// replicated and its reads stop shrinking. Two all-reduces a layer. Experts are split by EP x TPF with tokens
// replicated, so they need no dispatch. Ignored: overlap of the all-reduces with computation.
#include "planner/layers/context_step.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  Plan p;
  p.strategy = id_of(kTensor);
  p.tpa = gpus;
  if (gpus > c.model.attention.q_heads) return;
  std::vector<Plan> splits;
  with_expert_splits(c, p, gpus, splits);
  out.insert(out.end(), splits.begin(), splits.end());
  for (const Plan& split : splits) with_prefill_chunks(c, split, space, out);
}

// Whole prefills and chunks of two sizes; a pipeline has two stages.
void verify(const VerifyTrial& trial, std::vector<Plan>& out) {
  Plan p = trial.base;
  out.push_back(p);
  if (trial.study.phase == Phase::decode) return;
  for (const int chunk : {7, 16}) {
    p.set(kPrefillChunk, chunk);
    out.push_back(p);
  }
}

constexpr const Option* kOptions[]{&kPrefillChunk};

}  // namespace

const Strategy kTensor{
    .name = "tensor",
    .summary = "TP: heads, FFN and projections split over all GPUs",
    .source = "arXiv 1909.08053",
    .decodes = true,
    .prefills = true,
    .degrees = {Degree::tpa, Degree::ep, Degree::tpf},
    .options = kOptions,
    .enumerate = enumerate,
    .prefill = prefill_unsharded,
    .prefill_buffers = unsharded_buffers,
    .verify = verify,
};

}  // namespace shardline
