// The lookup table of planner/studies/thresholds.hpp: building, refining, deciding.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "planner/studies/thresholds.hpp"
#include "sim/base/error.hpp"

namespace shardline {
namespace {

constexpr std::int64_t kOctave = std::int64_t{1} << kLog2Digits;
constexpr double kCoarsestStep = 1.0 / 256;

std::int64_t rounded(double tokens, std::int64_t multiple) {
  return std::llround(tokens / static_cast<double>(multiple)) * multiple;
}

TokenSplit node(const LookupGrid& grid, int ranks, std::int64_t fresh, int j) {
  const double total_per_fresh = std::exp2(static_cast<double>(j) / grid.miss_per_octave);
  return {fresh, rounded(static_cast<double>(fresh) * (total_per_fresh - 1), 2LL * ranks)};
}

bool within(const TokenSplit& split, long long limit) { return split.fresh + split.cached <= limit; }

using Timed = std::map<std::pair<long long, long long>, RingPoint>;

/// Times those of `splits` that were not timed before.
void time_new(const RingTimer& time, int ranks, const std::vector<TokenSplit>& splits, Timed& timed,
              std::vector<RingPoint>& order) {
  std::vector<TokenSplit> fresh;
  for (const TokenSplit& s : splits)
    if (timed.emplace(std::pair{s.fresh, s.cached}, RingPoint{}).second) fresh.push_back(s);
  const std::vector<RingPoint> points = time(ranks, fresh);
  SL_CHECK(points.size() == fresh.size(), "a timer returns one point per split");
  for (std::size_t k = 0; k < points.size(); ++k) {
    timed.at({fresh[k].fresh, fresh[k].cached}) = points[k];
    order.push_back(points[k]);
  }
}

/// New lines to try between two others: just above the lower one, and the quarters on a log scale.
std::vector<std::int64_t> probes(std::int64_t low, std::int64_t high, int ranks) {
  const std::int64_t multiple = 2LL * ranks;
  std::vector<std::int64_t> out{low + multiple};
  const double ratio = static_cast<double>(high) / static_cast<double>(low);
  for (const double part : {0.25, 0.5, 0.75})
    out.push_back(rounded(static_cast<double>(low) * std::pow(ratio, part), multiple));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  std::erase_if(out, [&](std::int64_t t) { return t <= low || t >= high; });
  return out;
}

}  // namespace

LookupGrid LookupGrid::covering(int ranks, long long fresh_min, long long fresh_max, double miss_min,
                                int fresh_per_octave, int miss_per_octave) {
  SL_CHECK(ranks > 0 && 0 < fresh_min && fresh_min <= fresh_max && 0 < miss_min && miss_min <= 1 &&
               fresh_per_octave > 0 && miss_per_octave > 0,
           "a grid covers a range");
  constexpr double kRounding = 1e-9;  // powers of two are nodes
  LookupGrid grid;
  grid.miss_per_octave = miss_per_octave;
  const std::int64_t multiple = 2LL * ranks;
  const int first =
      static_cast<int>(std::floor(std::log2(static_cast<double>(fresh_min)) * fresh_per_octave + kRounding));
  for (int i = first; grid.fresh.size() < 2 || grid.fresh.back() < fresh_max; ++i) {
    const std::int64_t t =
        std::max(multiple, rounded(std::exp2(static_cast<double>(i) / fresh_per_octave), multiple));
    if (grid.fresh.empty() || t > grid.fresh.back()) grid.fresh.push_back(t);
  }
  const double octaves = -std::log2(miss_min);
  grid.miss_nodes = std::max(2, static_cast<int>(std::ceil(octaves * miss_per_octave - kRounding)) + 1);
  return grid;
}

std::vector<TokenSplit> table_points(const LookupGrid& grid, int ranks, long long limit) {
  std::vector<TokenSplit> out;
  for (const std::int64_t fresh : grid.fresh) {
    for (int j = 0; j < grid.miss_nodes; ++j) {
      const TokenSplit split = node(grid, ranks, fresh, j);
      if (within(split, limit)) out.push_back(split);
    }
  }
  return out;
}

LookupTable::LookupTable(int ranks, LookupGrid grid, double step, std::vector<std::int8_t> values)
    : ranks_(ranks), grid_(std::move(grid)), step_(step), values_(std::move(values)) {
  SL_CHECK(grid_.fresh.size() > 1 && grid_.miss_nodes > 1 && grid_.miss_per_octave > 0,
           "a table has two nodes each way");
  SL_CHECK(values_.size() == grid_.nodes(), "a table has one value per node");
  for (const std::int64_t fresh : grid_.fresh) {
    const auto line = static_cast<std::int32_t>(fixed_log2(fresh));
    SL_CHECK(lines_.empty() || line > lines_.back(), "a table's lines ascend");
    lines_.push_back(line);
  }
}

LookupTable LookupTable::build(const LookupGrid& grid, int ranks, long long limit,
                               std::span<const RingPoint> points) {
  const auto rows = static_cast<int>(grid.fresh.size());
  std::vector<double> logs(grid.nodes());
  const auto at = [&](int i, int j) -> double& {
    return logs[static_cast<std::size_t>(i) * static_cast<std::size_t>(grid.miss_nodes) +
                static_cast<std::size_t>(j)];
  };
  const auto split_at = [&](int i, int j) {
    return node(grid, ranks, grid.fresh[static_cast<std::size_t>(i)], j);
  };
  SL_CHECK(within(split_at(0, 0), limit), "a table's first node is within the limit");

  std::size_t used = 0;
  double largest = 0;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < grid.miss_nodes; ++j) {
      const TokenSplit split = split_at(i, j);
      if (within(split, limit)) {
        SL_CHECK(used < points.size(), "every node within the limit is timed");
        const RingPoint& p = points[used++];
        SL_CHECK(p.ranks == ranks && p.fresh == split.fresh && p.cached == split.cached,
                 "a table is built from its own points");
        at(i, j) = std::log(p.pass_q / p.pass_kv);
        largest = std::max(largest, std::abs(at(i, j)));
      } else if (i > 0 && j > 0 && within(split_at(i - 1, j - 1), limit)) {
        at(i, j) = at(i - 1, j) + at(i, j - 1) - at(i - 1, j - 1);
      } else {
        at(i, j) = i > 0 ? at(i - 1, j) : at(i, j - 1);
      }
    }
  }
  SL_CHECK(used == points.size(), "every point is a node");

  // A coarser step would blur near ties; values beyond 127 steps are far from the boundary.
  const double step = largest > 0 ? std::min(largest / 127, kCoarsestStep) : kCoarsestStep;
  std::vector<std::int8_t> values;
  values.reserve(logs.size());
  for (const double log : logs)
    values.push_back(static_cast<std::int8_t>(std::lround(std::clamp(log / step, -127.0, 127.0))));
  return {ranks, grid, step, std::move(values)};
}

