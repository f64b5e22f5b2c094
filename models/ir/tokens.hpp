// Which tokens a rank holds: intervals of positions, per request, with a stride where they are dealt out.
// Everything that causal attention costs follows from them by counting (models/README.md [T1], [T2], [T4]).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/ir/reach.hpp"

namespace shardline {

/// Positions begin, begin + stride, ... below end of one request's sequence, in rows of a tensor.
struct Interval {
  std::int32_t request = 0;  // kPadding: rows that only fill a message up
  std::int64_t begin = 0, end = 0;
  std::int64_t stride =
      1;  // at least 1; a stripe of a sequence that is dealt out over ranks has their number
  std::int64_t size() const { return stride == 1 ? end - begin : (end - begin + stride - 1) / stride; }
  /// Position of row i; the last of the positions is position(size() - 1), which `end` may lie beyond.
  std::int64_t position(std::int64_t i) const { return begin + i * stride; }
  std::int64_t last() const { return position(size() - 1); }
  bool operator==(const Interval&) const = default;
};
inline constexpr std::int32_t kPadding = -1;

/// Rows of a tensor, in order.
using Tokens = std::vector<Interval>;
using TokenView = std::span<const Interval>;

/// Rows, padding included.
std::int64_t rows(TokenView tokens);
/// Rows without padding.
std::int64_t real_rows(TokenView tokens);

/// [T1] Pairs (q, k) of equal request with position(k) <= position(q); padding takes part in none.
std::int64_t causal_pairs(TokenView queries, TokenView keys);
/// [T4] Those of them that are within reach.
std::int64_t causal_pairs(TokenView queries, TokenView keys, const Reach& reach);
/// [T4] Keys of equal request that some query sees, or that lie between two that the queries of one interval
/// see: what a kernel reads for them. Full: all keys of the requests that are asked about.
std::int64_t rows_in_reach(TokenView queries, TokenView keys, const Reach& reach);

/// The same if each request's queries were a whole sequence, in their order: n (n + 1) / 2 of n tokens.
std::int64_t own_pairs(TokenView queries);

/// Pairs (q, k) of equal request, whatever their positions: what a matrix product of both computes.
std::int64_t all_pairs(TokenView queries, TokenView keys);

/// Query rows of one tile of a prefill attention kernel (FlashAttention-3 on Hopper: 128).
inline constexpr int kTileRows = 128;
/// [T2] Tiles of kTileRows query rows that a flash kernel cuts the intervals into, one interval at a time.
std::int64_t query_tiles(TokenView queries);
/// [T2] Intervals with tiles.
std::int64_t query_intervals(TokenView queries);

/// Whether both have the same tokens, in whatever order and cut; padding is none.
bool same_tokens(TokenView a, TokenView b);

/// Joins neighbours of one stride that continue each other; drops empty intervals.
void compact(Tokens& tokens);

}  // namespace shardline
