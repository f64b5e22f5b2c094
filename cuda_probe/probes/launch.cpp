// What starting a kernel costs: from the host one by one, replayed from a graph; and what an event costs.
#include "cuda_probe/probes/bench.hpp"

namespace shardline {

void probe_launch(ProbeRun& probe_run) {
  Bench& b = probe_run.bench;
  FamilyResult out("launch");
  out.note("one empty block per kernel; times are of all kernels of a row together, caches warm");
  probe_run.each(out, launch_counts(), [&](std::int64_t kernels) {
    const auto launch_all = [&](cudaStream_t s) {
      for (std::int64_t i = 0; i < kernels; ++i) empty_kernel(s);
      SL_CUDA(cudaGetLastError());
    };
    out.add({{"kernels", kernels}, {"mode", "eager"}}, b.measure(launch_all, 1, false), {});

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    SL_CUDA(cudaStreamBeginCapture(b.stream(), cudaStreamCaptureModeThreadLocal));
    launch_all(b.stream());
    SL_CUDA(cudaStreamEndCapture(b.stream(), &graph));
    SL_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    SL_CUDA(cudaGraphDestroy(graph));
    SL_CUDA(cudaGraphUpload(exec, b.stream()));
    // Cold: the host's launch of the graph hides behind the flush, so the replay alone is timed.
    out.add({{"kernels", kernels}, {"mode", "graph"}},
            b.measure([&](cudaStream_t s) { SL_CUDA(cudaGraphLaunch(exec, s)); }, 1, true), {});
    SL_CUDA(cudaGraphExecDestroy(exec));

    cudaEvent_t event = nullptr;
    SL_CUDA(cudaEventCreate(&event));
    out.add({{"kernels", kernels}, {"mode", "events"}},
            b.measure(
                [&](cudaStream_t s) {
                  for (std::int64_t i = 0; i < kernels; ++i) SL_CUDA(cudaEventRecord(event, s));
                },
                1, true),
            {});
    SL_CUDA(cudaEventDestroy(event));
  });
  probe_run.finish(out);
}

}  // namespace shardline
