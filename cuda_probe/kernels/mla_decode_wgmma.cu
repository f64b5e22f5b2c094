// Compiled for sm_90a only.
#include "cuda_probe/kernels/launch_parts.hpp"
#include "cuda_probe/kernels/mla_decode_wgmma.hpp"

namespace shardline {

namespace {

__global__ void __launch_bounds__(MlaDecodeWgmma::kThreads, 1)
    mla_decode_wgmma_kernel(const __grid_constant__ MlaDecodeWgmma::Arguments x) {
  extern __shared__ std::byte dynamic[];
  MlaDecodeWgmma::run(x, device::swizzle_base(dynamic));
}

}  // namespace

cudaError_t mla_decode_wgmma(const MlaDecodeArguments& a, cudaStream_t stream) {
  MlaDecodeWgmma::Arguments x;
  x.a = a;
  constexpr int kBytes = MlaDecodeWgmma::kSharedBytes + device::kSwizzleSlack;
  // First: it makes the device's context this thread's, without which there are no maps.
  cudaError_t error = allow_shared(mla_decode_wgmma_kernel, kBytes);
  if (error == cudaSuccess)
    error = tile_map(&x.q, a.q, MlaDecodeWgmma::kWidth, a.q_heads, a.sequences, a.q_head, a.q_row,
                     MlaDecodeWgmma::kHeads);
  if (error == cudaSuccess)
    error = tile_map(&x.kv, a.kv, MlaDecodeWgmma::kWidth, a.cache_rows, 1, a.kv_row, a.kv_row,
                     MlaDecodeWgmma::box_rows(a));
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>((a.q_heads + MlaDecodeWgmma::kHeads - 1) / MlaDecodeWgmma::kHeads),
                  static_cast<unsigned>(a.splits), static_cast<unsigned>(a.sequences));
  mla_decode_wgmma_kernel<<<grid, MlaDecodeWgmma::kThreads, kBytes, stream>>>(x);
  return cudaGetLastError();
}

}  // namespace shardline
