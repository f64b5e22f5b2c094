// Parts of a sequence's keys against each library's own rule, written out the slow way.
#include "hardware/cost/forms/split_rules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "hardware/cost/forms/forms.hpp"
#include "tests/hardware/ops.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

constexpr double kKeys[] = {1,    63,   64,   500,   512,   513,    700,    1024,
                            2047, 4096, 9000, 16384, 65536, 131072, 1 << 20};
constexpr double kSms[] = {108, 132, 152};

// num_splits_heuristic of FlashAttention.
double searched(double keys, double rows, double slots, double block, double fewest, double most) {
  const double blocks = std::ceil(keys / block);
  if (rows >= 0.8 * slots || blocks <= fewest) return 1;
  const auto last = static_cast<int>(std::min({most, slots, blocks}));
  double best = 0;
  for (int s = 1; s <= last; ++s) best = std::max(best, rows * s / slots / std::ceil(rows * s / slots));
  for (int s = 1; s <= last; ++s) {
    if (rows * s / slots / std::ceil(rows * s / slots) >= 0.85 * best) return s;
  }
  return 1;
}

// Most parts of a sequence, of so many keys, thread-block rows and multiprocessors, one KV head.
using Most = std::function<double(double n, double u, double sms)>;
const std::map<SplitRule, Most> kMost{
    {SplitRule::whole, [](double, double, double) { return 1.0; }},
    {SplitRule::trtllm_gen,
     [](double n, double u, double sms) {
       return std::min(std::ceil(n / 512), std::max(1.0, std::floor(sms / u)));
     }},
    {SplitRule::xqa,
     [](double n, double u, double sms) {
       double s = std::floor(n / 128);
       s = std::max(1.0, std::min(s, std::round(std::sqrt(8 * s))));
       if (u * s > 8 * sms) s = std::max(1.0, std::floor(8 * sms / u));
       return std::max(1.0, std::min(s, std::floor(6000 / u)));
     }},
    {SplitRule::flash_attention_2,
     [](double n, double u, double sms) { return searched(n, u, 2 * sms, 128, 0, 128); }},
    {SplitRule::flash_attention_3,
     [](double n, double u, double sms) { return searched(n, u, sms, 128, 4, 128); }},
    {SplitRule::flash_attention_3_graph,
     [](double n, double u, double sms) { return searched(n, u, sms, 128, 4, 32); }},
    {SplitRule::flash_attention_3_latent,
     [](double n, double u, double sms) { return searched(n, u, sms, 64, 4, 128); }},
    {SplitRule::flash_attention_3_latent_graph,
     [](double n, double u, double sms) { return searched(n, u, sms, 64, 4, 32); }},
    {SplitRule::flash_attention_4_graph,
     [](double n, double u, double) { return u > 512 ? 1.0 : std::min(std::ceil(n / 64), 32.0); }},
    {SplitRule::flash_mla,
     [](double n, double u, double sms) { return std::min(std::ceil(n / 64), std::max(1.0, sms / u)); }},
    {SplitRule::flashinfer,
     [](double n, double u, double sms) {
       return std::min(std::ceil(n / 128), std::max(1.0, std::floor(2 * sms / u)));
     }},
    {SplitRule::flashinfer_latent,
     [](double n, double u, double sms) { return std::min(std::ceil(n / 256), std::max(1.0, sms / u)); }},
};

TEST(SplitRules, H47EveryRuleIsTried) { EXPECT_EQ(kMost.size() + 1, kSplitRules); }  // saturating has none

TEST(SplitRules, H47PartsAreNeverAboveTheRule) {
  for (const auto& [rule, most] : kMost) {
    for (const double sms : kSms) {
      for (const double n : kKeys) {
        for (double u = 1; u <= 2.5 * sms; ++u) {
          const double parts = key_split(rule, sms).parts(n, u, u);
          ASSERT_GE(parts, 1);
          ASSERT_LE(parts, most(n, u, sms) * (1 + 1e-6)) << int(rule) << " " << sms << " " << n << " " << u;
        }
      }
    }
  }
}

// And they are the rule where its steps do not matter: [H47] is no bound.
TEST(SplitRules, H47PartsOfOneLongSequenceAreTheRules) {
  const double n = 1 << 20;
  for (const auto& [rule, most] : kMost) {
    for (const double sms : kSms) {
      const double want = rule == SplitRule::xqa ? most(n, 1, sms) / 2 : most(n, 1, sms);
      EXPECT_NEAR(key_split(rule, sms).parts(n, 1, 1), want, 0.5) << int(rule);
    }
  }
  EXPECT_DOUBLE_EQ(key_split(SplitRule::flash_attention_3, 132).parts(1 << 20, 1, 1), 109);
  EXPECT_DOUBLE_EQ(key_split(SplitRule::flash_attention_3_graph, 132).parts(1 << 20, 1, 1), 28);
  EXPECT_EQ(key_split(SplitRule::trtllm_gen, 152).parts(131072, 8, 8), 19);
}

