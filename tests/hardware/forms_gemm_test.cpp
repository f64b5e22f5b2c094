// [H21] The GEMM form: closed values, limits, bounds, and shapes far beyond any measurement.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/gemm_tiles.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

// In the order of the form's parameters.
struct Parameters {
  double t0 = 2, e_compute = 1, e_memory = 1, norm = 1, k_step = 0, tile_start = 0, split = 1e9,
         e_quantise = 1, round = 1, activation = 1, pad = 0, row = 0, empty = 0, feed = 0, uneven = 1,
         stall = 1;
};

FormContext device(double bytes = 2) {
  FormContext c;
  c.flops = 1e15;
  c.bandwidth = 1e12;
  c.sms = 100;
  c.a_bytes = c.b_bytes = bytes;
  return c;
}

FormContext ruled(GemmRule rule) {
  FormContext c = device(1);
  c.variant[0] = static_cast<double>(rule);
  return c;
}

double seconds(double m, double n, double k, const Parameters& p, const FormContext& c = device()) {
  const std::array x{m, n, k};
  const std::array all{p.t0,    p.e_compute,  p.e_memory, p.norm,       p.k_step, p.tile_start,
                       p.split, p.e_quantise, p.round,    p.activation, p.pad,    p.row,
                       p.empty, p.feed,       p.uneven,   p.stall};
  EXPECT_EQ(kGemmForm.parameters.size(), all.size());
  return kGemmForm.seconds(x, c, all);
}

/// As fitted for block-scaled FP8 on Hopper, rounded.
Parameters block_scaled() { return {3.5, 0.63, 0.9, 1.9, 1.0, 0.9, 65, 0.6, 0.4, 1.9, 21}; }
/// As fitted for BF16 on Hopper, rounded.
Parameters plain() { return {2.3, 0.8, 0.8, 3.2, 1.15, 0.55, 2.7, 0.5, 0.001, 1.0, 1}; }

/// As fitted for DeepGEMM on Hopper, rounded.
Parameters deepgemm() {
  return {3.6, 1.07, 0.89, 2.1, 1.0, 0.4, 65, 2.3, 0.74, 1.4, 1, 1, 0.08, 4.3, 1.14, 3.7};
}

TEST(GemmForm, H21ParametersHaveStartsInsideTheirBounds) {
  for (const FormParameter& p : kGemmForm.parameters) {
    EXPECT_GT(p.low, 0) << p.name;
    EXPECT_LT(p.low, p.start) << p.name;
    EXPECT_LT(p.start, p.high) << p.name;
  }
  EXPECT_LE(kGemmForm.axes.size(), kMostAxes);
}

// Every tile and split in turn, none left out because another one is surely as fast.
double least_of_all_tiles(double m, double n, double k, const Parameters& p, const FormContext& c) {
  constexpr double kTiles[][2] = {{256, 128}, {16, 64},  {128, 128}, {64, 64}, {256, 64},
                                  {128, 64},  {64, 128}, {128, 256}, {64, 256}};
  double best = HUGE_VAL;
  for (const auto& [tile_m, tile_n] : kTiles) {
    const double arithmetic = 2 * c.sms / (p.e_compute * c.flops) * tile_m * tile_n, step = p.k_step * 1e-9;
    const double load = std::ceil(m / tile_m) * std::ceil(n / tile_n) / c.sms;
    for (double parts = 1; parts <= 32; parts *= 2) {
      const double block = p.tile_start * 1e-6 + k * std::sqrt(arithmetic * arithmetic + step * step) / parts;
      const double all = parts * load;
      const double waves = all <= 1 ? 1 : all + p.round * (std::ceil(all) - all);
      const double merge = p.split * 1e-6 + parts * (8 * m * n / (p.e_memory * c.bandwidth));
      best = std::min(best, waves * block + (parts > 1 ? merge : 0));
      if (all > 1) break;
    }
  }
  return best;
}

TEST(GemmForm, H21TakesTheFastestOfAllTiles) {
  std::mt19937 random(11);
  const auto size = [&] {
    return std::floor(std::exp2(std::uniform_real_distribution<double>(0, 15)(random)));
  };
  const FormContext c = device();
  int split = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const double m = size(), n = size(), k = size();
    for (Parameters p : {block_scaled(), plain(), Parameters{}}) {
      const double free = least_of_all_tiles(m, n, k, p, c);
      Parameters never = p;
      never.split = 1e9;
      split += least_of_all_tiles(m, n, k, never, c) > free ? 1 : 0;
      const double memory = (2.0 * n * k + p.activation * m * (2.0 * k + 2 * n)) / (p.e_memory * c.bandwidth);
      const double more = std::max(free, memory), less = std::min(free, memory);
      const double both = more * std::pow(1 + std::pow(less / more, p.norm), 1 / p.norm);
      ASSERT_EQ(seconds(m, n, k, p, c), p.t0 * 1e-6 + 0.0 + both) << m << " x " << n << " x " << k;
    }
  }
  EXPECT_GT(split, 300);
}

