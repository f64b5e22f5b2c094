// Quantiles over runs [S16] against all values, sorted.
#include "sim/queue/quantiles.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "sim/base/random.hpp"

namespace shardline {
namespace {

constexpr double kParts[] = {0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1};

std::vector<double> sorted_values(const std::vector<ValueRun>& runs) {
  std::vector<double> out;
  for (const ValueRun& run : runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) out.insert(out.end(), run.weight, run.value(i));
  }
  std::sort(out.begin(), out.end());
  return out;
}

double quantile_of_sorted(const std::vector<double>& values, double q) {
  const double n = static_cast<double>(values.size());
  return values[static_cast<std::size_t>(std::clamp(std::ceil(q * n), 1.0, n)) - 1];
}

ValueRun random_run(RandomStream& random) {
  ValueRun run;
  run.count = static_cast<std::uint32_t>(random.below(40));
  run.weight = static_cast<std::uint32_t>(random.below(6));
  switch (random.below(5)) {
    case 0:
      run.start = static_cast<double>(random.below(20)) - 5;
      break;  // many ties
    case 1:
      run.start = 1;
      run.slope = 1e-17 * static_cast<double>(random.below(60));
      break;  // rounds to few values
    case 2:
      run.start = random.normal() * 1e6;
      run.slope = random.normal();
      break;
    case 3:
      run.start = -random.unit();
      run.slope = random.unit() / 16;
      break;  // through 0
    default:
      run.start = 0.03 * random.unit();
      run.slope = -1e-7 * random.unit();  // descending
  }
  return run;
}

TEST(RunQuantiles, S16EqualThoseOfAllValues) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "runs");
    std::vector<ValueRun> runs{{static_cast<double>(seed), 0, 1, 1}};
    for (std::uint64_t i = random.below(1 + seed); i > 0; --i) runs.push_back(random_run(random));
    RunQuantiles set;
    for (const ValueRun& run : runs) set.add(run);
    const std::vector<double> values = sorted_values(runs);
    ASSERT_EQ(set.count(), values.size());
    for (const double q : kParts) ASSERT_EQ(set.quantile(q), quantile_of_sorted(values, q)) << q;
    for (int i = 0; i < 20; ++i) {
      const double x = values[random.below(values.size())];
      const auto part = std::upper_bound(values.begin(), values.end(), x) - values.begin();
      ASSERT_EQ(set.part_up_to(x), static_cast<double>(part) / static_cast<double>(values.size()));
    }
    long double sum = 0, size = 0;
    for (const double v : values) {
      sum += static_cast<long double>(v);
      size += static_cast<long double>(std::abs(v));
    }
    EXPECT_NEAR(set.mean() * static_cast<double>(values.size()), static_cast<double>(sum),
                1e-12 * static_cast<double>(size));
  }
}

// More runs than a block holds, and so many that the search copies those that are near.
TEST(RunQuantiles, S16ManyRuns) {
  RandomStream random(1, "many");
  std::vector<ValueRun> runs;
  RunQuantiles set;
  for (int i = 0; i < 40'000; ++i) {
    runs.push_back({random.exponential(), 1e-4 * random.normal(), static_cast<std::uint32_t>(random.below(9)),
                    static_cast<std::uint32_t>(1 + random.below(3))});
    set.add(runs.back());
  }
  const std::vector<double> values = sorted_values(runs);
  for (const double q : kParts) EXPECT_EQ(set.quantile(q), quantile_of_sorted(values, q)) << q;
}

TEST(RunQuantiles, S16LongAndHeavyRunsAreCounted) {
  RunQuantiles set;
  set.add({0, 1, 4'000'000'000, 4'000'000'000});
  EXPECT_EQ(set.count(), 16'000'000'000'000'000'000U);
  EXPECT_EQ(set.quantile(0.5), 1'999'999'999);
  EXPECT_EQ(set.quantile(0.999), 3'995'999'999);
}

TEST(RunQuantiles, S16MergeInAnyOrder) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    RandomStream random(seed, "merge");
    std::vector<RunQuantiles> parts(5);
    RunQuantiles all;
    for (int i = 0; i < 500; ++i) {
      ValueRun run = random_run(random);
      run.count += 1;
      run.weight += 1;
      all.add(run);
      parts[random.below(parts.size())].add(run);
    }
    RunQuantiles forth, back;
    for (std::size_t i = 0; i < parts.size(); ++i) forth.merge(parts[i]);
    for (std::size_t i = parts.size(); i-- > 0;) back.merge(parts[i]);
    EXPECT_EQ(forth.count(), all.count());
    for (const double q : kParts) {
      EXPECT_EQ(forth.quantile(q), all.quantile(q));
      EXPECT_EQ(back.quantile(q), all.quantile(q));
    }
    forth.merge(forth);
    EXPECT_EQ(forth.count(), 2 * all.count());
    EXPECT_EQ(forth.quantile(0.5), all.quantile(0.5));
  }
}

// Runs that come again and again take no more memory, and count as often as they came.
TEST(RunQuantiles, S16EqualRunsBecomeOne) {
  RandomStream random(3, "again");
  std::vector<ValueRun> kinds;
  for (int i = 0; i < 5000; ++i) {
    kinds.push_back({random.exponential(), 1e-4 * random.normal(),
                     static_cast<std::uint32_t>(1 + random.below(5)),
                     static_cast<std::uint32_t>(1 + random.below(3))});
  }
  RunQuantiles set, twice;
  std::vector<ValueRun> added;
  for (int i = 0; i < 100'000; ++i) {
    added.push_back(kinds[random.below(kinds.size())]);
    set.add(added.back());
  }
  EXPECT_LE(set.runs(), 16'384U);
  const std::vector<double> values = sorted_values(added);
  EXPECT_EQ(set.count(), values.size());
  for (const double q : kParts) EXPECT_EQ(set.quantile(q), quantile_of_sorted(values, q)) << q;
  twice.merge(set);
  twice.merge(set);
  EXPECT_EQ(twice.count(), 2 * set.count());
  EXPECT_LE(twice.runs(), 16'384U);
  // Weights that would not fit into one run stay apart.
  RunQuantiles heavy;
  for (int i = 0; i < 40'000; ++i) heavy.add({1, 0, 1, 4'000'000'000});
  EXPECT_EQ(heavy.count(), 160'000'000'000'000U);
  EXPECT_EQ(heavy.quantile(1), 1);
}

TEST(RunQuantiles, S16RefusesWhatCannotBe) {
  RunQuantiles set;
  set.add({1, 1, 0, 1});
  set.add({1, 1, 1, 0});
  EXPECT_EQ(set.count(), 0U);
  EXPECT_THROW(set.quantile(0.5), std::logic_error);
  EXPECT_THROW(set.mean(), std::logic_error);
  EXPECT_THROW(set.part_up_to(1), std::logic_error);
  EXPECT_THROW(set.add(std::numeric_limits<double>::infinity()), std::logic_error);
  EXPECT_THROW(set.add({0, std::numeric_limits<double>::quiet_NaN(), 1, 1}), std::logic_error);
  EXPECT_THROW(set.add({1e308, 1e308, 2, 1}), std::logic_error);
  set.add(1.0);
  EXPECT_THROW(set.quantile(1.5), std::logic_error);
}

}  // namespace
}  // namespace shardline