// Else a longer sequence could be read, or merged, in less time.
TEST(SplitRules, H47MoreKeysMeanNoFewerPartsAndNoShorterOnes) {
  for (const auto& [rule, most] : kMost) {
    for (const double sms : kSms) {
      for (double u = 1; u <= 2 * sms; u += u < 20 ? 1 : 7) {
        double parts = 0, part = 0;
        for (double n = 1; n < 2e6; n = std::ceil(n * 1.01)) {
          const double s = key_split(rule, sms).parts(n, u, u);
          ASSERT_GE(s, parts * (1 - 1e-6)) << int(rule) << " " << u << " " << n;
          ASSERT_GE(n / s, part * (1 - 1e-6)) << int(rule) << " " << u << " " << n;
          parts = s;
          part = n / s;
        }
      }
    }
  }
}

// What floors rest on [H57]: without merging, more sequences never take less time.
TEST(SplitRules, H47MoreSequencesNeverShortenTheLongestThreadBlock) {
  for (const auto& [rule, most] : kMost) {
    for (const double sms : kSms) {
      for (const double n : kKeys) {
        double before = 0;
        for (double u = 1; u <= 2.5 * sms; ++u) {
          const double share = std::max(1 / key_split(rule, sms).parts(n, u, u), u / sms);
          ASSERT_GE(share, before * (1 - 1e-6)) << int(rule) << " " << sms << " " << n << " " << u;
          before = share;
        }
      }
    }
  }
}

TEST(SplitRules, H47OneWaveEndsTheSplitting) {
  const KeySplit& blackwell = key_split(SplitRule::trtllm_gen, 152);
  for (double n = 512 * 152; n < 1e7; n *= 1.7) EXPECT_EQ(blackwell.parts(n, 1, 1), 152);
  EXPECT_LT(blackwell.parts(512 * 151, 1, 1), 152);
}

// vLLM's graphs end at 512 requests, and with them the parts that are started whatever the keys.
TEST(SplitRules, H47FlashAttention4StartsAllPartsInsideGraphs) {
  const KeySplit& rule = key_split(SplitRule::flash_attention_4_graph, 132);
  EXPECT_EQ(rule.parts(1 << 17, 512, 512), 32);
  EXPECT_EQ(rule.parts(1 << 17, 513, 513), 1);
  EXPECT_EQ(rule.parts(640, 1, 1), 10);
  EXPECT_EQ(started_parts(SplitRule::flash_attention_4_graph, 512), 32);
  EXPECT_EQ(started_parts(SplitRule::flash_attention_4_graph, 513), 1);
  EXPECT_EQ(started_parts(SplitRule::flash_attention_3_graph, 1), 1);
}

TEST(SplitRules, H47TheNameOfTheKernelAndTheDeviceChoose) {
  const System ampere = testing::catalog_system("a100-sxm"), hopper = testing::catalog_system("h200-hgx"),
               blackwell = testing::catalog_system("gb200-nvl72");
  const auto of = [](const char* kernel, const char* dtype_kv, const System& s) {
    const std::vector<std::string> words{"bf16", dtype_kv, kernel};
    return split_rules("attention_decode", words, s);
  };
  EXPECT_EQ(of("torch_flow", "fp8", hopper)->groups, SplitRule::xqa);
  EXPECT_EQ(of("torch_flow", "fp8", hopper)->single, SplitRule::saturating);
  EXPECT_EQ(of("torch_flow", "bf16", hopper)->groups, SplitRule::saturating);
  EXPECT_EQ(of("torch_flow", "bf16", blackwell)->groups, SplitRule::trtllm_gen);
  EXPECT_EQ(of("vllm_flash_attn", "bf16", ampere)->single, SplitRule::whole);
  EXPECT_EQ(of("flash_attn_fa4", "bf16", hopper)->groups, SplitRule::flash_attention_4_graph);
  EXPECT_TRUE(of("flash_attn_fa4", "bf16", hopper)->waits);
  EXPECT_TRUE(of("triton", "fp8", blackwell)->waits);
  EXPECT_FALSE(of("fa3", "bf16", hopper)->waits);
  EXPECT_FALSE(of("torch_flow", "bf16", ampere));
  EXPECT_FALSE(of("torch_flaw", "bf16", blackwell));
  const auto mla = [](const char* scope, const char* kernel, const System& s) {
    const std::vector<std::string> words{scope, "bf16", "fp8", "", kernel};
    return split_rules("mla_decode", words, s);
  };
  EXPECT_EQ(mla("kernel", "", hopper)->groups, SplitRule::flash_mla);
  EXPECT_EQ(mla("module", "", blackwell)->groups, SplitRule::trtllm_gen);
  EXPECT_EQ(mla("module_wideep", "fa3", hopper)->groups, SplitRule::saturating);
  EXPECT_FALSE(mla("kernel", "fa3", hopper));
  EXPECT_FALSE(mla("kernel", "flash_mla", hopper));
}

