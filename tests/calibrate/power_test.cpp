// calibrate/power: watts of boards from tables [F14].
#include "calibrate/power.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

constexpr std::array<std::array<double, 3>, kPowerClasses> kLaws{
    {{150, 700, 300}, {320, 340, 160}, {260, 0, 150}}};

// Rows of known laws, off by a factor whose logarithm is normal.
std::vector<PowerRow> rows(double spread, int each = 600) {
  std::mt19937 random(14);
  std::uniform_real_distribution<double> part(0, 1);
  std::normal_distribution<double> off(0, spread);
  std::vector<PowerRow> out;
  for (int i = 0; i < each * static_cast<int>(kPowerClasses); ++i) {
    PowerRow r;
    r.of = static_cast<PowerClass>(i % static_cast<int>(kPowerClasses));
    // Some kernels are so small that a board only waits for them.
    r.use = i % 50 < 3 ? DeviceUse{} : DeviceUse{part(random), part(random)};
    const auto& law = kLaws[static_cast<std::size_t>(r.of)];
    r.watts = std::min(690.0, law[0] + law[1] * r.use.tensor + law[2] * r.use.memory) * std::exp(off(random));
    r.shape = fmt::format("{}", i);
    out.push_back(r);
  }
  return out;
}

TEST(Power, F14FindsTheLawsOfRowsWithoutError) {
  const PowerFit fit = fit_power(rows(0), 4);
  for (std::size_t k = 0; k < kPowerClasses; ++k) {
    EXPECT_NEAR(fit.power.laws[k].base, kLaws[k][0], 6) << k;
    EXPECT_NEAR(fit.power.laws[k].tensor, kLaws[k][1], 12) << k;
    EXPECT_NEAR(fit.power.laws[k].memory, kLaws[k][2], 12) << k;
    EXPECT_LT(fit.classes[k].median, 0.01) << k;
  }
  EXPECT_NEAR(fit.power.most, 690, 1);
}

TEST(Power, F14BandsHoldNineRowsOfTen) {
  const PowerFit fit = fit_power(rows(0.2, 3000), 4);
  for (std::size_t k = 0; k < kPowerClasses; ++k) {
    EXPECT_NEAR(fit.power.laws[k].band.low, -1.645 * 0.2, 0.06) << k;
    EXPECT_NEAR(fit.power.laws[k].band.high, 1.645 * 0.2, 0.06) << k;
    EXPECT_NEAR(fit.classes[k].covered, 0.9, 0.02) << k;
  }
}

TEST(Power, F14TooFewRowsAreAFault) {
  std::vector<PowerRow> few = rows(0, 30);
  EXPECT_THROW(fit_power(few, 4), UserError);
  std::vector<PowerRow> one_kind = rows(0);
  std::erase_if(one_kind, [](const PowerRow& r) { return r.of == PowerClass::prefill; });
  try {
    fit_power(one_kind, 4);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("0 rows of attention_prefill"));
  }
}

const Device& device() {
  static const System s = testing::catalog_system("h200-hgx");
  return s.device;
}

TEST(Power, F14ReadsTablesByTheirColumns) {
  const PowerTable gemm = parse_power("g.csv",
                                      "engine,m,n,k,dtype,kernel,power_w,power_limit_w,latency_us\n"
                                      "vllm_0.22.0,32768,51200,12288,bf16,default,692.4,700,61432\n"
                                      "vllm_0.22.0,1,51200,12288,fp8_block,default,150,700,61\n",
                                      device());
  ASSERT_EQ(gemm.rows.size(), 1u);  // the other one waits for its host
  ASSERT_EQ(gemm.notes.size(), 1u);
  EXPECT_EQ(gemm.rows[0].of, PowerClass::product);
  EXPECT_NEAR(gemm.rows[0].use.tensor, 2 * 32768. * 51200 * 12288 / 989e12 / 61.432e-3, 1e-9);
  EXPECT_EQ(gemm.limit, 700);
  const PowerTable decode = parse_power("d.csv",
                                        "batch,kv_len,heads_q,heads_kv,head_dim,window,dtype_compute,dtype_"
                                        "kv,power_w,power_limit_w,latency_us\n"
                                        "32,8192,64,1,64,128,bf16,fp8,149.2,700,27.332\n",
                                        device());
  ASSERT_EQ(decode.rows.size(), 1u);
  EXPECT_EQ(decode.rows[0].of, PowerClass::stream);
  EXPECT_NEAR(decode.rows[0].use.memory, 32. * 128 * 128 / 4.8e12 / 27.332e-6, 1e-9);
  // Two queries behind three cached keys see 4 and 5 of them.
  const PowerTable prefill = parse_power(
      "p.csv",
      "batch,seq_q,kv_cached,heads_q,heads_kv,head_dim,window,dtype_compute,dtype_kv,power_w,power_limit_w,"
      "latency_us\n1,2,3,1,1,64,0,bf16,bf16,300,700,5\n1,4,0,1,1,64,2,bf16,bf16,300,700,5\n",
      device());
  EXPECT_NEAR(prefill.rows[0].use.tensor, 4 * 9. * 64 / 989e12 / 5e-6, 1e-12);
  EXPECT_NEAR(prefill.rows[1].use.tensor, 4 * 7. * 64 / 989e12 / 5e-6, 1e-12);  // 1, 2, 2, 2
}

TEST(Power, F14FaultsHavePlaces) {
  try {
    parse_power("g.csv",
                "m,n,k,dtype,power_w,power_limit_w,latency_us\n1,2,3,bf17,100,700,5\n1,2,0,bf16,100,700,5\n"
                "1,2,3,bf16,1e9,700,5\n1,2,3,bf16,100,700\n1,2,3,bf16,100,1200,5\n1,2,3,bf16,100,700,5\n",
                device());
    FAIL();
  } catch (const UserError& e) {
    for (const char* text :
         {"g.csv:2:7", "bf17", "g.csv:3:5", "g.csv:4:12", "g.csv:5", "expected 7 cells", "g.csv:6:16"})
      EXPECT_THAT(e.what(), HasSubstr(text));
  }
  EXPECT_THAT(
      [] {
        parse_power("t.csv", "m,m,n,k,dtype,power_w,power_limit_w,latency_us\n1,1,2,3,bf16,100,700,5\n",
                    device());
      },
      ::testing::ThrowsMessage<UserError>(HasSubstr("t.csv:1:3: column m stands twice")));
  EXPECT_THROW(parse_power("e.csv", "", device()), UserError);
  EXPECT_THROW(parse_power("e.csv", "a,b,c\n1,2,3\n", device()), UserError);
}

TEST(Power, F14WhatIsWrittenIsRead) {
  PowerFit fit = fit_power(rows(0.1), 4);
  fit.power.source = "made up";
  Document document = Document::parse("p.yaml", power_yaml(fit.power));
  const BoardPower read = read_board_power(document.root().at("power"), 0, {});
  document.finish();
  EXPECT_EQ(read.most, fit.power.most);
  for (std::size_t k = 0; k < kPowerClasses; ++k) {
    EXPECT_EQ(read.laws[k].tensor, fit.power.laws[k].tensor);
    EXPECT_NEAR(read.laws[k].band.high, fit.power.laws[k].band.high, 5e-4);
  }
}

}  // namespace
}  // namespace shardline