LookupTable::Between LookupTable::between(long long fresh, long long cached) const {
  const RingPlace where = ring_place(fresh, cached);
  const std::int64_t x = std::clamp<std::int64_t>(where.log_fresh, lines_.front(), lines_.back());
  const auto above = std::lower_bound(lines_.begin() + 1, lines_.end() - 1, x);
  const std::int64_t y = std::min(where.log_inverse_miss * grid_.miss_per_octave,
                                  static_cast<std::int64_t>(grid_.miss_nodes - 1) * kOctave);
  const std::int64_t j = std::min<std::int64_t>(y >> kLog2Digits, grid_.miss_nodes - 2);
  const std::int64_t part = (y - j * kOctave) >> (kLog2Digits - 16);
  const auto corner = values_.begin() + (above - lines_.begin() - 1) * grid_.miss_nodes + j;
  const std::int64_t low = corner[0] * (65536 - part) + corner[1] * part;
  const std::int64_t high = corner[grid_.miss_nodes] * (65536 - part) + corner[grid_.miss_nodes + 1] * part;
  return {low * (*above - x) + high * (x - *(above - 1)), std::int64_t{65536} * (*above - *(above - 1))};
}

bool LookupTable::pass_kv(long long fresh, long long cached) const {
  return fresh <= 0 || between(fresh, cached).sum >= 0;
}

double LookupTable::log_ratio(long long fresh, long long cached) const {
  const Between b = between(fresh, cached);
  return step_ * static_cast<double>(b.sum) / static_cast<double>(b.weights);
}

RefinedTable refined_table(const LookupGrid& start, int ranks, long long limit, const RingTimer& time,
                           const Refinement& refinement) {
  LookupGrid grid = start;
  Timed timed;
  std::vector<RingPoint> order;
  const auto build = [&] {
    const std::vector<TokenSplit> splits = table_points(grid, ranks, limit);
    time_new(time, ranks, splits, timed, order);
    std::vector<RingPoint> points;
    for (const TokenSplit& s : splits) points.push_back(timed.at({s.fresh, s.cached}));
    return LookupTable::build(grid, ranks, limit, points);
  };
  LookupTable table = build();
  const std::size_t grid_points = order.size();
  const std::size_t line_bytes = 4 + static_cast<std::size_t>(grid.miss_nodes);

  while (true) {
    std::vector<TokenSplit> splits;
    for (std::size_t i = 0; i + 1 < grid.fresh.size(); ++i)
      for (const std::int64_t fresh : probes(grid.fresh[i], grid.fresh[i + 1], ranks))
        for (const TokenSplit& s :
             table_points({{fresh}, grid.miss_per_octave, grid.miss_nodes}, ranks, limit))
          splits.push_back(s);
    time_new(time, ranks, splits, timed, order);

    // The worst probe of each gap; the worst gaps first, as bytes may not suffice for all.
    std::map<std::size_t, std::pair<double, std::int64_t>> gaps;
    for (const TokenSplit& s : splits) {
      const RingPoint& p = timed.at({s.fresh, s.cached});
      const Seconds chosen = table.pass_kv(s.fresh, s.cached) ? p.pass_kv : p.pass_q;
      const double lost = chosen / std::min(p.pass_kv, p.pass_q) - 1;
      const auto gap = static_cast<std::size_t>(
          std::lower_bound(grid.fresh.begin(), grid.fresh.end(), s.fresh) - grid.fresh.begin());
      auto& worst = gaps[gap];
      if (lost > refinement.regret && lost > worst.first) worst = {lost, s.fresh};
    }
    std::vector<std::pair<double, std::int64_t>> wanted;
    for (const auto& [gap, worst] : gaps)
      if (worst.first > 0) wanted.push_back(worst);
    std::sort(wanted.begin(), wanted.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    std::size_t added = 0;
    for (const auto& [lost, fresh] : wanted) {
      if (table.bytes() + (added + 1) * line_bytes > refinement.bytes) break;
      grid.fresh.insert(std::lower_bound(grid.fresh.begin(), grid.fresh.end(), fresh), fresh);
      ++added;
    }
    if (added == 0) break;
    table = build();
  }
  return {std::move(table), std::move(order), grid_points};
}

const LookupTable& nearest_table(std::span<const LookupTable> tables, int ranks) {
  SL_CHECK(!tables.empty(), "there is a table");
  const LookupTable* nearest = &tables.front();
  for (const LookupTable& t : tables) {
    const std::int64_t asked = ranks;
    if (asked * asked > std::int64_t{nearest->ranks()} * t.ranks()) nearest = &t;
  }
  return *nearest;
}

}  // namespace shardline
