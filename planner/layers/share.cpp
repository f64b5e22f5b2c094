#include "planner/layers/share.hpp"

#include "planner/strategies/strategy.hpp"

namespace shardline {

Action attend_action(const LocalHeads& h, int q_heads) {
  Action a;
  a.heads = q_heads;
  a.kv_heads = h.latent > 0 ? q_heads : h.kv;
  a.cache = h.cache;
  a.qk_dim = h.qk;
  a.v_dim = h.v;
  return a;
}

LocalHeads prefill_heads(const Case& c, const Plan& p) {
  const Attention& a = c.model.attention;
  const int q = local_q_heads(c, p);
  if (has_latents(c))
    return {q, q, a.nope_dim + a.rope_dim, a.v_dim, AttentionFamily::mla, a.kv_lora_rank + a.rope_dim};
  return {q, local_kv_heads(c, p), a.head_dim, a.head_dim};
}

LocalHeads decode_heads(const Case& c, const Plan& p) {
  if (!has_latents(c)) return prefill_heads(c, p);
  const Attention& a = c.model.attention;
  return {local_q_heads(c, p), 1, a.kv_lora_rank + a.rope_dim, a.kv_lora_rank, AttentionFamily::mla, 0,
          CacheRows::latent};
}

int local_q_heads(const Case& c, const Plan& p) { return (c.model.attention.q_heads + p.tpa - 1) / p.tpa; }

int local_kv_heads(const Case& c, const Plan& p) { return (c.model.attention.kv_heads + p.tpa - 1) / p.tpa; }

Count kv_elements_per_token(const Case& c, const Plan& p) { return count_of(decode_heads(c, p).kv_width()); }

CacheShare cache_share(const Case& c, const Plan& p) {
  const auto own = strategy(p.strategy).cache_share;
  return own ? own(c, p) : kvp_share(c, p);
}

CacheShare kvp_share(const Case& c, const Plan& p) {
  const int heads = local_q_heads(c, p);
  return {heads, heads, {p.kvp, p.tpa}, c.kv_block, ValueUp::before};
}

Count value_up_heads(const CacheShare& s) {
  return s.value_up == ValueUp::after ? rank_share(s.attended, s.sharers.size) : s.attended;
}

long long tokens_on_fullest(const CacheShare& s, long long tokens) {
  return kv_tokens_on_shard(tokens, s.sharers.size, s.block, 0);
}

Count pairs_on_fullest(const CacheShare& s, const Segment& r) {
  // Of the first n tokens, each with those up to itself that lie on member 0: whole rounds of block x sharers
  // tokens, the m-th of which has `block` m of them before it, then the rest.
  const long long round = static_cast<long long>(s.block) * s.sharers.size, block = s.block;
  const auto upto = [&](long long n) {
    const long long rounds = n / round, rest = n % round, ramp = std::min(rest, block);
    const long long of_round = block * (block + 1) / 2 + (round - block) * block;
    return block * round * (rounds * (rounds - 1) / 2) + rounds * of_round + rest * rounds * block +
           ramp * (ramp + 1) / 2 + (rest - ramp) * block;
  };
  return upto(r.length()) - upto(r.cached);
}

Count decode_requests(const Case& c, const Plan& p) { return requests_in(c.batch.decode) * p.batch; }

Count decode_rows(const Case& c, const Plan& p) { return rank_share(decode_requests(c, p), p.cp); }

int out_proj_ranks(const Plan& p) {
  return strategy(p.strategy).weights == WeightSharing::attention_tp ? p.tpa : p.group();
}

int dense_ffn_ranks(const Plan& p) { return p.dense_tp > 0 ? p.dense_tp : out_proj_ranks(p); }

Count out_proj_width(const Case& c, const Plan& p) {
  const Attention& a = c.model.attention;
  const Count width = static_cast<Count>(local_q_heads(c, p)) * (has_latents(c) ? a.v_dim : a.head_dim);
  return rank_share(width, out_proj_ranks(p) / p.tpa);
}

int shared_expert_ranks(const Plan& p) { return p.dp > 1 ? p.group() : p.cp > 1 ? p.tpa : p.ep * p.tpf; }

bool deals_tokens(const Plan& p) {
  return strategy(p.strategy).weights == WeightSharing::stage && dense_ffn_ranks(p) < p.group();
}

Count ffn_rows(const Plan& p, Count rows) {
  if (deals_tokens(p)) return rank_share(rows, p.group());
  return rows * (dense_ffn_ranks(p) > p.group() ? p.dp : 1);
}

LayerWeights layer_weights(const Case& c, const Plan& p) {
  const Model& m = c.model;
  const Attention& a = m.attention;
  const double h = m.hidden;
  const CacheShare heads = cache_share(c, p);
  const double q = heads.projected;
  LayerWeights w;
  if (has_latents(c)) {
    const double q_dim = a.nope_dim + a.rope_dim;
    const double query = a.q_lora_rank > 0 ? h * a.q_lora_rank + a.q_lora_rank * q * q_dim : h * q * q_dim;
    w.attention = query + h * (a.kv_lora_rank + a.rope_dim) + q * a.nope_dim * a.kv_lora_rank +
                  static_cast<double>(value_up_heads(heads) * a.v_dim * a.kv_lora_rank);
  } else {
    w.attention = h * (q * a.head_dim + static_cast<double>(kv_elements_per_token(c, p)));
  }
  w.attention += static_cast<double>(out_proj_width(c, p)) * h;
  const double up = up_projections(m);
  w.dense_ffn = (up + 1) * h * static_cast<double>(rank_share(m.ffn_inner, dense_ffn_ranks(p)));
  if (has_experts(m)) {
    w.expert_ffn = (up + 1) * h *
                   static_cast<double>(rank_share(m.experts, p.ep) * rank_share(m.expert_inner, p.tpf) +
                                       rank_share(static_cast<Count>(m.shared_experts) * m.expert_inner,
                                                  shared_expert_ranks(p)));
    w.router = h * m.experts;
  }
  return w;
}

}  // namespace shardline
