#include "planner/layers/share.hpp"

#include <algorithm>
#include <iterator>

#include "models/model/cache.hpp"
#include "planner/engines/profile.hpp"
#include "planner/layers/compressed.hpp"
#include "planner/layers/recurrent.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

int attention_index(const Model& m, const Attention& a) {
  const auto at = &a - m.attentions.data();
  SL_CHECK(at >= 0 && at < std::ssize(m.attentions), "a kind of the model itself");
  return static_cast<int>(at);
}

Action attend_action(const LocalHeads& h, int q_heads) {
  Action a;
  a.heads = q_heads;
  a.kv_heads = h.latent > 0 ? q_heads : h.kv;
  a.cache = h.cache;
  a.qk_dim = h.qk;
  a.v_dim = h.v;
  a.reach = h.reach;
  return a;
}

Action block_scores_action(const SparseIndex& index) {
  Action a;
  a.function = Function::block_scores;
  a.qk_dim = index.dim;
  a.block = index.block;
  a.init_blocks = index.init_blocks;
  a.local_blocks = index.local_blocks;
  return a;
}

bool keeps_whole_caches(const Case& c, const Plan& p) {
  return c.engine && c.engine->context.whole && p.cp > 1 &&
         strategy(p.strategy).launched_as == LaunchedAs::prefill_cp;
}

bool absorbs_prompts(const Case& c, const Attention& a, const Plan& p) {
  if (a.sparse()) return has_latents(a);
  return c.engine && c.engine->context.absorbed && p.cp > 1 && has_latents(a) &&
         strategy(p.strategy).launched_as == LaunchedAs::prefill_cp;
}

LocalHeads prefill_heads(const Attention& a, const Plan& p) {
  const int q = local_q_heads(a, p);
  LocalHeads h{q, q, key_width(a), value_width(a)};
  h.reach = a.reach;
  h.sinks = a.sinks;
  if (a.compression) {  // one key, which is the value too
    h.kv = 1;
    h.cache = CacheRows::latent;
  } else if (has_latents(a)) {
    h.family = AttentionFamily::mla;
    h.latent = a.kv_lora_rank + a.rope_dim;
  } else {
    h.kv = local_kv_heads(a, p);
  }
  return h;
}

LocalHeads decode_heads(const Attention& a, const Plan& p) {
  LocalHeads h = prefill_heads(a, p);
  if (!has_latents(a)) return h;
  h.kv = 1;
  h.qk = h.latent;
  h.v = a.kv_lora_rank;
  h.latent = 0;
  h.cache = CacheRows::latent;
  return h;
}

int local_q_heads(const Attention& a, const Plan& p) { return (a.q_heads + p.tpa - 1) / p.tpa; }

int local_kv_heads(const Attention& a, const Plan& p) { return (a.kv_heads + p.tpa - 1) / p.tpa; }

double kv_bytes_per_token(const Case& c, const Attention& a, const Plan& p) {
  if (a.compression) return row_bytes(a, c.precision.kv);  // of the window: compressed_cache_bytes() has rows
  if (a.index && has_latents(a)) return row_bytes(a, c.precision.kv) + index_row_bytes(a, c.precision.kv);
  const double heads = static_cast<double>(kv_elements_per_token(a, p)) * bytes_per_element(c.precision.kv);
  return heads + index_row_bytes(a, c.precision.kv);
}

Count rank_index_heads(const Attention& a, const Plan& p) {
  return a.index->block > 1 ? local_kv_heads(a, p) : a.index->heads;
}

Count index_columns(const Attention& a, const Plan& p) {
  return a.index && a.kind == AttentionKind::gqa ? (rank_index_heads(a, p) + 1) * a.index->dim : 0;
}

Count kv_elements_per_token(const Attention& a, const Plan& p) {
  return count_of(decode_heads(a, p).kv_width());
}

CacheShare cache_share(const Case& c, const Attention& a, const Plan& p) {
  const auto own = strategy(p.strategy).cache_share;
  CacheShare s = own ? own(c, a, p) : kvp_share(c, a, p);
  // What is chosen together lies together: a block's score is that of one rank.
  if (a.index && a.index->block > 1)
    s.block = (s.block + a.index->block - 1) / a.index->block * a.index->block;
  return s;
}

CacheShare kvp_share(const Case& c, const Attention& a, const Plan& p) {
  const int heads = local_q_heads(a, p);
  return {heads, heads, {p.kvp, p.tpa}, c.kv_block, ValueUp::before};
}

Count value_up_heads(const CacheShare& s) {
  return s.value_up == ValueUp::after ? rank_share(s.attended, s.sharers.size) : s.attended;
}

long long tokens_on_member(const CacheShare& s, int member, long long first, long long end) {
  const auto upto = [&](long long n) { return kv_tokens_on_shard(n, s.sharers.size, s.block, member); };
  return upto(end) - (first > 0 ? upto(first) : 0);
}

