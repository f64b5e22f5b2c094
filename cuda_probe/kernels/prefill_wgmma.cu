// Compiled for sm_90a only.
#include "cuda_probe/kernels/launch_parts.hpp"
#include "cuda_probe/kernels/prefill_wgmma.hpp"

namespace shardline {

namespace {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    prefill_wgmma_kernel(const __grid_constant__ typename Kernel::Arguments x) {
  extern __shared__ std::byte dynamic[];
  Kernel::run(x, device::swizzle_base(dynamic));
}

template <int QkDim, int VDim>
cudaError_t start(const PrefillArguments& a, cudaStream_t stream) {
  using Kernel = PrefillWgmma<QkDim, VDim>;
  typename Kernel::Arguments x;
  x.a = a;
  constexpr int kBytes = Kernel::kSharedBytes + device::kSwizzleSlack;
  // First: it makes the device's context this thread's, without which there are no maps.
  cudaError_t error = allow_shared(prefill_wgmma_kernel<Kernel>, kBytes);
  if (error == cudaSuccess)
    error = tile_map(&x.q, a.q, QkDim, a.q_rows, a.q_heads, a.q_row, a.q_head, kQueryTile);
  if (error == cudaSuccess)
    error = tile_map(&x.k, a.k, QkDim, a.kv_rows, a.kv_heads, a.kv_row, a.kv_head, kKeyTile);
  if (error == cudaSuccess)
    error = tile_map(&x.v, a.v, VDim, a.kv_rows, a.kv_heads, a.kv_row, a.kv_head, kKeyTile);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(a.q_heads), static_cast<unsigned>(prefill_tiles(a)));
  prefill_wgmma_kernel<Kernel><<<grid, Kernel::kThreads, kBytes, stream>>>(x);
  return cudaGetLastError();
}

}  // namespace

cudaError_t prefill_wgmma(const PrefillArguments& a, cudaStream_t stream) {
  if (a.qk_dim == 64 && a.v_dim == 64) return start<64, 64>(a, stream);
  if (a.qk_dim == 128 && a.v_dim == 128) return start<128, 128>(a, stream);
  if (a.qk_dim == 192 && a.v_dim == 128) return start<192, 128>(a, stream);
  return cudaErrorInvalidValue;
}

}  // namespace shardline