TEST(GemmForm, H21OneFullWaveIsTheRoofline) {
  // 10 x 10 tiles of 128 x 256 on 100 SMs; norm 1 adds memory to arithmetic.
  const double m = 1280, n = 2560, k = 4096;
  const double arithmetic = 2 * m * n * k / 1e15, memory = (2 * n * k + 2 * m * k + 2 * m * n) / 1e12;
  EXPECT_NEAR(seconds(m, n, k, {}) / (2e-6 + arithmetic + memory), 1, 1e-12);
  Parameters p;
  p.e_compute = 0.5;
  p.e_memory = 0.25;
  p.activation = 3;
  p.t0 = 7;
  const double activation = 2 * m * k + 2 * m * n;
  EXPECT_NEAR(seconds(m, n, k, p) / (7e-6 + 2 * arithmetic + 4 * (memory + 2 * activation / 1e12)), 1, 1e-12);
  // A large norm: only the longer of the two.
  p = {};
  p.norm = 30;
  EXPECT_NEAR(seconds(m, n, k, p) / (2e-6 + std::max(arithmetic, memory)), 1, 1e-3);
}

TEST(GemmForm, H21WavesAreRoundedAsFarAsRoundSays) {
  // 1408 = 11 x 128 rows: 110 tiles of 128 x 256, 1.1 waves; tile_start of 1 s hides everything else.
  Parameters p;
  p.tile_start = 1e6;
  p.round = 1;
  EXPECT_NEAR(seconds(1408, 2560, 64, p), 2, 1e-3);
  p.round = 0.5;
  EXPECT_NEAR(seconds(1408, 2560, 64, p), 1.55, 1e-3);
  p.round = 1e-9;
  EXPECT_NEAR(seconds(1408, 2560, 64, p), 1.1, 1e-3);
  // Less than a wave takes as long as one.
  EXPECT_NEAR(seconds(1, 1, 64, p), 1, 1e-3);
}

TEST(GemmForm, H21OneBlockWaitsForEveryStepOfK) {
  Parameters p;
  p.norm = 30;
  p.k_step = 100;
  const double k = 65536;
  EXPECT_NEAR(seconds(8, 64, k, p) / (2e-6 + k * 100e-9), 1, 1e-3);
  // 32 splits at 5 us for their merge.
  p.split = 5;
  EXPECT_NEAR(seconds(8, 64, k, p) / (7e-6 + k * 100e-9 / 32), 1, 1e-3);
}

TEST(GemmForm, H21SplitsAreTakenOnlyWhereTheyPay) {
  for (const double k : {64.0, 1024.0, 16384.0, 262144.0}) {
    for (const double m : {1.0, 128.0, 4096.0}) {
      Parameters cheap = plain(), never = plain();
      cheap.split = 0.1;
      never.split = 1e9;
      EXPECT_LE(seconds(m, 512, k, cheap), seconds(m, 512, k, never));
    }
  }
  Parameters cheap = plain(), never = plain();
  never.split = 1e9;
  // One block for 65536 steps of k.
  EXPECT_LT(seconds(8, 64, 65536, cheap), 0.5 * seconds(8, 64, 65536, never));
  // A grid that fills the device is not split.
  EXPECT_EQ(seconds(16384, 16384, 4096, cheap), seconds(16384, 16384, 4096, never));
}

TEST(GemmForm, H21NarrowedActivationsCostAPass) {
  Parameters p;
  const double m = 1000, n = 512, k = 2048;
  Parameters half = p;
  half.e_quantise = 0.5;
  EXPECT_EQ(seconds(m, n, k, p), seconds(m, n, k, half)) << "16-bit activations are taken as they are";
  for (const double bytes : {1.0, 0.5625}) {
    const double pass = m * k * (2 + bytes) / 1e12;
    EXPECT_NEAR((seconds(m, n, k, half, device(bytes)) - seconds(m, n, k, p, device(bytes))) / pass, 1, 1e-9);
  }
}

