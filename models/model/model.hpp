// What a decoder-only transformer is made of, and the counts that follow from it. Equations [M1]-[M7]:
// README.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/model/attention.hpp"
#include "models/model/checkpoint.hpp"
#include "models/model/feed_forward.hpp"
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
inline constexpr std::int64_t kContext = std::int64_t{1} << 30;
}  // namespace limits

/// rms: one weight per channel; layer: weight and bias.
enum class NormKind : std::uint8_t { rms, layer };

/// Biases of the attention projections: none, on query/key/value, or on the output projection too.
enum class AttentionBias : std::uint8_t { none, qkv, all };

/// How the output of a layer joins what goes on: added (one stream); mixed into `streams` of them by matrices
/// made of the streams (DeepSeek-V4's mHC: 4); or with earlier layers' sums, kept once per `block` layers and
/// weighted anew before every attention and feed-forward network (Kimi-K3's attention residuals: 12).
struct Residual {
  int streams = 1;
  int block = 0;
  bool plain() const { return streams == 1 && block == 0; }
  bool operator==(const Residual&) const = default;
};

/// Multi-token prediction: `count` modules behind the last layer, each a layer of its own kinds after a
/// projection of the hidden state and the next token's embedding. Counted apart: no step without drafts runs
/// them.
struct DraftModules {
  int count = 0;
  Attention attention;
  FeedForward ffn;
  /// Passes behind the first attend to the tokens that the first has chosen, and neither score nor project
  /// index queries and keys (GLM-5.2: index_share_for_mtp_iteration). Needs an index of its own.
  bool one_choice = false;
  bool operator==(const DraftModules&) const = default;
};

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
  bool qk_norm_whole = false;           ///< with qk_norm: of the width of all heads together (MiniMax-M2)
  bool sandwich_norms = false;          ///< norms after attention and feed-forward network, too (Gemma 3)
  NormKind norm = NormKind::rms;
  AttentionBias attention_bias = AttentionBias::none;
  bool ffn_bias = false;
  Residual residual = {};

  std::optional<DraftModules> drafts = {};
  std::int64_t vision_parameters = 0;  ///< of a tower beside the language model and what joins them

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
/// Lists the attention of modules that draft as one more kind, behind those of the layers, where these have
/// compressed attention and none like it: DeepSeek-V4-Pro's module sees a window alone.
void list_draft_kind(Model& model);
/// Whether attention kind `i` is of modules that draft and of no layer.
bool of_drafts_alone(const Model& model, int i);

/// Whether some layers have experts, and whether some have a dense network.
inline bool has_experts(const Model& m) {
  return std::any_of(m.ffns.begin(), m.ffns.end(), [](const FeedForward& f) { return f.routed(); });
}
inline bool has_dense(const Model& m) {
  return std::any_of(m.ffns.begin(), m.ffns.end(), [](const FeedForward& f) { return f.dense(); });
}
/// Whether some layer's attention sees less than all tokens, or has sinks.
inline bool has_local_attention(const Model& m) {
  return std::any_of(m.attentions.begin(), m.attentions.end(),
                     [](const Attention& a) { return a.reach.local() || a.sinks; });
}
/// Whether some layer lacks its attention, or its feed-forward network.
inline bool has_partial_layers(const Model& m) {
  return std::any_of(m.attentions.begin(), m.attentions.end(), [](const Attention& a) { return a.none(); }) ||
         std::any_of(m.ffns.begin(), m.ffns.end(), [](const FeedForward& f) { return f.none(); });
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
/// Whether some layer keeps a state in place of a cache.
inline bool has_recurrence(const Model& m) {
  return std::any_of(m.attentions.begin(), m.attentions.end(),
                     [](const Attention& a) { return a.recurrent(); });
}
/// Of the first layer that has one with a cache; of models without any, of the first layer.
const Attention& first_attention(const Model& model);
/// The attention, or the feed-forward network, of all layers; null where they have several kinds.
const Attention* one_attention(const Model& model);
const FeedForward* one_ffn(const Model& model);

/// [M1] Parameters of one layer's attention: projections, their biases, sinks, MLA norms and query/key norms.
double attention_parameters(const Model& model, const Attention& attention);

/// [M1] Those of its matrices, which every token multiplies: no biases, norms, sinks, decays or convolutions.
double attention_matrices(const Model& model, const Attention& attention);

/// [M2] Parameters of one layer's feed-forward part: all routed and shared experts, the router and its bias,
/// or the dense network.
double ffn_parameters(const Model& model, const FeedForward& ffn);

/// [M3] All stored parameters: both embedding tables (one if tied), all layers, all norms. Exact below 2^53;
/// `check` refuses models above 10^15.
double parameter_count(const Model& model);

/// [M3] Of the multi-token-prediction modules, which parameter_count leaves out; embedding and head are the
/// model's own.
double draft_parameters(const Model& model);

/// [M3] Everything that is published under the model's name: parameter_count, drafts and vision.
double all_parameters(const Model& model);

/// [M3] Parameters that one token uses: as parameter_count with experts_per_token of the routed experts. Both
/// embedding tables count in full, as in published "activated" counts.
double active_parameters(const Model& model);

/// [M4] Elements of the KV cache that one token adds in one layer, an index's keys among them: of compressed
/// attention its share of a row; 0 where the state does not grow.
double kv_elements_per_layer(const Attention& attention);

/// [M4] KV cache that one token adds in all layers, whatever of it is dropped later, at `element_bytes` per
/// element: bytes_per_element() where it is stored; a paper that does not count the scales of FP4 has 0.5.
Bytes kv_bytes_per_token(const Model& model, double element_bytes);

/// [M4] Tokens whose keys and values a layer has to keep when `length` are cached: those of the window, or of
/// the fullest chunk so far.
std::int64_t kept_tokens(const Reach& reach, std::int64_t length);

/// [M4] KV cache of one request of `length` tokens in all layers, without what sparse kinds add in their own
/// layout (cache_bytes).
Bytes kv_bytes(const Model& model, std::int64_t length, double element_bytes);

/// [M5] Weights that one token is multiplied with: projections, router, visited experts and output head; no
/// embedding lookup, norm or bias.
double active_matmul_weights(const Model& model);

/// [M6] Score and value operations of one query token over `context_tokens` keys that it sees in one layer.
/// MLA is counted as decode runs it, on the latent (absorbed).
Flops attention_flops(const Attention& attention, double context_tokens);

/// [M15] Operations of one query token's mixer in one layer behind `context_tokens` tokens, itself among
/// them: what its reach, its compression and its index leave of them ([M6] each), the index's own scores, or
/// the state's update.
Flops mixer_flops(const Attention& attention, double context_tokens);

/// [M7] Operations of one decode step for one token: 2 [M5] + [M15] of every layer over `context_tokens`, the
/// token's own among them.
Flops flops_per_token(const Model& model, double context_tokens);

}  // namespace shardline
