// Published tables of APB and its baselines (arXiv 2502.12085) in plain structs. Layout: README.md.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "planner/scenario/scenario.hpp"

namespace shardline {

enum class ApbMethod : unsigned char { flash, minference, ulysses, ring, star, apb };
inline constexpr std::size_t kApbMethods = 6;
/// As the tables name it: "FLASHATTN".
const char* to_string(ApbMethod method);

/// Parts of one layer, then times and rates of whole prefills.
enum class ApbColumn : unsigned char {
  qkv,
  retaining_head,
  communication,
  attention,
  o_proj,
  ffn,
  others,
  block,
  prefill,
  speed
};
inline constexpr std::size_t kApbParts = 7;  // those before block
const char* to_string(ApbColumn column);

struct ApbValue {
  std::string table, model;  // "table14" (or "table14_mine"), "llama-3-8b-1m"
  std::string task;          // of a speed; empty: the first of RULER, SG1
  ApbMethod method = ApbMethod::apb;
  ApbColumn column = ApbColumn::prefill;
  long long tokens = 0;  // of each of `batch` documents
  int batch = 1;
  double published = 0;  // seconds; tokens per second for speeds
  bool calibration = false;
};

/// "table14" of "table14_mine".
std::string base_table(const std::string& id);

struct ApbTable {
  std::string id, title, unit;
  double scale = 1;  // seconds per unit
};

/// Times that MInference's authors give of their code and of what it replaces, by length. They are of another
/// machine than the paper's.
struct ApbHeadCalls {
  std::string model;
  std::vector<long long> tokens;
  std::vector<double> flash, minference;  // in s

  /// What the code's calls for one head of one layer take, `heads` of all layers: at the first length, where
  /// attention itself takes next to nothing.
  Seconds each(int heads) const;
};

struct ApbTruth {
  std::string file;
  std::vector<ApbTable> tables;
  std::vector<ApbValue> values;  // by table, row and column
  Seconds generation;            // of a speed's denominator
  ApbHeadCalls calls;
  double over_flash = 0, over_ring = 0, over_star = 0;  // headline ratios; 0: not given
  std::vector<std::string> not_compared;
};

/// Throws UserError with every fault, also for a table that the paper does not have. Marks of the shipped
/// file hold for every file, and so do its generation, its headline and its times of MInference's authors.
ApbTruth parse_apb_truth(const std::string& name, const std::string& text, const Catalogs& catalogs);
/// Empty: the shipped file.
ApbTruth load_apb_truth(const std::string& file, const Catalogs& catalogs);

}  // namespace shardline
