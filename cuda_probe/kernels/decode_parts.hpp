// What decode attention counts and decides outside its kernels.
#pragma once

#include <cstdint>

#include "cuda_probe/kernels/attention.hpp"

namespace shardline {

/// Bytes that a decode must move in HBM: `kv_rows` cached rows of all sequences together, queries, outputs,
/// and partial results written and read again.
SL_BOTH double decode_bytes(const DecodeArguments& a, double kv_rows) {
  const double heads = static_cast<double>(a.sequences) * a.q_heads;
  const double cache = kv_rows * a.kv_heads * a.head_dim * 2 * 2;
  const double parts = a.splits > 1 ? 2.0 * a.splits * heads * (a.head_dim + 1) * 4 : 0;
  return cache + heads * (a.head_dim * 2 * 2 + (a.lse != nullptr ? 4 : 0)) + parts;
}

/// Useful products of both matrices; the padding of heads to bands is not counted.
SL_BOTH double decode_flops(const DecodeArguments& a, double kv_rows) {
  return 4 * kv_rows * a.q_heads * a.head_dim;
}

namespace decode_parts {

/// Tiles [first, last) of one split: whole tiles, sizes that differ by one at most.
struct Tiles {
  int first, last;
};

SL_BOTH Tiles split_tiles(int tiles, int splits, int split) {
  const int each = tiles / splits, longer = tiles % splits;
  const int first = split * each + (split < longer ? split : longer);
  return {first, first + each + (split < longer ? 1 : 0)};
}
}  // namespace decode_parts

}  // namespace shardline
