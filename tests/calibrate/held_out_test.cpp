// Bands of withheld rows: their quantiles, whether they hold for others, and what they survive.
#include "calibrate/held_out.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "calibrate/calibrate.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {
namespace {

std::vector<double> whole_numbers(int count) {
  std::vector<double> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 1.0);
  std::reverse(out.begin(), out.end());  // order must not matter
  return out;
}

double normal(std::mt19937_64& random) {
  double out = -6;
  for (int i = 0; i < 12; ++i) out += static_cast<double>(random() >> 11) * 0x1p-53;
  return out;
}

TEST(BandOf, LeavesTheTwentiethPartOutOnEachSide) {
  const ErrorBand many = band_of(whole_numbers(99));
  EXPECT_DOUBLE_EQ(many.low, 5);
  EXPECT_DOUBLE_EQ(many.high, 95);
  const ErrorBand few = band_of(whole_numbers(39));
  EXPECT_DOUBLE_EQ(few.low, 2);
  EXPECT_DOUBLE_EQ(few.high, 38);
}

TEST(BandOf, HoldsAllOfFew) {
  const ErrorBand band = band_of(whole_numbers(18));
  EXPECT_DOUBLE_EQ(band.low, 1);
  EXPECT_DOUBLE_EQ(band.high, 18);
  EXPECT_DOUBLE_EQ(band_of({}).high, 0);
}

// Quantiles of the rows themselves would hold 87 % here.
TEST(BandOf, HoldsTheNextRowNineTimesOfTen) {
  std::mt19937_64 random(1);
  int inside = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> rows;
    for (int i = 0; i < 39; ++i) rows.push_back(normal(random));
    inside += band_of(rows).contains(normal(random)) ? 1 : 0;
  }
  EXPECT_NEAR(inside, 0.9 * kTrials, 3 * std::sqrt(0.09 * kTrials));
}

TEST(HeldOutBand, IsTestedOnGroupsThatItIsNotFrom) {
  std::mt19937_64 random(2);
  HeldOut alike, apart;
  for (int i = 0; i < 2000; ++i) {
    alike.add(0.01 * normal(random), i % 4);
    apart.add(0.001 * normal(random) + 0.1 * (i % 2), i % 2);  // each group far from the other
  }
  const HeldOutBand one = held_out_band(alike), two = held_out_band(apart);
  EXPECT_EQ(one.rows, 2000u);
  EXPECT_NEAR(one.covered, 0.9, 0.02);
  EXPECT_NEAR(one.band.high, 0.0164, 0.001);
  EXPECT_LT(two.covered, 0.01);
  EXPECT_GT(two.band.high - two.band.low, 0.09);  // of both, which it would hold
  HeldOut single;
  single.add(0.1, 3);
  EXPECT_LT(held_out_band(single).covered, 0);
}

System h100() { return load_system("h100-hgx", SHARDLINE_SOURCE_DIR "/hardware/catalog"); }

// A GEMM of known time and noise.
std::string gemm_table(double noise) {
  std::mt19937_64 random(7);
  std::string text = "m,n,k,dtype,kernel,latency_us\n";
  for (int m = 1; m <= 8192; m *= 2) {
    for (int n = 64; n <= 16384; n *= 2) {
      for (int k = 64; k <= 16384; k *= 4) {
        const double us = (4 + 2e-6 * m * n * k / 700e6 * 1e6) * std::exp(noise * normal(random));
        text += fmt::format("{},{},{},bf16,mine,{:.6g}\n", m, n, k, us);
      }
    }
  }
  return text;
}

Calibration written_and_read(const std::string& yaml) {
  Document document = Document::parse("c.yaml", yaml);
  const Reader root = document.root();
  const Calibration out = read_calibration(root.at("calibration"));
  document.finish();
  return out;
}

