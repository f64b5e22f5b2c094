// One step of ring pass-KV: attention on the block at hand while the block travels on. Each lane alone, then
// both on two streams: what they cost each other. All GPUs of the machine form the ring; one sends to itself.
#include <fmt/format.h>

#include "cuda_probe/kernels/launch.hpp"
#include "cuda_probe/probes/bench.hpp"
#include "cuda_probe/probes/nccl_ranks.hpp"
#include "cuda_probe/probes/prefill_operands.hpp"

namespace shardline {

namespace {

// Sends `bytes` from each rank's block to its neighbour's, on that rank's stream.
struct Route {
  std::string name;
  std::vector<int> devices;
  std::function<void(const std::vector<const void*>&, const std::vector<void*>&, std::size_t,
                     const std::vector<cudaStream_t>&)>
      send;
};

Route copies(const Bench& b) {
  return {"memcpy",
          {b.device()},
          [](const std::vector<const void*>& from, const std::vector<void*>& to, std::size_t bytes,
             const std::vector<cudaStream_t>& streams) {
            SL_CUDA(cudaMemcpyAsync(to[0], from[0], bytes, cudaMemcpyDeviceToDevice, streams[0]));
          }};
}

#ifdef SHARDLINE_HAVE_NCCL
Route through_nccl(const NcclRanks& ranks) {
  Route out{"nccl", {}, {}};
  for (int r = 0; r < ranks.size(); ++r) out.devices.push_back(ranks.device(r));
  out.send = [&ranks](const std::vector<const void*>& from, const std::vector<void*>& to, std::size_t bytes,
                      const std::vector<cudaStream_t>& streams) {
    const int n = ranks.size();
    grouped([&] {
      for (int r = 0; r < n; ++r) {
        const auto i = static_cast<std::size_t>(r);
        SL_NCCL(ncclSend(from[i], bytes, ncclInt8, (r + 1) % n, ranks.comm(r), streams[i]));
        SL_NCCL(ncclRecv(to[i], bytes, ncclInt8, (r + n - 1) % n, ranks.comm(r), streams[i]));
      }
    });
  };
  return out;
}
#endif

// One GPU of the ring.
struct Rank {
  int device = 0;
  cudaStream_t compute = nullptr, message = nullptr;
  bool owns_compute = false;
  cudaEvent_t fork = nullptr, join = nullptr;

