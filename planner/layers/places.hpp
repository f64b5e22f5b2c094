// Where the caches of a request lie: which rank has which heads and which tokens. Lowering binds its slots by
// this, and layouts of caches that are handed over are made of it. planner/README.md [P1].
#pragma once

#include "planner/layers/share.hpp"

namespace shardline {

/// Rank in its stage of the `lane`-th rank among those that are member `member` of a cache's sharers, in
/// attention group `group`.
inline int sharer_rank(const CacheShare& share, const Plan& p, int group, int member, int lane) {
  const Group& g = share.sharers;
  return group * p.group() + (lane / g.stride * g.size + member) * g.stride + lane % g.stride;
}
/// Lanes of an attention group: its ranks over the sharers of one cache.
inline int share_lanes(const CacheShare& share, const Plan& p) { return p.group() / share.sharers.size; }

/// KV head that a query head attends to.
inline int kv_head_of(const Attention& a, std::int64_t q_head) {
  return static_cast<int>(q_head * a.kv_heads / a.q_heads);
}

/// Positions t of [begin, end) with (t - phase) mod period < block: what one rank holds of a sequence. Its
/// pages have them in ascending order, `row` is the place of the first one.
struct HeldTokens {
  std::int64_t begin = 0, end = 0;
  std::int64_t block = 1, period = 1, phase = 0;  // 1, 1, 0: all of [begin, end)
  std::int64_t row = 0;

  bool holds(std::int64_t t) const;
  /// Those of [begin, t).
  std::int64_t before(std::int64_t t) const;
  std::int64_t size() const { return before(end); }
  std::int64_t row_of(std::int64_t t) const { return row + before(t); }
  /// The first of them at `t` or behind it; `end` or more: none.
  std::int64_t next(std::int64_t t) const;
  /// Behind the last position that follows `t`, which it holds, without a gap.
  std::int64_t run_end(std::int64_t t) const;
  /// Those from `first` on, where they were.
  HeldTokens from(std::int64_t first) const;
  bool operator==(const HeldTokens&) const = default;
};
/// In ascending order, none twice.
using HeldList = std::vector<HeldTokens>;

/// [P1] What a sharer holds of tokens [first, end).
HeldTokens sharer_tokens(const CacheShare& share, int member, std::int64_t first, std::int64_t end);
/// The same as intervals of a request, appended.
void append_tokens(Tokens& list, std::int32_t request, const HeldTokens& held);
/// Of a rank whose tokens of one request are listed, in whatever order.
HeldList held_list(Tokens tokens);
HeldList from(const HeldList& list, std::int64_t first);
std::int64_t size(const HeldList& list);

}  // namespace shardline
