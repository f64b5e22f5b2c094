// MPI, only to bring processes together: who am I, and small broadcasts before NCCL can talk.
#pragma once

#include <cstddef>
#include <span>

namespace shardline {

/// One process of an MPI job. Errors of MPI end the job, as its own default is.
class MpiBootstrap {
 public:
  /// Initialises MPI; at most one at a time per process, and only once ever.
  MpiBootstrap();
  ~MpiBootstrap();
  MpiBootstrap(const MpiBootstrap&) = delete;
  MpiBootstrap& operator=(const MpiBootstrap&) = delete;

  int process() const { return process_; }
  int processes() const { return processes_; }
  /// Place among the processes of the same machine: the index of the GPU to use.
  int local_process() const { return local_process_; }

  /// See Broadcast in nccl.hpp.
  void broadcast(std::span<std::byte> data, std::span<const int> members) const;
  void barrier() const;

 private:
  int process_ = 0, processes_ = 1, local_process_ = 0;
};

}  // namespace shardline
