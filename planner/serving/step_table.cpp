#include "planner/serving/step_table.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Tokens of means and skews: of a million requests of a million tokens each.
constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 30;

// The cell of a power of two, [2^i, 2^(i+1)), that a value is in; the first is [0, kLeast).
struct TokenRange {
  std::uint64_t low = 0, size = 0;
};
TokenRange range_of(std::uint64_t value) {
  if (value < StepTable::kLeast) return {0, StepTable::kLeast};
  const std::uint64_t low = std::bit_floor(value);
  return {low, low};
}

}  // namespace

StepTable::StepTable(Lower lower) : lower_(std::move(lower)) {}

// Where the longest has more than all together, the others have nothing and the mean is what follows: such
// corners belong to cells in which some batches exist.
const PricedStep& StepTable::knot(Table& table, std::uint32_t requests, std::uint64_t mean,
                                  std::uint64_t skew) {
  const auto [known, is_new] = table.knots.try_emplace(mean << 32 | skew);
  if (is_new) {
    StepBatch step;
    step.decodes = requests;
    step.longest = static_cast<std::uint32_t>(mean + (requests > 1 ? skew : 0));
    step.cached = std::max<std::uint64_t>(requests * mean, step.longest);
    known->second = lower_(step);
  }
  return known->second;
}

// How far lines of a cell are from lowerings in the middle of its edges along the mean, of those along the
// skew, and in its own.
struct StepTable::Misses {
  double mean = 0, skew = 0, middle = 0;
  double most() const { return std::max({mean, skew, middle}); }
};

StepTable::Misses StepTable::misses_of(Table& table, std::uint32_t requests, const Cell& cell) {
  Misses out;
  const std::uint64_t half = cell.size / 2, half_skew = cell.skew_size / 2;
  for (const int i : {0, 1, 2}) {
    for (const int j : {0, 1, 2}) {
      if (i != 1 && j != 1) continue;                                     // corners are exact
      if ((i == 1 && half == 0) || (j == 1 && half_skew == 0)) continue;  // nothing is between
      if (requests == 1 && j > 0) continue;                               // nobody is longer than the mean
      const std::uint64_t mean =
          i < 2 ? cell.low + half * static_cast<std::uint64_t>(i) : cell.low + cell.size;
      const std::uint64_t skew =
          j < 2 ? cell.skew + half_skew * static_cast<std::uint64_t>(j) : cell.skew + cell.skew_size;
      if (skew > (requests - 1) * mean) continue;  // no such batch
      const double u = 0.5 * i, v = 0.5 * j;
      const double line = (1 - u) * ((1 - v) * cell.times[0][0] + v * cell.times[0][1]) +
                          u * ((1 - v) * cell.times[1][0] + v * cell.times[1][1]);
      double& worst = i != 1 ? out.skew : j != 1 ? out.mean : out.middle;
      worst = std::max(worst, std::abs(line / knot(table, requests, mean, skew).time.value - 1));
    }
  }
  return out;
}

void StepTable::set_corners(Table& table, std::uint32_t requests, std::uint32_t index) {
  Cell& cell = table.cells[index];
  Corners drawn;
  for (const std::uint64_t i : {0, 1}) {
    for (const std::uint64_t j : {0, 1}) {
      const PricedStep& corner =
          knot(table, requests, cell.low + i * cell.size, cell.skew + j * cell.skew_size);
      cell.times[i][j] = corner.time.value;
      drawn[2 * i + j] = corner.energy;
    }
  }
  if (drawn.front().seconds == 0) return;
  if (table.drawn.size() <= index) table.drawn.resize(table.cells.size());
  table.drawn[index] = drawn;
}

