#include "hardware/cost/forms/correction.hpp"

#include <algorithm>
#include <cmath>

namespace shardline {

CorrectionCorners correction_corners(const Correction& c, std::span<const double> at) {
  CorrectionCorners out;
  out.knot[0] = 0;
  out.weight[0] = 1;
  out.count = 1;
  for (std::size_t a = 0; a < c.knots.size(); ++a) {
    const int last = c.knots[a] - 1;
    const double place = std::clamp((at[a] - c.first[a]) / c.step[a], 0.0, static_cast<double>(last));
    const int i = std::min(static_cast<int>(place), std::max(0, last - 1));
    const double part = place - i;
    const int before = out.count;
    for (int k = 0; k < before; ++k) {
      const auto at_k = static_cast<std::size_t>(k);
      const int base = out.knot[at_k] * c.knots[a];
      const double weight = out.weight[at_k];
      out.knot[at_k] = base + i;
      out.weight[at_k] = weight * (1 - part);
      if (last == 0) continue;
      out.knot[static_cast<std::size_t>(out.count)] = base + i + 1;
      out.weight[static_cast<std::size_t>(out.count)] = weight * part;
      ++out.count;
    }
  }
  return out;
}

namespace {

// What the corners of `axes` axes, of several knots each, add up to in the order of correction_corners().
template <std::size_t axes>
double interpolate(const Correction& c, std::span<const double> at) {
  std::array<std::size_t, std::size_t{1} << axes> knot{};
  std::array<double, std::size_t{1} << axes> weight{1};
  for (std::size_t a = 0; a < axes; ++a) {
    const int last = c.knots[a] - 1;
    const double place = std::clamp((at[a] - c.first[a]) / c.step[a], 0.0, static_cast<double>(last));
    const int i = std::min(static_cast<int>(place), last - 1);
    const double part = place - i;
    const std::size_t before = std::size_t{1} << a;
#pragma GCC unroll 8
    for (std::size_t k = 0; k < before; ++k) {
      knot[k] = knot[k] * static_cast<std::size_t>(c.knots[a]) + static_cast<std::size_t>(i);
      knot[before + k] = knot[k] + 1;
      weight[before + k] = weight[k] * part;
      weight[k] = weight[k] * (1 - part);
    }
  }
  double sum = 0;
#pragma GCC unroll 16
  for (std::size_t k = 0; k < knot.size(); ++k) sum += weight[k] * c.values[knot[k]];
  return sum;
}

}  // namespace

double Correction::at(std::span<const double> coordinates) const {
  if (values.empty()) return 0;
  if (std::find(knots.begin(), knots.end(), 1) == knots.end()) {
    switch (knots.size()) {
      case 2:
        return interpolate<2>(*this, coordinates);
      case 3:
        return interpolate<3>(*this, coordinates);
      case 4:
        return interpolate<4>(*this, coordinates);
      default:
        break;
    }
  }
  const CorrectionCorners c = correction_corners(*this, coordinates);
  double sum = 0;
  for (int i = 0; i < c.count; ++i)
    sum += c.weight[static_cast<std::size_t>(i)] *
           values[static_cast<std::size_t>(c.knot[static_cast<std::size_t>(i)])];
  return sum;
}

double predict(const Form& form, const FormContext& context, std::span<const double> parameters,
               const Correction& correction, std::span<const double> x) {
  const double base = form.seconds(x, context, parameters);
  if (correction.empty()) return base;
  double at[kMostAxes];
  form.coordinates(x, context, at);
  return base * std::exp(correction.at(std::span(at, form.axes.size())));
}

}  // namespace shardline
