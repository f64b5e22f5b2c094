// How far sums of prices may be off [H65], and makespans [H66].
#include "hardware/cost/error_terms.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "hardware/timing/price_errors.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using testing::catalog_system;

ErrorTerms of(std::initializer_list<ErrorTerm> all) {
  ErrorTerms out;
  for (const ErrorTerm& t : all) out.add(t);
  return out;
}

TEST(ErrorTerms, H65OnePriceHasItsBand) {
  const ErrorBand band{-0.2, 0.3};
  const ErrorRange all = time_error(ErrorTerms(3, band));
  EXPECT_NEAR(all.low, std::expm1(-0.2), 1e-15);
  EXPECT_NEAR(all.high, std::expm1(0.3), 1e-15);
  const ErrorRange rate = rate_error(ErrorTerms(3, band));
  EXPECT_NEAR(rate.low, std::expm1(-0.3), 1e-15);
  EXPECT_NEAR(rate.high, std::expm1(0.2), 1e-15);
}

TEST(ErrorTerms, H65ErrorsOfOneSourceAddUp) {
  ErrorTerms sum = ErrorTerms(1, {-0.1, 0.1}) * 0.25;
  sum += ErrorTerms(1, {-0.1, 0.1}) * 0.75;
  EXPECT_EQ(sum.all().size(), 1u);
  EXPECT_NEAR(time_error(sum).low, std::expm1(-0.1), 1e-15);
  EXPECT_NEAR(time_error(sum).high, std::expm1(0.1), 1e-15);
}

TEST(ErrorTerms, H65ErrorsOfSeveralSourcesAddUpBySquaresOnEachSide) {
  const ErrorTerms sum = of({{7, -0.3, 0, 0.6}, {2, -0.4, 0, 0.8}});
  EXPECT_NEAR(time_error(sum).low, -0.5, 1e-15);
  EXPECT_NEAR(time_error(sum).high, 1.0, 1e-15);
  EXPECT_EQ(sum.all()[0].source, 2u);  // whatever the order in which they came
  EXPECT_EQ(sum, of({{2, -0.4, 0, 0.8}, {7, -0.3, 0, 0.6}}));
}

// However many sources may take most of a time away, something is left of it, and rates stay positive.
TEST(ErrorTerms, H65TimesStayAboveNothing) {
  double before = 0;
  for (int part = 1; part < 100; ++part) {
    const double low = -part / 100.0;
    const ErrorTerms sum = of({{1, low, low / 2, 0.2}, {2, low, low / 2, 0.2}, {3, low, 0, 0.2}});
    const ErrorRange time = time_error(sum), rate = rate_error(sum);
    EXPECT_GT(time.low, -1) << low;
    EXPECT_LT(time.low, low) << "more than one of them takes";
    EXPECT_LT(time.low, before) << "and more the more they take";
    EXPECT_GT(rate.high, 0) << low;
    before = time.low;
  }
  // Two thirds of it away by each of two: by logarithms alone.
  EXPECT_NEAR(time_error(of({{1, -2.0 / 3, 0, 0}, {2, -2.0 / 3, 0, 0}})).low,
              std::expm1(-std::sqrt(2.0) * std::log(3.0)), 1e-12);
}

// What is known to be off on one side moves the whole interval, by all of it.
TEST(ErrorTerms, H65BiasAddsUp) {
  ErrorTerms sum;
  for (const ErrorSourceId s : {0u, 1u, 2u, 3u}) sum.add({s, 0.01, 0.02, 0.03});
  EXPECT_NEAR(time_error(sum).low, 0.08 - 0.02, 1e-15);
  EXPECT_NEAR(time_error(sum).high, 0.08 + 0.02, 1e-15);
}

// Times by other libraries' kernels widen the sides on which they are, and move no middle.
TEST(ErrorTerms, P16OtherLibrariesWidenTheirSides) {
  ErrorTerms sum = of({{7, -0.3, 0.1, 0.6}});
  sum.set_libraries({{"a", -0.3}, {"b", 0.1}, {"c", -0.05}});
  EXPECT_EQ(sum.between_libraries(), (ErrorTerm{kLibrarySource, -0.3, 0, 0.1}));
  EXPECT_NEAR(time_error(sum).low, 0.1 - 0.5, 1e-15);
  EXPECT_NEAR(time_error(sum).high, 0.1 + std::hypot(0.5, 0.1), 1e-15);
  const std::vector<ErrorTerm> widest = widest_first(sum);
  ASSERT_EQ(widest.size(), 2u);
  EXPECT_EQ(widest[1].source, kLibrarySource);
  EXPECT_EQ(widest_first(of({{7, -0.3, 0.1, 0.6}})).size(), 1u);
  EXPECT_EQ(sum.without(7).libraries().size(), 3u);
}

