// What a decoder-only transformer is made of, and the counts that follow from it. Equations [M1]-[M7]:
// README.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/ir/reach.hpp"
#include "models/model/checkpoint.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// Largest accepted value of each field, far above any published model. `check` refuses larger products.
namespace limits {
inline constexpr std::int64_t kLayers = 4096;
inline constexpr std::int64_t kWidth = 1 << 22;
inline constexpr std::int64_t kHeads = 1 << 14;
inline constexpr std::int64_t kExperts = 1 << 14;  // routed, and shared
inline constexpr std::int64_t kKinds = 64;         // of attention, and of feed-forward networks
inline constexpr std::int64_t kVocab = 1 << 26;
inline constexpr std::int64_t kContext = std::int64_t{1} << 40;
}  // namespace limits

/// Multi-head and multi-query attention are gqa with kv_heads equal to q_heads or 1. The library asks for the
/// kind in switches without a default, which g++ refuses once a kind is added. What goes by has_latents()
/// (planner/plan/case.hpp) is to be looked through then: it tells latents from all others.
enum class AttentionKind : std::uint8_t { gqa, mla };

/// One kind of attention that layers have. Fields of the other AttentionKind are 0.
struct Attention {
  AttentionKind kind = AttentionKind::gqa;
  int q_heads = 0;
  int kv_heads = 0;  ///< 1 for mla: all heads share one latent vector per token
  int head_dim = 0;  ///< gqa only; of a query and a key, and of a value where v_dim is 0

  int q_lora_rank = 0;   ///< mla only; 0 also means that queries are not compressed
  int kv_lora_rank = 0;  ///< mla only; width of the cached latent
  int rope_dim = 0;      ///< mla only; width of the shared rotary key, cached beside the latent
  int nope_dim = 0;      ///< mla only; part of each query head without rotary embedding
  int v_dim = 0;         ///< of a value; gqa: 0 where it is that of a key (MiMo-V2: keys 192, values 128)

  Reach reach = {};  ///< which tokens a query sees; gqa only, if not full
  /// gqa only: a learned number per query head joins the softmax as one more score without a value.
  bool sinks = false;

  bool operator==(const Attention&) const = default;
};

/// "full", "window 128", "chunk 8192".
std::string to_string(const Reach& reach);

/// Numbers of one head's key and of its value; of mla, expanded.
inline int key_width(const Attention& a) {
  switch (a.kind) {
    case AttentionKind::gqa:
      break;
    case AttentionKind::mla:
      return a.nope_dim + a.rope_dim;
  }
  return a.head_dim;
}
inline int value_width(const Attention& a) { return a.v_dim > 0 ? a.v_dim : a.head_dim; }

/// One kind of feed-forward network that layers have: dense, or of experts.
struct FeedForward {
  int inner = 0;              ///< inner width of the dense network, or of each expert
  int experts = 0;            ///< routed experts; 0: dense, and so are the next three
  int experts_per_token = 0;  ///< routed experts that one token visits
  int shared_experts = 0;     ///< visited by every token; each has width `inner`
  bool router_bias = false;   ///< one bias per routed expert: of scores (DeepSeek-V3) or logits (gpt-oss)

  bool dense() const { return experts == 0; }
  bool operator==(const FeedForward&) const = default;
};

/// `count` layers in a row of one attention and one feed-forward kind: indices into Model::attentions and
/// Model::ffns.
struct LayerRun {
  int attention = 0, ffn = 0, count = 0;
  bool operator==(const LayerRun&) const = default;
};

/// gated: gate, up and down matrices (SwiGLU); plain: up and down (Falcon's GELU).
enum class FfnKind : std::uint8_t { gated, plain };

/// rms: one weight per channel; layer: weight and bias.
enum class NormKind : std::uint8_t { rms, layer };

/// Biases of the attention projections: none, on query/key/value, or on the output projection too.
enum class AttentionBias : std::uint8_t { none, qkv, all };

/// A decoder-only transformer: runs of layers, each of one kind of attention and of feed-forward network.
struct Model {
  std::string name;
  std::string source;              ///< where the numbers come from
  std::string architecture;        ///< of its config.json ("LlamaForCausalLM"); empty: not known
  std::vector<std::string> notes;  ///< what the real model has and this description leaves out

  int hidden = 0;
  std::vector<Attention> attentions;  ///< kinds, each different from the others and in some run
  std::vector<FeedForward> ffns;      ///< the same of feed-forward networks
  std::vector<LayerRun> runs;         ///< all layers, in order

