// The lookup table: deciding, building, refining, and what its choices cost on invented times.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "planner/studies/thresholds.hpp"

namespace shardline {
namespace {

// Llama-3 405B (arXiv 2411.01783, Table 9).
constexpr double kQHeads = 128;
constexpr double kKvHeads = 8;
constexpr double kHeadDim = 128;
constexpr double kLayers = 126;
constexpr double kParameters = 405e9;

/// Invented times: the paper's closed forms, one linear part per layer, and no other overhead. With `waves`,
/// attention takes whole waves of 132 tiles (128 rows by one of 16 heads per GPU).
RingPoint timed(int ranks, TokenSplit s, bool waves) {
  const double n = ranks;
  const double t = static_cast<double>(s.fresh);
  const double p = static_cast<double>(s.cached);
  const double compute = 8 * 540e12;
  const double bandwidth = 8 * 27.7e9;
  double attention = 4 * kQHeads * kHeadDim * (t * p + t * t / 2) / (n * n) / compute;
  if (waves) {
    const double tiles = 16 * std::ceil(t / n / 128);
    const double wave = 4 * 132 * 128 * kHeadDim * (p + t / 2) / n / (compute / 8);
    attention = std::ceil(tiles / 132) * wave;
  }
  const double linear = 2 * kParameters / kLayers * t / n / compute;
  const double send_kv = 2 * (t + p) / n * kKvHeads * kHeadDim * 2 / bandwidth;
  const double send_q = t / n * kQHeads * kHeadDim * 2 / bandwidth;
  const double all_to_all = (n - 1) * (kQHeads * kHeadDim + 1) * t / n * 2 / bandwidth;
  const auto ring = [&](double send) { return attention + (n - 1) * std::max(attention, send); };
  return {.ranks = ranks,
          .fresh = s.fresh,
          .cached = s.cached,
          .pass_kv = Seconds(kLayers * (linear + ring(send_kv))),
          .pass_q = Seconds(kLayers * (linear + ring(send_q) + all_to_all))};
}

std::vector<RingPoint> timed(int ranks, const std::vector<TokenSplit>& splits, bool waves) {
  std::vector<RingPoint> out;
  for (const TokenSplit& s : splits) out.push_back(timed(ranks, s, waves));
  return out;
}

std::vector<TokenSplit> splits_of(const std::vector<RingPoint>& points) {
  std::vector<TokenSplit> out;
  for (const RingPoint& p : points) out.push_back({p.fresh, p.cached});
  return out;
}

constexpr TokenRange kRange{
    .fresh_min = 512, .fresh_max = 1 << 20, .miss_min = 1.0 / 512, .total_limit = 1 << 20};

LookupGrid default_grid(int ranks) {
  return LookupGrid::covering(ranks, kRange.fresh_min, kRange.fresh_max, kRange.miss_min, 4, 2);
}

RingTimer timer(bool waves) {
  return [waves](int ranks, std::span<const TokenSplit> splits) {
    return timed(ranks, {splits.begin(), splits.end()}, waves);
  };
}

Regret cost(const LookupTable& table, const std::vector<RingPoint>& points) {
  return regret(points, [&](int, long long fresh, long long cached) { return table.pass_kv(fresh, cached); });
}

TEST(ThresholdTable, DecidesByBilinearInterpolation) {
  // Along m = 1 the zero lies at a third of the octave from 64 to 128, along m = 1/2 at two thirds.
  const LookupTable table(4, {{64, 128}, 1, 2}, 0.01, {-10, -20, 20, 10});
  EXPECT_FALSE(table.pass_kv(80, 0));  // 64 * 2^(1/3) = 80.6
  EXPECT_TRUE(table.pass_kv(81, 0));
  EXPECT_FALSE(table.pass_kv(101, 101));  // 64 * 2^(2/3) = 101.6
  EXPECT_TRUE(table.pass_kv(102, 102));
  EXPECT_FALSE(table.pass_kv(90, 38));  // m = 2^-0.508: the zero is at 64 * 2^0.503 = 90.7
  EXPECT_TRUE(table.pass_kv(91, 37));
  // Beyond the edges.
  EXPECT_FALSE(table.pass_kv(1, 0));
  EXPECT_TRUE(table.pass_kv(1 << 30, 0));
  EXPECT_FALSE(table.pass_kv(101, 101 * 500));
  EXPECT_TRUE(table.pass_kv(102, 102 * 500));
  EXPECT_EQ(table.bytes(), 4U + 2 * 4U);
  // At the nodes, and halfway on both axes.
  EXPECT_NEAR(table.log_ratio(64, 0), -0.1, 1e-12);
  EXPECT_NEAR(table.log_ratio(64, 64), -0.2, 1e-12);
  EXPECT_NEAR(table.log_ratio(128, 128), 0.1, 1e-12);
  EXPECT_NEAR(table.log_ratio(128, 384), 0.1, 1e-12);  // beyond the edge
  // log2(91/64) = .50779 along T, log2(128/91) = .49221 along m: -.149221 and .150779 at the lines.
  EXPECT_NEAR(table.log_ratio(91, 37), -0.149221 + 0.3 * 0.50779, 1e-5);
  // Zero goes to pass-KV, as a tie does.
  EXPECT_TRUE(LookupTable(4, {{64, 128}, 1, 2}, 0.01, {0, 0, 0, 0}).pass_kv(100, 50));
}

TEST(ThresholdTable, GridCoversItsRange) {
  const LookupGrid grid = default_grid(4);
  EXPECT_EQ(grid.fresh.front(), 512);
  EXPECT_EQ(grid.fresh.back(), 1 << 20);
  EXPECT_EQ(grid.fresh.size(), 45U);  // 11 octaves of 4
  EXPECT_EQ(grid.miss_nodes, 19);     // 9 octaves of 2
  for (const std::int64_t t : grid.fresh) EXPECT_EQ(t % 8, 0);
  EXPECT_TRUE(std::is_sorted(grid.fresh.begin(), grid.fresh.end()));
  EXPECT_EQ(LookupGrid::covering(4, 600, 600, 1, 1, 1).fresh, (std::vector<std::int64_t>{512, 1024}));
  EXPECT_EQ(LookupGrid::covering(16, 1, 100, 1, 4, 1).fresh, (std::vector<std::int64_t>{32, 64, 96, 128}));
  const auto points = table_points(grid, 4, kRange.total_limit);
  EXPECT_LT(points.size(), grid.nodes());
  for (const TokenSplit& s : points) {
    EXPECT_EQ(s.cached % 8, 0);
    EXPECT_LE(s.fresh + s.cached, kRange.total_limit);
  }
}

TEST(ThresholdTable, HoldsItsNodesAndContinuesThePlane) {
  // ln ratio = 0.01 (8 - i - 2 j) exactly; with limit 1024 the nodes with i + j > 2 are beyond it.
  const LookupGrid grid{{256, 512, 1024}, 1, 4};
  std::vector<RingPoint> points;
  for (const TokenSplit& s : table_points(grid, 4, 1024)) {
    const double i = std::log2(static_cast<double>(s.fresh) / 256);
    const double j = std::log2(static_cast<double>(s.fresh + s.cached) / static_cast<double>(s.fresh));
    points.push_back({.ranks = 4,
                      .fresh = s.fresh,
                      .cached = s.cached,
                      .pass_kv = Seconds(1),
                      .pass_q = Seconds(std::exp(0.01 * (8 - i - 2 * j)))});
  }
  ASSERT_EQ(points.size(), 6U);
  const LookupTable table = LookupTable::build(grid, 4, 1024, points);
  EXPECT_NEAR(table.step() * 127, 0.08, 1e-12);
  const std::vector<double> expected{8, 6, 4, 4,   // the last copies the larger m
                                     7, 5, 3, 3,   // 4 + 5 - 6; then 4 + 3 - 4
                                     6, 4, 2, 3};  // 5 + 6 - 7; 3 + 4 - 5; the last copies the smaller T
  for (std::size_t k = 0; k < expected.size(); ++k)
    EXPECT_NEAR(table.values()[k] * table.step() / 0.01, expected[k], 0.04) << k;

  points.pop_back();
  EXPECT_THROW(LookupTable::build(grid, 4, 1024, points), std::logic_error);
  EXPECT_THROW(LookupTable::build(grid, 4, 100, {}), std::logic_error);
}

TEST(ThresholdTable, NearestRing) {
  const LookupGrid grid{{64, 128}, 1, 2};
  const std::vector<LookupTable> tables{
      {2, grid, 1, {0, 0, 0, 0}}, {8, grid, 1, {0, 0, 0, 0}}, {16, grid, 1, {0, 0, 0, 0}}};
  const auto nearest = [&](int ranks) { return nearest_table(tables, ranks).ranks(); };
  EXPECT_EQ(nearest(1), 2);
  EXPECT_EQ(nearest(3), 2);
  EXPECT_EQ(nearest(4), 2);  // equally near to 8
  EXPECT_EQ(nearest(5), 8);
  EXPECT_EQ(nearest(11), 8);  // 121 < 128
  EXPECT_EQ(nearest(12), 16);
  EXPECT_EQ(nearest(1'000'000'000), 16);
  EXPECT_THROW(nearest_table({}, 4), std::logic_error);
}

TEST(ThresholdTable, LosesLittleOnPointsItHasNotSeen) {
  for (const bool waves : {false, true}) {
    for (const int ranks : {2, 4, 8, 16}) {
      SCOPED_TRACE(::testing::Message() << "ranks " << ranks << (waves ? " waves" : " smooth"));
      const RefinedTable made = refined_table(default_grid(ranks), ranks, kRange.total_limit, timer(waves));
      const auto tests = timed(ranks, test_points(kRange, ranks, 10'000, splits_of(made.points)), waves);
      ASSERT_EQ(tests.size(), 10'000U);
      const Regret r = cost(made.table, tests);
      RecordProperty("mean" + std::to_string(ranks) + (waves ? "waves" : ""), std::to_string(r.mean));
      RecordProperty("worst" + std::to_string(ranks) + (waves ? "waves" : ""), std::to_string(r.worst));
      EXPECT_LT(r.mean, 0.002);
      EXPECT_LT(r.worst, 0.02);
      EXPECT_LE(made.table.bytes(), 2048U);
      // The choice is not trivial there.
      const auto kv = [](int, long long, long long) { return true; };
      const auto q = [](int, long long, long long) { return false; };
      EXPECT_GT(regret(tests, kv).worst, 0.06);
      EXPECT_GT(regret(tests, q).mean, 0.05);
      EXPECT_LT(r.mean, regret(tests, kv).mean / 100);
    }
  }
}

TEST(ThresholdTable, RefinementFindsTheEndOfAWave) {
  // 1024 tokens per rank are 8 tiles of 16 heads, one wave of 132; one token more needs a second wave.
  const LookupGrid grid = default_grid(8);
  const RefinedTable made = refined_table(grid, 8, kRange.total_limit, timer(true));
  const auto nodes = timed(8, table_points(grid, 8, kRange.total_limit), true);
  ASSERT_EQ(made.grid_points, nodes.size());
  for (std::size_t k = 0; k < nodes.size(); ++k) EXPECT_EQ(made.points[k].fresh, nodes[k].fresh);
  const LookupTable coarse = LookupTable::build(grid, 8, kRange.total_limit, nodes);
  const auto tests = timed(8, test_points(kRange, 8, 10'000, splits_of(made.points)), true);
  EXPECT_GT(cost(coarse, tests).worst, 0.05);
  EXPECT_LT(cost(made.table, tests).worst, 0.01);
  const auto& lines = made.table.grid().fresh;
  EXPECT_TRUE(std::binary_search(lines.begin(), lines.end(), 8192));
  EXPECT_TRUE(std::binary_search(lines.begin(), lines.end(), 8208));

  // No room for a line, or nothing to gain.
  EXPECT_EQ(
      refined_table(grid, 8, kRange.total_limit, timer(true), {.regret = 0.005, .bytes = coarse.bytes()})
          .table.values(),
      coarse.values());
  EXPECT_EQ(
      refined_table(grid, 8, kRange.total_limit, timer(true), {.regret = 1, .bytes = 4096}).table.values(),
      coarse.values());
  // The same again.
  EXPECT_EQ(refined_table(grid, 8, kRange.total_limit, timer(true)).table.values(), made.table.values());
}

}  // namespace
}  // namespace shardline
