// [H44] The form of experts: closed values and limits.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "hardware/cost/forms/forms.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using Words = std::vector<std::string>;
using Numbers = std::vector<double>;

FormContext context_of(const Form& form, const Words& words, const char* system = "h100-hgx") {
  FormContext c;
  EXPECT_TRUE(form.context(words, testing::catalog_system(system), c)) << form.family;
  return c;
}

Numbers starts(const Form& form) {
  Numbers p;
  for (const FormParameter& one : form.parameters) p.push_back(one.start);
  return p;
}

TEST(MoeForm, H44LargeIsAFractionOfPeakAndSmallIsWeights) {
  const Numbers p{5, 0.6, 0.8, 1, 1, 0.01, 0.1, 0.5, 20};
  const FormContext c = context_of(kMoeForm, {"torch_flow_cutlass", "bf16", "balanced"});
  EXPECT_EQ(c.flops, 989e12);
  const Numbers large{1e6, 7168, 16384, 8, 64, 1, 1};
  EXPECT_DOUBLE_EQ(kMoeForm.work(large, c), 6. * 8e6 * 7168 * 16384);
  const double time = kMoeForm.seconds(large, c, p);
  EXPECT_LT(kMoeForm.work(large, c) / time, 0.6 * 989e12);
  EXPECT_GT(kMoeForm.work(large, c) / time, 0.55 * 989e12);
  // 16 tokens of 8 touch all 64 experts once each; their weights at 80 % of HBM, the padding hidden behind.
  const Numbers small{8, 7168, 16384, 8, 64, 1, 1};
  const double weights = 3. * 64 * 7168 * 16384 * 2 / (0.8 * 3.35e12);
  EXPECT_NEAR(kMoeForm.seconds(small, c, p) / weights, 1, 0.02);
  // Half of the tokens, half of the experts.
  EXPECT_NEAR(kMoeForm.seconds(Numbers{4, 7168, 16384, 8, 64, 1, 1}, c, p) / weights, 0.5, 0.02);
  // No more experts than there are, though tokens double.
  EXPECT_NEAR(kMoeForm.seconds(Numbers{16, 7168, 16384, 8, 64, 1, 1}, c, p) / weights, 1, 0.02);
  // A tiny expert: launches.
  EXPECT_NEAR(kMoeForm.seconds(Numbers{1, 64, 64, 1, 1, 1, 1}, c, p), 5e-6, 1e-7);
}

TEST(MoeForm, H44TwoMatricesWithoutAGate) {
  const FormContext gated = context_of(kMoeForm, {"torch_flow_cutlass", "bf16", "balanced"});
  const FormContext plain = context_of(kMoeForm, {"torch_flow_nongated", "bf16", "balanced"});
  const Numbers x{1e5, 4096, 4096, 8, 64, 1, 1};
  EXPECT_DOUBLE_EQ(kMoeForm.work(x, gated) / kMoeForm.work(x, plain), 1.5);
}

TEST(MoeForm, H44SkewLoadsTheBusiestRank) {
  const FormContext even = context_of(kMoeForm, {"torch_flow_cutlass", "fp8", "balanced"});
  const FormContext skew = context_of(kMoeForm, {"torch_flow_cutlass", "fp8", "power_law_1.2"});
  Numbers p{5, 0.6, 0.8, 1, 1, 0.01, 0.1, 1e-9, 1e9};
  const auto ratio = [&](double ep) {
    const Numbers x{65536, 7168, 2048, 8, 256, 1, ep};
    return kMoeForm.seconds(x, skew, p) / kMoeForm.seconds(x, even, p);
  };
  EXPECT_NEAR(ratio(8), 1, 1e-6);
  p[7] = 0.5;
  // One rank has everything; with more ranks the busiest is further above the mean.
  EXPECT_NEAR(ratio(1), 1, 1e-9);
  EXPECT_GT(ratio(8), 1.1);
  EXPECT_GT(ratio(32), ratio(8));
  EXPECT_GT(ratio(128), ratio(32));
  // Long rows: all but launches and the pass over all tokens is proportional to them.
  const double tokens = 1 << 24, ep = 16, constant = 5e-6 + 4 * tokens * 7168 / 3.35e12;
  const Numbers x{tokens, 7168, 2048, 8, 256, 1, ep};
  const double spread = std::sqrt((0.5 * std::log(2 + tokens) + 0.3) / 16);
  EXPECT_NEAR((kMoeForm.seconds(x, skew, p) - constant) / (kMoeForm.seconds(x, even, p) - constant),
              1 + 0.5 * spread * std::sqrt(2 * std::log(ep)), 1e-4);
  // Never more than all tokens for each expert held.
  p[7] = 5;
  const Numbers half{65536, 7168, 2048, 1, 2, 1, 2}, all{65536, 7168, 2048, 1, 1, 1, 1};
  EXPECT_NEAR(kMoeForm.seconds(half, skew, p) / kMoeForm.seconds(all, even, p), 1, 1e-12);
}

