// Streams of random numbers and what is drawn from them [S12].
#include "sim/base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <vector>

#include "sim/queue/variate.hpp"

namespace shardline {
namespace {

/// Largest distance of the distribution of `values` from `cdf`.
double distance(std::vector<double> values, const std::function<double(double)>& cdf) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double out = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double p = cdf(values[i]);
    out = std::max({out, p - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - p});
  }
  return out;
}

/// Kolmogorov's distance that a right distribution exceeds once in 10,000: sqrt(ln(2 / 1e-4) / 2 / n).
double allowed(std::size_t n) { return std::sqrt(std::log(2e4) / 2 / static_cast<double>(n)); }

std::vector<double> draws(const Variate& variate, std::size_t n) {
  RandomStream stream(5, "draws");
  std::vector<double> out(n);
  for (double& v : out) v = variate.draw(stream);
  return out;
}

constexpr std::size_t kMany = 100'000;

TEST(RandomStream, S12AStreamKnowsOfNoOther) {
  RandomStream a(7, "a"), b(7, "b");
  std::vector<std::uint64_t> one, other;
  for (int i = 0; i < 100; ++i) one.push_back(a.bits());
  for (int i = 0; i < 100; ++i) b.bits();
  RandomStream again(7, "a"), beside(7, "b");
  for (int i = 0; i < 100; ++i) {
    beside.bits();
    other.push_back(again.bits());
    beside.gamma(0.3);
  }
  EXPECT_EQ(one, other);
  // Nor does a stream of one of its things know how far it is.
  EXPECT_EQ(RandomStream(7, "a").at(3).bits(), again.at(3).bits());
}

TEST(RandomStream, S12SeedNameAndIndexTellStreamsApart) {
  std::vector<std::uint64_t> bits;
  for (const std::uint64_t seed : {0, 1, 2}) {
    for (const char* const name : {"", "a", "b", "work"}) {
      for (std::uint64_t index = 0; index < 50; ++index) {
        RandomStream stream(seed, name, index);
        for (int i = 0; i < 20; ++i) bits.push_back(stream.bits());
        RandomStream of = RandomStream(seed, name, index).at(0);
        for (int i = 0; i < 20; ++i) bits.push_back(of.bits());
      }
    }
  }
  std::sort(bits.begin(), bits.end());
  EXPECT_EQ(std::adjacent_find(bits.begin(), bits.end()), bits.end());
}

TEST(RandomStream, S12UniformAndNormalByKolmogorov) {
  RandomStream stream(3, "unit");
  std::vector<double> unit(kMany), normal(kMany), below(kMany);
  for (double& v : unit) v = stream.unit();
  for (double& v : normal) v = stream.normal();
  EXPECT_LT(distance(unit, [](double x) { return x; }), allowed(kMany));
  EXPECT_LT(distance(normal, [](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }), allowed(kMany));
  std::vector<int> counts(7);
  for (std::size_t i = 0; i < kMany; ++i) ++counts[stream.below(7)];
  double chi = 0;
  for (const int c : counts) chi += (c - kMany / 7.0) * (c - kMany / 7.0) / (kMany / 7.0);
  EXPECT_LT(chi, 27.86);  // exceeded once in 10,000, 6 degrees
}

TEST(RandomStream, S12FunctionsAreThoseOfTheLibrary) {
  RandomStream stream(1, "x");
  for (int i = 0; i < 10'000; ++i) {
    const double x = 1400 * stream.unit() - 700;
    ASSERT_NEAR(natural_exp(x) / std::exp(x), 1, 1e-15) << x;
    const double y = std::exp(x), l = std::log(y);
    ASSERT_NEAR(natural_log(y), l, 1e-15 * std::max(1.0, std::abs(l))) << y;
    const double p = stream.unit();
    ASSERT_NEAR(std::erfc(-normal_quantile(p) / std::sqrt(2.0)) / 2 / p, 1, 1e-13) << p;
  }
  EXPECT_EQ(natural_exp(0), 1);
  EXPECT_EQ(natural_exp(-1000), 0);
  EXPECT_TRUE(std::isinf(natural_exp(1000)));
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-15 * 4);
  EXPECT_NEAR(std::erfc(-normal_quantile(1e-30) / std::sqrt(2.0)) / 2, 1e-30, 1e-43);
}

