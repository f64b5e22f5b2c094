#include "cuda_probe/cli/devices.hpp"

#include "cuda_probe/gpu/cuda_gpu.hpp"
#include "cuda_probe/transport/loopback.hpp"

#ifdef SHARDLINE_HAVE_NCCL
#include "cuda_probe/transport/nccl.hpp"
#endif

namespace shardline::probe_cli {

Ranks real_ranks(int ranks) {
  Ranks made;
  const int devices = cuda_devices();
  if (devices == 0) return made;
#ifdef SHARDLINE_HAVE_NCCL
  if (ranks > 1 && devices >= ranks) {
    std::vector<CudaGpu*> members;
    for (int i = 0; i < ranks; ++i) {
      auto gpu = std::make_unique<CudaGpu>(i);
      members.push_back(gpu.get());
      made.gpus.push_back(std::move(gpu));
    }
    made.transport = std::make_unique<NcclTransport>(members, 0, ranks);
    return made;
  }
#endif
  made.gpus.push_back(std::make_unique<CudaGpu>(0));
  made.transport = std::make_unique<LoopbackTransport>(*made.gpus.front(), ranks);
  return made;
}

}  // namespace shardline::probe_cli
