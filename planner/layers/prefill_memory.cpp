// What a prefill holds beside weights and KV. planner/README.md [P4], [P5].
#include <algorithm>
#include <cmath>

#include "planner/layers/context_step.hpp"
#include "planner/layers/host_blocks.hpp"

namespace shardline {

double prefill_rows(const Case& c, const Plan& p) {
  double most = 0;
  for (const Request& r : c.requests) {
    const double even = p.prefill_chunk > 0
                            ? static_cast<double>(std::min<long long>(r.fresh, p.prefill_chunk))
                            : std::ceil(static_cast<double>(r.fresh) / p.cp);
    most += p.partition.empty() ? even : double(*std::max_element(p.partition.begin(), p.partition.end()));
    most += static_cast<double>(anchor_rows(r, p));
  }
  return most * p.batch;
}

double cache_shards(const Case& c, const Plan& p) {
  if (p.strategy == StrategyId::kv_runahead) return 1;  // the last rank ends with all of it
  if (p.strategy != StrategyId::ulysses) return p.cp;
  // Kept by heads: ranks beyond the KV heads hold copies, and all heads share MLA's latents.
  if (c.model.attention.kind == AttentionKind::mla) return 1;
  return std::min(p.cp, prefill_heads(c, p).kv);
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

Bytes prefill_buffer_bytes(const Case& c, const Plan& p) {
  const LocalHeads h = prefill_heads(c, p);
  const double act = bytes_per_element(c.precision.activations), kv = bytes_per_element(c.precision.kv);
  const double rows = prefill_rows(c, p);
  double cached = 0;
  for (const Request& r : c.requests) cached += std::ceil(static_cast<double>(r.cached) / p.cp) * p.batch;
  const double key_message = (cached + rows) * h.kv_width() * kv;
  const double partial = rows * h.q * (h.v * act + 4);
  switch (p.strategy) {
    case StrategyId::ring_pass_kv:
      return Bytes(2 * key_message + partial);
    case StrategyId::ring_pass_q:
      return Bytes(2 * rows * h.q * h.qk * act + 2 * partial * p.cp);
    case StrategyId::allgather_kv:
    case StrategyId::tsp:
      return Bytes(key_message * p.cp);
    case StrategyId::apb:
      return passing_buffer_bytes(c, p);
    case StrategyId::ulysses:
      return Bytes(2 * rows * (h.q * (h.qk + h.v) * act + h.kv_width() * kv));
    default:
      return Bytes(2 * rows * c.model.hidden * act);
  }
}

}  // namespace shardline
