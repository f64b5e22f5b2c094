// One device as the executor, the transports and the probe see it: memory, streams, events and the kernels.
// Two kinds: CUDA (cuda_gpu.hpp) and a stand-in on the CPU (emulated_gpu.hpp) that runs the work of different
// streams in any order that events leave open, so that a missing event shows without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "cuda_probe/kernels/attention.hpp"
#include "cuda_probe/kernels/elementwise.hpp"
#include "cuda_probe/kernels/merge.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// A call of the driver or of a library that failed; the text names call, error, file and line.
class GpuError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// In-order queue of a device. Ids count from 0 per device.
struct Stream {
  std::uint32_t id = 0;
};
struct Event {
  std::uint32_t id = 0;
};

/// `rows` runs of `row_bytes` bytes, the starts of rows `source_pitch` and `target_pitch` bytes apart. All
/// rows read before any is written is NOT promised: source and target must not overlap.
struct Copy {
  const void* source = nullptr;
  void* target = nullptr;
  std::size_t rows = 1, row_bytes = 0, source_pitch = 0, target_pitch = 0;
};

/// out[b] = a[b] * w[b] for `batches` row-major matrices in bfloat16, fp32 accumulation: a [rows, k], w
/// [k, n]. Strides in elements; *_row between rows, *_batch between matrices. Multiples of 8 everywhere.
struct GemmArguments {
  const Bf16 *a = nullptr, *w = nullptr;
  Bf16* out = nullptr;
  std::int64_t rows = 0, k = 0, n = 0;
  std::int64_t a_row = 0, w_row = 0, out_row = 0;
  std::int64_t batches = 1, a_batch = 0, w_batch = 0, out_batch = 0;
};

/// Everything that takes a Stream is enqueued there and returns at once; argument structs are copied, memory
/// they point to must live until the work is done. Throws GpuError.
class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual std::string name() const = 0;
  virtual int multiprocessors() const = 0;

  /// Aligned to 256 bytes, contents undefined. Freed with the device at the latest.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;

  virtual Stream stream() = 0;
  virtual Event event() = 0;
  /// The event completes when all that is in the stream now has ended. Recording again replaces it.
  virtual void record(Event event, Stream stream) = 0;
  /// Later work of the stream waits for the event's latest record; without one, for nothing.
  virtual void wait(Stream stream, Event event) = 0;
  /// Waits for all streams.
  virtual void synchronize() = 0;
  /// Between two recorded, completed events.
  virtual Seconds elapsed(Event from, Event to) = 0;

  /// Host to device and back; both wait until the copy is done, and for work enqueued before on any stream.
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;

  virtual void fill(Stream stream, void* to, std::uint8_t byte, std::size_t bytes) = 0;
  virtual void copy(Stream stream, const Copy& copy) = 0;

  virtual void prefill(Stream stream, const PrefillArguments& a) = 0;
  virtual void decode(Stream stream, const DecodeArguments& a) = 0;
  virtual void mla_decode(Stream stream, const MlaDecodeArguments& a) = 0;
  virtual void merge(Stream stream, const MergeArguments& a) = 0;
  virtual void compress(Stream stream, const CompressArguments& a) = 0;
  virtual void rms_norm(Stream stream, const RowArguments& a) = 0;
  virtual void swiglu(Stream stream, const RowArguments& a) = 0;
  virtual void add(Stream stream, const RowArguments& a) = 0;
  virtual void gemm(Stream stream, const GemmArguments& a) = 0;
};

}  // namespace shardline