namespace {

// Sum over 1 <= j <= n of the tokens among the first j that a member holds: whole rounds of block x sharers
// tokens, the i-th of which has `block` i of them before it, then the rest. 0 for n <= 0.
Count sum_on_member(const CacheShare& s, long long n, int member) {
  if (n <= 0) return 0;
  const long long block = s.block, round = block * s.sharers.size, before = block * member;
  const long long rounds = n / round, rest = n % round;
  // Of the first tokens of a round, those of rounds before apart.
  const auto of_round = [&](long long tokens) {
    const long long ramp = std::clamp(tokens - before, 0LL, block);
    return ramp * (ramp + 1) / 2 + std::max(0LL, tokens - before - block) * block;
  };
  return block * round * (rounds * (rounds - 1) / 2) + rounds * of_round(round) + rest * rounds * block +
         of_round(rest);
}

// f(first, next) of the parts of [begin, end) that lie in one chunk each.
template <class F>
void for_chunks(long long chunk, long long begin, long long end, F f) {
  for (long long at = begin; at < end;) {
    const long long next = std::min(end, (at / chunk + 1) * chunk);
    f(at, next);
    at = next;
  }
}

// Pairs of the queries at [begin, end) with the keys on a member that are before their reach.
Count missed_on_member(const CacheShare& s, int member, const Reach& reach, long long begin, long long end) {
  Count pairs = 0;
  switch (reach.kind) {
    case ReachKind::full:
      break;
    case ReachKind::window:  // the query at q misses the first q - tokens + 1
      return sum_on_member(s, end - reach.tokens, member) - sum_on_member(s, begin - reach.tokens, member);
    case ReachKind::chunk:
      for_chunks(reach.tokens, begin, end, [&](long long at, long long next) {
        pairs += (next - at) * tokens_on_member(s, member, 0, reach.first(at));
      });
      break;
  }
  return pairs;
}

}  // namespace

Count pairs_on_member(const CacheShare& s, int member, const Reach& reach, const Segment& r) {
  return sum_on_member(s, r.length(), member) - sum_on_member(s, r.cached, member) -
         missed_on_member(s, member, reach, r.cached, r.length());
}

long long first_with_more(const CacheShare& share, long long tokens) {
  const long long round = static_cast<long long>(share.block) * share.sharers.size;
  long long low = tokens, high = (tokens / share.block + 1) * round + 1;
  while (high - low > 1) {
    const long long middle = low + (high - low) / 2;
    (tokens_on_fullest(share, middle) > tokens ? high : low) = middle;
  }
  return high;
}

Segment from_length(const Segment& s, long long length) {
  const long long cached = std::clamp(length - 1, s.cached, s.length());
  return {cached, s.length() - cached, s.count};
}

long long kept_tokens(const Reach& reach, const Segment& s) {
  return std::max<long long>(kept_tokens(reach, s.length()), s.length() - first_seen(reach, s));
}

namespace {

const CacheShare kAlone{1, 1, {1, 1}, 1, ValueUp::before};

}  // namespace

Count pairs_of(const Reach& reach, const Segment& s) { return pairs_on_member(kAlone, 0, reach, s); }

Count cached_pairs_of(const Reach& reach, const Segment& s) {
  return cached_pairs_on_member(kAlone, 0, reach, s);
}

long long rows_seeing_cached(const Reach& reach, const Segment& s) {
  if (s.cached == 0) return 0;
  switch (reach.kind) {
    case ReachKind::full:
      return s.fresh;
    case ReachKind::window:
      return std::min<long long>(s.fresh, reach.tokens - 1);
    case ReachKind::chunk:
      // Of the chunk that the first new token lies in, where a cached one does, too.
      return first_seen(reach, s) == s.cached
                 ? 0
                 : std::min<long long>(s.fresh, first_seen(reach, s) + reach.tokens - s.cached);
  }
  return 0;
}

Count cached_pairs_on_member(const CacheShare& share, int member, const Reach& reach, const Segment& s) {
  const long long seeing = rows_seeing_cached(reach, s);
  return seeing * tokens_on_member(share, member, 0, s.cached) -
         missed_on_member(share, member, reach, s.cached, s.cached + seeing);
}

Count decode_requests(const Case& c, const Plan& p) { return requests_in(c.batch.decode) * p.batch; }

Count decode_tokens(const Case& c, const Plan& p) { return decode_requests(c, p) * new_tokens(p); }

Count decode_rows(const Case& c, const Plan& p) {
  const Count requests = decode_requests(c, p), each = new_tokens(p);
  const bool graph = c.engine && !has_prompts(c);  // of steps that only decode [P18]
  if (!graph) return rank_share(requests * each, p.cp);
  return rank_share(rank_share(c.engine->padded(requests * c.graph_parts, each), c.graph_parts) * each, p.cp);
}

int out_proj_ranks(const Plan& p) {
  return strategy(p.strategy).weights == WeightSharing::attention_tp ? p.tpa : p.group();
}

int dense_ffn_ranks(const Plan& p) { return p.dense_tp > 0 ? p.dense_tp : out_proj_ranks(p); }

Count out_proj_width(const Attention& a, const Plan& p) {
  if (a.recurrent()) return recurrent_values(a, p);
  const Count width = static_cast<Count>(local_q_heads(a, p)) * value_width(a);
  return rank_share(width, out_proj_ranks(p) / p.tpa);
}

