// The measuring loop on invented samples.
#include "cuda_probe/probes/measure.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "cuda_probe/probes/nvml.hpp"

namespace shardline {
namespace {

// Portable uniform numbers.
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) / 9007199254740992.0; }

// Calls 0, 1, ... give f(call).
template <class F>
TakeSample calls(F f, int* count = nullptr) {
  return [f, count, call = 0]() mutable {
    if (count != nullptr) *count = call + 1;
    return f(call++);
  };
}

Reading steady(double microseconds_of_one) { return {microseconds(microseconds_of_one), 1980, false}; }

TEST(Measure, SteadySamplesStopAtTheLeastNumber) {
  const Measured m = measure({}, calls([](int) { return steady(7); }));
  EXPECT_TRUE(m.valid());
  EXPECT_EQ(m.stop, Stop::exact);
  EXPECT_EQ(m.samples, StoppingRule{}.least);
  EXPECT_EQ(m.warm_up, 2 * MeasureRule{}.window);
  EXPECT_DOUBLE_EQ(m.median.value, 7e-6);
  EXPECT_EQ(m.p10, m.median);
  EXPECT_EQ(m.p90, m.median);
  EXPECT_EQ(m.discarded, 0u);
  EXPECT_FALSE(m.drifted);
}

TEST(Measure, NoiseIsSampledUntilTheMedianIsExactEnough) {
  std::mt19937_64 random(3);
  const Measured m = measure({}, calls([&](int) { return steady(10 * (0.9 + 0.2 * uniform(random))); }));
  EXPECT_EQ(m.stop, Stop::exact);
  EXPECT_GT(m.samples, 40u);
  EXPECT_LE(m.relative_error, 0.01);
  EXPECT_NEAR(m.median.value, 10e-6, 0.15e-6);
  EXPECT_LT(m.p10, m.median);
  EXPECT_GT(m.p90, m.median);
}

TEST(Measure, TwoLevelsNeverConvergeAndStopAtTheMost) {
  MeasureRule rule;
  rule.stop.most = 200;
  rule.stop.budget = Seconds(10);
  const Measured m = measure(rule, calls([](int i) { return steady(i % 2 == 0 ? 10 : 20); }));
  EXPECT_TRUE(m.valid());
  EXPECT_EQ(m.stop, Stop::most_samples);
  EXPECT_EQ(m.samples, 200u);
  EXPECT_GT(m.relative_error, 0.01);
}

TEST(Measure, LongCallsStopWhenTheBudgetIsSpent) {
  std::mt19937_64 random(6);
  const Measured m = measure({}, calls([&](int) { return steady(4e5 * (1 + uniform(random))); }));
  EXPECT_EQ(m.stop, Stop::out_of_budget);
  EXPECT_EQ(m.samples, MeasureRule{}.least_of_long);
  EXPECT_EQ(m.warm_up, 1u);  // one sample took more than the warm-up may
}

TEST(Measure, WarmUpLastsUntilTimesHaveSettled) {
  // Halves every call down to 10 us, from the 8th on.
  int count = 0;
  const Measured m = measure({}, calls([](int i) { return steady(i < 8 ? 10 << (8 - i) : 10); }, &count));
  EXPECT_DOUBLE_EQ(m.median.value, 10e-6);
  EXPECT_DOUBLE_EQ(m.p90.value, 10e-6);  // no cold call among the samples
  EXPECT_GE(m.warm_up, 8u);
  EXPECT_EQ(static_cast<std::size_t>(count), m.warm_up + m.samples);
}

TEST(Measure, WarmUpEndsWhereTimesNeverSettle) {
  const Measured m = measure({}, calls([](int i) { return steady((i / 3) % 2 == 0 ? 10 : 30); }));
  EXPECT_EQ(m.warm_up, MeasureRule{}.most_warm_up);
  EXPECT_TRUE(m.valid());
}

TEST(Measure, ThrottledSamplesAreDiscardedAndCounted) {
  const Measured m = measure({}, calls([](int i) {
                               Reading r = steady(i % 4 == 3 ? 50 : 10);
                               r.throttled = i % 4 == 3;
                               return r;
                             }));
  EXPECT_TRUE(m.valid());
  EXPECT_DOUBLE_EQ(m.p90.value, 10e-6);
  EXPECT_GE(m.discarded, 2u);
}

TEST(Measure, SlowClocksAreDiscardedAlsoBeforeTheHighestWasSeen) {
  // The clock rises after the fifth sample that follows the six of warm-up.
  const Measured m = measure(
      {}, calls([](int i) {
        return i < 11 ? Reading{microseconds(20), 1000, false} : Reading{microseconds(10), 1980, false};
      }));
  EXPECT_TRUE(m.valid());
  EXPECT_EQ(m.discarded, 5u);
  EXPECT_DOUBLE_EQ(m.p90.value, 10e-6);
  EXPECT_EQ(m.lowest_clock, 1980);
  EXPECT_EQ(m.highest_clock, 1980);
}