// A time half of which is the same by all kernels changes half as much.
TEST(ErrorTerms, P16ChangesOfOtherLibrariesAddUpByParts) {
  ErrorTerms whole;
  whole.set_libraries({{"a", -0.4}, {"b", 0.2}});
  ErrorTerms sum = of({{7, -0.3, 0, 0.6}}) * 0.5;
  sum += whole * 0.5;
  ASSERT_EQ(sum.libraries().size(), 2u);
  EXPECT_EQ(sum.libraries()[0], (LibraryChange{"a", -0.2}));
  EXPECT_EQ(sum.libraries()[1], (LibraryChange{"b", 0.1}));
  sum += of({{7, -0.1, 0, 0.1}});
  EXPECT_EQ(sum.libraries()[0], (LibraryChange{"a", -0.2}));
  ErrorTerms third;  // which only one part was measured by
  third.set_libraries({{"aa", 0.5}, {"b", 0.1}});
  sum += third;
  ASSERT_EQ(sum.libraries().size(), 3u);
  EXPECT_EQ(sum.libraries()[1], (LibraryChange{"aa", 0.5}));
  EXPECT_EQ(sum.libraries()[2], (LibraryChange{"b", 0.2}));
}

// Of two times the first library is 30 % faster in both, the second in one alone.
TEST(ErrorTerms, P16RatiosCompareTimesByOneLibrary) {
  ErrorTerms one, other;
  one.set_libraries({{"a", -0.3}, {"b", -0.3}});
  other.set_libraries({{"a", -0.3}, {"b", 0}});
  const ErrorBand band = ratio_band(one, other), turned = ratio_band(other, one);
  EXPECT_NEAR(band.low, std::log(0.7), 1e-15);
  EXPECT_EQ(band.high, 0);
  EXPECT_EQ(turned.low, 0);
  EXPECT_NEAR(turned.high, -std::log(0.7), 1e-15);
  ErrorTerms of_another_system;  // one framework alone was measured on it: no other's stands in its place
  of_another_system.set_libraries({{"b", -0.3}});
  EXPECT_NEAR(ratio_band(one, of_another_system).low, std::log(0.7), 1e-15);
  EXPECT_EQ(ratio_band(one, of_another_system).high, 0);
  const ErrorBand known = ratio_band(one, of({}));
  EXPECT_NEAR(known.low, std::log(0.7), 1e-15);
}

TEST(ErrorTerms, H65WhatTwoTimesShareCancels) {
  const ErrorTerms shared = of({{1, -0.2, 0, 0.3}});
  const ErrorBand same = ratio_band(shared, shared);
  EXPECT_EQ(same.low, 0);
  EXPECT_EQ(same.high, 0);
  EXPECT_TRUE(told_apart(1.001, same));
  // Twice as much of it in one: the ratio has what is left.
  const ErrorBand half = ratio_band(shared, of({{1, -0.1, 0, 0.15}}));
  EXPECT_NEAR(half.low, std::log(0.8 / 0.9), 1e-15);
  EXPECT_NEAR(half.high, std::log(1.3 / 1.15), 1e-15);
}

TEST(ErrorTerms, H65WhatTwoTimesDoNotShareAddsUpBySquares) {
  const ErrorTerms one(1, {-0.3, 0.3}), other(2, {-0.4, 0.4});
  const ErrorBand band = ratio_band(one, other), back = ratio_band(other, one);
  EXPECT_NEAR(band.low, -0.5, 1e-15);
  EXPECT_NEAR(band.high, 0.5, 1e-15);
  EXPECT_NEAR(back.low, -band.high, 1e-15);
  EXPECT_FALSE(told_apart(1.6, band));
  EXPECT_TRUE(told_apart(1.7, band));
  EXPECT_FALSE(told_apart(1 / 1.6, back));
  EXPECT_TRUE(told_apart(1 / 1.7, back));
}

TEST(ErrorTerms, H65SourcesHaveNames) {
  const System s = catalog_system("h100-hgx");
  const KernelFit& fit = s.calibration.fits[2];
  EXPECT_EQ(source_of(s.calibration, {{}, ErrorSource::fit, &fit}), 2u);
  EXPECT_EQ(source_name(s, 2), fit.name());
  EXPECT_EQ(source_of(s.calibration, {{}, ErrorSource::elementwise, nullptr}), kElementwiseSource);
  EXPECT_EQ(source_of(s.calibration, {}), kAssumedSource);
  EXPECT_EQ(source_name(s, kAssumedSource), "the system file's parameters");
  System served = s;
  served.host.of = "vLLM 0.24.0";
  EXPECT_EQ(source_of(s.calibration, {{}, ErrorSource::host, nullptr}), kHostSource);
  EXPECT_EQ(source_name(served, kHostSource), "fitted host times of vLLM 0.24.0");
}

