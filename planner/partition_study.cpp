#include "planner/partition_study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "sim/base/error.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

namespace {

// Every length to be searched, ascending.
std::vector<PartitionCell> lengths(const PartitionGrid& grid) {
  std::map<long long, PartitionCell> cells;
  std::vector<long long> rows;
  for (long long n = grid.contexts.front(); n < grid.contexts.back(); n += grid.spacing) rows.push_back(n);
  rows.push_back(grid.contexts.back());
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    for (const long long quarter : {1, 2, 3}) cells[rows[i] + (rows[i + 1] - rows[i]) * quarter / 4];
  }
  for (const long long n : rows) cells[n].in_table = true;
  for (const long long n : grid.contexts) cells[n].asked = true;
  std::vector<PartitionCell> out;
  for (auto& [context, cell] : cells) {
    cell.context = context;
    out.push_back(std::move(cell));
  }
  return out;
}

}  // namespace

PartitionStudy::Loss PartitionStudy::loss() const {
  Loss out;
  for (const PartitionCell& c : cells) {
    if (c.in_table) continue;
    const double lost = c.interpolated_ttft / c.searched.best.ttft - 1;
    out.mean += lost;
    if (out.lengths++ == 0 || lost > out.worst) {
      out.worst = lost;
      out.worst_at = c.context;
    }
  }
  if (out.lengths > 0) out.mean /= out.lengths;
  return out;
}

void require_room(const PartitionGrid& grid, int ranks) {
  if (grid.contexts.front() / grid.granularity < ranks)
    throw UserError(fmt::format("{} tokens are too few for {} ranks with at least {} each",
                                grid.contexts.front(), ranks, grid.granularity));
}

PartitionStudy study_partitions(const Case& c, const PartitionGrid& grid, int ranks, int threads,
                                const EvaluatorFactory& exact) {
  SL_CHECK(!grid.contexts.empty() && grid.spacing > 0 && grid.granularity > 0,
           "a partition grid has contexts");
  require_room(grid, ranks);
  PartitionStudy out{PartitionTable(ranks), lengths(grid)};
  const std::size_t count =
      threads > 0 ? static_cast<std::size_t>(threads) : std::max(1u, std::thread::hardware_concurrency());
  const auto cache = std::make_shared<FabricCache>(c.system.fabric);
  std::vector<std::optional<ChainCost>> costs(count);
  const auto cost_of = [&](std::size_t slot) -> const ChainCost& {
    if (!costs[slot]) costs[slot] = chain_cost(c, ranks, grid.tpa, cache);
    return *costs[slot];
  };
  const auto time = [&](const ChainEvaluator& by, const ChainCost& cost, std::span<const long long> parts) {
    return by ? by(parts) : chain_time(cost, parts);
  };
  parallel_for(0, out.cells.size(), count, [&](std::size_t i, std::size_t slot) {
    PartitionCell& cell = out.cells[i];
    const ChainCost& cost = cost_of(slot);
    const PartitionProblem problem{cell.context, ranks, grid.granularity};
    PartitionSearch search;
    if (exact) search.exact = exact(ranks, cell.context);
    cell.searched = best_partition(cost, problem, search);
    if (cell.asked) {
      // The paper's search takes tens of thousands of times: in closed form, but for its result.
      cell.grid = grid_search(cost, problem);
      cell.grid->ttft = time(search.exact, cost, cell.grid->tokens);
    }
    cell.even = time(search.exact, cost, even_partition(problem));
  });
  for (const PartitionCell& cell : out.cells)
    if (cell.in_table) out.table.add(cell.context, cell.searched.best.tokens);
  parallel_for(0, out.cells.size(), count, [&](std::size_t i, std::size_t slot) {
    PartitionCell& cell = out.cells[i];
    cell.interpolated = out.table.partition(cell.context, grid.granularity);
    const ChainEvaluator by = exact ? exact(ranks, cell.context) : ChainEvaluator{};
    cell.interpolated_ttft = time(by, cost_of(slot), cell.interpolated);
  });
  return out;
}

}  // namespace shardline
