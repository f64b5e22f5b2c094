// What one rank has of a layer: heads, tokens of the caches, weights. planner/README.md [P1]-[P3].
#pragma once

#include "models/ir/schedule.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Whether the cache of the case's model holds MLA's latents.
inline bool has_latents(const Case& c) { return c.model.attention.kind == AttentionKind::mla; }
/// A whole number that was computed as a double.
inline Count count_of(double x) { return static_cast<Count>(x + 0.5); }
/// Of the rank with most, where `whole` is cut in `parts`.
inline Count rank_share(Count whole, int parts) { return (whole + parts - 1) / parts; }
inline int up_projections(const Model& m) { return m.ffn_kind == FfnKind::gated ? 2 : 1; }
inline double activation_size(const Case& c) { return bytes_per_element(c.precision.activations); }

/// Heads of one rank, and what one token is to them. A prefill under MLA attends to expanded heads, where
/// every query head has a key and a value; its cache and its messages hold the latents that those follow
/// from. A decoding request under MLA attends to the latents themselves (absorbed).
struct LocalHeads {
  int q = 0, kv = 0, qk = 0, v = 0;
  AttentionFamily family = AttentionFamily::gqa;
  int latent = 0;  // numbers of the row that keys and values are expanded from; 0: none
  // latent: a cached row is the key of every head, its first v numbers the value; kv is 1.
  CacheRows cache = CacheRows::heads;
  /// Numbers per token that attention reads.
  double kv_width() const { return cache == CacheRows::latent ? qk : static_cast<double>(kv) * (qk + v); }
  /// Numbers per token that are cached and sent.
  double held_width() const { return latent > 0 ? latent : kv_width(); }
};
/// Shape of an attention of `q_heads` query heads with such keys and values, its rows still to be counted.
template <class AttendShape>
AttendShape shape_of_heads(const LocalHeads& h, Count q_heads) {
  AttendShape s;
  if constexpr (requires { s.family; }) s.family = h.family;
  if constexpr (requires { s.cache; }) s.cache = h.cache;
  s.q_heads = q_heads;
  s.kv_heads = h.latent > 0 ? q_heads : h.kv;  // expanded: each query head has its own
  s.qk_dim = h.qk;
  s.v_dim = h.v;
  return s;
}
/// The same of what executors run; rank, queries and keys are still to be said.
Action attend_action(const LocalHeads& h, int q_heads);
LocalHeads prefill_heads(const Case& c, const Plan& p);
LocalHeads decode_heads(const Case& c, const Plan& p);

/// Which requests of a step an attention is of.
enum class Asked : unsigned char { decode, prefill };

/// Query heads of one rank: ceil(Q / TPA).
int local_q_heads(const Case& c, const Plan& plan);
/// KV heads of one rank: ceil(K / TPA).
int local_kv_heads(const Case& c, const Plan& plan);
/// Cached elements per token, layer and rank: 2*ceil(K/TPA)*h, or kv_lora + rope for MLA whatever TPA is.
Count kv_elements_per_token(const Case& c, const Plan& plan);

/// Where MLA's value up-projection W_UV runs relative to the exchange of partial outputs: before it (every
/// sharer of a cache holds the W_UV of all heads that it attends with and sends v_dim values per head) or
/// after it (a sharer holds that of the heads that it merges, and kv_lora values per head are sent).
enum class ValueUp : unsigned char { before, after };

/// How the ranks of an attention group share the caches of its requests, and what a rank does of the
/// attention of a decoding one.
struct CacheShare {
  int projected = 0, attended = 0;  // query heads that it projects, and that it attends with
  Group sharers;                    // ranks that hold one cache, some of its tokens each
  int block = 1;                    // token t lies on member t / block mod sharers.size
  ValueUp value_up = ValueUp::before;
};
/// Of the plan's strategy.
CacheShare cache_share(const Case& c, const Plan& plan);
/// Of a strategy that says nothing else: its heads under TPA, over its KVP shard.
CacheShare kvp_share(const Case& c, const Plan& plan);
/// Heads whose W_UV the rank with most of them applies.
Count value_up_heads(const CacheShare& share);
/// [P1] Tokens that the fullest sharer holds of a cache of `tokens`.
long long tokens_on_fullest(const CacheShare& share, long long tokens);
/// (query, key) pairs of the `fresh` tokens behind `cached` ones with the keys on the fullest sharer, and of
/// the new tokens among themselves alone: causal, one head. [P1] summed over the queries.
Count pairs_on_fullest(const CacheShare& share, const Segment& segment);

/// Decoding requests of one attention group, the plan's batch; of a rank that deals them out with its
/// context-parallel peers, its share.
Count decode_requests(const Case& c, const Plan& plan);
Count decode_rows(const Case& c, const Plan& plan);

/// Ranks that share the output projection, and the all-reduces after attention and FFN.
int out_proj_ranks(const Plan& plan);
int dense_ffn_ranks(const Plan& plan);
/// Width of a rank's slice of the concatenated heads that enters the output projection.
Count out_proj_width(const Case& c, const Plan& plan);
/// Ranks that share the shared experts: those that have the same tokens.
int shared_expert_ranks(const Plan& plan);
/// Whether context-parallel ranks share the experts too, so that tokens travel between them.
inline bool spreads_experts(const Plan& p) { return p.cp > 1 && p.ep * p.tpf > p.tpa; }
/// Whether each rank of an attention group takes a part of the group's tokens through a dense FFN of its own.
bool deals_tokens(const Plan& plan);
/// Rows of a dense FFN on a rank with `rows` new tokens.
Count ffn_rows(const Plan& plan, Count rows);

/// Elements held by one rank.
struct LayerWeights {
  double attention = 0;
  double dense_ffn = 0;
  double expert_ffn = 0;  // experts and shared experts
  double router = 0;
};
LayerWeights layer_weights(const Case& c, const Plan& plan);

}  // namespace shardline