TEST(GemmForm, H21EmptyRowsOfARowBlockCost) {
  const auto pad = [](double m, double n) {
    Parameters with = {}, without = {};
    with.norm = without.norm = 1;
    with.pad = 20;
    return seconds(m, n, 1000, with, device(1)) - seconds(m, n, 1000, without, device(1));
  };
  // 1000 elements of k, 20 ps per empty row: 20 ns a row.
  EXPECT_NEAR(pad(129, 4096), 127 * 20e-9, 1e-15);
  EXPECT_NEAR(pad(65, 4096), 63 * 20e-9, 1e-15);
  EXPECT_NEAR(pad(40, 4096), 24 * 20e-9, 1e-15);
  EXPECT_NEAR(pad(257, 4096), 127.5 * 20e-9, 1e-15) << "mean of two row blocks";
  EXPECT_NEAR(pad(65, 384), 63 * 20e-9 / 4, 1e-15) << "a quarter of the width from which it costs in full";
  for (const double m : {1.0, 16.0, 64.0, 128.0, 256.0, 1024.0}) EXPECT_EQ(pad(m, 4096), 0) << m;
  EXPECT_GT(seconds(129, 1024, 8192, block_scaled(), device(1)),
            seconds(256, 1024, 8192, block_scaled(), device(1)));
}

TEST(GemmForm, H21NarrowedRowsCostTheirBlocks) {
  Parameters with = {}, without = {};
  with.row = 10;
  const auto row = [&](double m, double k, const FormContext& c) {
    return seconds(m, 512, k, with, c) - seconds(m, 512, k, without, c);
  };
  EXPECT_NEAR(row(300, 2048, device(1)), 300 * 10e-9, 1e-15);
  EXPECT_EQ(row(300, 2048, device(2)), 0) << "16-bit activations are taken as they are";
  // DeepGEMM: 6 groups a row. 16 | 96 groups; 2 | 102; 4 | 108; 1 | 5 of one group each.
  const FormContext c = ruled(GemmRule::deepgemm_hopper);
  with.empty = without.empty = 0.1;
  EXPECT_NEAR(row(16, 768, c), 96 / 16 * 10e-9, 1e-15);
  EXPECT_NEAR(row(17, 768, c), 102 / 2 * 10e-9, 1e-15);
  EXPECT_NEAR(row(18, 768, c), 108 / 4 * 10e-9, 1e-15);
  EXPECT_NEAR(row(5, 128, c), 5 * 10e-9, 1e-15);
  with.empty = without.empty = 0;
  EXPECT_NEAR(row(17, 768, c), 102.0 / 16 * 10e-9, 1e-15) << "as few as any";
}

constexpr GemmRule kRules[] = {GemmRule::cutlass_hopper, GemmRule::cutlass_blackwell_vllm,
                               GemmRule::cutlass_blackwell_sglang, GemmRule::deepgemm_hopper,
                               GemmRule::tensorrt_hopper};

// Each block at its step, waves rounded by half; the rest as in H21OneFullWaveIsTheRoofline.
TEST(GemmForm, H21AKnownRuleSaysTheTile) {
  Parameters p;
  p.t0 = 0;
  p.norm = 30;
  p.e_memory = p.e_quantise = 1e6;
  p.empty = 1e-9;
  p.round = 0.5;
  const FormContext c = ruled(GemmRule::cutlass_hopper);
  // 300 x 3000 in 128 x 128, two rows of them at a time: 4 x 24 = 96 blocks on 100 SMs.
  const double step = 2 * 128 * 128 * 100 / 1e15;
  EXPECT_NEAR(seconds(300, 3000, 1000, p, c) / (1000 * step), 1, 1e-6);
  // 600 x 3000: 6 x 24 = 144 blocks, waves 1.44 + 0.28.
  EXPECT_NEAR(seconds(600, 3000, 1000, p, c) / (1000 * step * 1.72), 1, 1e-6);
  p.feed = 10;
  EXPECT_NEAR(seconds(300, 3000, 1000, p, c) / (1000 * (step + 2560e-12)), 1, 1e-6);
  p.k_step = 30;
  EXPECT_NEAR(seconds(300, 3000, 1000, p, c) / (1000 * std::hypot(step + 2560e-12, 30e-9)), 1, 1e-6);
  // 212 empty rows in 24 columns of tiles.
  Parameters q = p;
  q.empty = 1;
  EXPECT_NEAR(seconds(300, 3000, 1000, q, c) - seconds(300, 3000, 1000, p, c), 212 * 24 * 1e-9, 1e-12);
}

