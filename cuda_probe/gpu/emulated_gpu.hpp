// A device on the CPU. Nothing runs before the host waits (synchronize, upload, download); then the streams'
// queues run piece by piece in one of the orders that streams and events leave open. Finds out-of-range
// accesses, use of released memory and races. Its kernels are plain loops: reference_kernels.hpp.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "cuda_probe/gpu/gpu.hpp"
#include "cuda_probe/gpu/memory_map.hpp"
#include "cuda_probe/gpu/races.hpp"

namespace shardline {

/// Which stream goes on where several can.
enum class StreamOrder : std::uint8_t { random, by_stream, latest_stream_first, as_enqueued };

struct EmulatedOptions {
  std::uint64_t seed = 0;  // of StreamOrder::random
  StreamOrder order = StreamOrder::random;
  bool race_check = true;
};

/// Invented times, so that their order can be tested: a piece of work takes 1 us and 1 ns per byte touched.
/// After an error, all work not yet done is dropped; waiting for an event among it is an error.
class EmulatedGpu final : public Gpu {
 public:
  explicit EmulatedGpu(const EmulatedOptions& options = {});

  std::string name() const override { return "emulated"; }
  int multiprocessors() const override { return 4; }

  void* allocate(std::size_t bytes) override { return memory_.allocate(bytes); }
  /// Memory that work not yet done still uses: GpuError when that work runs.
  void release(void* memory) override { memory_.release(memory); }

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
  void gemm(Stream stream, const GemmArguments& a) override;

  /// Pieces of work done so far (copies, fills, kernels).
  std::uint64_t done() const { return done_; }

 private:
  /// One record() of an event.
  struct Record {
    std::uint32_t event = 0;
    bool done = false;
    Seconds time{};
    Clock clock;
  };
  struct Work {
    std::uint64_t number = 0;  // in order of enqueueing
    std::string name;
    std::function<void(Touches&)> touch;  // null: a record or a wait
    std::function<void()> compute;
    std::shared_ptr<Record> record, awaited;
    Clock clock;
  };
  struct Queue {
    std::deque<Work> work;
    Clock clock;     // of what is enqueued
    Seconds time{};  // at which what is done ended
  };

  Queue& queue(Stream stream);
  std::shared_ptr<Record>& latest(Event event);
  void enqueue(Stream stream, const char* name, std::function<void(Touches&)> touch,
               std::function<void()> compute);
  template <class Kernel>
  void enqueue_kernel(Stream stream, const char* name, const Kernel& kernel);
  /// Index of the stream that goes on; -1: all queues are empty. Throws GpuError if none of the rest can.
  int pick();
  void step(Queue& queue, std::uint32_t stream);

  EmulatedOptions options_;
  std::mt19937_64 random_;
  MemoryMap memory_;
  RaceLog races_;
  std::deque<Queue> queues_;                     // by stream
  std::vector<std::shared_ptr<Record>> events_;  // latest record; null: none
  std::uint64_t enqueued_ = 0, done_ = 0;
};

}  // namespace shardline