Count gate_width(const Attention& a, Count heads) {
  switch (a.gate) {
    case OutputGate::none:
    case OutputGate::narrow:  // of recurrent layers alone
      break;
    case OutputGate::head:
      return heads;
    case OutputGate::full:
      return heads * value_width(a);
  }
  return 0;
}

TokenExchange::Beside beside_experts(const Case& c, const Plan& p) {
  if (!c.engine || p.dp <= 1) return TokenExchange::Beside::group;
  const TokenExchange& e = c.engine->tokens_to_experts;
  return p[kExpertTokens] == ExpertTokens::gather ? e.beside_gathered : e.beside_dispatched;
}

int shared_expert_ranks(const Case& c, const Plan& p) {
  switch (beside_experts(c, p)) {
    case TokenExchange::Beside::part:
      return 1;
    case TokenExchange::Beside::all:
      return p.ranks_per_stage();
    case TokenExchange::Beside::group:
      break;
  }
  return p.dp > 1 ? p.group() : p.cp > 1 ? p.tpa : p.ep * p.tpf;
}

std::vector<ExpertTokens> expert_tokens_of(const Case& c, const Plan& p) {
  using Gathers = TokenExchange::Gathers;
  const Gathers gathers = c.engine ? c.engine->tokens_to_experts.gathers : Gathers::never;
  if (gathers == Gathers::untold) return {ExpertTokens::kernels, ExpertTokens::gather};
  const bool across = p.ranks_per_stage() > c.system.fabric.gpus_per_node;
  if (gathers == Gathers::across && across) return {ExpertTokens::gather};
  return {ExpertTokens::kernels};
}

std::optional<std::string> no_gather(const Case& c, const Plan& p) {
  if (p[kExpertTokens] == ExpertTokens::kernels || groups_share_experts(c, p)) return std::nullopt;
  return "moe_a2a=gather is of tokens that several attention groups send to shared experts: dp and ep of 2 "
         "or "
         "more";
}

bool deals_tokens(const Plan& p) {
  return strategy(p.strategy).weights == WeightSharing::stage && dense_ffn_ranks(p) < p.group();
}

Count ffn_rows(const Case& c, const Plan& p, Count rows) {
  if (deals_tokens(p)) return rank_share(rows, p.group());
  return dense_ffn_ranks(p) > p.group() ? rows_of_groups(c, p, rows) : rows;
}

AttentionWeights attention_weights(const Case& c, const Attention& a, const Plan& p) {
  if (a.recurrent()) return recurrent_weights(c, a, p);
  if (a.compression) return compressed_weights(c, a, p);
  const double h = c.model.hidden;
  const CacheShare heads = cache_share(c, a, p);
  const double q = heads.projected;
  AttentionWeights w;
  w.out_proj = static_cast<double>(out_proj_width(a, p)) * h;
  if (has_latents(a)) {
    const double q_dim = key_width(a);
    const double query = a.q_lora_rank > 0 ? h * a.q_lora_rank + a.q_lora_rank * q * q_dim : h * q * q_dim;
    w.projections = query + h * (a.kv_lora_rank + a.rope_dim) + q * a.nope_dim * a.kv_lora_rank +
                    static_cast<double>(value_up_heads(heads) * a.v_dim * a.kv_lora_rank);
  } else {
    w.projections = h * (q * a.head_dim + static_cast<double>(kv_elements_per_token(a, p)));
  }
  w.projections += h * static_cast<double>(gate_width(a, heads.projected));
  // DSA's index is whole on every rank; of blocks its heads are where the KV heads are, and its key
  // everywhere.
  if (a.index && !has_latents(a)) {
    w.projections += h * static_cast<double>(index_columns(a, p));
  } else if (a.index && !a.index->shared) {
    const double queries = a.q_lora_rank > 0 ? a.q_lora_rank : h, dim = a.index->dim;
    w.index = a.index->heads * dim * queries + h * (dim + a.index->heads);
  }
  if (const auto extra = strategy(p.strategy).extra_weights) w.projections += extra(c, a, p);
  return w;
}

FfnWeights ffn_weights(const Case& c, const FeedForward& f, const Plan& p) {
  const Model& m = c.model;
  const double h = m.hidden, matrices = up_projections(m) + 1;
  FfnWeights w;
  if (f.none()) return w;
  if (f.dense()) {
    w.dense = matrices * h * static_cast<double>(rank_share(f.inner, dense_ffn_ranks(p)));
    return w;
  }
  const auto width = static_cast<double>(expert_width(m, f));
  w.experts =
      matrices * width * static_cast<double>(rank_share(f.experts, p.ep) * rank_share(f.inner, p.tpf));
  w.shared = matrices * h * static_cast<double>(rank_share(f.shared_width(), shared_expert_ranks(c, p)));
  if (f.latent > 0) w.shared += 2 * h * width;  // every rank has the projections to latents and back
  if (f.shared_gate) w.shared += h;
  w.router = h * f.experts;
  return w;
}

}  // namespace shardline
