#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/prefill_kernels.hpp"
#include "hardware/machine/frameworks.hpp"
#include "hardware/machine/system.hpp"
#include "tests/hardware/support.hpp"
#include "tests/support/files.hpp"

namespace shardline {
namespace {

using testing::prefill_shape;

using testing::catalog_system;

/// A device on which one block of 2 x 128 dims takes a microsecond of an SM, and half of one for
/// exponentials.
FormContext round_device() {
  FormContext c;
  c.sms = 100;
  c.flops = 100 * 2 * 128 * 128 * 256 * 1e6;
  c.exponentials = 100 * 128 * 128 * 2e6;
  c.bandwidth = 1e12;
  return c;
}

std::vector<double> start(const Form& form) {
  std::vector<double> p;
  for (const FormParameter& f : form.parameters) p.push_back(f.start);
  return p;
}

FormContext context_of(const Form& form, const std::vector<std::string>& words,
                       const char* system = "h100-hgx") {
  FormContext c;
  EXPECT_TRUE(form.context(words, catalog_system(system), c));
  c.sms = 132;
  return c;
}
const std::vector<std::string> kTrt{"bf16", "bf16", "torch_flow"};

TEST(FormsPrefill, H30CountsBlocksTileByTile) {
  const FormContext c = round_device();
  for (const double rows : {128., 256., 640., 8192.}) {
    for (const double cached : {0., 128., 1000., 65536.}) {
      for (const double window : {0., 128., 1000., 1024., 100000.}) {
        double blocks = 0, longest = 0;
        const int tiles = static_cast<int>(rows / 128);
        for (int i = 0; i < tiles; ++i) {
          // Cached tokens are not rounded but in the last tile.
          const double all = (cached + 128 * (i + 1)) / 128, end = i + 1 < tiles ? all : std::ceil(all);
          // One block before the first whose keys the window holds.
          const double begin =
              window > 0 ? std::floor(std::max(0.0, cached + 128 * i - window + 1 - 128) / 128) : 0;
          blocks += end - begin;
          longest = std::max(longest, end - begin);
        }
        const PrefillWork w =
            prefill_work(prefill_shape(3, rows, cached, 8, 2, window), PrefillKernel::with_rope, c);
        EXPECT_NEAR(w.blocks, 24 * blocks, 1e-9 * w.blocks) << rows << " " << cached << " " << window;
        EXPECT_NEAR(w.longest, longest, 1e-9 * longest) << rows << " " << cached << " " << window;
        EXPECT_EQ(w.tiles, 24 * tiles);
      }
    }
  }
}

TEST(FormsPrefill, H30ShortTilesCostHalf) {
  const FormContext c = round_device();
  const auto work = [&](double rows) {
    return prefill_work(prefill_shape(1, rows, 0, 1, 1), PrefillKernel::with_rope, c);
  };
  EXPECT_DOUBLE_EQ(work(128).blocks, 1);
  EXPECT_DOUBLE_EQ(work(64).blocks, 0.25);  // half the rows, half the keys
  EXPECT_DOUBLE_EQ(work(192).blocks, 2);    // 1 + 2 / 2
  EXPECT_DOUBLE_EQ(work(193).blocks, 3);    // 1 + 2
}

TEST(FormsPrefill, H30PackedHeadsShareTiles) {
  const FormContext c = round_device();
  // 16 tokens of 8 heads fill one tile of each KV head.
  const PrefillWork packed = prefill_work(prefill_shape(2, 16, 0, 32, 4), PrefillKernel::packed, c);
  EXPECT_DOUBLE_EQ(packed.tiles, 2 * 4);
  const PrefillWork plain = prefill_work(prefill_shape(2, 16, 0, 32, 4), PrefillKernel::plain, c);
  EXPECT_DOUBLE_EQ(plain.tiles, 2 * 32);
  // Long prompts: as many tiles, but the diagonal is finer.
  const PrefillWork a = prefill_work(prefill_shape(1, 4096, 0, 8, 1), PrefillKernel::packed, c);
  const PrefillWork b = prefill_work(prefill_shape(1, 4096, 0, 8, 1), PrefillKernel::plain, c);
  EXPECT_DOUBLE_EQ(a.tiles, b.tiles);
  EXPECT_NEAR(a.blocks, b.blocks, 0.02 * b.blocks);
  double exact = 0;
  for (int i = 0; i < 256; ++i) exact += std::ceil(16. * (i + 1) / 128);
  EXPECT_NEAR(a.blocks, exact, 1);  // rounding is counted at its mean
}

TEST(FormsPrefill, H30PackedKernelsCountBlocksFromTheWindowOn) {
  const FormContext c = round_device();
  for (const double group : {1., 8.}) {
    const double tokens = 128 / group;
    for (const double window : {1., 128., 1000., 1024.}) {
      for (const double cached : {0., 128., 4096.}) {
        double blocks = 0, longest = 0;
        for (int i = 0; i < 2048 / tokens; ++i) {
          const double first = std::max(0.0, cached + tokens * i - window + 1),
                       end = cached + tokens * (i + 1);
          // Keys of a short tile before the window begins are rounded at their mean.
          const double seen = first > 0
                                  ? std::ceil((end - first) / 128)
                                  : std::ceil(cached / 128) + (tokens * (i + 1) + (128 - tokens) / 2) / 128;
          blocks += seen <= 0.5 ? 0.5 : seen;
          longest = std::max(longest, seen);
        }
        const PrefillWork w =
            prefill_work(prefill_shape(1, 2048, cached, group, 1, window), PrefillKernel::packed, c);
        // A tile that the window just reaches may be rounded up by both.
        EXPECT_NEAR(w.blocks, blocks, 1) << group << " " << window << " " << cached;
        EXPECT_NEAR(w.longest, longest, 1) << group << " " << window << " " << cached;
        const PrefillWork others =
            prefill_work(prefill_shape(1, 2048, cached, 1, 1, window), PrefillKernel::plain, c);
        if (group == 1 && window < 2048) {
          EXPECT_LT(w.blocks, others.blocks);
        }
      }
    }
  }
}

// A kernel that nobody has looked at would be taken for one with RoPE.
TEST(FormsPrefill, H30EveryShippedKernelIsKnown) {
  const std::filesystem::path catalog = testing::source_dir() / "hardware/catalog";
  std::set<std::string> names;
  const auto add = [&](const Calibration& c) {
    for (const KernelFit& f : c.fits) {
      if (f.form->family == std::string_view("attention_prefill")) names.insert(f.words[2]);
    }
  };
  for (const std::string& name : system_names(catalog)) {
    const Calibration own = load_system(name, catalog).calibration;
    add(own);
    for (const char* framework : {"sglang", "vllm"}) {
      if (const auto other = framework_calibration(own.name, framework, catalog)) add(*other);
    }
  }
  EXPECT_GE(names.size(), 10u);
  const System hopper = testing::catalog_system("h100-hgx");
  for (const std::string& name : names) EXPECT_TRUE(prefill_kernel(name, hopper)) << name;
  EXPECT_EQ(prefill_kernel("flash_attn_fa3", hopper), PrefillKernel::flash_attention_3);
  EXPECT_EQ(prefill_kernel("flash_attn_fa4", hopper), PrefillKernel::packed);
  EXPECT_EQ(prefill_kernel("torch_flow", hopper), PrefillKernel::with_rope);
  EXPECT_FALSE(prefill_kernel("fa5", hopper));
}

TEST(FormsPrefill, H30BytesOfKernelsWithAndWithoutRope) {
  FormContext c = round_device();
  c.a_bytes = c.b_bytes = 1;
  const PrefillShape s = prefill_shape(2, 100, 50, 8, 2);
  const PrefillWork plain = prefill_work(s, PrefillKernel::plain, c);
  EXPECT_DOUBLE_EQ(plain.query_bytes, 200 * 8 * 128 * (1 + 2));
  EXPECT_DOUBLE_EQ(plain.cache_bytes, 200 * 2 * 2 * 128);
  EXPECT_DOUBLE_EQ(plain.prefix_bytes, 100 * 2 * 2 * 128);
  const PrefillWork rope = prefill_work(s, PrefillKernel::with_rope, c);
  EXPECT_DOUBLE_EQ(rope.query_bytes, 200 * 8 * 128 * (2 + 1 + 1 + 2));
  EXPECT_DOUBLE_EQ(rope.cache_bytes, 200 * 2 * 2 * 128 * (2 + 1));
  EXPECT_DOUBLE_EQ(rope.prefix_bytes, plain.prefix_bytes);
}

// Two chunks of a sequence on one rank of a ring, against all keys: no equal sequences, but as many pairs.
TEST(FormsPrefill, H30OtherSumsKeepTheirPairsAndTiles) {
  const FormContext c = round_device();
  AttendPrefillShape a;
  a.q_heads = a.kv_heads = 4;
  a.qk_dim = a.v_dim = 128;
  a.intervals = 2;
  a.q_rows = 2 * 1024;
  a.tiles = 2 * 8;
  const auto between = [](Count from, Count to) { return (from + 1 + to) * (to - from) / 2; };
  a.pairs = between(0, 1024) + between(7 * 1024, 8 * 1024);
  a.kv_rows = 8 * 1024;
  PrefillWork w = prefill_work(a, PrefillKernel::with_rope, c);
  EXPECT_EQ(w.tiles, 4 * 16);
  EXPECT_NEAR(w.blocks, 4 * (36 + 36 + 8 * 56), 1e-9 * w.blocks);
  // A shard of an eighth of the keys: an eighth of a triangle's work, and of its longest tile.
  a.intervals = 1;
  a.q_rows = 8 * 1024;
  a.tiles = 64;
  a.pairs = between(0, 8 * 1024) / 8;
  a.kv_rows = 1024;
  w = prefill_work(a, PrefillKernel::with_rope, c);
  EXPECT_NEAR(w.blocks, 4 * 64 * 65 / 2 / 8., 1e-3 * w.blocks);
  EXPECT_NEAR(w.longest, 64 / 8., 1e-3 * w.longest);
  EXPECT_EQ(prefill_work(AttendPrefillShape{}, PrefillKernel::with_rope, c).blocks, 0);
}

TEST(FormsPrefill, H30PairsOfAWindow) {
  for (const double cached : {0., 5., 40.}) {
    for (const double window : {0., 1., 8., 30., 100.}) {
      double pairs = 0;
      for (int i = 0; i < 33; ++i) pairs += window > 0 ? std::min(cached + i + 1, window) : cached + i + 1;
      EXPECT_DOUBLE_EQ(prefill_pairs(prefill_shape(1, 33, cached, 1, 1, window)), pairs)
          << cached << " " << window;
    }
  }
}

TEST(FormsPrefill, H31ClosedForm) {
  const FormContext c = round_device();
  //                              t0 mma exp cta pace tail query cache token throttle
  const std::array<double, 10> p{10, 1, 1, 3, 2, 0.5, 0.5, 0.25, 0.1, 0.1};
  PrefillWork w;
  w.blocks = 5000;
  w.tiles = 400;
  w.longest = 20;
  w.block_dims = 256;
  w.tokens = 2000;
  w.query_bytes = 1e6;
  w.cache_bytes = 2e6;
  const double block = std::pow(1 + std::pow(0.5, 4), 0.25);  // us
  const double mean = (400 * 3 + 5000 * block) / 100, alone = 3 + 20 * block * 2;
  EXPECT_GT(mean, alone);
  const double us = 10 + mean + 0.5 * alone + 2000 * 0.1 / 100 + 1 / 0.5 + 2 / 0.25;
  EXPECT_NEAR(prefill_seconds(w, c, p), us * 1e-6 * (1 + 0.1 * us / (us + 20000)), 1e-12);
}

TEST(FormsPrefill, H31Limits) {
  const Form& form = *find_form("attention_prefill");
  const FormContext c = context_of(form, kTrt);
  const std::vector<double> p = start(form);
  // Two tokens of one head: the fixed costs alone.
  const std::array<double, 7> tiny{1, 2, 0, 1, 1, 128, 0};
  EXPECT_GT(form.seconds(tiny, c, p), p[0] * 1e-6);
  EXPECT_LT(form.seconds(tiny, c, p), (p[0] + 5) * 1e-6);
  // A million tokens: the achieved fraction of the peak under the throttled clock.
  const std::array<double, 7> huge{1, 1048576, 0, 64, 8, 128, 0};
  const double block = std::pow(std::pow(2. * 128 * 128 * 256 * c.sms / (p[1] * c.flops), 4) +
                                    std::pow(128. * 128 * c.sms / (p[2] * c.exponentials), 4),
                                0.25);
  const double blocks = 64. * 8192 * 8193 / 2;
  EXPECT_NEAR(form.seconds(huge, c, p) / (blocks * block / c.sms * (1 + p[9])), 1, 0.02);
  // Few rows after a prefix of a million tokens are a pass over it.
  std::vector<double> cool = p;
  cool[9] = 0.001;
  const std::array<double, 7> long_prefix{1, 16, 1048576, 64, 8, 128, 0},
      half_prefix{1, 16, 524288, 64, 8, 128, 0};
  EXPECT_NEAR(form.seconds(long_prefix, c, cool) / form.seconds(half_prefix, c, cool), 2, 0.02);
}

TEST(FormsPrefill, H31PositiveAndMonotone) {
  const Form& form = *find_form("attention_prefill");
  for (const char* kernel : {"torch_flow", "fa3", "vllm_flash_attn"}) {
    const FormContext c = context_of(form, {"bf16", "bf16", kernel});
    const std::vector<double> p = start(form);
    for (const double batch : {1., 64.}) {
      for (const double heads_q : {8., 64., 128.}) {
        for (const double cached : {0., 128. * 1024, 4. * 1024 * 1024}) {
          double before = 0;
          for (double rows = 2; rows < 5e6; rows = std::ceil(rows * 1.3)) {
            const std::array<double, 7> x{batch, rows, cached, heads_q, 8, 128, 0};
            const double t = form.seconds(x, c, p);
            ASSERT_TRUE(std::isfinite(t) && t > 0);
            EXPECT_GE(t, before * (1 - 1e-12))
                << kernel << " " << batch << " " << heads_q << " " << cached << " " << rows;
            before = t;
            for (const std::size_t axis : {0u, 2u, 5u}) {
              std::array<double, 7> more{batch, rows, cached, heads_q, 8, 128, 0};
              more[axis] = more[axis] * 2 + (axis == 2 ? 128 : 0);
              EXPECT_GT(form.seconds(more, c, p), t) << kernel << " axis " << axis;
            }
            // A window never costs more than a block per tile.
            const std::array<double, 7> all{batch, rows, cached, heads_q, 8, 128, 0};
            std::array<double, 7> windowed = all;
            windowed[6] = 1024;
            EXPECT_LE(form.seconds(windowed, c, p), t * (1 + 1e-12));
          }
        }
      }
    }
  }
}

TEST(FormsPrefill, ContextsFollowTheDataTypes) {
  const Form& form = *find_form("attention_prefill");
  EXPECT_EQ(context_of(form, kTrt).flops, 989e12);
  EXPECT_EQ(context_of(form, {"bf16", "fp8", "torch_flow"}).flops, 1979e12);
  EXPECT_EQ(context_of(form, {"fp8", "fp8", "fa3"}).b_bytes, 1);
  FormContext c;
  EXPECT_FALSE(form.context(std::vector<std::string>{"fp8", "fp8", "fa3"}, catalog_system("a100-sxm"), c));
  const Form& mla = *find_form("mla_prefill");
  EXPECT_EQ(context_of(mla, {"kernel", "bf16", "fp8", "", ""}, "a100-sxm").flops, 312e12);
  EXPECT_FALSE(mla.context(std::vector<std::string>{"module", "bf16", "bf16", "nvfp4", ""},
                           catalog_system("h100-hgx"), c));
}

TEST(FormsPrefill, H32ModuleIsAttentionAndProjections) {
  const Form& form = *find_form("mla_prefill");
  const FormContext kernel = context_of(form, {"kernel", "bf16", "bf16", "", ""});
  const FormContext module = context_of(form, {"module", "bf16", "bf16", "bf16", ""});
  std::vector<double> p = start(form);
  p[6] = 1;  // bytes at the peak, as in a module
  const std::array<double, 3> x{4, 2048, 16};
  const double down = 7168. * 2112, per_head = 1536. * 192 + 512. * 256 + 128. * 7168;
  const double rows = 4 * 2048;
  const double want = 2 * rows * (down / p[7] + 16 * per_head / p[8]) / 989e12 +
                      2 * (down + 16 * per_head) / (p[9] * 3.35e12);
  EXPECT_NEAR(form.seconds(x, module, p) - form.seconds(x, kernel, p), want, 1e-6 * want);
  EXPECT_DOUBLE_EQ(form.work(x, module) - form.work(x, kernel), 2 * rows * (down + 16 * per_head));
}

// 576 and 512 numbers of each pair, one row of the cache for all heads, and 64 rows of queries and heads to
// a tile: 16 heads of 2,048 tokens are 512 tiles, each with all blocks of 64 keys up to its own.
TEST(FormsPrefill, H32AbsorbedHeadsShareRowsOfLatents) {
  const Form& form = *find_form("mla_prefill");
  const FormContext c = context_of(form, {"absorbed", "bf16", "bf16", "", "flash_attention"});
  const std::array<double, 3> x{4, 2048, 16};
  EXPECT_DOUBLE_EQ(form.work(x, c), 2 * 4 * 16 * 1088. * 2048 * 2049 / 2);
  EXPECT_DOUBLE_EQ(form.traffic(x, c), 4 * 2048. * (16 * 1088 + 576) * 2);
  PrefillShape s;
  s.batch = 4;
  s.rows = 2048;
  s.heads_q = 16;
  s.heads_kv = 1;
  s.qk_dim = 576;
  s.v_dim = 512;
  const PrefillWork w = prefill_work(s, PrefillKernel::flash_attention_3, c);
  EXPECT_EQ(w.tiles, 4 * 512);
  double blocks = 0;
  for (int tile = 0; tile < 512; ++tile) blocks += std::ceil((tile + 1) * 4 / 64.);
  EXPECT_NEAR(w.blocks, 4 * blocks, 4 * 1.0);
  // A cache in FP8 is attended to in BF16.
  const FormContext fp8 = context_of(form, {"absorbed", "bf16", "fp8", "", "flash_attention"});
  EXPECT_EQ(fp8.flops, c.flops);
  EXPECT_EQ(form.work(x, fp8), form.work(x, c));
}

TEST(FormsPrefill, H32PositiveAndMonotone) {
  const Form& form = *find_form("mla_prefill");
  for (const auto& words : {std::vector<std::string>{"kernel", "bf16", "fp8", "", ""},
                            {"module", "bf16", "bf16", "fp8_block", ""},
                            {"absorbed", "bf16", "bf16", "", "flash_attention"},
                            {"absorbed", "bf16", "fp8", "", "flash_attention"}}) {
    const FormContext c = context_of(form, words);
    const std::vector<double> p = start(form);
    for (const double heads : {1., 16., 128.}) {
      double before = 0;
      for (double rows = 1; rows < 5e6; rows = std::ceil(rows * 1.5)) {
        const std::array<double, 3> x{2, rows, heads}, more{2, rows, heads * 2}, larger{4, rows, heads};
        const double t = form.seconds(x, c, p);
        ASSERT_TRUE(std::isfinite(t) && t > 0);
        EXPECT_GE(t, before);
        EXPECT_GT(form.seconds(more, c, p), t);
        EXPECT_GT(form.seconds(larger, c, p), t);
        before = t;
      }
    }
  }
}

}  // namespace
}  // namespace shardline
