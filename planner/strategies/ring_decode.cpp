// Batched ring pass-Q decode (arXiv 2411.01783, Algorithm 4): the KV cache stays sharded over the
// context-parallel ranks; the new tokens of a batch are dealt out to them, padded to a multiple, and travel
// round the ring as queries. Under MLA these are the absorbed queries, as wide as a latent row, and the
// values are made of the merged latents.
#include "planner/layers/context_step.hpp"
#include "planner/layers/decode_layer.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kRingDecode), out);
}

std::optional<std::string> check(const Case&, const Plan& p) {
  if (p.ep * p.tpf != p.tpa) return "ring_decode replicates the FFN over cp: ep*tpf must be tpa";
  return std::nullopt;
}

// The batch is dealt out to the ranks of a ring; queries travel, caches stay.
void attention(ScheduleBuilder& b, const Case& c, const Plan& p) {
  ContextStep step(b, c, p, decode_layout(p.batch, c.context, p.cp, 0), true);
  if (step.flow()) {
    step.declare_slots();
    step.bind_attention();
  }
  attend_pass_q(step);
  if (c.model.attention.kind == AttentionKind::mla) step.value_up();
}

}  // namespace

const Strategy kRingDecode{
    .name = "ring_decode",
    .summary = "context parallelism: queries of a batch travel round a ring",
    .source = "arXiv 2411.01783",
    .decodes = true,
    .degrees = kContextDegrees,
    .weights = WeightSharing::attention_tp,
    .enumerate = enumerate,
    .check = check,
    .decode_attention = attention,
};

}  // namespace shardline
