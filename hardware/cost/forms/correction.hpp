// A smooth factor on top of a cost form.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "hardware/cost/forms/form.hpp"

namespace shardline {

/// Where a coordinate lies on one axis of a grid: `part` of the way from a knot to the next one. Both are
/// counted in values of the grid; an axis of one knot has no next one, and `part` is 0.
struct KnotPlace {
  double part = 0;
  std::size_t knot = 0, to_next = 0;
};

/// log(measured / form) on a grid over the form's axes, linear between knots, constant beyond them.
struct Correction {
  std::vector<double> first, step;          // per axis, log2: of knots that are evenly apart
  std::vector<std::vector<double>> uneven;  // per axis, log2, ascending: of knots that are not; else empty
  std::vector<int> knots;                   // per axis
  std::vector<double> values;               // last axis fastest; empty: none
  double smoothing = 0;
  bool empty() const { return values.empty(); }
  /// Natural logarithm of the factor; one coordinate per axis.
  double at(std::span<const double> coordinates) const;
  /// Values between neighbours on an axis.
  std::size_t stride(std::size_t axis) const;
  KnotPlace place(std::size_t axis, std::size_t stride, double coordinate) const;
  /// at() of coordinates that lie at these places, to the bit; one per axis.
  double between(std::span<const KnotPlace> places) const;
};

/// Knots that a point lies between, two per axis, and their weights.
struct CorrectionCorners {
  std::array<int, 1 << kMostAxes> knot;
  std::array<double, 1 << kMostAxes> weight;
  int count = 0;
};
CorrectionCorners correction_corners(const Correction& c, std::span<const double> coordinates);

/// Form times correction, in seconds.
double predict(const Form& form, const FormContext& context, std::span<const double> parameters,
               const Correction& correction, std::span<const double> x);
/// The same where the form's coordinates of x are known.
double predict(const Form& form, const FormContext& context, std::span<const double> parameters,
               const Correction& correction, std::span<const double> x, std::span<const double> coordinates);

}  // namespace shardline
