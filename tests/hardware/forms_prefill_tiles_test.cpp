// FlashAttention-3's tiles [H30], and what vLLM takes to write new keys and values [H31].
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/prefill_kernels.hpp"
#include "hardware/machine/system.hpp"
#include "tests/hardware/support.hpp"
#include "tests/support/files.hpp"

namespace shardline {
namespace {

using testing::catalog_system;
using testing::prefill_shape;

TEST(FormsPrefill, H30FlashAttention3HasItsOwnTiles) {
  using enum PrefillKernel;
  struct Row {
    double dim, bytes;
    bool window;
    double rows, keys;
  };
  // hopper/tile_size.h, causal, pages that TMA cannot fetch.
  for (const Row& r : {Row{64, 2, false, 192, 128},
                       {64, 2, true, 192, 160},
                       {64, 1, false, 192, 160},
                       {96, 2, false, 192, 128},
                       {128, 2, false, 128, 128},
                       {128, 1, true, 128, 160},
                       {192, 2, false, 128, 96},
                       {192, 1, false, 128, 160},
                       {192, 1, true, 128, 128},
                       {256, 2, false, 128, 80},
                       {256, 2, true, 128, 64},
                       {256, 1, false, 128, 128}}) {
    const PrefillTile t = prefill_tile(flash_attention_3, r.dim, r.bytes, r.window);
    EXPECT_EQ(t.rows, r.rows) << r.dim << " " << r.bytes << " " << r.window;
    EXPECT_EQ(t.keys, r.keys) << r.dim << " " << r.bytes << " " << r.window;
    for (const PrefillKernel other : {with_rope, plain, packed}) {
      EXPECT_EQ(prefill_tile(other, r.dim, r.bytes, r.window).rows, 128);
      EXPECT_EQ(prefill_tile(other, r.dim, r.bytes, r.window).keys, 128);
    }
  }
}

// Tile by tile, each rounded up by itself. Ends of tiles come to lie everywhere in a block, so that the mean
// is exact over whole periods of both; in between it is off by less than a block.
TEST(FormsPrefill, H30TilesOfOtherSizesAreCountedWhole) {
  FormContext c;
  for (const double bytes : {1., 2.}) {
    c.a_bytes = bytes;
    for (const double dim : {64., 128., 192., 256.}) {
      for (const double group : {1., 2., 8.}) {
        const PrefillTile tile = prefill_tile(PrefillKernel::flash_attention_3, dim, bytes, false);
        const double tokens = tile.rows / group, rows = tokens * 60;
        double blocks = 0;
        for (int i = 1; i <= 60; ++i) blocks += std::ceil(tokens * i / tile.keys);
        PrefillShape s = prefill_shape(1, rows, 0, group, 1);
        s.qk_dim = s.v_dim = dim;
        const PrefillWork w = prefill_work(s, PrefillKernel::flash_attention_3, c);
        EXPECT_NEAR(w.blocks, blocks, 1) << dim << " " << bytes << " " << group;
        EXPECT_EQ(w.tiles, 60);
        EXPECT_EQ(w.tile.rows * w.tile.keys, tile.rows * tile.keys);
      }
    }
  }
}

// Block by block, as extend_attention.py goes through them: which of the new keys' a tile computes and which
// it looks at only.
TEST(FormsPrefill, H30TritonLooksAtBlocksBeforeTheWindow) {
  using enum PrefillKernel;
  FormContext c;
  for (const PrefillKernel kernel : {triton_hopper, triton_blackwell}) {
    for (const double dim : {128., 256., 512.}) {
      const PrefillTile tile = prefill_tile(kernel, dim, 2, true);
      for (const double window : {0., 1024.}) {
        for (const double rows : {64., 1024., 2048., 8192.}) {
          double computed = 0, skipped = 0;
          for (double first = 0; first < rows; first += tile.rows) {
            for (double key = 0; key < std::min(first + tile.rows, rows); key += tile.keys) {
              const bool seen = window == 0 || key + tile.keys - 1 > first - window;
              (seen ? computed : skipped) += 1;
            }
          }
          PrefillShape s = prefill_shape(3, rows, 0, 8, 2, window);
          s.qk_dim = s.v_dim = dim;
          const PrefillWork w = prefill_work(s, kernel, c);
          EXPECT_EQ(w.tiles, 3 * 8 * std::ceil(rows / tile.rows));
          // Where several tiles end in one block, blocks are counted at their mean.
          EXPECT_NEAR(w.blocks, 3 * 8 * computed, 3 * 8 * (computed * 0.02 + 0.5))
              << dim << " " << window << " " << rows;
          EXPECT_NEAR(w.skipped, 3 * 8 * skipped, 3 * 8 * (skipped * 0.02 + (skipped > 0 ? 1 : 0)))
              << dim << " " << rows;
        }
      }
    }
  }
  // Cached keys before the window are never looked at.
  const PrefillWork cached = prefill_work(prefill_shape(1, 512, 8192, 8, 2, 1024), triton_hopper, c);
  EXPECT_EQ(cached.skipped, 0);
}

TEST(FormsPrefill, H30TritonsTilesAreOfTheDevice) {
  const System hopper = catalog_system("h100-hgx"), blackwell = catalog_system("gb200-nvl72");
  const auto tile = [](const System& s, double dim) {
    return prefill_tile(prefill_kernel("triton", s).value(), dim, 2, false).rows;
  };
  EXPECT_EQ(tile(hopper, 128), 128);
  EXPECT_EQ(tile(hopper, 256), 64);
  EXPECT_EQ(tile(hopper, 512), 32);
  EXPECT_EQ(tile(blackwell, 128), 64);
  EXPECT_EQ(tile(blackwell, 512), 16);
}

TEST(FormsPrefill, H31BlocksThatAreLookedAtTakePartOfABlock) {
  const System hopper = catalog_system("h100-hgx");
  FormContext c;
  ASSERT_TRUE(kAttentionPrefillForm.context(std::vector<std::string>{"bf16", "bf16", "triton"}, hopper, c));
  const std::vector<double> window{8, 16384, 0, 16, 8, 256, 1024}, whole{8, 16384, 0, 16, 8, 256, 0};
  std::vector<double> p{10, 0.7, 0.6, 0.01, 1, 0.001, 5, 5, 0.001, 0.001, 1};
  // As long as the others: the window saves nothing.
  EXPECT_NEAR(kAttentionPrefillForm.seconds(window, c, p) / kAttentionPrefillForm.seconds(whole, c, p), 1,
              0.01);
  p[10] = 0.01;
  EXPECT_LT(kAttentionPrefillForm.seconds(window, c, p), 0.2 * kAttentionPrefillForm.seconds(whole, c, p));
}

TEST(FormsPrefill, H31VllmWritesATokenByABlockOfThreads) {
  EXPECT_DOUBLE_EQ(write_share(1, 128), 0.25);
  EXPECT_DOUBLE_EQ(write_share(4, 128), 1);
  EXPECT_DOUBLE_EQ(write_share(8, 64), 1);
  EXPECT_DOUBLE_EQ(write_share(48, 128), 1);  // a block has no more threads
  for (const char* name :
       {"flash_attn_fa3", "flash_attn_fa4", "triton_attn", "flashinfer_trtllmprefill", "vllm_flash_attn"}) {
    EXPECT_TRUE(writes_by_token(name)) << name;
  }
  for (const char* name : {"fa3", "flash_attention", "triton", "trtllm_mha", "flashinfer", "torch_flow"}) {
    EXPECT_FALSE(writes_by_token(name)) << name;
  }
  // Twice the heads cost twice the time per token up to a whole block; a kernel that leaves the cache alone
  // has no such step.
  const System hopper = catalog_system("h100-hgx");
  const std::vector<double> p{10, 0.7, 0.6, 2, 1, 0.3, 5, 5, 1, 0.001};
  const auto cost = [&](const char* kernel, double heads_kv) {
    FormContext c;
    EXPECT_TRUE(kAttentionPrefillForm.context(std::vector<std::string>{"bf16", "bf16", kernel}, hopper, c));
    const std::vector<double> x{64, 128, 0, 8, heads_kv, 128, 0};
    std::vector<double> none = p;
    none[8] = 0;
    return kAttentionPrefillForm.seconds(x, c, p) - kAttentionPrefillForm.seconds(x, c, none);
  };
  const double whole = 8192 * 1e-6 / 132;
  EXPECT_NEAR(cost("flash_attn_fa3", 1), 0.25 * whole, 1e-3 * whole);
  EXPECT_NEAR(cost("flash_attn_fa3", 2), 0.5 * whole, 1e-3 * whole);
  EXPECT_NEAR(cost("flash_attn_fa3", 8), whole, 1e-3 * whole);
  EXPECT_NEAR(cost("fa3", 1), whole, 1e-3 * whole);
  EXPECT_NEAR(cost("fa3", 8), whole, 1e-3 * whole);
}

}  // namespace
}  // namespace shardline
