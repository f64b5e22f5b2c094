#include "cuda_probe/probes/run_probes.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "cuda_probe/cli/commands.hpp"
#include "reports/atomic_file.hpp"

namespace shardline::probe_cli {

int run(const RunArguments& a, const Catalogs& catalogs) {
  ProbeOptions o;
  o.probes = probes_named(a.only);
  o.quick = a.quick;
  o.device = a.device;
  o.budget = Seconds(a.budget > 0 ? a.budget : a.quick ? 20 : 300);
  const std::vector<std::string> families = families_of(o.probes);
  if (!a.out.empty()) table_file(a.out, families, families.front());  // refuse early
  if (const auto why = no_device()) {
    fmt::print(stderr, "shardline-probe: {}; nothing was measured\n", *why);
    return 3;
  }
  if (const auto why = no_such_device(a.device)) throw UserError("--device: " + *why);
  if (!a.out.empty()) {
    make_folder_of(table_file(a.out, families, families.front()));
  }

  const bool terminal = isatty(STDERR_FILENO) != 0;
  std::vector<std::pair<std::string, std::string>> head;
  BytesPerSecond roof;
  RunListener listener;
  listener.start = [&](const DeviceInfo& d, const MeasureRule& rule, BytesPerSecond copy) {
    head = provenance(d, rule, utc_now(), a.command);
    head.emplace_back("copy_bandwidth", to_string(copy) + " (read and written)");
    if (a.quick) head.emplace_back("note", "a quick run: few samples, few shapes");
    roof = copy;
    fmt::print("{}, driver {}; copies {} of device memory (read and written)\n\n", d.gpu, d.driver,
               to_string(copy));
    std::fflush(stdout);
  };
  listener.progress = [&](const Probe& p, std::size_t done, std::size_t of) {
    if (terminal)
      fmt::print(stderr, "\r\033[K{}: {} of {}{}", p.name, done, of, done == of ? "\r\033[K" : "");
  };
  listener.done = [&](const FamilyResult& f) {
    fmt::print("{}", f.summary(roof));
    if (!a.out.empty() && f.table().size() > 0) {
      const std::filesystem::path file = table_file(a.out, families, f.table().family->name);
      write_file(file, f.csv(head), AfterInterrupt::write);
      fmt::print("  wrote {}\n", file.string());
    }
    fmt::print("\n");
    std::fflush(stdout);
  };
  listener.interrupted = interrupted;
  run_probes(o, chosen_shapes(visited_shapes(catalogs)), listener);
  if (interrupted()) throw UserError("interrupted; tables hold what was measured so far");
  return 0;
}

}  // namespace shardline::probe_cli
