// Vanilla KV parallelism (Medha): the KV cache of a request is split by sequence over KVP groups; TP is the
// same for attention and FFN, so the FFN is replicated over the groups. Every rank gathers all partial
// outputs, exposed.
#include "planner/layers/decode_layer.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  if (c.phase != Phase::decode) return;
  for (const int tpa : divisors(gpus)) {
    if (tpa == gpus || tpa > c.model.attention.q_heads || gpus / tpa > c.context) continue;
    if (tpa > c.model.attention.kv_heads && !space.duplicate_kv) continue;
    Plan p;
    p.strategy = StrategyId::kv_shard;
    p.kvp = gpus / tpa;
    p.tpa = tpa;
    with_expert_splits(c, p, tpa, out);
  }
}

std::optional<std::string> check(const Case&, const Plan& p) {
  if (p.pp > 1 || p.dp > 1 || p.chunks > 1 || p.in_flight > 1 || p.dense_tp > 0) {
    return "kv_shard uses kvp, tpa, tpf and ep only";
  }
  return std::nullopt;
}

void lower(Schedule& s, const Case& c, const Plan& p) { build_decode(s, c, p); }

}  // namespace

const Strategy kKvShard{StrategyId::kv_shard,
                        "kv_shard",
                        "Medha: KV split by sequence, TP tied, exchange exposed",
                        "arXiv 2409.17264",
                        true,
                        false,
                        false,
                        enumerate,
                        check,
                        lower};

}  // namespace shardline
