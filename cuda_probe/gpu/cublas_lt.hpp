// Row-major bfloat16 GEMMs through cuBLASLt.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <map>

#include "cuda_probe/gpu/gpu.hpp"

namespace shardline {

/// Of one device, which must be the current one in every call.
class CublasLt {
 public:
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;

  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  /// `workspace`: kWorkspace bytes that no other stream uses. Throws GpuError, also where cuBLASLt has no
  /// algorithm for the shape.
  void gemm(const GemmArguments& a, void* workspace, cudaStream_t stream);

 private:
  using Shape = std::array<std::int64_t, 10>;  // all of GemmArguments but the pointers
  struct Plan {
    cublasLtMatrixLayout_t w = nullptr, a = nullptr, out = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };

  const Plan& plan(const Shape& shape);

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  std::map<Shape, Plan> plans_;
};

}  // namespace shardline