TEST(GemmForm, H21LargestTilesOfOneWaveStall) {
  const FormContext c = ruled(GemmRule::deepgemm_hopper);
  Parameters p = deepgemm(), without = p;
  without.stall = 1;
  // 7 x 14 blocks of 256 x 128 on 100 SMs; twice the rows: two waves.
  const TiledGemm one{1792, 1792, 8192, nullptr, 100};
  std::array<double, kMostGemmWidths> columns{};
  const auto widths = gemm_widths(GemmRule::deepgemm_hopper);
  for (std::size_t i = 0; i < widths.size(); ++i) columns[i] = whole(one.n / widths[i]);
  const GemmGrid g = gemm_grid(GemmRule::deepgemm_hopper, {one.m, one.n, one.k, columns.data(), one.sms});
  EXPECT_EQ(g.height, 256);
  EXPECT_EQ(g.width, 128);
  EXPECT_GT(seconds(1792, 1792, 8192, p, c), 2 * seconds(1792, 1792, 8192, without, c));
  EXPECT_EQ(seconds(3584, 1792, 8192, p, c), seconds(3584, 1792, 8192, without, c));
}

TEST(GemmForm, H21WithoutPaddingKnownRulesRiseWithTheRows) {
  std::mt19937 random(5);
  const auto size = [&](double most) {
    return std::floor(std::exp2(std::uniform_real_distribution<double>(0, most)(random)));
  };
  for (const GemmRule rule : kRules) {
    SCOPED_TRACE(static_cast<int>(rule));
    const FormContext c = ruled(rule);
    Parameters floor = deepgemm();
    floor.empty = 0;
    std::size_t falls = 0;
    for (int trial = 0; trial < 3000; ++trial) {
      const double m = size(13), n = 16 * size(12), k = 128 * size(8);
      const double more = trial % 2 ? m + 1 : m + size(13);
      ASSERT_LE(seconds(m, n, k, floor, c), seconds(more, n, k, floor, c))
          << m << ' ' << more << ' ' << n << ' ' << k;
      ASSERT_LE(seconds(m, n, k, floor, c), seconds(m, n, k, deepgemm(), c)) << m << ' ' << n << ' ' << k;
      falls += seconds(m, n, k, deepgemm(), c) > seconds(more, n, k, deepgemm(), c) ? 1 : 0;
    }
    EXPECT_GT(falls, 10u) << "and the time itself does not";
  }
}

TEST(GemmForm, H21NeverFasterThanTheRooflineNorThanItsStart) {
  for (const double bytes : {2.0, 1.0, 0.5625}) {
    const FormContext c = device(bytes);
    for (const Parameters& p : {Parameters{}, plain(), block_scaled()}) {
      for (double m = 1; m <= 2e6; m = std::ceil(m * 2.7)) {
        for (double n = 1; n <= 3e5; n = std::ceil(n * 3.1)) {
          for (double k = 1; k <= 3e5; k = std::ceil(k * 3.3)) {
            const double t = seconds(m, n, k, p, c);
            ASSERT_TRUE(std::isfinite(t));
            const double weights = bytes * n * k / (p.e_memory * c.bandwidth);
            const double arithmetic = 2 * m * n * k / (p.e_compute * c.flops);
            ASSERT_GE(t * (1 + 1e-12), p.t0 * 1e-6 + std::max(weights, arithmetic))
                << m << ' ' << n << ' ' << k;
          }
        }
      }
    }
  }
}

TEST(GemmForm, H21MoreWorkNeverTakesLess) {
  const FormContext c = device(1);
  for (Parameters p : {plain(), block_scaled()}) {
    for (const double m : {1.0, 63.0, 64.0, 1000.0, 8191.0, 1e6}) {
      for (const double n : {32.0, 511.0, 7168.0, 65536.0}) {
        for (const double k : {32.0, 1000.0, 16384.0, 262144.0}) {
          const double t = seconds(m, n, k, p, c);
          EXPECT_LE(t, seconds(m, n + 1, k, p, c));
          EXPECT_LE(t, seconds(m, 2 * n, k, p, c));
          EXPECT_LE(t, seconds(m, n, k + 1, p, c));
          EXPECT_LE(t, seconds(m, n, 2 * k, p, c));
        }
      }
    }
    // More rows of one row block leave fewer of it empty, so rows are followed over whole blocks.
    for (double m = 64; m < 1e6; m *= 2) {
      EXPECT_LE(seconds(m, 4096, 7168, p, c), seconds(2 * m, 4096, 7168, p, c)) << m;
    }
    p.pad = 0;
    for (double m = 1; m < 600; ++m) {
      EXPECT_LE(seconds(m, 1024, 7168, p, c), seconds(m + 1, 1024, 7168, p, c)) << m;
    }
  }
}

