#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "calibrate/fit.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/split_rules.hpp"

namespace shardline {

namespace {

FormContext device() {
  FormContext c;
  c.flops = 989e12;
  c.bandwidth = 3.35e12;
  c.sms = 132;
  return c;
}

FormContext split_by(SplitRule rule) {
  FormContext c = device();
  c.variant[0] = c.variant[1] = static_cast<double>(rule);
  return c;
}

/// Rows of `truth` with 1 % noise, and whether the fit finds it again.
void expect_recovery(const Form& form, const FormContext& c, const std::vector<std::vector<double>>& shapes,
                     const std::vector<double>& truth) {
  ASSERT_EQ(truth.size(), form.parameters.size());
  std::mt19937_64 rng(3);
  FitRows rows;
  rows.width = form.numbers.size();
  for (const std::vector<double>& x : shapes) {
    double noise = -6;
    for (int i = 0; i < 12; ++i) noise += static_cast<double>(rng() >> 11) * 0x1p-53;
    rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
    rows.seconds.push_back(form.seconds(x, c, truth) * std::exp(0.01 * noise));
  }
  const FitResult found = fit(form, c, rows);
  for (std::size_t i = 0; i < truth.size(); ++i) {
    SCOPED_TRACE(form.parameters[i].name);
    // Twice the interval: with so many parameters some of them lie outside of 95 %.
    const double half = std::log(found.high[i] / found.low[i]) / 2;
    EXPECT_LE(std::abs(std::log(found.parameters[i] / truth[i])), 2 * half + 1e-6);
    EXPECT_LE(half, 0.25);
    EXPECT_LT(found.parameters[i], form.parameters[i].high);
    EXPECT_GT(found.parameters[i], form.parameters[i].low);
  }
  std::vector<double> predicted;
  for (std::size_t i = 0; i < rows.size(); ++i)
    predicted.push_back(form.seconds(rows.x(i), c, found.parameters));
  EXPECT_LT(summarise(predicted, rows.seconds).median, 0.01);
}

TEST(FormsDecodeFit, H23ParametersAreFoundAgain) {
  std::vector<std::vector<double>> shapes;
  for (double batch = 1; batch <= 2048; batch *= 4) {
    for (double kv = 2; kv <= 131072; kv *= 2) {
      for (const double heads_kv : {1.0, 4.0, 16.0}) {
        for (const double group : {1.0, 4.0, 16.0}) {
          for (const double dim : {64.0, 128.0}) {
            if (batch * heads_kv * kv * dim > 0x1p31) continue;
            shapes.push_back({batch, kv, heads_kv * group, heads_kv, dim, 0});
          }
        }
      }
      shapes.push_back({batch, kv, 32, 4, 128, 256});
    }
  }
  // What other kernels have stays where it starts: 0.1 us or 800 tokens of the other way of splitting, and
  // what waiting for memory and parts without keys take.
  const auto with = [](std::vector<double> p, std::vector<double> waiting = {0.3, 8, 0.3, 0.5}) {
    p.insert(p.end(), waiting.begin(), waiting.end());
    return p;
  };
  expect_recovery(
      kAttentionDecodeForm, device(), shapes,
      with({4, 4.5, 25, 300, 0.1, 16, 9, 6.5, 1.5, 15, 1500, 0.1, 12, 15, 0.9, 35, 300, 5, 0.6, 20, 5}));
  expect_recovery(
      kAttentionDecodeForm, split_by(SplitRule::trtllm_gen), shapes,
      with({4, 4.5, 25, 800, 0.4, 16, 9, 6.5, 1.5, 15, 800, 0.6, 12, 15, 0.9, 35, 300, 5, 0.6, 20, 5}));
}

// What waiting for memory and parts without keys take; rows of heads of 512 say little of the rest, of which
// each sequence has 32 parts.
TEST(FormsDecodeFit, H23PartsWithoutKeysAreFoundAgain) {
  FormContext c = split_by(SplitRule::flash_attention_4_graph);
  c.variant[2] = 1;
  const std::vector<double> truth{4,  4.5, 40, 800, 0.1, 16,  9,  6.5, 1.5, 45, 800, 0.1, 12,
                                  15, 0.9, 35, 300, 5,   0.6, 20, 5,   0.9, 6,  0.7, 0.8};
  ASSERT_EQ(truth.size(), kAttentionDecodeForm.parameters.size());
  FitRows rows;
  rows.width = kAttentionDecodeForm.numbers.size();
  std::mt19937_64 rng(3);
  for (double batch = 1; batch <= 2048; batch *= 2) {
    for (double kv = 2; kv <= 131072; kv *= 2) {
      for (const double heads_kv : {1., 2., 4.}) {
        for (const double group : {1., 4., 8.}) {
          if (batch * kv * heads_kv > 0x1p22) continue;
          const std::vector<double> x{batch, kv, heads_kv * group, heads_kv, 512, 0};
          const double noise = static_cast<double>(rng() >> 11) * 0x1p-53 - 0.5;
          rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
          rows.seconds.push_back(kAttentionDecodeForm.seconds(x, c, truth) * std::exp(0.02 * noise));
        }
      }
    }
  }
  const FitResult found = fit(kAttentionDecodeForm, c, rows);
  for (std::size_t i = 21; i < truth.size(); ++i)
    EXPECT_NEAR(found.parameters[i] / truth[i], 1, 0.1) << kAttentionDecodeForm.parameters[i].name;
}

TEST(FormsDecodeFit, H25ParametersAreFoundAgain) {
  std::vector<std::vector<double>> shapes;
  for (double batch = 1; batch <= 1024; batch *= 2) {
    for (double kv = 2; kv <= 131072; kv *= 2) {
      for (double heads = 1; heads <= 128; heads *= 2) {
        if (batch * kv <= 0x1p24) shapes.push_back({batch, kv, heads});
      }
    }
  }
  FormContext module = device();
  module.a_bytes = 2;
  expect_recovery(kMlaDecodeForm, module, shapes,
                  {20, 7, 1.5, 40, 500, 0.1, 8, 70, 0.92, 0.6, 40, 0.75, 0.5});
  FormContext ruled = split_by(SplitRule::flash_mla);
  ruled.a_bytes = 2;
  expect_recovery(kMlaDecodeForm, ruled, shapes, {20, 7, 1.5, 40, 300, 0.4, 8, 70, 0.92, 0.6, 40, 0.75, 0.5});
}

TEST(FormsDecodeFit, H26ParametersAreFoundAgain) {
  std::vector<std::vector<double>> shapes;
  for (double tokens = 1; tokens <= 32768; tokens *= 2) {
    for (double heads = 1; heads <= 128; heads *= 2) shapes.push_back({tokens, heads});
  }
  expect_recovery(kMlaBmmForm, device(), shapes, {4, 30, 20, 0.8, 0.25});
}

TEST(FormsQuantizeFit, H45ParametersAreFoundAgain) {
  std::vector<std::vector<double>> shapes;
  for (double m = 1; m <= 32768; m *= 2) {
    for (double k = 32; k <= 65536; k *= 2) {
      if (m * k <= 0x1p30) shapes.push_back({m, k});
    }
  }
  FormContext matrix = device();
  matrix.b_bytes = 1;
  expect_recovery(kQuantizeForm, matrix, shapes, {2, 0.5, 60, 0.05, 1, 0.6, 30});
}

}  // namespace

}  // namespace shardline
