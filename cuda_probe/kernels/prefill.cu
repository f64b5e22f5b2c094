#include "cuda_probe/kernels/launch.hpp"
#include "cuda_probe/kernels/launch_parts.hpp"
#include "cuda_probe/kernels/prefill_mma.hpp"

namespace shardline {

namespace {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads)
    prefill_mma_kernel(const __grid_constant__ typename Kernel::Arguments a) {
  extern __shared__ __align__(16) std::byte dynamic[];
  Kernel::run(a, dynamic);
}

template <int QkDim, int VDim>
cudaError_t start(const PrefillArguments& a, cudaStream_t stream) {
  using Kernel = PrefillMma<QkDim, VDim>;
  const cudaError_t error = allow_shared(prefill_mma_kernel<Kernel>, Kernel::kSharedBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(a.q_heads), static_cast<unsigned>(prefill_tiles(a)));
  prefill_mma_kernel<Kernel><<<grid, Kernel::kThreads, Kernel::kSharedBytes, stream>>>(a);
  return cudaGetLastError();
}

bool wrong(const PrefillArguments& a) {
  const bool dims = (a.qk_dim == 64 && a.v_dim == 64) || (a.qk_dim == 128 && a.v_dim == 128) ||
                    (a.qk_dim == 192 && a.v_dim == 128);
  return !dims || a.q_heads < 1 || a.kv_heads < 1 || a.q_heads % a.kv_heads != 0 || a.q_rows < 0 ||
         a.kv_rows < 0 || prefill_tiles(a) > 65535 || !aligned(a.q, a.q_row, a.q_head) ||
         !aligned(a.k, a.kv_row, a.kv_head) || !aligned(a.v, a.kv_row, a.kv_head) ||
         !aligned(a.out, a.out_row, a.out_head);
}

}  // namespace

cudaError_t prefill(const PrefillArguments& a, cudaStream_t stream, PrefillPath path) {
  if (wrong(a)) return cudaErrorInvalidValue;
  if (a.q_rows == 0) return cudaSuccess;
  int capability = 0;
  const cudaError_t error = compute_capability(&capability);
  if (error != cudaSuccess) return error;
  if (capability < 80) return cudaErrorNotSupported;
  // wgmma is Hopper's alone; an empty matrix has no tensor map.
  const bool hopper = capability == 90;
  if (path == PrefillPath::wgmma && !hopper) return cudaErrorNotSupported;
  if (hopper && path != PrefillPath::mma && a.kv_rows > 0) return prefill_wgmma(a, stream);
  if (a.qk_dim == 64) return start<64, 64>(a, stream);
  if (a.qk_dim == 128) return start<128, 128>(a, stream);
  return start<192, 128>(a, stream);
}

}  // namespace shardline
