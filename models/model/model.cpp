#include "models/model/model.hpp"

#include <fmt/format.h>

#include "sim/base/error.hpp"

namespace shardline {
namespace {

constexpr double kLargestModel = 1e15;

double q_width(const Attention& a) {
  const double head = a.kind == AttentionKind::gqa ? a.head_dim : a.nope_dim + a.rope_dim;
  return a.q_heads * head;
}

/// Matrices of one attention layer. The absorbed form of MLA multiplies with the same number of weights.
double attention_matrices(const Model& m) {
  const Attention& a = m.attention;
  const double hidden = m.hidden;
  if (a.kind == AttentionKind::gqa) {
    const double kv_width = 1.0 * a.kv_heads * a.head_dim;
    return 2 * hidden * (q_width(a) + kv_width);
  }
  const double rank = a.q_lora_rank;
  const double queries = a.q_lora_rank > 0 ? rank * (hidden + q_width(a)) : hidden * q_width(a);
  const double latent = hidden * (1.0 * a.kv_lora_rank + a.rope_dim);
  const double expand = 1.0 * a.kv_lora_rank * a.q_heads * (1.0 * a.nope_dim + a.v_dim);
  const double output = 1.0 * a.q_heads * a.v_dim * hidden;
  return queries + latent + expand + output;
}

double ffn_matrices(const Model& m, int inner) {
  return (m.ffn_kind == FfnKind::gated ? 3.0 : 2.0) * m.hidden * inner;
}

double ffn_biases(const Model& m, int inner) {
  if (!m.ffn_bias) return 0;
  return (m.ffn_kind == FfnKind::gated ? 2.0 : 1.0) * inner + m.hidden;
}

double norm_parameters(const Model& m) { return (m.norm == NormKind::rms ? 1.0 : 2.0) * m.hidden; }

double moe_layers(const Model& m) { return m.layers - m.dense_layers; }

double one_expert(const Model& m) { return ffn_matrices(m, m.expert_inner) + ffn_biases(m, m.expert_inner); }

}  // namespace

std::vector<ModelFault> check(const Model& m) {
  std::vector<ModelFault> faults;
  const auto require = [&](bool holds, const char* field, std::string what) {
    if (!holds) faults.push_back({field, std::move(what)});
  };
  const Attention& a = m.attention;
  if (a.kind == AttentionKind::gqa) {
    require(a.kv_heads > 0 && a.q_heads % a.kv_heads == 0, "attention.kv_heads",
            fmt::format("{} query heads do not divide into {} key/value heads", a.q_heads, a.kv_heads));
  } else {
    require(a.rope_dim % 2 == 0, "attention.rope_dim",
            fmt::format("rotary width {} is odd, but rotary embedding turns pairs of channels", a.rope_dim));
    require(!m.qk_norm, "attention.qk_norm", "mla has its own norms; qk_norm applies to gqa only");
    require(m.attention_bias == AttentionBias::none, "attention.bias",
            "biases on mla projections are not modelled");
  }
  if (has_experts(m)) {
    require(m.dense_layers < m.layers, "moe.first_dense_layers",
            fmt::format("{} dense layers of {} leave no layer for the experts", m.dense_layers, m.layers));
    require(m.experts_per_token <= m.experts, "moe.experts_per_token",
            fmt::format("a token cannot visit {} of {} experts", m.experts_per_token, m.experts));
    require(!m.parallel_attention_ffn, "parallel_attention_ffn",
            "experts beside parallel attention are not modelled");
  } else {
    require(m.dense_layers == m.layers, "moe", "a model without experts is dense in every layer");
  }
  require(m.dense_layers == 0 || m.ffn_inner > 0, "ffn.inner", "dense layers need an inner width");
  require(m.dense_layers > 0 || m.ffn_inner == 0, "ffn.inner",
          "no layer is dense, so no layer has this width");
  if (faults.empty()) {
    require(
        parameter_count(m) <= kLargestModel, "layers",
        fmt::format("{:.3g} parameters; more than {:.0e} are refused", parameter_count(m), kLargestModel));
  }
  return faults;
}

double attention_parameters(const Model& m) {
  const Attention& a = m.attention;
  double count = attention_matrices(m);
  if (a.kind == AttentionKind::mla) return count + a.q_lora_rank + a.kv_lora_rank;
  if (m.qk_norm) count += 2.0 * a.head_dim;
  if (m.attention_bias != AttentionBias::none) count += q_width(a) + 2.0 * a.kv_heads * a.head_dim;
  if (m.attention_bias == AttentionBias::all) count += m.hidden;
  return count;
}

double ffn_parameters(const Model& m, int layer) {
  SL_CHECK(layer >= 0 && layer < m.layers, fmt::format("layer {} of {}", layer, m.layers));
  if (is_dense_layer(m, layer)) return ffn_matrices(m, m.ffn_inner) + ffn_biases(m, m.ffn_inner);
  const double router = 1.0 * m.experts * m.hidden + (m.router_bias ? m.experts : 0);
  return (1.0 * m.experts + m.shared_experts) * one_expert(m) + router;
}

double parameter_count(const Model& m) {
  const double tables = (m.tied_embeddings ? 1.0 : 2.0) * m.vocab * m.hidden;
  const double norms = (m.layers * (m.parallel_attention_ffn ? 1.0 : 2.0) + 1) * norm_parameters(m);
  double ffn = 0;
  if (m.dense_layers > 0) ffn += m.dense_layers * ffn_parameters(m, 0);
  if (m.dense_layers < m.layers) ffn += moe_layers(m) * ffn_parameters(m, m.dense_layers);
  return tables + norms + m.layers * attention_parameters(m) + ffn;
}

double active_parameters(const Model& m) {
  const double idle = 1.0 * m.experts - m.experts_per_token;
  return parameter_count(m) - moe_layers(m) * idle * one_expert(m);
}

double kv_elements_per_layer(const Attention& a) {
  if (a.kind == AttentionKind::mla) return 1.0 * a.kv_lora_rank + a.rope_dim;
  return 2.0 * a.kv_heads * a.head_dim;
}

Bytes kv_bytes_per_token(const Model& m, double element_bytes) {
  return Bytes(kv_elements_per_layer(m.attention) * m.layers * element_bytes);
}

double active_matmul_weights(const Model& m) {
  const double visited = 1.0 * m.experts_per_token + m.shared_experts;
  const double moe = visited * ffn_matrices(m, m.expert_inner) + 1.0 * m.experts * m.hidden;
  return m.layers * attention_matrices(m) + m.dense_layers * ffn_matrices(m, m.ffn_inner) +
         moe_layers(m) * moe + 1.0 * m.vocab * m.hidden;
}

Flops attention_flops(const Attention& a, double context_tokens) {
  if (a.kind == AttentionKind::gqa) return Flops(4.0 * q_width(a) * context_tokens);
  return Flops(2.0 * a.q_heads * (2.0 * a.kv_lora_rank + a.rope_dim) * context_tokens);
}

Flops flops_per_token(const Model& m, double context_tokens) {
  return Flops(2 * active_matmul_weights(m)) + m.layers * attention_flops(m.attention, context_tokens);
}

}  // namespace shardline
