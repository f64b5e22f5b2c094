// partition: how many tokens each rank of a KV-Runahead chain takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/api/setting.hpp"

namespace shardline::api {

struct PartitionQuestion {
  std::string scenario;
  std::string scenario_text;
  std::optional<long long> spacing_tokens;
  std::optional<double> max_loss;
  std::optional<long long> granularity_tokens;
};
template <>
struct Fields<PartitionQuestion> {
  static constexpr const char* name = "PartitionQuestion";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Which chains are shared out.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using Q = PartitionQuestion;
    field("scenario", &Q::scenario, "name of a shipped scenario, or a file");
    field("scenario_text", &Q::scenario_text, "the scenario itself, in YAML, in place of a file");
    field("spacing_tokens", &Q::spacing_tokens, "between rows of the lookup table; null: the scenario's");
    field("max_loss", &Q::max_loss, "by interpolation, 0.01 is 1 %; null: the scenario's");
    field("granularity_tokens", &Q::granularity_tokens,
          "boundaries are multiples of it; null: the scenario's");
  }
};

struct PartitionRow {
  long long context_tokens = 0;
  bool asked = false;
  bool in_table = false;
  std::vector<long long> tokens_per_rank;
  Estimate ttft_s;
  double even_ttft_s = 0;
  std::optional<bool> told_apart_from_even;
  double bound_s = 0;
  double alone_s = 0;
  bool proven = false;
  std::uint64_t chains_priced = 0;
  std::vector<long long> interpolated_tokens_per_rank;
  double interpolated_ttft_s = 0;
  std::optional<double> grid_search_ttft_s;
  std::optional<std::uint64_t> grid_search_chains_priced;
};
template <>
struct Fields<PartitionRow> {
  static constexpr const char* name = "PartitionRow";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "One length.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = PartitionRow;
    field("context_tokens", &R::context_tokens, "the length");
    field("asked", &R::asked,
          "by the scenario; others are rows of the lookup table and lengths between them");
    field("in_table", &R::in_table, "a row of the lookup table");
    field("tokens_per_rank", &R::tokens_per_rank, "the partition that was found, rank 0 first");
    field("ttft_s", &R::ttft_s, "with it; ends are null for lengths that were not asked for");
    field("even_ttft_s", &R::even_ttft_s, "with equal parts");
    field("told_apart_from_even", &R::told_apart_from_even,
          "whether it is ahead of equal parts by more than prices may be off; null: not worked out");
    field("bound_s", &R::bound_s, "what no partition can beat");
    field("alone_s", &R::alone_s, "of one rank with all tokens");
    field("proven", &R::proven, "whether no partition of this granularity is faster");
    field("chains_priced", &R::chains_priced, "to find it");
    field("interpolated_tokens_per_rank", &R::interpolated_tokens_per_rank, "by the lookup table");
    field("interpolated_ttft_s", &R::interpolated_ttft_s, "with that one");
    field("grid_search_ttft_s", &R::grid_search_ttft_s, "by the paper's search, of lengths asked for");
    field("grid_search_chains_priced", &R::grid_search_chains_priced, "by that search");
  }
};

struct ChainPartitions {
  int ranks = 0;
  std::vector<PartitionRow> rows;
  int table_rows = 0;
  int interpolated_lengths = 0;
  double mean_loss = 0;
  double worst_loss = 0;
  long long worst_at_tokens = 0;
};
template <>
struct Fields<ChainPartitions> {
  static constexpr const char* name = "ChainPartitions";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Chains of one number of ranks.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using C = ChainPartitions;
    field("ranks", &C::ranks, "of the chain");
    field("rows", &C::rows, "by length");
    field("table_rows", &C::table_rows, "of the lookup table");
    field("interpolated_lengths", &C::interpolated_lengths, "lengths between them that were searched, too");
    field("mean_loss", &C::mean_loss, "by which interpolation was slower there; 0.01 is 1 %");
    field("worst_loss", &C::worst_loss, "the largest");
    field("worst_at_tokens", &C::worst_at_tokens, "at which length");
  }
};

struct ModelPartitions {
  Setting setting;
  int gpus_per_rank = 1;
  long long granularity_tokens = 0;
  long long spacing_tokens = 0;
  std::vector<ChainPartitions> chains;
};
template <>
struct Fields<ModelPartitions> {
  static constexpr const char* name = "ModelPartitions";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "The partitions of one model of a scenario.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using M = ModelPartitions;
    field("setting", &M::setting, "what all numbers are of");
    field("gpus_per_rank", &M::gpus_per_rank, "tensor parallelism of each rank");
    field("granularity_tokens", &M::granularity_tokens, "boundaries are multiples of it");
    field("spacing_tokens", &M::spacing_tokens, "between rows of the lookup table");
    field("chains", &M::chains, "by number of ranks");
  }
};

struct PartitionResult {
  std::string version;
  std::string command;
  std::string scenario;
  PartitionQuestion question;
  std::vector<ModelPartitions> models;
};
template <>
struct Fields<PartitionResult> {
  static constexpr const char* name = "PartitionResult";
  static constexpr const char* schema = "shardline.partition/1";
  static constexpr const char* about = "What `shardline partition` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = PartitionResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell; empty: the library was asked");
    field("scenario", &R::scenario, "its name");
    field("question", &R::question, "what was asked");
    field("models", &R::models, "one per model of the scenario");
  }
};

std::string to_json(const PartitionResult& result);

}  // namespace shardline::api