  Rank(int index, cudaStream_t given) : device(index), compute(given), owns_compute(given == nullptr) {
    SL_CUDA(cudaSetDevice(device));
    if (owns_compute) SL_CUDA(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    SL_CUDA(cudaStreamCreateWithFlags(&message, cudaStreamNonBlocking));
    SL_CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    SL_CUDA(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  }
  ~Rank() {
    cudaSetDevice(device);
    cudaStreamSynchronize(message);
    cudaStreamDestroy(message);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    if (owns_compute) cudaStreamDestroy(compute);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
};

class Ring {
 public:
  Ring(Bench& bench, const Route& route) : b_(bench), route_(route) {
    for (const int device : route.devices)
      ranks_.push_back(
          std::make_unique<Rank>(device, device == bench.device() ? bench.stream() : cudaStream_t{}));
    SL_CUDA(cudaSetDevice(bench.device()));
  }

  void measure(const PrefillCase& c, FamilyResult& out, double& worst_factor) {
    prepare(c);
    Seconds alone{0}, both{0};
    for (const char* lane : {"attend", "message", "both"}) {
      const bool attends = lane != std::string_view("message"), sends = lane != std::string_view("attend");
      const auto step = [&](cudaStream_t) { enqueue(attends, sends); };
      step(nullptr);
      synchronize();
      const Measured m = b_.measure(step, 1, true);
      synchronize();
      const auto bytes = static_cast<std::int64_t>(message_bytes_);
      out.add({{"transport", route_.name},
               {"gpus", static_cast<std::int64_t>(ranks_.size())},
               {"ring_q_rows", c.fresh},
               {"ring_kv_rows", c.fresh},
               {"heads_q", std::int64_t{c.q_heads}},
               {"heads_kv", std::int64_t{c.kv_heads}},
               {"head_dim", std::int64_t{c.head_dim}},
               {"ring_bytes", bytes},
               {"lane", lane}},
              m,
              {Flops(attends ? 4.0 * static_cast<double>(c.fresh) * static_cast<double>(c.fresh) * c.q_heads *
                                   c.head_dim
                             : 0),
               Bytes(sends ? static_cast<double>(bytes) : 0)});
      if (!m.valid()) return;
      if (attends && sends) {
        both = m.median;
      } else {
        alone = std::max(alone, m.median);
      }
    }
    worst_factor = std::max(worst_factor, both / alone);
  }

 private:
  void prepare(const PrefillCase& c) {
    synchronize();
    memory_.clear();
    attends_.clear();
    from_.clear();
    to_.clear();
    // A block of other, earlier tokens: all of it is seen.
    const Tokens queries{{0, c.fresh, 2 * c.fresh}}, keys{{0, 0, c.fresh}};
    const AttendPlan plan = plan_attend(queries, keys);
    message_bytes_ = static_cast<std::size_t>(c.fresh) * 2 * static_cast<std::size_t>(c.kv_heads) *
                     static_cast<std::size_t>(c.head_dim) * 2;
    for (const auto& r : ranks_) {
      const TakeMemory take = [&](std::size_t bytes, bool) {
        memory_.push_back(std::make_unique<DeviceMemory>(r->device, std::max<std::size_t>(bytes, 256)));
        return memory_.back()->get();
      };
      SL_CUDA(cudaSetDevice(r->device));
      const DevicePlan on_device = device_plan(plan, take, r->compute);
      attends_.push_back(
          prefill_operands(c.fresh, c.fresh, c.q_heads, c.kv_heads, c.head_dim, on_device, take));
      from_.push_back(attends_.back().k);
      to_.push_back(take(message_bytes_, false));
    }
    SL_CUDA(cudaSetDevice(b_.device()));
  }

  // Both lanes start when the compute stream is here, and it goes on when both have ended.
  void enqueue(bool attends, bool sends) {
    std::vector<cudaStream_t> messages;
    for (const auto& r : ranks_) {
      messages.push_back(r->message);
      if (!sends) continue;
      SL_CUDA(cudaSetDevice(r->device));
      SL_CUDA(cudaEventRecord(r->fork, r->compute));
      SL_CUDA(cudaStreamWaitEvent(r->message, r->fork, 0));
    }
    SL_CUDA(cudaSetDevice(b_.device()));
    if (sends) route_.send(from_, to_, message_bytes_, messages);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const Rank& r = *ranks_[i];
      SL_CUDA(cudaSetDevice(r.device));
      if (attends) launched(prefill(attends_[i], r.compute), "prefill");
      if (!sends) continue;
      SL_CUDA(cudaEventRecord(r.join, r.message));
      SL_CUDA(cudaStreamWaitEvent(r.compute, r.join, 0));
    }
    SL_CUDA(cudaSetDevice(b_.device()));
  }

  void synchronize() const {
    for (const auto& r : ranks_) SL_CUDA(cudaStreamSynchronize(r->compute));
  }

  Bench& b_;
  const Route& route_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::vector<PrefillArguments> attends_;
  std::vector<const void*> from_;
  std::vector<void*> to_;
  std::size_t message_bytes_ = 0;
};

void measure_ring(ProbeRun& probe_run, const Route& route, FamilyResult& out) {
  Ring ring(probe_run.bench, route);
  double factor = 0;
  probe_run.each(out, ring_steps(), [&](const PrefillCase& c) { ring.measure(c, out, factor); });
  if (factor > 0)
    out.note(fmt::format("{} over {} GPUs: both lanes together take up to {:.2f} times the longer one alone",
                         route.name, route.devices.size(), factor));
}

}  // namespace

void probe_ring(ProbeRun& probe_run) {
  FamilyResult out("ring");
  measure_ring(probe_run, copies(probe_run.bench), out);
#ifdef SHARDLINE_HAVE_NCCL
  try {
    const NcclRanks ranks(probe_run.bench);
    measure_ring(probe_run, through_nccl(ranks), out);
  } catch (const Unsupported& e) {
    out.note(e.what());
  }
#else
  out.note("built without NCCL: copies only");
#endif
  probe_run.finish(out);
}

}  // namespace shardline
