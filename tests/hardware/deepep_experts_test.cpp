// [H44] [H54] Experts behind DeepEP: what their kernels pass over, and prices by them where they are named.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "hardware/cost/calibrated_cost.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/moe.hpp"
#include "hardware/machine/frameworks.hpp"
#include "tests/hardware/fitted.hpp"

namespace shardline {
namespace {

using testing::experts_op, testing::system_named;

constexpr const char *kNormal = "deepepmoe", *kMasked = "deepepmoe_masked";

System sglang_on(const std::string& system, const char* kernel) {
  System s = testing::catalog_system(system);
  use_framework(s, "sglang", testing::system_catalog());
  if (kernel != nullptr) {
    KernelRule asked;
    asked.family = "moe";
    asked.use = {{"", kernel}};
    asked.asked = true;
    s.kernels.rules.insert(s.kernels.rules.begin(), asked);
  }
  return s;
}

// DeepSeek-V3's experts on one of `ep` ranks, routed evenly.
Op product(bool up, Count tokens, Count ep) {
  const double pairs = double(tokens * 8) / double(ep), held = 256. / double(ep);
  return experts_op(up, {256 / ep, tokens, 7168, 2048, true, 8}, pairs, std::min(held, pairs),
                    Dtype::fp8_block, Dtype::fp8);
}

double layer(const System& s, Count tokens, Count ep) {
  CostModel m(s);
  return (m.time(product(true, tokens, ep)) + m.time(product(false, tokens, ep))).value;
}

TEST(DeepEpExperts, H44KernelsPassOverWhatTheyGet) {
  const System& s = system_named("h200-hgx");
  const std::vector<double> slow{5, 0.6, 0.8, 1, 0.01, 0.01, 0.1, 0.5, 0.01},
      none{5, 0.6, 0.8, 1, 1e12, 0.01, 0.1, 0.5, 1e12}, x{4096, 7168, 2048, 8, 256, 1, 8};
  const double bandwidth = 4.8e12, pass = 4096. * 7168 * 4 / (0.01 * bandwidth),
               pairs = 4096. * 8 * (6 * 2048 + 4 * 7168) / (0.01 * bandwidth);
  const auto added = [&](const char* kernel) {
    FormContext c;
    EXPECT_TRUE(kMoeForm.context(std::vector<std::string>{kernel, "fp8_block", "balanced"}, s, c));
    return kMoeForm.seconds(x, c, slow) - kMoeForm.seconds(x, c, none);
  };
  EXPECT_NEAR(added("fused_moe_triton") / (pass + pairs), 1, 1e-9);
  EXPECT_NEAR(added(kNormal) / pass, 1, 1e-9);  // the collector's buffer has all tokens of the group
  EXPECT_NEAR(added(kMasked), 0, 1e-15);        // rows come sorted
}

TEST(DeepEpExperts, H54DecodeIsPricedByTheFormItself) {
  for (const char* name : {"h100-hgx", "h200-hgx", "gb200-nvl72"}) {
    const System s = sglang_on(name, kMasked);
    for (const Count ep : {4, 32, 256}) {
      for (const Count tokens : {256, 2048, 16384}) {
        SCOPED_TRACE(std::string(name) + " " + std::to_string(ep) + " " + std::to_string(tokens));
        const double whole = testing::fitted(s, "moe", {kMasked, "fp8_block", "balanced"},
                                             {double(tokens), 7168, 2048, 8, 256, 1, double(ep)});
        EXPECT_NEAR(layer(s, tokens, ep) / whole, 1, 1e-12);
      }
    }
  }
}

// A rank gets the tokens that have an expert there: of eight ranks 66 %, of 256 one in 32.
TEST(DeepEpExperts, H54PromptsPassOverReceivedTokensAlone) {
  for (const char* name : {"h100-hgx", "h200-hgx", "gb200-nvl72"}) {
    const System s = sglang_on(name, kNormal);
    const double rate = testing::parameter(s, "moe", {kNormal, "fp8_block", "balanced"}, "e_tokens") *
                        s.device.memory_bandwidth.value;
    for (const Count ep : {8, 64, 256}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(ep));
      const Count tokens = 65536;
      const double share = 1 - std::pow(1 - 1 / double(ep), 8), unseen = double(tokens) * (1 - share);
      const std::vector<double> x{double(tokens), 7168, 2048, 8, 256, 1, double(ep)};
      const double measured = testing::fitted(s, "moe", {kNormal, "fp8_block", "balanced"}, x);
      for (const KernelFit& f : s.calibration.fits) {
        if (f.words != std::vector<std::string>{kNormal, "fp8_block", "balanced"}) continue;
        double at[kMostAxes];
        FormContext c;
        ASSERT_TRUE(f.form->context(f.words, s, c));
        f.form->coordinates(x, c, at);
        const double factor = std::exp(f.correction.at(std::span<const double>(at, f.form->axes.size())));
        EXPECT_NEAR(layer(s, tokens, ep) / (measured - factor * unseen * 7168 * 4 / rate), 1, 1e-9);
      }
      EXPECT_LT(layer(s, tokens, ep), measured);
    }
  }
}

// Which kernels an engine runs by how tokens get there is a list's to say; until one does, nothing changes.
TEST(DeepEpExperts, H64AreTakenWhereTheyAreNamedAlone) {
  for (const char* name : {"h100-hgx", "gb200-nvl72"}) {
    const System plain = sglang_on(name, nullptr);
    CostModel m(plain);
    const Op op = product(true, 4096, 8);
    const std::string taken = m.price(op).fit->words[0];
    EXPECT_NE(taken, kNormal);
    EXPECT_NE(taken, kMasked);
    for (const char* kernel : {kNormal, kMasked}) {
      const System s = sglang_on(name, kernel);
      CostModel named(s);
      EXPECT_EQ(named.price(op).fit->words[0], kernel) << name;
    }
  }
}

}  // namespace
}  // namespace shardline
