// A CUDA device: memory, streams and events of the runtime, our kernels, and cuBLASLt for GEMMs.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cuda_probe/gpu/gpu.hpp"
#include "cuda_probe/kernels/launch.hpp"

namespace shardline {

/// Number of CUDA devices; if none, the reason is stored to `why_none` (may be null).
int cuda_devices(std::string* why_none = nullptr);

/// Throws GpuError "FILE:LINE: CALL: NAME: text" unless the status is success.
void require_cuda(cudaError_t status, const char* call, const char* file, int line);
#define SL_CUDA(call) ::shardline::require_cuda((call), #call, __FILE__, __LINE__)

class CublasLt;

/// Which instructions the kernels use that have a choice.
struct KernelPaths {
  PrefillPath prefill = PrefillPath::automatic;
  MlaDecodePath mla_decode = MlaDecodePath::automatic;
};

/// Device `index` of the process. Streams do not synchronise with the default stream. Errors of kernels show
/// at the next call that waits.
class CudaGpu final : public Gpu {
 public:
  explicit CudaGpu(int index, const KernelPaths& paths = {});
  ~CudaGpu() override;
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;

  std::string name() const override { return name_; }
  int multiprocessors() const override { return multiprocessors_; }
  int index() const { return index_; }
  /// Of the stream, for libraries that take one. Throws GpuError for unknown streams.
  cudaStream_t handle(Stream stream) const;

  void* allocate(std::size_t bytes) override;
  /// Waits for the device.
  void release(void* memory) override;

  Stream stream() override;
  Event event() override;
  void record(Event event, Stream stream) override;
  void wait(Stream stream, Event event) override;
  void synchronize() override;
  Seconds elapsed(Event from, Event to) override;

  void upload(void* to, const void* from, std::size_t bytes) override;
  void download(void* to, const void* from, std::size_t bytes) override;

  void fill(Stream stream, void* to, std::uint8_t byte, std::size_t bytes) override;
  void copy(Stream stream, const Copy& copy) override;

  void prefill(Stream stream, const PrefillArguments& a) override;
  void decode(Stream stream, const DecodeArguments& a) override;
  void mla_decode(Stream stream, const MlaDecodeArguments& a) override;
  void merge(Stream stream, const MergeArguments& a) override;
  void compress(Stream stream, const CompressArguments& a) override;
  void rms_norm(Stream stream, const RowArguments& a) override;
  void swiglu(Stream stream, const RowArguments& a) override;
  void add(Stream stream, const RowArguments& a) override;
  /// Through cuBLASLt; the first call of a shape also asks for its algorithm.
  void gemm(Stream stream, const GemmArguments& a) override;

 private:
  void activate() const;
  cudaEvent_t handle(Event event) const;

  int index_;
  KernelPaths paths_;
  std::string name_;
  int multiprocessors_ = 0;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
  std::set<void*> memory_;
  std::map<std::uint32_t, void*> workspaces_;  // by stream
  std::unique_ptr<CublasLt> blas_;
};

}  // namespace shardline
