// NCCL's collectives over all GPUs of this machine; with one GPU, a message to itself.
#include <fmt/format.h>

#include <cmath>

#include "cuda_probe/probes/bench.hpp"
#include "cuda_probe/probes/nccl_ranks.hpp"

#ifdef SHARDLINE_HAVE_NCCL

namespace shardline {

NcclRanks::NcclRanks(Bench& bench) : bench_(bench) {
  devices_.push_back(bench.device());
  for (int d = 0; d < cuda_devices(); ++d) {
    if (d != bench.device()) devices_.push_back(d);
  }
  comms_.resize(devices_.size());
  const ncclResult_t result = ncclCommInitAll(comms_.data(), size(), devices_.data());
  if (result != ncclSuccess) {
    cudaGetLastError();
    throw Unsupported(fmt::format("NCCL does not start on {} GPUs: {}", size(), ncclGetErrorString(result)));
  }
  streams_.push_back(bench.stream());
  for (int r = 1; r < size(); ++r) {
    SL_CUDA(cudaSetDevice(device(r)));
    cudaStream_t stream = nullptr;
    SL_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    streams_.push_back(stream);
  }
  SL_CUDA(cudaSetDevice(bench.device()));
}

NcclRanks::~NcclRanks() {
  // After an error a communicator must be aborted: destroying it would wait for work that never ends.
  bool failed = false;
  for (int r = 0; r < size(); ++r) {
    ncclResult_t state = ncclSuccess;
    cudaSetDevice(device(r));
    failed = failed || cudaGetLastError() != cudaSuccess ||
             ncclCommGetAsyncError(comm(r), &state) != ncclSuccess || state != ncclSuccess;
  }
  for (int r = 0; r < size() && !failed; ++r) failed = cudaStreamSynchronize(stream(r)) != cudaSuccess;
  ncclGroupStart();
  for (const ncclComm_t c : comms_) failed ? ncclCommAbort(c) : ncclCommDestroy(c);
  ncclGroupEnd();
  for (int r = 1; r < size(); ++r) cudaStreamDestroy(stream(r));
  cudaSetDevice(bench_.device());
}

namespace {

constexpr double kSampleTime = 200e-6;

// `count` bfloat16 numbers are the message: what all ranks hold at the end of an all_gather or before a
// reduce_scatter or alltoall, as nccl-tests counts; at least one per rank.
void enqueue(const NcclRanks& ranks, const std::string& op, std::size_t count,
             const std::vector<std::unique_ptr<DeviceMemory>>& from,
             const std::vector<std::unique_ptr<DeviceMemory>>& to) {
  const auto n = static_cast<std::size_t>(ranks.size());
  const std::size_t part = std::max<std::size_t>(1, count / n);
  grouped([&] {
    for (int r = 0; r < ranks.size(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      const void* send = from[i]->get();
      void* receive = to[i]->get();
      const ncclComm_t comm = ranks.comm(r);
      const cudaStream_t stream = ranks.stream(r);
      if (op == "all_reduce") {
        SL_NCCL(ncclAllReduce(send, receive, count, ncclBfloat16, ncclSum, comm, stream));
      } else if (op == "all_gather") {
        SL_NCCL(ncclAllGather(send, receive, part, ncclBfloat16, comm, stream));
      } else if (op == "reduce_scatter") {
        SL_NCCL(ncclReduceScatter(send, receive, part, ncclBfloat16, ncclSum, comm, stream));
      } else if (op == "alltoall") {
        for (int peer = 0; peer < ranks.size(); ++peer) {
          const std::size_t at = static_cast<std::size_t>(peer) * part * 2;
          SL_NCCL(ncclSend(static_cast<const char*>(send) + at, part, ncclBfloat16, peer, comm, stream));
          SL_NCCL(ncclRecv(static_cast<char*>(receive) + at, part, ncclBfloat16, peer, comm, stream));
        }
      } else {
        const int next = (r + 1) % ranks.size(), last = (r + ranks.size() - 1) % ranks.size();
        SL_NCCL(ncclSend(send, count, ncclBfloat16, next, comm, stream));
        SL_NCCL(ncclRecv(receive, count, ncclBfloat16, last, comm, stream));
      }
    }
  });
}

void synchronize(const NcclRanks& ranks) {
  for (int r = 0; r < ranks.size(); ++r) SL_CUDA(cudaStreamSynchronize(ranks.stream(r)));
}

void measure_all(ProbeRun& probe_run, const NcclRanks& ranks, FamilyResult& out) {
  Bench& b = probe_run.bench;
  std::vector<std::string> ops{"sendrecv"};
  if (ranks.size() > 1) ops = {"all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"};
  probe_run.each(out, message_sizes(), [&](std::int64_t bytes) {
    std::vector<std::unique_ptr<DeviceMemory>> from, to;
    const auto room = static_cast<std::size_t>(bytes) + 4096;
    for (int r = 0; r < ranks.size(); ++r) {
      from.push_back(std::make_unique<DeviceMemory>(ranks.device(r), room));
      to.push_back(std::make_unique<DeviceMemory>(ranks.device(r), room));
    }
    for (const std::string& op : ops) {
      const auto calls = [&](double count) {
        return [&, count](cudaStream_t) {
          for (double i = 0; i < count; ++i)
            enqueue(ranks, op, static_cast<std::size_t>(bytes) / 2, from, to);
        };
      };
      calls(3)(b.stream());  // connects
      synchronize(ranks);
      const auto start = std::chrono::steady_clock::now();
      calls(5)(b.stream());
      synchronize(ranks);
      const double one = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 5;
      const double several = std::clamp(std::ceil(kSampleTime / one), 1.0, 50.0);
      const Measured m = b.measure(calls(several), several, false);
      synchronize(ranks);
      out.add({{"op", op}, {"dtype", "bf16"}, {"gpus", std::int64_t{ranks.size()}}, {"message_bytes", bytes}},
              m, {Flops(0), Bytes(static_cast<double>(bytes))});
    }
  });
}

}  // namespace

std::string nccl_version() {
  int v = 0;
  if (ncclGetVersion(&v) != ncclSuccess) return "unknown";
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

void probe_collective(ProbeRun& probe_run) {
  FamilyResult out("nccl");
  out.note(
      "GPUs of this machine, one process; calls follow one another on warm buffers, timed on the first GPU; "
      "message_bytes as nccl-tests counts them, GB/s its algorithm bandwidth");
  try {
    const NcclRanks ranks(probe_run.bench);
    if (ranks.size() == 1) out.note("one GPU: only messages to itself");
    measure_all(probe_run, ranks, out);
  } catch (const Unsupported& e) {
    out.note(e.what());
  }
  probe_run.finish(out);
}

}  // namespace shardline

#else

namespace shardline {

std::string nccl_version() { return "none: built without NCCL"; }

void probe_collective(ProbeRun& probe_run) {
  FamilyResult out("nccl");
  out.note("built without NCCL: no collectives");
  probe_run.finish(out);
}

}  // namespace shardline

#endif
