// [H41]-[H44] Parameters of the forms are found again from rows that the forms made themselves.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "calibrate/fit.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "tests/support/files.hpp"

namespace shardline {
namespace {

using Numbers = std::vector<double>;

/// Rows at all combinations of `values`, with 1 % of noise; checks that the fit's intervals hold the truth.
void recover(const Form& form, const std::vector<std::string>& words, const char* name,
             const std::vector<Numbers>& values, const Numbers& truth) {
  const System system = load_system(name, testing::source_dir() / "hardware" / "catalog");
  FormContext c;
  ASSERT_TRUE(form.context(words, system, c));
  ASSERT_EQ(truth.size(), form.parameters.size());
  FitRows rows;
  rows.width = values.size();
  std::mt19937_64 random(5);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::size_t all = 1;
  for (const Numbers& v : values) all *= v.size();
  for (std::size_t i = 0; i < all; ++i) {
    Numbers x;
    std::size_t rest = i;
    for (const Numbers& v : values) {
      x.push_back(v[rest % v.size()]);
      rest /= v.size();
    }
    if (!form.covers(x)) continue;
    // Sum of twelve uniform numbers: normal enough, and the same everywhere.
    double normal = -6;
    for (int j = 0; j < 12; ++j) normal += uniform();
    rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
    rows.seconds.push_back(form.seconds(x, c, truth) * std::exp(0.01 * normal));
  }
  const FitResult found = fit(form, c, rows);
  EXPECT_NEAR(std::sqrt(found.loss), 0.01, 0.001);
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double half = std::log(found.high[i] / found.low[i]) / 2;
    EXPECT_GT(half, 0) << form.parameters[i].name;
    EXPECT_LT(half, 0.25) << form.parameters[i].name;
    // Up to eight 95 % intervals at once: 1.5 of their half-widths is 99.7 % each.
    EXPECT_LT(std::abs(std::log(found.parameters[i] / truth[i])), 1.5 * half)
        << form.parameters[i].name << ' ' << found.parameters[i] << ' ' << truth[i];
  }
}

Numbers doublings(double low, double high) {
  Numbers out;
  for (double v = low; v <= high; v *= 2) out.push_back(v);
  return out;
}

TEST(CollectiveFormsFit, H41RecoversNccl) {
  recover(kNcclForm, {"all_reduce"}, "h100-hgx", {{2, 4, 8}, doublings(256, 1e9)},
          {5.5, 0.8, 4, 0.85, 0.4, 1.1});
}

TEST(CollectiveFormsFit, H42RecoversAllreduce) {
  recover(kAllreduceForm, {"trtllm_auto", "bf16"}, "h100-hgx", {{2, 4, 8}, doublings(256, 1e9)},
          {2.4, 0.25, 0.6, 8, 6, 0.9, 1.1});
}

TEST(CollectiveFormsFit, H43RecoversDispatchBetweenNodes) {
  const Form& all = kAlltoallForm;
  const System system = load_system("h100-hgx", testing::source_dir() / "hardware" / "catalog");
  FormContext c;
  const std::vector<std::string> words{"deepep_normal", "dispatch", "fp8"};
  ASSERT_TRUE(all.context(words, system, c));
  const Numbers truth{20, 15, 5, 0.5, 20, 12, 0.6, 0.8, 0.03};
  FitRows rows;
  rows.width = 7;
  std::mt19937_64 random(5);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (const double nodes : {1., 2., 4.}) {
    for (const double sms : {4., 12., 24., 64.}) {
      for (const double hidden : {2048., 7168.}) {
        for (const double tokens : doublings(1, 1e5)) {
          const Numbers x{8 * nodes, nodes, tokens, hidden, 8, 256, sms};
          double normal = -6;
          for (int j = 0; j < 12; ++j) normal += uniform();
          rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
          rows.seconds.push_back(all.seconds(x, c, truth) * std::exp(0.01 * normal));
        }
      }
    }
  }
  const FitResult found = fit(all, c, rows);
  EXPECT_NEAR(std::sqrt(found.loss), 0.01, 0.001);
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const std::string name = all.parameters[i].name;
    const double half = std::log(found.high[i] / found.low[i]) / 2;
    if (name == "flag" || name == "spread") {
      // No counters per expert in this kernel, and a way out of its domain: no row says anything of these.
      EXPECT_DOUBLE_EQ(found.parameters[i], truth[i]);
      EXPECT_EQ(half, 0);
      continue;
    }
    EXPECT_GT(half, 0) << name;
    EXPECT_LT(half, 0.25) << name;
    EXPECT_LT(std::abs(std::log(found.parameters[i] / truth[i])), 1.5 * half)
        << name << ' ' << found.parameters[i] << ' ' << truth[i];
  }
}

