// Shards of tokens become shards of heads, and back: the all-to-alls of DeepSpeed-Ulysses (arXiv 2309.14509)
// around whatever attention stands between them. planner/README.md [C8].
#pragma once

#include "planner/layers/context_step.hpp"

namespace shardline {

/// Heads of a rank among `ranks` that share those of a TP rank. Where there are fewer KV heads than ranks, a
/// KV head goes to several of them.
LocalHeads split_heads(const LocalHeads& heads, int ranks);

/// First of the KV heads of context-parallel rank k, among those `heads` of its TP rank.
int first_split_kv(const LocalHeads& heads, int ranks, int k);

/// Two exchanges within groups of `size` consecutive context-parallel ranks. Between them every rank attends,
/// by `inner`, with its heads over the tokens of its group; the ranks of equal heads are a ring of cp / size.
/// The cache is kept as `inner` has it, so cached tokens are not sent. Queries, keys and values travel in one
/// message, heads by heads: under MLA expanded, since latents have no heads to split.
class HeadExchange {
 public:
  /// `step` outlives it. `size` divides cp and the query heads, and the KV heads or they it.
  HeadExchange(ContextStep& step, int size);

  /// From `step`'s q and kv to `inner`'s. The next op comes after it.
  void to_heads();
  /// From `inner`'s out to `step`'s, after the previous op.
  void to_tokens();

  ContextStep inner;

 private:
  struct GroupRows {
    std::int64_t query = 0, key = 0;
  };
  /// First row of each request's new tokens of rank k, in the slots of `inner`.
  std::vector<GroupRows> rows_in_group(int k) const;
  int first_kv(int k) const { return first_split_kv(step_.heads, size_, k); }
  void bind_cached(OpIndex op);
  void send(OpIndex op, int k);

  ContextStep& step_;
  int size_;
};

/// [P5] Twice the queries, keys, values and outputs of a rank's new tokens: on both sides of an exchange.
Bytes head_exchange_buffers(const Case& c, const Attention& a, const Plan& p);

}  // namespace shardline
