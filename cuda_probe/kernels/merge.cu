#include "cuda_probe/kernels/launch.hpp"

namespace shardline {

namespace {

__global__ void __launch_bounds__(kMergeBlock) merge_kernel(const __grid_constant__ MergeArguments a) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool has_piece = index < merge_threads(a);
  MergePiece piece;
  if (has_piece) piece = merge_read(a, index);
  __syncthreads();  // in place, all threads of a head read its log-sum-exps before one writes them
  if (has_piece) merge_write(a, index, piece);
}

}  // namespace

cudaError_t merge(const MergeArguments& a, cudaStream_t stream) {
  if (a.parts < 1 || a.parts > kMostParts || a.rows < 0 || a.heads < 1 || a.head_dim < 8 ||
      a.head_dim % 8 != 0)
    return cudaErrorInvalidValue;
  for (int p = 0; p < a.parts; ++p) {
    if (a.output_row[p] % 8 != 0) return cudaErrorInvalidValue;
    if ((a.lses[p] == a.out_lse || a.outputs[p] == a.out) && !merges_in_place(a.head_dim))
      return cudaErrorInvalidValue;
  }
  if (a.out_row % 8 != 0) return cudaErrorInvalidValue;
  const std::int64_t threads = merge_threads(a);
  if (threads == 0) return cudaSuccess;
  const std::int64_t blocks = (threads + kMergeBlock - 1) / kMergeBlock;
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  merge_kernel<<<static_cast<unsigned>(blocks), kMergeBlock, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace shardline
