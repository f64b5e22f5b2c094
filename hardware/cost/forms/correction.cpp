#include "hardware/cost/forms/correction.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// The knot before a coordinate, and how far it is to the next one.
struct AxisPlace {
  int knot;
  double part;
};
AxisPlace between_places(std::span<const double> places, double at) {
  if (places.size() == 1 || at <= places.front()) return {0, 0};
  const auto last = static_cast<int>(places.size()) - 1;
  if (at >= places.back()) return {last - 1, 1};
  const auto after = std::upper_bound(places.begin(), places.end(), at);
  const auto knot = static_cast<int>(after - places.begin()) - 1;
  return {knot, (at - after[-1]) / (*after - after[-1])};
}
AxisPlace axis_place(const Correction& c, std::size_t a, double at) {
  if (!c.uneven.empty()) return between_places(c.uneven[a], at);
  const int last = c.knots[a] - 1;
  const double place = std::clamp((at - c.first[a]) / c.step[a], 0.0, static_cast<double>(last));
  const int knot = std::min(static_cast<int>(place), std::max(0, last - 1));
  return {knot, place - knot};
}

// The sum of correction_corners(), in its order, for a number of axes that the compiler knows, without loops:
// it is a good part of what a price takes. Corners that an axis of one knot does not have weigh nothing.
template <std::size_t Axes>
double corner_sum(const KnotPlace* places, const double* values) {
  struct Corner {
    double weight;
    const double* value;
  };
  Corner corners[1 << Axes];
  for (std::size_t a = 0; a < Axes; ++a) values += places[a].knot;
  corners[0] = {1, values};
  const auto split = [&]<std::size_t... K>(const KnotPlace& p, std::index_sequence<K...>) {
    const double rest = 1 - p.part;
    ((corners[sizeof...(K) + K] = {corners[K].weight * p.part, corners[K].value + p.to_next},
      corners[K].weight *= rest),
     ...);
  };
  const auto split_all = [&]<std::size_t... A>(std::index_sequence<A...>) {
    (split(places[A], std::make_index_sequence<std::size_t{1} << A>()), ...);
  };
  split_all(std::make_index_sequence<Axes>());
  const auto sum = [&]<std::size_t... K>(std::index_sequence<K...>) {
    return (0.0 + ... + (corners[K].weight * *corners[K].value));
  };
  return sum(std::make_index_sequence<std::size_t{1} << Axes>());
}

}  // namespace

CorrectionCorners correction_corners(const Correction& c, std::span<const double> at) {
  CorrectionCorners out;
  out.knot[0] = 0;
  out.weight[0] = 1;
  out.count = 1;
  for (std::size_t a = 0; a < c.knots.size(); ++a) {
    const auto [i, part] = axis_place(c, a, at[a]);
    const int before = out.count;
    for (int k = 0; k < before; ++k) {
      const auto at_k = static_cast<std::size_t>(k);
      const int base = out.knot[at_k] * c.knots[a];
      const double weight = out.weight[at_k];
      out.knot[at_k] = base + i;
      out.weight[at_k] = weight * (1 - part);
      if (c.knots[a] == 1) continue;
      out.knot[static_cast<std::size_t>(out.count)] = base + i + 1;
      out.weight[static_cast<std::size_t>(out.count)] = weight * part;
      ++out.count;
    }
  }
  return out;
}

double Correction::at(std::span<const double> coordinates) const {
  if (values.empty()) return 0;
  std::array<KnotPlace, kMostAxes> places;
  std::size_t stride = 1;
  for (std::size_t a = knots.size(); a-- > 0; stride *= static_cast<std::size_t>(knots[a]))
    places[a] = place(a, stride, coordinates[a]);
  return between(std::span(places).first(knots.size()));
}

std::size_t Correction::stride(std::size_t axis) const {
  std::size_t out = 1;
  for (std::size_t a = axis + 1; a < knots.size(); ++a) out *= static_cast<std::size_t>(knots[a]);
  return out;
}

KnotPlace Correction::place(std::size_t axis, std::size_t stride, double coordinate) const {
  const AxisPlace at = axis_place(*this, axis, coordinate);
  return {at.part, static_cast<std::size_t>(at.knot) * stride, knots[axis] == 1 ? 0 : stride};
}

double Correction::between(std::span<const KnotPlace> places) const {
  switch (places.size()) {
    case 1:
      return corner_sum<1>(places.data(), values.data());
    case 2:
      return corner_sum<2>(places.data(), values.data());
    case 3:
      return corner_sum<3>(places.data(), values.data());
    case 4:
      return corner_sum<4>(places.data(), values.data());
    default:
      SL_CHECK(false, "a correction has one to four axes");
  }
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
