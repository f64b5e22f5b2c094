// Rows that follow from measured ones. calibrate/README.md [F8].
#include "calibrate/derived.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "calibrate/calibrate.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "hardware/machine/system.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using testing::catalog_system;

FormContext static_context(const System& s) {
  FormContext c;
  EXPECT_TRUE(kGemmForm.context(std::vector<std::string>{"fp8_static", "torch_flow"}, s, c));
  return c;
}

FitRows rows(std::size_t width, std::vector<double> numbers, std::vector<double> seconds) {
  FitRows r;
  r.width = width;
  r.numbers = std::move(numbers);
  r.seconds = std::move(seconds);
  return r;
}

TEST(StaticProducts, F7AreDynamicOnesLessTheSearchOfTheirActivation) {
  const System h100 = catalog_system("h100-hgx");
  // m, n, k; the search has m and k.
  const FitRows dynamic = rows(3, {8, 512, 4096, 8, 512, 1024, 16, 512, 4096}, {12e-6, 11e-6, 13e-6});
  const FitRows search = rows(2, {8, 4096, 16, 4096, 8, 2048}, {7e-6, 8e-6, 1e-6});
  const FitRows known = static_products(dynamic, search, static_context(h100));
  EXPECT_EQ(known.width, 3u);
  EXPECT_THAT(known.numbers, ::testing::ElementsAre(8, 512, 4096, 16, 512, 4096));  // k = 1024: no search
  ASSERT_EQ(known.size(), 2u);
  EXPECT_DOUBLE_EQ(known.seconds[0], 5e-6);
  EXPECT_DOUBLE_EQ(known.seconds[1], 5e-6);
}

TEST(StaticProducts, F7AreNeverFasterThanThePeaks) {
  const System h100 = catalog_system("h100-hgx");
  const FitRows large = rows(3, {8192, 8192, 8192}, {1e-3});
  const FitRows known = static_products(large, rows(2, {8192, 8192}, {2e-3}), static_context(h100));
  const double peak = h100.device.peak[static_cast<std::size_t>(Dtype::fp8)].value;
  EXPECT_DOUBLE_EQ(known.seconds.at(0), 2 * std::pow(8192.0, 3) / peak);
}

TEST(StaticProducts, F7EnginesByTheirKernels) {
  EXPECT_EQ(engine_of_gemm("", "torch_flow"), "trtllm");
  EXPECT_EQ(engine_of_gemm("", "CutlassFP8"), "vllm");
  EXPECT_EQ(engine_of_gemm("mine", "torch_flow"), "mine");
  EXPECT_EQ(engine_of_gemm("", "sgl_kernel_fp8_scaled_mm"), "");
}

double dynamic_us(double m, double n, double k) { return 11 + 2e-6 * m * n * k / 1000e6 + m * k * 1e-6; }
double search_us(double m, double k) { return 7 + m * k * 0.5e-6; }

// Products and searches of one machine.
struct Tables {
  std::string gemm = "m,n,k,dtype,kernel,latency_us\n", quantize = "engine,op,dtype,m,k,latency_us\n";
  Tables() {
    for (int m = 1; m <= 4096; m *= 2) {
      for (int k = 1024; k <= 8192; k *= 2) {
        for (int n = 1024; n <= 8192; n *= 2)
          gemm += fmt::format("{},{},{},fp8,torch_flow,{}\n", m, n, k, dynamic_us(m, n, k));
        quantize += fmt::format("trtllm_1.3.0,compute_scale,fp8,{},{},{}\n", m, k, search_us(m, k));
      }
    }
  }
  std::vector<MeasurementTable> read() const {
    std::vector<MeasurementTable> out;
    out.push_back(parse_measurements("gemm.csv", gemm));
    out.push_back(parse_measurements("quantize.csv", quantize));
    return out;
  }
};

const KernelFit* known_scale(const Calibration& c) {
  for (const KernelFit& f : c.fits) {
    if (f.form->family == std::string_view("gemm") && f.words[0] == "fp8_static") return &f;
  }
  return nullptr;
}

TEST(StaticProducts, F7CalibrationsHoldAFitOfThem) {
  const System h100 = catalog_system("h100-hgx");
  Calibrated c = calibrate(h100, Tables().read());
  const KernelFit* fit = known_scale(c.calibration);
  ASSERT_NE(fit, nullptr);
  EXPECT_EQ(fit->name(), "gemm fp8_static torch_flow");
  EXPECT_EQ(fit->derived, "gemm fp8 torch_flow less quantize trtllm compute_scale fp8");
  EXPECT_EQ(fit->alone.rows, 13u * 4 * 4);
  EXPECT_LT(fit->corrected.median, 0.05);
  EXPECT_THAT(c.notes,
              ::testing::Contains(::testing::HasSubstr("208 rows derived from gemm fp8 torch_flow")));
  // A calibration keeps what was derived.
  c.calibration.source = c.calibration.hash = c.calibration.date = c.calibration.version = "1";
  Document document = Document::parse("c.yaml", calibration_yaml(c.calibration));
  const Calibration back = read_calibration(document.root().at("calibration"));
  document.finish();
  ASSERT_NE(known_scale(back), nullptr);
  EXPECT_EQ(known_scale(back)->derived, fit->derived);
  EXPECT_EQ(calibration_yaml(back), calibration_yaml(c.calibration));
  for (const KernelFit& f : back.fits) EXPECT_EQ(f.derived.empty(), &f != known_scale(back));
}

TEST(StaticProducts, F7OnlyOfTheSameEngineAndNotWhereTheyWereMeasured) {
  const System h100 = catalog_system("h100-hgx");
  Tables other;
  std::size_t at = 0;
  while ((at = other.quantize.find("trtllm_1.3.0")) != std::string::npos)
    other.quantize.replace(at, 12, "vllm_0.24.0");
  EXPECT_EQ(known_scale(calibrate(h100, other.read()).calibration), nullptr);
  Tables measured;
  for (int m = 1; m <= 4096; m *= 2) {
    for (int k = 1024; k <= 8192; k *= 2)
      for (int n = 1024; n <= 8192; n *= 2)
        measured.gemm +=
            fmt::format("{},{},{},fp8_static,torch_flow,{}\n", m, n, k, 0.5 * dynamic_us(m, n, k));
  }
  const Calibrated c = calibrate(h100, measured.read());
  ASSERT_NE(known_scale(c.calibration), nullptr);
  EXPECT_EQ(known_scale(c.calibration)->derived, "");
}

}  // namespace
}  // namespace shardline
