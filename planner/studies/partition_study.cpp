#include "planner/studies/partition_study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "sim/base/error.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

namespace {

// By context; those without a context are still to be searched.
using Cells = std::map<long long, PartitionCell>;

void add_quarters(long long from, long long to, Cells& cells) {
  for (const long long quarter : {1, 2, 3}) cells[from + (to - from) * quarter / 4];
}

Cells first_cells(const PartitionGrid& grid) {
  Cells cells;
  std::vector<long long> rows;
  for (long long n = grid.contexts.front(); n < grid.contexts.back(); n += grid.spacing) rows.push_back(n);
  rows.push_back(grid.contexts.back());
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) add_quarters(rows[i], rows[i + 1], cells);
  for (const long long n : rows) cells[n].in_table = true;
  for (const long long n : grid.contexts) cells[n].asked = true;
  return cells;
}

double lost(const PartitionCell& c) { return c.interpolated_ttft / c.searched.best.ttft - 1; }

// A row in the middle, at a multiple of the granularity, between any two rows that lose more; false if none
// can be added.
bool add_rows(const PartitionGrid& grid, double max_loss, Cells& cells) {
  struct Gap {
    long long from, to;
  };
  std::vector<Gap> gaps;
  double worst = 0;
  long long row = cells.begin()->first;
  for (const auto& [context, cell] : cells) {
    if (!cell.in_table) {
      worst = std::max(worst, lost(cell));
      continue;
    }
    if (worst > max_loss && context - row > grid.granularity) gaps.push_back({row, context});
    row = context;
    worst = 0;
  }
  bool added = false;
  for (const Gap& g : gaps) {
    const long long middle = (g.from + g.to) / 2 / grid.granularity * grid.granularity;
    if (middle <= g.from) continue;
    cells[middle].in_table = true;
    add_quarters(g.from, middle, cells);
    add_quarters(middle, g.to, cells);
    added = true;
  }
  return added;
}

// Counts lengths that are searched, and tells of them by one thread at a time.
class Teller {
 public:
  explicit Teller(const std::function<void(std::uint64_t, std::uint64_t)>& progress) : progress_(progress) {}
  void one_more_of(std::uint64_t total) {
    if (!progress_) return;
    const std::lock_guard lock(mutex_);
    progress_(++done_, total);
  }

 private:
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
};

}  // namespace

PartitionStudy::Loss PartitionStudy::loss() const {
  Loss out;
  for (const PartitionCell& c : cells) {
    if (c.in_table) continue;
    out.mean += lost(c);
    if (out.lengths++ == 0 || lost(c) > out.worst) {
      out.worst = lost(c);
      out.worst_at = c.context;
    }
  }
  if (out.lengths > 0) out.mean /= out.lengths;
  return out;
}

long long least_spacing(const PartitionGrid& grid) {
  return (grid.contexts.back() - grid.contexts.front()) / kMostPartitionRows + 1;
}

void require_room(const PartitionGrid& grid, int ranks) {
  if (grid.contexts.front() / grid.granularity < ranks)
    throw UserError(fmt::format("{} tokens are too few for {} ranks with at least {} each",
                                grid.contexts.front(), ranks, grid.granularity));
}

std::size_t partition_lengths(const PartitionGrid& grid) { return first_cells(grid).size(); }

PartitionStudy study_partitions(const Case& c, const PartitionGrid& grid, int ranks, int threads,
                                const EvaluatorFactory& exact,
                                const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  SL_CHECK(!grid.contexts.empty() && grid.spacing > 0 && grid.granularity > 0,
           "a partition grid has contexts");
  require_room(grid, ranks);
  const std::size_t count = thread_count(threads);
  const auto cache = std::make_shared<FabricCache>(c.system.fabric);
  std::vector<std::optional<ChainCost>> costs(count);
  const auto cost_of = [&](std::size_t slot) -> const ChainCost& {
    if (!costs[slot]) costs[slot] = chain_cost(c, ranks, grid.tpa, cache);
    return *costs[slot];
  };
  const auto time = [&](const ChainEvaluator& by, const ChainCost& cost, std::span<const long long> parts) {
    return by ? by(parts) : chain_time(cost, parts);
  };
  const auto search = [&](PartitionCell& cell, std::size_t slot) {
    const ChainCost& cost = cost_of(slot);
    const PartitionProblem problem{cell.context, ranks, grid.granularity};
    PartitionSearch by;
    if (exact) by.exact = exact(ranks, cell.context);
    cell.searched = best_partition(cost, problem, by);
    if (cell.asked) {
      // The paper's search takes tens of thousands of times: in closed form, but for its result.
      cell.grid = grid_search(cost, problem);
      cell.grid->ttft = time(by.exact, cost, cell.grid->tokens);
    }
    cell.even = time(by.exact, cost, even_partition(problem));
  };
  PartitionStudy out{PartitionTable(ranks), {}};
  Cells cells = first_cells(grid);
  Teller tell(progress);
  do {
    std::vector<PartitionCell*> fresh, all;
    for (auto& [context, cell] : cells) {
      all.push_back(&cell);
      if (cell.context > 0) continue;
      cell.context = context;
      fresh.push_back(&cell);
    }
    parallel_for(0, fresh.size(), count, [&](std::size_t i, std::size_t slot) {
      search(*fresh[i], slot);
      tell.one_more_of(cells.size());
    });
    out.table = PartitionTable(ranks);
    for (const PartitionCell* cell : all)
      if (cell->in_table) out.table.add(cell->context, cell->searched.best.tokens);
    parallel_for(0, all.size(), count, [&](std::size_t i, std::size_t slot) {
      PartitionCell& cell = *all[i];
      std::vector<long long> parts = out.table.partition(cell.context, grid.granularity);
      if (parts == cell.interpolated) return;
      cell.interpolated = std::move(parts);
      const ChainEvaluator by = exact ? exact(ranks, cell.context) : ChainEvaluator{};
      cell.interpolated_ttft = time(by, cost_of(slot), cell.interpolated);
    });
  } while (grid.max_loss && add_rows(grid, *grid.max_loss, cells));
  for (auto& [context, cell] : cells) out.cells.push_back(std::move(cell));
  return out;
}

}  // namespace shardline
