// What a decoder-only transformer is made of, and the counts that follow from it. Equations [M1]-[M7]:
// README.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/model/checkpoint.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// Largest accepted value of each field, far above any published model. `check` refuses larger products.
namespace limits {
inline constexpr std::int64_t kLayers = 4096;
inline constexpr std::int64_t kWidth = 1 << 22;
inline constexpr std::int64_t kHeads = 1 << 14;
inline constexpr std::int64_t kExperts = 1 << 14;
inline constexpr std::int64_t kVocab = 1 << 26;
inline constexpr std::int64_t kContext = std::int64_t{1} << 40;
}  // namespace limits

/// Multi-head and multi-query attention are gqa with kv_heads equal to q_heads or 1.
enum class AttentionKind : std::uint8_t { gqa, mla };

/// Widths of one layer's attention. Fields of the other kind are 0.
struct Attention {
  AttentionKind kind = AttentionKind::gqa;
  int q_heads = 0;
  int kv_heads = 0;  ///< 1 for mla: all heads share one latent vector per token
  int head_dim = 0;  ///< gqa only

  int q_lora_rank = 0;   ///< mla only; 0 also means that queries are not compressed
  int kv_lora_rank = 0;  ///< mla only; width of the cached latent
  int rope_dim = 0;      ///< mla only; width of the shared rotary key, cached beside the latent
  int nope_dim = 0;      ///< mla only; part of each query head without rotary embedding
  int v_dim = 0;         ///< mla only

  bool operator==(const Attention&) const = default;
};

/// gated: gate, up and down matrices (SwiGLU); plain: up and down (Falcon's GELU).
enum class FfnKind : std::uint8_t { gated, plain };

/// rms: one weight per channel; layer: weight and bias.
enum class NormKind : std::uint8_t { rms, layer };

/// Biases of the attention projections: none, on query/key/value, or on the output projection too.
enum class AttentionBias : std::uint8_t { none, qkv, all };

/// A decoder-only transformer. Layers with a dense feed-forward network come first, layers with experts
/// follow.
struct Model {
  std::string name;
  std::string source;              ///< where the numbers come from
  std::vector<std::string> notes;  ///< what the real model has and this description leaves out

  int layers = 0;
  int hidden = 0;
  Attention attention;

  FfnKind ffn_kind = FfnKind::gated;
  int ffn_inner = 0;     ///< inner width of dense layers; 0 if there are none
  int dense_layers = 0;  ///< equals layers for a dense model

  int experts = 0;            ///< routed experts per layer; 0 for a dense model, as are the next four
  int experts_per_token = 0;  ///< routed experts that one token visits
  int shared_experts = 0;     ///< visited by every token; each has width expert_inner
  int expert_inner = 0;
  bool router_bias = false;  ///< one correction bias per routed expert (DeepSeek-V3)

  int vocab = 0;
  long long max_context = 0;            ///< tokens; what the published configuration allows
  bool tied_embeddings = false;         ///< one table serves as embedding and output head
  bool parallel_attention_ffn = false;  ///< both read one shared norm (Falcon-7B)
  bool qk_norm = false;                 ///< gqa only: RMSNorm of width head_dim on queries and keys (Qwen3)
  NormKind norm = NormKind::rms;
  AttentionBias attention_bias = AttentionBias::none;
  bool ffn_bias = false;

  std::optional<Checkpoint> checkpoint;  ///< types of its matrices, where it is from a published config.json

  bool operator==(const Model&) const = default;
};

/// A broken rule between fields: `field` is the path in our YAML ("moe.experts_per_token").
struct ModelFault {
  std::string field;
  std::string what;
};

/// Every rule between fields that the model breaks; empty for a valid model. Assumes fields in the ranges
/// that the loaders enforce.
std::vector<ModelFault> check(const Model& model);

inline bool has_experts(const Model& model) { return model.experts > 0; }
inline bool is_dense_layer(const Model& model, int layer) { return layer < model.dense_layers; }

/// [M1] Parameters of one layer's attention: projections, their biases, MLA norms and query/key norms.
double attention_parameters(const Model& model);

/// [M2] Parameters of one layer's feed-forward part: all routed and shared experts, the router and its bias,
/// or the dense network.
double ffn_parameters(const Model& model, int layer);

/// [M3] All stored parameters: both embedding tables (one if tied), all layers, all norms. Exact below 2^53;
/// `check` refuses models above 10^15.
double parameter_count(const Model& model);

/// [M3] Parameters that one token uses: as parameter_count with experts_per_token of the routed experts. Both
/// embedding tables count in full, as in published "activated" counts.
double active_parameters(const Model& model);

/// [M4] Elements of the KV cache that one token adds in one layer.
double kv_elements_per_layer(const Attention& attention);

/// [M4] KV cache that one token adds in all layers, at `element_bytes` per element: bytes_per_element() where
/// it is stored; a paper that does not count the scales of FP4 has 0.5.
Bytes kv_bytes_per_token(const Model& model, double element_bytes);

/// [M5] Weights that one token is multiplied with: projections, router, visited experts and output head; no
/// embedding lookup, norm or bias.
double active_matmul_weights(const Model& model);

/// [M6] Score and value operations of one query token over `context_tokens` keys in one layer. MLA is counted
/// as decode runs it, on the latent (absorbed).
Flops attention_flops(const Attention& attention, double context_tokens);

/// [M7] Operations of one decode step for one token: 2 [M5] + layers [M6].
Flops flops_per_token(const Model& model, double context_tokens);

}  // namespace shardline
