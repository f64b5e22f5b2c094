#include "cuda_probe/cli/execute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "cuda_probe/execute/cuda/compare.hpp"
#include "cuda_probe/execute/cuda/supported.hpp"
#include "cuda_probe/execute/verify/verify_cases.hpp"
#include "cuda_probe/gpu/emulated_gpu.hpp"
#include "cuda_probe/transport/loopback.hpp"
#include "reports/atomic_file.hpp"
#include "reports/table.hpp"

namespace shardline::probe_cli {

namespace {

cli::CaseSizes sizes(int head_dim) {
  cli::CaseSizes z;
  z.hidden = 64;
  z.inner = 32;
  z.head_dim = head_dim;
  z.kv_lora = 512;
  z.rope = 64;
  z.nope = 128;
  z.mla_v = 128;
  return z;
}

// Cases of MLA are of one size, whatever the head width.
std::vector<cli::VerifyCase> cases_of(const Strategy& s, std::size_t most) {
  std::vector<cli::VerifyCase> chosen;
  for (const int head_dim : {64, 128}) {
    std::vector<cli::VerifyCase> all = cli::verify_cases(s, sizes(head_dim));
    if (head_dim != 64) std::erase_if(all, [](const auto& c) { return has_latents(c.study.model); });
    const std::size_t count = most == 0 ? all.size() : std::min(most, all.size());
    for (std::size_t i = 0; i < count; ++i) {
      cli::VerifyCase& c = all[(2 * i + 1) * all.size() / (2 * count)];
      c.what = fmt::format("head_dim {}, {}", head_dim, c.what);
      chosen.push_back(std::move(c));
    }
  }
  return chosen;
}

constexpr const char* kInterrupted = "interrupted";

struct Tally {
  std::size_t run = 0, failed = 0;
  double error = 0, share = 0;
  std::map<std::string, int> left_out;  // by reason
  std::vector<std::string> faults;
};

void run_case(const cli::VerifyCase& c, const ExecuteOptions& o, Lanes& lanes, Tally& tally) {
  const Schedule schedule = cli::verify_schedule(c);
  if (const auto why = unsupported(schedule)) {
    ++tally.left_out[*why];
    return;
  }
  if (const int most = lanes.transport().ranks(); ranks_of(schedule) > most) {
    ++tally.left_out[fmt::format("needs more than {} ranks", most)];
    return;
  }
  const Tensors<float> inputs = rounded_to_bf16(reference(c.kinds.front()));
  DeviceOptions device;
  device.scale = c.kinds.front().scale;
  device.collectives = o.collectives;
  const DeviceResult got = DeviceExecutor(schedule, inputs, lanes, device).run();
  RunOptions on_cpu;
  on_cpu.scale = c.kinds.front().scale;
  const DeviceCheck check = compare(schedule, got, Executor<float>(schedule, inputs).run(on_cpu));
  ++tally.run;
  tally.error = std::max(tally.error, check.error());
  tally.share = std::max(tally.share, check.share_of_allowed());
  if (check.passed()) return;
  ++tally.failed;
  tally.faults.push_back(c.what);
  for (const std::string& fault : check.faults) tally.faults.push_back("  " + fault);
  for (const OutputCheck& out : check.outputs) {
    if (out.error > out.allowed)
      tally.faults.push_back(
          fmt::format("  {}: error {:.1e}, allowed {:.1e}", out.worst, out.error, out.allowed));
  }
}

}  // namespace

Ranks ranks_for(const ExecuteOptions& o, int ranks) {
  if (!o.emulate) return o.devices ? o.devices(ranks) : Ranks{};
  Ranks made;
  EmulatedOptions options;
  options.seed = o.seed;
  made.gpus.push_back(std::make_unique<EmulatedGpu>(options));
  made.transport = std::make_unique<LoopbackTransport>(*made.gpus.front(), ranks);
  return made;
}

int execute_cases(const ExecuteOptions& o, Transport& transport) {
  std::vector<const Strategy*> chosen;
  if (o.strategy == "all") {
    chosen.assign(strategies().begin(), strategies().end());
  } else {
    chosen.push_back(&strategy(o.strategy));
  }
  fmt::print("Strategies run on {}, {} ranks over {}, against the CPU executor on the same bfloat16 inputs\n",
             transport.gpu(0).name(), transport.ranks(), transport.name());
  std::fflush(stdout);
  Lanes lanes(transport);
  Table table({"strategy", "cases", "largest error", "of allowed", "left out", "result"});
  std::vector<std::string> notes, faults;
  std::string stopped;  // by a device that failed, or by hand: what ran is still told
  for (const Strategy* s : chosen) {
    if (!stopped.empty()) break;
    Tally tally;
    Progress progress(s->name, Progress::terminal());
    const std::vector<cli::VerifyCase> cases = cases_of(*s, o.cases);
    for (std::size_t i = 0; i < cases.size() && stopped.empty(); ++i) {
      if (interrupted()) {
        stopped = kInterrupted;
        break;
      }
      progress.show(i, cases.size());
      try {
        run_case(cases[i], o, lanes, tally);
      } catch (const GpuError& e) {
        stopped = fmt::format("{}, {}: {}", s->name, cases[i].what, e.what());
      }
    }
    int left_out = 0;
    for (const auto& [why, count] : tally.left_out) {
      left_out += count;
      notes.push_back(fmt::format("{}: {} cases left out: {}", s->name, count, why));
    }
    faults.insert(faults.end(), tally.faults.begin(), tally.faults.end());
    table.add({s->name, std::to_string(tally.run), fmt::format("{:.1e}", tally.error),
               fmt::format("{:.0f} %", 100 * tally.share), std::to_string(left_out),
               !stopped.empty()   ? "stopped"
               : tally.failed > 0 ? fmt::format("{} failed", tally.failed)
               : tally.run > 0    ? "equal"
                                  : "not run"});
  }
  fmt::print("{}", table.text());
  for (const std::string& note : notes) fmt::print("  {}\n", note);
  constexpr std::size_t kShown = 40;
  for (std::size_t i = 0; i < std::min(faults.size(), kShown); ++i) fmt::print("  {}\n", faults[i]);
  if (faults.size() > kShown) fmt::print("  ... and {} more lines\n", faults.size() - kShown);
  std::fflush(stdout);
  if (stopped == kInterrupted) throw UserError(stopped);
  if (!stopped.empty()) throw GpuError(stopped);
  return faults.empty() ? 0 : 1;
}

int execute(const ExecuteOptions& o) {
  if (o.scenario.empty() != o.plan.empty()) throw UserError("--scenario and --plan go together");
  if (!o.scenario.empty()) return execute_schedule(o);
  const Ranks ranks = ranks_for(o, o.ranks);
  if (!ranks.transport) {
    fmt::print(stderr, "no GPU to run on; --emulate runs on a device made up of CPU code\n");
    return 3;
  }
  return execute_cases(o, *ranks.transport);
}

}  // namespace shardline::probe_cli