  FfnKind ffn_kind = FfnKind::gated;  ///< of all feed-forward networks
  int vocab = 0;
  long long max_context = 0;            ///< tokens; what the published configuration allows
  bool tied_embeddings = false;         ///< one table serves as embedding and output head
  bool parallel_attention_ffn = false;  ///< both read one shared norm (Falcon-7B)
  bool qk_norm = false;                 ///< gqa only: RMSNorm of width head_dim on queries and keys (Qwen3)
  bool sandwich_norms = false;          ///< norms after attention and feed-forward network, too (Gemma 3)
  NormKind norm = NormKind::rms;
  AttentionBias attention_bias = AttentionBias::none;
  bool ffn_bias = false;

  std::optional<Checkpoint> checkpoint;  ///< types of its matrices, where it is from a published config.json

  int layers() const {
    int sum = 0;
    for (const LayerRun& run : runs) sum += run.count;
    return sum;
  }
  bool operator==(const Model&) const = default;
};

/// A broken rule between fields: `field` is the path in Model ("ffns[1].experts_per_token"), or "layers" for
/// what concerns all of them.
struct ModelFault {
  std::string field;
  std::string what;
};

/// Every rule between fields that the model breaks; empty for a valid model. Assumes fields in the ranges
/// that the loaders enforce.
std::vector<ModelFault> check(const Model& model);

/// Sets attentions, ffns and runs from one entry of each per layer, in order. Equal entries are one kind;
/// kinds are numbered as they first appear, so that equal layers give equal models.
void set_layers(Model& model, std::span<const Attention> attentions, std::span<const FeedForward> ffns);

/// Whether some layers have experts, and whether some have none.
inline bool has_experts(const Model& m) {
  return std::any_of(m.ffns.begin(), m.ffns.end(), [](const FeedForward& f) { return !f.dense(); });
}
inline bool has_dense(const Model& m) {
  return std::any_of(m.ffns.begin(), m.ffns.end(), [](const FeedForward& f) { return f.dense(); });
}
/// Whether some layer's attention sees less than all tokens, or has sinks.
inline bool has_local_attention(const Model& m) {
  return std::any_of(m.attentions.begin(), m.attentions.end(),
                     [](const Attention& a) { return a.reach.local() || a.sinks; });
}
/// Layers with attention kind `i`, and with feed-forward kind `i`.
int layers_of_attention(const Model& model, int i);
int layers_of_ffn(const Model& model, int i);
/// Layers with a dense feed-forward network.
int dense_layers(const Model& model);
/// Fewest query and KV heads of any attention; fewest routed experts of a layer that has some (0: none has),
/// their least inner width, and that of the dense networks (0: none).
int least_q_heads(const Model& model);
int least_kv_heads(const Model& model);
int least_experts(const Model& model);
int least_expert_inner(const Model& model);
int least_dense_inner(const Model& model);
/// The attention, or the feed-forward network, of all layers; null where they have several kinds.
const Attention* one_attention(const Model& model);
const FeedForward* one_ffn(const Model& model);

/// [M1] Parameters of one layer's attention: projections, their biases, sinks, MLA norms and query/key norms.
double attention_parameters(const Model& model, const Attention& attention);

/// [M2] Parameters of one layer's feed-forward part: all routed and shared experts, the router and its bias,
/// or the dense network.
double ffn_parameters(const Model& model, const FeedForward& ffn);

/// [M3] All stored parameters: both embedding tables (one if tied), all layers, all norms. Exact below 2^53;
/// `check` refuses models above 10^15.
double parameter_count(const Model& model);

/// [M3] Parameters that one token uses: as parameter_count with experts_per_token of the routed experts. Both
/// embedding tables count in full, as in published "activated" counts.
double active_parameters(const Model& model);

/// [M4] Elements of the KV cache that one token adds in one layer.
double kv_elements_per_layer(const Attention& attention);

/// [M4] KV cache that one token adds in all layers, whatever of it is dropped later, at `element_bytes` per
/// element: bytes_per_element() where it is stored; a paper that does not count the scales of FP4 has 0.5.
Bytes kv_bytes_per_token(const Model& model, double element_bytes);

/// [M4] Tokens whose keys and values a layer has to keep when `length` are cached: those of the window, or of
/// the fullest chunk so far.
std::int64_t kept_tokens(const Reach& reach, std::int64_t length);

/// [M4] KV cache of one request of `length` tokens in all layers.
Bytes kv_bytes(const Model& model, std::int64_t length, double element_bytes);

/// [M5] Weights that one token is multiplied with: projections, router, visited experts and output head; no
/// embedding lookup, norm or bias.
double active_matmul_weights(const Model& model);

/// [M6] Score and value operations of one query token over `context_tokens` keys that it sees in one layer.
/// MLA is counted as decode runs it, on the latent (absorbed).
Flops attention_flops(const Attention& attention, double context_tokens);

/// [M7] Operations of one decode step for one token: 2 [M5] + [M6] of every layer, over the keys that its
/// reach leaves of `context_tokens`, the token's own among them.
Flops flops_per_token(const Model& model, double context_tokens);

}  // namespace shardline
