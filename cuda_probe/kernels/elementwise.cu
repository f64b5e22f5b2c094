#include "cuda_probe/kernels/elementwise_kernels.hpp"
#include "cuda_probe/kernels/launch.hpp"

namespace shardline {

namespace {

__global__ void __launch_bounds__(kRowThreads) rms_norm_kernel(const __grid_constant__ RowArguments a) {
  __shared__ float partials[kRowThreads];
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t row = blockIdx.x;
  partials[lane] = rms_partial(a, row, lane);
  for (int width = kRowThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    rms_halve(partials, lane, width);
  }
  __syncthreads();
  rms_write(a, row, lane, partials[0]);
}

__device__ std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
}

__global__ void __launch_bounds__(kRowThreads) swiglu_kernel(const __grid_constant__ RowArguments a) {
  if (thread_index() < row_threads(a)) swiglu_thread(a, thread_index());
}

__global__ void __launch_bounds__(kRowThreads) add_kernel(const __grid_constant__ RowArguments a) {
  if (thread_index() < row_threads(a)) add_thread(a, thread_index());
}

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % sizeof(Bf16x8) == 0; }

bool valid(const RowArguments& a) {
  return a.rows >= 0 && a.columns >= 0 && a.columns % 8 == 0 && a.a_row % 8 == 0 && a.b_row % 8 == 0 &&
         a.out_row % 8 == 0 && aligned(a.a) && aligned(a.b) && aligned(a.out);
}

using Kernel = void (*)(const RowArguments);

cudaError_t start(Kernel kernel, const RowArguments& a, std::int64_t blocks, cudaStream_t stream) {
  if (a.rows == 0 || a.columns == 0) return cudaSuccess;
  if (a.a == nullptr || a.out == nullptr || blocks > 0x7fffffff) return cudaErrorInvalidValue;
  kernel<<<static_cast<unsigned>(blocks), kRowThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

std::int64_t blocks_of(std::int64_t threads) { return (threads + kRowThreads - 1) / kRowThreads; }

}  // namespace

cudaError_t rms_norm(const RowArguments& a, cudaStream_t stream) {
  return valid(a) ? start(rms_norm_kernel, a, a.rows, stream) : cudaErrorInvalidValue;
}

cudaError_t swiglu(const RowArguments& a, cudaStream_t stream) {
  return valid(a) ? start(swiglu_kernel, a, blocks_of(row_threads(a)), stream) : cudaErrorInvalidValue;
}

cudaError_t add(const RowArguments& a, cudaStream_t stream) {
  const bool all = valid(a) && (a.b != nullptr || row_threads(a) == 0);
  return all ? start(add_kernel, a, blocks_of(row_threads(a)), stream) : cudaErrorInvalidValue;
}

}  // namespace shardline
