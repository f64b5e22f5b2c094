// The data flow of a decode step's attention: what the ops that add_attention() emits read, send and merge on
// each rank of a stage. Uneven heads and shards follow the rules that costs charge for the fullest rank.
#pragma once

#include "planner/layers/decode_layer.hpp"

namespace shardline {

/// Every method describes the op that was added last; none does anything unless the schedule has a flow.
class DecodeFlow {
 public:
  /// `lse_bytes` of one head's log-sum-exp in a message.
  DecodeFlow(ScheduleBuilder& builder, const Case& c, const Plan& p, const DecodeShare& share,
             double lse_bytes);

  /// The queries that each member of the sharers has projected reach all others. Only where a rank attends
  /// with more heads than it projects.
  void gather_queries();
  /// Attention of requests [first, first + count) of every attention group.
  void attend(int first, int count);
  /// W_UV on the rank's own partial outputs, before they are exchanged.
  void value_up_before(int first, int count);
  /// all_to_all: each KV shard receives its slice of the heads from all others. all_gather: all heads.
  void exchange(OpKind kind, int first, int count);
  void merge();
  /// The other way to a slice of merged heads: every shard has the log-sum-exps of all; weighs its own
  /// partial outputs by them; and the weighed outputs of a slice are added up where it belongs.
  void gather_lse();
  void correct();
  void reduce_scatter();
  /// W_UV on the merged slice of the heads.
  void value_up_after();
  /// The result is the output of the step.
  void finish();

 private:
  bool on() const { return b_.flow() != nullptr; }
  template <class F>
  void for_each_rank(F f) const;  // f(rank, attention group, KV shard, TP rank)
  int shards() const { return share_.sharers.size; }
  int rank(int dp, int shard, int tp) const {
    const Group& g = share_.sharers;
    return dp * p_.group() + (tp / g.stride * g.size + shard) * g.stride + tp % g.stride;
  }
  // Heads [first, second) of a rank's own that KV shard k merges.
  std::pair<int, int> slice(int k) const;
  // The new tokens of requests [first, first + count) of attention group d, and what KV shard k holds of
  // them.
  Tokens queries(int d, int first, int count) const;
  Tokens keys(int d, int k, int first, int count) const;
  SlotId slot(const char* name, int width_per_head, double bytes, bool sliced);

  ScheduleBuilder& b_;
  const Case& c_;
  const Plan& p_;
  const DecodeShare share_;
  const double lse_bytes_;
  CacheRows cache_ = CacheRows::heads;
  int heads_, kv_heads_, qk_, v_, up_ = 0;
  bool sliced_ = false;  // each shard has its slice of the heads
  std::int64_t kv_width_ = 0;
  std::vector<Tokens> shards_;         // per KV shard, of one request
  std::vector<std::int64_t> kv_rows_;  // their lengths
  SlotId q_ = 0, projected_ = 0, kv_ = 0, out_ = 0, lse_ = 0, result_ = 0, weight_ = 0;
  SlotId all_lse_ = 0, corrected_ = 0;
  int width_ = 0;                        // of a head in result_
  std::vector<SlotId> from_, from_lse_;  // partial outputs received, by KV shard of the sender
};

}  // namespace shardline
