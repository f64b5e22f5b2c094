#include "planner/layers/memory.hpp"

#include <algorithm>
#include <cmath>

#include "planner/layers/cache_attention.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

// Context-parallel ranks over which one KV head's cache of a prefill is spread.
double cache_shards(const Case& c, const Plan& p) {
  const auto own = strategy(p.strategy).cache_shards;
  return own ? own(c, p) : p.cp;
}

// Eager attention writes the scores of one sequence at a time to memory, beside their float32 softmax.
double score_bytes(const Case& c, const Plan& p, double rows) {
  if (c.kernels.attention != AttentionKernel::eager) return 0;
  const double each = rows / p.batch * prefill_heads(c, p).q * (activation_size(c) + 4);
  double most = 0;
  for (const Segment& r : c.batch.prefill) most = std::max(most, each * static_cast<double>(r.length()));
  return most;
}

Bytes decode_buffers(const Case& c, const Plan& p) {
  const double b = static_cast<double>(decode_requests(c, p)), act = activation_size(c);
  double largest = 0;
  if (p.ranks_per_stage() > 1 || p.pp > 1) largest = b * c.model.hidden * act;
  if (p.kvp > 1) {
    const double partial = b * local_q_heads(c, p) * partial_output_bytes(c, p);
    const bool gathered = strategy(p.strategy).partials == PartialOutputs::all_gather;
    largest = std::max(largest, gathered ? partial * p.kvp : partial);
  }
  if (const auto own = strategy(p.strategy).decode_buffers) largest = std::max(largest, own(c, p).value);
  if (p.dp > 1) largest = std::max(largest, b * p.dp * c.model.hidden * act);
  return Bytes(2 * largest);  // send and receive
}

}  // namespace

double cached_rows(const Case& c, const Plan& p) {
  const CacheShare share = cache_share(c, p);
  long long decoding = 0;
  for (const Segment& s : c.batch.decode) decoding += s.count * tokens_on_fullest(share, s.length());
  double rows = static_cast<double>(decoding);
  // Caches that are shared by sequence are so whatever their requests do.
  for (const Segment& s : c.batch.prefill) {
    rows +=
        s.count * (share.sharers.size > 1 ? static_cast<double>(tokens_on_fullest(share, s.length()))
                                          : std::ceil(static_cast<double>(s.length()) / cache_shards(c, p)));
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

Bytes activation_bytes(const Case& c, const Plan& p) {
  const Model& m = c.model;
  const double act = activation_size(c);
  const auto decoding = static_cast<double>(decode_requests(c, p));
  const double prefilling = prefill_rows(c, p), all = (decoding + prefilling) * p.dp;
  const LocalHeads h = prefill_heads(c, p);
  const double q = cache_share(c, p).attended;
  const double of_decode = has_latents(c) ? q * (2.0 * m.attention.kv_lora_rank + m.attention.rope_dim)
                                          : 2.0 * q * m.attention.head_dim;
  const double of_prefill = h.q * (h.qk + h.v) + h.kv_width();
  const double rows = static_cast<double>(ffn_rows(p, decode_rows(c, p) + count_of(prefilling)));
  double widest = std::max(decoding * of_decode + prefilling * of_prefill,
                           rows * static_cast<double>(2 * rank_share(m.ffn_inner, dense_ffn_ranks(p))));
  if (has_experts(m)) {
    const double routed = all * (spreads_experts(p) ? p.cp : 1);
    widest = std::max(widest, c.routing->pairs(p.ep, static_cast<long long>(routed)) * 2 *
                                  static_cast<double>(rank_share(m.expert_inner, p.tpf) + m.hidden));
  }
  // Logits of decoding tokens; beside them, of the last token of each prefill.
  const double logits = c.batch.decodes() ? decoding + static_cast<double>(prefill_sequences(c, p)) : 0;
  const double head = logits * p.dp * static_cast<double>(rank_share(m.vocab, p.ranks_per_stage()));
  return Bytes(act * (2 * all * m.hidden + std::max(widest, head)) + score_bytes(c, p, prefilling));
}

Bytes buffer_bytes(const Case& c, const Plan& p) {
  Bytes sum;
  if (c.batch.decodes()) sum += decode_buffers(c, p);
  if (c.batch.prefills()) sum += strategy(p.strategy).prefill_buffers(c, p);
  return sum;
}

Bytes key_message(const Case& c, const Plan& p) {
  double cached = 0;
  for (const Segment& r : c.batch.prefill)
    cached += std::ceil(static_cast<double>(r.cached) / p.cp) * r.count * p.batch;
  return Bytes((cached + prefill_rows(c, p)) * prefill_heads(c, p).held_width() *
               bytes_per_element(c.precision.kv));
}

Bytes expanded_message(const Case& c, const Plan& p) {
  const LocalHeads h = prefill_heads(c, p);
  return h.latent > 0 ? key_message(c, p) * (h.kv_width() / h.held_width()) : Bytes(0);
}

Bytes partial_output(const Case& c, const Plan& p) {
  const LocalHeads h = prefill_heads(c, p);
  return Bytes(prefill_rows(c, p) * h.q * (h.v * activation_size(c) + 4));
}

Bytes gathered_buffers(const Case& c, const Plan& p) {
  return (key_message(c, p) + expanded_message(c, p)) * p.cp;
}

// Two messages of the cache on their way, what one of latents expands to, and one partial output.
Bytes ring_buffers(const Case& c, const Plan& p) {
  return 2 * key_message(c, p) + expanded_message(c, p) + partial_output(c, p);
}

Bytes token_buffers(const Case& c, const Plan& p) {
  return Bytes(2 * prefill_rows(c, p) * p.dp * c.model.hidden * activation_size(c));
}

// Under MLA the keys and values of all tokens, cached and new, are expanded before attention.
Bytes unsharded_buffers(const Case& c, const Plan& p) {
  const LocalHeads h = prefill_heads(c, p);
  if (h.latent == 0) return token_buffers(c, p);
  double keys = 0;
  for (const Segment& r : c.batch.prefill)
    keys += std::ceil(static_cast<double>(r.length()) / p.cp) * r.count * p.batch;
  return token_buffers(c, p) +
         Bytes(std::max(keys, prefill_rows(c, p)) * h.kv_width() * bytes_per_element(c.precision.kv));
}

}  // namespace shardline
