// bfloat16 as 16 bits, the same on host and device, so that tests run the kernels' own code on a CPU.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define SL_BOTH __host__ __device__ __forceinline__
#else
#define SL_BOTH inline
#endif

namespace shardline {

struct Bf16 {
  std::uint16_t bits;
};

SL_BOTH float to_float(Bf16 v) {
  const std::uint32_t wide = static_cast<std::uint32_t>(v.bits) << 16;
  float f;
  memcpy(&f, &wide, sizeof f);
  return f;
}

/// Nearest, ties to even; NaN stays NaN.
SL_BOTH Bf16 to_bf16(float f) {
  std::uint32_t wide;
  memcpy(&wide, &f, sizeof wide);
  if ((wide & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((wide >> 16) | 0x40u)};
  const std::uint32_t odd = (wide >> 16) & 1u;
  return {static_cast<std::uint16_t>((wide + 0x7fffu + odd) >> 16)};
}

/// Eight values: what one thread loads and stores at once (16 bytes).
struct alignas(16) Bf16x8 {
  Bf16 v[8];
};

}  // namespace shardline
