#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/split_rules.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {

namespace {

using Shape = std::vector<double>;

FormContext h100(const Form& form, const std::vector<std::string>& words) {
  System system = testing::catalog_system("h100-hgx");
  FormContext c;
  EXPECT_TRUE(form.context(words, system, c));
  c.sms = 132;
  return c;
}
FormContext decode_context(const char* dtype_kv = "bf16") {
  return h100(kAttentionDecodeForm, {"bf16", dtype_kv, "kernel"});
}
FormContext mla_context(const char* scope, const char* dtype_gemm, const char* kernel = "") {
  return h100(kMlaDecodeForm, {scope, "bf16", "bf16", dtype_gemm, kernel});
}

std::vector<double> start_of(const Form& form) {
  std::vector<double> out;
  for (const FormParameter& p : form.parameters) out.push_back(p.start);
  return out;
}
std::size_t index_of(const Form& form, const std::string& name) {
  for (std::size_t i = 0; i < form.parameters.size(); ++i) {
    if (name == form.parameters[i].name) return i;
  }
  ADD_FAILURE() << name;
  return 0;
}
/// Everywhere in the box that a fit may search.
std::vector<std::vector<double>> many_parameters(const Form& form) {
  std::vector<std::vector<double>> out{start_of(form)};
  std::mt19937_64 rng(7);
  for (int i = 0; i < 30; ++i) {
    std::vector<double> p;
    for (const FormParameter& f : form.parameters) {
      const double part = static_cast<double>(rng() >> 11) * 0x1p-53;
      p.push_back(f.low * std::pow(f.high / f.low, part));
    }
    out.push_back(p);
  }
  return out;
}

/// Grows along `axis` for every value of the others.
void expect_grows(const Form& form, const FormContext& c, const std::vector<Shape>& values,
                  std::size_t axis) {
  for (const std::vector<double>& p : many_parameters(form)) {
    std::vector<std::size_t> at(values.size(), 0);
    Shape x(values.size());
    while (true) {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = values[i][at[i]];
      double before = 0;
      for (const double v : values[axis]) {
        x[axis] = v;
        const double t = form.seconds(x, c, p);
        ASSERT_TRUE(std::isfinite(t) && t > 0);
        ASSERT_GE(t, before * (1 - 1e-12)) << form.numbers[axis] << " " << v;
        before = t;
      }
      std::size_t i = 0;
      for (; i < at.size(); ++i) {
        if (i == axis) continue;
        if (++at[i] < values[i].size()) break;
        at[i] = 0;
      }
      if (i == at.size()) break;
    }
  }
}

TEST(FormsDecode, H23GrowsWithBatchAndLengthFarBeyondMeasurements) {
  const Shape lengths{1, 2, 17, 128, 700, 4096, 65536, 1 << 20, 4 << 20}, batches{1, 2, 7, 64, 1000, 8192};
  for (const char* dtype : {"bf16", "fp8"}) {
    const FormContext c = decode_context(dtype);
    const std::vector<Shape> values{batches, lengths, {64}, {1, 2, 8, 64}, {64, 128, 256}, {0, 128, 8192}};
    expect_grows(kAttentionDecodeForm, c, values, 0);
    expect_grows(kAttentionDecodeForm, c, values, 1);
  }
}

TEST(FormsDecode, H23MoreQueryHeadsPerGroupCostMore) {
  expect_grows(kAttentionDecodeForm, decode_context(),
               {{1, 64, 2048}, {1, 512, 1 << 20}, {16, 24, 64, 256}, {8}, {128}, {0}}, 2);
}

TEST(FormsDecode, H23LongCachesAreReadAtTheAchievedBandwidth) {
  const FormContext c = decode_context();
  const auto p = start_of(kAttentionDecodeForm);
  const Shape x{64, 1 << 20, 64, 8, 128, 0};
  const double bytes = 2.0 * 64 * (1 << 20) * 8 * 128 * 2;
  EXPECT_NEAR(kAttentionDecodeForm.traffic(x, c) / bytes, 1, 1e-5);
  const double e = p[index_of(kAttentionDecodeForm, "e_memory")];
  EXPECT_NEAR(kAttentionDecodeForm.seconds(x, c, p) / (bytes / (e * c.bandwidth)), 1, 5e-3);
  FormContext twice = c;
  twice.bandwidth *= 2;
  auto no_compute = p;
  no_compute[index_of(kAttentionDecodeForm, "compute")] = 0.05;
  EXPECT_NEAR(
      kAttentionDecodeForm.seconds(x, c, no_compute) / kAttentionDecodeForm.seconds(x, twice, no_compute), 2,
      1e-2);
}

TEST(FormsDecode, H23OneTokenCostsALaunchAndABlock) {
  const auto p = start_of(kAttentionDecodeForm);
  const Shape x{1, 1, 8, 1, 128, 0};
  // Eight query heads fill the smallest tile: sqrt(8^2 + 8^2) / 8 rows.
  const double start = p[1] * (1 + (std::sqrt(2.0) - 1) / p[index_of(kAttentionDecodeForm, "group")]);
  EXPECT_NEAR(kAttentionDecodeForm.seconds(x, decode_context(), p), (p[0] + start) * 1e-6, 0.02e-6);
}

TEST(FormsDecode, H23ManyShortSequencesCostAStartPerWave) {
  const auto p = start_of(kAttentionDecodeForm);
  const FormContext c = decode_context();
  const double few = kAttentionDecodeForm.seconds(Shape{132 * 100, 1, 1, 1, 128, 0}, c, p);
  const double many = kAttentionDecodeForm.seconds(Shape{132 * 300, 1, 1, 1, 128, 0}, c, p);
  EXPECT_NEAR((many - few) / (200 * p[index_of(kAttentionDecodeForm, "start_mha")] * 1e-6), 1, 2e-2);
}

TEST(FormsDecode, H23CacheThatLivesInL2IsNotReadFromMemory) {
  auto p = start_of(kAttentionDecodeForm);
  const std::size_t l2 = index_of(kAttentionDecodeForm, "l2");
  const FormContext c = decode_context();
  const Shape x{16, 1024, 64, 8, 128, 0};  // 67 MB
  p[l2] = 2;
  const double cold = kAttentionDecodeForm.seconds(x, c, p);
  p[l2] = 300;
  const double warm = kAttentionDecodeForm.seconds(x, c, p);
  EXPECT_LT(warm, 0.8 * cold);
  const Shape longer{16, 1 << 20, 64, 8, 128, 0};
  const double out_of_l2 = kAttentionDecodeForm.seconds(longer, c, p);
  p[l2] = 2;
  EXPECT_NEAR(kAttentionDecodeForm.seconds(longer, c, p) / out_of_l2, 1, 1e-6);
}

TEST(FormsDecode, H23HalfOfACacheAsLargeAsL2IsRead) {
  std::vector<double> p;
  for (const FormParameter& f : kAttentionDecodeForm.parameters) p.push_back(f.low);
  const FormContext c = decode_context();
  const Shape x{16, 4096, 64, 8, 128, 0};
  const double bytes = kAttentionDecodeForm.traffic(x, c);
  p[index_of(kAttentionDecodeForm, "l2")] = bytes * 1e-6;
  p[index_of(kAttentionDecodeForm, "e_memory")] = 1;
  const double launch = p[0] + p[1], serial = p[index_of(kAttentionDecodeForm, "serial")];
  EXPECT_NEAR(kAttentionDecodeForm.seconds(x, c, p), bytes / c.bandwidth / 2 + (launch + serial) * 1e-6,
              0.5e-6);
}

TEST(FormsDecode, H23AWindowLimitsWhatIsRead) {
  const FormContext c = decode_context();
  auto p = start_of(kAttentionDecodeForm);
  const Shape inside{64, 128, 64, 8, 128, 0}, windowed{64, 1 << 20, 64, 8, 128, 128};
  EXPECT_EQ(kAttentionDecodeForm.traffic(inside, c), kAttentionDecodeForm.traffic(windowed, c));
  EXPECT_EQ(kAttentionDecodeForm.work(inside, c), kAttentionDecodeForm.work(windowed, c));
  const double skip = p[index_of(kAttentionDecodeForm, "skip")] * 1e-6;
  const double more =
      kAttentionDecodeForm.seconds(windowed, c, p) - kAttentionDecodeForm.seconds(inside, c, p);
  EXPECT_NEAR(more / skip, 1, 1e-2);
}

TEST(FormsDecode, H23OneHeadPerGroupIsAnotherKernel) {
  const FormContext c = decode_context();
  const auto p = start_of(kAttentionDecodeForm);
  const Shape grouped{8, 4096, 64, 8, 128, 0}, single{8, 4096, 8, 8, 128, 0};
  for (const char* name : {"t0", "start", "token", "serial", "compute"}) {
    auto q = p;
    q[index_of(kAttentionDecodeForm, name)] *= 1.5;
    EXPECT_GT(kAttentionDecodeForm.seconds(grouped, c, q), kAttentionDecodeForm.seconds(grouped, c, p));
    EXPECT_EQ(kAttentionDecodeForm.seconds(single, c, q), kAttentionDecodeForm.seconds(single, c, p));
    q = p;
    q[index_of(kAttentionDecodeForm, name + std::string("_mha"))] *= 1.5;
    EXPECT_EQ(kAttentionDecodeForm.seconds(grouped, c, q), kAttentionDecodeForm.seconds(grouped, c, p));
    EXPECT_GT(kAttentionDecodeForm.seconds(single, c, q), kAttentionDecodeForm.seconds(single, c, p));
  }
  EXPECT_TRUE(kAttentionDecodeForm.covers(Shape{1, 1, 64, 2, 128, 0}));
  EXPECT_FALSE(kAttentionDecodeForm.covers(Shape{1, 1, 64, 1, 128, 0}));
}

// Kernels of each rule [H47], on the device that has it.
struct RuledKernel {
  const char* system;
  const char* kernel;
  const char* dtype_kv;
};
constexpr RuledKernel kRuled[] = {
    {"gb200-nvl72", "torch_flow", "fp8"},   {"gb200-nvl72", "flashinfer", "bf16"},
    {"h200-hgx", "torch_flow", "fp8"},      {"h200-hgx", "fa3", "bf16"},
    {"h200-hgx", "flash_attn_fa3", "bf16"}, {"a100-sxm", "vllm_flash_attn", "bf16"},
    {"h200-hgx", "flash_attn_fa4", "bf16"}};
FormContext ruled_context(const RuledKernel& k) {
  FormContext c;
  const std::vector<std::string> words{"bf16", k.dtype_kv, k.kernel};
  EXPECT_TRUE(kAttentionDecodeForm.context(words, testing::catalog_system(k.system), c));
  EXPECT_NE(c.variant[0], 0) << k.kernel;
  return c;
}

TEST(FormsDecode, H23GrowsWithLengthUnderEveryRule) {
  const Shape lengths{1, 2, 17, 128, 511, 513, 700, 1025, 4096, 9000, 65536, 1 << 20, 4 << 20};
  for (const RuledKernel& k : kRuled) {
    expect_grows(kAttentionDecodeForm, ruled_context(k),
                 {{1, 2, 7, 64, 1000}, lengths, {64}, {1, 2, 8, 64}, {64, 128}, {0, 8192}}, 1);
  }
}

// More sequences have fewer parts each to merge; all else grows, which floors rest on [H57].
TEST(FormsDecode, H23GrowsWithBatchButForMerging) {
  const FormContext c = ruled_context(kRuled[0]);
  auto p = start_of(kAttentionDecodeForm);
  p[index_of(kAttentionDecodeForm, "reduce")] = 20;
  const auto seconds = [&](double batch) {
    return kAttentionDecodeForm.seconds(Shape{batch, 16384, 8, 1, 128, 0}, c, p);
  };
  EXPECT_GT(seconds(4), seconds(8));
  p[index_of(kAttentionDecodeForm, "reduce")] = 0;
  for (double batch = 1; batch < 1000; ++batch) ASSERT_LE(seconds(batch), seconds(batch + 1));
}

TEST(FormsDecode, H23OneSequenceTakesNoLessThanSeveralWithAsManyKeys) {
  for (const System& s : {testing::catalog_system("gb200-nvl72"), testing::catalog_system("h200-hgx")}) {
    for (const KernelFit& f : s.calibration.fits) {
      const bool gqa = f.form->family == kAttentionDecodeForm.family;
      if ((!gqa && f.form->family != kMlaDecodeForm.family) || f.words[0].starts_with("module")) continue;
      FormContext c;
      ASSERT_TRUE(f.form->context(f.words, s, c));
      // One that starts 32 parts of each sequence, keys or not, is not: 1 of 8192 keys takes 26 us, 128 of 64
      // keys take 137 (vLLM's FlashAttention-4 on H100).
      if (c.variant[0] == 0 || c.variant[0] == static_cast<double>(SplitRule::flash_attention_4_graph))
        continue;
      SCOPED_TRACE(s.name + " " + f.name());
      const auto seconds = [&](double batch, double keys) {
        return f.form->seconds(gqa ? Shape{batch, keys, 4, 1, 128, 0} : Shape{batch, keys, 8}, c,
                               f.parameters);
      };
      for (double keys = 1024; keys <= 1 << 20; keys *= 2) {
        for (double parts = 2; parts <= 128 && keys / parts >= 64; ++parts)
          ASSERT_GE(seconds(1, keys), seconds(parts, keys / parts)) << keys << " " << parts;
      }
      // Beyond L2 no key is read faster than HBM delivers it.
      const double bytes = (gqa ? 2.0 * 128 : 576.0) * c.b_bytes;
      for (double keys = 1 << 18; keys <= 1 << 23; keys *= 2)
        EXPECT_GE(seconds(1, 2 * keys) - seconds(1, keys), keys * bytes / c.bandwidth) << keys;
    }
  }
}

TEST(FormsDecode, H23AFullDeviceIsSplitNoFurther) {
  const FormContext c = ruled_context(kRuled[0]);
  auto p = start_of(kAttentionDecodeForm);
  p[index_of(kAttentionDecodeForm, "token")] = 300;   // far above reading
  p[index_of(kAttentionDecodeForm, "serial")] = 0.1;  // which grows, too
  const auto seconds = [&](double keys) {
    return kAttentionDecodeForm.seconds(Shape{1, keys, 4, 1, 128, 0}, c, p);
  };
  const double wave = 512 * c.sms;
  EXPECT_NEAR((seconds(4 * wave) - seconds(2 * wave)) / (300e-9 * 2 * 512), 1, 1e-3);
}

TEST(FormsDecode, ContextsKnowTheirDataTypes) {
  const System h100 = testing::catalog_system("h100-hgx");
  FormContext c;
  const std::vector<std::string> fp8{"bf16", "fp8", "kernel"}, strange{"bf16", "int4", "kernel"};
  ASSERT_TRUE(kAttentionDecodeForm.context(fp8, h100, c));
  EXPECT_EQ(c.b_bytes, 1);
  EXPECT_EQ(kAttentionDecodeForm.traffic(Shape{1, 1000, 8, 1, 128, 0}, c), 2.0 * 128 * (1000 + 8 * 2));
  EXPECT_FALSE(kAttentionDecodeForm.context(strange, h100, c));
  const std::vector<std::string> bmm{"mla_gen_pre", "fp8", ""};
  ASSERT_TRUE(kMlaBmmForm.context(bmm, h100, c));
  EXPECT_EQ(c.flops, 1979e12);
  EXPECT_FALSE(kMlaBmmForm.context(bmm, testing::catalog_system("a100-sxm"), c));
}

TEST(FormsDecode, H25GrowsWithBatchLengthAndHeads) {
  const std::vector<Shape> values{{1, 2, 7, 64, 1000, 8192},
                                  {1, 2, 17, 128, 700, 4096, 65536, 1 << 20, 4 << 20},
                                  {1, 2, 4, 8, 16, 32, 64, 128}};
  for (const FormContext& c :
       {mla_context("kernel", "", "unknown"), mla_context("module", "fp8_block", "unknown")}) {
    for (std::size_t axis = 0; axis < 3; ++axis) expect_grows(kMlaDecodeForm, c, values, axis);
  }
  // More sequences or tiles of a kernel with a rule have fewer parts each to merge.
  expect_grows(kMlaDecodeForm, mla_context("kernel", ""), values, 1);
}

TEST(FormsDecode, H25TheLatentCacheIsReadOnceForAllHeads) {
  const FormContext c = mla_context("kernel", "");
  const double n = 1 << 20, cache = 4 * n * 576 * 2;
  EXPECT_EQ(kMlaDecodeForm.traffic(Shape{4, n, 1}, c), cache + 4 * 2 * 1088.0);
  EXPECT_EQ(kMlaDecodeForm.traffic(Shape{4, n, 128}, c), cache + 128 * 4 * 2 * 1088.0);
  EXPECT_EQ(kMlaDecodeForm.work(Shape{4, n, 128}, c), 128 * kMlaDecodeForm.work(Shape{4, n, 1}, c));
  const auto p = start_of(kMlaDecodeForm);
  const double few_heads = kMlaDecodeForm.seconds(Shape{64, n, 16}, c, p);
  const double memory = 64 * n * 576 * 2 / (p[index_of(kMlaDecodeForm, "e_memory")] * c.bandwidth);
  EXPECT_GT(few_heads, memory);
  EXPECT_LT(few_heads, 1.05 * memory);
  // Far more heads than bandwidth can feed: the arithmetic of whole tiles.
  const double compute =
      kMlaDecodeForm.work(Shape{64, n, 1024}, c) / (p[index_of(kMlaDecodeForm, "e_compute")] * c.flops);
  EXPECT_NEAR(kMlaDecodeForm.seconds(Shape{64, n, 1024}, c, p) / compute, 1, 1e-2);
}

TEST(FormsDecode, H25AModuleAddsTheProjectionsOfDeepSeekV3) {
  const FormContext kernel = mla_context("kernel", ""), bf16 = mla_context("module", "bf16"),
                    fp8 = mla_context("module", "fp8_block");
  const Shape x{1, 1, 128};
  // 187.1 million weights in a layer's attention, two operations each.
  EXPECT_EQ(kMlaDecodeForm.work(x, bf16) - kMlaDecodeForm.work(x, kernel), 2 * 187105280.0);
  EXPECT_EQ(kMlaDecodeForm.traffic(x, bf16) - kMlaDecodeForm.traffic(x, fp8), 187105280.0);
  const auto p = start_of(kMlaDecodeForm);
  const double more = kMlaDecodeForm.seconds(x, bf16, p) - kMlaDecodeForm.seconds(x, kernel, p);
  EXPECT_NEAR(more, 2 * 187105280.0 / (p[index_of(kMlaDecodeForm, "e_project")] * bf16.bandwidth), 3e-6);
}

TEST(FormsDecode, H25ModulesOfWideExpertParallelismAreModules) {
  const System system = testing::catalog_system("h100-hgx");
  FormContext wide, plain;
  const std::vector<std::string> words{"module_wideep", "fp8_block", "fp8", "fp8_block", "fa3"};
  const std::vector<std::string> same{"module", "bf16", "fp8", "fp8_block", ""};
  const std::vector<std::string> other{"module", "fp8_block", "fp8", "fp8_block", "fa3"};
  ASSERT_TRUE(kMlaDecodeForm.context(words, system, wide));
  ASSERT_TRUE(kMlaDecodeForm.context(same, system, plain));
  EXPECT_FALSE(kMlaDecodeForm.context(other, system, plain));
  const auto p = start_of(kMlaDecodeForm);
  EXPECT_EQ(kMlaDecodeForm.seconds(Shape{4, 1000, 16}, wide, p),
            kMlaDecodeForm.seconds(Shape{4, 1000, 16}, plain, p));
  ASSERT_TRUE(kMlaPrefillForm.context(words, system, wide));
  ASSERT_TRUE(kMlaPrefillForm.context(same, system, plain));
  const auto q = start_of(kMlaPrefillForm);
  EXPECT_EQ(kMlaPrefillForm.seconds(Shape{4, 1000, 16}, wide, q),
            kMlaPrefillForm.seconds(Shape{4, 1000, 16}, plain, q));
}

TEST(FormsDecode, H25OneTokenCostsALaunchAndABlock) {
  const auto p = start_of(kMlaDecodeForm);
  const double start = p[1] * (1 + 0.5 / p[index_of(kMlaDecodeForm, "group")]);
  EXPECT_NEAR(kMlaDecodeForm.seconds(Shape{1, 1, 32}, mla_context("kernel", ""), p), (p[0] + start) * 1e-6,
              0.05e-6);
}

TEST(FormsDecode, H26ProductsGrowAndEndMemoryBound) {
  const FormContext c = h100(kMlaBmmForm, {"mla_gen_pre", "bf16", ""});
  const std::vector<Shape> values{{1, 2, 30, 1000, 65536, 1 << 20}, {1, 2, 16, 128, 1024}};
  expect_grows(kMlaBmmForm, c, values, 0);
  expect_grows(kMlaBmmForm, c, values, 1);
  auto p = start_of(kMlaBmmForm);
  const Shape large{1 << 20, 128}, tiny{1, 1};
  const double memory = kMlaBmmForm.traffic(large, c) / (p[index_of(kMlaBmmForm, "e_memory")] * c.bandwidth);
  const double compute = kMlaBmmForm.work(large, c) / (p[index_of(kMlaBmmForm, "e_compute")] * c.flops);
  EXPECT_EQ(kMlaBmmForm.work(large, c), 2.0 * (1 << 20) * 128 * 512 * 128);
  EXPECT_GT(memory, compute);
  EXPECT_NEAR(kMlaBmmForm.seconds(large, c, p) / std::hypot(memory, compute), 1, 1e-3);
  EXPECT_NEAR(kMlaBmmForm.seconds(tiny, c, p), p[0] * 1e-6, 0.02e-6);
}

}  // namespace

}  // namespace shardline
