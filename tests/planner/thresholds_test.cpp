#include "planner/studies/thresholds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <stdexcept>

namespace shardline {
namespace {

// Llama-3 405B; one rank is a node of eight H100 (800 TFLOP/s, 400 Gb/s each), from arXiv 2411.01783
// Sec. 4.1.
constexpr double kQHeads = 128;
constexpr double kKvHeads = 8;
const RingSetting kPeaks{.q_heads = kQHeads,
                         .kv_heads = kKvHeads,
                         .element_bytes = 2,
                         .compute = FlopsPerSecond(8 * 800e12),
                         .bandwidth = gigabytes_per_second(8 * 50)};

/// Any rule with pass_kv(T, P).
template <class Rule>
Regret cost(const Rule& rule, const std::vector<RingPoint>& points) {
  return regret(points, [&](int, long long fresh, long long cached) { return rule.pass_kv(fresh, cached); });
}

TEST(Thresholds, TheFormulasAtThePapersNumbers) {
  const AnalyticRule rule = algorithm_5(kPeaks, 4);
  EXPECT_DOUBLE_EQ(rule.message_ratio, 0.125);     // Sec. 4.2.4
  EXPECT_DOUBLE_EQ(rule.kv_hidden_tokens, 1000);   // 16000 FLOP/B * 2 B * 8 / (2 * 128)
  EXPECT_DOUBLE_EQ(rule.all_to_all_tokens, 8000);  // 16000 * 2 / 4
  EXPECT_DOUBLE_EQ(1 / (4 * rule.all_to_all_tokens), 4 * 50e9 / (4 * 800e12 * 2));  // Eq. 5's slope, per GPU
  // 3.25 %, below which the paper sees KV messages exposed at T+P = 128000, is 4160 tokens; Eq. 2 says 4000.
  EXPECT_NEAR(4 * rule.kv_hidden_tokens / 128000, 0.0325, 0.0013);
}

TEST(Thresholds, Algorithm1Boundaries) {
  const AnalyticRule rule = algorithm_1(kPeaks, 4);
  EXPECT_TRUE(rule.pass_kv(4000, 10'000'000));  // Eq. 2
  EXPECT_FALSE(rule.pass_kv(3999, 10'000'000));
  EXPECT_TRUE(rule.pass_kv(1000, 7000));  // m = 0.125, Eq. 1
  EXPECT_FALSE(rule.pass_kv(1000, 7001));
}

TEST(Thresholds, Algorithm5Boundaries) {
  const AnalyticRule rule = algorithm_5(kPeaks, 4);
  EXPECT_TRUE(rule.pass_kv(4000, 1'000'000'000));  // Eq. 5's threshold reaches zero where Eq. 2 begins
  EXPECT_FALSE(rule.pass_kv(3999, 1'000'000'000));
  EXPECT_TRUE(rule.pass_kv(1000, 9666));  // m = 0.125 - 1000/32000 at T+P = 10666 2/3
  EXPECT_FALSE(rule.pass_kv(1000, 9667));
}

TEST(Thresholds, RulesAreMonotone) {
  for (const int ranks : {2, 4, 16}) {
    const AnalyticRule one = algorithm_1(kPeaks, ranks);
    const AnalyticRule five = algorithm_5(kPeaks, ranks);
    for (long long total = 1000; total < 3'000'000; total = total * 5 / 4) {
      bool one_before = false;
      bool five_before = false;
      for (long long fresh = 8; fresh <= total; fresh += 1 + fresh / 16) {
        const bool one_now = one.pass_kv(fresh, total - fresh);
        const bool five_now = five.pass_kv(fresh, total - fresh);
        EXPECT_GE(one_now, one_before) << ranks << " " << fresh << " " << total;
        EXPECT_GE(five_now, five_before);
        EXPECT_GE(five_now, one_now);  // the all-to-all speaks for pass-KV only
        one_before = one_now;
        five_before = five_now;
      }
      EXPECT_TRUE(one_before);  // nothing cached
    }
  }
}

TEST(Thresholds, NothingToComputeAndNoCache) {
  constexpr long long kMax = std::numeric_limits<long long>::max();
  const EmpiricalRule never(0, 0, -1);
  const LookupTable q(4, {{64, 128}, 1, 2}, 0.01, {-1, -1, -1, -1});
  AnalyticRule none = algorithm_1(kPeaks, 4);
  none.message_ratio = 2;
  none.kv_hidden_tokens = 1e30;
  for (const long long fresh : {0LL, -1LL, std::numeric_limits<long long>::min()}) {
    EXPECT_TRUE(never.pass_kv(fresh, 5));
    EXPECT_TRUE(q.pass_kv(fresh, 5));
    EXPECT_TRUE(none.pass_kv(fresh, 5));
  }
  EXPECT_FALSE(never.pass_kv(kMax, kMax));
  EXPECT_FALSE(q.pass_kv(kMax, kMax));
  EXPECT_FALSE(none.pass_kv(kMax, kMax));
  EXPECT_TRUE(algorithm_1(kPeaks, 4).pass_kv(10, -1'000'000));  // m = 1
  EXPECT_EQ(ring_place(10, -1'000'000).log_inverse_miss, 0);
}

TEST(Thresholds, FixedLogarithm) {
  for (int k = 0; k < 63; ++k) EXPECT_EQ(fixed_log2(std::int64_t{1} << k), std::int64_t{k} << kLog2Digits);
  EXPECT_THROW(fixed_log2(0), std::logic_error);
  const double below = std::ldexp(1, -kLog2Digits) + std::ldexp(1, -29);
  std::mt19937_64 rng(1);
  for (int k = 0; k < 100'000; ++k) {
    const std::uint64_t bits = rng();
    const auto x = static_cast<std::int64_t>(bits >> (1 + rng() % 63)) + 1;
    const double error =
        std::ldexp(static_cast<double>(fixed_log2(x)), -kLog2Digits) - std::log2(static_cast<double>(x));
    ASSERT_LE(error, 1e-14 * 64) << x;
    ASSERT_GT(error, -below) << x;
    ASSERT_LE(fixed_log2(x), fixed_log2(x + 1)) << x;
  }
}

TEST(Thresholds, EmpiricalRuleInIntegersAgreesWithItsFormula) {
  std::mt19937_64 rng(2);
  std::uniform_real_distribution<double> coefficient(-20, 20);
  int pass_kv = 0;
  for (int k = 0; k < 20'000; ++k) {
    const EmpiricalRule rule(coefficient(rng), coefficient(rng), 10 * coefficient(rng));
    const double t = std::floor(std::exp2(6 + static_cast<double>(rng() % 1000) / 60));
    const double p = std::floor(t * (std::exp2(static_cast<double>(rng() % 1000) / 100) - 1));
    const double h = rule.alpha() * std::log(t) + rule.beta() * std::log(t / (t + p)) + rule.gamma();
    const double largest = std::max(std::abs(rule.alpha()), std::abs(rule.beta()));
    if (std::abs(h) < 1e-6 * largest) continue;
    const bool chosen = rule.pass_kv(static_cast<long long>(t), static_cast<long long>(p));
    ASSERT_EQ(chosen, h > 0) << k;
    pass_kv += chosen;
  }
  EXPECT_GT(pass_kv, 5000);
  EXPECT_LT(pass_kv, 15'000);
  EXPECT_TRUE(EmpiricalRule(0, 0, 1).pass_kv(5, 5));
  EXPECT_FALSE(EmpiricalRule(0, 0, 0).pass_kv(5, 5));
  EXPECT_TRUE(EmpiricalRule(1e-9, 0, 1e9).pass_kv(5, 5));
}

TEST(Thresholds, FitFindsTheLineThatMadeThePoints) {
  // Separable: every choice must be right; the coefficients stay finite.
  std::vector<RingPoint> points;
  const auto made = [](double h, TokenSplit s) {
    return RingPoint{.ranks = 4,
                     .fresh = s.fresh,
                     .cached = s.cached,
                     .pass_kv = Seconds(1),
                     .pass_q = Seconds(std::exp(h))};
  };
  const TokenRange range{.fresh_min = 256, .fresh_max = 1 << 20, .miss_min = 1e-3, .total_limit = 1 << 24};
  for (const TokenSplit& s : test_points(range, 4, 2000, {})) {
    const double t = static_cast<double>(s.fresh);
    points.push_back(
        made(0.3 * std::log(t) + 0.2 * std::log(t / (t + static_cast<double>(s.cached))) - 1.9, s));
  }
  for (const FitWeight weight : {FitWeight::regret, FitWeight::equal}) {
    const EmpiricalRule rule = fit_empirical(points, weight);
    EXPECT_LT(cost(rule, points).worst, 0.005);
    EXPECT_GT(cost(rule, points).right, 1980U);
    EXPECT_NEAR(rule.beta() / rule.alpha(), 2.0 / 3, 0.03);
    const EmpiricalRule again = fit_empirical(points, weight);
    EXPECT_EQ(rule.alpha(), again.alpha());
    EXPECT_EQ(rule.gamma(), again.gamma());
  }
}

TEST(Thresholds, FitRecoversLogisticCoefficients) {
  std::mt19937_64 rng(3);
  std::uniform_real_distribution<double> chance(0, 1);
  std::vector<RingPoint> points;
  for (int k = 0; k < 200'000; ++k) {
    const double t = std::round(std::exp(6 + 8 * chance(rng)));
    const double p = std::round(t * (std::exp(5 * chance(rng)) - 1));
    const double h = -1.059 * std::log(t) + 1.145 * std::log(t / (t + p)) + 12.112;
    const bool kv = chance(rng) < 1 / (1 + std::exp(-h));
    points.push_back({.ranks = 4,
                      .fresh = static_cast<long long>(t),
                      .cached = static_cast<long long>(p),
                      .pass_kv = Seconds(kv ? 1 : 2),
                      .pass_q = Seconds(kv ? 2 : 1)});
  }
  const EmpiricalRule rule = fit_empirical(points, FitWeight::equal);
  EXPECT_NEAR(rule.alpha(), -1.059, 0.03);  // about three standard errors
  EXPECT_NEAR(rule.beta(), 1.145, 0.03);
  EXPECT_NEAR(rule.gamma(), 12.112, 0.3);
}

TEST(Thresholds, FitWeighsWhatAWrongChoiceCosts) {
  // At one place, three near ties for pass-Q against one point where pass-Q takes twice the time.
  std::vector<RingPoint> points(
      4, {.ranks = 4, .fresh = 1000, .cached = 0, .pass_kv = Seconds(1.001), .pass_q = Seconds(1)});
  points[2] = {.ranks = 4, .fresh = 1000, .cached = 0, .pass_kv = Seconds(1), .pass_q = Seconds(2)};
  EXPECT_TRUE(fit_empirical(points, FitWeight::regret).pass_kv(1000, 0));
  EXPECT_FALSE(fit_empirical(points, FitWeight::equal).pass_kv(1000, 0));
  // Ties only, and one class only.
  points.assign(3, {.ranks = 4, .fresh = 1000, .cached = 500, .pass_kv = Seconds(1), .pass_q = Seconds(1)});
  EXPECT_TRUE(fit_empirical(points).pass_kv(1000, 500));
  EXPECT_THROW(fit_empirical({}), std::logic_error);
}

TEST(Thresholds, RegretByHand) {
  std::vector<RingPoint> points;
  for (int k = 0; k < 200; ++k)
    points.push_back({.ranks = 2, .fresh = k + 1, .cached = 7, .pass_kv = Seconds(4), .pass_q = Seconds(4)});
  points[10].pass_q = Seconds(5);   // pass-Q loses 1/4
  points[20].pass_q = Seconds(6);   // 1/2
  points[30].pass_kv = Seconds(8);  // pass-KV loses 1
  const Regret q = regret(points, [](int, long long, long long) { return false; });
  EXPECT_EQ(q.points, 200U);
  EXPECT_EQ(q.right, 198U);
  EXPECT_DOUBLE_EQ(q.mean, 0.75 / 200);
  EXPECT_DOUBLE_EQ(q.p99, 0);  // the 198th of 200
  EXPECT_DOUBLE_EQ(q.worst, 0.5);
  EXPECT_EQ(q.worst_at.fresh, 21);
  points[40].pass_q = Seconds(5);
  EXPECT_DOUBLE_EQ(regret(points, [](int, long long, long long) { return false; }).p99, 0.25);
  EXPECT_DOUBLE_EQ(regret(points, [](int, long long, long long) { return true; }).worst, 1);
  EXPECT_EQ(regret({}, [](int, long long, long long) { return true; }).points, 0U);
}

TEST(Thresholds, TestPointsFillTheRange) {
  const TokenRange range{
      .fresh_min = 512, .fresh_max = 1 << 20, .miss_min = 1.0 / 256, .total_limit = 1 << 28};
  const std::vector<TokenSplit> all = test_points(range, 4, 4000, {});
  ASSERT_EQ(all.size(), 4000U);
  std::vector<TokenSplit> sorted = all;
  std::sort(sorted.begin(), sorted.end(),
            [](auto a, auto b) { return std::pair(a.fresh, a.cached) < std::pair(b.fresh, b.cached); });
  EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
  std::array<int, 16> boxes{};
  for (const TokenSplit& s : all) {
    EXPECT_EQ(s.fresh % 8, 0);
    EXPECT_EQ(s.cached % 8, 0);
    EXPECT_GE(s.fresh, 512);
    EXPECT_LE(s.fresh, 1 << 20);
    EXPECT_LE(s.fresh + s.cached, 256 * s.fresh);
    const double x = std::log2(static_cast<double>(s.fresh) / 512) / 11;
    const double y = std::log2(static_cast<double>(s.fresh + s.cached) / static_cast<double>(s.fresh)) / 8;
    ++boxes[static_cast<std::size_t>(4 * std::min(3, static_cast<int>(4 * x)) +
                                     std::min(3, static_cast<int>(4 * y)))];
  }
  for (const int count : boxes) EXPECT_NEAR(count, 250, 25);

  const std::vector<TokenSplit> others = test_points(range, 4, 500, all);
  for (const TokenSplit& s : others) EXPECT_EQ(std::find(all.begin(), all.end(), s), all.end());
  EXPECT_EQ(test_points(range, 4, 4000, {}), all);

  // Only T = 8, 16 and P = 0 fit; T+P = 16 with P = 8 is beyond m = 0.6.
  const TokenRange small{.fresh_min = 3, .fresh_max = 16, .miss_min = 0.6, .total_limit = 16};
  EXPECT_EQ(test_points(small, 4, 10, {}).size(), 2U);
}

// Table 4 of arXiv 2411.01783: CP4 x TP8, T+P = 128000, in ms.
const std::vector<RingPoint>& table_4() {
  static const std::vector<RingPoint> points = [] {
    const auto row = [](long long fresh, double kv, double q) {
      return RingPoint{.ranks = 4,
                       .fresh = fresh,
                       .cached = 128000 - fresh,
                       .pass_kv = milliseconds(kv),
                       .pass_q = milliseconds(q)};
    };
    return std::vector{row(1280, 1023.39, 898.71),   row(6400, 1305.56, 1302.01),
                       row(12800, 2080.67, 2205.27), row(38400, 4629.23, 4922.52),
                       row(76800, 7890.35, 8468.66), row(128000, 11462.15, 12360.57)};
  }();
  return points;
}

TEST(Thresholds, AnalyticRulesOnTable4) {
  for (const AnalyticRule& rule : {algorithm_1(kPeaks, 4), algorithm_5(kPeaks, 4)}) {
    const Regret r = cost(rule, table_4());
    EXPECT_EQ(r.right, 5U);  // 6400 tokens are above Eq. 2's 4000, yet pass-Q was 0.27 % faster
    EXPECT_EQ(r.worst_at.fresh, 6400);
    EXPECT_NEAR(r.worst, 1305.56 / 1302.01 - 1, 1e-14);
  }
}

TEST(Thresholds, AppendixDAsPrintedOnTable4) {
  // h rises from -0.74 to -0.34 over these rows: always pass-Q.
  const Regret r = cost(appendix_d(), table_4());
  EXPECT_EQ(r.right, 2U);
  EXPECT_EQ(r.worst_at.fresh, 128000);
  EXPECT_NEAR(r.worst, 0.0784, 0.0001);
}

TEST(Thresholds, FittedRuleOnTable4) {
  const Regret r = cost(fit_empirical(table_4()), table_4());
  EXPECT_EQ(r.right, 6U);  // one crossing on T+P = 128000, so the rows are separable
}

}  // namespace
}  // namespace shardline
