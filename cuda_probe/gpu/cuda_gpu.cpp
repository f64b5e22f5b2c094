#include "cuda_probe/gpu/cuda_gpu.hpp"

#include <fmt/format.h>

#include "cuda_probe/gpu/cublas_lt.hpp"

namespace shardline {

int cuda_devices(std::string* why_none) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  cudaGetLastError();  // later calls must not report it again
  if (why_none != nullptr) {
    *why_none = status == cudaSuccess
                    ? "the CUDA driver lists no device"
                    : fmt::format("{}: {}", cudaGetErrorName(status), cudaGetErrorString(status));
  }
  return 0;
}

void require_cuda(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  throw GpuError(fmt::format("{}:{}: {}: {}: {}", file, line, call, cudaGetErrorName(status),
                             cudaGetErrorString(status)));
}

CudaGpu::CudaGpu(int index, const KernelPaths& paths) : index_(index), paths_(paths) {
  cudaDeviceProp properties{};
  SL_CUDA(cudaGetDeviceProperties(&properties, index_));
  name_ = properties.name;
  multiprocessors_ = properties.multiProcessorCount;
  activate();
  blas_ = std::make_unique<CublasLt>();
}

CudaGpu::~CudaGpu() {
  // Errors have been reported by the calls before; here there is nobody to tell.
  cudaSetDevice(index_);
  cudaDeviceSynchronize();
  blas_.reset();
  for (void* memory : memory_) cudaFree(memory);
  for (const cudaEvent_t e : events_) cudaEventDestroy(e);
  for (const cudaStream_t s : streams_) cudaStreamDestroy(s);
}

void CudaGpu::activate() const { SL_CUDA(cudaSetDevice(index_)); }

cudaStream_t CudaGpu::handle(Stream stream) const {
  if (stream.id >= streams_.size()) throw GpuError(fmt::format("stream {} does not exist", stream.id));
  return streams_[stream.id];
}

cudaEvent_t CudaGpu::handle(Event event) const {
  if (event.id >= events_.size()) throw GpuError(fmt::format("event {} does not exist", event.id));
  return events_[event.id];
}

void* CudaGpu::allocate(std::size_t bytes) {
  activate();
  void* memory = nullptr;
  SL_CUDA(cudaMalloc(&memory, bytes == 0 ? 1 : bytes));
  memory_.insert(memory);
  return memory;
}

void CudaGpu::release(void* memory) {
  if (memory == nullptr) return;
  if (memory_.erase(memory) == 0) throw GpuError("release: memory that was not allocated on this device");
  activate();
  SL_CUDA(cudaFree(memory));
}

Stream CudaGpu::stream() {
  activate();
  cudaStream_t s = nullptr;
  SL_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  streams_.push_back(s);
  return {static_cast<std::uint32_t>(streams_.size() - 1)};
}

Event CudaGpu::event() {
  activate();
  cudaEvent_t e = nullptr;
  SL_CUDA(cudaEventCreate(&e));
  events_.push_back(e);
  return {static_cast<std::uint32_t>(events_.size() - 1)};
}

void CudaGpu::record(Event event, Stream stream) {
  activate();
  SL_CUDA(cudaEventRecord(handle(event), handle(stream)));
}

void CudaGpu::wait(Stream stream, Event event) {
  activate();
  SL_CUDA(cudaStreamWaitEvent(handle(stream), handle(event), 0));
}

void CudaGpu::synchronize() {
  activate();
  SL_CUDA(cudaDeviceSynchronize());
}

Seconds CudaGpu::elapsed(Event from, Event to) {
  activate();
  float milliseconds_between = 0;
  SL_CUDA(cudaEventElapsedTime(&milliseconds_between, handle(from), handle(to)));
  return milliseconds(static_cast<double>(milliseconds_between));
}

void CudaGpu::upload(void* to, const void* from, std::size_t bytes) {
  synchronize();
  SL_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  synchronize();  // out of pageable memory cudaMemcpy may return before the last bytes have arrived
}

void CudaGpu::download(void* to, const void* from, std::size_t bytes) {
  synchronize();
  SL_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

void CudaGpu::fill(Stream stream, void* to, std::uint8_t byte, std::size_t bytes) {
  activate();
  SL_CUDA(cudaMemsetAsync(to, byte, bytes, handle(stream)));
}

void CudaGpu::copy(Stream stream, const Copy& c) {
  if (c.rows == 0 || c.row_bytes == 0) return;
  activate();
  const bool gapless = c.rows == 1 || (c.source_pitch == c.row_bytes && c.target_pitch == c.row_bytes);
  if (gapless) {
    SL_CUDA(
        cudaMemcpyAsync(c.target, c.source, c.rows * c.row_bytes, cudaMemcpyDeviceToDevice, handle(stream)));
  } else {
    SL_CUDA(cudaMemcpy2DAsync(c.target, c.target_pitch, c.source, c.source_pitch, c.row_bytes, c.rows,
                              cudaMemcpyDeviceToDevice, handle(stream)));
  }
}

void CudaGpu::prefill(Stream stream, const PrefillArguments& a) {
  activate();
  SL_CUDA(shardline::prefill(a, handle(stream), paths_.prefill));
}

void CudaGpu::decode(Stream stream, const DecodeArguments& a) {
  activate();
  SL_CUDA(shardline::decode(a, handle(stream)));
}

void CudaGpu::mla_decode(Stream stream, const MlaDecodeArguments& a) {
  activate();
  SL_CUDA(shardline::mla_decode(a, handle(stream), paths_.mla_decode));
}

void CudaGpu::merge(Stream stream, const MergeArguments& a) {
  activate();
  SL_CUDA(shardline::merge(a, handle(stream)));
}

void CudaGpu::compress(Stream stream, const CompressArguments& a) {
  activate();
  SL_CUDA(shardline::compress(a, handle(stream)));
}

void CudaGpu::rms_norm(Stream stream, const RowArguments& a) {
  activate();
  SL_CUDA(shardline::rms_norm(a, handle(stream)));
}

void CudaGpu::swiglu(Stream stream, const RowArguments& a) {
  activate();
  SL_CUDA(shardline::swiglu(a, handle(stream)));
}

void CudaGpu::add(Stream stream, const RowArguments& a) {
  activate();
  SL_CUDA(shardline::add(a, handle(stream)));
}

void CudaGpu::gemm(Stream stream, const GemmArguments& a) {
  if (a.rows == 0 || a.n == 0 || a.batches == 0) return;
  activate();
  const cudaStream_t on = handle(stream);
  void*& workspace = workspaces_[stream.id];
  if (workspace == nullptr) workspace = allocate(CublasLt::kWorkspace);
  blas_->gemm(a, workspace, on);
}

}  // namespace shardline
