// DeepSpeed-Ulysses (arXiv 2309.14509): an all-to-all turns shards of tokens into shards of heads, attention
// runs on whole sequences, and a second all-to-all turns its output back. Where there are fewer KV heads than
// ranks, a KV head goes to several of them; MLA's keys and values travel expanded, since latents have no
// heads to split. The cache is kept by heads, so cached tokens are not sent.
#include "planner/layers/head_exchange.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

int all_ranks(const Plan& p) { return p.cp; }

void attention(ContextStep& s) {
  s.expand_own();
  HeadExchange heads(s, all_ranks(s.p));
  heads.to_heads();
  ContextStep& x = heads.inner;
  const auto own = [](int k) { return k; };
  const OpIndex computed = x.attend("attend", {own, own, x.q, x.kv, x.out, x.out_lse});
  x.end_iteration({&computed, 1});
  heads.to_tokens();
}

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kUlysses), out);
}

std::optional<std::string> check(const Case& c, const Plan& p) {
  for (const Attention& a : c.model.attentions) {
    const LocalHeads h = prefill_heads(a, p);
    if (a.q_heads % p.tpa != 0 || h.q % p.cp != 0) return "ulysses needs cp*tpa to divide the query heads";
    if (h.kv % p.cp != 0 && p.cp % h.kv != 0)
      return "ulysses needs the KV heads of a TP rank to divide cp, or cp them";
  }
  return std::nullopt;
}

// Kept by heads: ranks beyond the KV heads hold copies, and all heads share MLA's latents.
double heads_cache_shards(const Attention& a, const Plan& p) {
  return has_latents(a) ? 1 : std::min(p.cp, local_kv_heads(a, p));
}

}  // namespace

const Strategy kUlysses{
    .name = "ulysses",
    .summary = "sequence parallelism: all-to-all from tokens to heads and back",
    .source = "arXiv 2309.14509",
    .prefills = true,
    .degrees = kContextDegrees,
    .weights = WeightSharing::attention_tp,
    .local_attention = true,
    .states = true,
    .deployed_as = "allgather_kv",
    .enumerate = enumerate,
    .check = check,
    .prefill_attention = attention,
    .cache_shards = heads_cache_shards,
    .head_ranks = all_ranks,
    .prefill_buffers = head_exchange_buffers,
};

}  // namespace shardline
