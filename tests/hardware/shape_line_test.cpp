// Prices along a line of shapes are those of each shape by itself, to the bit.
#include "hardware/cost/shape_line.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>

#include "hardware/cost/forms/forms.hpp"
#include "tests/hardware/ops.hpp"

namespace shardline {
namespace {

using Random = std::mt19937;

// Whole numbers, as many doublings apart as those of shapes.
double any_number(Random& random) {
  return std::floor(std::exp2(std::uniform_real_distribution<double>(0, 14)(random)));
}

// Where a form has a number that may be 0 (a window, SMs that send), it is the last one.
std::vector<double> any_shape(Random& random, const Form& form) {
  const std::string_view last = form.numbers.back();
  const bool may_lack = last == "window" || last == "sms";
  std::vector<double> x(form.numbers.size());
  do {
    for (double& v : x) v = any_number(random);
    if (may_lack && random() % 2 == 0) x.back() = 0;
  } while (!form.covers(x));
  return x;
}

std::vector<double> coordinates_of(const Form& form, const FormContext& context, std::span<const double> x) {
  std::vector<double> at(form.axes.size());
  form.coordinates(x, context, at.data());
  return at;
}

struct Asked {
  int fits = 0, outside = 0;
  std::set<std::string> families;
};

// More lines at once than are kept, so that some are found again and others have to be drawn anew.
void ask_lines(const System& system, Random& random, Asked& asked) {
  for (const KernelFit& fit : system.calibration.fits) {
    const Form& form = *fit.form;
    FormContext context;
    if (!form.steps || !form.context(fit.words, system, context)) continue;
    const UsedKernel kernel{fit, context, fit.parameters, fit.correction};
    ShapeLines kept;
    std::vector<std::vector<double>> shapes;
    for (int i = 0; i < 40; ++i) shapes.push_back(any_shape(random, form));
    for (int i = 0; i < 2000; ++i) {
      std::vector<double>& x = shapes[random() % shapes.size()];
      x[form.steps->number] = any_number(random);
      if (!form.covers(x)) continue;
      const std::vector<double> at = coordinates_of(form, context, x);
      ShapeLine& line = kept.through(kernel, x);
      const double on_line = line.coordinate(kernel, x);
      ASSERT_EQ(on_line, at[form.steps->axis]) << fit.name();
      ASSERT_EQ(line.seconds(kernel, x, on_line), predict(form, context, fit.parameters, fit.correction, x))
          << fit.name();
      ASSERT_EQ(line.outside(kernel, on_line), fit.outside(at)) << fit.name();
      asked.outside += fit.outside(at) ? 1 : 0;
    }
    ++asked.fits;
    asked.families.insert(fit.form->family);
  }
}

TEST(ShapeLines, H50AreTheFormAndItsCorrectionWhateverWasAskedBefore) {
  Random random(3);
  Asked asked;
  for (const char* name : {"a100-sxm", "h100-hgx", "h200-hgx", "gb200-nvl72"})
    ask_lines(testing::catalog_system(name), random, asked);
  EXPECT_GT(asked.fits, 100);
  EXPECT_GT(asked.outside, 1000);
  for (const Form& form : forms()) {
    if (form.steps) {
      EXPECT_TRUE(asked.families.contains(form.family)) << form.family;
    }
  }
}

// The corners of a cell in the order in which fits are found.
TEST(Correction, F2IsTheSumOverCorners) {
  Random random(5);
  std::uniform_real_distribution<double> anywhere(-2, 12);
  for (std::size_t axes = 1; axes <= kMostAxes; ++axes) {
    for (int trial = 0; trial < 200; ++trial) {
      Correction c;
      std::size_t count = 1;
      for (std::size_t a = 0; a < axes; ++a) {
        c.first.push_back(anywhere(random));
        c.step.push_back(1 + 0.5 * static_cast<double>(random() % 4));
        c.knots.push_back(1 + static_cast<int>(random() % 5));
        count *= static_cast<std::size_t>(c.knots.back());
      }
      for (std::size_t i = 0; i < count; ++i) c.values.push_back(anywhere(random));
      std::vector<double> at;
      for (std::size_t a = 0; a < axes; ++a) at.push_back(anywhere(random));
      const CorrectionCorners corners = correction_corners(c, at);
      double sum = 0;
      for (std::size_t i = 0; i < static_cast<std::size_t>(corners.count); ++i)
        sum += corners.weight[i] * c.values[static_cast<std::size_t>(corners.knot[i])];
      EXPECT_EQ(c.at(at), sum);
    }
  }
}

// Knots that are not evenly apart: the value at each, a straight line between two, constant beyond.
TEST(Correction, F2UnevenKnotsAreMetExactly) {
  Correction c;
  c.uneven = {{0, 4, 4.1, 7}, {9}};
  c.knots = {4, 1};
  c.values = {1, 2, -3, 5};
  const auto at = [&](double x, double y) { return c.at(std::vector<double>{x, y}); };
  for (const double y : {-50.0, 9.0, 50.0}) {
    EXPECT_EQ(at(0, y), 1);
    EXPECT_EQ(at(4, y), 2);
    EXPECT_EQ(at(4.1, y), -3);
    EXPECT_EQ(at(7, y), 5);
    EXPECT_EQ(at(-1, y), 1);
    EXPECT_EQ(at(8, y), 5);
    EXPECT_DOUBLE_EQ(at(1, y), 1.25);
    EXPECT_DOUBLE_EQ(at(4.05, y), -0.5);
  }
}

}  // namespace
}  // namespace shardline
