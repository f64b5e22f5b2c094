// shardline-probe: parse the command line, call one function, turn faults into exit codes
// (0 fine, 1 our bug or a failing GPU, 2 bad input or lost output, 3 nothing to run on).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "cuda_probe/cli/commands.hpp"
#include "cuda_probe/cli/devices.hpp"
#include "cuda_probe/cli/execute.hpp"
#include "planner/cli/commands.hpp"
#include "reports/atomic_file.hpp"
#include "reports/standard_output.hpp"
#include "sim/base/error.hpp"

namespace {

using namespace shardline;

long long token_count(const std::string& text) {
  const auto parsed = parse_tokens(text);
  if (const auto* fault = std::get_if<std::string>(&parsed))
    throw UserError("--tokens " + text + ": " + *fault);
  return std::get<long long>(parsed);
}

int run(int argc, char** argv) {
  CLI::App app{"Measures what shardline's cost model is calibrated with. Changes no setting of a GPU."};
  app.set_version_flag("--version", "shardline-probe " SHARDLINE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Example:\n  shardline-probe run --only gemm,decode -o measurements/h200\n\n"
      "Exit codes:\n  0 fine\n  1 a bug of ours, or a failing GPU\n"
      "  2 bad input, or output that could not be written\n  3 nothing to run on");

  probe_cli::ListOptions list;
  CLI::App* l = app.add_subcommand("list", "Probes, their tables and numbers of shapes; needs no GPU");
  l->add_option("probe", list.probe, "Show the shapes of this probe");
  l->add_flag("--all", list.all, "Every shape that the shipped sweeps visit, not only the chosen ones");
  l->footer("Example:\n  shardline-probe list gemm");

  probe_cli::RunArguments run;
  CLI::App* r = app.add_subcommand("run", "Measure");
  r->add_option("--only", run.only,
                "Probes, separated by commas: hbm, gemm, attention, decode, mla, merge, launch, p2p, "
                "collective, ring (default: all)");
  r->add_option(
      "-o,--out", run.out,
      "Folder for the tables, FAMILY.csv each; a name ending in .csv where there is one table (none: "
      "print only)");
  r->add_option("--budget", run.budget, "Seconds for the whole run (default: 300; 20 with --quick)")
      ->check(CLI::Range(1.0, 1e6));
  r->add_flag("--quick", run.quick, "Few samples of few shapes, to see that all works");
  r->add_option("--device", run.device, "GPU, from 0")->check(CLI::Range(0, 1023));
  r->footer("Example:\n  shardline-probe run --only decode -o decode.csv");

  probe_cli::ExecuteOptions execute;
  std::string tokens;
  bool no_collectives = false;
  CLI::App* x = app.add_subcommand("execute", "Run schedules on GPUs and compare with the CPU executor");
  x->add_option("strategy", execute.strategy, "A strategy, or all (default)");
  x->add_option("--ranks", execute.ranks, "Ranks, on as many GPUs or all on one (default: 8)")
      ->check(CLI::Range(1, 1024));
  x->add_option("--cases", execute.cases, "Cases per strategy at most (default: all)");
  x->add_flag("--emulate", execute.emulate, "On a device made up of CPU code: needs no GPU");
  x->add_option("--seed", execute.seed, "Of the made-up device's order");
  x->add_flag("--no-collectives", no_collectives, "Collectives as single messages");
  x->add_option("--scenario", execute.scenario, "One schedule of this scenario, timed op by op; with --plan");
  x->add_option("--plan", execute.plan, "Its plan, as sweep prints it");
  x->add_option("--model", execute.model, "Model of the scenario (default: the first)");
  x->add_option("--system", execute.system, "System to simulate beside it (default: the scenario's)");
  x->add_option("--tokens", tokens, "Per request, cached ones included, for instance \"32Ki tokens\"");
  x->footer("Example:\n  shardline-probe execute ring_pass_kv --ranks 4");

  for (int i = 0; i < argc; ++i)
    run.command += (i > 0 ? " " : "") + std::string(i > 0 ? argv[i] : "shardline-probe");

  if (argc > 1 && argv[1][0] != '-') {
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
    if (std::find(names.begin(), names.end(), argv[1]) == names.end())
      throw UserError(
          {Diagnostic{{}, std::string("unknown command ") + argv[1], expected_one_of(argv[1], names)}});
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (l->parsed()) {
    fmt::print("{}", probe_cli::list_text(list, cli::catalogs()));
    return 0;
  }
  catch_interrupts();
  if (x->parsed()) {
    execute.collectives = !no_collectives;
    if (!tokens.empty()) execute.tokens = token_count(tokens);
    execute.devices = probe_cli::real_ranks;
    return probe_cli::execute(execute);
  }
  return probe_cli::run(run, cli::catalogs());
}

}  // namespace

int main(int argc, char** argv) {
  reserve_standard_streams();
  int code = 1;
  try {
    code = run(argc, argv);
  } catch (const UserError& e) {
    std::fputs(e.what(), stderr);
    code = 2;
  } catch (const std::exception& e) {
    if (!standard_output_failed()) fmt::print(stderr, "shardline-probe: {}\n", e.what());
  }
  return after_output("shardline-probe", code);
}
