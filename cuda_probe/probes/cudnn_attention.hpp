// cuDNN's fused attention as a reference beside our kernels, through its graph API. The library is loaded at
// run time.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "cuda_probe/probes/shapes.hpp"

namespace shardline {

class CudnnAttention {
 public:
  CudnnAttention();
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Why there is no cuDNN; empty: there is.
  const std::string& missing() const { return missing_; }
  const std::string& version() const { return version_; }

  /// Plans causal attention (aligned at the last key) of the shape in bfloat16, on matrices [request][row]
  /// [head][head_dim]; keys and values of a row lie side by side. Throws Unsupported where cuDNN has no
  /// engine for it.
  void plan(const PrefillCase& shape);
  /// Bytes of workspace that the plan wants.
  std::size_t workspace() const;
  void run(const void* q, const void* k, const void* v, void* out, void* workspace, cudaStream_t stream);

 private:
  struct Library;
  struct Plan;
  std::unique_ptr<Library> library_;
  std::unique_ptr<Plan> plan_;
  std::string missing_, version_;
};

}  // namespace shardline
