// Merge of partial attention outputs by their log-sum-exps (arXiv 2411.01783, Equation 4):
// O = sum_s O_s exp(LSE_s - max) / sum_s exp(LSE_s - max). Memory-bound: reads every part once, writes once.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda_probe/kernels/bf16.hpp"

namespace shardline {

inline constexpr int kMostParts = 64;

/// Parts are [rows][heads][head_dim] in bfloat16 with log-sum-exps [rows][heads] in float32 (natural
/// logarithm; -infinity: nothing was attended, the output is ignored). An output that is null stands for
/// zeros: its part is only weighed. `out_lse` may be null. Pointers are of the device that runs the kernel.
/// Rows lie *_row elements apart (0: without a gap); strides of outputs are
/// multiples of 8. Outputs must not overlap inputs, except that a part and its log-sum-exps may be the
/// outputs themselves where the threads of a head fit one block: merges_in_place().
struct MergeArguments {
  const Bf16* outputs[kMostParts];
  const float* lses[kMostParts];
  int parts;
  std::int64_t rows;
  int heads, head_dim;  // head_dim: a multiple of 8
  Bf16* out;
  float* out_lse;
  std::int64_t output_row[kMostParts], lse_row[kMostParts];
  std::int64_t out_row, out_lse_row;
};

inline constexpr int kMergeBlock = 256;
SL_BOTH bool merges_in_place(int head_dim) { return head_dim % 8 == 0 && kMergeBlock % (head_dim / 8) == 0; }

/// Threads that the whole merge needs: one per eight values of the output.
SL_BOTH std::int64_t merge_threads(const MergeArguments& a) { return a.rows * a.heads * (a.head_dim / 8); }

/// Eight values of a head, and its log-sum-exp.
struct MergePiece {
  Bf16x8 values;
  float lse;
};

struct MergePlace {
  std::int64_t row;
  int head, piece;
};

SL_BOTH MergePlace merge_place(const MergeArguments& a, std::int64_t index) {
  const int per_head = a.head_dim / 8;
  if (index <= 0xffffffffLL) {  // GPUs divide 64-bit numbers slowly
    const std::uint32_t small = static_cast<std::uint32_t>(index);
    const std::uint32_t cell = small / static_cast<std::uint32_t>(per_head);
    const std::uint32_t row = cell / static_cast<std::uint32_t>(a.heads);
    return {static_cast<std::int64_t>(row),
            static_cast<int>(cell - row * static_cast<std::uint32_t>(a.heads)),
            static_cast<int>(small - cell * static_cast<std::uint32_t>(per_head))};
  }
  const std::int64_t cell = index / per_head;
  return {cell / a.heads, static_cast<int>(cell % a.heads), static_cast<int>(index % per_head)};
}

/// What thread `index` of merge_threads() reads and computes. Every thread of a head computes the head's
/// weights anew from `parts` numbers that its neighbours read too: cheaper than sharing them.
SL_BOTH MergePiece merge_read(const MergeArguments& a, std::int64_t index) {
  const MergePlace at = merge_place(a, index);
  const std::int64_t width = static_cast<std::int64_t>(a.heads) * a.head_dim;
  const std::int64_t column = static_cast<std::int64_t>(at.head) * a.head_dim + at.piece * 8;
  float highest = -INFINITY;
  for (int p = 0; p < a.parts; ++p)
    highest = fmaxf(highest, a.lses[p][at.row * (a.lse_row[p] > 0 ? a.lse_row[p] : a.heads) + at.head]);
  float sum = 0;
  float values[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  for (int p = 0; p < a.parts; ++p) {
    const float lse = a.lses[p][at.row * (a.lse_row[p] > 0 ? a.lse_row[p] : a.heads) + at.head];
    if (lse == -INFINITY) continue;  // also where all are: its output may be anything
    const float weight = expf(lse - highest);
    sum += weight;
    if (a.outputs[p] == nullptr) continue;
    const Bf16* row = a.outputs[p] + at.row * (a.output_row[p] > 0 ? a.output_row[p] : width);
    const Bf16x8 part = *reinterpret_cast<const Bf16x8*>(row + column);
    for (int i = 0; i < 8; ++i) values[i] += weight * to_float(part.v[i]);
  }
  const float scale = sum > 0 ? 1 / sum : 0;
  MergePiece merged;
  for (int i = 0; i < 8; ++i) merged.values.v[i] = to_bf16(values[i] * scale);
  merged.lse = sum > 0 ? highest + logf(sum) : -INFINITY;
  return merged;
}

SL_BOTH void merge_write(const MergeArguments& a, std::int64_t index, const MergePiece& merged) {
  const MergePlace at = merge_place(a, index);
  const std::int64_t width = static_cast<std::int64_t>(a.heads) * a.head_dim;
  Bf16* row = a.out + at.row * (a.out_row > 0 ? a.out_row : width);
  *reinterpret_cast<Bf16x8*>(row + static_cast<std::int64_t>(at.head) * a.head_dim + at.piece * 8) =
      merged.values;
  if (at.piece == 0 && a.out_lse != nullptr)
    a.out_lse[at.row * (a.out_lse_row > 0 ? a.out_lse_row : a.heads) + at.head] = merged.lse;
}

/// The whole of thread `index`. Not for merges in place: other threads of the head may not have read yet.
SL_BOTH void merge_thread(const MergeArguments& a, std::int64_t index) {
  merge_write(a, index, merge_read(a, index));
}

/// Bytes that a merge moves in HBM.
SL_BOTH double merge_bytes(const MergeArguments& a) {
  const double heads = static_cast<double>(a.rows) * a.heads;
  double outputs = 1;
  for (int p = 0; p < a.parts; ++p) outputs += a.outputs[p] != nullptr ? 1 : 0;
  return heads * (outputs * 2.0 * a.head_dim + (a.parts + 1.0) * 4);
}

}  // namespace shardline
