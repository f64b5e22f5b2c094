#include "cuda_probe/probes/run_probes.hpp"

#include <fmt/format.h>

#include "cuda_probe/probes/bench.hpp"

namespace shardline {

namespace {

using Clock = std::chrono::steady_clock;

MeasureRule rule_of(const ProbeOptions& o) {
  MeasureRule rule;
  rule.stop.budget = Seconds(0.2);
  rule.stop.most = 500;
  rule.warm_up_budget = Seconds(0.05);
  if (o.quick) {
    rule.stop.least = 5;
    rule.stop.most = 20;
    rule.stop.budget = Seconds(0.02);
    rule.warm_up_budget = Seconds(0.01);
  }
  return rule;
}

DeviceInfo describe(const Bench& b) {
  const cudaDeviceProp& p = b.properties();
  DeviceInfo d;
  d.gpu = p.name;
  d.compute_capability = fmt::format("{}.{}", p.major, p.minor);
  d.gpus = cuda_devices();
  d.multiprocessors = p.multiProcessorCount;
  d.memory = Bytes(static_cast<double>(p.totalGlobalMem));
  d.l2 = Bytes(static_cast<double>(p.l2CacheSize));
  int version = 0;
  SL_CUDA(cudaRuntimeGetVersion(&version));
  d.cuda_runtime = fmt::format("{}.{}", version / 1000, version / 10 % 100);
  d.cublaslt = cublaslt_version();
  d.cudnn = cudnn_version();
  d.nccl = nccl_version();
  b.nvml().describe(d);
  if (d.driver.empty()) {
    SL_CUDA(cudaDriverGetVersion(&version));
    d.driver = fmt::format("unknown, for CUDA {}.{}", version / 1000, version / 10 % 100);
  }
  return d;
}

void run_one(ProbeRun& s, const std::string& name, const ShapeLists& shapes) {
  if (name == "hbm") return probe_hbm(s);
  if (name == "gemm") return probe_gemm(s, shapes.gemm);
  if (name == "attention") return probe_attention(s, shapes.prefill);
  if (name == "decode") return probe_decode(s, shapes.decode);
  if (name == "mla") return probe_mla(s, shapes.mla);
  if (name == "merge") return probe_merge(s, shapes.merge);
  if (name == "launch") return probe_launch(s);
  if (name == "p2p") return probe_p2p(s);
  if (name == "collective") return probe_collective(s);
  SL_CHECK(name == "ring", "every probe is run by name");
  probe_ring(s);
}

}  // namespace

std::optional<std::string> no_device() {
  std::string why;
  if (cuda_devices(&why) > 0) return std::nullopt;
  // Without a driver the runtime says that its version is insufficient.
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    why = "the NVIDIA driver (libcuda.so.1) was not found";
  cudaGetLastError();
  return "no CUDA device: " + why;
}

std::optional<std::string> no_such_device(int device) {
  const int devices = cuda_devices();
  if (device < devices) return std::nullopt;
  return fmt::format("there is no GPU {}: {} are visible, from 0", device, devices);
}

void run_probes(const ProbeOptions& o, const ShapeLists& shapes, const RunListener& listener) {
  const auto begin = Clock::now();
  const auto spent = [&] { return Seconds(std::chrono::duration<double>(Clock::now() - begin).count()); };
  Bench bench(o.device);
  bench.rule() = rule_of(o);
  listener.start(describe(bench), bench.rule(), copy_bandwidth(bench));
  std::vector<double> shares;
  std::vector<std::string> failures;
  for (const Probe* p : o.probes) shares.push_back(p->share);
  for (std::size_t i = 0; i < o.probes.size(); ++i) {
    if (listener.interrupted && listener.interrupted()) break;
    const Seconds share = share_of(o.budget, spent(), std::span<const double>(shares).subspan(i));
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(share.value));
    ProbeRun probe_run(bench, *o.probes[i], listener, o.quick, deadline);
    try {
      run_one(probe_run, o.probes[i]->name, shapes);
      if (!probe_run.failure().empty()) failures.push_back(probe_run.failure());
    } catch (const UserError&) {  // of who listens: a full disk
      throw;
    } catch (const std::exception& e) {
      failures.push_back(fmt::format("{}: {}", o.probes[i]->name, e.what()));
    }
    cudaSetDevice(o.device);
    cudaGetLastError();
    if (const cudaError_t status = cudaDeviceSynchronize(); status != cudaSuccess) {
      if (i + 1 < o.probes.size())
        failures.push_back(fmt::format("the device answers no more ({}): {} probes were not run",
                                       cudaGetErrorName(status), o.probes.size() - i - 1));
      break;
    }
  }
  if (!failures.empty()) throw GpuError(fmt::format("{}", fmt::join(failures, "\n  ")));
}

}  // namespace shardline
