// Merge of partial attention outputs by their log-sum-exps (arXiv 2411.01783, Equation 4):
// O = sum_s O_s exp(LSE_s - max) / sum_s exp(LSE_s - max). Memory-bound: reads every part once, writes once.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda_probe/kernels/bf16.hpp"

namespace shardline {

inline constexpr int kMostParts = 64;

/// Parts are [rows][heads][head_dim] in bfloat16 with log-sum-exps [rows][heads] in float32 (natural
/// logarithm; -infinity: nothing was attended, the output is ignored). `out_lse` may be null. Pointers are of
/// the device that runs the kernel; outputs must not overlap inputs of other rows.
struct MergeArguments {
  const Bf16* outputs[kMostParts];
  const float* lses[kMostParts];
  int parts;
  std::int64_t rows;
  int heads, head_dim;  // head_dim: a multiple of 8
  Bf16* out;
  float* out_lse;
};

/// Threads that the whole merge needs: one per eight values of the output.
SL_BOTH std::int64_t merge_threads(const MergeArguments& a) { return a.rows * a.heads * (a.head_dim / 8); }

/// What thread `index` of merge_threads() does. Every thread of a head computes the head's weights anew from
/// `parts` numbers that its neighbours read too: cheaper than sharing them.
SL_BOTH void merge_thread(const MergeArguments& a, std::int64_t index) {
  const int per_head = a.head_dim / 8;
  const std::int64_t head = index / per_head;  // of all rows
  const int piece = static_cast<int>(index % per_head);
  float highest = -INFINITY;
  for (int p = 0; p < a.parts; ++p) highest = fmaxf(highest, a.lses[p][head]);
  float sum = 0;
  float values[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  for (int p = 0; p < a.parts; ++p) {
    const float lse = a.lses[p][head];
    if (lse == -INFINITY) continue;  // also where all are: its output may be anything
    const float weight = expf(lse - highest);
    sum += weight;
    const Bf16x8 part = reinterpret_cast<const Bf16x8*>(a.outputs[p])[index];
    for (int i = 0; i < 8; ++i) values[i] += weight * to_float(part.v[i]);
  }
  const float scale = sum > 0 ? 1 / sum : 0;
  Bf16x8 merged;
  for (int i = 0; i < 8; ++i) merged.v[i] = to_bf16(values[i] * scale);
  reinterpret_cast<Bf16x8*>(a.out)[index] = merged;
  if (piece == 0 && a.out_lse != nullptr) a.out_lse[head] = sum > 0 ? highest + logf(sum) : -INFINITY;
}

/// Bytes that a merge moves in HBM.
SL_BOTH double merge_bytes(const MergeArguments& a) {
  const double heads = static_cast<double>(a.rows) * a.heads;
  return heads * ((a.parts + 1.0) * (2.0 * a.head_dim + 4));
}

}  // namespace shardline
