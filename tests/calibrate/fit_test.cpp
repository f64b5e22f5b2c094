#include "calibrate/fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <optional>
#include <random>
#include <set>

#include "calibrate/calibrate.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {
namespace {

// t0 + x / rate, times what `bend` makes of it: a form whose truth is known.
constexpr const char* kNumbers[] = {"x", "y"};
constexpr FormParameter kParameters[] = {{"t0", "us", 0.1, 1, 100}, {"rate", "1/us", 0.1, 30, 1e4}};
constexpr FormAxis kAxes[] = {{"x", 1}, {"y", 1}};

Form line_form() {
  Form f{};
  f.family = "line";
  f.numbers = kNumbers;
  f.parameters = kParameters;
  f.axes = kAxes;
  f.covers = [](std::span<const double>) { return true; };
  f.seconds = [](std::span<const double> x, const FormContext&, std::span<const double> p) {
    return (p[0] + x[0] / p[1]) * 1e-6;
  };
  f.work = [](std::span<const double> x, const FormContext&) { return x[0]; };
  f.traffic = [](std::span<const double> x, const FormContext&) { return x[0]; };
  f.coordinates = [](std::span<const double> x, const FormContext&, double* out) {
    out[0] = std::log2(x[0]);
    out[1] = std::log2(x[1]);
  };
  return f;
}

struct Truth {
  double t0 = 3, rate = 50, noise = 0.01, bend = 0;
  double outliers = 0;  // share of rows three times as slow
};

FitRows rows_from(const Truth& t, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  FitRows out;
  out.width = 2;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = std::exp2(14 * uniform()), y = std::exp2(6 * uniform());
    double noise = -6;
    for (int k = 0; k < 12; ++k) noise += uniform();
    double time = (t.t0 + x / t.rate) * std::exp(t.noise * noise + t.bend * std::sin(std::log2(y)));
    if (uniform() < t.outliers) time *= 3;
    out.numbers.push_back(x);
    out.numbers.push_back(y);
    out.seconds.push_back(time * 1e-6);
  }
  return out;
}

FormContext rates() {
  FormContext c;
  c.flops = c.bandwidth = 1e9;
  return c;
}

TEST(Fit, FindsTheParametersWithinTheirIntervals) {
  int inside = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const FitResult f = fit(line_form(), rates(), rows_from({}, 200, seed));
    EXPECT_NEAR(f.parameters[0], 3, 0.02);
    EXPECT_NEAR(f.parameters[1], 50, 0.5);
    inside += f.low[0] <= 3 && 3 <= f.high[0] && f.low[1] <= 50 && 50 <= f.high[1] ? 1 : 0;
    EXPECT_LT(f.high[0] - f.low[0], 0.05);
  }
  // Two intervals of 95 %: both hold in about 36 of 40; fewer than 30 has a chance below 1e-3.
  EXPECT_GE(inside, 30);
}

TEST(Fit, FewSlowRowsDoNotMoveIt) {
  Truth t;
  t.outliers = 0.05;
  const FitResult f = fit(line_form(), rates(), rows_from(t, 1000, 1));
  EXPECT_NEAR(f.parameters[0], 3, 0.05);
  EXPECT_NEAR(f.parameters[1], 50, 1);
}

TEST(Fit, IsTheSameEachTimeAndStaysInsideTheBounds) {
  Truth t;
  t.t0 = 0.01;  // below the bound
  const FitRows rows = rows_from(t, 200, 2);
  const FitResult a = fit(line_form(), rates(), rows), b = fit(line_form(), rates(), rows);
  EXPECT_EQ(a.parameters, b.parameters);
  EXPECT_DOUBLE_EQ(a.parameters[0], 0.1);
  EXPECT_THROW(fit(line_form(), rates(), rows_from(t, 1, 2)), std::invalid_argument);
}