// Shapes with closed forms: 4 (Erlang), 1/2 (a square of a normal), and between them a test that sees errors.
TEST(Variate, S12GammaByKolmogorov) {
  const auto erlang4 = [](double x) {
    const double y = 4 * x;
    return 1 - std::exp(-y) * (1 + y + y * y / 2 + y * y * y / 6);
  };
  EXPECT_LT(distance(draws(Variate::gamma(1, 0.5), kMany), erlang4), allowed(kMany));
  EXPECT_LT(distance(draws(Variate::gamma(3, std::sqrt(2.0)), kMany),
                     [](double x) { return std::erf(std::sqrt(x / 6)); }),
            allowed(kMany));
  EXPECT_LT(distance(draws(Variate::gamma(2, 1), kMany), [](double x) { return 1 - std::exp(-x / 2); }),
            allowed(kMany));
  // A mean or a spread that is 5 % off is found.
  EXPECT_GT(distance(draws(Variate::gamma(1.05, 0.5), kMany), erlang4), allowed(kMany));
  EXPECT_GT(distance(draws(Variate::gamma(1, 0.525), kMany), erlang4), allowed(kMany));
}

TEST(Variate, S12OtherLawsByKolmogorov) {
  EXPECT_LT(distance(draws(Variate::exponential(2), kMany), [](double x) { return 1 - std::exp(-x / 2); }),
            allowed(kMany));
  EXPECT_LT(distance(draws(Variate::uniform(1, 3), kMany), [](double x) { return (x - 1) / 2; }),
            allowed(kMany));
  const double s = std::sqrt(std::log(1 + 4.0)), m = std::log(5.0) - s * s / 2;
  EXPECT_LT(distance(draws(Variate::lognormal(5, 2), kMany),
                     [&](double x) { return std::erfc(-(std::log(x) - m) / s / std::sqrt(2.0)) / 2; }),
            allowed(kMany));
}

// Means within 4.9 standard errors (once in a million), variances within 5 %: 3 or more standard errors of
// each law.
TEST(Variate, S12MeansAndVariances) {
  const Variate laws[] = {Variate::fixed(2),      Variate::exponential(3),    Variate::gamma(2, 0.3),
                          Variate::gamma(2, 1.5), Variate::lognormal(7, 0.5), Variate::uniform(1, 4)};
  for (const Variate& law : laws) {
    const std::vector<double> values = draws(law, kMany);
    double sum = 0, squares = 0;
    for (const double v : values) sum += v;
    const double mean = sum / kMany;
    for (const double v : values) squares += (v - mean) * (v - mean);
    EXPECT_NEAR(mean, law.mean(), 4.9 * std::sqrt(law.variance() / kMany) + 1e-12);
    EXPECT_NEAR(squares / kMany, law.variance(), 0.05 * law.variance());
  }
}

TEST(Variate, S12RefusesWhatCannotBe) {
  EXPECT_THROW(Variate::fixed(-1), std::logic_error);
  EXPECT_THROW(Variate::exponential(0), std::logic_error);
  EXPECT_THROW(Variate::gamma(1, 0), std::logic_error);
  EXPECT_THROW(Variate::lognormal(0, 1), std::logic_error);
  EXPECT_THROW(Variate::uniform(2, 1), std::logic_error);
  EXPECT_THROW(RandomStream(1, "x").below(0), std::logic_error);
  EXPECT_THROW(RandomStream(1, "x").gamma(-1), std::logic_error);
  EXPECT_THROW(normal_quantile(1), std::logic_error);
}

TEST(RandomStream, S12TheBitsArePinned) {
  RandomStream stream(1, "work", 2);
  EXPECT_EQ(stream.bits(), 0xBFBB3A530949485E);
  EXPECT_EQ(stream.gamma(2.5), 0x1.22edd37163613p+1);
  EXPECT_EQ(stream.gamma(0.5), 0x1.f070876979406p-7);
  EXPECT_EQ(stream.normal(), -0x1.4c00fd770c26ep-1);
  EXPECT_EQ(natural_exp(1.25), 0x1.bec38edb0fafp+1);
  EXPECT_EQ(RandomStream(1, "work", 2).at(3).unit(), 0x1.d9b02b65029c4p-3);
}

}  // namespace
}  // namespace shardline
