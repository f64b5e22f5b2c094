// The shardline commands. Each parses nothing: it takes options, calls the libraries and prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/scenario/scenario.hpp"

namespace shardline::cli {

/// Where the catalogues are: $SHARDLINE_DATA, else the installed or source tree.
Catalogs catalogs();

/// What made a result: command line, version.
struct Provenance {
  std::string command, version;
};

struct SweepOptions {
  std::string scenario;
  std::string costs;                // calibrated or parameters; empty: as the scenario says
  std::string out;                  // empty: no files
  std::optional<std::string> ttl;   // "20 ms"
  std::optional<std::string> ttft;  // "80 s", prefill
  std::optional<double> tokens_per_user;
  std::optional<double> users;
  bool all = false;  // write all.csv (no pruning)
  bool exhaustive = false;
  int threads = 0;
};
int sweep(const SweepOptions& options, const Provenance& made_by);

struct SimulateOptions {
  std::string scenario, costs, plan, model, out;
  std::optional<long long> noise_seed;  // the first, in place of the scenario's
};
int simulate(const SimulateOptions& options, const Provenance& made_by);

int list(const std::string& what);
struct ValidateOptions {
  std::string paper = "all";
  bool sensitivity = true;  // helix
  std::string truth;        // context_parallel: a file of published figures (empty: the shipped one)
  std::string out;          // all: a folder (empty: out/validation); context_parallel: a folder, or none
  int threads = 0;
};
int validate(const ValidateOptions& options, const Provenance& made_by);
int validate_context(const std::string& truth_file, const std::string& out, const Provenance& made_by);

struct ThresholdsOptions {
  std::string scenario, costs, out;
  int threads = 0;
};
/// When to pass KV and when Q: rules, lookup table, regret.
int thresholds(const ThresholdsOptions& options, const Provenance& made_by);

struct PartitionOptions {
  std::string scenario, out;
  std::optional<std::string> spacing;  // "2Ki tokens"; the scenario's if none
  std::optional<double> max_loss;      // the scenario's if none
  std::optional<long long> granularity;
  int threads = 0;
};
/// How many tokens each rank of a KV-Runahead chain takes, and the lookup table.
int partition(const PartitionOptions& options, const Provenance& made_by);

struct ConversationOptions {
  std::string scenario, costs, out;
};
/// TTFT and TTIT of every turn.
int conversation(const ConversationOptions& options, const Provenance& made_by);

struct VerifyOptions {
  std::string strategy = "all";
  bool mutations = false;  // also break schedules and see that each is found
};
int verify(const VerifyOptions& options);

struct CalibrateArguments {
  std::vector<std::string> measurements;  // files or folders
  std::string system, out, plots, source;
  int folds = 4, threads = 0;
  bool parameters = false;  // also print them
  bool part = false;        // write the calibration alone
};
int calibrate(const CalibrateArguments& arguments, const Provenance& made_by);

struct EvaluateArguments {
  std::vector<std::string> measurements;
  std::string system, csv;
};
int evaluate(const EvaluateArguments& arguments, const Provenance& made_by);

struct AccuracyArguments {
  std::vector<std::string> measurements;  // SYSTEM=FOLDER, or a folder of a folder per system
  std::string out, plots;                 // out empty: printed
};
/// How far every shipped calibration is from measurements, as Markdown (reports/accuracy.md).
int accuracy(const AccuracyArguments& arguments);

/// A scenario by path, or by the name of a shipped one, with the costs of an option `--costs`. Throws
/// UserError.
Scenario scenario_named(const std::string& name_or_path, const std::string& costs = "");

}  // namespace shardline::cli
