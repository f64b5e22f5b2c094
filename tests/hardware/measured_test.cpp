// What "measured" means: among the measured rows of the same kernel, on the machine that was measured.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/measured_machine.hpp"
#include "sim/base/error.hpp"
#include "tests/hardware/ops.hpp"

namespace shardline {
namespace {

using testing::catalog_system, testing::exchange_op, testing::gemm_op;

// Against the rows themselves: the cells of both differ by at most one on every axis.
TEST(MeasuredCells, AreNearWhereSomeRowLiesInATouchingCell) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> anywhere(0, 12);
  for (const std::size_t axes : {1u, 2u, 4u}) {
    std::vector<double> rows;
    for (std::size_t i = 0; i < 9 * axes; ++i) rows.push_back(anywhere(random));
    const MeasuredCells cells = MeasuredCells::of(axes, rows);
    const auto cell = [](double v) { return std::floor(v + 0.5); };
    int near = 0;
    for (int trial = 0; trial < 2000; ++trial) {
      std::vector<double> at;
      for (std::size_t a = 0; a < axes; ++a) at.push_back(anywhere(random));
      bool expected = false, inside = true;
      for (std::size_t row = 0; row < rows.size(); row += axes) {
        bool touches = true;
        for (std::size_t a = 0; a < axes; ++a)
          touches = touches && std::abs(cell(rows[row + a]) - cell(at[a])) <= 1;
        expected = expected || touches;
      }
      // Outside of the grid nothing is asked: KernelFit::outside has said so by the ranges.
      for (std::size_t a = 0; a < axes; ++a)
        inside =
            inside && cell(at[a]) >= cells.first()[a] && cell(at[a]) < cells.first()[a] + cells.count()[a];
      if (!inside) continue;
      EXPECT_EQ(cells.near(at), expected);
      near += expected ? 1 : 0;
    }
    EXPECT_GT(near, 0) << axes;
  }
}

// A table may say any shape: what its places would need is refused in words.
TEST(MeasuredCells, OfTooManyDoublingsAreRefused) {
  std::vector<double> rows(4, 0.0);
  rows.insert(rows.end(), 4, 20.0);
  EXPECT_GT(MeasuredCells::of(4, rows).runs().size(), 1u);  // 21^4 = 194,481
  rows.insert(rows.end(), {20.0, 20.0, 20.0, 21.0});
  try {
    MeasuredCells::of(4, rows);
    ADD_FAILURE() << "not refused";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("21 x 21 x 21 x 22 doublings of shapes: 203742 places"),
              std::string::npos)
        << e.what();
  }
}

TEST(MeasuredCells, ACornerOfTheRangesThatNoRowWasNearIsNotMeasured) {
  // Few rows of many experts, many rows of few.
  const double rows[] = {0, 8, 3, 8, 9, 3, 13, 3};
  const MeasuredCells cells = MeasuredCells::of(2, rows);
  const auto near = [&](double a, double b) { return cells.near(std::array{a, b}); };
  EXPECT_TRUE(near(3, 8));
  EXPECT_TRUE(near(4.4, 7));
  EXPECT_FALSE(near(12, 8));
  EXPECT_TRUE(near(12, 3));
}

TEST(MeasuredCells, OfGb200ExpertsEndWhereTheirTablesDo) {
  const System s = catalog_system("gb200-nvl72");
  for (const KernelFit& f : s.calibration.fits) {
    EXPECT_FALSE(f.cells.empty()) << f.name();
    if (f.name() != "moe torch_flow_min_latency nvfp4 balanced") continue;
    // rows_per_expert, width, experts: 4096 rows of each of 256 experts were never measured.
    const double width = (f.range_low[1] + f.range_high[1]) / 2;
    EXPECT_TRUE(f.outside(std::array{12.0, width, f.range_high[2]}));
  }
}

// All that a file says of what was measured is read back.
TEST(MeasuredCells, AreReadBackAsWritten) {
  const Calibration c = catalog_system("h200-hgx").calibration;
  Document document = Document::parse("c.yaml", calibration_yaml(c));
  const Calibration again = read_calibration(document.root().at("calibration"));
  document.finish();
  EXPECT_EQ(calibration_yaml(again), calibration_yaml(c));
  ASSERT_EQ(again.fits.size(), c.fits.size());
  for (std::size_t i = 0; i < c.fits.size(); ++i)
    EXPECT_EQ(again.fits[i].cells.runs(), c.fits[i].cells.runs());
  EXPECT_EQ(again.machine.figures, c.machine.figures);
}

// Whatever they are called, what is written of a machine and of a calibration is read as that.
TEST(MeasuredMachine, IsReadAsItWasWritten) {
  for (const std::string name :
       {"H100 SXM", "a \"b\" c", "a\\", "\"", "a: b", "#1", "a\nb", "null", "", "{"}) {
    MeasuredMachine m{name, name, {}};
    m.figures.resize(machine_figures().size());
    Document document = Document::parse("c.yaml", machine_yaml(m));
    const MeasuredMachine again = read_machine(document.root().at("machine"));
    EXPECT_EQ(again.system, name);
    EXPECT_EQ(again.device, name);
  }
}

