// The stopping rule on invented samples.
#include "cuda_probe/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace shardline {
namespace {

// Portable uniform numbers.
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) / 9007199254740992.0; }

Sampler of(std::initializer_list<double> samples, const StoppingRule& rule = {}) {
  Sampler s(rule);
  for (const double v : samples) s.add(Seconds(v));
  return s;
}

TEST(Sampler, QuantilesAreThoseOfTheSamplesInAnyOrder) {
  const Sampler s = of({5, 1, 4, 2, 3});
  EXPECT_EQ(s.median(), Seconds(3));
  EXPECT_EQ(s.quantile(0), Seconds(1));
  EXPECT_EQ(s.quantile(1), Seconds(5));
  EXPECT_DOUBLE_EQ(s.quantile(0.1).value, 1.4);
  EXPECT_DOUBLE_EQ(of({1, 2, 3, 10}).median().value, 2.5);
  EXPECT_EQ(of({7}).median(), Seconds(7));
}

TEST(Sampler, MedianIntervalHasTheRanksOfTheBinomialTable) {
  // Published tables of two-sided 95 % intervals: ranks (1-based) 2 and 9 of 10, 6 and 15 of 20, 40 and 61 of
  // 100; five samples are too few.
  const auto ranks = [](int n, double confidence) {
    StoppingRule rule;
    rule.confidence = confidence;
    Sampler s(rule);
    for (int i = n; i >= 1; --i) s.add(Seconds(i));
    const Sampler::Interval i = s.median_interval();
    return std::pair(i.low.value, i.high.value);
  };
  EXPECT_EQ(ranks(10, 0.95), std::pair(2.0, 9.0));
  EXPECT_EQ(ranks(20, 0.95), std::pair(6.0, 15.0));
  EXPECT_EQ(ranks(100, 0.95), std::pair(40.0, 61.0));
  EXPECT_EQ(ranks(5, 0.95), std::pair(1.0, 5.0));
  EXPECT_EQ(ranks(1, 0.95), std::pair(1.0, 1.0));
  // The normal limit beyond 500 meets the binomial ranks below: 500 gives 228 and 273.
  EXPECT_EQ(ranks(500, 0.95), std::pair(228.0, 273.0));
  EXPECT_NEAR(ranks(502, 0.95).first, 229, 1);
  EXPECT_NEAR(ranks(502, 0.95).second, 274, 1);
}

TEST(Sampler, IntervalsHoldTheTrueMedianAsOftenAsTheySay) {
  std::mt19937_64 random(4);
  for (const int n : {10, 35, 600}) {
    int held = 0;
    const int rounds = 2000;
    for (int round = 0; round < rounds; ++round) {
      Sampler s({});
      for (int i = 0; i < n; ++i) s.add(Seconds(std::exp(-3 * uniform(random))));  // skewed; median exp(-1.5)
      const Sampler::Interval i = s.median_interval();
      held += i.low.value <= std::exp(-1.5) && std::exp(-1.5) <= i.high.value;
    }
    // 95 % or a little more, since ranks are whole; four standard errors of 2000 rounds are 2 %.
    EXPECT_GE(held, rounds * 0.93) << n;
    EXPECT_LE(held, rounds * 0.995) << n;
  }
}

TEST(Sampler, StopsWhenExactButNotBeforeTheLeastSamples) {
  StoppingRule rule;
  Sampler s(rule);
  for (int i = 0; i < 9; ++i) {
    s.add(Seconds(1e-3));
    EXPECT_EQ(s.stop(), Stop::no);
  }
  s.add(Seconds(1e-3));
  EXPECT_EQ(s.stop(), Stop::exact);
}

TEST(Sampler, NoisyKernelsTakeMoreSamplesThanQuietOnes) {
  std::mt19937_64 random(5);
  const auto needed = [&](double noise) {
    Sampler s({});
    while (s.stop() == Stop::no) s.add(Seconds(1e-5 * (1 + noise * (uniform(random) - 0.5))));
    EXPECT_EQ(s.stop(), Stop::exact);
    EXPECT_NEAR(s.median().value / 1e-5, 1, 0.02);
    return s.count();
  };
  const std::size_t quiet = needed(0.005), some = needed(0.05), loud = needed(0.2);
  EXPECT_EQ(quiet, 10u);
  EXPECT_GT(some, quiet);
  EXPECT_GT(loud, 4 * some);
}

TEST(Sampler, LimitsEndWhatNoiseWouldNot) {
  StoppingRule rule;
  rule.most = 40;
  Sampler few(rule);
  for (int i = 0; few.stop() == Stop::no; ++i) few.add(Seconds(i % 2 == 0 ? 1e-3 : 2e-3));
  EXPECT_EQ(few.stop(), Stop::most_samples);
  EXPECT_EQ(few.count(), 40u);
  rule.budget = Seconds(0.02);
  Sampler slow(rule);
  for (int i = 0; slow.stop() == Stop::no; ++i) slow.add(Seconds(i % 2 == 0 ? 1e-3 : 2e-3));
  EXPECT_EQ(slow.stop(), Stop::out_of_budget);
  EXPECT_EQ(slow.count(), 14u);  // 7 x (1 + 2) ms is the first sum of 20 ms and more
}

TEST(Sampler, FallingClocksShowAsDriftAndOutliersDoNot) {
  Sampler falling({}), steady({});
  for (int i = 0; i < 30; ++i) {
    falling.add(Seconds(1e-3 * (1 + 0.01 * i)));
    steady.add(Seconds(i % 7 == 0 ? 5e-3 : 1e-3));
  }
  EXPECT_NEAR(falling.drift(), (1.245 - 1.045) / 1.045, 1e-12);
  EXPECT_TRUE(falling.drifted());
  EXPECT_EQ(steady.drift(), 0);
  EXPECT_FALSE(steady.drifted());
  EXPECT_EQ(of({1, 2, 3, 4, 5}).drift(), 0);  // too few to tell
}

}  // namespace
}  // namespace shardline
