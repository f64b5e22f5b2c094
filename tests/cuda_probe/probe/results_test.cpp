// Tables as the probe writes them, from invented measurements.
#include "cuda_probe/probes/results.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cuda_probe/cli/commands.hpp"

namespace shardline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Measured of(double median_us, Stop stop = Stop::exact) {
  Measured m;
  m.median = microseconds(median_us);
  m.p10 = microseconds(0.9 * median_us);
  m.p90 = microseconds(1.2 * median_us);
  m.samples = 12;
  m.stop = stop;
  m.lowest_clock = 1700;
  m.highest_clock = 1980;
  return m;
}

FamilyResult gemms() {
  FamilyResult f("gemm");
  f.add({{"m", 8}, {"n", 4096}, {"k", 16384}, {"dtype", "bf16"}, {"kernel", "cublaslt"}}, of(40),
        {Flops(1e9), Bytes(1.2e8)});
  f.add({{"k", 128}, {"kernel", "cublaslt"}, {"m", 16}, {"n", 256}, {"dtype", "fp8"}},
        of(2, Stop::most_samples), {Flops(1e6), Bytes(4e4)});
  return f;
}

DeviceInfo invented_device() {
  DeviceInfo d;
  d.gpu = "NVIDIA H200";
  d.driver = "580.65.06";
  d.gpus = 1;
  d.sm_clock = 345;
  d.sm_clock_highest = 1980;
  return d;
}

TEST(FamilyResult, WrittenTableReadsBack) {
  const FamilyResult f = gemms();
  const auto head = provenance(invented_device(), {}, utc_now(), "shardline-probe run");
  const MeasurementTable t = parse_measurements("gemm.csv", f.csv(head));
  ASSERT_EQ(t.size(), 2u);
  EXPECT_STREQ(t.family->name, "gemm");
  EXPECT_THAT(t.number("m"), ElementsAre(8, 16));
  EXPECT_THAT(t.number("k"), ElementsAre(16384, 128));
  EXPECT_THAT(t.word("dtype"), ElementsAre("bf16", "fp8"));
  EXPECT_DOUBLE_EQ(t.median[0].value, 40e-6);
  EXPECT_DOUBLE_EQ(t.low[1].value, 1.8e-6);
  EXPECT_EQ(t.samples[1], 12);
  ASSERT_GT(t.provenance.size(), head.size());
  for (std::size_t i = 0; i < head.size(); ++i) EXPECT_EQ(t.provenance[i], head[i]);
}

TEST(FamilyResult, HeadHoldsWhatAReaderNeeds) {
  const auto head = provenance(invented_device(), {}, "2026-11-21T09:30:00Z", "shardline-probe run");
  std::set<std::string> keys;
  for (const auto& [key, value] : head) {
    EXPECT_FALSE(value.empty()) << key;
    EXPECT_TRUE(keys.insert(key).second) << key;
  }
  for (const char* key : {"gpu", "driver", "compute_capability", "cuda_runtime", "cublaslt", "cudnn", "nccl",
                          "sm_clock", "memory_clock", "power_limit", "ecc", "date", "made_by", "commit",
                          "command", "stopping_rule", "l2_policy", "data"})
    EXPECT_TRUE(keys.contains(key)) << key;
  EXPECT_THAT(head, ::testing::Contains(std::pair<std::string, std::string>("driver", "580.65.06")));
  EXPECT_THAT(head, ::testing::Contains(std::pair<std::string, std::string>("power_limit", "unknown")));
  EXPECT_THAT(utc_now(), ::testing::MatchesRegex("20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9:]+Z"));
}