TEST(SplitRules, H48TheNameOfTheKernelAndTheDeviceChoose) {
  const System ampere = testing::catalog_system("a100-sxm"), hopper = testing::catalog_system("h200-hgx"),
               blackwell = testing::catalog_system("gb200-nvl72");
  const auto of = [](const char* kernel, const System& s) {
    const std::vector<std::string> words{"bf16", "bf16", kernel};
    return tile_split(words, s);
  };
  EXPECT_EQ(of("flash_attn_fa3", hopper)->few, SplitRule::flash_attention_3_graph);
  EXPECT_EQ(of("flash_attn_fa3", hopper)->many, SplitRule::flash_attention_3);
  EXPECT_EQ(of("fa3", hopper)->few, SplitRule::flash_attention_3);
  EXPECT_EQ(of("torch_flow", hopper)->many, SplitRule::whole);
  EXPECT_EQ(of("torch_flow", blackwell)->few, SplitRule::whole);
  EXPECT_EQ(of("flash_attention", ampere)->many, SplitRule::flash_attention_3);
  EXPECT_FALSE(of("fa3", blackwell));
  EXPECT_FALSE(of("torch_flow", ampere));
}

// 132 multiprocessors, a sequence of 1024 blocks.
// A kernel that no one has looked at would go through a long cache in one thread block.
TEST(SplitRules, H48EveryKernelThatPrefillsHasARule) {
  std::set<std::string> kernels;
  for (const System& s : testing::calibrated_systems()) {
    for (const KernelFit& f : s.calibration.fits) {
      if (f.form->family != std::string_view("attention_prefill")) continue;
      EXPECT_TRUE(tile_split(f.words, s)) << s.name << " " << f.words.back();
      kernels.insert(f.words.back());
    }
  }
  EXPECT_GE(kernels.size(), 6u);
}

TEST(SplitRules, H48PartsOfTiles) {
  constexpr double kLong = 131'072;
  const auto parts = [](SplitRule rule, double tiles, double own) {
    return tile_parts(rule, 132, kLong, tiles, own);
  };
  EXPECT_EQ(parts(SplitRule::whole, 1, 1), 1);
  EXPECT_EQ(parts(SplitRule::flash_attention_3_graph, 1, 1), 32);
  EXPECT_EQ(parts(SplitRule::flash_attention_3, 1, 1),
            key_split(SplitRule::flash_attention_3, 132).parts(kLong, 1, 1));
  // A share is 1.1 times what 16 tiles leave each multiprocessor: ceil(136.5...) of 1024 blocks.
  EXPECT_DOUBLE_EQ(parts(SplitRule::flash_attention_3_graph, 16, 16), 1024 / 137.);
  // From 0.8 of the multiprocessors on one sequence's tiles stay whole, those of several from 1 / 1.1 on.
  EXPECT_GT(parts(SplitRule::flash_attention_3, 105, 105), 1);
  EXPECT_EQ(parts(SplitRule::flash_attention_3, 106, 106), 1);
  EXPECT_GT(parts(SplitRule::flash_attention_3, 119, 1), 1);
  EXPECT_EQ(parts(SplitRule::flash_attention_3, 121, 1), 1);
  EXPECT_EQ(parts(SplitRule::flashinfer, 100, 100), 2);
  for (double blocks = 1; blocks < 40'000; blocks = std::ceil(blocks * 1.1)) {
    for (const double tiles : {1., 7., 40., 104., 300.}) {
      for (const SplitRule rule : {SplitRule::flash_attention_3, SplitRule::flash_attention_3_graph}) {
        const double now = tile_parts(rule, 132, 128 * blocks, tiles, tiles);
        const double more = tile_parts(rule, 132, 128 * (blocks + 1), tiles, tiles);
        EXPECT_GE((blocks + 1) / more, blocks / now * (1 - 1e-6)) << blocks << " " << tiles;
        EXPECT_LE(now, blocks);
      }
    }
  }
  EXPECT_THROW(tile_parts(SplitRule::trtllm_gen, 132, kLong, 1, 1), std::logic_error);
}