TEST(GemmForm, H21LargeOnesReachAFractionOfThePeak) {
  Parameters p = plain();
  const double m = 1 << 20, n = 16384, k = 16384, ideal = 2 * m * n * k / 1e15;
  // One tile of 128 x 256: 6.55 ns of arithmetic per element of k at the peak, 1.15 ns of latency beside it.
  const double arithmetic = 2.0 * 128 * 256 * 100 / 1e15 / p.e_compute;
  const double rate = p.e_compute * arithmetic / std::hypot(arithmetic, 1.15e-9);
  const double start = 0.55e-6 / (16384 * arithmetic);
  EXPECT_NEAR(ideal / seconds(m, n, k, p), rate, 0.02 * rate + start);
  EXPECT_LT(ideal / seconds(m, n, k, p), p.e_compute);
  // Twice the rows, twice the time.
  EXPECT_NEAR(seconds(2 * m, n, k, p) / seconds(m, n, k, p), 2, 1e-3);
}

TEST(GemmForm, H21SmallOnesCostTheirStart) {
  const Parameters p = plain();
  EXPECT_NEAR(seconds(1, 32, 32, p), 2.3e-6 + 0.55e-6, 0.15e-6);
}

TEST(GemmForm, H21ContextOfAVariant) {
  const System h100 = testing::catalog_system("h100-hgx"), gb200 = testing::catalog_system("gb200-nvl72");
  FormContext c;
  const std::array<std::string, 2> bf16{"bf16", "x"}, fp8{"fp8_block", "x"}, fp4{"nvfp4", "x"},
      other{"int8", "x"};
  ASSERT_TRUE(kGemmForm.context(bf16, h100, c));
  EXPECT_DOUBLE_EQ(c.flops, 989e12);
  EXPECT_DOUBLE_EQ(c.a_bytes, 2);
  EXPECT_DOUBLE_EQ(c.sms, 132);
  ASSERT_TRUE(kGemmForm.context(fp8, h100, c));
  EXPECT_DOUBLE_EQ(c.flops, 1979e12);
  EXPECT_DOUBLE_EQ(c.b_bytes, 1);
  ASSERT_TRUE(kGemmForm.context(fp4, gb200, c));
  EXPECT_DOUBLE_EQ(c.flops, 10e15);
  EXPECT_DOUBLE_EQ(c.b_bytes, 0.5625);
  EXPECT_EQ(c.variant[0], 0) << "no known rule";
  const std::array<std::string, 2> cutlass{"fp8", "CutlassFP8"};
  ASSERT_TRUE(kGemmForm.context(cutlass, h100, c));
  EXPECT_EQ(static_cast<GemmRule>(c.variant[0]), GemmRule::cutlass_hopper);
  ASSERT_TRUE(kGemmForm.context(cutlass, gb200, c));
  EXPECT_EQ(static_cast<GemmRule>(c.variant[0]), GemmRule::cutlass_blackwell_vllm);
  EXPECT_FALSE(kGemmForm.context(fp4, h100, c)) << "no FP4 units";
  EXPECT_FALSE(kGemmForm.context(other, h100, c));
  System unknown = h100;
  unknown.device.multiprocessors = unknown.device.sms = 0;
  EXPECT_FALSE(kGemmForm.context(bf16, unknown, c)) << "tiles need the number of SMs";
  unknown.device.sms = 114;
  ASSERT_TRUE(kGemmForm.context(bf16, unknown, c));
  EXPECT_DOUBLE_EQ(c.sms, 114);
}

TEST(GemmForm, H21WorkAndTraffic) {
  const std::array<double, 3> x{10, 20, 30};
  EXPECT_DOUBLE_EQ(kGemmForm.work(x, device()), 12000);
  EXPECT_DOUBLE_EQ(kGemmForm.traffic(x, device(1)), 600 + 2 * 10 * 50);
  std::array<double, kMostAxes> at{};
  kGemmForm.coordinates(std::array<double, 3>{8, 1024, 2}, device(), at.data());
  EXPECT_DOUBLE_EQ(at[0], 3);
  EXPECT_DOUBLE_EQ(at[1], 10);
  EXPECT_DOUBLE_EQ(at[2], 1);
}

}  // namespace
}  // namespace shardline
