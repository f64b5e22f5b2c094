// Kinds of feed-forward networks that layers have: dense, of experts, or none.
#pragma once

#include <cstdint>

namespace shardline {

/// One kind of feed-forward network that layers have: dense, of experts, or none.
struct FeedForward {
  int inner = 0;              ///< inner width of the dense network, or of each expert
  int experts = 0;            ///< routed experts; 0: dense or none, and so are all fields below
  int experts_per_token = 0;  ///< routed experts that one token visits
  int shared_experts = 0;     ///< visited by every token; each has width `inner`, or
  int shared_inner = 0;       ///< this one, if it is no multiple of `inner` (else: more of them)
  bool router_bias = false;   ///< one bias per routed expert: of scores (DeepSeek-V3) or logits (gpt-oss)
  bool shared_gate = false;   ///< a number per token scales the shared experts (Qwen2-MoE, Qwen3-Next)
  int latent = 0;             ///< routed experts work on this many channels, 0: on all (latent MoE)
  bool latent_norm = false;   ///< RMSNorm of the latents before they are widened again (Kimi-K3)
  /// The experts of a token are looked up by its number; the router scales them alone (DeepSeek-V4).
  bool hashed = false;
  bool absent = false;  ///< a layer of a mixer alone: everything above is 0

  bool none() const { return absent; }
  bool dense() const { return experts == 0 && !absent; }
  bool routed() const { return experts > 0; }
  /// Inner width of all shared experts together.
  std::int64_t shared_width() const {
    return std::int64_t{shared_experts} * (shared_inner > 0 ? shared_inner : inner);
  }
  bool operator==(const FeedForward&) const = default;
};

/// `width` of `count` shared experts in its one form: where it is a multiple of `inner`, as so many of them.
inline void set_shared(FeedForward& f, int count, std::int64_t width) {
  const bool multiple = f.inner > 0 && width % f.inner == 0;
  f.shared_experts = multiple ? static_cast<int>(count * (width / f.inner)) : count;
  f.shared_inner = multiple || count == 0 ? 0 : static_cast<int>(width);
}

/// `count` layers in a row of one attention and one feed-forward kind: indices into Model::attentions and
/// Model::ffns.
struct LayerRun {
  int attention = 0, ffn = 0, count = 0;
  bool operator==(const LayerRun&) const = default;
};

/// gated: gate, up and down matrices (SwiGLU); plain: up and down (Falcon's GELU).
enum class FfnKind : std::uint8_t { gated, plain };

}  // namespace shardline