// Looks at a new cell, whose corners it sets, and cuts it in two until lines are close enough: across the
// side whose edges miss more, of two that miss as much the wider one. Sizes are powers of two.
void StepTable::look(Table& table, std::uint32_t requests, std::uint32_t index) {
  set_corners(table, requests, index);
  Cell cell = table.cells[index];
  ++cells_;
  const Misses misses = misses_of(table, requests, cell);
  cell.error = misses.most();
  const std::uint64_t least = cell.error > kMostAtJumps ? 1 : kLeast / 2;
  const bool mean_can = cell.size > least, skew_can = cell.skew_size > least && requests > 1;
  const bool mean_would =
      misses.mean > misses.skew || (misses.mean == misses.skew && cell.size >= cell.skew_size);
  cell.cut = cell.error <= kMostError                ? Cut::none
             : mean_can && (mean_would || !skew_can) ? Cut::mean
             : skew_can                              ? Cut::skew
                                                     : Cut::none;
  if (cell.cut != Cut::none) cell.children = static_cast<std::uint32_t>(table.cells.size());
  table.cells[index] = cell;
  if (cell.cut == Cut::none) return;
  Cell part;
  part.low = cell.low;
  part.size = cell.cut == Cut::mean ? cell.size / 2 : cell.size;
  part.skew = cell.skew;
  part.skew_size = cell.cut == Cut::skew ? cell.skew_size / 2 : cell.skew_size;
  table.cells.push_back(part);
  if (cell.cut == Cut::mean)
    part.low += part.size;
  else
    part.skew += part.skew_size;
  table.cells.push_back(part);
}

StepTable::Found StepTable::cell_of(std::uint32_t requests, std::uint64_t mean, std::uint64_t skew) {
  SL_CHECK(mean < kMostTokens && skew < kMostTokens, "lengths are within what models have");
  if (tables_.size() <= requests) tables_.resize(requests + 1);
  if (!tables_[requests]) tables_[requests] = std::make_unique<Table>();
  Table& table = *tables_[requests];
  const TokenRange means = range_of(mean), skews = range_of(skew);
  const auto [root, is_new] =
      table.roots.try_emplace(means.low << 32 | skews.low, static_cast<std::uint32_t>(table.cells.size()));
  if (is_new) {
    Cell& whole = table.cells.emplace_back();
    whole.low = means.low;
    whole.size = means.size;
    whole.skew = skews.low;
    whole.skew_size = skews.size;
    look(table, requests, root->second);
  }
  std::uint32_t at = root->second;
  while (table.cells[at].children > 0) {
    const Cell& c = table.cells[at];
    const bool beyond = c.cut == Cut::mean ? mean >= c.low + c.size / 2 : skew >= c.skew + c.skew_size / 2;
    at = c.children + (beyond ? 1 : 0);
    if (table.cells[at].times[0][0] == 0) look(table, requests, at);
  }
  return {table, at};
}

DecodeStretch StepTable::decode(const StepBatch& batch) {
  SL_CHECK(batch.prompts.empty() && batch.decodes > 0, "a stretch decodes and has no prompts");
  const std::uint64_t requests = batch.decodes, mean = batch.cached / requests;
  // In parts of a request: whole numbers, so that a stretch ends where its cell does.
  const std::uint64_t beyond = std::max(batch.longest * requests, batch.cached) - batch.cached;
  const Found found = cell_of(batch.decodes, mean, beyond / requests);
  const Cell& c = found.table.cells[found.cell];
  largest_error_ = std::max(largest_error_, c.error);
  const auto of_requests = static_cast<double>(requests);
  const double u = (static_cast<double>(batch.cached) / of_requests - static_cast<double>(c.low)) /
                   static_cast<double>(c.size);
  const double v = (static_cast<double>(beyond) / of_requests - static_cast<double>(c.skew)) /
                   static_cast<double>(c.skew_size);
  const double low = (1 - v) * c.times[0][0] + v * c.times[0][1];
  const double high = (1 - v) * c.times[1][0] + v * c.times[1][1];
  const std::uint64_t left = (c.low + c.size) * requests - batch.cached;
  DecodeStretch out{Seconds(low + u * (high - low)), Seconds((high - low) / static_cast<double>(c.size)),
                    (left + requests - 1) / requests};
  if (found.table.drawn.empty()) return out;
  const Corners& e = found.table.drawn[found.cell];
  const StepEnergy near = e[0] * (1 - v) + e[1] * v, more = e[2] * (1 - v) + e[3] * v - near;
  out.energy = near + more * u;
  out.rise = more * (1 / static_cast<double>(c.size));
  return out;
}

}  // namespace shardline
