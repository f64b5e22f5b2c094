// Row-wise kernels of a layer: what is neither attention nor a GEMM.
#pragma once

#include <cstdint>

#include "cuda_probe/kernels/bf16.hpp"

namespace shardline {

/// rows x columns in bfloat16; strides in elements. rms_norm: out = a / sqrt(mean(a^2) + 1e-6). swiglu: a is
/// [gate, up] of 2 * columns, out = silu(gate) * up. add: out = a + b. Columns and strides are multiples of
/// 8, pointers aligned to 16 bytes. out may be a (and b).
struct RowArguments {
  const Bf16* a;
  const Bf16* b;  // add only
  Bf16* out;
  std::int64_t rows, columns;
  std::int64_t a_row, b_row, out_row;
};

}  // namespace shardline
