// [H31] [H32] Parameters of the prefill forms are found again from rows that they made themselves.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "calibrate/fit.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/prefill.hpp"

namespace shardline {
namespace {

class Draw {
 public:
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  double size(double low, double high) { return std::floor(low * std::pow(high / low, uniform())); }
  /// Sum of twelve uniform numbers: normal enough, and the same everywhere.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }

 private:
  std::mt19937_64 random_{11};
};

void expect_recovered(const Form& form, const FormContext& c, const FitRows& rows,
                      const std::vector<double>& truth, std::size_t idle) {
  const FitResult found = fit(form, c, rows);
  EXPECT_NEAR(std::sqrt(found.loss), 0.01, 0.0005);
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (i == idle) continue;
    // All 95 % intervals at once: 1.5 of their half-widths is 99.7 % each.
    const double half = std::log(found.high[i] / found.low[i]) / 2;
    EXPECT_GT(half, 0) << form.parameters[i].name;
    EXPECT_LT(half, 0.2) << form.parameters[i].name;
    EXPECT_LT(std::abs(std::log(found.parameters[i] / truth[i])), 1.5 * half)
        << form.parameters[i].name << ' ' << found.parameters[i] << ' ' << truth[i];
  }
}

FormContext device() {
  FormContext c;
  c.flops = 989e12;
  c.bandwidth = 3.35e12;
  c.exponentials = 3.9e12;
  c.sms = 132;
  return c;
}

TEST(PrefillFormFit, H31RecoversItsParametersFromNoisyRows) {
  FormContext c = device();
  c.variant[0] = static_cast<double>(PrefillKernel::with_rope);
  c.variant[1] = c.variant[2] = static_cast<double>(SplitRule::whole);
  // t0, e_mma, e_exp, t_cta, pace, tail, e_query, e_cache, t_token, throttle, skipped (idle: of SGLang's
  // Triton)
  const std::vector<double> truth{11, 0.66, 0.5, 2.8, 1.4, 0.7, 0.8, 0.5, 0.2, 0.15, 0.4};
  ASSERT_EQ(truth.size(), kAttentionPrefillForm.parameters.size());
  Draw draw;
  FitRows rows;
  rows.width = 7;
  for (int i = 0; i < 3000; ++i) {
    const double heads_kv = std::exp2(std::floor(6 * draw.uniform()));
    const std::vector<double> x{draw.size(1, 129),
                                draw.size(16, 16385),
                                draw.uniform() < 0.5 ? 0 : draw.size(128, 65536),
                                heads_kv * std::exp2(std::floor(4 * draw.uniform())),
                                heads_kv,
                                64 * std::exp2(std::floor(3 * draw.uniform())),
                                0};
    rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
    rows.seconds.push_back(kAttentionPrefillForm.seconds(x, c, truth) * std::exp(0.01 * draw.normal()));
  }
  expect_recovered(kAttentionPrefillForm, c, rows, truth, 10);
}

TEST(PrefillFormFit, H31RecoversWhatBlocksBeforeTheWindowTake) {
  FormContext c = device();
  c.variant[0] = static_cast<double>(PrefillKernel::triton_hopper);
  c.variant[1] = c.variant[2] = static_cast<double>(SplitRule::whole);
  const std::vector<double> truth{11, 0.2, 0.5, 2.8, 1.4, 0.7, 0.8, 0.5, 0.2, 0.15, 0.6};
  Draw draw;
  FitRows rows;
  rows.width = 7;
  for (int i = 0; i < 3000; ++i) {
    const std::vector<double> x{draw.size(1, 129),
                                draw.size(16, 16385),
                                0,
                                8,
                                4,
                                64 * std::exp2(std::floor(4 * draw.uniform())),
                                draw.uniform() < 0.5 ? 0. : 1024.};
    rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
    rows.seconds.push_back(kAttentionPrefillForm.seconds(x, c, truth) * std::exp(0.01 * draw.normal()));
  }
  const FitResult found = fit(kAttentionPrefillForm, c, rows);
  EXPECT_NEAR(std::sqrt(found.loss), 0.01, 0.0005);
  EXPECT_NEAR(found.parameters[10], 0.6, 0.03);
}

TEST(PrefillFormFit, H32RecoversItsParametersFromNoisyRows) {
  FormContext c = device();
  c.variant[0] = 989e12;
  c.variant[1] = 2;
  // t0, e_attend, t_cta, pace, tail, throttle, e_bytes (idle in a module), e_down, e_heads, e_weight
  const std::vector<double> truth{30, 0.6, 3, 1.5, 0.5, 0.3, 0.6, 0.5, 0.8, 0.7};
  ASSERT_EQ(truth.size(), kMlaPrefillForm.parameters.size());
  Draw draw;
  FitRows rows;
  rows.width = 3;
  for (int i = 0; i < 3000; ++i) {
    const std::vector<double> x{draw.size(1, 129), draw.size(1, 32769),
                                std::exp2(std::floor(8 * draw.uniform()))};
    rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
    rows.seconds.push_back(kMlaPrefillForm.seconds(x, c, truth) * std::exp(0.01 * draw.normal()));
  }
  expect_recovered(kMlaPrefillForm, c, rows, truth, 6);
}

}  // namespace
}  // namespace shardline
