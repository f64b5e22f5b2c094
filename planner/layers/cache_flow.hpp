// The data flow of attention over caches that several ranks share by sequence: what its ops read, send and
// merge on each rank of a stage, for the decoding requests of a step or for its prefills. Uneven heads and
// shards follow the rules that costs charge for the fullest rank.
#pragma once

#include <utility>

#include "planner/layers/places.hpp"

namespace shardline {

/// Whose keys an attention is over: cached and new ones, as the sharers hold them; cached ones alone, as they
/// hold them; the same, of all sharers on each rank; or new ones alone, whole on every rank.
enum class Keys : unsigned char { all, cached, gathered, fresh };

/// Every method describes the op that was added last; none does anything unless the schedule has a flow.
/// Requests are those of one attention group, in the order of the batch.
class CacheFlow {
 public:
  /// `lse_bytes` of one head's log-sum-exp in a message.
  CacheFlow(ScheduleBuilder& builder, const Case& c, const Attention& a, const Plan& p,
            const CacheShare& share, double lse_bytes, Asked asked, Keys keys = Keys::all,
            TokenView rows_of_requests = {});

  /// Each rank has latents of some tokens, `members` consecutive ranks those of all (Keys::gathered).
  void gather_latents(int members, int block);
  /// MLA, prefills: keys and values of this rank's heads from the latents that it holds.
  void expand();
  /// The queries that each member of the sharers has projected reach all others. Only where a rank attends
  /// with more heads than it projects.
  void gather_queries();
  /// [P27] Scores of the index for all rows over the keys of this rank, or over the blocks that they lie in,
  /// for each of the rank's KV heads; the `kept` best of them; those of all sharers, and the best among them.
  /// bind_choice: the choice is that of an earlier layer's attention to the same queries.
  void score();
  void choose(int kept);
  void gather_candidates();
  void choose_among(int kept);
  void bind_choice();
  /// Compressed attention: the window's partial outputs and those of rows, which attend() gives, as one.
  void merge_rows(int first, int count);
  /// Attention of requests [first, first + count) of every attention group over the caches, new tokens in
  /// them.
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
  /// The partial outputs of this attention, or what they were merged to, and of another one of the same
  /// queries and heads: merged to one result.
  void join(const CacheFlow& other);
  /// The result is the output of the step.
  void finish();

 private:
  struct One {
    int request = 0;                    // of attention group 0
    std::int64_t first = 0, end = 0;    // positions of its queries
    std::int64_t seen = 0;              // first position that one of them sees
    std::int64_t row = 0;               // of its first query among those of a rank
    std::vector<std::int64_t> key_row;  // of its first key, per KV shard
  };
  bool on() const { return b_.flow() != nullptr; }
  template <class F>
  void for_each_rank(F f) const;  // f(rank, attention group, KV shard, TP rank)
  int shards() const { return share_.sharers.size; }
  int rank(int dp, int shard, int tp) const { return sharer_rank(share_, p_, dp, shard, tp); }
  // Heads [first, second) of a rank's own that KV shard k merges.
  std::pair<int, int> slice(int k) const;
  std::int64_t row(int request) const;  // of the first query of a request, or behind those of all
  std::int64_t all_rows() const { return row(static_cast<int>(requests_.size())); }
  void list_requests();
  std::int64_t keys_of(const Segment& segment, int k) const;
  void bind();
  // The new tokens of requests [first, first + count) of attention group d, and what KV shard k holds of
  // them.
  Tokens queries(int d, int first, int count) const;
  Tokens keys(int d, int k, int first, int count) const;
  SlotId row_slot(const char* name, std::int64_t columns);
  // Rows of compressed attention, of an index or those that are attended to: what there was, what new ones
  // are made of, and all.
  struct RowSlots {
    SlotId old = 0, values = 0, gates = 0, bias = 0, rows = 0;
    std::int64_t width = 0;
  };
  bool has_rows() const { return a_.compression && a_.compression->ratio > 0; }
  Tokens row_numbers(int d, int k, int first, int count) const;
  std::pair<std::int64_t, std::int64_t> made_of(const One& one, int k) const;
  RowSlots bind_rows(bool of_index);
  void make_rows(const RowSlots& slots, int first, int count);
  void score_rows();
  void attend_rows(int first, int count);
  bool in_blocks() const { return a_.index->block > 1; }
  // Choices of a row: one, or of blocks one for each KV head of the rank.
  int choices() const;
  // keys() as numbers of the blocks that they lie in, of which each lies on one rank.
  Tokens blocks(int d, int k) const;
  void score_blocks();
  void keep_choice();
  SlotId slot(const char* name, int width_per_head, double bytes, bool sliced);
  // A softmax has its sinks once: where the keys of new tokens are, on one of the ranks that share them.
  bool adds_sinks(int shard) const {
    return local_.sinks && shard == 0 && (keys_ == Keys::all || keys_ == Keys::fresh);
  }
  // First of the heads in the columns of lse_ that rank k of the sharers has a result of.
  int first_lse(int k) const { return lse_of_all_ ? slice(k).first : 0; }

  ScheduleBuilder& b_;
  const Case& c_;
  const Attention& a_;
  const Plan& p_;
  const CacheShare share_;
  const double lse_bytes_;
  const Asked asked_;
  const Keys keys_;
  const TokenView own_rows_;  // of each request, where they are not those of the whole step
  const LocalHeads local_;
  int heads_, up_ = 0;
  int members_ = 1, block_ = 1;  // of gathered keys: rank m of them holds blocks m, m + members, ...
  bool sliced_ = false;          // each shard has its slice of the heads
  bool lse_of_all_ = false;      // though lse_ has all of them
  std::int64_t kv_width_ = 0;
  std::vector<One> requests_;
  std::vector<std::int64_t> key_rows_;  // of all requests, per KV shard
  SlotId q_ = 0, projected_ = 0, kv_ = 0, held_ = 0, out_ = 0, lse_ = 0, result_ = 0, weight_ = 0;
  SlotId all_lse_ = 0, corrected_ = 0, sinks_ = 0;
  SlotId scores_ = 0, best_ = 0, chosen_ = 0;
  RowSlots made_;
  SlotId rows_out_ = 0, rows_lse_ = 0, window_out_ = 0, window_lse_ = 0;
  int kept_ = 0;                         // columns of chosen_
  int width_ = 0;                        // of a head in result_
  std::vector<SlotId> from_, from_lse_;  // partial outputs received, by KV shard of the sender
};

template <class F>
void CacheFlow::for_each_rank(F f) const {
  for (int d = 0; d < p_.dp; ++d) {
    for (int k = 0; k < shards(); ++k) {
      for (int t = 0; t < share_lanes(share_, p_); ++t) f(rank(d, k, t), d, k, t);
    }
  }
}

}  // namespace shardline
