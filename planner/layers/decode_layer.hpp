// The pieces of one decode layer that the strategies share: shapes per rank, and ops in order. A strategy
// decides who exchanges what with whom; the arithmetic of a layer stands here once.
#pragma once

#include <array>

#include "models/ir/schedule.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Whether the cache of the case's model holds MLA's latents.
inline bool has_latents(const Case& c) { return c.model.attention.kind == AttentionKind::mla; }

/// Elements held by one rank.
struct LayerWeights {
  double attention = 0;
  double dense_ffn = 0;
  double expert_ffn = 0;  // experts and shared experts
  double router = 0;
};

/// Where MLA's value up-projection W_UV runs relative to the exchange of partial outputs: before it (every
/// sharer of a cache holds the W_UV of all heads that it attends with and sends v_dim values per head) or
/// after it (a sharer holds that of the heads that it merges, and kv_lora values per head are sent).
enum class ValueUp : unsigned char { before, after };

/// What one rank does of a decode step's attention.
struct DecodeShare {
  int projected = 0, attended = 0;  // query heads that it projects, and that it attends with
  Group sharers;                    // ranks that hold one cache, some of its tokens each
  int block = 1;                    // token t lies on member t / block mod sharers.size
  ValueUp value_up = ValueUp::before;
};
/// Of the plan's strategy.
DecodeShare decode_share(const Case& c, const Plan& plan);
/// Of a strategy that says nothing else: its heads under TPA, over its KVP shard.
DecodeShare kvp_share(const Case& c, const Plan& plan);
/// [P1] Tokens of one request on the rank with most of them.
long long kv_tokens_on_fullest(const Case& c, const Plan& plan);
/// Attention of `requests` requests with a rank's heads over the tokens of the fullest rank.
AttendDecodeShape decode_attend_shape(const Case& c, const Plan& plan, Count requests);

/// Query heads of one rank: ceil(Q / TPA).
int local_q_heads(const Case& c, const Plan& plan);
/// KV heads of one rank: ceil(K / TPA).
int local_kv_heads(const Case& c, const Plan& plan);
/// Cached elements per token, layer and rank: 2*ceil(K/TPA)*h, or kv_lora + rope for MLA whatever TPA is.
Count kv_elements_per_token(const Case& c, const Plan& plan);
LayerWeights layer_weights(const Case& c, const Plan& plan);
Bytes activation_bytes(const Case& c, const Plan& plan);  // [P4]
Bytes buffer_bytes(const Case& c, const Plan& plan);      // [P5]

/// Bytes of one query head's partial output and log-sum-exp (two float32, as TensorRT-LLM sends them).
double partial_output_bytes(const Case& c, const Plan& plan);

/// Ranks that share the output projection, and the all-reduces after attention and FFN.
int out_proj_ranks(const Plan& plan);
int dense_ffn_ranks(const Plan& plan);

/// Query, key and value projections, rotary embedding, KV append; repeated on every KV shard.
void add_qkv(ScheduleBuilder& b, const Case& c, const Plan& plan);

/// The attention of the plan's strategy; without one of its own that over KVP ranks, in one chunk.
void add_attention(ScheduleBuilder& b, const Case& c, const Plan& plan);
/// Attention over this rank's KV shard with the exchange (all-to-all or all-gather) of partial outputs over
/// the KVP ranks. Of several chunks of requests, the exchange of one overlaps the attention of the next
/// (HOP-B, 2507.07120 section 2.1.3).
void add_kvp_attention(ScheduleBuilder& b, const Case& c, const Plan& plan, OpKind exchange, int chunks);

/// Output projection over out_proj_ranks() and the all-reduce.
void add_out_proj(ScheduleBuilder& b, const Case& c, const Plan& plan);

void add_dense_ffn(ScheduleBuilder& b, const Case& c, const Plan& plan);
void add_expert_ffn(ScheduleBuilder& b, const Case& c, const Plan& plan);

/// A decode step is made of these, each a block of the schedule, in this order. receive: a later stage
/// gathers the slices of the activations that its ranks were handed.
enum class DecodeBlock : std::uint8_t { attention, dense_ffn, expert_ffn, head, receive, hand_off };
inline constexpr std::size_t kDecodeBlocks = 6;

/// Those that a plan has.
class DecodeBlocks {
 public:
  void add(DecodeBlock b) { blocks_[size_++] = b; }
  const DecodeBlock* begin() const { return blocks_.data(); }
  const DecodeBlock* end() const { return blocks_.data() + size_; }

 private:
  std::array<DecodeBlock, kDecodeBlocks> blocks_{};
  std::size_t size_ = 0;
};
DecodeBlocks decode_blocks(const Case& c, const Plan& plan);

/// All of the plan that the block depends on: equal views have equal blocks, since build_decode() lowers
/// views. Under context parallelism the plan itself.
Plan decode_view(const Plan& plan, DecodeBlock block);
void add_decode_block(ScheduleBuilder& b, const Case& c, const Plan& view, DecodeBlock block);

/// All stages of a decode step: layers (attention with an exchange between KV shards, then the FFN), LM head
/// on the last stage, hand-off between stages.
void build_decode(Schedule& schedule, const Case& c, const Plan& plan);

}  // namespace shardline
