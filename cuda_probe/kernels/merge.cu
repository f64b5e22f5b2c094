#include "cuda_probe/kernels/launch.hpp"

namespace shardline {

namespace {

__global__ void __launch_bounds__(256) merge_kernel(const __grid_constant__ MergeArguments a) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index < merge_threads(a)) merge_thread(a, index);
}

}  // namespace

cudaError_t merge(const MergeArguments& a, cudaStream_t stream) {
  if (a.parts < 1 || a.parts > kMostParts || a.rows < 0 || a.heads < 1 || a.head_dim < 8 ||
      a.head_dim % 8 != 0)
    return cudaErrorInvalidValue;
  const std::int64_t threads = merge_threads(a);
  if (threads == 0) return cudaSuccess;
  const std::int64_t blocks = (threads + 255) / 256;
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  merge_kernel<<<static_cast<unsigned>(blocks), 256, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace shardline
