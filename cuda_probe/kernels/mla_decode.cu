#include "cuda_probe/kernels/launch.hpp"
#include "cuda_probe/kernels/launch_parts.hpp"
#include "cuda_probe/kernels/mla_decode_merge.hpp"
#include "cuda_probe/kernels/mla_decode_mma.hpp"

namespace shardline {

namespace {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    mla_decode_kernel(const __grid_constant__ typename Kernel::Arguments a) {
  extern __shared__ __align__(16) std::byte dynamic[];
  Kernel::run(a, dynamic);
}

__global__ void __launch_bounds__(MlaDecodeMerge::kThreads)
    mla_decode_merge_kernel(const __grid_constant__ MlaDecodeArguments a) {
  MlaDecodeMerge::run(a);
}

template <class Kernel>
cudaError_t start(const MlaDecodeArguments& a, cudaStream_t stream) {
  const cudaError_t error = allow_shared(mla_decode_kernel<Kernel>, Kernel::kSharedBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>((a.q_heads + Kernel::kHeads - 1) / Kernel::kHeads),
                  static_cast<unsigned>(a.splits), static_cast<unsigned>(a.sequences));
  mla_decode_kernel<Kernel><<<grid, Kernel::kThreads, Kernel::kSharedBytes, stream>>>(a);
  return cudaGetLastError();
}

cudaError_t start_mma(const MlaDecodeArguments& a, cudaStream_t stream) {
  int device = 0, shared = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error != cudaSuccess) return error;
  // 8.6, 8.9 and 12.0 have 99 KiB, 8.0 has 163.
  if (shared < MlaDecodeMma<64, 32>::kSharedBytes) return start<MlaDecodeMma<64, 16>>(a, stream);
  if (a.q_heads <= 16) return start<MlaDecodeMma<16, 32>>(a, stream);
  if (a.q_heads <= 32) return start<MlaDecodeMma<32, 32>>(a, stream);
  return start<MlaDecodeMma<64, 32>>(a, stream);
}
static_assert(MlaDecodeMma<64, 16>::kSharedBytes <= 99 * 1024);
static_assert(MlaDecodeMma<64, 32>::kSharedBytes <= 163 * 1024);
static_assert(MlaDecodeMma<32, 32>::kSharedBytes <= MlaDecodeMma<64, 32>::kSharedBytes);
static_assert(MlaDecodeMma<16, 32>::kSharedBytes <= MlaDecodeMma<64, 32>::kSharedBytes);

bool wrong(const MlaDecodeArguments& a) {
  if (a.sequences < 0 || a.sequences > 65535 || a.q_heads < 1 || a.q_heads > 128 || a.splits < 1 ||
      a.splits > 65535)
    return true;
  if (a.pages == nullptr ? a.kv_begin == nullptr
                         : a.page_rows < 16 || a.page_rows > 256 || (a.page_rows & (a.page_rows - 1)) != 0)
    return true;
  if (a.splits > 1 && (a.partial_out == nullptr || a.partial_lse == nullptr ||
                       reinterpret_cast<std::uintptr_t>(a.partial_out) % 16 != 0))
    return true;
  return !aligned(a.q, a.q_row, a.q_head) || !aligned(a.kv, a.kv_row, 0) ||
         !aligned(a.out, a.out_row, a.out_head);
}

}  // namespace

cudaError_t mla_decode(const MlaDecodeArguments& a, cudaStream_t stream, MlaDecodePath path) {
  if (wrong(a)) return cudaErrorInvalidValue;
  if (a.sequences == 0) return cudaSuccess;
  int capability = 0;
  cudaError_t error = compute_capability(&capability);
  if (error != cudaSuccess) return error;
  if (capability < 80) return cudaErrorNotSupported;
  // An empty matrix has no tensor map.
  const bool hopper = capability == 90 && a.cache_rows > 0;
  if (path == MlaDecodePath::wgmma && !hopper) return cudaErrorNotSupported;
  // Up to 16 heads HBM is the limit, and wgmma's 64 rows would be mostly padding.
  const bool wide = hopper && path != MlaDecodePath::mma && (a.q_heads > 16 || path == MlaDecodePath::wgmma);
  error = wide ? mla_decode_wgmma(a, stream) : start_mma(a, stream);
  if (error != cudaSuccess || a.splits == 1) return error;
  mla_decode_merge_kernel<<<static_cast<unsigned>(MlaDecodeMerge::blocks(a)), MlaDecodeMerge::kThreads, 0,
                            stream>>>(a);
  return cudaGetLastError();
}

}  // namespace shardline
