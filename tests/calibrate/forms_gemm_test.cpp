// [H21] Parameters of the GEMM form are found again from rows that it made itself.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "calibrate/fit.hpp"
#include "hardware/cost/forms/forms.hpp"

namespace shardline {
namespace {

TEST(GemmFormFit, H21RecoversItsParametersFromNoisyRows) {
  FormContext c;
  c.flops = 1979e12;
  c.bandwidth = 3.35e12;
  c.sms = 132;
  c.a_bytes = c.b_bytes = 1;
  // t0, e_compute, e_memory, norm, k_step, tile_start, split, e_quantise, round, activation, pad
  const std::vector<double> truth{5, 0.7, 0.8, 2.5, 1.0, 0.8, 4, 0.5, 0.4, 1.2, 15};
  ASSERT_EQ(truth.size(), kGemmForm.parameters.size());
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
    rows.seconds.push_back(kGemmForm.seconds(x, c, truth) * std::exp(0.01 * normal));
  }
  const FitResult found = fit(kGemmForm, c, rows);
  EXPECT_NEAR(std::sqrt(found.loss), 0.01, 0.0005);
  for (std::size_t i = 0; i < truth.size(); ++i) {
    // Eleven 95 % intervals at once: 1.5 of their half-widths is 99.7 % each.
    const double half = std::log(found.high[i] / found.low[i]) / 2;
    EXPECT_GT(half, 0) << kGemmForm.parameters[i].name;
    EXPECT_LT(half, 0.1) << kGemmForm.parameters[i].name;
    EXPECT_LT(std::abs(std::log(found.parameters[i] / truth[i])), 1.5 * half)
        << kGemmForm.parameters[i].name << ' ' << found.parameters[i] << ' ' << truth[i];
  }
}

}  // namespace
}  // namespace shardline
