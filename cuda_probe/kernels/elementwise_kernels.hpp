// What each thread of the row-wise kernels does, on host and device. Memory-bound: every thread loads and
// stores 16 bytes at a time, neighbours next to each other.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda_probe/kernels/elementwise.hpp"

namespace shardline {

/// Threads of a block; rms_norm: all of them work on one row.
inline constexpr int kRowThreads = 256;

/// Threads that swiglu and add need: one per eight values of the output.
SL_BOTH std::int64_t row_threads(const RowArguments& a) { return a.rows * (a.columns / 8); }

SL_BOTH const Bf16x8& piece_of(const Bf16* row, std::int64_t piece) {
  return reinterpret_cast<const Bf16x8*>(row)[piece];
}
SL_BOTH Bf16x8& piece_of(Bf16* row, std::int64_t piece) { return reinterpret_cast<Bf16x8*>(row)[piece]; }

/// rms_norm, step 1: sum of the squares that thread `lane` of kRowThreads sees.
SL_BOTH float rms_partial(const RowArguments& a, std::int64_t row, int lane) {
  float squares = 0;
  for (std::int64_t p = lane; p < a.columns / 8; p += kRowThreads) {
    const Bf16x8 in = piece_of(a.a + row * a.a_row, p);
    for (int i = 0; i < 8; ++i) squares += to_float(in.v[i]) * to_float(in.v[i]);
  }
  return squares;
}

/// Step 2, for width = kRowThreads / 2, ..., 1, all threads together: partials[0] becomes the sum. The order
/// of additions is fixed, so results repeat.
SL_BOTH void rms_halve(float* partials, int lane, int width) {
  if (lane < width) partials[lane] += partials[lane + width];
}

/// Step 3. Reads the row a second time: out of the cache, where it still is.
SL_BOTH void rms_write(const RowArguments& a, std::int64_t row, int lane, float squares) {
  const float factor = 1 / sqrtf(squares / static_cast<float>(a.columns) + 1e-6f);
  for (std::int64_t p = lane; p < a.columns / 8; p += kRowThreads) {
    Bf16x8 values = piece_of(a.a + row * a.a_row, p);
    for (int i = 0; i < 8; ++i) values.v[i] = to_bf16(to_float(values.v[i]) * factor);
    piece_of(a.out + row * a.out_row, p) = values;
  }
}

/// Thread `index` of row_threads().
SL_BOTH void swiglu_thread(const RowArguments& a, std::int64_t index) {
  const std::int64_t pieces = a.columns / 8, row = index / pieces, p = index % pieces;
  const Bf16x8 gate = piece_of(a.a + row * a.a_row, p), up = piece_of(a.a + row * a.a_row, pieces + p);
  Bf16x8 out;
  for (int i = 0; i < 8; ++i) {
    const float g = to_float(gate.v[i]);
    out.v[i] = to_bf16(g / (1 + expf(-g)) * to_float(up.v[i]));
  }
  piece_of(a.out + row * a.out_row, p) = out;
}

SL_BOTH void add_thread(const RowArguments& a, std::int64_t index) {
  const std::int64_t pieces = a.columns / 8, row = index / pieces, p = index % pieces;
  const Bf16x8 x = piece_of(a.a + row * a.a_row, p), y = piece_of(a.b + row * a.b_row, p);
  Bf16x8 out;
  for (int i = 0; i < 8; ++i) out.v[i] = to_bf16(to_float(x.v[i]) + to_float(y.v[i]));
  piece_of(a.out + row * a.out_row, p) = out;
}

}  // namespace shardline
