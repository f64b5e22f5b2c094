// What one rank has of a layer: heads, tokens of the caches, weights. planner/README.md [P1]-[P3].
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "models/ir/schedule.hpp"
#include "planner/engines/profile.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Which of the model's kinds of attention it is.
int attention_index(const Model& m, const Attention& a);
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
  Reach reach = {};    // which tokens a query sees
  bool sinks = false;  // each query head has one
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
  if constexpr (requires { s.window; }) s.window = h.reach.slides() ? h.reach.tokens : 0;
  s.q_heads = q_heads;
  s.kv_heads = h.latent > 0 ? q_heads : h.kv;  // expanded: each query head has its own
  s.qk_dim = h.qk;
  s.v_dim = h.v;
  return s;
}
/// The same of what executors run; rank, queries and keys are still to be said.
Action attend_action(const LocalHeads& h, int q_heads);
/// Likewise of the scores of blocks of keys, by the index of one KV head.
Action block_scores_action(const SparseIndex& index);
/// Whether every context-parallel rank of a prefill keeps the caches of its whole group, as the case's engine
/// does where it runs such plans (`context_parallel` of its profile); else each keeps those of its own
/// tokens.
bool keeps_whole_caches(const Case& c, const Plan& p);
/// Whether prompts attend to MLA's latents themselves (absorbed) and not to keys and values made of them:
/// where an index chooses their keys, and where an engine's context-parallel ranks do.
bool absorbs_prompts(const Case& c, const Attention& a, const Plan& p);
LocalHeads prefill_heads(const Attention& a, const Plan& p);
LocalHeads decode_heads(const Attention& a, const Plan& p);

/// Which requests of a step an attention is of.
enum class Asked : unsigned char { decode, prefill };

/// Query heads of one rank: ceil(Q / TPA).
int local_q_heads(const Attention& a, const Plan& plan);
/// KV heads of one rank: ceil(K / TPA).
int local_kv_heads(const Attention& a, const Plan& plan);
/// Cached elements per token of a layer, on one rank: ceil(K/TPA) keys and values, or kv_lora + rope for MLA
/// whatever TPA is.
Count kv_elements_per_token(const Attention& a, const Plan& plan);
/// Heads of an index on one rank: all of them, or where blocks are chosen those of its KV heads, each of
/// which chooses for the query heads of its group (vllm models/minimax_m3: index queries are sharded as KV
/// heads are).
Count rank_index_heads(const Attention& a, const Plan& plan);
/// Columns that the input's projection has for these and the index's one key; 0 without, and for MLA, whose
/// index has products of its own.
Count index_columns(const Attention& a, const Plan& plan);
/// Their bytes as engines lay them out; with the keys of an index, which every rank of a TP group has.
double kv_bytes_per_token(const Case& c, const Attention& a, const Plan& plan);

/// Where MLA's value up-projection W_UV runs relative to the exchange of partial outputs: before it (every
/// sharer of a cache holds the W_UV of all heads that it attends with and sends v_dim values per head) or
/// after it (a sharer holds that of the heads that it merges, and kv_lora values per head are sent).
enum class ValueUp : unsigned char { before, after };

/// How the ranks of an attention group share the caches of its requests, and what a rank does of the
/// attention of a decoding one.
struct CacheShare {
  int projected = 0, attended = 0;  // query heads that it projects, and that it attends with
  Group sharers;                    // ranks that hold one cache, some of its tokens each
  int block = 1;                    // token t lies on member t / block mod sharers.size; whole index blocks
  ValueUp value_up = ValueUp::before;
};
/// Of the plan's strategy.
CacheShare cache_share(const Case& c, const Attention& a, const Plan& plan);
/// Of a strategy that says nothing else: its heads under TPA, over its KVP shard.
CacheShare kvp_share(const Case& c, const Attention& a, const Plan& plan);
/// Heads whose W_UV the rank with most of them applies.
Count value_up_heads(const CacheShare& share);
/// The most over the sharers of f(member), a count of what a member has of what is in reach. Of whole caches
/// member 0 has most.
template <class F>
Count on_fullest(const CacheShare& share, const Reach& reach, F f) {
  Count most = f(0);
  for (int m = 1; m < (reach.local() ? share.sharers.size : 1); ++m) most = std::max<Count>(most, f(m));
  return most;
}
/// [P1] Tokens [first, end) of a sequence that a sharer holds.
long long tokens_on_member(const CacheShare& share, int member, long long first, long long end);
/// [P1] The most that a sharer holds of `tokens` tokens that begin on the first.
inline long long tokens_on_fullest(const CacheShare& share, long long tokens) {
  return tokens_on_member(share, 0, 0, tokens);
}
/// (query, key) pairs of the `fresh` tokens behind `cached` ones with the keys on a sharer: causal and within
/// reach, one head. [P1] summed over the queries.
Count pairs_on_member(const CacheShare& share, int member, const Reach& reach, const Segment& segment);
/// The shortest length of which the fullest sharer has more than `tokens`.
long long first_with_more(const CacheShare& share, long long tokens);
/// Of the new tokens of a segment those that are at least the `length`-th of their request.
Segment from_length(const Segment& segment, long long length);
/// First of a segment's tokens that any of its new ones sees.
inline long long first_seen(const Reach& reach, const Segment& s) { return reach.first(s.cached); }
/// [P3] Tokens of a segment that a layer has to keep: what its new ones see, and themselves, at least what a
/// cache of its length holds.
long long kept_tokens(const Reach& reach, const Segment& segment);
/// (query, key) pairs of a segment's new tokens, causal and within reach, one head; of them those with cached
/// keys.
Count pairs_of(const Reach& reach, const Segment& segment);
Count cached_pairs_of(const Reach& reach, const Segment& segment);
/// New tokens of a segment that see a cached one.
long long rows_seeing_cached(const Reach& reach, const Segment& segment);
/// Of the latter, those with the keys on a sharer.
Count cached_pairs_on_member(const CacheShare& share, int member, const Reach& reach, const Segment& segment);

