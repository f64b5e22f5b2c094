// [H21] Tiles of libraries whose rules are known, against a second, slow reading of each rule.
#include "hardware/cost/forms/gemm_tiles.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

namespace shardline {
namespace {

constexpr int kSms = 132;
constexpr GemmRule kRules[] = {GemmRule::cutlass_hopper, GemmRule::cutlass_blackwell_vllm,
                               GemmRule::cutlass_blackwell_sglang, GemmRule::deepgemm_hopper,
                               GemmRule::tensorrt_hopper};

using Columns = std::array<double, kMostGemmWidths>;
Columns columns_of(GemmRule rule, std::int64_t n) {
  Columns out{};
  std::size_t i = 0;
  for (const double width : gemm_widths(rule)) out[i++] = std::ceil(static_cast<double>(n) / width);
  return out;
}

TiledGemm tiled(std::int64_t m, std::int64_t n, std::int64_t k, const Columns& columns) {
  return {static_cast<double>(m), static_cast<double>(n), static_cast<double>(k), columns.data(), kSms};
}

GemmGrid taken(GemmRule rule, std::int64_t m, std::int64_t n, std::int64_t k = 4096) {
  const Columns columns = columns_of(rule, n);
  return gemm_grid(rule, tiled(m, n, k, columns));
}

using Tile = std::tuple<double, double, double, double>;  // height, width, rows, columns
Tile tile(GemmRule rule, std::int64_t m, std::int64_t n) {
  const GemmGrid g = taken(rule, m, n);
  return {g.height, g.width, g.rows, g.columns};
}

void for_random_shapes(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& f) {
  std::mt19937 random(3);
  const auto size = [&](double most) {
    return static_cast<std::int64_t>(std::exp2(std::uniform_real_distribution<double>(0, most)(random)));
  };
  for (int trial = 0; trial < 2000; ++trial) f(size(15), 16 * size(12), 128 * size(9));
}

std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

TEST(GemmTiles, H21NamesOfRules) {
  EXPECT_EQ(gemm_rule("fp8", "CutlassFP8", false), GemmRule::cutlass_hopper);
  EXPECT_EQ(gemm_rule("fp8", "CutlassFP8", true), GemmRule::cutlass_blackwell_vllm);
  EXPECT_EQ(gemm_rule("fp8", "sgl_kernel_fp8_scaled_mm", false), GemmRule::cutlass_hopper);
  EXPECT_EQ(gemm_rule("fp8", "sgl_kernel_fp8_scaled_mm", true), GemmRule::cutlass_blackwell_sglang);
  EXPECT_EQ(gemm_rule("fp8_block", "deepgemm_gemm_nt_f8f8bf16", false), GemmRule::deepgemm_hopper);
  EXPECT_EQ(gemm_rule("fp8_block", "deepgemm_gemm_nt_f8f8bf16", true), GemmRule::any);
  EXPECT_EQ(gemm_rule("fp8_block", "torch_flow", false), GemmRule::tensorrt_hopper);
  EXPECT_EQ(gemm_rule("fp8_block", "torch_flow", true), GemmRule::any);
  EXPECT_EQ(gemm_rule("fp8", "torch_flow", false), GemmRule::any);
  EXPECT_EQ(gemm_rule("bf16", "CutlassFP8", false), GemmRule::any);
}

TEST(GemmTiles, H21CutlassGoesByRows) {
  const GemmRule hopper = GemmRule::cutlass_hopper, vllm = GemmRule::cutlass_blackwell_vllm,
                 sglang = GemmRule::cutlass_blackwell_sglang;
  EXPECT_EQ(tile(hopper, 16, 1280), Tile(16, 64, 2, 20));
  EXPECT_EQ(tile(hopper, 16, 1281), Tile(16, 64, 1, 21));
  EXPECT_EQ(tile(hopper, 17, 1280), Tile(16, 64, 4, 20));
  EXPECT_EQ(tile(hopper, 64, 1281), Tile(64, 64, 1, 21));
  EXPECT_EQ(tile(hopper, 65, 1281), Tile(64, 128, 2, 11));
  EXPECT_EQ(tile(hopper, 129, 1281), Tile(128, 128, 2, 11));
  EXPECT_EQ(tile(hopper, 257, 1281), Tile(128, 128, 4, 11)) << "two rows of tiles at a time";
  EXPECT_EQ(tile(vllm, 16, 256), Tile(32, 128, 1, 2));
  EXPECT_EQ(tile(vllm, 64, 256), Tile(64, 128, 1, 2));
  EXPECT_EQ(tile(vllm, 65, 256), Tile(64, 128, 2, 2));
  EXPECT_EQ(tile(vllm, 257, 256), Tile(128, 128, 4, 2));
  EXPECT_EQ(tile(sglang, 64, 256), Tile(64, 64, 1, 4));
  EXPECT_EQ(tile(sglang, 256, 256), Tile(64, 128, 4, 2));
  EXPECT_EQ(tile(sglang, 257, 256), Tile(128, 128, 4, 2));
}

TEST(GemmTiles, H21GridsCoverTheShape) {
  for (const GemmRule rule : kRules) {
    SCOPED_TRACE(static_cast<int>(rule));
    for_random_shapes([&](std::int64_t m, std::int64_t n, std::int64_t k) {
      const Columns columns = columns_of(rule, n);
      std::array<GemmGrid, kMostGemmGrids> all{};
      const std::size_t count = gemm_grids(rule, tiled(m, n, k, columns), all.data());
      ASSERT_LE(count, all.size());
      bool found = false;
      const GemmGrid g = gemm_grid(rule, tiled(m, n, k, columns));
      for (std::size_t i = 0; i < count; ++i) {
        const GemmGrid& a = all[i];
        ASSERT_GE(a.rows * a.height, m);
        ASSERT_LT((a.rows - 4) * a.height, m) << "at most a cluster of four";
        ASSERT_GE(a.columns * a.width, n);
        ASSERT_LT((a.columns - 1) * a.width, n);
        ASSERT_GE(a.mma_height, a.height);
        found = found || (a.height == g.height && a.width == g.width && a.rows == g.rows);
      }
      ASSERT_TRUE(found) << m << ' ' << n << ' ' << k;
    });
  }
}

// Cycles as DeepGEMM counts them, in its integers, sharing along either side.
std::int64_t deepgemm_cycles(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t bm, std::int64_t bn,
                             std::int64_t share_m, std::int64_t share_n) {
  const std::int64_t blocks = up(m, bm) * up(n, bn), waves = up(blocks, kSms);
  if (share_m * share_n > 1 && waves <= 1) return std::numeric_limits<std::int64_t>::max();
  const std::int64_t l2 = 6153, l1 = 128 * kSms;
  const std::int64_t result = 2 * bm * bn;
  const std::int64_t from_l2 = k * (bm / share_n + bn / share_m) + result;
  const std::int64_t from_l1 = k * (bm + bn) + k * (std::max<std::int64_t>(64, bm) + bn) + 2 * result;
  const double efficiency = static_cast<double>(blocks) / static_cast<double>(waves * kSms);
  return static_cast<std::int64_t>(
      static_cast<double>(std::max(from_l2 * blocks / l2, from_l1 * blocks / l1)) / efficiency);
}

TEST(GemmTiles, H21DeepgemmTakesTheFewestCycles) {
  const auto legal = [](std::int64_t bm, std::int64_t bn) {
    const std::int64_t rest = bn - 128;
    return (bm <= 128 || bn <= 128) && (rest <= 0 || bn % rest == 0 || 128 % rest == 0);
  };
  for_random_shapes([&](std::int64_t m, std::int64_t n, std::int64_t k) {
    std::int64_t best = std::numeric_limits<std::int64_t>::max(), own = best;
    const GemmGrid g = taken(GemmRule::deepgemm_hopper, m, n, k);
    for (const std::int64_t bm : {16, 32, 64, 128, 256}) {
      if (bm < 64 && m > bm) continue;
      for (std::int64_t bn = 16; bn <= 192; bn += 16) {
        if (!legal(bm, bn)) continue;
        for (const auto& [share_m, share_n] : {std::pair{1, 1}, {2, 1}, {1, 2}}) {
          const std::int64_t cycles = deepgemm_cycles(m, n, k, bm, bn, share_m, share_n);
          best = std::min(best, cycles);
          if (static_cast<double>(bm) == g.height && static_cast<double>(bn) == g.width)
            own = std::min(own, cycles);
        }
      }
    }
    // Its integers round down.
    ASSERT_LE(static_cast<double>(own), static_cast<double>(best) * 1.001 + 2 * kSms)
        << m << ' ' << n << ' ' << k << ": " << g.height << " x " << g.width;
  });
}

TEST(GemmTiles, H21TensorrtTakesTheFewestAndFullestWaves) {
  for_random_shapes([&](std::int64_t m, std::int64_t n, std::int64_t k) {
    const bool swap = m < 32;
    const std::int64_t tall = swap ? n : m, wide = swap ? m : n, bm = tall <= 64 ? 64 : 128;
    std::int64_t best_n = 0, best_waves = 0, best_last = 0;
    for (std::int64_t bn = 16; bn <= 128; bn += 8) {
      const std::int64_t blocks = up(tall, bm) * up(wide, bn), waves = up(blocks, kSms);
      const std::int64_t last = blocks % kSms == 0 ? kSms : blocks % kSms;
      if (best_n == 0 || waves < best_waves || (waves == best_waves && last > best_last)) {
        best_n = bn;
        best_waves = waves;
        best_last = last;
      }
    }
    const GemmGrid g = taken(GemmRule::tensorrt_hopper, m, n, k);
    ASSERT_EQ(g.height, static_cast<double>(swap ? best_n : bm)) << m << ' ' << n;
    ASSERT_EQ(g.width, static_cast<double>(swap ? bm : best_n)) << m << ' ' << n;
  });
}

}  // namespace
}  // namespace shardline
