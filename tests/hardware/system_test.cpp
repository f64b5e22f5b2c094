// The system catalogue: every file loads, and its figures are those of the datasheets it names.
#include "hardware/machine/system.hpp"

#include <gtest/gtest.h>

#include "sim/base/error.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

double peak(const System& s, Dtype t) { return s.device.peak[static_cast<std::size_t>(t)].value; }

TEST(Systems, EveryCatalogueSystemLoadsAndIsComplete) {
  const auto names = system_names(testing::system_catalog());
  EXPECT_GE(names.size(), 8u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const System s = testing::catalog_system(name);
    EXPECT_EQ(s.name, name);
    EXPECT_FALSE(s.summary.empty());
    EXPECT_FALSE(s.device.name.empty());
    EXPECT_GT(s.device.source.size(), 40u) << "figures need a source";
    EXPECT_GT(s.device.memory, gigabytes(1));
    EXPECT_GT(s.device.achieved_memory().value, 1e11);
    EXPECT_LE(s.device.achieved_memory(), s.device.memory_bandwidth);
    EXPECT_GT(s.device.achieved(Dtype::bf16).value, 1e13);
    EXPECT_LE(s.device.achieved(Dtype::bf16).value, peak(s, Dtype::bf16));
    EXPECT_GT(s.device.exponentials.value, 1e11);
    EXPECT_GT(s.device.usable_memory, 0.5);
    EXPECT_LT(s.device.usable_memory, 1.0);
    EXPECT_GT(s.device.kernel_cost, microseconds(0.1));
    EXPECT_LT(s.device.kernel_cost, microseconds(50));
    EXPECT_EQ(s.gpus(), s.fabric.nodes * s.fabric.gpus_per_node);
    EXPECT_GT(s.fabric.nvlink.bandwidth.value, 0);
    EXPECT_GT(s.fabric.nvlink.latency.value, 0);
    // A narrower type is never slower.
    double before = 0;
    for (const Dtype t : {Dtype::fp32, Dtype::bf16, Dtype::fp8, Dtype::fp4}) {
      if (peak(s, t) == 0) continue;
      EXPECT_GE(peak(s, t), before);
      before = peak(s, t);
    }
    // A node's links are faster than what leaves it.
    if (s.fabric.nodes > 1) {
      EXPECT_GT(s.fabric.nvlink.bandwidth, s.fabric.network.bandwidth);
    }
  }
}

// Of memory what CUDA finds, of all else the data sheet.
TEST(Systems, DatasheetFigures) {
  const auto gibibytes = [](double n) { return Bytes(n * 1024 * 1024 * 1024); };
  const System gb200 = testing::catalog_system("gb200-nvl72");
  EXPECT_EQ(gb200.gpus(), 72);
  EXPECT_EQ(gb200.device.memory, gibibytes(184.31));
  EXPECT_DOUBLE_EQ(gb200.device.memory_bandwidth.value, 8e12);
  EXPECT_DOUBLE_EQ(peak(gb200, Dtype::fp4), 10e15);
  EXPECT_DOUBLE_EQ(peak(gb200, Dtype::bf16), 2.5e15);
  EXPECT_DOUBLE_EQ(gb200.fabric.nvlink.bandwidth.value, 1.8e12 / 2);  // both directions on the datasheet
  EXPECT_EQ(gb200.fabric.nodes, 1);  // a network leads to other systems alone
  EXPECT_DOUBLE_EQ(gb200.fabric.network.bandwidth.value, 50e9);

  const System h100 = testing::catalog_system("h100-hgx");
  EXPECT_EQ(h100.device.memory, gibibytes(79.11));
  EXPECT_DOUBLE_EQ(h100.device.memory_bandwidth.value, 3.35e12);
  EXPECT_DOUBLE_EQ(peak(h100, Dtype::fp8), 1979e12);
  EXPECT_DOUBLE_EQ(peak(h100, Dtype::bf16), 989e12);
  EXPECT_EQ(peak(h100, Dtype::fp4), 0);  // no such unit
  EXPECT_DOUBLE_EQ(h100.fabric.nvlink.bandwidth.value, 900e9 / 2);
  EXPECT_DOUBLE_EQ(h100.fabric.network.bandwidth.value, 400e9 / 8);
  EXPECT_NEAR(h100.device.exponentials.value, 132 * 16 * 1.83e9, 0.02 * 3.9e12);  // SMs x per clock x clock

  const System h200 = testing::catalog_system("h200-hgx");
  EXPECT_EQ(h200.device.memory, gibibytes(139.8));
  EXPECT_DOUBLE_EQ(h200.device.memory_bandwidth.value, 4.8e12);
  EXPECT_EQ(h200.device.peak, h100.device.peak);

  const System a100 = testing::catalog_system("a100-sxm");
  EXPECT_DOUBLE_EQ(peak(a100, Dtype::bf16), 312e12);
  EXPECT_DOUBLE_EQ(a100.device.memory_bandwidth.value, 2.039e12);
  EXPECT_EQ(peak(a100, Dtype::fp8), 0);
  EXPECT_FALSE(a100.fabric.nvlink.multicast);

  const System gti = testing::catalog_system("h100-gti"), gtt = testing::catalog_system("h100-gtt");
  EXPECT_NEAR(gti.fabric.network.bandwidth.value * gti.fabric.network.efficiency, 3e9, 1e6);  // as reported
  EXPECT_DOUBLE_EQ(gtt.fabric.network.bandwidth.value, 50e9);
}

