// How ranks exchange data, whichever library does it. Work is enqueued on the ranks' streams and returns at
// once. Implementations: loopback (several ranks on one device: copies ordered by events) and NCCL (one
// process for all GPUs, or one process per GPU).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cuda_probe/gpu/gpu.hpp"

namespace shardline {

/// `bytes` bytes from one rank's memory to another's. Pointers of ranks that this process does not hold are
/// null.
struct Message {
  int from = 0, to = 0;
  const void* source = nullptr;
  void* target = nullptr;
  std::size_t bytes = 0;
};

enum class Number : std::uint8_t { bf16, fp32 };
constexpr std::size_t bytes_of(Number n) { return n == Number::bf16 ? 2 : 4; }

/// A rank's part in a collective. send may equal receive where both have the same size.
struct Buffers {
  const void* send = nullptr;
  void* receive = nullptr;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string name() const = 0;
  virtual int ranks() const = 0;
  /// Whether this process holds the rank.
  virtual bool local(int rank) const = 0;
  /// The device of a local rank. Ranks may share one.
  virtual Gpu& gpu(int rank) = 0;

  /// One grouped exchange. `streams` has one entry per rank (those of other processes are ignored). For each
  /// rank with a part in it: starts after what is in its stream now, and what its stream gets later starts
  /// after its own sends and receives ended. Between two ranks, messages pair up in their order. from == to
  /// is allowed. All processes pass the same messages, pointers aside.
  virtual void exchange(std::span<const Message> messages, std::span<const Stream> streams) = 0;

  /// Collectives over `group`, ranks in ascending order (all processes that hold one of them call). `buffers`
  /// and `streams` have one entry per member. `count`: numbers that each member sends (all_gather), receives
  /// (reduce_scatter), has (all_reduce). Sums are rounded to `number`, in an order that the library chooses.
  virtual void all_gather(std::span<const int> group, std::span<const Buffers> buffers, std::size_t count,
                          Number number, std::span<const Stream> streams) = 0;
  virtual void reduce_scatter(std::span<const int> group, std::span<const Buffers> buffers, std::size_t count,
                              Number number, std::span<const Stream> streams) = 0;
  virtual void all_reduce(std::span<const int> group, std::span<const Buffers> buffers, std::size_t count,
                          Number number, std::span<const Stream> streams) = 0;
};

}  // namespace shardline
