// Time averages, Little's account [S15], intervals of means [S17].
#include "sim/queue/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "sim/base/random.hpp"

namespace shardline {
namespace {

TEST(TimeAverage, S15StepsAndSlopes) {
  TimeAverage average(2, Seconds(1));
  EXPECT_EQ(average.mean(Seconds(1)), 2);
  average.set(Seconds(3), 6);    // 2 for two seconds
  average.slide(Seconds(5), 0);  // from 6 to 0 in two
  EXPECT_EQ(average.integral(), 4 + 6);
  EXPECT_EQ(average.mean(Seconds(6)), 2);
  average.add(Seconds(6), 3);
  EXPECT_EQ(average.mean(Seconds(7)), 13.0 / 6);
  EXPECT_EQ(average.most(), 6);
  EXPECT_THROW(average.set(Seconds(5), 1), std::logic_error);
  EXPECT_THROW(static_cast<void>(average.mean(Seconds(5))), std::logic_error);
}

TEST(LittleAccount, S15BalancesUnlessSomebodyIsLost) {
  LittleAccount account;
  account.enter(Seconds(1));
  account.enter(Seconds(2));
  account.leave(Seconds(5), Seconds(1));
  EXPECT_EQ(account.present(), 1U);
  EXPECT_EQ(account.mean_stay(), Seconds(4));
  EXPECT_EQ(account.mean_present(Seconds(6)), 8.0 / 6);
  EXPECT_EQ(account.imbalance(Seconds(6), Seconds(4)), 0);
  // Who entered at 2 leaves as if at 3: the account shows it.
  account.leave(Seconds(6), Seconds(3));
  EXPECT_GT(account.imbalance(Seconds(6)), 0.1);
  EXPECT_THROW(account.leave(Seconds(7), Seconds(1)), std::logic_error);
}

TEST(MeanInterval, S17StudentsT) {
  // Tables of t, two-sided.
  EXPECT_NEAR(student_t(0.95, 2), 4.302652730, 1e-8);
  EXPECT_NEAR(student_t(0.95, 3), 3.182446305, 1e-3);
  EXPECT_NEAR(student_t(0.95, 10), 2.228138852, 1e-5);
  EXPECT_NEAR(student_t(0.95, 30), 2.042272456, 1e-5);
  EXPECT_NEAR(student_t(0.99, 19), 2.860934606, 1e-5);
  EXPECT_NEAR(student_t(0.90, 39), 1.684875122, 1e-5);
  EXPECT_NEAR(student_t(0.9999, 29), 4.505511631, 1e-4);
  EXPECT_THROW(student_t(0.95, 1), std::logic_error);
  EXPECT_THROW(student_t(1, 5), std::logic_error);
  const double values[] = {1, 2, 3, 4, 5};
  const MeanInterval interval = mean_interval(values, 0.95);
  EXPECT_EQ(interval.mean, 3);
  EXPECT_NEAR(interval.half_width, 2.7764451 * std::sqrt(2.5 / 5), 1e-3);
  EXPECT_TRUE(std::isinf(mean_interval({values, 2}, 0.95).half_width));
}

/// A series whose neighbours are correlated by `memory`: x' = memory x + noise. Mean 0.
double next(double& x, double memory, RandomStream& random) {
  return x = memory * x + std::sqrt(1 - memory * memory) * random.normal();
}

// 95 % of intervals hold the true mean: between 921 and 974 of 1000 but once in 5,000.
TEST(BatchMeans, S17IntervalsCoverTheMean) {
  int covered = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    RandomStream random(seed, "series");
    BatchMeans batches;
    double x = random.normal();
    for (int i = 0; i < 5000; ++i) batches.add(next(x, 0.8, random));
    const MeanInterval interval = batches.interval(0.95);
    covered += std::abs(interval.mean) < interval.half_width ? 1 : 0;
  }
  EXPECT_GT(covered, 921);
  EXPECT_LT(covered, 974);
}

// Of a series too short for its memory the correlation says that the interval is too narrow.
TEST(BatchMeans, S17CorrelationWarns) {
  RandomStream random(1, "series");
  BatchMeans slow, fast;
  double x = 0, y = 0;
  for (int i = 0; i < 5000; ++i) {
    slow.add(next(x, 0.999, random));
    fast.add(next(y, 0.1, random));
  }
  EXPECT_GT(slow.correlation(), 0.3);
  EXPECT_LT(std::abs(fast.correlation()), 0.5);
}

TEST(BatchMeans, S17EveryValueIsInTheMean) {
  BatchMeans batches;
  for (int i = 1; i <= 1001; ++i) {
    batches.add(i);
    ASSERT_EQ(batches.mean(), (i + 1) / 2.0);
  }
  EXPECT_EQ(batches.count(), 1001U);
  // Whole batches of 32: the first 992.
  EXPECT_EQ(batches.interval(0.9).mean, 496.5);
  EXPECT_TRUE(std::isinf(BatchMeans().interval(0.9).half_width));
}

}  // namespace
}  // namespace shardline
