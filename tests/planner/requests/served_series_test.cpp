// What was held over time, against sums over all of it.
#include "planner/requests/served_series.hpp"

#include <gtest/gtest.h>

#include <cstdint>

#include "sim/base/random.hpp"

namespace shardline {
namespace {

// Steps of any lengths, some pauses between them: integrals are kept whatever becomes of the intervals, of
// which there are never more than kMost.
TEST(ServedSeries, IntegralsAreKept) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    RandomStream random(seed, "series");
    ServedSeries all, other;
    double now = 0, prompting = 0, decoding = 0, running = 0;
    for (int i = 0; i < 2000; ++i) {
      if (random.below(10) == 0) now += random.exponential();
      const double took = random.exponential() * (random.below(50) == 0 ? 30 : 0.01);
      const ServedSeries::State state{static_cast<double>(random.below(9)), 1, 0.5, random.below(2) == 0};
      (i % 2 == 0 ? all : other).add(Seconds(now), Seconds(now + took), state);
      now += took;
      running += state.running * took;
      (state.prompts ? prompting : decoding) += took;
    }
    all.merge(other);
    ServedSeries::Interval sum;
    for (const ServedSeries::Interval& v : all.intervals()) {
      EXPECT_LE(v.prompting + v.decoding, all.length().value * (1 + 1e-9));
      sum.running += v.running;
      sum.waiting += v.waiting;
      sum.held += v.held;
      sum.prompting += v.prompting;
      sum.decoding += v.decoding;
    }
    EXPECT_LE(all.intervals().size(), ServedSeries::kMost);
    EXPECT_GT(all.intervals().size(), ServedSeries::kMost / 2 - 1);
    EXPECT_NEAR(sum.running / running, 1, 1e-9);
    EXPECT_NEAR(sum.prompting / prompting, 1, 1e-9);
    EXPECT_NEAR(sum.decoding / decoding, 1, 1e-9);
    EXPECT_NEAR(sum.waiting / (prompting + decoding), 1, 1e-9);
    EXPECT_NEAR(sum.held / (prompting + decoding), 0.5, 1e-9);
  }
}

// 3 requests for half a second, 1 for the other half: in the second's intervals, and nowhere else.
TEST(ServedSeries, StatesAreWhereTheyWere) {
  ServedSeries s;
  s.add(Seconds(1), Seconds(1.5), {3, 0, 0, true});
  s.add(Seconds(1.5), Seconds(2), {1, 2, 0, false});
  s.add(Seconds(255), Seconds(256), {0, 0, 1, false});
  ASSERT_EQ(s.length().value, 0.5);
  ASSERT_EQ(s.intervals().size(), 512U);
  EXPECT_EQ(s.intervals()[1].running, 0);
  EXPECT_EQ(s.intervals()[2].running, 1.5);
  EXPECT_EQ(s.intervals()[2].prompting, 0.5);
  EXPECT_EQ(s.intervals()[3].running, 0.5);
  EXPECT_EQ(s.intervals()[3].waiting, 1);
  EXPECT_EQ(s.intervals()[3].decoding, 0.5);
  EXPECT_EQ(s.intervals()[4].running, 0);
  EXPECT_EQ(s.intervals()[511].held, 0.5);
}

}  // namespace
}  // namespace shardline