TEST(FitCorrection, LearnsWhatTheFormLeaves) {
  Truth t;
  t.bend = 0.3;
  const Form form = line_form();
  const FitRows seen = rows_from(t, 3000, 3), unseen = rows_from(t, 1000, 4);
  const FitResult f = fit(form, rates(), seen);
  const Correction c = fit_correction(form, rates(), seen, f.parameters, {0.3});
  std::vector<double> plain, corrected;
  for (std::size_t i = 0; i < unseen.size(); ++i) {
    plain.push_back(form.seconds(unseen.x(i), rates(), f.parameters));
    corrected.push_back(predict(form, rates(), f.parameters, c, unseen.x(i)));
  }
  EXPECT_GT(summarise(plain, unseen.seconds).median, 0.12);
  EXPECT_LT(summarise(corrected, unseen.seconds).median, 0.03);
}

TEST(FitCorrection, IsConstantBeyondItsRange) {
  Truth t;
  t.bend = 0.3;
  const Form form = line_form();
  const FitRows rows = rows_from(t, 500, 5);
  const Correction c = fit_correction(form, rates(), rows, std::vector<double>{3, 50}, {1});
  const double edge[] = {c.first[0] + c.step[0] * (c.knots[0] - 1), 3}, far[] = {edge[0] + 40, 3};
  EXPECT_DOUBLE_EQ(c.at(edge), c.at(far));
  const double low[] = {c.first[0], c.first[1]}, below[] = {-100, -100};
  EXPECT_DOUBLE_EQ(c.at(low), c.at(below));
}

// Rows of the line whose time is times exp(residual(log2 x, log2 y)); log2 x to 12, log2 y of 0 and `far_y`.
template <class Residual>
FitRows residual_rows(std::size_t count, double far_y, const Residual& residual) {
  std::mt19937_64 random(8);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  FitRows out;
  out.width = 2;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = 12 * uniform(), y = i % 2 == 0 ? 0 : far_y;
    const std::optional<double> log = residual(x, y);
    if (!log) continue;
    out.numbers.insert(out.numbers.end(), {std::exp2(x), std::exp2(y)});
    out.seconds.push_back((3 + std::exp2(x) / 50) * 1e-6 * std::exp(*log));
  }
  return out;
}

// Another kernel from x of 2^6.3 on: beside the step second differences alone leave what is not in the rows.
TEST(FitCorrection, F2StepsOvershootLess) {
  const FitRows rows =
      residual_rows(400, 1, [](double x, double) { return std::optional(x > 6.3 ? 0.4 : 0.0); });
  const auto overshoot = [&](bool steps) {
    const Correction c = fit_correction(line_form(), rates(), rows, std::vector<double>{3, 50}, {30, steps});
    double most = 0;
    for (double x = 0; x <= 12; x += 0.25) {
      const double at[] = {x, 0};
      most = std::max({most, c.at(at) - 0.4, -c.at(at)});
    }
    return most;
  };
  EXPECT_LT(overshoot(true), 0.5 * overshoot(false));
  EXPECT_GT(overshoot(false), 0.01);
}

TEST(FitCorrection, F2FineKnotsLieAsTheFormSays) {
  constexpr FormAxis kTwoAxes[] = {{"x", 1, 0.2}, {"y", 1}};
  Form form = line_form();
  form.axes = kTwoAxes;
  const FitRows rows = rows_from({}, 500, 5);
  const auto step = [&](bool fine, std::size_t axis) {
    const Correction c = fit_correction(form, rates(), rows, std::vector<double>{3, 50}, {0.3, true, fine});
    return c.step[axis];
  };
  for (const std::size_t axis : {0u, 1u}) {
    EXPECT_LE(step(false, axis), 1);
    EXPECT_GT(step(false, axis), 0.85);
  }
  EXPECT_NEAR(step(true, 0), 0.2, 0.01);
  EXPECT_NEAR(step(true, 1), 0.5, 0.05);
}

