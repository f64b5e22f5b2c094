// [H21] Parameters of the GEMM form are found again from rows that it made itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "calibrate/fit.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/gemm_tiles.hpp"

namespace shardline {
namespace {

// In the order of the form's parameters.
const std::vector<double> kTruth{5, 0.7, 0.8, 2.5, 1.0, 0.8, 4, 0.5, 0.4, 1.2, 15, 2, 0.15, 2, 1.3, 2.5};

/// Finds the parameters in 3000 rows with 1 % noise; those of `unseen` have no part in the time.
void expect_found(const FormContext& c, const std::vector<std::string>& unseen) {
  ASSERT_EQ(kTruth.size(), kGemmForm.parameters.size());
  std::mt19937_64 random(7);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  const auto size = [&](double low, double high) {
    return std::floor(low * std::pow(high / low, uniform()));
  };
  FitRows rows;
  rows.width = 3;
  for (int i = 0; i < 3000; ++i) {
    const std::vector<double> x{size(1, 32769), size(32, 65537), size(32, 65537)};
    rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
    // Sum of twelve uniform numbers: normal enough, and the same everywhere.
    double normal = -6;
    for (int j = 0; j < 12; ++j) normal += uniform();
    rows.seconds.push_back(kGemmForm.seconds(x, c, kTruth) * std::exp(0.01 * normal));
  }
  const FitResult found = fit(kGemmForm, c, rows);
  EXPECT_NEAR(std::sqrt(found.loss), 0.01, 0.0005);
  for (std::size_t i = 0; i < kTruth.size(); ++i) {
    // Up to fifteen 95 % intervals at once: 1.5 of their half-widths is 99.7 % each.
    const double half = std::log(found.high[i] / found.low[i]) / 2;
    const std::string name = kGemmForm.parameters[i].name;
    if (std::find(unseen.begin(), unseen.end(), name) != unseen.end()) {
      EXPECT_EQ(half, 0) << name;
      continue;
    }
    EXPECT_GT(half, 0) << name;
    EXPECT_LT(half, 0.1) << name;
    EXPECT_LT(std::abs(std::log(found.parameters[i] / kTruth[i])), 1.5 * half)
        << name << ' ' << found.parameters[i] << ' ' << kTruth[i];
  }
}

FormContext hopper(GemmRule rule) {
  FormContext c;
  c.flops = 1979e12;
  c.bandwidth = 3.35e12;
  c.sms = 132;
  c.a_bytes = c.b_bytes = 1;
  c.variant[0] = static_cast<double>(rule);
  return c;
}

TEST(GemmFormFit, H21RecoversItsParametersFromNoisyRows) {
  expect_found(hopper(GemmRule::any), {"empty", "feed", "uneven", "stall"});
}

TEST(GemmFormFit, H21RecoversTheParametersOfAKnownRule) {
  expect_found(hopper(GemmRule::deepgemm_hopper), {"split", "pad"});
}

}  // namespace
}  // namespace shardline
