#include "planner/layers/memory.hpp"

#include <algorithm>
#include <cmath>

#include "planner/layers/cache_attention.hpp"
#include "planner/layers/recurrent.hpp"
#include "planner/layers/sparse_attention.hpp"
#include "planner/layers/streams.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

// Context-parallel ranks over which one KV head's cache of a prefill is spread.
double cache_shards(const Case& c, const Attention& a, const Plan& p) {
  if (keeps_whole_caches(c, p)) return 1;
  const auto own = strategy(p.strategy).cache_shards;
  return own ? own(a, p) : p.cp;
}

// Eager attention writes the scores of one sequence at a time to memory, beside their float32 softmax.
double score_bytes(const Case& c, const Attention& a, const Plan& p, double rows) {
  if (c.kernels.attention != AttentionKernel::eager) return 0;
  const double each = rows / p.batch * local_q_heads(a, p) * (activation_size(c) + 4);
  double most = 0;
  for (const Segment& r : c.batch.prefill) most = std::max(most, each * static_cast<double>(r.length()));
  return most;
}

// Those of them that keep heads of all tokens of their group, not tokens of their own: of a window, which may
// lie on one rank otherwise, each has its heads.
double head_shards(const Attention& a, const Plan& p) {
  const auto ranks = strategy(p.strategy).head_ranks;
  return ranks && !has_latents(a) ? std::min(ranks(p), local_kv_heads(a, p)) : 1;
}

// f(segment) of every round of a prefill in chunks of `chunk` tokens; 0: of the whole.
template <class F>
void for_rounds(const Segment& s, int chunk, F f) {
  if (chunk == 0) return f(s);
  CancelCheck check;
  for (long long done = 0; done < s.fresh; done += chunk) {
    check();
    f(Segment{s.cached + done, std::min<long long>(chunk, s.fresh - done), s.count});
  }
}

Bytes decode_buffers(const Case& c, const Attention& a, const Plan& p) {
  const double b = static_cast<double>(decode_tokens(c, p)), act = activation_size(c);
  double largest = 0;
  if (p.ranks_per_stage() > 1 || p.pp > 1) largest = b * c.model.hidden * act;
  if (p.kvp > 1) {
    const double partial = b * local_q_heads(a, p) * partial_output_bytes(c, a, p);
    const bool gathered = strategy(p.strategy).partials == PartialOutputs::all_gather;
    largest = std::max(largest, gathered ? partial * p.kvp : partial);
  }
  if (const auto own = strategy(p.strategy).decode_buffers) largest = std::max(largest, own(c, a, p).value);
  largest = std::max(largest, candidate_buffers(c, a, p, Asked::decode).value);
  if (p.dp > 1) largest = std::max(largest, b * p.dp * c.model.hidden * act);
  return Bytes(2 * largest);  // send and receive
}

}  // namespace

// A window moves over the sharers: none ever holds more of it than the first does where it begins there.
double cached_rows(const Case& c, const Attention& a, const Plan& p) {
  const CacheShare share = cache_share(c, a, p);
  long long decoding = 0;
  for (const Segment& s : c.batch.decode)
    decoding += s.count * tokens_on_fullest(share, kept_tokens(a.reach, with_drafts(s, p)));
  double rows = static_cast<double>(decoding);
  // Caches that are shared by sequence are so whatever their requests do. Context-parallel ranks hold
  // tokens in long intervals: a window may lie on one of them.
  for (const Segment& s : c.batch.prefill) {
    const double of_rank = std::ceil(static_cast<double>(s.length()) / cache_shards(c, a, p));
    long long kept = 0;
    for_rounds(s, p[kPrefillChunk],
               [&](const Segment& round) { kept = std::max(kept, kept_tokens(a.reach, round)); });
    rows += s.count * (share.sharers.size > 1
                           ? static_cast<double>(tokens_on_fullest(share, kept))
                           : std::min(of_rank, std::ceil(static_cast<double>(kept) / head_shards(a, p))));
  }
  return rows * p.batch;
}

double prefill_rows(const Case& c, const Plan& p) {
  double most = 0;
  const std::vector<long long>& parts = listed_parts(p);
  const int chunk = p[kPrefillChunk];
  for (const Segment& r : c.batch.prefill) {
    const long long at_once = chunk > 0 ? std::min<long long>(r.fresh, chunk) : r.fresh;
    double rows = parts.empty() ? std::ceil(static_cast<double>(at_once) / p.cp)
                                : static_cast<double>(*std::max_element(parts.begin(), parts.end()));
    if (const auto extra = strategy(p.strategy).extra_rows) rows += static_cast<double>(extra(r, p));
    most += rows * r.count;
  }
  return most * p.batch;
}

namespace {

// Numbers of all attention groups' tokens that are alive at once in the attention of a layer, beside the
// residual stream, with the scores of eager attention.
double attention_activations(const Case& c, const Attention& a, const Plan& p, double decoding,
                             double prefilling) {
  if (a.recurrent()) return (decoding + prefilling) * recurrent_activations(a, p);
  const LocalHeads h = prefill_heads(a, p);
  const double q = cache_share(c, a, p).attended;
  const double of_decode =
      has_latents(a) ? q * (2.0 * a.kv_lora_rank + a.rope_dim) : q * (key_width(a) + value_width(a));
  const double of_prefill =
      a.sparse() || absorbs_prompts(c, a, p) ? of_decode : h.q * (h.qk + h.v) + h.kv_width();
  return decoding * of_decode + prefilling * of_prefill;
}

// The same of its feed-forward network: `all` new tokens of a stage, `rows` of a rank.
double ffn_activations(const Case& c, std::size_t i, const Plan& p, double all, double rows) {
  const FeedForward& f = c.model.ffns[i];
  if (f.none()) return 0;
  if (f.dense()) return rows * static_cast<double>(2 * rank_share(f.inner, dense_ffn_ranks(p)));
  const double routed = all * (spreads_experts(p) ? p.cp : 1);
  // All tokens of the stage and what this rank adds to each.
  const double gathered = p[kExpertTokens] == ExpertTokens::gather ? 2 * all * c.model.hidden : 0;
  return gathered + c.routing[i]->pairs(p.ep, static_cast<long long>(routed)) * 2 *
                        static_cast<double>(rank_share(f.inner, p.tpf) + expert_width(c.model, f));
}

}  // namespace

