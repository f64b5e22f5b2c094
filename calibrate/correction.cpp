#include <Eigen/SparseCholesky>
#include <Eigen/SparseCore>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "calibrate/fit.hpp"

namespace shardline {

namespace {

constexpr int kMostKnots = 4000;

}  // namespace

Correction fit_correction(const Form& form, const FormContext& context, const FitRows& rows,
                          std::span<const double> parameters, double smoothing, const FitOptions& options) {
  const std::size_t axes = form.axes.size();
  Correction out;
  if (axes == 0 || rows.size() == 0) return out;
  std::vector<std::array<double, kMostAxes>> at(rows.size());
  std::vector<double> low(axes, std::numeric_limits<double>::infinity()), high(axes, -low[0]);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    form.coordinates(rows.x(i), context, at[i].data());
    for (std::size_t a = 0; a < axes; ++a) {
      low[a] = std::min(low[a], at[i][a]);
      high[a] = std::max(high[a], at[i][a]);
    }
  }
  // Knots as far apart as the form says, farther where there would be too many.
  for (double stretch = 1;; stretch *= 1.25) {
    out.first = low;
    out.step.assign(axes, 1);
    out.knots.assign(axes, 1);
    double all = 1;
    for (std::size_t a = 0; a < axes; ++a) {
      const int pieces =
          static_cast<int>(std::ceil((high[a] - low[a]) / (form.axes[a].knot * stretch) - 1e-9));
      out.knots[a] = pieces + 1;
      if (pieces > 0) out.step[a] = (high[a] - low[a]) / pieces;
      all *= out.knots[a];
    }
    if (all <= kMostKnots) break;
  }
  int knots = 1;
  for (const int k : out.knots) knots *= k;

  using Triplet = Eigen::Triplet<double>;
  std::vector<Triplet> entries;
  Eigen::VectorXd right = Eigen::VectorXd::Zero(knots);
  std::vector<CorrectionCorners> corners(rows.size());
  std::vector<double> residual(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    corners[i] = correction_corners(out, std::span(at[i].data(), axes));
    residual[i] = std::log(rows.seconds[i] / form.seconds(rows.x(i), context, parameters));
  }
  std::vector<Triplet> smooth;
  // Squared second differences along each axis, and a little ridge so that empty corners are flat.
  int stride = knots;
  for (std::size_t a = 0; a < axes; ++a) {
    stride /= out.knots[a];
    for (int k = 0; k < knots; ++k) {
      const int place = k / stride % out.knots[a];
      if (place == 0 || place + 1 >= out.knots[a]) continue;
      const std::array<int, 3> where{k - stride, k, k + stride};
      constexpr std::array<double, 3> kDifference{1, -2, 1};
      for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t j = 0; j < 3; ++j)
          smooth.emplace_back(where[i], where[j], smoothing * kDifference[i] * kDifference[j]);
      }
    }
  }
  for (int k = 0; k < knots; ++k) smooth.emplace_back(k, k, 0.1);

  // Rows far off count less, as in fit(): three rounds of weights.
  std::vector<double> weight(rows.size(), 1);
  for (int round = 0; round < 3; ++round) {
    entries = smooth;
    right.setZero();
    for (std::size_t i = 0; i < rows.size(); ++i) {
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
    const Eigen::SimplicialLDLT<Eigen::SparseMatrix<double>> solver(matrix);
    const Eigen::VectorXd values = solver.solve(right);
    out.values.assign(values.data(), values.data() + values.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double left = std::abs(residual[i] - out.at(std::span(at[i].data(), axes)));
      weight[i] = left <= options.outlier ? 1 : options.outlier / left;
    }
  }
  out.smoothing = smoothing;
  return out;
}

}  // namespace shardline
