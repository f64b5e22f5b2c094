// Watts of boards and of ops [H78].
#include "hardware/machine/board_power.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "hardware/cost/op_power.hpp"
#include "tests/hardware/ops.hpp"

namespace shardline {
namespace {

BoardPower board() {
  BoardPower p;
  p.idle = 100;
  p.most = 600;
  p.laws[static_cast<std::size_t>(PowerClass::product)] = {150, 700, 300, {-0.5, 0.4}};
  p.laws[static_cast<std::size_t>(PowerClass::prefill)] = {300, 350, 150, {-0.4, 0.3}};
  p.laws[static_cast<std::size_t>(PowerClass::stream)] = {250, 0, 150, {-0.3, 0.6}};
  p.source = "made up";
  return p;
}

TEST(BoardPower, H78ALawAddsUpAndEndsAtTheMost) {
  const BoardPower p = board();
  EXPECT_DOUBLE_EQ(p.watts(PowerClass::product, 0, 0), 150);
  EXPECT_DOUBLE_EQ(p.watts(PowerClass::product, 0.1, 0.5), 150 + 70 + 150);
  EXPECT_DOUBLE_EQ(p.watts(PowerClass::product, 0.9, 0.9), 600);
  EXPECT_DOUBLE_EQ(p.watts(PowerClass::stream, 1, 0.5), 325);
}

TEST(BoardPower, H78EveryKindOfOpHasALaw) {
  EXPECT_EQ(power_class(OpKind::gemm), PowerClass::product);
  EXPECT_EQ(power_class(OpKind::grouped_gemm), PowerClass::product);
  EXPECT_EQ(power_class(OpKind::attend_prefill), PowerClass::prefill);
  for (const OpKind k : {OpKind::attend_decode, OpKind::elementwise, OpKind::recur, OpKind::all_reduce})
    EXPECT_EQ(power_class(k), PowerClass::stream) << to_string(k);
}

// An op of twice the time uses half of the peaks.
TEST(BoardPower, H78AnOpUsesThePartOfThePeaksThatItsTimeLeaves) {
  const System s = testing::catalog_system("h200-hgx");
  const Op gemm = testing::gemm_op({4096, 8192, 8192}, Dtype::fp8, Dtype::fp8);
  const Seconds time(1e-3);
  const DeviceUse use = device_use(s.device, gemm, time);
  EXPECT_NEAR(use.tensor, 2 * 4096. * 8192 * 8192 / 1979e12 / 1e-3, 1e-12);
  EXPECT_NEAR(use.memory, 8192. * 8192 / 4.8e12 / 1e-3, 1e-12);
  EXPECT_NEAR(device_use(s.device, gemm, time * 2).tensor, use.tensor / 2, 1e-12);
  EXPECT_EQ(device_use(s.device, gemm, Seconds(1e-9)).tensor, 1);  // a price that is off is no power
  const Op attend = testing::decode_op(4, 32768, 64, 8, 128, Dtype::fp8);
  EXPECT_NEAR(device_use(s.device, attend, time).memory, 4. * 32768 * 8 * 256 / 4.8e12 / 1e-3, 1e-12);
}

TEST(BoardPower, H78HostsLetABoardWait) {
  System s = testing::catalog_system("h200-hgx");
  s.power = board();
  Op gemm = testing::gemm_op({16, 8192, 8192}, Dtype::bf16, Dtype::bf16);
  EXPECT_GT(op_watts(s, gemm, Seconds(1e-4)), s.power.idle);
  gemm.drive = Drive::engine;
  EXPECT_EQ(op_watts(s, gemm, Seconds(1e-4)), s.power.idle);
  EXPECT_EQ(op_watts(s, testing::gemm_op({16, 8192, 8192}, Dtype::bf16, Dtype::bf16), Seconds(0)),
            s.power.idle);
}

TEST(BoardPower, H78BorrowedWattsAreInTheRatioOfTheLimits) {
  const BoardPower own = testing::catalog_system("gb200-nvl72").power;
  const BoardPower lent = testing::catalog_system("b200-hgx").power;
  ASSERT_TRUE(own.known() && lent.known());
  EXPECT_EQ(own.like, "");
  EXPECT_EQ(lent.like, "gb200-nvl72");
  EXPECT_NEAR(lent.idle, own.idle * 1000 / 1200, 1e-9);
  EXPECT_NEAR(lent.most, own.most * 1000 / 1200, 1e-9);
  for (std::size_t k = 0; k < kPowerClasses; ++k) {
    EXPECT_NEAR(lent.laws[k].memory, own.laws[k].memory * 1000 / 1200, 1e-9);
    EXPECT_LT(lent.laws[k].band.low, own.laws[k].band.low);
    EXPECT_GT(lent.laws[k].band.high, own.laws[k].band.high);
  }
  EXPECT_FALSE(testing::catalog_system("a100-sxm").power.known());  // nobody measured one
}

TEST(BoardPower, H78MoreUseIsNeverLessPower) {
  std::mt19937 random(78);
  std::uniform_real_distribution<double> part(0, 1);
  for (const char* name : {"h100-hgx", "h200-hgx", "gb200-nvl72", "gb300-nvl72"}) {
    const System s = testing::catalog_system(name);
    for (int i = 0; i < 300; ++i) {
      const auto of = static_cast<PowerClass>(i % static_cast<int>(kPowerClasses));
      const double t = part(random), m = part(random);
      const double watts = s.power.watts(of, t, m);
      EXPECT_GE(watts, s.power.idle) << name;
      EXPECT_LE(watts, s.device.power_limit) << name;
      EXPECT_LE(watts, s.power.watts(of, std::min(1.0, t + 0.1), m)) << name;
      EXPECT_LE(watts, s.power.watts(of, t, std::min(1.0, m + 0.1))) << name;
    }
  }
}

}  // namespace
}  // namespace shardline
