#include "cuda_probe/probes/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace shardline {

namespace {

constexpr std::size_t kMostArena = std::size_t{24} << 30, kLeastFlush = std::size_t{256} << 20;
constexpr double kGraphTime = 150e-6;  // events resolve half a microsecond
constexpr int kMostCopies = 32;
constexpr auto kStateAge = std::chrono::milliseconds(2);  // NVML takes long compared with a small kernel

std::string bus_id(int device) {
  std::array<char, 32> text{};
  SL_CUDA(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device));
  return text.data();
}

// A captured sequence of calls.
class Graph {
 public:
  Graph(cudaStream_t stream, const std::function<void()>& enqueue) {
    SL_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    SL_CUDA(cudaStreamEndCapture(stream, &graph));
    const cudaError_t status = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    SL_CUDA(status);
    SL_CUDA(cudaGraphUpload(exec_, stream));
  }
  ~Graph() { cudaGraphExecDestroy(exec_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { SL_CUDA(cudaGraphLaunch(exec_, stream)); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace

void launched(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  // Refused before anything ran: the device goes on.
  constexpr cudaError_t kRefusals[] = {cudaErrorInvalidValue,          cudaErrorNotSupported,
                                       cudaErrorInvalidConfiguration,  cudaErrorLaunchOutOfResources,
                                       cudaErrorInvalidDeviceFunction, cudaErrorNoKernelImageForDevice};
  if (std::find(std::begin(kRefusals), std::end(kRefusals), status) != std::end(kRefusals)) {
    cudaGetLastError();
    throw Unsupported(fmt::format("{}: {}", what, cudaGetErrorString(status)));
  }
  require_cuda(status, what, __FILE__, __LINE__);
}

Bench::Bench(int device) : device_(device), nvml_(bus_id(device)) {
  SL_CUDA(cudaSetDevice(device));
  SL_CUDA(cudaGetDeviceProperties(&properties_, device));
  SL_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  SL_CUDA(cudaEventCreate(&before_));
  SL_CUDA(cudaEventCreate(&after_));
  std::size_t free = 0, all = 0;
  SL_CUDA(cudaMemGetInfo(&free, &all));
  flush_bytes_ = std::max(kLeastFlush, 2 * static_cast<std::size_t>(properties_.l2CacheSize)) / 256 * 256;
  if (free < 4 * flush_bytes_)
    throw UserError(fmt::format("GPU {} has {} of memory free: too little to measure on", device,
                                to_string(Bytes(static_cast<double>(free)))));
  SL_CUDA(cudaMalloc(&flush_, flush_bytes_));
  SL_CUDA(cudaMalloc(&sink_, 256));
  arena_bytes_ = std::min(kMostArena, (free - flush_bytes_) * 6 / 10) / 256 * 256;
  cudaError_t taken = cudaMalloc(&arena_, arena_bytes_);
  while (taken == cudaErrorMemoryAllocation && arena_bytes_ > flush_bytes_) {  // free memory in pieces
    cudaGetLastError();
    arena_bytes_ = arena_bytes_ / 2 / 256 * 256;
    taken = cudaMalloc(&arena_, arena_bytes_);
  }
  SL_CUDA(taken);
  fill_random(flush_, flush_bytes_, Data::bf16, 0, stream_);
  SL_CUDA(cudaGetLastError());
  SL_CUDA(cudaStreamSynchronize(stream_));
}

Bench::~Bench() {
  cudaStreamSynchronize(stream_);
  for (void* memory : {arena_, flush_, sink_}) cudaFree(memory);
  cudaEventDestroy(before_);
  cudaEventDestroy(after_);
  cudaStreamDestroy(stream_);
}

void* Bench::take(std::size_t bytes) {
  const std::size_t whole = (bytes + 255) / 256 * 256;
  if (whole > arena_bytes_ - taken_) throw Unsupported("operands do not fit the memory set aside");
  void* out = static_cast<char*>(arena_) + taken_;
  taken_ += whole;
  return out;
}

void* Bench::take_random(std::size_t bytes, Data kind) {
  void* out = take(bytes);
  fill_random(out, (bytes + 15) / 16 * 16, kind, seed_++, stream_);
  SL_CUDA(cudaGetLastError());
  return out;
}

void Bench::upload(void* to, const void* from, std::size_t bytes) {
  SL_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
  SL_CUDA(cudaStreamSynchronize(stream_));  // the caller's memory may go
}

Reading Bench::sample(const std::function<void(cudaStream_t)>& work, double calls, bool cold) {
  // Reading the flush buffer lasts longer than the host needs to enqueue what follows, so the device does not
  // wait for it inside the timed interval.
  if (cold) read_through(flush_, flush_bytes_, sms(), sink_, stream_);
  SL_CUDA(cudaGetLastError());
  SL_CUDA(cudaEventRecord(before_, stream_));
  work(stream_);
  SL_CUDA(cudaEventRecord(after_, stream_));
  SL_CUDA(cudaEventSynchronize(after_));
  const auto now = std::chrono::steady_clock::now();
  if (now - state_read_ >= kStateAge) {
    state_ = nvml_.state();
    state_read_ = now;
  }
  float milliseconds_taken = 0;
  SL_CUDA(cudaEventElapsedTime(&milliseconds_taken, before_, after_));
  // Two events on an idle stream may get one time stamp.
  const double seconds = std::max(static_cast<double>(milliseconds_taken) * 1e-3, 1e-9);
  return {Seconds(seconds / calls), state_.clock, state_.throttled, state_.capped};
}

Measured Bench::measure(const std::function<void(cudaStream_t)>& work, double calls, bool cold) {
  return shardline::measure(rule_, [&] { return sample(work, calls, cold); });
}

Measured Bench::measure(const Trial& trial) {
  const std::size_t before = taken_;
  trial.prepare(0);
  const std::size_t each = std::max<std::size_t>(256, taken_ - before);
  const auto one = [&](cudaStream_t s) { trial.enqueue(0, s); };
  // The first calls load modules and let libraries choose.
  double time = sample(one, 1, true).time.value;
  for (int again = 0; again < 2 && time < rule_.long_call.value; ++again)
    time = sample(one, 1, true).time.value;
  const auto room = static_cast<double>(1 + (arena_bytes_ - taken_) / each);
  const int copies =
      static_cast<int>(std::min({std::ceil(kGraphTime / time), room, static_cast<double>(kMostCopies)}));
  if (copies <= 1) return measure(one, 1, true);
  for (int c = 1; c < copies; ++c) trial.prepare(c);
  SL_CUDA(cudaStreamSynchronize(stream_));
  const Graph graph(stream_, [&] {
    for (int c = 0; c < copies; ++c) trial.enqueue(c, stream_);
  });
  return measure([&](cudaStream_t s) { graph.launch(s); }, copies, true);
}

DeviceMemory::DeviceMemory(int device, std::size_t bytes) : device_(device) {
  int current = 0;
  SL_CUDA(cudaGetDevice(&current));
  SL_CUDA(cudaSetDevice(device));
  const cudaError_t status = cudaMalloc(&memory_, bytes);
  if (status == cudaSuccess) {
    fill_random(memory_, bytes / 16 * 16, Data::bf16, static_cast<std::uint64_t>(device) + 77, nullptr);
    cudaDeviceSynchronize();
  }
  SL_CUDA(cudaSetDevice(current));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw Unsupported("operands do not fit the memory of the GPU");
  }
  SL_CUDA(status);
}

DeviceMemory::~DeviceMemory() {
  int current = 0;
  cudaGetDevice(&current);
  cudaSetDevice(device_);
  cudaFree(memory_);
  cudaSetDevice(current);
}

}  // namespace shardline