TEST(Measure, ClocksUnderAPowerCapAreKept) {
  const Measured m = measure({}, calls([](int i) {
                               return Reading{microseconds(10), i % 2 == 0 ? 1980.0 : 1600.0, false};
                             }));
  EXPECT_EQ(m.discarded, 0u);
  EXPECT_EQ(m.lowest_clock, 1600);
}

TEST(Measure, ThePowerLimitMayLowerTheClockToAnyDepth) {
  const auto lowered = [](bool capped) {
    return calls([capped](int i) {
      return i < 9 ? steady(10) : Reading{microseconds(16), 1200, false, capped};
    });
  };
  MeasureRule rule;
  rule.stop.least = 20;
  const Measured kept = measure(rule, lowered(true));
  EXPECT_EQ(kept.discarded, 0u);
  EXPECT_DOUBLE_EQ(kept.median.value, 16e-6);
  EXPECT_EQ(kept.lowest_clock, 1200);
  EXPECT_FALSE(measure(rule, lowered(false)).valid());
}

TEST(Measure, OnlyLongCallsNeedFewerSamples) {
  MeasureRule rule;
  rule.long_call = microseconds(100);
  EXPECT_EQ(measure(rule, calls([](int) { return steady(101); })).samples, rule.least_of_long);
  EXPECT_EQ(measure(rule, calls([](int) { return steady(99); })).samples, rule.stop.least);
  rule.stop.least = 3;
  EXPECT_EQ(measure(rule, calls([](int) { return steady(101); })).samples, 3u);
}

TEST(Measure, UnknownClocksDiscardNothing) {
  const Measured m = measure({}, calls([](int) { return Reading{microseconds(10), 0, false}; }));
  EXPECT_EQ(m.discarded, 0u);
  EXPECT_EQ(m.highest_clock, 0);
}

TEST(Measure, MostlyThrottledShapesAreDropped) {
  int count = 0;
  const Measured m = measure({}, calls(
                                     [](int i) {
                                       return Reading{microseconds(10), 1980, i % 3 != 0};
                                     },
                                     &count));
  EXPECT_FALSE(m.valid());
  EXPECT_NE(m.dropped.find("throttled"), std::string::npos) << m.dropped;
  EXPECT_LT(count, 30);  // does not go on for ever
}

TEST(Measure, DriftIsFlagged) {
  MeasureRule rule;
  rule.stop.relative_error = 0.001;
  rule.stop.most = 90;
  const Measured m = measure(rule, calls([](int i) { return steady(10 * (1 + 0.002 * i)); }));
  EXPECT_TRUE(m.drifted);
  EXPECT_GT(m.drift, 0.05);
}

TEST(Measure, FailuresOfTheDevicePassThrough) {
  EXPECT_THROW(measure({}, calls([](int i) {
                         if (i == 9) throw std::runtime_error("device lost");
                         return steady(10);
                       })),
               std::runtime_error);
}

TEST(ShareOf, DealsOutWhatIsLeftByWeight) {
  const std::array<double, 3> weights{1, 2, 1};
  const std::span<const double> all(weights);
  EXPECT_DOUBLE_EQ(share_of(Seconds(100), Seconds(0), all).value, 25);
  EXPECT_DOUBLE_EQ(share_of(Seconds(100), Seconds(10), all.subspan(1)).value, 60);  // the first used 10 of 25
  EXPECT_DOUBLE_EQ(share_of(Seconds(100), Seconds(90), all.subspan(2)).value, 10);
  EXPECT_DOUBLE_EQ(share_of(Seconds(100), Seconds(120), all.subspan(2)).value, 0);
}

TEST(Throttling, PowerCapAndIdleAreNotProtection) {
  for (const unsigned long long fine : {0x0, 0x1, 0x2, 0x4, 0x10, 0x100, 0x5})
    EXPECT_FALSE(is_throttled(fine));
  for (const unsigned long long bad : {0x8, 0x20, 0x40, 0x80, 0x44}) EXPECT_TRUE(is_throttled(bad));
  for (const unsigned long long capped : {0x4, 0x5, 0x44}) EXPECT_TRUE(is_power_capped(capped));
  for (const unsigned long long free : {0x0, 0x1, 0x8, 0x20}) EXPECT_FALSE(is_power_capped(free));
}

TEST(Nvml, WithoutADeviceEverythingIsUnknown) {
  const Nvml nvml("ffff:ff:1f.7");  // no GPU is there
  EXPECT_FALSE(nvml.missing().empty());
  DeviceInfo d;
  nvml.describe(d);
  EXPECT_EQ(d.sm_clock, 0);
  EXPECT_EQ(nvml.state().clock, 0);
  EXPECT_FALSE(nvml.state().throttled);
}

}  // namespace
}  // namespace shardline
