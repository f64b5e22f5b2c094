// All GPUs of this machine as NCCL ranks of one process.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "cuda_probe/probes/bench.hpp"

#ifdef SHARDLINE_HAVE_NCCL
#include "cuda_probe/transport/nccl_call.hpp"

namespace shardline {

/// Rank 0 is the bench's device. With one GPU, it is alone.
class NcclRanks {
 public:
  explicit NcclRanks(Bench& bench);
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  int size() const { return static_cast<int>(devices_.size()); }
  int device(int rank) const { return devices_[static_cast<std::size_t>(rank)]; }
  ncclComm_t comm(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
  cudaStream_t stream(int rank) const { return streams_[static_cast<std::size_t>(rank)]; }

 private:
  Bench& bench_;
  std::vector<int> devices_;
  std::vector<ncclComm_t> comms_;
  std::vector<cudaStream_t> streams_;  // rank 0's is the bench's
};

}  // namespace shardline
#endif
