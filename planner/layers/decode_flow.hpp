// The data flow of a decode step's attention: what the ops that add_attention() emits read, send and merge on
// each rank of a stage. Uneven heads and shards follow the rules that costs charge for the fullest rank.
#pragma once

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Every method describes the op that was added last; none does anything unless the schedule has a flow.
class DecodeFlow {
 public:
  DecodeFlow(ScheduleBuilder& builder, const Case& c, const Plan& p, int q_heads);

  /// Attention of requests [first, first + count) of every attention group.
  void attend(int first, int count);
  /// W_UV on the rank's own partial outputs, before they are exchanged.
  void value_up_before(int first, int count);
  /// all_to_all: each KV shard receives its slice of the heads from all others. all_gather: all heads.
  void exchange(OpKind kind, int first, int count);
  void merge();
  /// W_UV on the merged slice of the heads.
  void value_up_after();
  /// The result is the output of the step.
  void finish();

 private:
  bool on() const { return b_.flow() != nullptr; }
  template <class F>
  void for_each_rank(F f) const;  // f(rank, attention group, KV shard, TP rank)
  int rank(int dp, int kvp, int tp) const { return (dp * p_.kvp + kvp) * p_.tpa + tp; }
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
  int heads_, kv_heads_, qk_, v_, up_ = 0;
  bool sliced_ = false;  // after an all_to_all
  std::int64_t kv_width_ = 0;
  std::vector<Tokens> shards_;         // per KV shard, of one request
  std::vector<std::int64_t> kv_rows_;  // their lengths
  SlotId q_ = 0, kv_ = 0, out_ = 0, lse_ = 0, result_ = 0, weight_ = 0;
  int width_ = 0;                        // of a head in result_
  std::vector<SlotId> from_, from_lse_;  // partial outputs received, by KV shard of the sender
};

}  // namespace shardline