// What a library's choice of kernel leaves goes up and down within one coarse step of the grid: a fine grid
// holds it. What is smooth needs none, and is not given one.
TEST(CrossValidate, F4TakesAFineGridWhereItGains) {
  const auto wave = [](double doublings) {
    return residual_rows(3000, 4, [=](double x, double) -> std::optional<double> {
      return 0.2 * std::sin(2 * std::numbers::pi * x / doublings);
    });
  };
  const CrossValidation steps = cross_validate(line_form(), rates(), wave(1.7));
  EXPECT_TRUE(steps.grid.fine);
  EXPECT_LT(steps.corrected.median, 0.6 * steps.tried[0].error.median);
  const CrossValidation coarse = cross_validate(line_form(), rates(), wave(1.7), 4, {}, kCoarseGrids);
  EXPECT_FALSE(coarse.grid.fine);
  EXPECT_EQ(coarse.tried.size(), kCoarseGrids.size());
  EXPECT_DOUBLE_EQ(coarse.tried[0].error.median, steps.tried[0].error.median);
  std::mt19937_64 random(9);
  FitRows noisy = wave(40);
  for (double& s : noisy.seconds) s *= random() % 2 == 0 ? 1.05 : 1 / 1.05;
  EXPECT_FALSE(cross_validate(line_form(), rates(), noisy).grid.fine);
}

TEST(FoldOf, SpreadsShapesEvenlyAndKeepsEqualOnesTogether) {
  std::vector<int> count(4, 0);
  for (int m = 1; m <= 64; ++m) {
    for (int n = 1; n <= 64; ++n) {
      const double x[] = {static_cast<double>(m), static_cast<double>(64 * n)};
      const int fold = fold_of(x, 4);
      EXPECT_EQ(fold, fold_of(x, 4));
      ++count[static_cast<std::size_t>(fold)];
    }
  }
  for (const int c : count) EXPECT_NEAR(c, 1024, 5 * std::sqrt(1024 * 0.75));
}

// Shapes that only the tested part holds must not be known to the fit: a correction that has seen them would
// leave no error.
TEST(CrossValidate, TestsOnShapesThatTheFitHasNotSeen) {
  std::mt19937_64 random(6);
  FitRows rows;
  rows.width = 2;
  for (int i = 0; i < 1500; ++i) {  // a lottery: nothing to learn from other shapes
    const double x = std::exp2(static_cast<double>(i % 15)), y = std::exp2(static_cast<double>(i / 15) / 16);
    rows.numbers.push_back(x);
    rows.numbers.push_back(y);
    rows.seconds.push_back((3 + x / 50) * 1e-6 * (random() % 2 == 0 ? 1.4 : 1 / 1.4));
  }
  const CrossValidation v = cross_validate(line_form(), rates(), rows);
  EXPECT_EQ(v.form.rows, 1500u);
  EXPECT_GT(v.corrected.median, 0.25);
}

TEST(Summarise, Quantiles) {
  const FitError e = summarise(std::vector<double>{1.1, 0.8, 2.0, 1.0}, std::vector<double>{1, 1, 1, 1});
  EXPECT_NEAR(e.median, 0.15, 1e-12);
  EXPECT_NEAR(e.p90, 0.2 + 0.7 * 0.8, 1e-12);
  EXPECT_NEAR(e.worst, 1.0, 1e-12);
  EXPECT_NEAR(e.bias, 0.05, 1e-12);
  EXPECT_EQ(summarise({}, {}).rows, 0u);
}

System small_system() { return load_system("h100-hgx", SHARDLINE_SOURCE_DIR "/hardware/catalog"); }

// Rows of a GEMM whose time is known, at 1 % noise.
std::string gemm_table(int rows) {
  std::mt19937_64 random(7);
  std::string text = "m,n,k,dtype,kernel,latency_us\n";
  std::set<std::string> seen;
  while (static_cast<int>(seen.size()) < rows) {
    const auto size = [&](int most) { return 1LL << random() % static_cast<unsigned>(most); };
    const long long m = size(14) + static_cast<long long>(random() % 3), n = 64 * size(9), k = 64 * size(9);
    const double work = 2e-6 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    const double us = 4 + work / 700e6 * (1 + 0.01 * (static_cast<double>(random() % 200) / 100 - 1));
    const std::string shape = std::to_string(m) + "," + std::to_string(n) + "," + std::to_string(k);
    if (seen.insert(shape).second) text += shape + ",bf16,mine," + std::to_string(us) + "\n";
  }
  return text;
}

