// Batched ring pass-Q decode (arXiv 2411.01783, Algorithm 4): the KV cache stays sharded over the
// context-parallel ranks; the new tokens of a batch are dealt out to them, padded to a multiple, and travel
// round the ring as queries.
#include "planner/layers/context_step.hpp"
#include "planner/layers/decode_layer.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, StrategyId::ring_decode, out);
}

std::optional<std::string> check(const Case& c, const Plan& p) {
  if (p.ep * p.tpf != p.tpa) return "ring_decode replicates the FFN over cp: ep*tpf must be tpa";
  if (c.model.attention.kind == AttentionKind::mla) return "ring_decode does not support MLA: use helix";
  return std::nullopt;
}

void lower(Schedule& s, const Case& c, const Plan& p) { build_decode(s, c, p); }

}  // namespace

const Strategy kRingDecode{StrategyId::ring_decode,
                           "ring_decode",
                           "context parallelism: queries of a batch travel round a ring",
                           "arXiv 2411.01783",
                           true,
                           false,
                           true,
                           enumerate,
                           check,
                           lower};

}  // namespace shardline