/// Sources whose errors are normal in the logarithm, nine times of ten inside their band.
struct Drawn {
  std::vector<ErrorBand> bands;
  std::vector<double> parts;
  ErrorTerms terms() const {
    ErrorTerms out;
    for (std::size_t i = 0; i < bands.size(); ++i)
      out += ErrorTerms(static_cast<ErrorSourceId>(i), bands[i]) * parts[i];
    return out;
  }
};

// The rule against the sum of random errors, drawn.
TEST(ErrorTerms, H65NineOfTenSumsLieInside) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::normal_distribution<double> normal;
  constexpr double kNinety = 1.6448536;
  for (int trial = 0; trial < 20; ++trial) {
    Drawn d;
    double sum = 0;
    for (int i = 0; i <= trial % 8; ++i) {
      const double middle = 0.1 * (uniform(random) - 0.5), half = 0.05 + 0.3 * uniform(random);
      d.bands.push_back({middle - half, middle + half});
      d.parts.push_back(uniform(random));
      sum += d.parts.back();
    }
    for (double& p : d.parts) p /= sum;
    const ErrorRange range = time_error(d.terms());
    constexpr int kDraws = 20'000;
    int inside = 0;
    for (int k = 0; k < kDraws; ++k) {
      double time = 0;
      for (std::size_t i = 0; i < d.bands.size(); ++i) {
        const double middle = (d.bands[i].low + d.bands[i].high) / 2,
                     half = (d.bands[i].high - d.bands[i].low) / 2;
        time += d.parts[i] * std::exp(middle + normal(random) * half / kNinety);
      }
      inside += 1 + range.low <= time && time <= 1 + range.high;
    }
    EXPECT_NEAR(static_cast<double>(inside) / kDraws, 0.9, 0.01) << d.bands.size();
  }
}

TEST(PriceErrors, H66WhatIsWaitedForCounts) {
  // a (2 s) then c (1 s) beside b (2.5 s).
  TaskGraph graph;
  graph.add(Seconds(2), {}, std::initializer_list<TaskId>{});
  graph.add(Seconds(2.5), {}, std::initializer_list<TaskId>{});
  graph.add(Seconds(1), {}, {TaskId{0}});
  const Timeline timeline = simulate(graph, Machine{});
  const TaskError a{true, 1, {0.5, 1, 2}}, b{true, 2, {0.5, 1, 2}}, none{};
  const std::vector<TaskError> errors{a, b, none};
  std::vector<std::array<double, 3>> ends;
  EXPECT_EQ(makespans_of_errors(graph, timeline, errors, 1, ends), (std::array{2.5, 3.0, 5.0}));
  EXPECT_EQ(makespans_of_errors(graph, timeline, errors, 2, ends), (std::array{3.0, 3.0, 5.0}));
  EXPECT_EQ(makespans_of_errors(graph, timeline, errors, 0, ends), (std::array{3.0, 3.0, 3.0}));
}

// Tasks that share no resource: played again with their latencies scaled, to the rounding.
TEST(PriceErrors, H66WithoutSharingItIsThePlayOfScaledPrices) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    TaskGraph graph, scaled;
    std::vector<TaskError> errors;
    for (TaskId t = 0; t < 40; ++t) {
      std::vector<TaskId> before;
      for (TaskId d = 0; d < t; ++d) {
        if (random() % 12 == 0) before.push_back(d);
      }
      const double length = 1e-6 * static_cast<double>(1 + random() % 1000);
      errors.push_back({random() % 5 > 0, static_cast<ErrorSourceId>(random() % 3), {0.7, 1.02, 1.8}});
      graph.add(Seconds(length), {}, before);
      scaled.add(Seconds(length * (errors.back().any && errors.back().source == 1 ? 1.8 : 1)), {}, before);
    }
    std::vector<std::array<double, 3>> ends;
    const auto times = makespans_of_errors(graph, simulate(graph, Machine{}), errors, ErrorSourceId{1}, ends);
    const double played = simulate(scaled, Machine{}).makespan().value;
    EXPECT_NEAR(times[2] / played, 1, 1e-12);
    EXPECT_LE(times[0], times[1]);
    EXPECT_LE(times[1], times[2]);
  }
}

}  // namespace
}  // namespace shardline