Bytes activation_bytes(const Case& c, const Plan& p) {
  const Model& m = c.model;
  const double act = activation_size(c);
  const auto decoding = static_cast<double>(decode_tokens(c, p));
  const double prefilling = prefill_rows(c, p), all = (decoding + prefilling) * p.dp;
  const double rows = static_cast<double>(ffn_rows(c, p, decode_rows(c, p) + count_of(prefilling)));
  double widest = 0, scores = 0;
  for (const Attention& a : m.attentions) {
    widest = std::max(widest, attention_activations(c, a, p, decoding, prefilling));
    scores = std::max({scores, score_bytes(c, a, p, prefilling), choice_activations(c, a, p).value});
  }
  for (std::size_t i = 0; i < m.ffns.size(); ++i)
    widest = std::max(widest, ffn_activations(c, i, p, all, rows));
  // Logits of decoding tokens; beside them, of the last token of each prefill.
  const double logits = c.batch.decodes() ? decoding + static_cast<double>(prefill_sequences(c, p)) : 0;
  const double head = logits * p.dp * static_cast<double>(rank_share(m.vocab, p.ranks_per_stage()));
  // Tokens on their way in, and what goes on beside a sublayer.
  const double rows_of_token = 1 + static_cast<double>(residual_rows(m));
  return Bytes(act * (rows_of_token * all * m.hidden + std::max(widest, head)) + scores);
}

Bytes buffer_bytes(const Case& c, const Plan& p) {
  Bytes decode, prefill;
  for (const Attention& a : c.model.attentions) {
    if (a.recurrent()) {  // sums of tokens, which other layers have, too, and exchanges of heads
      prefill = std::max(prefill, recurrent_buffers(c, a, p));
      continue;
    }
    if (c.batch.decodes()) decode = std::max(decode, decode_buffers(c, a, p));
    if (c.batch.prefills()) prefill = std::max(prefill, strategy(p.strategy).prefill_buffers(c, a, p));
  }
  return decode + prefill;
}

Bytes key_message(const Case& c, const Attention& a, const Plan& p) {
  double cached = 0;
  for (const Segment& r : c.batch.prefill) {
    if (keeps_whole_caches(c, p)) break;
    double most = 0;  // of any round: the cache grows, and what is seen of it
    for_rounds(r, p[kPrefillChunk], [&](const Segment& round) {
      const auto seen = static_cast<double>(round.cached - first_seen(a.reach, round));
      most = std::max(most, std::min(std::ceil(static_cast<double>(round.cached) / p.cp), seen));
    });
    cached += most * r.count * p.batch;
  }
  // Whole caches are filled from rows as they are projected.
  const double number = keeps_whole_caches(c, p) ? activation_size(c) : bytes_per_element(c.precision.kv);
  return Bytes((cached + prefill_rows(c, p)) * prefill_heads(a, p).held_width() * number);
}

Bytes expanded_message(const Case& c, const Attention& a, const Plan& p) {
  const LocalHeads h = prefill_heads(a, p);
  if (h.latent == 0 || absorbs_prompts(c, a, p)) return Bytes(0);
  return key_message(c, a, p) * (h.kv_width() / h.held_width());
}

Bytes partial_output(const Case& c, const Attention& a, const Plan& p) {
  const LocalHeads h = prefill_heads(a, p);
  return Bytes(prefill_rows(c, p) * h.q * (h.v * activation_size(c) + 4));
}

Bytes gathered_buffers(const Case& c, const Attention& a, const Plan& p) {
  const Bytes message = key_message(c, a, p);  // gathered rows; whole caches take them in their order
  return (message + expanded_message(c, a, p) + (keeps_whole_caches(c, p) ? message : Bytes(0))) * p.cp;
}

// Two messages of the cache on their way, what one of latents expands to, and one partial output.
Bytes ring_buffers(const Case& c, const Attention& a, const Plan& p) {
  return 2 * key_message(c, a, p) + expanded_message(c, a, p) + partial_output(c, a, p);
}

Bytes token_buffers(const Case& c, const Attention&, const Plan& p) {
  return Bytes(2 * prefill_rows(c, p) * p.dp * c.model.hidden * activation_size(c));
}

// Under MLA the keys and values of all tokens, cached and new, are expanded before attention.
Bytes unsharded_buffers(const Case& c, const Attention& a, const Plan& p) {
  const LocalHeads h = prefill_heads(a, p);
  if (h.latent == 0 || a.sparse()) return token_buffers(c, a, p);
  double keys = 0;
  for (const Segment& r : c.batch.prefill)
    keys += std::ceil(static_cast<double>(r.length()) / p.cp) * r.count * p.batch;
  return token_buffers(c, a, p) +
         Bytes(std::max(keys, prefill_rows(c, p)) * h.kv_width() * bytes_per_element(c.precision.kv));
}

}  // namespace shardline