TEST(SplitRules, H47ARuleIsMadeOnceAndNeedsOne) {
  EXPECT_EQ(&key_split(SplitRule::xqa, 132), &key_split(SplitRule::xqa, 132));
  EXPECT_NE(&key_split(SplitRule::xqa, 132), &key_split(SplitRule::xqa, 108));
  EXPECT_EQ(&key_split(SplitRule::xqa, 1000), &key_split(SplitRule::xqa, 1000));
  EXPECT_THROW(key_split(SplitRule::saturating, 132), std::logic_error);
  EXPECT_THROW(key_split(SplitRule::xqa, 0), std::logic_error);
}

FormContext parts_context(const char* kernel) {
  FormContext c;
  EXPECT_TRUE(kAttentionDecodeForm.context(std::vector<std::string>{"bf16", "bf16", kernel},
                                           testing::catalog_system("h200-hgx"), c));
  return c;
}
std::vector<double> parts_start() {
  std::vector<double> out;
  for (const FormParameter& p : kAttentionDecodeForm.parameters) out.push_back(p.start);
  return out;
}
std::size_t parts_index(const std::string& name) {
  const auto found =
      std::find_if(kAttentionDecodeForm.parameters.begin(), kAttentionDecodeForm.parameters.end(),
                   [&](const FormParameter& p) { return p.name == name; });
  EXPECT_NE(found, kAttentionDecodeForm.parameters.end()) << name;
  return static_cast<std::size_t>(found - kAttentionDecodeForm.parameters.begin());
}

// The blocks of FlashAttention-4, counted one by one: of `batch` sequences with 8 query heads of 512 columns.
TEST(FormsDecode, H23PartsWithoutKeysAreStartedInsideGraphs) {
  const FormContext c = parts_context("flash_attn_fa4");
  auto p = parts_start();
  const auto set = [&](const char* name, double v) { p[parts_index(name)] = v; };
  const auto seconds = [&](double batch) {
    return kAttentionDecodeForm.seconds(std::vector<double>{batch, 2, 8, 1, 512, 0}, c, p);
  };
  for (const char* name : {"start", "token", "reduce", "serial", "compute"}) set(name, 1e-9);
  for (const char* name : {"piece", "search", "idle"}) set(name, 0);
  const double none = seconds(264), beyond = seconds(513);
  set("piece", 1e6);  // a second, beside which the reads are nothing; 64 waves of parts
  EXPECT_NEAR(seconds(264) - none, std::hypot(1, 64) - std::hypot(1, 2), 1e-8);
  EXPECT_EQ(seconds(513), beyond);  // no part without keys beyond the graphs
  set("piece", 0);
  set("idle", 1);  // 264 sequences x 264 groups of 8 rows x 4 groups of 128 columns
  EXPECT_NEAR(seconds(264) - none, 264 * 264 * 4 * 1e-9, 1e-12);
  EXPECT_EQ(seconds(513), beyond);
  set("idle", 0);
  // Each of 64 waves looks through half of the batch, 31 at a time: a second each time. Beyond the graphs,
  // too.
  set("search", 1e6);
  EXPECT_NEAR(seconds(264) - none, 264 / 62. * std::hypot(1, 64), 1e-6);
  EXPECT_NEAR(seconds(513) - beyond, 513 / 62. * std::hypot(1, 513 / 132.), 1e-6);
}

// Of a kernel with few parts a token takes longer out of memory than out of L2.
TEST(FormsDecode, H23FewPartsWaitForMemory) {
  auto p = parts_start();
  p[parts_index("token")] = 300;
  const auto ratio = [&](const FormContext& c, double keys) {
    auto q = p;
    q[parts_index("cold")] *= 2;
    const std::vector<double> x{1, keys, 8, 1, 128, 0};
    return kAttentionDecodeForm.seconds(x, c, q) / kAttentionDecodeForm.seconds(x, c, p);
  };
  const FormContext few = parts_context("flash_attn_fa4"), filling = parts_context("fa3");
  EXPECT_NEAR(ratio(few, 1 << 20), 1.6 / 1.3, 0.02);
  EXPECT_NEAR(ratio(few, 4096), 1, 1e-3);
  EXPECT_EQ(ratio(filling, 1 << 20), 1);
}

}  // namespace
}  // namespace shardline
