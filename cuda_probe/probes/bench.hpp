// One GPU on which shapes are measured: memory for operands, cold caches, events, graphs, clocks.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>

#include "cuda_probe/gpu/cuda_gpu.hpp"
#include "cuda_probe/probes/bench_kernels.hpp"
#include "cuda_probe/probes/nvml.hpp"
#include "cuda_probe/probes/run_probes.hpp"

namespace shardline {

/// A shape that this device or a library cannot run: noted, not an error.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// SL_CUDA, but a shape that a kernel refuses is Unsupported.
void launched(cudaError_t status, const char* what);

/// One call to measure, on several sets of operands. prepare(copy) takes memory for set `copy` (0, 1, ... in
/// turn) and fills it; enqueue(copy) starts the call on it.
struct Trial {
  std::function<void(int copy)> prepare;
  std::function<void(int copy, cudaStream_t stream)> enqueue;
};

class Bench {
 public:
  explicit Bench(int device);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  int device() const { return device_; }
  const cudaDeviceProp& properties() const { return properties_; }
  int sms() const { return properties_.multiProcessorCount; }
  /// 90 for compute capability 9.0.
  int capability() const { return 10 * properties_.major + properties_.minor; }
  cudaStream_t stream() const { return stream_; }
  const Nvml& nvml() const { return nvml_; }
  MeasureRule& rule() { return rule_; }

  /// Memory of the shape that is measured, aligned to 256 bytes, freed with the next shape. Throws
  /// Unsupported where there is not enough.
  void* take(std::size_t bytes);
  void* take_random(std::size_t bytes, Data kind = Data::bf16);
  template <class T>
  T* take_copy(const std::vector<T>& values) {
    void* to = take(values.size() * sizeof(T));
    upload(to, values.data(), values.size() * sizeof(T));
    return static_cast<T*>(to);
  }
  /// Frees what was taken.
  void clear() { taken_ = 0; }

  /// Time of one call. Calls of less than about 150 us are measured by several in one CUDA graph, each on
  /// operands of its own.
  Measured measure(const Trial& trial);
  /// Time of `work` over `calls`. cold: other data is read through the L2 cache before each sample.
  Measured measure(const std::function<void(cudaStream_t)>& work, double calls, bool cold);

 private:
  void upload(void* to, const void* from, std::size_t bytes);
  Reading sample(const std::function<void(cudaStream_t)>& work, double calls, bool cold);

  int device_;
  cudaDeviceProp properties_{};
  Nvml nvml_;
  MeasureRule rule_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t before_ = nullptr, after_ = nullptr;
  void *arena_ = nullptr, *flush_ = nullptr, *sink_ = nullptr;
  std::size_t arena_bytes_ = 0, flush_bytes_ = 0, taken_ = 0;
  std::uint64_t seed_ = 1;
  Nvml::State state_;
  std::chrono::steady_clock::time_point state_read_{};
};

/// Memory of any device, for what does not fit a Bench (several GPUs).
class DeviceMemory {
 public:
  DeviceMemory(int device, std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* get() const { return memory_; }

 private:
  int device_;
  void* memory_ = nullptr;
};

/// A probe at work: its device, its time, whom to tell.
class ProbeRun {
 public:
  ProbeRun(Bench& on, const Probe& probe, const RunListener& listener, bool quick,
           std::chrono::steady_clock::time_point deadline)
      : bench(on), probe_(probe), listener_(listener), quick_(quick), deadline_(deadline) {}

  Bench& bench;

  /// Calls measure_one for each shape until time runs out. Shapes that are Unsupported are counted by reason
  /// and noted in `out`. Any other failure ends the probe: noted too, and kept for failure(), so that what
  /// was measured before is not lost.
  template <class C, class F>
  void each(FamilyResult& out, const std::vector<C>& shapes, F measure_one) {
    const std::size_t n = quick_ ? std::min<std::size_t>(kQuickShapes, shapes.size()) : shapes.size();
    std::map<std::string, std::size_t> refused;
    std::size_t done = 0;
    for (; done < n && !over(); ++done) {
      progress(done, n);
      bench.clear();
      try {
        measure_one(shapes[done]);
      } catch (const Unsupported& e) {
        ++refused[e.what()];
      } catch (const std::exception& e) {
        failure_ = fmt::format("{}, {}: {}", probe_.name, text_of(shapes[done]), e.what());
        out.note("failed: " + failure_);
        break;
      }
    }
    progress(n, n);
    for (const auto& [why, count] : refused) out.note(std::to_string(count) + " shapes left out: " + why);
    out.unmeasured(n - done, n, !failure_.empty() ? "failed" : interrupted() ? "interrupted" : "out of time");
  }
  void finish(const FamilyResult& family) { listener_.done(family); }
  /// Probe, shape and error that ended each(); empty: none.
  const std::string& failure() const { return failure_; }

 private:
  static constexpr std::size_t kQuickShapes = 6;
  static std::string text_of(std::int64_t shape) { return std::to_string(shape); }
  template <class C>
  static std::string text_of(const C& shape) {
    return to_string(shape);
  }
  bool interrupted() const { return listener_.interrupted && listener_.interrupted(); }
  // A failed device stays failed: a probe of two parts does not go on.
  bool over() const {
    return std::chrono::steady_clock::now() >= deadline_ || interrupted() || !failure_.empty();
  }
  void progress(std::size_t done, std::size_t of) const {
    if (listener_.progress) listener_.progress(probe_, done, of);
  }

  const Probe& probe_;
  const RunListener& listener_;
  bool quick_;
  std::chrono::steady_clock::time_point deadline_;
  std::string failure_;
};

/// The probes. Each fills its families and hands them to the probe_run.
void probe_hbm(ProbeRun& probe_run);
void probe_gemm(ProbeRun& probe_run, const std::vector<GemmCase>& shapes);
void probe_attention(ProbeRun& probe_run, const std::vector<PrefillCase>& shapes);
void probe_decode(ProbeRun& probe_run, const std::vector<DecodeCase>& shapes);
void probe_mla(ProbeRun& probe_run, const std::vector<MlaCase>& shapes);
void probe_merge(ProbeRun& probe_run, const std::vector<MergeCase>& shapes);
void probe_launch(ProbeRun& probe_run);
void probe_p2p(ProbeRun& probe_run);
void probe_collective(ProbeRun& probe_run);
void probe_ring(ProbeRun& probe_run);

/// Bytes read and written per second by a large copy: what memory-bound kernels are compared with.
BytesPerSecond copy_bandwidth(Bench& bench);

/// Versions of the libraries as they were found, or why there is none.
std::string cublaslt_version();
std::string cudnn_version();
std::string nccl_version();

}  // namespace shardline
