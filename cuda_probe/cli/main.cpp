// shardline-probe: the table of its commands, in the order of the help
// (exit codes: 0 fine, 1 our bug or a failing GPU, 2 bad input or lost output, 3 nothing to run on).
#include <fmt/format.h>

#include <array>

#include "cuda_probe/cli/commands.hpp"
#include "cuda_probe/cli/devices.hpp"
#include "cuda_probe/cli/execute.hpp"
#include "planner/api/version.hpp"
#include "planner/scenario/data_folder.hpp"
#include "planner/scenario/shipped.hpp"
#include "reports/cli/command.hpp"

namespace shardline::probe_cli {

namespace {

using cli::Arguments;
using cli::Command;
using cli::prepare;
using cli::Provenance;

void declare(Arguments& a, ListOptions& o) {
  a.add("probe", o.probe, "Show the shapes of this probe");
  a.flag("--all", o.all, "Every shape that the shipped sweeps visit, not only the chosen ones");
}

int list(const ListOptions& o, const Provenance&) {
  fmt::print("{}", list_text(o, shipped_catalogs()));
  return 0;
}

void declare(Arguments& a, RunArguments& o) {
  a.add("--only", o.only,
        "Probes, separated by commas: hbm, gemm, attention, decode, mla, merge, launch, p2p, "
        "collective, ring (default: all)");
  a.add("-o,--out", o.out,
        "Folder for the tables, FAMILY.csv each; a name ending in .csv where there is one table (none: "
        "print only)");
  a.add("--budget", o.budget, "Seconds for the whole run (default: 300; 20 with --quick)").real_range(1, 1e6);
  a.flag("--quick", o.quick, "Few samples of few shapes, to see that all works");
  a.add("--device", o.device, "GPU, from 0").range(0, 1023);
}

int measure(const RunArguments& given, const Provenance& made_by) {
  RunArguments o = given;
  o.command = made_by.command;
  return run(o, shipped_catalogs());
}

struct ExecuteArguments {
  ExecuteOptions options;
  std::string tokens;
};

void declare(Arguments& a, ExecuteArguments& given) {
  ExecuteOptions& o = given.options;
  a.add("strategy", o.strategy, "A strategy, or all (default)");
  a.add("--ranks", o.ranks, "Ranks, on as many GPUs or all on one (default: 8)").range(1, 1024);
  a.add("--cases", o.cases, "Cases per strategy at most (default: all)");
  a.flag("--emulate", o.emulate, "On a device made up of CPU code: needs no GPU");
  a.add("--seed", o.seed, "Of the made-up device's order");
  a.flag_off("--no-collectives", o.collectives, "Collectives as single messages");
  a.add("--scenario", o.scenario, "One schedule of this scenario, timed op by op; with --plan");
  a.add("--plan", o.plan, "Its plan, as sweep prints it");
  a.add("--model", o.model, "Model of the scenario (default: the first)");
  a.add("--system", o.system, "System to simulate beside it (default: the scenario's)");
  a.add("--tokens", given.tokens, "Per request, cached ones included, for instance \"32Ki tokens\"");
}

long long token_count(const std::string& text) {
  const auto parsed = parse_tokens(text);
  if (const auto* fault = std::get_if<std::string>(&parsed))
    throw UserError("--tokens " + text + ": " + *fault);
  return std::get<long long>(parsed);
}

int run_schedules(const ExecuteArguments& given, const Provenance&) {
  ExecuteOptions o = given.options;
  if (!given.tokens.empty()) o.tokens = token_count(given.tokens);
  o.devices = real_ranks;
  return execute(o);
}

constexpr Command kList{"list", "Probes, their tables and numbers of shapes; needs no GPU",
                        "shardline-probe list gemm", prepare<ListOptions, declare, list>};
constexpr Command kRun{"run", "Measure", "shardline-probe run --only decode -o decode.csv",
                       prepare<RunArguments, declare, measure>};
constexpr Command kExecute{"execute", "Run schedules on GPUs and compare with the CPU executor",
                           "shardline-probe execute ring_pass_kv --ranks 4",
                           prepare<ExecuteArguments, declare, run_schedules>};
constexpr std::array kCommands{&kList, &kRun, &kExecute};

constexpr Meaning kExitCodes[] = {{"0", "fine"},
                                  {"1", "a bug of ours, or a failing GPU"},
                                  {"2", "bad input, or output that could not be written"},
                                  {"3", "nothing to run on"}};
constexpr Meaning kEnvironment[] = {
    {kDataVariable, "folder of models, systems, engines and scenarios, in place of the installed one"}};

// Most of them are a GPU's.
std::string fault_text(const char* what) { return fmt::format("shardline-probe: {}\n", what); }

}  // namespace

}  // namespace shardline::probe_cli

int main(int argc, char** argv) {
  using namespace shardline;
  return cli::run_program({.name = "shardline-probe",
                           .version = SHARDLINE_VERSION,
                           .date = SHARDLINE_VERSION_DATE,
                           .summary = "Measures what shardline's cost model is calibrated with. Changes no "
                                      "setting of a GPU.",
                           .example = "shardline-probe run --only gemm,decode -o measurements/h200",
                           .exit_codes = probe_cli::kExitCodes,
                           .environment = probe_cli::kEnvironment,
                           .commands = probe_cli::kCommands,
                           .fault_text = probe_cli::fault_text,
                           .data_text = data_text,
                           .patient = true},
                          argc, argv);
}
