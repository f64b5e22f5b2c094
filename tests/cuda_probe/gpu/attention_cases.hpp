// Small attention problems: run on any device, and solved by naive loops in double precision.
#pragma once

#include <vector>

#include "cuda_probe/gpu/gpu.hpp"
#include "models/ir/tokens.hpp"

namespace shardline {

/// Values of [row][head][v_dim] and of [row][head].
struct Attended {
  std::vector<float> out, lse;
};

struct PrefillCase {
  Tokens queries, keys;
  int q_heads = 4, kv_heads = 2, qk_dim = 64, v_dim = 64;
  /// Keys and values in one matrix, a head's key next to its value; else in two.
  bool interleaved = false;
};
Attended run(Gpu& gpu, const PrefillCase& c);
Attended naive(const PrefillCase& c);

struct DecodeCase {
  std::vector<int> kv_rows;
  int q_heads = 4, kv_heads = 2, head_dim = 64;
  int page_rows = 0;  // 0: contiguous
  int splits = 1;
};
Attended run(Gpu& gpu, const DecodeCase& c);
Attended naive(const DecodeCase& c);

struct MlaCase {
  std::vector<int> kv_rows;
  int q_heads = 3;
  int page_rows = 0;
  int splits = 1;
};
Attended run(Gpu& gpu, const MlaCase& c);
Attended naive(const MlaCase& c);

/// Largest difference beyond `absolute` + `relative` * |wanted| (0: none); infinite where sizes, NaN or
/// infinities differ.
double excess(const std::vector<float>& got, const std::vector<float>& wanted, double absolute,
              double relative);

}  // namespace shardline
