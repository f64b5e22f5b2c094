// Tensor parallelism inside pipeline stages. As many microbatches circulate as there are stages, so every
// stage works all the time and a token takes max(one microbatch's way through all stages, microbatches x
// slowest stage). A prefill in chunks fills the stages with the chunks of one request instead [C17].
#include "planner/layers/context_step.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  for (const int pp : space.stages.empty() ? divisors(gpus) : space.stages) {
    if (pp < 2 || gpus % pp != 0 || pp > c.model.layers || gpus / pp > c.model.attention.q_heads) continue;
    Plan p;
    p.strategy = StrategyId::pipeline;
    p.pp = p.in_flight = pp;
    p.tpa = gpus / pp;
    std::vector<Plan> splits;
    with_expert_splits(c, p, p.tpa, splits);
    out.insert(out.end(), splits.begin(), splits.end());
    for (const Plan& split : splits) with_prefill_chunks(c, split, space, out);
  }
}

std::optional<std::string> check(const Case&, const Plan& p) {
  if (p.dp > 1 || p.kvp > 1) return "pipeline uses pp, tpa, tpf and ep only";
  return std::nullopt;
}

void lower(Schedule& s, const Case& c, const Plan& p) { lower_unsharded(s, c, p); }

}  // namespace

const Strategy kPipeline{StrategyId::pipeline,
                         "pipeline",
                         "TP inside PP stages, one microbatch in flight per stage",
                         "arXiv 2104.04473",
                         true,
                         true,
                         false,
                         enumerate,
                         check,
                         lower};

}  // namespace shardline