TEST(Calibrate, IsTheSameForAnyNumberOfThreadsAndSurvivesItsFile) {
  const System system = small_system();
  const std::vector<MeasurementTable> tables{parse_measurements("a.csv", gemm_table(600))};
  CalibrateOptions one, four;
  one.threads = 1;
  four.threads = 4;
  Calibrated a = calibrate(system, tables, one);
  const Calibrated b = calibrate(system, tables, four);
  ASSERT_EQ(a.calibration.fits.size(), 1u);
  a.calibration.source = "a \"quoted\" table";
  a.calibration.hash = "0123";
  a.calibration.date = "2026-01-01";
  a.calibration.version = "1";
  EXPECT_EQ(a.calibration.fits[0].parameters, b.calibration.fits[0].parameters);
  EXPECT_EQ(a.calibration.fits[0].correction.values, b.calibration.fits[0].correction.values);

  Document document = Document::parse("c.yaml", calibration_yaml(a.calibration));
  const Reader root = document.root();
  const Calibration back = read_calibration(root.at("calibration"));
  document.finish();
  EXPECT_EQ(back.source, a.calibration.source);
  ASSERT_EQ(back.fits.size(), 1u);
  for (std::size_t i = 0; i < back.fits[0].parameters.size(); ++i)
    EXPECT_NEAR(back.fits[0].parameters[i] / a.calibration.fits[0].parameters[i], 1, 1e-5);
  const Evaluation x = evaluate(system, a.calibration, tables), y = evaluate(system, back, tables);
  ASSERT_EQ(x.rows.size(), 600u);
  ASSERT_EQ(y.rows.size(), 600u);
  for (std::size_t i = 0; i < 600; ++i) {
    EXPECT_NEAR(y.rows[i].predicted / x.rows[i].predicted, 1, 2e-3);
    EXPECT_FALSE(x.rows[i].extrapolated);
    EXPECT_FALSE(y.rows[i].extrapolated);
  }
}

TEST(Calibrate, SaysWhatItLeavesOut) {
  const System system = small_system();
  const std::vector<MeasurementTable> few{parse_measurements("a.csv", gemm_table(5))};
  EXPECT_THROW(calibrate(system, few), UserError);
  std::vector<MeasurementTable> two{parse_measurements("a.csv", gemm_table(600)),
                                    parse_measurements("b.csv", "copied_bytes,latency_us\n1,1\n2,2\n")};
  EXPECT_THAT(calibrate(system, two).notes, testing::ElementsAre("hbm_copy: no form, 2 rows left out"));
}

TEST(Calibrate, TakesAShapeThatTwoTablesHaveOnce) {
  const System system = small_system();
  const std::string text = gemm_table(600);
  std::vector<MeasurementTable> alone{parse_measurements("a.csv", text)};
  std::vector<MeasurementTable> both{parse_measurements("a.csv", text), parse_measurements("b.csv", text)};
  // The same rows again at twice the time change nothing.
  for (Seconds& t : both[1].median) t = t * 2;
  const Calibrated a = calibrate(system, alone), b = calibrate(system, both);
  EXPECT_EQ(a.calibration.fits[0].parameters, b.calibration.fits[0].parameters);
  EXPECT_EQ(b.calibration.fits[0].alone.rows, 600u);
  EXPECT_THAT(a.notes, testing::IsEmpty());
  EXPECT_THAT(b.notes,
              testing::ElementsAre("gemm bf16 mine: 600 rows left out, an earlier table has their shapes"));
}

