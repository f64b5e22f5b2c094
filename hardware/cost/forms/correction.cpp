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

double Correction::at(std::span<const double> coordinates) const {
  if (values.empty()) return 0;
  const CorrectionCorners c = correction_corners(*this, coordinates);
  double sum = 0;
  for (int i = 0; i < c.count; ++i)
    sum += c.weight[static_cast<std::size_t>(i)] *
           values[static_cast<std::size_t>(c.knot[static_cast<std::size_t>(i)])];
  return sum;
}

double predict(const Form& form, const FormContext& context, std::span<const double> parameters,
               const Correction& correction, std::span<const double> x) {
  double at[kMostAxes];
  if (!correction.empty()) form.coordinates(x, context, at);
  return predict(form, context, parameters, correction, x, std::span(at, form.axes.size()));
}

double predict(const Form& form, const FormContext& context, std::span<const double> parameters,
               const Correction& correction, std::span<const double> x, std::span<const double> coordinates) {
  const double base = form.seconds(x, context, parameters);
  return correction.empty() ? base : base * std::exp(correction.at(coordinates));
}

}  // namespace shardline
