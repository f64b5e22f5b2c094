// Counts of one layer's mixer by its kind: [M1], [M6], [M15].
#include "models/model/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/model/cache.hpp"
#include "models/model/model.hpp"
#include "sim/base/error.hpp"

namespace shardline {
namespace {

double q_width(const Attention& a) { return 1.0 * a.q_heads * key_width(a); }

/// Keys and values of one token, as they are cached.
double kv_width(const Attention& a) { return 1.0 * a.kv_heads * (1.0 * key_width(a) + value_width(a)); }

/// The same as their projections make them.
double made_width(const Attention& a) { return a.k_eq_v ? 1.0 * a.kv_heads * key_width(a) : kv_width(a); }

double gate_matrices(const Attention& a, double hidden) {
  switch (a.gate) {
    case OutputGate::none:
      return 0;
    case OutputGate::head:
      return hidden * a.q_heads;
    case OutputGate::full:
      return hidden * a.q_heads * value_width(a);
    case OutputGate::narrow:
      break;
  }
  return 0;  // of a delta rule alone, which counts it itself
}

double index_matrices(const Attention& a, double hidden) {
  if (!a.index || a.index->shared) return 0;
  const double heads = a.index->heads, dim = a.index->dim;
  const double of_queries = a.q_lora_rank > 0 ? a.q_lora_rank : hidden;
  switch (a.kind) {
    case AttentionKind::gqa:
      return hidden * (heads * dim + dim);
    case AttentionKind::mla:
      return of_queries * heads * dim + hidden * dim + hidden * heads;
    case AttentionKind::compressed:
      return of_queries * heads * dim + 2 * hidden * rows_of_token(a) * dim + hidden * heads;
    case AttentionKind::delta:
    case AttentionKind::mamba:
    case AttentionKind::none:
      break;
  }
  return 0;
}

/// Norms of an index, and what it adds to the gates of its rows.
double index_extras(const Attention& a) {
  if (!a.index || a.index->shared) return 0;
  const double dim = a.index->dim;
  if (a.kind != AttentionKind::compressed) return 2 * dim;
  return a.compression->ratio * rows_of_token(a) * dim + dim;
}

double latent_matrices(const Attention& a, double hidden) {
  const double rank = a.q_lora_rank;
  const double queries = a.q_lora_rank > 0 ? rank * (hidden + q_width(a)) : hidden * q_width(a);
  const double latent = hidden * (1.0 * a.kv_lora_rank + a.rope_dim);
  const double expand = 1.0 * a.kv_lora_rank * a.q_heads * (1.0 * a.nope_dim + a.v_dim);
  return queries + latent + expand + 1.0 * a.q_heads * value_width(a) * hidden;
}

double compressed_matrices(const Attention& a, double hidden) {
  const Compression& c = *a.compression;
  const double dim = a.head_dim, outputs = q_width(a);
  const double rows = c.ratio > 0 ? 2 * hidden * rows_of_token(a) * dim : 0;  // values and gates of rows
  return a.q_lora_rank * (hidden + outputs) + hidden * dim + rows + outputs * c.o_rank +
         1.0 * c.o_groups * c.o_rank * hidden;
}

double delta_channels(const DeltaRule& d) {
  return 2.0 * d.key_heads * d.key_dim + 1.0 * d.value_heads * d.value_dim;
}

double delta_matrices(const Attention& a, double hidden) {
  const DeltaRule& d = *a.delta;
  const double values = 1.0 * d.value_heads * d.value_dim, heads = d.value_heads;
  const double narrow = d.value_dim * (hidden + values);
  // A decay per channel is made of a narrow projection, one per head of the input itself; beta is per head.
  const double decay =
      d.channel_decay ? d.key_dim * (hidden + 1.0 * d.value_heads * d.key_dim) : hidden * heads;
  const double gate = a.gate == OutputGate::narrow ? narrow : hidden * values;
  return hidden * delta_channels(d) + gate + decay + hidden * heads + values * hidden;
}

double delta_extras(const DeltaRule& d) {
  const double biases = d.channel_decay ? 1.0 * d.value_heads * d.key_dim : d.value_heads;
  return delta_channels(d) * d.conv + d.value_heads + biases + d.value_dim;
}

double mamba_inner(const Mamba& s) { return 1.0 * s.heads * s.head_dim; }
double mamba_channels(const Mamba& s) { return mamba_inner(s) + 2.0 * s.groups * s.state; }
double mamba_matrices(const Mamba& s, double hidden) {
  return hidden * (mamba_inner(s) + mamba_channels(s) + s.heads) + mamba_inner(s) * hidden;
}
double mamba_extras(const Mamba& s, double hidden) {
  double count = mamba_channels(s) * (s.conv + (s.conv_bias ? 1 : 0)) + 3.0 * s.heads + mamba_inner(s);
  if (s.bias) count += mamba_inner(s) + mamba_channels(s) + s.heads + hidden;
  return count;
}

double gqa_extras(const Model& m, const Attention& a) {
  double count = 0;
  if (m.qk_norm && m.qk_norm_whole) count += q_width(a) + 1.0 * a.kv_heads * a.head_dim;
  if (m.qk_norm && !m.qk_norm_whole) count += 2.0 * a.head_dim;
  if (m.attention_bias != AttentionBias::none) count += q_width(a) + made_width(a);
  if (m.attention_bias == AttentionBias::all) count += m.hidden;
  return count;
}

/// Keys that the last of `context` tokens sees.
double seen_keys(const Reach& reach, double context) {
  const auto tokens = static_cast<double>(reach.tokens);
  switch (reach.kind) {
    case ReachKind::full:
      break;
    case ReachKind::window:
      return std::min(context, tokens);
    case ReachKind::chunk:
      return context <= tokens ? context : context - tokens * (std::ceil(context / tokens) - 1);
  }
  return context;
}

double chosen_of(const Attention& a, double keys) {
  if (!a.index || keys <= static_cast<double>(a.index->chosen())) return keys;
  return static_cast<double>(a.index->chosen_of(static_cast<std::int64_t>(std::ceil(keys))));
}

Flops index_flops(const Attention& a, double keys) {
  if (!a.index || a.index->shared) return Flops(0);
  return Flops(2.0 * a.index->heads * a.index->dim * keys);
}

}  // namespace

double attention_matrices(const Model& m, const Attention& a) {
  const double hidden = m.hidden;
  const double around = gate_matrices(a, hidden) + index_matrices(a, hidden);
  switch (a.kind) {
    case AttentionKind::gqa:
      return hidden * (q_width(a) + made_width(a)) + 1.0 * a.q_heads * value_width(a) * hidden + around;
    case AttentionKind::mla:
      return latent_matrices(a, hidden) + around;
    case AttentionKind::compressed:
      return compressed_matrices(a, hidden) + around;
    case AttentionKind::delta:
      return delta_matrices(a, hidden);
    case AttentionKind::mamba:
      return mamba_matrices(*a.mamba, hidden);
    case AttentionKind::none:
      break;
  }
  return 0;
}

double attention_parameters(const Model& m, const Attention& a) {
  const double count = attention_matrices(m, a) + index_extras(a) + (a.sinks ? a.q_heads : 0);
  switch (a.kind) {
    case AttentionKind::gqa:
      return count + gqa_extras(m, a);
    case AttentionKind::mla:
      return count + a.q_lora_rank + a.kv_lora_rank;
    case AttentionKind::compressed: {
      const double rows =
          a.compression->ratio > 0 ? (a.compression->ratio * rows_of_token(a) + 1) * a.head_dim : 0;
      return count + a.q_lora_rank + a.head_dim + rows;
    }
    case AttentionKind::delta:
      return count + delta_extras(*a.delta);
    case AttentionKind::mamba:
      return count + mamba_extras(*a.mamba, m.hidden);
    case AttentionKind::none:
      break;
  }
  return 0;
}

Flops attention_flops(const Attention& a, double context_tokens) {
  double products = 0;  // per head and token: with a key and a value as they are cached
  switch (a.kind) {
    case AttentionKind::gqa:
      products = 1.0 * key_width(a) + value_width(a);
      break;
    case AttentionKind::mla:
      products = 2.0 * a.kv_lora_rank + a.rope_dim;
      break;
    case AttentionKind::compressed:
      products = 2.0 * a.head_dim;
      break;
    case AttentionKind::delta:
    case AttentionKind::mamba:
    case AttentionKind::none:
      break;
  }
  return Flops(2.0 * a.q_heads * products * context_tokens);
}

Flops mixer_flops(const Attention& a, double context_tokens) {
  switch (a.kind) {
    case AttentionKind::gqa:
    case AttentionKind::mla: {
      const double keys = seen_keys(a.reach, context_tokens);
      return attention_flops(a, chosen_of(a, keys)) + index_flops(a, keys);
    }
    case AttentionKind::compressed: {
      const int ratio = a.compression->ratio;
      const double rows = ratio > 0 ? std::floor(context_tokens / ratio) : 0;
      return attention_flops(a, seen_keys(a.reach, context_tokens) + chosen_of(a, rows)) +
             index_flops(a, rows);
    }
    case AttentionKind::delta:
      return Flops(8.0 * a.delta->value_heads * a.delta->key_dim * a.delta->value_dim);
    case AttentionKind::mamba:
      return Flops(6.0 * mamba_inner(*a.mamba) * a.mamba->state);
    case AttentionKind::none:
      break;
  }
  return Flops(0);
}

double kv_elements_per_layer(const Attention& a) {
  const double of_index = a.index && !a.index->shared ? a.index->dim : 0;
  switch (a.kind) {
    case AttentionKind::gqa:
      return kv_width(a) + of_index;
    case AttentionKind::mla:
      return 1.0 * a.kv_lora_rank + a.rope_dim + of_index;
    case AttentionKind::compressed:
      // Of the window, and its share of a row.
      return a.head_dim + (a.compression->ratio > 0 ? (a.head_dim + of_index) / a.compression->ratio : 0);
    case AttentionKind::delta:
    case AttentionKind::mamba:
    case AttentionKind::none:
      break;
  }
  return 0;
}

std::string to_string(const Reach& reach) {
  switch (reach.kind) {
    case ReachKind::full:
      break;
    case ReachKind::window:
      return fmt::format("window {}", reach.tokens);
    case ReachKind::chunk:
      return fmt::format("chunk {}", reach.tokens);
  }
  return "full";
}

std::string name_of(const Attention& a) {
  switch (a.kind) {
    case AttentionKind::gqa:
      return a.index ? "block-sparse attention with an index (MSA)" : "attention, " + to_string(a.reach);
    case AttentionKind::mla:
      if (!a.index) return "latent attention (MLA)";
      return a.index->shared ? "sparse attention with the index of an earlier layer (DSA, IndexShare)"
                             : "sparse attention with an index (DSA)";
    case AttentionKind::compressed:
      if (a.compression->ratio == 0) return "attention over a window of one shared key (DeepSeek-V4)";
      return fmt::format("compressed attention, {} tokens per row ({})", a.compression->ratio,
                         a.index ? "CSA" : "HCA");
    case AttentionKind::delta:
      return a.delta->channel_decay ? "linear attention (KDA)" : "linear attention (gated DeltaNet)";
    case AttentionKind::mamba:
      return "a state-space layer (Mamba-2)";
    case AttentionKind::none:
      break;
  }
  return "no attention";
}

}  // namespace shardline