/// New tokens of a decoding request: one, and the drafts that are verified beside it [P29].
inline Count new_tokens(const Plan& p) { return 1 + p[kDrafts]; }
/// A decoding request of the case as the plan's steps have it.
inline Segment with_drafts(Segment s, const Plan& p) {
  s.fresh += p[kDrafts];
  return s;
}
/// Decoding requests of one attention group, the plan's batch, and their new tokens; of a rank that deals
/// these out with its context-parallel peers, its share, and the rows that a CUDA graph adds to fill it up.
Count decode_requests(const Case& c, const Plan& plan);
Count decode_tokens(const Case& c, const Plan& plan);
Count decode_rows(const Case& c, const Plan& plan);

/// Ranks that share the output projection, and the all-reduces after attention and FFN.
int out_proj_ranks(const Plan& plan);
int dense_ffn_ranks(const Plan& plan);
/// Width of a rank's slice of the concatenated heads that enters the output projection.
Count out_proj_width(const Attention& a, const Plan& plan);
/// Columns that the input's projections have for the output gate of `heads` query heads; 0: there is none.
Count gate_width(const Attention& a, Count heads);
/// Which tokens the router and shared experts of a rank see, by the engine's profile; of bare kernels and
/// without several groups all tokens of its group.
TokenExchange::Beside beside_experts(const Case& c, const Plan& plan);
/// Ranks that share the shared experts: those that have the same tokens and divide no tokens.
int shared_expert_ranks(const Case& c, const Plan& plan);
/// Channels that routed experts work on: those of latents, where the layer has some, or of the hidden state.
inline Count expert_width(const Model& m, const FeedForward& f) { return f.latent > 0 ? f.latent : m.hidden; }
/// Whether context-parallel ranks share the experts too, so that tokens travel between them.
inline bool spreads_experts(const Plan& p) { return p.cp > 1 && p.ep * p.tpf > p.tpa; }
/// Ways for the plan's tokens to experts that a sweep tries by itself: those of the case's engine, or the
/// kernels made for it.
std::vector<ExpertTokens> expert_tokens_of(const Case& c, const Plan& plan);
/// Why the plan has no tokens to gather for experts; nothing where it has, or asks for nothing.
std::optional<std::string> no_gather(const Case& c, const Plan& plan);
/// Whether attention groups of the plan share experts that lie whole on ranks of all of them.
inline bool groups_share_experts(const Case& c, const Plan& p) {
  return has_experts(c.model) && p.dp > 1 && p.ep > 1;
}
/// New tokens of all attention groups of a step in which this one has `rows` [P10].
inline Count rows_of_groups(const Case& c, const Plan& p, Count rows) {
  return c.groups ? c.groups->rows : rows * p.dp;
}
/// Whether each rank of an attention group takes a part of the group's tokens through a dense FFN of its own.
bool deals_tokens(const Plan& plan);
/// Rows of a dense FFN on a rank with `rows` new tokens.
Count ffn_rows(const Case& c, const Plan& plan, Count rows);

/// Elements of one layer's attention that one rank holds: of the output projection, of an index over keys or
/// rows, and of all others.
struct AttentionWeights {
  double projections = 0, out_proj = 0, index = 0;
  double compressors = 0;  // in the activations' type whatever the others are
};
AttentionWeights attention_weights(const Case& c, const Attention& a, const Plan& plan);
/// The same of a layer's feed-forward network.
struct FfnWeights {
  double dense = 0, experts = 0, shared = 0, router = 0;
};
FfnWeights ffn_weights(const Case& c, const FeedForward& f, const Plan& plan);

}  // namespace shardline
