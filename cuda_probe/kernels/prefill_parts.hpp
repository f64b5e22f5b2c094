// What both prefill kernels share: which key tiles come next, and the running softmax of the rows that a
// thread holds (FlashAttention-2, arXiv 2307.08691, Section 3.1).
//
// A thread's scores stand in the accumulator layout of mma and wgmma alike: s[4j], s[4j + 1] belong to its
// first row, s[4j + 2], s[4j + 3] to its second (8 below), columns 8j + 2 * (lane % 4) and the next.
#pragma once

#include "cuda_probe/device/simt.hpp"
#include "cuda_probe/kernels/attention.hpp"

namespace shardline::prefill_parts {

using namespace device;

/// What a block works on.
struct Work {
  int tile, head;
};

/// Of block `number` of q_heads * tiles; the tile as its place in PrefillArguments::order. Blocks start in
/// the order of their numbers: heads in sections that share `kv_together` heads of keys and values go one
/// section after the other, so that these stay in the L2 cache (as in FlashAttention-3's scheduler); within a
/// section the heaviest tiles of all its heads are first.
SL_BOTH Work work_of(int number, int q_heads, int kv_heads, int tiles, int kv_together) {
  const int most = q_heads / kv_heads * kv_together;
  const int first = number / (most * tiles) * most, in_section = number - first * tiles;
  const int heads = q_heads - first < most ? q_heads - first : most;
  return {in_section / heads, first + in_section % heads};
}

/// Grid: [query heads][query tiles].
template <int QkDim, int VDim>
SL_DEVICE Work work_of_block(const PrefillArguments& a) {
  constexpr int kRows = (32 << 20) / (2 * (QkDim + VDim));  // of one head; of 40 to 60 MB of L2
  const int together = a.kv_rows > 0 ? kRows / a.kv_rows : a.kv_heads;
  const Work w = work_of(block_y() * a.q_heads + block_x(), a.q_heads, a.kv_heads,
                         (a.q_rows + kQueryTile - 1) / kQueryTile,
                         together < 1 ? 1 : (together < a.kv_heads ? together : a.kv_heads));
  return {a.order[w.tile], w.head};
}

/// The key tiles of a query tile, in order.
struct KeyTiles {
  const KeyRun *run, *end;
  KeyRun now;
  int first;

  SL_DEVICE KeyTiles(const PrefillArguments& a, int tile)
      : run(a.runs + a.run_begin[tile]), end(a.runs + a.run_begin[tile + 1]), now{0, 0, 0}, first(0) {
    if (!done()) start();
  }
  SL_DEVICE bool done() const { return run == end; }
  /// `rows` divides kKeyTile.
  SL_DEVICE void next(int rows) {
    first += rows;
    if (first < now.last) return;
    ++run;
    if (!done()) start();
  }

 private:
  SL_DEVICE void start() {
    now = *run;
    first = now.first;
  }
};

/// Softmax of two rows so far; `sum` only over the columns of this thread.
struct Softmax {
  float high[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};

  /// Scores become exp2(scale * (s - highest)); `factor` is what earlier results must be multiplied by.
  template <int N>
  SL_DEVICE void step(float (&s)[N], float scale, float (&factor)[2]) {
    float now[2] = {high[0], high[1]};
    SL_UNROLL
    for (int i = 0; i < N; ++i) now[i / 2 % 2] = fmaxf(now[i / 2 % 2], s[i]);
    float shift[2];
    SL_UNROLL
    for (int r = 0; r < 2; ++r) {
      now[r] = fmaxf(now[r], shuffle_xor(now[r], 1));
      now[r] = fmaxf(now[r], shuffle_xor(now[r], 2));
      // Where nothing was seen yet, infinity - infinity must not arise.
      shift[r] = now[r] == -INFINITY ? 0.0f : now[r] * scale;
      factor[r] = exp2_fast(high[r] * scale - shift[r]);
      high[r] = now[r];
      sum[r] *= factor[r];
    }
    SL_UNROLL
    for (int i = 0; i < N; ++i) {
      s[i] = exp2_fast(s[i] * scale - shift[i / 2 % 2]);
      sum[i / 2 % 2] += s[i];
    }
  }

  /// After the last step: sums over all columns.
  SL_DEVICE void finish() {
    SL_UNROLL
    for (int r = 0; r < 2; ++r) {
      sum[r] += shuffle_xor(sum[r], 1);
      sum[r] += shuffle_xor(sum[r], 2);
    }
  }
  SL_DEVICE float weight(int row) const { return sum[row] > 0 ? 1 / sum[row] : 0.0f; }
  /// Natural logarithm; `scale` as in step(), which is in units of log2.
  SL_DEVICE float lse(int row, float scale) const {
    return sum[row] > 0 ? (high[row] * scale + log2_fast(sum[row])) * kLn2 : -INFINITY;
  }
};

/// Scores of keys that a row does not see become -infinity. `codes`: of the first of the columns, aligned
/// to 8 bytes.
template <int N>
SL_DEVICE void mask(float (&s)[N], const std::int32_t* codes, const Visible (&rows)[2]) {
  struct alignas(8) Two {
    std::int32_t code[2];
  };
  const Two* mine = reinterpret_cast<const Two*>(codes) + lane() % 4;
  SL_UNROLL
  for (int j = 0; j < N / 4; ++j) {
    const Two two = mine[4 * j];
    SL_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::int32_t code = two.code[i];
      if (code < rows[0].low || code > rows[0].high) s[4 * j + i] = -INFINITY;
      if (code < rows[1].low || code > rows[1].high) s[4 * j + 2 + i] = -INFINITY;
    }
  }
}

/// Columns 16 * step to 16 * step + 15 as the first operand of a product.
template <int N>
SL_DEVICE void as_operand(std::uint32_t (&a)[4], const float (&s)[N], int step) {
  SL_UNROLL
  for (int i = 0; i < 4; ++i) a[i] = pack(s[8 * step + 2 * i], s[8 * step + 2 * i + 1]);
}

template <int N>
SL_DEVICE void rescale(float (&o)[N], const float (&factor)[2]) {
  SL_UNROLL
  for (int i = 0; i < N; ++i) o[i] *= factor[i / 2 % 2];
}

SL_DEVICE Visible visible_to(const PrefillArguments& a, int row) {
  return row < a.q_rows ? a.visible[row] : Visible{0, -1};
}

}  // namespace shardline::prefill_parts
