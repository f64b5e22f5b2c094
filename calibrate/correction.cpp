#include <Eigen/IterativeLinearSolvers>
#include <Eigen/SparseCore>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "calibrate/fit.hpp"

namespace shardline {

namespace {

constexpr int kMostKnots = 6000;

using Triplet = Eigen::Triplet<double>;

// Where rows lie on the axes of a form.
class RowPlaces {
 public:
  RowPlaces(const Form& form, const FormContext& context, const FitRows& rows)
      : axes_(form.axes.size()), at_(rows.size()) {
    for (std::size_t i = 0; i < rows.size(); ++i) form.coordinates(rows.x(i), context, at_[i].data());
  }

  std::span<const double> operator[](std::size_t row) const { return std::span(at_[row].data(), axes_); }

  std::vector<double> lowest() const {
    std::vector<double> low(axes_, std::numeric_limits<double>::infinity());
    for (const auto& place : at_) {
      for (std::size_t a = 0; a < axes_; ++a) low[a] = std::min(low[a], place[a]);
    }
    return low;
  }
  std::vector<double> highest() const {
    std::vector<double> high(axes_, -std::numeric_limits<double>::infinity());
    for (const auto& place : at_) {
      for (std::size_t a = 0; a < axes_; ++a) high[a] = std::max(high[a], place[a]);
    }
    return high;
  }

 private:
  std::size_t axes_;
  std::vector<std::array<double, kMostAxes>> at_;
};

// A correction without values whose knots are as far apart as the form says, farther where there would be too
// many.
Correction spread_knots(const Form& form, const RowPlaces& places, bool fine) {
  const std::size_t axes = form.axes.size();
  const std::vector<double> low = places.lowest(), high = places.highest();
  Correction out;
  for (double stretch = 1;; stretch *= 1.25) {
    out.first = low;
    out.step.assign(axes, 1);
    out.knots.assign(axes, 1);
    double all = 1;
    for (std::size_t a = 0; a < axes; ++a) {
      const double knot = fine ? form.axes[a].fine_knot() : form.axes[a].knot;
      const int pieces = static_cast<int>(std::ceil((high[a] - low[a]) / (knot * stretch) - 1e-9));
      out.knots[a] = pieces + 1;
      if (pieces > 0) out.step[a] = (high[a] - low[a]) / pieces;
      all *= out.knots[a];
    }
    if (all <= kMostKnots) return out;
  }
}

// The square of a difference of knots that are `stride` apart from `first` on.
template <std::size_t Knots>
void add_difference(std::vector<Triplet>& smooth, int first, int stride,
                    const std::array<double, Knots>& difference, double smoothing) {
  for (std::size_t i = 0; i < Knots; ++i) {
    for (std::size_t j = 0; j < Knots; ++j)
      smooth.emplace_back(first + static_cast<int>(i) * stride, first + static_cast<int>(j) * stride,
                          smoothing * difference[i] * difference[j]);
  }
}

// Squared second differences along each axis, and a little ridge so that empty corners are flat. What many
// forms leave are steps, where a library takes another kernel: second differences alone overshoot at both
// sides of one.
std::vector<Triplet> smoothness(const Correction& correction, int knots, const CorrectionGrid& grid) {
  constexpr std::array<double, 2> kFirst{1, -1};
  constexpr std::array<double, 3> kSecond{1, -2, 1};
  std::vector<Triplet> smooth;
  int stride = knots;
  for (const int along : correction.knots) {
    stride /= along;
    for (int k = 0; k < knots; ++k) {
      const int place = k / stride % along;
      if (grid.steps && place + 1 < along) add_difference(smooth, k, stride, kFirst, grid.smoothing);
      if (place + 2 < along) add_difference(smooth, k, stride, kSecond, grid.smoothing);
    }
  }
  for (int k = 0; k < knots; ++k) smooth.emplace_back(k, k, 0.1);
  return smooth;
}

// Values of the knots by least squares of the rows' residuals; `entries` of the normal equations come with
// those of the smoothness. `values` are where the search begins.
Eigen::VectorXd solve_knots(const Eigen::VectorXd& values, std::vector<Triplet> entries,
                            std::span<const CorrectionCorners> corners, std::span<const double> residual,
                            std::span<const double> weight) {
  const Eigen::Index knots = values.size();
  Eigen::VectorXd right = Eigen::VectorXd::Zero(knots);
  for (std::size_t i = 0; i < corners.size(); ++i) {
    const CorrectionCorners& c = corners[i];
    for (int k = 0; k < c.count; ++k) {
      const auto at_k = static_cast<std::size_t>(k);
      right(c.knot[at_k]) += weight[i] * c.weight[at_k] * residual[i];
      for (int l = 0; l < c.count; ++l) {
        const auto at_l = static_cast<std::size_t>(l);
        entries.emplace_back(c.knot[at_k], c.knot[at_l], weight[i] * c.weight[at_k] * c.weight[at_l]);
      }
    }
  }
  Eigen::SparseMatrix<double> matrix(knots, knots);
  matrix.setFromTriplets(entries.begin(), entries.end());
  // A grid of four axes fills most of a factor. Values are stored to 1e-3.
  Eigen::ConjugateGradient<Eigen::SparseMatrix<double>, Eigen::Lower | Eigen::Upper> solver;
  solver.setTolerance(1e-7);
  return solver.compute(matrix).solveWithGuess(right, values);
}

}  // namespace

Correction fit_correction(const Form& form, const FormContext& context, const FitRows& rows,
                          std::span<const double> parameters, const CorrectionGrid& grid,
                          const FitOptions& options) {
  if (form.axes.empty() || rows.size() == 0) return {};
  const RowPlaces places(form, context, rows);
  Correction out = spread_knots(form, places, grid.fine);
  int knots = 1;
  for (const int k : out.knots) knots *= k;

  std::vector<CorrectionCorners> corners(rows.size());
  std::vector<double> residual(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    corners[i] = correction_corners(out, places[i]);
    residual[i] = std::log(rows.seconds[i] / form.seconds(rows.x(i), context, parameters));
  }
  const std::vector<Triplet> smooth = smoothness(out, knots, grid);

  // Rows far off count less, as in fit(): three rounds of weights.
  std::vector<double> weight(rows.size(), 1);
  Eigen::VectorXd values = Eigen::VectorXd::Zero(knots);
  for (int round = 0; round < 3; ++round) {
    values = solve_knots(values, smooth, corners, residual, weight);
    out.values.assign(values.data(), values.data() + values.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double left = std::abs(residual[i] - out.at(places[i]));
      weight[i] = left <= options.outlier ? 1 : options.outlier / left;
    }
  }
  out.smoothing = grid.smoothing;
  return out;
}

}  // namespace shardline