TEST(Calibrate, TellsKernelsOfMlaApart) {
  const System system = small_system();
  std::string text = "op,tokens,heads_local,dtype,kernel,latency_us\n";
  for (const auto& [kernel, slower] : {std::pair{"torch_bmm", 1.0}, std::pair{"other_bmm", 3.0}}) {
    for (int tokens = 1; tokens <= 8192; tokens *= 2) {
      for (const int heads : {16, 128})
        text += "mla_gen_pre," + std::to_string(tokens) + "," + std::to_string(heads) + ",bf16," + kernel +
                "," + std::to_string(slower * (5 + 0.001 * tokens * heads)) + "\n";
    }
  }
  const std::vector<MeasurementTable> tables{parse_measurements("a.csv", text)};
  Calibrated c = calibrate(system, tables);
  ASSERT_EQ(c.calibration.fits.size(), 2u);
  EXPECT_EQ(c.calibration.fits[0].name(), "mla_bmm mla_gen_pre bf16 other_bmm");
  EXPECT_EQ(c.calibration.fits[1].name(), "mla_bmm mla_gen_pre bf16 torch_bmm");
  EXPECT_LT(evaluate(system, c.calibration, tables).rows[0].predicted, 8e-6);
  // Both stand in one file.
  c.calibration.source = c.calibration.hash = c.calibration.date = c.calibration.version = "1";
  Document document = Document::parse("c.yaml", calibration_yaml(c.calibration));
  const Calibration back = read_calibration(document.root().at("calibration"));
  document.finish();
  ASSERT_EQ(back.fits.size(), 2u);
  EXPECT_EQ(back.fits[1].words, c.calibration.fits[1].words);
  // Files from before kernels had names hold one without, as tables without the column do.
  std::size_t unnamed = 0;
  for (const KernelFit& f : system.calibration.fits) {
    if (std::string_view(f.form->family).starts_with("mla_")) {
      ASSERT_EQ(f.words.size(), f.form->words.size());
      EXPECT_EQ(f.words.back(), "");
      ++unnamed;
    }
  }
  EXPECT_GT(unnamed, 8u);
}

TEST(Calibrate, DoesNotMixEngines) {
  const System system = small_system();
  std::vector<MeasurementTable> alone{parse_measurements("a.csv", gemm_table(600))};
  std::vector<MeasurementTable> both = alone;
  both.push_back(parse_measurements(
      "b.csv", "engine,m,n,k,dtype,kernel,latency_us\nvllm_0.24.0,77,64,64,bf16,mine,100\n"));
  const Calibrated a = calibrate(system, alone), b = calibrate(system, both);
  EXPECT_EQ(a.calibration.fits[0].parameters, b.calibration.fits[0].parameters);
  EXPECT_THAT(b.notes, testing::ElementsAre("gemm bf16 mine: 1 rows of vllm left out, those of an engine "
                                            "without a name stand before them"));
}

TEST(Evaluate, MarksShapesOutsideOfWhatWasFitted) {
  const System system = small_system();
  const std::vector<MeasurementTable> tables{parse_measurements("a.csv", gemm_table(600))};
  const Calibrated c = calibrate(system, tables);
  const std::vector<MeasurementTable> other{parse_measurements(
      "b.csv",
      "m,n,k,dtype,kernel,latency_us\n64,1024,1024,bf16,mine,5\n1000000,1024,1024,bf16,mine,5\n"
      "64,1024,1024,fp8,mine,5\n")};
  const Evaluation e = evaluate(system, c.calibration, other);
  ASSERT_EQ(e.rows.size(), 2u);
  EXPECT_FALSE(e.rows[0].extrapolated);
  EXPECT_TRUE(e.rows[1].extrapolated);
  EXPECT_THAT(e.notes,
              testing::ElementsAre(
                  "gemm fp8 mine: 1 rows not predicted: no fit, or shapes that the form is not for"));
}

// As prices of ops do: hardware/README.md, "What a price rests on".
TEST(Evaluate, CallsMeasuredWhatPricesCallMeasured) {
  const System system = small_system();
  const std::vector<MeasurementTable> tables{parse_measurements("a.csv", gemm_table(600))};
  const Calibrated c = calibrate(system, tables);
  for (const PredictedRow& r : evaluate(system, c.calibration, tables).rows) EXPECT_FALSE(r.extrapolated);
  System other = system;
  other.device.memory_bandwidth *= 0.8;
  const Evaluation e = evaluate(other, c.calibration, tables);
  EXPECT_EQ(e.rows.size(), tables[0].size());
  for (const PredictedRow& r : e.rows) EXPECT_TRUE(r.extrapolated);
}

}  // namespace
}  // namespace shardline
