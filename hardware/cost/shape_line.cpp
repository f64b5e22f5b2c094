#include "hardware/cost/shape_line.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// A block has up to five products of one kernel; the next view of it begins with others.
constexpr int kLineBits = 4;

}  // namespace

bool ShapeLine::holds(const FormSteps& steps, std::span<const double> x) const {
  if (numbers_ != x.size()) return false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i != steps.number && std::bit_cast<std::uint64_t>(x_[i]) != std::bit_cast<std::uint64_t>(x[i]))
      return false;
  }
  return true;
}

void ShapeLine::start(const UsedKernel& kernel, std::span<const double> x) {
  const Form& form = *kernel.fit.form;
  const FormSteps& steps = *form.steps;
  SL_CHECK(x.size() == form.numbers.size() && x.size() <= kMostNumbers, "x has the numbers of the form");
  numbers_ = x.size();
  std::copy(x.begin(), x.end(), x_.begin());
  steps.derive(x, kernel.context, kernel.parameters, derived_.data());
  form.coordinates(x, kernel.context, at_.data());
  const std::span where = std::span(at_).first(form.axes.size());
  if (!kernel.correction.empty()) {
    for (std::size_t a = 0; a < where.size(); ++a)
      places_[a] = kernel.correction.place(a, kernel.correction.stride(a), where[a]);
    stride_ = kernel.correction.stride(steps.axis);
  }
  in_range_ = true;
  for (std::size_t a = 0; a < where.size(); ++a)
    in_range_ = in_range_ && (a == steps.axis || kernel.fit.in_range(a, where[a]));
  if (!kernel.fit.cells.empty()) cells_ = kernel.fit.cells.line(steps.axis, where);
}

double ShapeLine::coordinate(const UsedKernel& kernel, std::span<const double> x) const {
  return kernel.fit.form->steps->coordinate(x);
}

double ShapeLine::seconds(const UsedKernel& kernel, std::span<const double> x, double coordinate) {
  const Form& form = *kernel.fit.form;
  const double base = form.steps->seconds(x, kernel.context, kernel.parameters, derived_.data());
  if (kernel.correction.empty()) return base;
  places_[form.steps->axis] = kernel.correction.place(form.steps->axis, stride_, coordinate);
  return base * std::exp(kernel.correction.between(std::span(places_).first(form.axes.size())));
}

bool ShapeLine::outside(const UsedKernel& kernel, double coordinate) const {
  if (!in_range_ || !kernel.fit.in_range(kernel.fit.form->steps->axis, coordinate)) return true;
  return !kernel.fit.cells.empty() && !cells_.near(coordinate);
}

ShapeLine& ShapeLines::through(const UsedKernel& kernel, std::span<const double> x) {
  if (lines_.empty()) {
    SL_CHECK(kernel.fit.form->steps != nullptr, "a form that prices ops by its x comes in two steps");
    lines_.resize(std::size_t{1} << kLineBits);
  }
  const FormSteps& steps = *kernel.fit.form->steps;
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i != steps.number)
      hash = (std::rotl(hash, 5) ^ std::bit_cast<std::uint64_t>(x[i])) * 0x9E3779B97F4A7C15;
  }
  ShapeLine& line = lines_[hash >> (64 - kLineBits)];
  if (!line.holds(steps, x)) line.start(kernel, x);
  return line;
}

}  // namespace shardline
