#include "cuda_probe/kernels/attend_plan.hpp"

#include <gtest/gtest.h>

#include <random>

namespace shardline {
namespace {

bool sees(const AttendPlan& p, std::size_t q, std::size_t k) {
  return p.codes[k] >= p.visible[q].low && p.codes[k] <= p.visible[q].high;
}

/// Every pair of the mask is in a run of its tile, pairs of an unmasked run are all visible; tiles with
/// nothing to see have no run.
void check(const Tokens& queries, const Tokens& keys) {
  const AttendPlan p = plan_attend(queries, keys);
  const auto q_rows = static_cast<std::size_t>(rows(queries)), kv_rows = static_cast<std::size_t>(rows(keys));
  ASSERT_EQ(p.visible.size(), q_rows);
  ASSERT_EQ(p.codes.size() % kKeyTile, 0u);
  double pairs = 0, computed = 0;
  std::vector<int> tiles_seen(p.order.size(), 0);
  for (const std::int32_t t : p.order) ++tiles_seen[static_cast<std::size_t>(t)];
  double last_work = 1e300;
  for (const std::int32_t t : p.order) {
    EXPECT_EQ(tiles_seen[static_cast<std::size_t>(t)], 1);
    const auto tile = static_cast<std::size_t>(t);
    std::vector<int> covered(p.codes.size(), 0);
    double work = 0;
    for (std::int32_t r = p.run_begin[tile]; r < p.run_begin[tile + 1]; ++r) {
      const KeyRun& run = p.runs[static_cast<std::size_t>(r)];
      ASSERT_EQ(run.first % kKeyTile, 0);
      ASSERT_TRUE(run.last % kKeyTile == 0 || static_cast<std::size_t>(run.last) == kv_rows);
      work += (run.last - run.first + kKeyTile - 1) / kKeyTile;
      for (std::int32_t k = run.first; k < run.last; ++k)
        covered[static_cast<std::size_t>(k)] += run.masked ? 1 : 2;
    }
    computed += work * kKeyTile * kQueryTile;
    EXPECT_LE(work, last_work);
    last_work = work;
    std::vector<bool> tile_needed(p.codes.size() / kKeyTile, false);
    for (std::size_t q = tile * kQueryTile; q < std::min(q_rows, (tile + 1) * kQueryTile); ++q) {
      for (std::size_t k = 0; k < kv_rows; ++k) {
        if (sees(p, q, k)) {
          ++pairs;
          ASSERT_GT(covered[k], 0);
          tile_needed[k / kKeyTile] = true;
        } else {
          ASSERT_NE(covered[k], 2) << "an unmasked run holds a pair that must not be seen";
        }
        ASSERT_LE(covered[k], 2);
      }
    }
  }
  EXPECT_EQ(pairs, causal_pairs(queries, keys));
  EXPECT_EQ(computed, p.computed);
}

TEST(AttendPlan, CoversTheMaskExactly) {
  check({{0, 0, 1}}, {{0, 0, 1}});
  check({{0, 0, 1000}}, {{0, 0, 1000}});
  check({{0, 500, 700}}, {{0, 0, 700}});
  check({}, {{0, 0, 10}});
  check({{0, 0, 10}}, {});
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    Tokens lists[2];
    for (Tokens& list : lists) {
      const int parts = 1 + static_cast<int>(random() % 5);
      for (int i = 0; i < parts; ++i) {
        const auto request = static_cast<std::int32_t>(random() % 4) - 1;
        const auto begin = static_cast<std::int64_t>(random() % 600);
        const auto stride = trial % 3 == 0 ? 1 + static_cast<std::int64_t>(random() % 4) : 1;
        list.push_back({request, begin, begin + static_cast<std::int64_t>(random() % 300) * stride, stride});
      }
    }
    check(lists[0], lists[1]);
  }
}

TEST(AttendPlan, CausalSquareComputesHalfAndTheDiagonal) {
  const AttendPlan p = plan_attend(Tokens{{0, 0, 1024}}, Tokens{{0, 0, 1024}});
  EXPECT_EQ(p.computed, 8 * 9 / 2 * 128.0 * 128);
  EXPECT_EQ(p.order.front(), 7);
  // Below the diagonal nothing is masked.
  EXPECT_EQ(p.runs.size(), 15u);
}

// With the diagonal or without it, the tiles of two stripes are those of a causal square.
TEST(AttendPlan, StripesComputeTheTilesOfACausalSquare) {
  for (const std::int64_t query : {0, 1, 3}) {
    for (const std::int64_t key : {0, 1, 3}) {
      const Tokens queries{{0, query, 4096, 4}}, keys{{0, key, 4096, 4}};
      const AttendPlan p = plan_attend(queries, keys);
      EXPECT_EQ(p.computed, 8 * 9 / 2 * 128.0 * 128) << query << " " << key;
      EXPECT_EQ(p.runs.size(), 15u);
    }
  }
  check({{0, 2, 2000, 5}}, {{0, 4, 2000, 5}});
}

TEST(AttendPlan, RefusesMoreCodesThan31Bits) {
  EXPECT_THROW(plan_attend(Tokens{{0, 3'000'000'000, 3'000'000'001}}, Tokens{}), std::length_error);
}

}  // namespace
}  // namespace shardline