// A kernel that passes over the pairs of all ranks takes as long for them whatever part of the experts it
// has.
TEST(MoeForm, H44PairsOfOtherRanksArePassedOver) {
  const FormContext c = context_of(kMoeForm, {"fused_moe_triton", "bf16", "balanced"});
  const Numbers without{5, 0.6, 0.8, 1, 1, 0.01, 0.1, 0.5, 1e12},
      with{5, 0.6, 0.8, 1, 1, 0.01, 0.1, 0.5, 0.5};
  for (const double ep : {1., 8., 64.}) {
    const Numbers x{4096, 7168, 2048, 8, 256, 1, ep};
    const double bytes = 4096. * 8 * (6 * 2048 + 4 * 7168);
    EXPECT_NEAR((kMoeForm.seconds(x, c, with) - kMoeForm.seconds(x, c, without)) / (bytes / (0.5 * 3.35e12)),
                1, 1e-6);
  }
}

// Tiles are as tall as if the rank had the pairs of the group: with expert parallelism one row per expert
// fills a tile of 256, and the products take as long as for 256.
TEST(MoeForm, H44TilesGoByTheGroupsPairs) {
  const auto products = [](const char* kernel, const char* type, const char* routing, const Numbers& x) {
    const FormContext c = context_of(kMoeForm, {kernel, type, routing}, "gb200-nvl72");
    // Nothing but arithmetic: memory and all else cost nothing.
    const Numbers p{1e-9, 0.5, 1e9, 1e9, 1e9, 1e-9, 1e-9, 1e-9, 1e12};
    return kMoeForm.seconds(x, c, p) * 0.5 * c.flops / (6. * 4096 * 2048);  // padded rows
  };
  const char *generated = "torch_flow", *mxfp8 = "w4a8_mxfp4_mxfp8";
  const auto side = [](double tile) { return std::hypot(tile, 64.); };
  const auto rows = [&](double tokens, double ep, double held) {
    return products(generated, mxfp8, "balanced", {tokens, 4096, 2048, 8, 256, 1, ep}) / held;
  };
  // 256 experts of one rank: 1024 tokens are 32 rows each, a tile of 32; 2080 are 65 rows, one of 128.
  EXPECT_NEAR(rows(1024, 1, 256), side(32), 1e-3);
  EXPECT_NEAR(rows(2080, 1, 256), side(128), 1e-3);
  // 8 of them: as many rows per expert, and tiles of 256.
  EXPECT_NEAR(rows(1024, 32, 8), side(256), 1e-3);
  EXPECT_NEAR(rows(2080, 32, 8), side(256), 1e-3);
  // Least and most: 8 rows, and two tiles of 256 for 288.
  EXPECT_NEAR(rows(32, 1, 256), side(8), 1e-3);
  EXPECT_NEAR(rows(9216, 1, 256), side(512), 1e-3);
  // Uneven loads: half a tile more than they fill.
  EXPECT_NEAR(products(generated, mxfp8, "power_law_1.2", {16384, 4096, 2048, 8, 256, 1, 1}) / 256,
              side(512 + 128), 1e-3);
  // Other types of these kernels, and other kernels, fill tiles by their own rows.
  for (const auto& [kernel, type] : {std::pair("torch_flow", "w4a16_mxfp4"),
                                     {"flashinfer_trtllm_moe", "fp8_block"},
                                     {"fused_moe_triton", "w4a8_mxfp4_mxfp8"}})
    EXPECT_NEAR(products(kernel, type, "balanced", {1024, 4096, 2048, 8, 256, 1, 32}) / 8, side(32), 1e-3)
        << kernel << " " << type;
}

TEST(MoeForm, H44ShardingDividesTheWork) {
  const FormContext c = context_of(kMoeForm, {"torch_flow_cutlass", "fp8_block", "balanced"});
  EXPECT_EQ(c.flops, 1979e12);
  EXPECT_EQ(c.b_bytes, 1);
  const Numbers whole{4096, 7168, 2048, 8, 256, 1, 1}, tensor{4096, 7168, 2048, 8, 256, 8, 1},
      expert{4096, 7168, 2048, 8, 256, 1, 8};
  EXPECT_DOUBLE_EQ(kMoeForm.work(whole, c), 8 * kMoeForm.work(tensor, c));
  EXPECT_DOUBLE_EQ(kMoeForm.work(whole, c), 8 * kMoeForm.work(expert, c));
  const Numbers p = starts(kMoeForm);
  EXPECT_LT(kMoeForm.seconds(tensor, c, p), kMoeForm.seconds(whole, c, p));
  EXPECT_LT(kMoeForm.seconds(expert, c, p), kMoeForm.seconds(whole, c, p));
}

}  // namespace
}  // namespace shardline
