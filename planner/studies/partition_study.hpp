// Partitions of a scenario's contexts, the lookup table between them, and what its interpolation costs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "planner/scenario/scenario.hpp"
#include "planner/studies/chain_cost.hpp"

namespace shardline {

struct PartitionCell {
  long long context = 0;
  bool asked = false;     // by the scenario; the others are the table's rows and the points between them
  bool in_table = false;  // interpolated from itself
  SearchedPartition searched;
  std::optional<PartitionResult> grid;  // of those asked
  Seconds even;                         // times of these partitions
  Seconds interpolated_ttft;
  std::vector<long long> interpolated;
};

/// One number of ranks.
struct PartitionStudy {
  PartitionTable table;
  std::vector<PartitionCell> cells;  // by context

  struct Loss {
    double mean = 0, worst = 0;  // time(interpolated) / time(searched) - 1
    long long worst_at = 0;
    int lengths = 0;
  };
  /// [K5] Over the lengths that are not in the table.
  Loss loss() const;
};

/// Prices whole chains of one context and number of ranks better than the closed form; called in one thread
/// each.
using EvaluatorFactory = std::function<ChainEvaluator(int ranks, long long context)>;

/// Throws UserError if the shortest context is too short for `ranks` parts of the grid's granularity.
void require_room(const PartitionGrid& grid, int ranks);

/// Rows that a lookup table may have without max_loss, and the least spacing with which it has no more.
inline constexpr long long kMostPartitionRows = 1024;
long long least_spacing(const PartitionGrid& grid);

/// The table has a row every grid.spacing tokens from the first to the last context, and is judged at the
/// quarters between any two rows; with grid.max_loss, rows are added halfway between two that lose more, down
/// to the granularity. Results do not depend on the threads (0: all cores). `progress` is told after every
/// length, by one thread at a time, of how many that are known so far. Needs require_room().
PartitionStudy study_partitions(
    const Case& c, const PartitionGrid& grid, int ranks, int threads, const EvaluatorFactory& exact = {},
    const std::function<void(std::uint64_t done, std::uint64_t total)>& progress = {});
/// Lengths that study_partitions() searches before it adds rows.
std::size_t partition_lengths(const PartitionGrid& grid);

}  // namespace shardline
