#include "cuda_probe/transport/nccl.hpp"

#include <fmt/format.h>

#include <exception>
#include <numeric>

#include "cuda_probe/transport/checks.hpp"
#include "cuda_probe/transport/nccl_call.hpp"

namespace shardline {

namespace {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 13, 0), "ncclGetLastError came with NCCL 2.13");

ncclDataType_t type_of(Number number) { return number == Number::bf16 ? ncclBfloat16 : ncclFloat32; }

}  // namespace

void require_nccl(ncclResult_t result, const char* call, const char* file, int line,
                  ncclComm_t communicator) {
  if (result == ncclSuccess) return;
  const char* last = ncclGetLastError(communicator);
  throw GpuError(fmt::format("{}:{}: {}: {}{}{}", file, line, call, ncclGetErrorString(result),
                             last != nullptr && *last != '\0' ? ": " : "", last != nullptr ? last : ""));
}

NcclTransport::NcclTransport(std::vector<CudaGpu*> gpus, int first, int ranks, Broadcast broadcast)
    : gpus_(std::move(gpus)), first_(first), ranks_(ranks), broadcast_(std::move(broadcast)) {
  const int own = static_cast<int>(gpus_.size());
  if (own == 0 || first < 0 || ranks < first + own || first % own != 0 || ranks % own != 0)
    throw GpuError(
        fmt::format("NCCL: a process with {} GPUs cannot begin at rank {} of {}", own, first, ranks));
  if (own < ranks && broadcast_ == nullptr)
    throw GpuError("NCCL: ranks of several processes need a broadcast between them");
  all_.resize(static_cast<std::size_t>(ranks));
  std::iota(all_.begin(), all_.end(), 0);
  prepare(all_);
}

NcclTransport::~NcclTransport() {
  // After an error a communicator must be aborted: destroying it would wait for work that never ends.
  bool failed = false;
  for (const auto& [group, communicators] : groups_) {
    for (const ncclComm_t c : communicators) {
      ncclResult_t state = ncclSuccess;
      failed = failed ||
               (c != nullptr && (ncclCommGetAsyncError(c, &state) != ncclSuccess || state != ncclSuccess));
    }
  }
  try {
    if (!failed) {
      for (CudaGpu* gpu : gpus_) gpu->synchronize();
    }
  } catch (const GpuError&) {
    failed = true;
  }
  ncclGroupStart();
  for (const auto& [group, communicators] : groups_) {
    for (const ncclComm_t c : communicators) {
      if (c != nullptr) failed ? ncclCommAbort(c) : ncclCommDestroy(c);
    }
  }
  ncclGroupEnd();
}

CudaGpu& NcclTransport::device(int rank) const {
  if (!local(rank)) throw GpuError(fmt::format("NCCL: rank {} belongs to another process", rank));
  return *gpus_[static_cast<std::size_t>(rank - first_)];
}

NcclTransport::Communicators NcclTransport::make(std::span<const int> group) const {
  const int own = static_cast<int>(gpus_.size());
  std::vector<int> processes;
  for (const int rank : group) {
    if (processes.empty() || processes.back() != rank / own) processes.push_back(rank / own);
  }
  ncclUniqueId id{};
  if (processes.front() == first_ / own) SL_NCCL(ncclGetUniqueId(&id));
  if (processes.size() > 1) broadcast_(std::as_writable_bytes(std::span(&id, 1)), processes);
  Communicators made(group.size(), nullptr);
  grouped([&] {
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (!local(group[i])) continue;
      SL_CUDA(cudaSetDevice(device(group[i]).index()));
      SL_NCCL(ncclCommInitRank(&made[i], static_cast<int>(group.size()), id, static_cast<int>(i)));
    }
  });
  return made;
}

const NcclTransport::Communicators& NcclTransport::communicators(std::span<const int> group) {
  const std::vector<int> key(group.begin(), group.end());
  const auto found = groups_.find(key);
  return found != groups_.end() ? found->second : groups_.emplace(key, make(group)).first->second;
}

void NcclTransport::prepare(std::span<const int> group) {
  check_collective(*this, "prepare", group, std::vector<Buffers>(group.size()), 0,
                   std::vector<Stream>(group.size()));
  for (const int rank : group) {
    if (local(rank)) {
      communicators(group);
      return;
    }
  }
}

void NcclTransport::check() const {
  for (const auto& [group, communicators] : groups_) {
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (communicators[i] == nullptr) continue;
      ncclResult_t state = ncclSuccess;
      SL_NCCL(ncclCommGetAsyncError(communicators[i], &state));
      if (state == ncclSuccess) continue;
      const char* last = ncclGetLastError(communicators[i]);
      throw GpuError(fmt::format("NCCL: rank {} reports {} (communicator of {} ranks): {}", group[i],
                                 ncclGetErrorString(state), group.size(), last != nullptr ? last : ""));
    }
  }
}

void NcclTransport::exchange(std::span<const Message> messages, std::span<const Stream> streams) {
  check_exchange(*this, messages, streams);
  const Communicators& all = communicators(all_);
  grouped([&] {
    for (const Message& m : messages) {
      if (m.bytes == 0) continue;
      const auto from = static_cast<std::size_t>(m.from), to = static_cast<std::size_t>(m.to);
      if (local(m.from)) {
        SL_NCCL(
            ncclSend(m.source, m.bytes, ncclUint8, m.to, all[from], device(m.from).handle(streams[from])));
      }
      if (local(m.to)) {
        SL_NCCL(ncclRecv(m.target, m.bytes, ncclUint8, m.from, all[to], device(m.to).handle(streams[to])));
      }
    }
  });
  check();
}

void NcclTransport::collective(const char* name, std::span<const int> group, std::span<const Stream> streams,
                               const Start& start) {
  const Communicators& c = communicators(group);
  grouped([&] {
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (!local(group[i])) continue;
      require_nccl(start(i, c[i], device(group[i]).handle(streams[i])), name, __FILE__, __LINE__, c[i]);
    }
  });
  check();
}

void NcclTransport::all_gather(std::span<const int> group, std::span<const Buffers> buffers,
                               std::size_t count, Number number, std::span<const Stream> streams) {
  check_collective(*this, "all_gather", group, buffers, count, streams);
  if (count == 0) return;
  collective("ncclAllGather", group, streams, [&](std::size_t i, ncclComm_t c, cudaStream_t stream) {
    return ncclAllGather(buffers[i].send, buffers[i].receive, count, type_of(number), c, stream);
  });
}

void NcclTransport::reduce_scatter(std::span<const int> group, std::span<const Buffers> buffers,
                                   std::size_t count, Number number, std::span<const Stream> streams) {
  check_collective(*this, "reduce_scatter", group, buffers, count, streams);
  if (count == 0) return;
  collective("ncclReduceScatter", group, streams, [&](std::size_t i, ncclComm_t c, cudaStream_t stream) {
    return ncclReduceScatter(buffers[i].send, buffers[i].receive, count, type_of(number), ncclSum, c, stream);
  });
}

void NcclTransport::all_reduce(std::span<const int> group, std::span<const Buffers> buffers,
                               std::size_t count, Number number, std::span<const Stream> streams) {
  check_collective(*this, "all_reduce", group, buffers, count, streams);
  if (count == 0) return;
  collective("ncclAllReduce", group, streams, [&](std::size_t i, ncclComm_t c, cudaStream_t stream) {
    return ncclAllReduce(buffers[i].send, buffers[i].receive, count, type_of(number), ncclSum, c, stream);
  });
}

}  // namespace shardline
