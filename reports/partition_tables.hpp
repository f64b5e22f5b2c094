// Partitions of context lengths over chains of ranks (KV-Runahead) as CSV, and as a JSON lookup table for
// serving engines. Schema: reports/README.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

/// Where the partitions come from; goes into both outputs.
struct PartitionProvenance {
  std::string model, system, version, command, precision;
  int gpus_per_rank = 1;
  long long granularity = 1, spacing = 1;  // tokens
};

/// One context length on one number of ranks.
struct PartitionRow {
  int ranks = 0;
  long long context = 0;
  bool in_table = false;
  std::vector<long long> tokens, interpolated;  // of each rank
  Seconds ttft, even, interpolated_ttft;
  Seconds bound, ideal, alone;  // of any partition; Eq. 3; one rank
  bool proven = false;
  std::uint64_t evaluations = 0;
  std::optional<Seconds> ttft_low, ttft_high;  // nominal 90 % of ttft, where it is known
  std::optional<Seconds> grid_search;          // its time, where it was run
  std::uint64_t grid_evaluations = 0;
};

/// "3584/2611/2150/1895".
std::string partition_text(const std::vector<long long>& tokens);
/// Three digits each: "0.350/0.255/0.210/0.185".
std::string ratios_text(const std::vector<long long>& tokens);

/// Lines "# key: value", a header line, one line per row.
std::string partition_csv(const PartitionProvenance& provenance, const std::vector<PartitionRow>& rows);
/// The rows that are in the table, by ranks and context, and what interpolation between them loses.
std::string partition_json(const PartitionProvenance& provenance, const std::vector<PartitionRow>& rows);

}  // namespace shardline
