#include "cuda_probe/kernels/decode_kernel.hpp"
#include "cuda_probe/kernels/decode_parts.hpp"
#include "cuda_probe/kernels/launch.hpp"
#include "cuda_probe/kernels/launch_parts.hpp"

namespace shardline {

namespace {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 2)
    decode_kernel(const __grid_constant__ DecodeArguments a) {
  extern __shared__ __align__(16) std::byte dynamic[];
  Kernel::run(a, dynamic);
}

template <int HeadDim, int Bands>
cudaError_t start(const DecodeArguments& a, cudaStream_t stream) {
  using Kernel = Decode<HeadDim, Bands>;
  cudaError_t error = allow_shared(decode_kernel<Kernel>, Kernel::kSharedBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(a.kv_heads), static_cast<unsigned>(a.sequences),
                  static_cast<unsigned>(a.splits));
  decode_kernel<Kernel><<<grid, Kernel::kThreads, Kernel::kSharedBytes, stream>>>(a);
  error = cudaGetLastError();
  if (error != cudaSuccess || a.splits == 1) return error;
  using Merge = DecodeMerge<HeadDim>;
  const dim3 cells(static_cast<unsigned>(a.q_heads), static_cast<unsigned>(a.sequences));
  decode_kernel<Merge><<<cells, Merge::kThreads, Merge::kSharedBytes, stream>>>(a);
  return cudaGetLastError();
}

template <int HeadDim>
cudaError_t start_bands(const DecodeArguments& a, cudaStream_t stream) {
  const int group = a.q_heads / a.kv_heads;
  if (group <= 16) return start<HeadDim, 1>(a, stream);
  if (group <= 32) return start<HeadDim, 2>(a, stream);
  return start<HeadDim, 4>(a, stream);
}

bool wrong_cache(const DecodeArguments& a) {
  if (a.pages == nullptr) return a.kv_begin == nullptr;
  return a.page_rows < 16 || a.page_rows > 256 || (a.page_rows & (a.page_rows - 1)) != 0 || a.most_pages < 0;
}

bool wrong(const DecodeArguments& a) {
  constexpr int kMostOfGrid = 65535;
  return (a.head_dim != 64 && a.head_dim != 128) || a.kv_heads < 1 || a.q_heads < 1 ||
         a.q_heads % a.kv_heads != 0 || a.q_heads / a.kv_heads > 64 || a.sequences < 0 ||
         a.sequences > kMostOfGrid || a.splits < 1 || a.splits > kMostOfGrid ||
         (a.splits > 1 && (a.partial_out == nullptr || a.partial_lse == nullptr ||
                           reinterpret_cast<std::uintptr_t>(a.partial_out) % 16 != 0)) ||
         wrong_cache(a) || !aligned(a.q, a.q_row, a.q_head) || !aligned(a.k, a.kv_row, a.kv_head) ||
         !aligned(a.v, a.kv_row, a.kv_head) || !aligned(a.out, a.out_row, a.out_head);
}

}  // namespace

cudaError_t decode(const DecodeArguments& a, cudaStream_t stream) {
  if (wrong(a)) return cudaErrorInvalidValue;
  if (a.sequences == 0) return cudaSuccess;
  int capability = 0;
  const cudaError_t error = compute_capability(&capability);
  if (error != cudaSuccess) return error;
  if (capability < 80) return cudaErrorNotSupported;
  return a.head_dim == 64 ? start_bands<64>(a, stream) : start_bands<128>(a, stream);
}

}  // namespace shardline
