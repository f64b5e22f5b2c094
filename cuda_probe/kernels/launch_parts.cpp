#include "cuda_probe/kernels/launch_parts.hpp"

namespace shardline {

cudaError_t compute_capability(int* capability) {
  int device = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  *capability = 10 * major + minor;
  return error;
}

cudaError_t tile_map(CUtensorMap* map, const Bf16* base, std::int64_t columns, std::int64_t rows,
                     std::int64_t heads, std::int64_t row, std::int64_t head, int box_rows) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  // Asked of the runtime, so that the program also starts where there is no driver.
  static const Encode encode = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess) {
      address = nullptr;
      cudaGetLastError();  // else the next launch would report it
    }
    return reinterpret_cast<Encode>(address);
  }();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                               static_cast<cuuint64_t>(heads)};
  // One head's stride is never used, but must still be a positive multiple of 16 bytes.
  const std::int64_t head_stride = heads > 1 ? head : row;
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(2 * row), static_cast<cuuint64_t>(2 * head_stride)};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), 1}, steps[3] = {1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<Bf16*>(base), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace shardline
