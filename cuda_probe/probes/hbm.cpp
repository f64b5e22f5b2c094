// Device memory: copies by the runtime, reads and writes by kernels of ours.
#include "cuda_probe/probes/bench.hpp"

namespace shardline {

namespace {

std::size_t size_of(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }
double d(std::int64_t v) { return static_cast<double>(v); }

// One `from` and one `to` per set of operands.
struct Pair {
  void *from, *to;
};

Measured copy(Bench& b, std::int64_t bytes) {
  std::vector<Pair> sets;
  return b.measure({[&](int) {
                      sets.push_back({b.take_random(size_of(bytes)), b.take(size_of(bytes))});
                    },
                    [&](int i, cudaStream_t s) {
                      const Pair& p = sets[static_cast<std::size_t>(i)];
                      SL_CUDA(cudaMemcpyAsync(p.to, p.from, size_of(bytes), cudaMemcpyDeviceToDevice, s));
                    }});
}

}  // namespace

BytesPerSecond copy_bandwidth(Bench& b) {
  b.clear();
  const std::int64_t bytes = std::int64_t{1} << 29;
  const Measured m = copy(b, bytes);
  return m.valid() ? Bytes(2 * d(bytes)) / m.median : BytesPerSecond(0);
}

void probe_hbm(ProbeRun& probe_run) {
  Bench& b = probe_run.bench;
  FamilyResult copies("hbm_copy"), reads("hbm_read"), writes("hbm_write");
  for (FamilyResult* f : {&copies, &writes})
    f->note("what is written stays in the L2 cache where that holds it: memory shows at sizes well above");
  probe_run.each(copies, copy_sizes(), [&](std::int64_t bytes) {
    copies.add({{"copied_bytes", bytes}}, copy(b, bytes), {Flops(0), Bytes(2 * d(bytes))});
    b.clear();
    std::vector<void*> sets;
    void* sink = b.take(256);
    reads.add({{"read_bytes", bytes}},
              b.measure({[&](int) { sets.push_back(b.take_random(size_of(bytes))); },
                         [&](int i, cudaStream_t s) {
                           read_through(sets[static_cast<std::size_t>(i)], size_of(bytes), b.sms(), sink, s);
                           SL_CUDA(cudaGetLastError());
                         }}),
              {Flops(0), Bytes(d(bytes))});
    b.clear();
    sets.clear();
    writes.add({{"written_bytes", bytes}},
               b.measure({[&](int) { sets.push_back(b.take(size_of(bytes))); },
                          [&](int i, cudaStream_t s) {
                            write_over(sets[static_cast<std::size_t>(i)], size_of(bytes), b.sms(), s);
                            SL_CUDA(cudaGetLastError());
                          }}),
               {Flops(0), Bytes(d(bytes))});
  });
  for (const FamilyResult* f : {&copies, &reads, &writes}) probe_run.finish(*f);
}

}  // namespace shardline
