// Made-up requests: their means, spreads and shared beginnings.
#include "planner/serving/synthetic.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <stdexcept>
#include <vector>

namespace shardline {
namespace {

constexpr std::uint64_t kMany = 50'000;

TEST(Synthetic, LengthsHaveTheMeanAndSpread) {
  const SyntheticRequests requests({Variate::lognormal(3000, 0.8), Variate::gamma(400, 0.5)}, 3);
  double input = 0, output = 0, squares = 0;
  for (std::uint64_t i = 0; i < kMany; ++i) {
    const TraceRequest r = requests.make(i, Seconds(0));
    input += static_cast<double>(r.input);
    output += static_cast<double>(r.output);
    squares += static_cast<double>(r.input) * static_cast<double>(r.input);
    ASSERT_EQ(static_cast<std::int64_t>(r.blocks.size()), (r.input + kTraceBlock - 1) / kTraceBlock);
  }
  input /= kMany;
  // Within 4.9 standard errors: once in a million seeds not.
  EXPECT_NEAR(input, 3000, 4.9 * 0.8 * 3000 / std::sqrt(kMany));
  EXPECT_NEAR(output / kMany, 400, 4.9 * 0.5 * 400 / std::sqrt(kMany));
  EXPECT_NEAR(std::sqrt(squares / kMany - input * input) / input, 0.8, 0.03);
}

// Half of the requests begin with one of ten texts of 4 blocks; all have 8: in a cache without end a quarter
// of all blocks is found, but for the first time of each text.
TEST(Synthetic, SharedBlocksAreFoundAsOftenAsAsked) {
  const SyntheticRequests requests(
      {Variate::fixed(4096), Variate::fixed(1), 0.5, 10, Variate::fixed(2048 + 500)}, 7);
  std::set<std::uint64_t> seen;
  double found = 0, shared = 0;
  for (std::uint64_t i = 0; i < kMany; ++i) {
    for (const std::uint64_t block : requests.make(i, Seconds(0)).blocks)
      found += seen.insert(block).second ? 0 : 1;
    shared += requests.make(i, Seconds(0)).blocks[0] < (std::uint64_t{1} << 63) ? 1 : 0;
  }
  EXPECT_NEAR(shared / kMany, 0.5, 4.9 * 0.5 / std::sqrt(kMany));
  EXPECT_EQ(found, 4 * shared - 40);
  EXPECT_EQ(seen.size(), 8 * kMany - static_cast<std::uint64_t>(found));
}

TEST(Synthetic, ATextIsCutWhereTheInputIsShorter) {
  const SyntheticRequests requests({Variate::fixed(1100), Variate::fixed(1), 1, 1, Variate::fixed(100'000)},
                                   7);
  const TraceRequest a = requests.make(1, Seconds(2)), b = requests.make(2, Seconds(3));
  ASSERT_EQ(a.blocks.size(), 3U);
  EXPECT_EQ(a.blocks[1], b.blocks[1]);
  EXPECT_NE(a.blocks[2], b.blocks[2]);
  EXPECT_EQ(a.arrival, Seconds(2));
}

TEST(Synthetic, ARequestDependsOnItsNumberAndSeedOnly) {
  const SyntheticLaw law{Variate::gamma(3000, 1), Variate::gamma(300, 1), 0.7, 5, Variate::gamma(2000, 1)};
  const SyntheticRequests one(law, 1), other(law, 2);
  const TraceRequest first = one.make(9, Seconds(0));
  one.make(3, Seconds(0));
  const TraceRequest again = one.make(9, Seconds(0));
  EXPECT_EQ(first.input, again.input);
  EXPECT_EQ(first.output, again.output);
  EXPECT_EQ(first.blocks, again.blocks);
  EXPECT_NE(first.input, other.make(9, Seconds(0)).input);
}

TEST(Synthetic, RefusesWhatCannotBe) {
  const Variate one = Variate::fixed(1);
  EXPECT_THROW(SyntheticRequests({one, one, 1.5, 1, one}, 1), std::logic_error);
  EXPECT_THROW(SyntheticRequests({one, one, 0.5, 0, one}, 1), std::logic_error);
  EXPECT_THROW(SyntheticRequests({one, one}, 1).make(std::uint64_t{1} << 41, Seconds(0)), std::logic_error);
}

}  // namespace
}  // namespace shardline
