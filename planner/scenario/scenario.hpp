// A scenario file: what to serve, on what, and which plans to look at. Schema: scenarios/README.md.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hardware/timing/noise.hpp"
#include "planner/search/search.hpp"

namespace shardline {

/// Two groups of strategies whose frontiers are compared.
struct Comparison {
  std::vector<StrategyId> candidate, baseline;
};

/// A conversation: each turn appends `fresh` tokens (prefill) and is answered with `output` tokens (decode).
struct Turn {
  long long fresh = 0, output = 0;
};
struct Conversation {
  int cp = 1, tpa = 1;
  std::vector<Turn> turns;
};

/// When to pass KV and when Q: ring sizes, and the grid of new tokens T and miss rates T/(T+P).
struct ThresholdGrid {
  std::vector<int> cp;
  int tpa = 1;
  long long fresh_from = 0, fresh_to = 0, total_to = 0;  // T; P + T at most
  double lowest_miss_rate = 0;                           // of T/(T+P)
  int fresh_per_octave = 4, miss_per_octave = 2, test_points = 2000;
};

/// Contexts that a KV-Runahead chain of some numbers of ranks is to share out.
struct PartitionGrid {
  std::vector<long long> contexts;  // ascending
  std::vector<int> processes;       // ranks of a chain
  int tpa = 1;                      // GPUs of a rank
  long long granularity = 128;      // boundaries are multiples of it
  long long spacing = 4096;         // of the lookup table's rows
  std::optional<double> max_loss;   // by interpolation; above it rows are added between
};

/// The best plans of a decode step or a prefill.
struct Sweep {
  SearchOptions search;
  Comparison compare;
  std::optional<NoiseSpec> noise;  // of prefills: also price plans beside other traffic
};

/// What a scenario asks, one of these.
using Question = std::variant<Sweep, Conversation, ThresholdGrid, PartitionGrid>;

/// One model of a scenario with everything that its question needs.
struct Study {
  Case study;
  std::string title;  // "DeepSeek-R1 on gb200-nvl72, 1,000,000 tokens"
  Question question;
  double gpu_hour = 0;  // price of a GPU for an hour, in whatever money; of sweeps, 0: not given

  // Of a study that asks for it.
  const Sweep& sweep() const { return std::get<Sweep>(question); }
  Sweep& sweep() { return std::get<Sweep>(question); }
  const Conversation& conversation() const { return std::get<Conversation>(question); }
  const ThresholdGrid& thresholds() const { return std::get<ThresholdGrid>(question); }
  const PartitionGrid& partition() const { return std::get<PartitionGrid>(question); }
};

/// Whose costs: of the system's calibration, or of its parameters alone.
enum class Costs : unsigned char { calibrated, parameters };

struct Scenario {
  std::string name, summary;
  std::filesystem::path file;
  std::vector<Study> studies;  // one per model
};

struct Catalogs {
  std::filesystem::path models, systems, scenarios, engines = {};

  /// The published curves of accepted drafts, beside the engines.
  std::filesystem::path acceptance() const { return engines.parent_path() / "serving/acceptance.yaml"; }
};

/// What a command line says of a scenario, which goes before what the file says.
struct Overrides {
  std::optional<Costs> costs;
  std::string engine;                          // "vllm", "vllm 0.24.0", "ideal"; empty: as the file says
  bool any_gpus = false, any_context = false;  // as Case::any_gpus, Case::any_context
  /// "device.memory.bandwidth=4 TB/s": keys of the system's file (sets_system()) or of the scenario, and what
  /// stands in place of their values.
  std::vector<std::string> settings = {};
};

/// Throws UserError with every fault of the file (and of the models, systems and engines it names).
Scenario load_scenario(const std::filesystem::path& file, const Catalogs& catalogs,
                       const Overrides& overrides = {});
Scenario parse_scenario(const std::string& name, const std::string& text, const Catalogs& catalogs,
                        const Overrides& overrides = {});

}  // namespace shardline
