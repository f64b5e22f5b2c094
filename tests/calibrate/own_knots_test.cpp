// Corrections whose knots lie where the rows do. calibrate/README.md [F2].
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "calibrate/fit.hpp"

namespace shardline {
namespace {

// An axis of tiles, at the rows of tables: another kernel for each n, and a step behind 64 rows.
Form tiled_form() {
  static constexpr const char* kNumbers[] = {"x", "y"};
  static constexpr FormParameter kParameters[] = {{"t0", "us", 0.1, 1, 100}, {"rate", "1/us", 0.1, 30, 1e4}};
  static constexpr FormAxis kTiles[] = {{"x", 1.5, 0.75, 0.95, true}, {"y", 2, 1, 0.15}};
  Form f{};
  f.family = "line";
  f.numbers = kNumbers;
  f.parameters = kParameters;
  f.axes = kTiles;
  f.covers = [](std::span<const double>) { return true; };
  f.seconds = [](std::span<const double> x, const FormContext&, std::span<const double> p) {
    return (p[0] + x[0] / p[1]) * 1e-6;
  };
  f.work = [](std::span<const double> x, const FormContext&) { return x[0]; };
  f.traffic = f.work;
  f.coordinates = [](std::span<const double> x, const FormContext&, double* out) {
    out[0] = std::log2(x[0]);
    out[1] = std::log2(x[1]);
  };
  return f;
}

FormContext rates() {
  FormContext c;
  c.flops = 1e12;
  c.bandwidth = 1e12;
  return c;
}

FitRows tiled_rows(double noise) {
  std::mt19937_64 random(9);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  FitRows out;
  out.width = 2;
  for (const double x : {1, 2, 4, 8, 16, 17, 32, 33, 48, 64, 65, 96, 128, 129, 256, 257, 512}) {
    for (const double y : {512, 768, 1024, 1536, 2048, 3072, 4096}) {
      const double ridge = y == 768 || y == 3072 ? 0.3 : 0, step = x > 64 ? 0.2 : 0;
      out.numbers.insert(out.numbers.end(), {x, y});
      out.seconds.push_back((3 + x / 50) * 1e-6 * std::exp(ridge + step + noise * (uniform() - 0.5)));
    }
  }
  return out;
}

TEST(FitCorrection, F2OwnKnotsLieWhereRowsDoAndOnBothSidesOfATilesEdge) {
  const Form form = tiled_form();
  const Correction c =
      fit_correction(form, rates(), tiled_rows(0), std::vector<double>{3, 50}, {0.2, false, false, true});
  const std::vector<double> x{1, 2, 4, 8, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257, 512};
  ASSERT_EQ(c.uneven.size(), 2u);
  ASSERT_EQ(c.uneven[0].size(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(c.uneven[0][i], std::log2(x[i]), 1e-12) << x[i];
  EXPECT_EQ(c.knots, (std::vector<int>{15, 7}));
  EXPECT_EQ(c.values.size(), 15u * 7u);
}

// One ridge along a whole axis, and one step: a row that is left out is known by its neighbours on each axis,
// where even knots blur both.
TEST(FitCorrection, F2OwnKnotsHoldRidgesAndSteps) {
  const Form form = tiled_form();
  const FitRows rows = tiled_rows(0.02);
  const CrossValidation own = cross_validate(form, rates(), rows, 4, {}, std::span(kGrids).last(2));
  const CrossValidation even = cross_validate(form, rates(), rows, 4, {}, kEvenGrids);
  EXPECT_LT(own.corrected.p90, 0.6 * even.corrected.p90);
  EXPECT_LT(own.corrected.median, 0.8 * even.corrected.median) << even.corrected.median;
}

TEST(FitCorrection, F2OwnKnotsOnlyWhereTheFormSaysHowFarApart) {
  static constexpr FormAxis kEven[] = {{"x", 1, 0, 0.5}, {"y", 1}};
  Form even = tiled_form();
  even.axes = kEven;
  EXPECT_EQ(grids_of(even).size(), kEvenGrids.size());
  EXPECT_EQ(grids_of(tiled_form()).size(), std::size(kGrids));
  EXPECT_TRUE(grids_of(tiled_form()).back().own);
  for (const CorrectionGrid& grid : kEvenGrids) EXPECT_FALSE(grid.own);
}

}  // namespace
}  // namespace shardline
