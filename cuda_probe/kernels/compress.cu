#include "cuda_probe/kernels/compress_kernel.hpp"
#include "cuda_probe/kernels/launch.hpp"
#include "cuda_probe/kernels/launch_parts.hpp"

namespace shardline {

namespace {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads)
    compress_kernel(const __grid_constant__ CompressArguments a) {
  extern __shared__ __align__(16) std::byte dynamic[];
  Kernel::run(a, dynamic);
}

bool wrong(const CompressArguments& a) {
  return a.rows < 0 || a.keep < 0 || a.keep > a.rows || a.kv_heads < 1 || a.kv_heads > 65535 ||
         a.head_dim < 8 || a.head_dim % 8 != 0 || a.head_dim / 8 > CompressGather::kThreads ||
         !aligned(a.k, a.kv_row, a.kv_head) || !aligned(a.v, a.kv_row, a.kv_head) ||
         !aligned(a.k_out, a.out_row, a.out_head) || !aligned(a.v_out, a.out_row, a.out_head);
}

}  // namespace

cudaError_t compress(const CompressArguments& a, cudaStream_t stream) {
  if (wrong(a)) return cudaErrorInvalidValue;
  if (a.keep == 0) return cudaSuccess;
  using Select = CompressSelect<1024>;
  const unsigned heads = static_cast<unsigned>(a.kv_heads);
  compress_kernel<Select><<<heads, Select::kThreads, Select::kSharedBytes, stream>>>(a);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(CompressGather::blocks(a)), heads);
  compress_kernel<CompressGather><<<grid, CompressGather::kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace shardline
