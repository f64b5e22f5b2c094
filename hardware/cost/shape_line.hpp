// Prices of shapes that differ in their tokens alone, as the batches of one plan do. hardware/README.md
// [H50].
#pragma once

#include <array>
#include <span>
#include <vector>

#include "hardware/cost/calibration.hpp"

namespace shardline {

/// A fitted kernel as it is used: its parameters and correction may be others than the fit's own [H57].
struct UsedKernel {
  const KernelFit& fit;
  const FormContext& context;
  std::span<const double> parameters;
  const Correction& correction;
};

/// A kernel at all shapes that are alike but for the number that grows with tokens (FormSteps::number). What
/// the other numbers say of time, correction and measured rows is found once.
class ShapeLine {
 public:
  /// Whether x lies on the line, by the bits of its numbers.
  bool holds(const FormSteps& steps, std::span<const double> x) const;
  /// The line through x. Kernel and steps are the same in all that follows.
  void start(const UsedKernel& kernel, std::span<const double> x);

  /// FormSteps::coordinate of a shape on the line.
  double coordinate(const UsedKernel& kernel, std::span<const double> x) const;
  /// Form::coordinates of the shape with this coordinate along the line, until the next call.
  std::span<const double> where(const UsedKernel& kernel, double coordinate) {
    at_[kernel.fit.form->steps->axis] = coordinate;
    return std::span(at_).first(kernel.fit.form->axes.size());
  }
  /// predict(), to the bit.
  double seconds(const UsedKernel& kernel, std::span<const double> x, double coordinate);
  /// KernelFit::outside().
  bool outside(const UsedKernel& kernel, double coordinate) const;

 private:
  std::size_t numbers_ = 0;  // 0: no line
  std::array<double, kMostNumbers> x_;
  std::array<double, kMostDerived> derived_;
  std::array<double, kMostAxes> at_;         // coordinates; along the line: of the shape asked last
  std::array<KnotPlace, kMostAxes> places_;  // along the line: of the shape asked last
  std::size_t stride_ = 0;                   // of the correction's values, along the line
  bool in_range_ = false;                    // on the other axes
  MeasuredCells::Line cells_;
};

/// The last lines that were asked for, of one kernel. Holds no more than what follows from the kernel and the
/// numbers that a line is found by, so what was asked before changes nothing.
class ShapeLines {
 public:
  /// Until the next call.
  ShapeLine& through(const UsedKernel& kernel, std::span<const double> x);

 private:
  std::vector<ShapeLine> lines_;  // direct-mapped; empty until asked
};

}  // namespace shardline
