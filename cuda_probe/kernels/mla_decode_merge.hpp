// Merge of the splits of an MLA decode: out = sum_s out_s exp(lse_s - max) / sum_s exp(lse_s - max).
#pragma once

#include "cuda_probe/device/simt.hpp"
#include "cuda_probe/kernels/attention.hpp"

namespace shardline {

/// A block per sequence and head, four columns per thread. Few heads have many splits: each thread keeps
/// several loads under way. Where the log-sum-exp is -infinity the output is ignored.
struct MlaDecodeMerge {
  static constexpr int kThreads = kLatent / 4, kBatch = 8;
  using Arguments = MlaDecodeArguments;

  /// Blocks needed.
  SL_BOTH static std::int64_t blocks(const Arguments& a) { return std::int64_t{a.sequences} * a.q_heads; }

  SL_DEVICE static void run(const Arguments& a) {
    using namespace device;
    const std::int64_t cells = blocks(a), cell = block_x();
    const float* lses = a.partial_lse + cell;
    const float* parts = a.partial_out + cell * kLatent + thread() * 4;
    float high = -INFINITY;
    for (int s = lane(); s < a.splits; s += 32) high = fmaxf(high, lses[s * cells]);
    SL_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) high = fmaxf(high, shuffle_xor(high, mask));

    float sum = 0, values[4] = {};
    SL_UNROLL_BY(1)
    for (int first = 0; first < a.splits; first += kBatch) {
      float lse[kBatch];
      Floats4 part[kBatch];
      SL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const std::int64_t at = (first + i < a.splits ? first + i : first) * cells;
        lse[i] = first + i < a.splits ? lses[at] : -INFINITY;
        part[i] = *reinterpret_cast<const Floats4*>(parts + at * kLatent);
      }
      SL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        if (lse[i] == -INFINITY) continue;
        const float weight = exp2_fast((lse[i] - high) * kLog2E);
        sum += weight;
        SL_UNROLL
        for (int j = 0; j < 4; ++j) values[j] += weight * part[i].f[j];
      }
    }
    const std::int64_t sequence = cell / a.q_heads, head = cell % a.q_heads;
    const float weight = sum > 0 ? 1 / sum : 0.0f;
    *reinterpret_cast<Words2*>(a.out + sequence * a.out_row + head * a.out_head + thread() * 4) = {
        pack(values[0] * weight, values[1] * weight), pack(values[2] * weight, values[3] * weight)};
    if (thread() == 0 && a.lse != nullptr)
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
