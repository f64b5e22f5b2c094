// Ranks on one GPU each, over NCCL. One process may hold all of them, or every process the same number.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "cuda_probe/gpu/cuda_gpu.hpp"
#include "cuda_probe/transport/transport.hpp"

namespace shardline {

/// Copies `data` from process members[0] to the other members (ascending, this process among them); only they
/// call. Unused where one process holds all ranks.
using Broadcast = std::function<void(std::span<std::byte> data, std::span<const int> members)>;

/// Communicators block: while one is made, all its processes must be in the call that needs it. Calls of
/// different groups may run at the same time on a GPU where no event orders their streams: NCCL demands that
/// every process then makes them in the same order.
class NcclTransport final : public Transport {
 public:
  /// This process holds ranks first, ..., first + gpus.size() - 1 of `ranks`; first and ranks are multiples
  /// of gpus.size(), which is equal in all processes. The GPUs must outlive the transport, and be different.
  /// Makes the communicator of all ranks. Throws GpuError with NCCL's own last message.
  NcclTransport(std::vector<CudaGpu*> gpus, int first, int ranks, Broadcast broadcast = nullptr);
  /// Waits for this process's devices.
  ~NcclTransport() override;
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  std::string name() const override { return "NCCL"; }
  int ranks() const override { return ranks_; }
  bool local(int rank) const override {
    return rank >= first_ && rank < first_ + static_cast<int>(gpus_.size());
  }
  /// Throws GpuError for ranks of other processes.
  Gpu& gpu(int rank) override { return device(rank); }

  /// Messages of zero bytes are left out on both sides.
  void exchange(std::span<const Message> messages, std::span<const Stream> streams) override;
  void all_gather(std::span<const int> group, std::span<const Buffers> buffers, std::size_t count,
                  Number number, std::span<const Stream> streams) override;
  void reduce_scatter(std::span<const int> group, std::span<const Buffers> buffers, std::size_t count,
                      Number number, std::span<const Stream> streams) override;
  void all_reduce(std::span<const int> group, std::span<const Buffers> buffers, std::size_t count,
                  Number number, std::span<const Stream> streams) override;

  /// Makes the group's communicator, which a collective otherwise does when it first needs it (about a
  /// second). All processes that hold a member call, several groups in the same order.
  void prepare(std::span<const int> group);
  /// Throws GpuError if a communicator reports an error of work that was started before.
  void check() const;

 private:
  using Communicators = std::vector<ncclComm_t>;  // by member; null: of another process
  using Start = std::function<ncclResult_t(std::size_t member, ncclComm_t, cudaStream_t)>;

  CudaGpu& device(int rank) const;
  const Communicators& communicators(std::span<const int> group);
  Communicators make(std::span<const int> group) const;
  void collective(const char* name, std::span<const int> group, std::span<const Stream> streams,
                  const Start& start);

  std::vector<CudaGpu*> gpus_;
  int first_, ranks_;
  Broadcast broadcast_;
  std::vector<int> all_;
  std::map<std::vector<int>, Communicators> groups_;
};

}  // namespace shardline
