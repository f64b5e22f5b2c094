// Merge of the splits of an MLA decode: out = sum_s out_s exp(lse_s - max) / sum_s exp(lse_s - max).
#pragma once

#include "cuda_probe/device/simt.hpp"
#include "cuda_probe/kernels/attention.hpp"

namespace shardline {

/// A warp per sequence and head. Splits of log-sum-exp -infinity are not read.
struct MlaDecodeMerge {
  static constexpr int kThreads = 128;
  using Arguments = MlaDecodeArguments;

  /// Blocks needed.
  SL_BOTH static std::int64_t blocks(const Arguments& a) {
    return (std::int64_t{a.sequences} * a.q_heads + kThreads / 32 - 1) / (kThreads / 32);
  }

  SL_DEVICE static void run(const Arguments& a) {
    using namespace device;
    const std::int64_t cells = std::int64_t{a.sequences} * a.q_heads;
    const std::int64_t cell = std::int64_t{block_x()} * (kThreads / 32) + warp();
    if (cell >= cells) return;
    const float* lses = a.partial_lse + cell;
    float high = -INFINITY;
    for (int s = lane(); s < a.splits; s += 32) high = fmaxf(high, lses[s * cells]);
    SL_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) high = fmaxf(high, shuffle_xor(high, mask));

    float sum = 0, values[4][4] = {};
    SL_UNROLL_BY(2)
    for (int s = 0; s < a.splits; ++s) {
      const float lse = lses[s * cells];
      if (lse == -INFINITY) continue;
      const float weight = exp2_fast((lse - high) * kLog2E);
      const float* part = a.partial_out + (s * cells + cell) * kLatent + lane() * 4;
      sum += weight;
      SL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const Floats4 four = *reinterpret_cast<const Floats4*>(part + i * 128);
        SL_UNROLL
        for (int j = 0; j < 4; ++j) values[i][j] += weight * four.f[j];
      }
    }
    const std::int64_t sequence = cell / a.q_heads, head = cell % a.q_heads;
    const float weight = sum > 0 ? 1 / sum : 0.0f;
    Bf16* out = a.out + sequence * a.out_row + head * a.out_head + lane() * 4;
    SL_UNROLL
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<Words2*>(out + i * 128) = {pack(values[i][0] * weight, values[i][1] * weight),
                                                   pack(values[i][2] * weight, values[i][3] * weight)};
    if (lane() == 0 && a.lse != nullptr)
      a.lse[sequence * a.lse_row + head] = sum > 0 ? high + log2_fast(sum) * kLn2 : -INFINITY;
  }

 private:
  struct alignas(16) Floats4 {
    float f[4];
  };
  struct alignas(8) Words2 {
    std::uint32_t low, high;
  };
};

}  // namespace shardline
