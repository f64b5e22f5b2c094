// shardline: parse the command line, call one function, turn faults into exit codes
// (0 fine, 1 our bug, 2 bad input or lost output, 3 no plan fits).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "planner/cli/commands.hpp"
#include "reports/atomic_file.hpp"
#include "reports/standard_output.hpp"
#include "sim/base/error.hpp"

namespace {

using namespace shardline;

// CLI11's own message spells out the largest double.
const CLI::Validator kPositive(
    [](std::string& text) {
      double value = 0;
      const bool number = CLI::detail::lexical_cast(text, value);
      return number && value > 0 ? std::string{} : "expected a positive number, found " + text;
    },
    "POSITIVE");

void add_costs(CLI::App* command, std::string& costs) {
  command
      ->add_option(
          "--costs", costs,
          "Costs fitted to measurements (calibrated) or of the system file (parameters); default: the "
          "scenario's")
      ->check(CLI::IsMember({"calibrated", "parameters"}));
}

// CLI11 says of a misspelt command only that a command is required.
void refuse_unknown_command(int argc, char** argv, const CLI::App& app) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) {
    if (sub->get_name() == argv[1]) return;
    names.push_back(sub->get_name());
  }
  throw UserError(
      {Diagnostic{{}, std::string("unknown command ") + argv[1], expected_one_of(argv[1], names)}});
}

