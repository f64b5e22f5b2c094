#include "models/model/cache.hpp"

#include <algorithm>

namespace shardline {
namespace {

constexpr double kScaleBytes = 4;    // a float32
constexpr double kScaleBlock = 128;  // elements that it scales
constexpr double kConvBytes = 2;     // BF16, whatever the state's type

bool of_eight_bits(Dtype d) { return arithmetic_of(d) == Dtype::fp8; }

template <class F>
double over_layers(const Model& m, F&& of) {
  double sum = 0;
  for (const LayerRun& run : m.runs) sum += run.count * of(m.attentions[run.attention]);
  return sum;
}

/// Keys and values of a token, or of a compressed row, without an index's key.
double row_elements(const Attention& a) {
  if (a.kind == AttentionKind::compressed) return a.head_dim;
  return kv_elements_per_layer(a) - (a.index && !a.index->shared ? a.index->dim : 0);
}

std::int64_t rows_of(const Attention& a, std::int64_t length) {
  return a.compression->ratio > 0 ? length / a.compression->ratio : 0;
}

std::int64_t chosen_of(const Attention& a, std::int64_t rows) {
  return a.index ? a.index->chosen_of(rows) : rows;
}

/// Keys that the last of `length` tokens sees.
std::int64_t seen(const Reach& reach, std::int64_t length) {
  return length <= 0 ? 0 : length - reach.first(length - 1);
}

double kept_bytes(const Attention& a, std::int64_t length, Dtype kv) {
  const double row = row_bytes(a, kv), key = index_row_bytes(a, kv);
  const auto kept = static_cast<double>(kept_tokens(a.reach, length));
  if (a.kind != AttentionKind::compressed) return kept * (row + key);
  return kept * row + static_cast<double>(rows_of(a, length)) * (row + key);
}

double read_bytes(const Attention& a, std::int64_t length, Dtype kv) {
  const double row = row_bytes(a, kv), key = index_row_bytes(a, kv);
  const std::int64_t near = seen(a.reach, length);
  if (a.kind != AttentionKind::compressed)
    return static_cast<double>(chosen_of(a, near)) * row + static_cast<double>(near) * key;
  const std::int64_t rows = rows_of(a, length);
  return static_cast<double>(near + chosen_of(a, rows)) * row + static_cast<double>(rows) * key;
}

}  // namespace

Bytes kv_bytes_per_token(const Model& m, double element_bytes) {
  return Bytes(over_layers(m, kv_elements_per_layer) * element_bytes);
}

std::int64_t kept_tokens(const Reach& reach, std::int64_t length) {
  switch (reach.kind) {
    case ReachKind::full:
      break;
    case ReachKind::window:
    case ReachKind::chunk:
      return std::min(length, reach.tokens);
  }
  return length;
}

Bytes kv_bytes(const Model& m, std::int64_t length, double element_bytes) {
  const double elements = over_layers(m, [&](const Attention& a) {
    if (a.kind == AttentionKind::compressed)
      return row_elements(a) * static_cast<double>(kept_tokens(a.reach, length)) +
             (row_elements(a) + (a.index ? a.index->dim : 0)) * static_cast<double>(rows_of(a, length));
    return kv_elements_per_layer(a) * static_cast<double>(kept_tokens(a.reach, length));
  });
  return Bytes(elements * element_bytes);
}

double row_bytes(const Attention& a, Dtype kv) {
  switch (a.kind) {
    case AttentionKind::gqa:
      break;
    case AttentionKind::mla:
      // FlashMLA's sparse kernels: the latent in FP8 with its scales, the rotary key in BF16.
      if (!a.index || !of_eight_bits(kv)) break;
      return a.kv_lora_rank + kScaleBytes * a.kv_lora_rank / kScaleBlock + 2.0 * a.rope_dim;
    case AttentionKind::compressed: {
      // FlashMLA's rows of DeepSeek-V4, 584 bytes: what is not turned in FP8 with a scale of a byte per 64
      // and a byte that pads these, the rotary part in BF16 (sgl-project/sglang
      // mem_cache/deepseek_v4_memory_pool.py, DeepSeekV4SingleKVPool.get_bytes_per_token@418025512e12;
      // vllm-project/vllm v1/kv_cache_interface.py, MLAAttentionSpec of model_version deepseek_v4, near
      // v0.24.0).
      if (!of_eight_bits(kv)) break;
      constexpr int kScaled = 64;
      const int plain = a.head_dim - a.rope_dim;
      return plain + plain / kScaled + 1 + 2.0 * a.rope_dim;
    }
    case AttentionKind::delta:
    case AttentionKind::mamba:
    case AttentionKind::none:
      return 0;
  }
  return row_elements(a) * bytes_per_element(kv);
}

double index_row_bytes(const Attention& a, Dtype kv) {
  if (!a.index || a.index->shared) return 0;
  const double dim = a.index->dim;
  switch (a.kind) {
    case AttentionKind::gqa:
      return dim * bytes_per_element(kv);
    case AttentionKind::mla:
    case AttentionKind::compressed:
      return dim + kScaleBytes * dim / kScaleBlock;  // FP8 whatever the cache is
    case AttentionKind::delta:
    case AttentionKind::mamba:
    case AttentionKind::none:
      break;
  }
  return 0;
}

Bytes cache_bytes(const Model& m, std::int64_t length, Dtype kv) {
  return Bytes(over_layers(m, [&](const Attention& a) { return kept_bytes(a, length, kv); }));
}

Bytes cache_bytes_per_token(const Model& m, Dtype kv) {
  return Bytes(over_layers(m, [&](const Attention& a) {
    const double both = row_bytes(a, kv) + index_row_bytes(a, kv);
    if (a.kind == AttentionKind::compressed)
      return a.compression->ratio > 0 ? both / a.compression->ratio : 0;
    return a.reach.local() ? 0 : both;
  }));
}

Bytes compressor_bytes(const Attention& a) {
  if (!a.compression || a.compression->ratio == 0) return Bytes(0);
  constexpr double kNumber = 4;
  const double parts = rows_of_token(a), width = a.head_dim + (a.index ? a.index->dim : 0);
  return Bytes(kNumber * parts * a.compression->ratio * 2 * parts *
               width);  // as many tokens; values and gates
}

Bytes state_bytes(const Attention& a) {
  if (a.delta) {
    const DeltaRule& d = *a.delta;
    const double channels = 2.0 * d.key_heads * d.key_dim + 1.0 * d.value_heads * d.value_dim;
    return Bytes(1.0 * d.value_heads * d.key_dim * d.value_dim * bytes_per_element(d.state) +
                 channels * (d.conv - 1) * kConvBytes);
  }
  if (a.mamba) {
    const Mamba& s = *a.mamba;
    const double inner = 1.0 * s.heads * s.head_dim;
    return Bytes(inner * s.state * bytes_per_element(s.state_type) +
                 (inner + 2.0 * s.groups * s.state) * (s.conv - 1) * kConvBytes);
  }
  return Bytes(0);
}

Bytes state_bytes(const Model& m) {
  return Bytes(over_layers(m, [](const Attention& a) { return state_bytes(a).value; }));
}

Bytes decode_read_bytes(const Model& m, std::int64_t length, Dtype kv) {
  return Bytes(over_layers(m, [&](const Attention& a) { return read_bytes(a, length, kv); })) +
         2.0 * state_bytes(m);
}

}  // namespace shardline