TEST(FamilyResult, TroubleIsNotedInTheHead) {
  FamilyResult f = gemms();
  Measured dropped = of(5);
  dropped.dropped = "7 of 10 samples were taken while the device was throttled";
  dropped.discarded = 7;
  f.add({{"m", 1}, {"n", 16}, {"k", 16}, {"dtype", "bf16"}, {"kernel", "cublaslt"}}, dropped, {});
  Measured drifted = of(5);
  drifted.drifted = true;
  drifted.drift = 0.07;
  f.add({{"m", 2}, {"n", 16}, {"k", 16}, {"dtype", "bf16"}, {"kernel", "cublaslt"}}, drifted, {});
  f.note("two\nlines");
  f.unmeasured(3, 8, "out of time");
  f.unmeasured(0, 8, "out of time");
  const MeasurementTable t = parse_measurements("gemm.csv", f.csv({}));
  EXPECT_EQ(t.size(), 3u);  // the dropped one is not a row
  std::string all;
  for (const auto& [key, value] : t.provenance) all += key + "=" + value + "\n";
  EXPECT_THAT(all, HasSubstr("note=dropped m=1 n=16 k=16 dtype=bf16 kernel=cublaslt: 7 of 10"));
  EXPECT_THAT(all, HasSubstr("note=drift of +7.0 % during m=2"));
  EXPECT_THAT(all, HasSubstr("note=two lines\n"));
  EXPECT_THAT(all, HasSubstr("note=out of time: 3 of 8 shapes were not measured"));
  EXPECT_THAT(all, Not(HasSubstr("0 of 8")));
  EXPECT_THAT(all, HasSubstr("samples_discarded=7\n"));
  EXPECT_THAT(all, HasSubstr("rows_not_exact=1 "));
  EXPECT_THAT(all, HasSubstr("sm_clock_measured=1700 to 1980 MHz"));
}

TEST(FamilyResult, RowsNameEveryColumn) {
  FamilyResult f("gemm");
  EXPECT_THROW(f.add({{"m", 1}}, of(1), {}), std::logic_error);
  EXPECT_THROW(f.add({{"m", 1}, {"n", 16}, {"kk", 16}, {"dtype", "bf16"}, {"kernel", "c"}}, of(1), {}),
               std::logic_error);
}

TEST(FamilyResult, SummaryShowsRates) {
  const std::string text = gemms().summary(BytesPerSecond(4e12));
  // 1e9 operations and 1.2e8 bytes in 40 us: 25 TFLOP/s, 3000 GB/s, 75 % of 4 TB/s.
  EXPECT_THAT(text, HasSubstr(" 25.0  3000.0     75 %"));
  EXPECT_THAT(text, HasSubstr("m=8 n=4096 k=16384 dtype=bf16 kernel=cublaslt"));
  FamilyResult many("launch");
  for (int i = 1; i <= 100; ++i) many.add({{"kernels", i}, {"mode", "graph"}}, of(i), {});
  const std::string shortened = many.summary(BytesPerSecond(0));
  EXPECT_EQ(std::count(shortened.begin(), shortened.end(), '\n'), 14);
  EXPECT_THAT(shortened, HasSubstr("kernels=1 "));
  EXPECT_THAT(shortened, HasSubstr("kernels=100 "));
}

TEST(Probes, NamesAreCheckedAndKeepTheOrderOfTheTable) {
  EXPECT_EQ(probes_named("").size(), probes().size());
  const auto two = probes_named("decode,hbm");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_STREQ(two[0]->name, "hbm");
  EXPECT_STREQ(two[1]->name, "decode");
  try {
    probes_named("gem,decode,hbn");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.diagnostics().size(), 2u);
    EXPECT_THAT(e.what(), HasSubstr("unknown probe gem"));
    EXPECT_THAT(e.what(), HasSubstr("did you mean hbm?"));
  }
  for (const Probe& p : probes()) {
    for (const char* f : p.families) EXPECT_STREQ(family(f).name, f);
  }
}

TEST(TableFile, FolderOrFile) {
  using probe_cli::table_file;
  EXPECT_EQ(table_file("out/h200", {"gemm", "merge"}, "merge"), "out/h200/merge.csv");
  EXPECT_EQ(table_file("out/h200", {"gemm"}, "gemm"), "out/h200/gemm.csv");
  EXPECT_EQ(table_file("x.csv", {"gemm"}, "gemm"), "x.csv");
  EXPECT_THROW(table_file("x.csv", {"gemm", "merge"}, "gemm"), UserError);
}

}  // namespace
}  // namespace shardline