int run(int argc, char** argv) {
  CLI::App app{"Simulates and plans how to shard long-context LLM serving over GPUs."};
  app.set_version_flag("--version", "shardline " SHARDLINE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Example:\n  shardline sweep helix_gb200_1m -o out/helix\n\n"
      "Exit codes:\n  0 fine\n  1 a bug of ours\n  2 bad input, or output that could not be written\n"
      "  3 no plan fits or meets the target");

  cli::Provenance made_by{"", SHARDLINE_VERSION};
  for (int i = 0; i < argc; ++i)
    made_by.command += (i > 0 ? " " : "") + std::string(i > 0 ? argv[i] : "shardline");

  cli::SweepOptions sweep;
  CLI::App* s = app.add_subcommand("sweep", "Simulate every valid plan and batch; show the Pareto frontier");
  s->add_option("scenario", sweep.scenario, "Scenario file, or the name of a shipped scenario")->required();
  s->add_option("-o,--out", sweep.out, "Folder for frontier.csv, plots and page (none: print only)");
  s->add_option("--ttl", sweep.ttl, "Your token-to-token latency target, for instance \"20 ms\"");
  s->add_option("--ttft", sweep.ttft, "Your time-to-first-token target (prefill), for instance \"80 s\"");
  s->add_option("--tokens-per-user", sweep.tokens_per_user, "Your target in tokens/s/user")->check(kPositive);
  s->add_option("--users", sweep.users, "Users to serve at once, at least")->check(kPositive);
  s->add_flag("--all", sweep.all, "Also write all.csv with every simulated configuration");
  s->add_flag("--exhaustive", sweep.exhaustive, "Simulate every feasible configuration, without pruning");
  s->add_option("--threads", sweep.threads, "Threads (default: all cores)")->check(CLI::Range(1, 1024));
  add_costs(s, sweep.costs);
  s->footer("Example:\n  shardline sweep helix_gb200_1m --ttl \"10 ms\" -o out/helix");

  cli::SimulateOptions simulate;
  CLI::App* m = app.add_subcommand("simulate", "Simulate one plan: breakdown, memory, timeline");
  m->add_option("scenario", simulate.scenario, "Scenario file, or the name of a shipped scenario")
      ->required();
  m->add_option("--plan", simulate.plan, "Plan text, as sweep prints it")->required();
  m->add_option("--model", simulate.model, "Which model of the scenario (default: the first)");
  add_costs(m, simulate.costs);
  m->add_option("--noise-seed", simulate.noise_seed,
                "First seed of the scenario's background traffic, and the one that the trace shows")
      ->check(CLI::Range(0LL, 1'000'000'000'000'000LL));
  m->add_option("-o,--out", simulate.out, "Folder for the Perfetto trace and the timeline picture");
  m->footer(
      "Example:\n  shardline simulate helix_gb200_1m --model llama-3.1-405b --plan "
      "helix:kvp=8,tpa=8,tpf=64,batch=4 -o out/plan");

  std::string what;
  CLI::App* l = app.add_subcommand("list", "List models, systems, strategies or scenarios");
  l->add_option("what", what, "models, systems, strategies or scenarios")->required();
  l->footer("Example:\n  shardline list models");

  cli::ValidateOptions validate;
  bool no_sensitivity = false;
  CLI::App* v = app.add_subcommand("validate", "Compare with published figures, side by side");
  v->add_option("paper", validate.paper,
                "helix, context_parallel, apb or all (default): one report on every paper");
  v->add_flag("--no-sensitivity", no_sensitivity,
              "Leave out the sensitivity of each ratio to the parameters (helix, all)");
  v->add_option("--truth", validate.truth,
                "File of published or measured times (context_parallel, apb; default: the paper's)");
  v->add_option("-o,--out", validate.out,
                "Folder for validation.md and plots (all; default: out/validation), or CSV and plot "
                "(context_parallel)");
  v->add_option("--threads", validate.threads, "Threads (default: all cores)")->check(CLI::Range(1, 1024));
  v->footer("Example:\n  shardline validate all -o out/validation");

  cli::ThresholdsOptions thresholds;
  CLI::App* t =
      app.add_subcommand("thresholds", "When ring attention should pass KV and when Q: rules, table, regret");
  t->add_option("scenario", thresholds.scenario,
                "Scenario file with thresholds, or the name of a shipped one")
      ->required();
  add_costs(t, thresholds.costs);
  t->add_option("-o,--out", thresholds.out, "Folder for the table (C++17 header, JSON, CSV) and plots");
  t->add_option("--threads", thresholds.threads, "Threads (default: all cores)")->check(CLI::Range(1, 1024));
  t->footer("Example:\n  shardline thresholds thresholds_gtt -o out/thresholds");

  cli::PartitionOptions partition;
  CLI::App* k = app.add_subcommand("partition", "How many tokens each rank of a KV-Runahead chain takes");
  k->add_option("scenario", partition.scenario,
                "Scenario file with a partition, or the name of a shipped one")
      ->required();
  k->add_option("-o,--out", partition.out,
                "Folder for the lookup table (JSON), all lengths (CSV) and the plot");
  k->add_option(
      "--spacing", partition.spacing,
      "Between the rows of the lookup table, for instance \"2Ki tokens\" (default: the scenario's)");
  k->add_option("--max-loss", partition.max_loss,
                "Add rows until interpolation loses at most this: 0.013 is 1.3 % (default: the scenario's)")
      ->check(CLI::Range(0.0, 1.0));
  k->add_option("--granularity", partition.granularity,
                "Boundaries are multiples of so many tokens (default: the scenario's)")
      ->check(CLI::Range(1, 1'000'000));
  k->add_option("--threads", partition.threads, "Threads (default: all cores)")->check(CLI::Range(1, 1024));
  k->footer("Example:\n  shardline partition partition_llama7b_a100 -o out/partition");

  cli::ConversationOptions conversation;
  CLI::App* n = app.add_subcommand("conversation", "TTFT and TTIT of every turn of a conversation");
  n->add_option("scenario", conversation.scenario,
                "Scenario file with a conversation, or the name of a shipped one")
      ->required();
  add_costs(n, conversation.costs);
  n->add_option("-o,--out", conversation.out, "Folder for turns.csv and the plot");
  n->footer("Example:\n  shardline conversation conversation_405b_128k -o out/conversation");

  cli::VerifyOptions verify;
  CLI::App* y =
      app.add_subcommand("verify", "Run strategies on real tensors and compare with plain attention");
  y->add_option("strategy", verify.strategy, "A strategy, or all (default)");
  y->add_flag("--mutations", verify.mutations,
              "Also break their schedules, and see that each fault is found");
  y->footer("Example:\n  shardline verify ring_pass_kv --mutations");

  cli::CalibrateArguments calibrate;
  CLI::App* c = app.add_subcommand("calibrate", "Fit the cost of kernels and collectives to measurements");
  c->add_option("measurements", calibrate.measurements,
                "Tables (.csv) of shardline-probe or of others, or folders of them")
      ->required();
  c->add_option("--system", calibrate.system, "System that was measured: a name or a file")->required();
  c->add_option("-o,--out", calibrate.out, "System file to write, with what was fitted");
  c->add_option("--plots", calibrate.plots, "Folder for predicted against measured");
  c->add_option("--source", calibrate.source, "Where the measurements come from (default: the files' names)");
  c->add_option("--folds", calibrate.folds, "Parts of the shapes that are withheld in turn (default: 4)")
      ->check(CLI::Range(2, 100));
  c->add_flag("--parameters", calibrate.parameters,
              "Also print every parameter with its confidence interval");
  c->add_flag("--part", calibrate.part,
              "Write what was fitted alone, for `calibration: FILE` in a system file");
  c->add_option("--threads", calibrate.threads, "Threads (default: all cores)")->check(CLI::Range(1, 1024));
  c->footer("Example:\n  shardline calibrate measurements/h200 --system h200-hgx -o h200-mine.yaml");

  cli::EvaluateArguments evaluate;
  CLI::App* ev =
      app.add_subcommand("evaluate", "Predict measured rows with a calibrated system; fits nothing");
  ev->add_option("measurements", evaluate.measurements, "Tables (.csv), or folders of them")->required();
  ev->add_option("--system", evaluate.system, "Calibrated system: a name or a file")->required();
  ev->add_option("--csv", evaluate.csv, "File for every row, measured and predicted");
  ev->footer("Example:\n  shardline evaluate measurements/h200 --system h200-mine.yaml --csv rows.csv");

  cli::AccuracyArguments accuracy;
  CLI::App* ac = app.add_subcommand("accuracy", "How far every shipped calibration is from measurements");
  ac->add_option("-o,--out", accuracy.out, "File for the report, in Markdown (default: print it)");
  ac->add_option("--measurements", accuracy.measurements,
                 "Also errors over all rows: a folder with a folder of tables per system, or SYSTEM=FOLDER");
  ac->add_option("--plots", accuracy.plots, "Folder for pictures, two per system");
  ac->footer("Example:\n  shardline accuracy --measurements measurements -o reports/accuracy.md");

  refuse_unknown_command(argc, argv, app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  catch_interrupts();
  if (s->parsed()) return cli::sweep(sweep, made_by);
  if (m->parsed()) return cli::simulate(simulate, made_by);
  if (t->parsed()) return cli::thresholds(thresholds, made_by);
  if (k->parsed()) return cli::partition(partition, made_by);
  if (n->parsed()) return cli::conversation(conversation, made_by);
  if (y->parsed()) return cli::verify(verify);
  if (c->parsed()) return cli::calibrate(calibrate, made_by);
  if (ev->parsed()) return cli::evaluate(evaluate, made_by);
  if (ac->parsed()) return cli::accuracy(accuracy);
  if (l->parsed()) return cli::list(what);
  validate.sensitivity = !no_sensitivity;
  return cli::validate(validate, made_by);
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
    if (!standard_output_failed()) {
      fmt::print(stderr,
                 "shardline: internal error: {}\nPlease report this with the command line and files used.\n",
                 e.what());
    }
  }
  return after_output("shardline", code);
}