// What many ranks cost, and that tables that end at eight know nothing of it.
TEST(CollectiveFormsFit, H43RecoversTheSpreadOfManyRanks) {
  const Form& all = kAlltoallForm;
  const System system = load_system("gb200-nvl72", testing::source_dir() / "hardware" / "catalog");
  FormContext c;
  ASSERT_TRUE(all.context(std::vector<std::string>{"trtllm_nvlink_two_sided", "combine", "bf16"}, system, c));
  const Numbers truth{9, 1.9, 5, 0.1, 60, 15, 0.87, 0.95, 0.04};
  for (const double most : {8.0, 64.0}) {
    FitRows rows;
    rows.width = 7;
    for (const double gpus : doublings(2, most)) {
      for (const double tokens : doublings(1, 65536)) {
        const Numbers x{gpus, 1, tokens, 7168, 8, 256, 0};
        rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
        rows.seconds.push_back(all.seconds(x, c, truth));
      }
    }
    const FitResult found = fit(all, c, rows);
    if (most > 8) {
      EXPECT_NEAR(found.parameters[8] / 0.04, 1, 1e-2);
    } else {
      EXPECT_DOUBLE_EQ(found.parameters[8], all.parameters[8].start);
    }
    EXPECT_NEAR(found.parameters[6] / 0.87, 1, 1e-2);
  }
}

TEST(CollectiveFormsFit, H44RecoversExperts) {
  recover(kMoeForm, {"torch_flow_cutlass", "bf16", "power_law_1.01"}, "h100-hgx",
          {doublings(1, 65536), {2048, 7168}, {1024, 4096}, {2, 8}, {32, 256}, {1, 4}, {1, 8, 32}},
          {18, 0.7, 0.85, 0.5, 0.3, 100, 60, 0.5, 0.6});
}

// Of one model's experts nothing tells a fixed time from one by the model's width; even routing says nothing
// of uneven ranks, and rows that come sorted nothing of passes over tokens and pairs.
TEST(CollectiveFormsFit, H44RowsTellSomeParametersApart) {
  const System system = load_system("h200-hgx", testing::source_dir() / "hardware" / "catalog");
  const auto told = [&](const char* kernel, const char* routing, const Numbers& widths) {
    FitRows rows;
    rows.width = 7;
    for (const double width : widths) {
      for (const double ep : {2., 8., 64.}) {
        for (const double tokens : doublings(16, 65536)) {
          const Numbers x{tokens, 7168, width, 8, 256, 1, ep};
          rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
          rows.seconds.push_back(1);
        }
      }
    }
    return told_parameters(kMoeForm, std::vector<std::string>{kernel, "fp8_block", routing}, system, rows);
  };
  EXPECT_EQ(told("deepepmoe_masked", "balanced", {2048}), 5u);
  EXPECT_EQ(told("deepepmoe_masked", "power_law_1.2", {2048}), 6u);
  EXPECT_EQ(told("deepepmoe", "balanced", {2048}), 6u);
  EXPECT_EQ(told("fused_moe_triton", "balanced", {512, 2048}), 8u);
  EXPECT_EQ(told("fused_moe_triton", "power_law_1.2", {512, 2048}), 9u);
}

}  // namespace
}  // namespace shardline
