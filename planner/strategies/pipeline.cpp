// Tensor parallelism inside pipeline stages. As many microbatches circulate as there are stages, so every
// stage works all the time and a token takes max(one microbatch's way through all stages, microbatches x
// slowest stage). A prefill in chunks fills the stages with the chunks of one request instead [C17].
#include "planner/layers/context_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  for (const int pp : space.stages.empty() ? divisors(gpus) : space.stages) {
    if (pp < 2 || gpus % pp != 0 || pp > c.model.layers() || gpus / pp > least_q_heads(c.model)) continue;
    Plan p;
    p.strategy = id_of(kPipeline);
    p.pp = p.in_flight = pp;
    p.tpa = gpus / pp;
    std::vector<Plan> splits;
    with_expert_splits(c, p, p.tpa, splits);
    out.insert(out.end(), splits.begin(), splits.end());
    for (const Plan& split : splits) with_prefill_chunks(c, split, space, out);
  }
}

// A pipeline of two stages.
void verify(const VerifyTrial& trial, std::vector<Plan>& out) {
  Plan p = trial.base;
  p.pp = 2;
  verify_in_chunks(trial, p, out);
}

constexpr const Option* kOptions[]{&kPrefillChunk, &kDrafts};

}  // namespace

const Strategy kPipeline{
    .name = "pipeline",
    .summary = "TP inside PP stages, one microbatch in flight per stage",
    .source = "arXiv 2104.04473",
    .decodes = true,
    .prefills = true,
    .mixes = true,
    .degrees = {Degree::pp, Degree::tpa, Degree::ep, Degree::tpf, Degree::in_flight},
    .options = kOptions,
    .local_attention = true,
    .chosen_keys = true,
    .compressed = true,
    .states = true,
    .launched_as = LaunchedAs::pipeline,
    .enumerate = enumerate,
    .prefill_attention = attend_own,
    .prefill_buffers = unsharded_buffers,
    .verify = verify,
};

}  // namespace shardline
