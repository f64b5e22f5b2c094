// Several ranks on one device: messages are copies on the receivers' streams, ordered by events only. For
// machines with fewer devices than ranks, and for tests without any device.
#pragma once

#include <functional>
#include <vector>

#include "cuda_probe/transport/transport.hpp"

namespace shardline {

/// Sums round to bfloat16 after every addition, in ascending order of ranks, and are the same on every rank;
/// sums in float32 throw GpuError. Takes as long as copies within one device do: says nothing about links.
class LoopbackTransport : public Transport {
 public:
  /// `gpu` must outlive the transport.
  LoopbackTransport(Gpu& gpu, int ranks);
  /// Waits for the device.
  ~LoopbackTransport() override;
  LoopbackTransport(const LoopbackTransport&) = delete;
  LoopbackTransport& operator=(const LoopbackTransport&) = delete;

  std::string name() const override { return "loopback"; }
  int ranks() const override { return static_cast<int>(ranks_.size()); }
  bool local(int) const override { return true; }
  Gpu& gpu(int) override { return gpu_; }

  void exchange(std::span<const Message> messages, std::span<const Stream> streams) override;
  /// A member may gather in place: send is its part of receive.
  void all_gather(std::span<const int> group, std::span<const Buffers> buffers, std::size_t count,
                  Number number, std::span<const Stream> streams) override;
  /// A member may reduce in place: receive is its part of send. Any other overlap of a receive buffer and a
  /// send buffer throws GpuError.
  void reduce_scatter(std::span<const int> group, std::span<const Buffers> buffers, std::size_t count,
                      Number number, std::span<const Stream> streams) override;
  void all_reduce(std::span<const int> group, std::span<const Buffers> buffers, std::size_t count,
                  Number number, std::span<const Stream> streams) override;

 protected:
  /// Events go through here, so that a test can leave one out. `why` is "ready", "taken" or "scratch".
  virtual void record(Event event, Stream stream, const char* why);
  virtual void wait(Stream stream, Event event, const char* why);

 private:
  struct Rank {
    Event ready, taken, scratch_free;
    void* scratch = nullptr;
    std::size_t scratch_bytes = 0;
  };
  struct Member {
    Rank& rank;
    Stream stream;
    Buffers buffers;
  };

  std::vector<Member> members(std::span<const int> group, std::span<const Buffers> buffers,
                              std::span<const Stream> streams);
  /// Runs `take` for every member after all members are ready; then every member waits for all others.
  void together(std::span<Member> members, const std::function<void(std::size_t)>& take);
  /// Memory of the rank that nothing enqueued before on any stream uses when the stream gets there; return it
  /// with done_with_scratch().
  std::byte* scratch(Rank& rank, Stream stream, std::size_t bytes);
  void done_with_scratch(Rank& rank, Stream stream);
  void copy(Stream stream, void* to, const void* from, std::size_t bytes);
  /// Sum over members of count numbers, `offset` numbers into their send buffers. Needs scratch of
  /// sum_scratch(count) bytes; returns its place there.
  Bf16* sum(Stream stream, std::span<const Member> members, std::size_t offset, std::size_t count,
            std::byte* scratch);

  Gpu& gpu_;
  std::vector<Rank> ranks_;
  std::vector<void*> outgrown_;  // work in flight may still use them
};

}  // namespace shardline
