// What the launchers share.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda_probe/kernels/attention.hpp"

namespace shardline {

inline std::int64_t prefill_tiles(const PrefillArguments& a) {
  return (std::int64_t{a.q_rows} + kQueryTile - 1) / kQueryTile;
}

inline bool aligned(const Bf16* p, std::int64_t row, std::int64_t head) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0 && row % 8 == 0 && head % 8 == 0;
}

/// 10 * major + minor of the current device.
cudaError_t compute_capability(int* capability);

/// Above 48 KiB a kernel must be allowed its shared memory, on each device.
template <class Kernel>
cudaError_t allow_shared(Kernel* kernel, int bytes) {
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) cudaGetLastError();  // else the next launch would report it
  return error;
}

/// Map of [heads][rows][columns] in bfloat16 with boxes of 64 columns x box_rows rows of one head, 128-byte
/// swizzle. Strides in elements.
cudaError_t tile_map(CUtensorMap* map, const Bf16* base, std::int64_t columns, std::int64_t rows,
                     std::int64_t heads, std::int64_t row, std::int64_t head, int box_rows);

cudaError_t prefill_wgmma(const PrefillArguments& a, cudaStream_t stream);
/// Without the merge of the splits. Needs compute capability 9.0 and cache_rows > 0.
cudaError_t mla_decode_wgmma(const MlaDecodeArguments& a, cudaStream_t stream);

}  // namespace shardline