TEST(FitIntervals, AreOfTheNoiseAndSurviveTheirFile) {
  const System system = h100();
  const std::vector<MeasurementTable> tables{parse_measurements("a.csv", gemm_table(0.05))};
  Calibration c = calibrate(system, tables).calibration;
  const FitIntervals& own = c.fits.at(0).intervals;
  EXPECT_FALSE(own.derived);
  EXPECT_EQ(own.inside.rows, c.fits[0].corrected.rows);
  EXPECT_NEAR(own.inside.covered, 0.9, 0.05);
  EXPECT_GT(own.inside.band.high, 1.645 * 0.05 * 0.9);
  EXPECT_LT(own.inside.band.low, -1.645 * 0.05 * 0.9);
  c.source = c.hash = c.date = c.version = "1";
  const FitIntervals back = written_and_read(calibration_yaml(c)).fits.at(0).intervals;
  EXPECT_FALSE(back.derived);
  EXPECT_EQ(back.inside.rows, own.inside.rows);
  EXPECT_NEAR(back.inside.band.low, own.inside.band.low, 1e-4);
  EXPECT_NEAR(back.inside.band.high, own.inside.band.high, 1e-4);
  EXPECT_NEAR(back.inside.covered, own.inside.covered, 1e-4);
}

TEST(FitIntervals, OfAnOlderFileAreDerivedFromItsErrors) {
  const System system = h100();
  const std::vector<MeasurementTable> tables{parse_measurements("a.csv", gemm_table(0.05))};
  Calibration c = calibrate(system, tables).calibration;
  c.source = c.hash = c.date = c.version = "1";
  std::string yaml = calibration_yaml(c);
  const std::size_t from = yaml.find("      interval:"), to = yaml.find("      correction:");
  ASSERT_NE(from, std::string::npos);
  yaml.erase(from, to == std::string::npos ? to : to - from);
  const KernelFit old = written_and_read(yaml).fits.at(0);
  EXPECT_TRUE(old.intervals.derived);
  EXPECT_DOUBLE_EQ(old.intervals.inside.band.high, std::log1p(old.corrected.p90));
  EXPECT_DOUBLE_EQ(old.intervals.inside.band.low, -std::log1p(old.corrected.p90));
  EXPECT_LT(old.intervals.inside.covered, 0);
  // What was not kept is not written.
  Calibration again = c;
  again.fits.edit()[0].intervals = old.intervals;
  EXPECT_EQ(calibration_yaml(again).find("interval:"), std::string::npos);
}

TEST(FitIntervals, FaultsOfAFileAreLocated) {
  const Form& form = *find_form("nccl");
  const auto read = [&](const std::string& text) {
    Document document = Document::parse("i.yaml", text);
    read_intervals(document.root(), form);
    document.finish();
  };
  EXPECT_NO_THROW(read("inside: {rows: 9, band: [-0.1, 0.2]}\n"));
  EXPECT_NO_THROW(
      read("inside: {rows: 9, band: [-0.1, 0.2], covered: 0.9}\n"
           "beyond: {axis: gpus, from: 2, to: 3, rows: 4, band: [0, 0.2]}\n"));
  EXPECT_THROW(read("inside: {rows: 9, band: [0.2, -0.1]}\n"), UserError);
  EXPECT_THROW(read("inside: {rows: 9, band: [0.2]}\n"), UserError);
  EXPECT_THROW(read("inside: {rows: 0, band: [-0.1, 0.2]}\n"), UserError);
  EXPECT_THROW(read("inside: {rows: 9, band: [-0.1, 0.2], covered: 2}\n"), UserError);
  EXPECT_THROW(read("inside: {rows: 9, band: [-0.1, 0.2]}\n"
                    "beyond: {axis: tokens, from: 2, to: 3, rows: 4, band: [0, 0.2]}\n"),
               UserError);
  EXPECT_THROW(read("inside: {rows: 9, band: [-0.1, 0.2]}\n"
                    "beyond: {axis: gpus, from: 3, to: 3, rows: 4, band: [0, 0.2]}\n"),
               UserError);
  EXPECT_THROW(read("inside: {rows: 9, band: [-0.1, 0.2]}\nfamilies: 3\n"), UserError);
}

}  // namespace
}  // namespace shardline
