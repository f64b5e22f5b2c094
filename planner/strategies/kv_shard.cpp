// Vanilla KV parallelism (Medha): the KV cache of a request is split by sequence over KVP groups; TP is the
// same for attention and FFN, so the FFN is replicated over the groups. Every rank gathers all partial
// outputs, exposed.
#include "planner/layers/cache_attention.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  if (!kKvShard.takes(c)) return;
  for (const int tpa : divisors(gpus)) {
    if (tpa == gpus || tpa > least_q_heads(c.model) || gpus / tpa > c.longest()) continue;
    if (tpa > least_kv_heads(c.model) && !space.duplicate_kv) continue;
    Plan p;
    p.strategy = id_of(kKvShard);
    p.kvp = gpus / tpa;
    p.tpa = tpa;
    with_expert_splits(c, p, tpa, out);
  }
}

constexpr const Option* kOptions[]{&kDrafts};

void verify(const VerifyTrial& trial, std::vector<Plan>& out) {
  for (const int shards : {2, 3, 4}) {
    Plan p = trial.base;
    p.kvp = shards;
    out.push_back(p);
  }
}

}  // namespace

const Strategy kKvShard{
    .name = "kv_shard",
    .summary = "Medha: KV split by sequence, TP tied, exchange exposed",
    .source = "arXiv 2409.17264",
    .decodes = true,
    .degrees = {Degree::kvp, Degree::tpa, Degree::ep, Degree::tpf},
    .options = kOptions,
    .weights = WeightSharing::attention_tp,
    .partials = PartialOutputs::all_gather,
    .local_attention = true,
    .chosen_keys = true,
    .compressed = true,
    .states = true,
    .enumerate = enumerate,
    .verify = verify,
};

}  // namespace shardline