TEST(Systems, UnknownNamesAreAnsweredWithTheNearest) {
  try {
    load_system("h100_hgx", testing::system_catalog());
    FAIL() << "no error";
  } catch (const UserError& e) {
    EXPECT_STREQ(
        e.what(),
        "unknown system h100_hgx\n"
        "expected one of: a100-hf-eager, a100-hf-eager-10g, a100-hf-eager-1g, a100-sxm, a800-apb, a800-hgx, "
        "b200-hgx, gb200-nvl72, gb300-nvl72, h100-gti, h100-gtt, h100-gtt-measured, h100-hgx, "
        "h200-hgx\n"
        "did you mean h100-hgx?\n"
        "or the path of a .yaml file\n");
  }
  EXPECT_THROW(load_system("no/such/system.yaml", testing::system_catalog()), UserError);
  EXPECT_THROW(system_names(testing::system_catalog() / "nowhere"), UserError);
}

TEST(Systems, AFileLoadsAsACatalogueNameDoes) {
  const auto path = testing::system_catalog() / "h100-hgx.yaml";
  const System file = load_system(path.string(), testing::system_catalog()),
               text = parse_system("t", testing::read_file(path), testing::system_catalog());
  EXPECT_EQ(file.name, "h100-hgx");
  EXPECT_EQ(text.device.memory_bandwidth, file.device.memory_bandwidth);
  EXPECT_EQ(text.fabric.network.latency, file.fabric.network.latency);
  EXPECT_EQ(text.calibration.fits.size(), file.calibration.fits.size());
}

TEST(Systems, ShippedCalibrationsAreOfKnownOriginAndPlausible) {
  int own = 0, borrowed = 0;
  for (const std::string& name : system_names(testing::system_catalog())) {
    const System s = load_system(name, testing::system_catalog());
    if (s.calibration.empty()) continue;
    (s.calibration.like.empty() ? own : borrowed) += 1;
    EXPECT_NE(s.calibration.source.find("Apache-2.0"), std::string::npos) << name;
    EXPECT_EQ(s.calibration.hash.size(), 16u);
    for (const KernelFit& f : s.calibration.fits) {
      SCOPED_TRACE(name + " " + f.form->family);
      FormContext context;
      EXPECT_TRUE(f.form->context(f.words, s, context));
      EXPECT_LE(f.corrected.median, f.alone.median + f.alone.p90);
      EXPECT_LT(f.corrected.median, 0.15);
      for (std::size_t i = 0; i < f.parameters.size(); ++i) {
        EXPECT_GE(f.parameters[i], f.form->parameters[i].low * (1 - 1e-5));
        EXPECT_LE(f.parameters[i], f.form->parameters[i].high * (1 + 1e-5));
      }
    }
  }
  EXPECT_EQ(own, 4);
  EXPECT_EQ(borrowed, 4);
}

TEST(Systems, BorrowedCalibrationsAreThoseOfTheSystemTheyName) {
  struct Borrower {
    const char *name, *like;
    double nvlink;  // part of the lender's peak
  };
  for (const Borrower& l : {Borrower{"gb300-nvl72", "gb200-nvl72", 1}, Borrower{"b200-hgx", "gb200-nvl72", 1},
                            Borrower{"a800-hgx", "a100-sxm", 400.0 / 600}}) {
    SCOPED_TRACE(l.name);
    const System s = testing::catalog_system(l.name), from = testing::catalog_system(l.like);
    EXPECT_EQ(s.calibration.like, l.like);
    EXPECT_EQ(s.calibration.hash, from.calibration.hash);
    ASSERT_EQ(s.calibration.fits.size(), from.calibration.fits.size());
    for (std::size_t i = 0; i < s.calibration.fits.size(); ++i) {
      const KernelFit &a = s.calibration.fits[i], &b = from.calibration.fits[i];
      EXPECT_EQ(a.form, b.form);
      EXPECT_EQ(a.words, b.words);
      EXPECT_EQ(a.parameters, b.parameters);
      EXPECT_EQ(a.range_low, b.range_low);
      EXPECT_EQ(a.range_high, b.range_high);
      EXPECT_EQ(a.correction.values, b.correction.values);
    }
    // Of the same generation, so that parts of peaks may carry over.
    EXPECT_NEAR(s.device.memory_bandwidth / from.device.memory_bandwidth, 1, 0.1);
    EXPECT_NEAR(peak(s, Dtype::bf16) / peak(from, Dtype::bf16), 1, 0.15);
    EXPECT_NEAR(double(s.device.multiprocessors) / from.device.multiprocessors, 1, 0.05);
    EXPECT_NEAR(s.fabric.nvlink.bandwidth / from.fabric.nvlink.bandwidth, l.nvlink, 1e-12);
  }
}

TEST(Systems, AnUnknownCalibrationIsLocated) {
  std::string text = testing::read_file(testing::system_catalog() / "h100-hgx.yaml");
  text.replace(text.find("calibration: h100-hgx"), 21, "calibration: h100-hgy");
  try {
    parse_system("t.yaml", text, testing::system_catalog());
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("t.yaml:"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("unknown calibration h100-hgy"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("did you mean h100-hgx"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace shardline