struct Changed {
  const char* what;
  void (*change)(System&);
  Basis gemm, message;
};

// The message of a `machine` with one figure; empty: it is read.
std::string fault_of_figure(const std::string& figure) {
  const std::string text = "system: a\ndevice: b\nfigures:\n  " + figure + "\n";
  try {
    Document document = Document::parse("c.yaml", text);
    read_machine(document.root());
    document.finish();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(MeasuredMachine, HasFiguresThatASystemFileMayHave) {
  const auto begins = [](const std::string& figure, const std::string& what) {
    const std::string message = fault_of_figure(figure);
    EXPECT_EQ(message.substr(0, message.find('\n')), "c.yaml:4:" + what) << figure;
  };
  for (const MachineFigure& f : machine_figures()) {
    const std::string key = f.key;
    EXPECT_EQ(fault_of_figure(fmt::format("{}: {}", key, f.range.most)), "");
    EXPECT_EQ(fault_of_figure(fmt::format("{}: {}", key, f.range.least)), "");
    for (const char* beyond : {"1e308", "-1", "1e30"})
      EXPECT_NE(fault_of_figure(key + ": " + beyond), "") << key;
    if (f.range.least > 0) {
      EXPECT_NE(fault_of_figure(key + ": 1e-300"), "") << key;
    }
    if (f.range.least > 0) {
      EXPECT_NE(fault_of_figure(key + ": 0"), "") << key;
    }
    if (f.range.whole) {
      EXPECT_NE(fault_of_figure(key + ": 0.3"), "") << key;
    }
  }
  begins("fabric.nvlink.latency: 1e30", "26: figures.fabric.nvlink.latency: expected 0 to 1, found 1e30");
  begins("device.multiprocessors: 5000",
         "27: figures.device.multiprocessors: expected 1 to 4096, found 5000");
  begins("device.kernel_cost: 1e-12",
         "23: figures.device.kernel_cost: 1e-12 s is shorter than anything of a machine: expected 0, or "
         "1e-09 to 1");
  begins("fabric.nvlink.latncy: 3", "3: unknown key figures.fabric.nvlink.latncy");
  EXPECT_NE(fault_of_figure("fabric.nvlink.latncy: 3").find("did you mean fabric.nvlink.latency?"),
            std::string::npos);
}

TEST(MeasuredMachine, OnAnotherDeviceNothingIsMeasured) {
  const Op gemm = gemm_op({64, 4096, 4096}, Dtype::bf16, Dtype::bf16),
           gather = exchange_op(OpKind::all_gather, {8, 1}, 1e5);
  constexpr Basis kYes = Basis::measured, kNo = Basis::extrapolated;
  for (const Changed& c : std::initializer_list<Changed>{
           {"its name", [](System& s) { s.name = "home-made"; }, kYes, kYes},
           {"nodes", [](System& s) { s.fabric.nodes = 2; }, kYes, kYes},
           {"capacity", [](System& s) { s.device.memory = gigabytes(96); }, kYes, kYes},
           {"kernel cost", [](System& s) { s.device.kernel_cost = microseconds(9); }, kYes, kYes},
           {"device", [](System& s) { s.device.name = "H100 PCIe"; }, kNo, kNo},
           {"HBM", [](System& s) { s.device.memory_bandwidth = gigabytes_per_second(2000); }, kNo, kNo},
           {"a peak", [](System& s) { s.device.peak[2] *= 0.75; }, kNo, kNo},
           {"exponentials", [](System& s) { s.device.exponentials *= 0.75; }, kNo, kNo},
           {"multiprocessors", [](System& s) { s.device.multiprocessors = 114; }, kNo, kNo},
           {"NVLink", [](System& s) { s.fabric.nvlink.bandwidth *= 0.5; }, kYes, kNo},
           {"what was measured is not said", [](System& s) { s.calibration.machine = {}; }, kNo, kNo},
       }) {
    System s = catalog_system("h100-hgx");
    c.change(s);
    CostModel m(s);
    EXPECT_EQ(to_string(m.price(gemm).basis), to_string(c.gemm)) << c.what;
    EXPECT_EQ(to_string(m.price(gather).basis), to_string(c.message)) << c.what;
  }
}

TEST(MeasuredMachine, SaysWhatDiffers) {
  System s = catalog_system("gb200-nvl72");
  EXPECT_TRUE(s.calibration.machine.differences(s).empty());
  EXPECT_EQ(s.calibration.machine.system, "gb200-nvl72");
  s.device.name = "GB201";
  s.device.memory_bandwidth *= 1.1;
  EXPECT_EQ(s.calibration.machine.differences(s),
            (std::vector<std::string>{"device.name", "device.memory.bandwidth"}));
}

}  // namespace
}  // namespace shardline
