// Published tables of KV-Runahead in plain structs: the layout of arXiv 2405.05329's tables, which users may
// fill with measurements of their own. Layout and calibration marks: README.md.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/scenario/scenario.hpp"

namespace shardline {

enum class ChainMethod : unsigned char { one_gpu, tsp, kvr_even, kvr_searched };

/// One published time.
struct ChainValue {
  std::string table, column;  // keys of the file
  std::string model;
  long long context = 0;
  int gpus = 1;
  double network = 0;  // GB/s per GPU; 0: the system's own
  ChainMethod method = ChainMethod::tsp;
  Seconds time;
  bool calibration = false;
  Location where;
};

/// A published partition, as shares of the context. `between`: interpolated from the searched partitions of
/// these contexts.
struct ChainPartition {
  std::string id, model;
  int gpus = 1;
  long long context = 0;
  std::vector<double> ratios;
  std::vector<long long> between;
  bool coarse = false;  // given as boundaries, which lie on the grid of a search
};

/// What eager kernels and the host of a model need, beside the system's own parameters.
struct ChainModelCosts {
  std::optional<Bytes> score_traffic;
  std::optional<Seconds> host_layer;
};

struct ChainMachine {
  std::string system;
  std::map<int, std::string> networks;            // by GB/s
  std::map<std::string, ChainModelCosts> models;  // by name, or by what names begin with
  const ChainModelCosts* of(const std::string& model) const;
};

/// What is published of times beside other traffic: losses as parts of the quiet time. The traffic's strength
/// is not published.
struct ChainNoise {
  std::string model;
  std::vector<long long> contexts;
  NoiseSpec traffic;
  int gpus = 8;                                           // that the losses are compared on
  double tsp_average = 0;                                 // above
  double tsp_most = 0, even_most = 0, searched_most = 0;  // at most
  struct Speedup {
    int gpus = 0;
    double quiet = 0, noisy = 0;  // of KVR-S over TSP, the best of all contexts, less 1
  };
  std::vector<Speedup> speedups;
};

/// Speedups of KVR-S over TSP that a figure states, of a model whose times are not in the file.
struct ChainFigure {
  struct Row {
    int gpus = 0;
    long long context = 0;
    double speedup = 0;
  };
  std::string model;
  std::vector<Row> rows;
};

struct ChainTruth {
  std::string file;
  std::optional<ChainMachine> machine;
  std::optional<ChainNoise> noise;
  std::optional<ChainFigure> figure;
  std::vector<ChainValue> values;
  std::vector<ChainPartition> partitions;
  std::vector<std::string> fitted;        // measurement() of marked values
  std::vector<std::string> not_compared;  // parts of the file that were read past
};

/// Names a measurement apart from its value.
std::string measurement(const ChainValue& value);

/// Throws UserError with every fault.
ChainTruth parse_chain_truth(const std::string& name, const std::string& text, const Catalogs& catalogs);
ChainTruth load_chain_truth(const std::filesystem::path& file, const Catalogs& catalogs);

/// The tables of `file` (empty: the shipped ones), with the shipped machine where it has none, and the marks
/// of the shipped ones. Throws UserError.
ChainTruth chain_truth_of(const std::string& file, const Catalogs& catalogs);

}  // namespace shardline
