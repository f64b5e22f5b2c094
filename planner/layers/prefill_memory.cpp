// What a prefill holds beside weights and KV. planner/README.md [P4], [P5].
#include <algorithm>
#include <cmath>

#include "planner/layers/context_step.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

double prefill_rows(const Case& c, const Plan& p) {
  double most = 0;
  const std::vector<long long>& parts = listed_parts(p);
  for (const Request& r : c.requests) {
    const double even = p[kPrefillChunk] > 0
                            ? static_cast<double>(std::min<long long>(r.fresh, p[kPrefillChunk]))
                            : std::ceil(static_cast<double>(r.fresh) / p.cp);
    most += parts.empty() ? even : double(*std::max_element(parts.begin(), parts.end()));
    if (const auto extra = strategy(p.strategy).extra_rows) most += static_cast<double>(extra(r, p));
  }
  return most * p.batch;
}

double cache_shards(const Case& c, const Plan& p) {
  const auto own = strategy(p.strategy).cache_shards;
  return own ? own(c, p) : p.cp;
}

Bytes prefill_activation_bytes(const Case& c, const Plan& p) {
  const Model& m = c.model;
  const LocalHeads h = prefill_heads(c, p);
  const double rows = prefill_rows(c, p), act = bytes_per_element(c.precision.activations);
  const double inner = 2 * std::ceil(static_cast<double>(m.ffn_inner) / p.tpa);
  double widest = std::max(h.q * (h.qk + h.v) + h.kv_width(), inner);
  if (has_experts(m)) {
    const double spread = p.ep * p.tpf > p.tpa ? p.cp : 1;
    const double pairs = c.routing->pairs(p.ep, static_cast<long long>(rows * spread));
    widest = std::max(widest,
                      pairs / rows * 2 * (std::ceil(static_cast<double>(m.expert_inner) / p.tpf) + m.hidden));
  }
  double scores = 0;  // eager: of one sequence at a time, beside their float32 softmax
  if (c.kernels.attention == AttentionKernel::eager) {
    for (const Request& r : c.requests)
      scores = std::max(scores, rows / p.batch * static_cast<double>(r.cached + r.fresh) * h.q * (act + 4));
  }
  return Bytes(rows * act * (2.0 * m.hidden + widest) + scores);
}

Bytes key_message(const Case& c, const Plan& p) {
  double cached = 0;
  for (const Request& r : c.requests) cached += std::ceil(static_cast<double>(r.cached) / p.cp) * p.batch;
  return Bytes((cached + prefill_rows(c, p)) * prefill_heads(c, p).held_width() *
               bytes_per_element(c.precision.kv));
}

Bytes expanded_message(const Case& c, const Plan& p) {
  const LocalHeads h = prefill_heads(c, p);
  return h.latent > 0 ? key_message(c, p) * (h.kv_width() / h.held_width()) : Bytes(0);
}

Bytes partial_output(const Case& c, const Plan& p) {
  const LocalHeads h = prefill_heads(c, p);
  return Bytes(prefill_rows(c, p) * h.q * (h.v * bytes_per_element(c.precision.activations) + 4));
}

Bytes gathered_buffers(const Case& c, const Plan& p) {
  return (key_message(c, p) + expanded_message(c, p)) * p.cp;
}

// Two messages of the cache on their way, what one of latents expands to, and one partial output.
Bytes ring_buffers(const Case& c, const Plan& p) {
  return 2 * key_message(c, p) + expanded_message(c, p) + partial_output(c, p);
}

Bytes unsharded_buffers(const Case& c, const Plan& p) {
  return Bytes(2 * prefill_rows(c, p) * c.model.hidden * bytes_per_element(c.precision.activations));
}

Bytes prefill_buffer_bytes(const Case& c, const Plan& p) {
  return strategy(p.strategy).prefill_buffers(c, p);
}

}  // namespace shardline
