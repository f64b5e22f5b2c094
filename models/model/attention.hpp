// Kinds of token mixers that layers have: attention over cached keys, recurrences over a state, or none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/ir/dtype.hpp"
#include "models/ir/reach.hpp"

namespace shardline {

/// Multi-head and multi-query attention are gqa with kv_heads equal to q_heads or 1. compressed:
/// DeepSeek-V4's CSA and HCA, one key that is the value too, rows of several tokens beside a window. delta:
/// linear attention by the delta rule (gated DeltaNet, Kimi Delta Attention). mamba: Mamba-2. none: a layer
/// that is a feed-forward network alone. The library asks for the kind in switches without a default, which
/// g++ refuses once a kind is added; what no plan can time is refused in one place (planner/plan/timed.hpp).
enum class AttentionKind : std::uint8_t { gqa, mla, compressed, delta, mamba, none };

/// Which keys a query sees, where an index chooses: the `top_k` of highest score. Scores are sums over
/// `heads` of products of a query and one key of width `dim` per row (DeepSeek-V3.2's lightning indexer), or
/// the largest in a block of rows (MiniMax-M3). gqa, mla and compressed only.
struct SparseIndex {
  int heads = 0;
  int dim = 0;           ///< of an index query and an index key; a row has one key
  int top_k = 0;         ///< blocks, where `block` is above 1, else rows: of compressed, compressed ones
  int block = 1;         ///< tokens that are chosen together; above 1: gqa only
  int init_blocks = 0;   ///< blocks at the beginning, and
  int local_blocks = 0;  ///< at the end, that are always among the chosen
  /// mla only: the choice of the nearest layer before that makes one is taken (IndexShare of GLM-5.2): no
  /// weights, no index keys.
  bool shared = false;

  /// Tokens (of compressed: rows) that one query sees at most.
  std::int64_t chosen() const { return std::int64_t{top_k} * block; }
  /// Of `keys` tokens up to and with its own those that a query attends to: of blocks, of which its own is
  /// among the chosen, the last one as far as it is there.
  std::int64_t chosen_of(std::int64_t keys) const {
    if (keys <= chosen()) return keys;
    return block > 1 && local_blocks > 0 ? std::int64_t{top_k - 1} * block + (keys - 1) % block + 1
                                         : chosen();
  }
  bool operator==(const SparseIndex&) const = default;
};

/// Of compressed attention. The window is the attention's reach. With an index (CSA) rows overlap: each is
/// made of 2 ratio tokens, so that its projections are twice as wide.
struct Compression {
  int ratio = 0;     ///< tokens per row; 0: the layer sees the window alone
  int o_groups = 0;  ///< groups of heads of the output projection
  int o_rank = 0;    ///< width that each group is narrowed to
  bool operator==(const Compression&) const = default;
};

/// A state of value_heads matrices of key_dim x value_dim per request, corrected at each token's key.
struct DeltaRule {
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int conv = 0;  ///< taps of the convolution over queries, keys and values
  /// Of each channel of a key (KDA: from a projection over value_dim, and one bias each), or of each head.
  bool channel_decay = false;
  Dtype state = Dtype::fp32;
  bool operator==(const DeltaRule&) const = default;
};

/// Mamba-2: heads of head_dim x state numbers per request.
struct Mamba {
  int heads = 0, head_dim = 0, state = 0;
  int groups = 0;  ///< of heads with input and output matrices of their own
  int conv = 0;    ///< taps of the convolution over inputs and both matrices
  bool conv_bias = true;
  bool bias = false;  ///< of both projections
  Dtype state_type = Dtype::fp32;
  bool operator==(const Mamba&) const = default;
};

/// What multiplies the heads' outputs before the output projection, made of the layer's input: nothing, a
/// number per head, one per channel (gqa: q_proj is twice as wide), or one per channel through a narrow
/// projection.
enum class OutputGate : std::uint8_t { none, head, full, narrow };

/// One kind of mixer that layers have. Fields of the other AttentionKinds are 0, or empty.
struct Attention {
  AttentionKind kind = AttentionKind::gqa;
  int q_heads = 0;   ///< gqa, mla, compressed
  int kv_heads = 0;  ///< 1 for mla and compressed: all heads share one latent vector, or key, per token
  int head_dim = 0;  ///< gqa, compressed; of a query and a key, and of a value where v_dim is 0

  int q_lora_rank = 0;   ///< mla, compressed; 0 also means that queries are not compressed (mla only)
  int kv_lora_rank = 0;  ///< mla only; width of the cached latent
  int rope_dim = 0;  ///< mla: width of the shared rotary key, cached beside the latent; compressed: its part
  int nope_dim = 0;  ///< mla only; part of each query head without rotary embedding
  int v_dim = 0;     ///< of a value; gqa: 0 where it is that of a key (MiMo-V2: keys 192, values 128)

  Reach reach = {};  ///< which tokens a query sees; gqa and compressed only, if not full
  /// gqa, compressed: a learned number per query head joins the softmax as one more score without a value.
  bool sinks = false;
  /// gqa only: one matrix makes keys and values (Gemma 4's attention_k_eq_v). Both are cached: they are
  /// normed and turned apart.
  bool k_eq_v = false;
  OutputGate gate = OutputGate::none;  ///< gqa, mla; delta: full or narrow

  std::optional<SparseIndex> index = {};        ///< gqa, mla, compressed
  std::optional<Compression> compression = {};  ///< compressed, always
  std::optional<DeltaRule> delta = {};          ///< delta, always
  std::optional<Mamba> mamba = {};              ///< mamba, always

  /// Whether a request has a state here whose size its length does not change, and no cache.
  bool recurrent() const { return delta.has_value() || mamba.has_value(); }
  bool none() const { return kind == AttentionKind::none; }
  /// Whether a token sees rows that an index chose, or that several tokens were compressed to.
  bool sparse() const { return index.has_value() || compression.has_value(); }
  bool operator==(const Attention&) const = default;
};

/// "full", "window 128", "chunk 8192".
std::string to_string(const Reach& reach);

/// What a kind is called: "GQA", "MLA", "sparse attention with an index (DSA)", "window 128", ...
std::string name_of(const Attention& attention);

/// Numbers of one head's key and of its value; of mla, expanded. 0 without keys.
inline int key_width(const Attention& a) {
  switch (a.kind) {
    case AttentionKind::gqa:
    case AttentionKind::compressed:
      break;
    case AttentionKind::mla:
      return a.nope_dim + a.rope_dim;
    case AttentionKind::delta:
    case AttentionKind::mamba:
    case AttentionKind::none:
      return 0;
  }
  return a.head_dim;
}
inline int value_width(const Attention& a) { return a.v_dim > 0 ? a.v_dim : a.head_dim; }

}  // namespace shardline
