#include <Eigen/IterativeLinearSolvers>
#include <Eigen/SparseCore>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "calibrate/fit.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr int kMostKnots = 6000, kMostOwnKnots = 12500;

using Triplet = Eigen::Triplet<double>;

// Where rows lie on the axes of a form.
class RowPlaces {
 public:
  RowPlaces(const Form& form, const FormContext& context, const FitRows& rows)
      : axes_(form.axes.size()), at_(rows.size()) {
    for (std::size_t i = 0; i < rows.size(); ++i) form.coordinates(rows.x(i), context, at_[i].data());
  }

  std::span<const double> operator[](std::size_t row) const { return std::span(at_[row].data(), axes_); }

  std::vector<double> along(std::size_t axis) const {
    std::vector<double> out;
    for (const auto& place : at_) out.push_back(place[axis]);
    return out;
  }
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

// Tiles end at 16 rows and at each power of two beyond: how many do before a coordinate.
double edges_before(const FormAxis& axis, double at) {
  constexpr double kFirstEdge = 4;
  return axis.tiled ? std::max(0.0, std::ceil(at - 1e-9) - kFirstEdge) : 0;
}

// Rows of either side of an edge have as little to do with each other as those of two fine knots.
double stretched(const FormAxis& axis, double at) { return at + axis.fine_knot() * edges_before(axis, at); }

// Those of the places, in ascending order, that are at least `gap` apart, both sides of every edge, and the
// last one.
std::vector<double> thinned(const FormAxis& axis, const std::vector<double>& places, double gap) {
  std::vector<double> out;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool ends = i == 0 || i + 1 == places.size() ||
                      edges_before(axis, places[i]) > edges_before(axis, places[i - 1]) ||
                      edges_before(axis, places[i]) < edges_before(axis, places[i + 1]);
    if (ends || places[i] - out.back() >= gap - 1e-9) out.push_back(places[i]);
  }
  return out;
}

// A correction without values whose knots lie where the rows do, farther apart where there would be too many.
Correction own_knots(const Form& form, const RowPlaces& rows) {
  constexpr double kSame = 1e-6;
  const std::size_t axes = form.axes.size();
  std::vector<std::vector<double>> distinct(axes);
  for (std::size_t a = 0; a < axes; ++a) {
    distinct[a] = rows.along(a);
    std::sort(distinct[a].begin(), distinct[a].end());
    const auto same = [](double x, double y) { return y - x < kSame; };
    distinct[a].erase(std::unique(distinct[a].begin(), distinct[a].end(), same), distinct[a].end());
  }
  for (double stretch = 1;; stretch *= 1.25) {
    Correction out;
    double all = 1;
    for (std::size_t a = 0; a < axes; ++a) {
      out.uneven.push_back(thinned(form.axes[a], distinct[a], form.axes[a].own * stretch));
      out.knots.push_back(static_cast<int>(out.uneven[a].size()));
      all *= out.knots[a];
    }
    if (all <= kMostOwnKnots) return out;
  }
}

// The inverse covariance exp(-distance / length) of values at these places, which is three diagonals: the
// first and second of each place.
struct Inverse {
  std::vector<double> own, next;
};
Inverse inverse_covariance(const FormAxis& axis, std::span<const double> places) {
  constexpr double kLength = 2;  // coarse knots
  Inverse out{std::vector<double>(places.size(), 1), std::vector<double>(places.size(), 0)};
  for (std::size_t i = 0; i + 1 < places.size(); ++i) {
    const double apart = stretched(axis, places[i + 1]) - stretched(axis, places[i]);
    const double like = std::exp(-apart / (kLength * axis.knot)), rest = 1 - like * like;
    out.own[i] += like * like / rest;
    out.own[i + 1] += like * like / rest;
    out.next[i] = -like / rest;
  }
  return out;
}

// The prior's square: what the axes know of each other is the product of what each does. Unlike differences
// along one axis at a time it leaves a ridge, all rows of one n say, nearly free, as far as it is one.
std::vector<Triplet> prior(const Form& form, const Correction& correction, int knots, double smoothing) {
  struct Pair {
    int from, to;
    double weight;
  };
  std::vector<Pair> pairs{{0, 0, smoothing}};
  for (std::size_t a = 0; a < form.axes.size(); ++a) {
    const Inverse inverse = inverse_covariance(form.axes[a], correction.uneven[a]);
    const int count = correction.knots[a];
    std::vector<Pair> next;
    next.reserve(pairs.size() * static_cast<std::size_t>(3 * count));
    for (const Pair& p : pairs) {
      for (int i = 0; i < count; ++i) {
        const int from = p.from * count + i, to = p.to * count + i;
        const auto at = static_cast<std::size_t>(i);
        next.push_back({from, to, p.weight * inverse.own[at]});
        if (i + 1 == count) continue;
        next.push_back({from, to + 1, p.weight * inverse.next[at]});
        next.push_back({from + 1, to, p.weight * inverse.next[at]});
      }
    }
    pairs = std::move(next);
  }
  std::vector<Triplet> out;
  out.reserve(pairs.size());
  for (const Pair& p : pairs) {
    SL_CHECK(p.from < knots && p.to < knots, "a pair of knots of the grid");
    out.emplace_back(p.from, p.to, p.weight);
  }
  return out;
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

// Eigen's loops ask whether to stop where they call something of ours: its solver applies the preconditioner
// once in each of its thousands of turns, and a matrix is made of millions of entries.
class AskingPreconditioner : public Eigen::DiagonalPreconditioner<double> {
 public:
  template <class Right>
  auto solve(const Eigen::MatrixBase<Right>& b) const {
    check_cancelled();
    return Eigen::DiagonalPreconditioner<double>::solve(b);
  }
};

struct AskingEntry {
  const Triplet* entry;
  CancelCheck* check;
  const Triplet* operator->() const { return entry; }
  AskingEntry& operator++() {
    (*check)();
    ++entry;
    return *this;
  }
  bool operator!=(const AskingEntry& other) const { return entry != other.entry; }
};

// Values of the knots by least squares of the rows' residuals; `entries` of the normal equations come with
// those of the smoothness. `values` are where the search begins.
Eigen::VectorXd solve_knots(const Eigen::VectorXd& values, std::vector<Triplet> entries,
                            std::span<const CorrectionCorners> corners, std::span<const double> residual,
                            std::span<const double> weight, double tolerance) {
  const Eigen::Index knots = values.size();
  Eigen::VectorXd right = Eigen::VectorXd::Zero(knots);
  CancelCheck of_rows;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    of_rows();
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
  CancelCheck check;
  matrix.setFromTriplets(AskingEntry{entries.data(), &check},
                         AskingEntry{entries.data() + entries.size(), &check});
  // A grid of four axes fills most of a factor.
  Eigen::ConjugateGradient<Eigen::SparseMatrix<double>, Eigen::Lower | Eigen::Upper, AskingPreconditioner>
      solver;
  solver.setTolerance(tolerance);
  return solver.compute(matrix).solveWithGuess(right, values);
}

bool has_own_knots(const Form& form) {
  return std::all_of(form.axes.begin(), form.axes.end(), [](const FormAxis& axis) { return axis.own > 0; });
}

}  // namespace

std::span<const CorrectionGrid> grids_of(const Form& form) {
  return has_own_knots(form) ? std::span<const CorrectionGrid>(kGrids) : kEvenGrids;
}

Correction fit_correction(const Form& form, const FormContext& context, const FitRows& own,
                          std::span<const double> parameters, const CorrectionGrid& grid,
                          const FitOptions& options) {
  if (form.axes.empty() || own.size() == 0) return {};
  const FitRows rows = own.with_kin();
  SL_CHECK(!grid.own || has_own_knots(form), "the form says how far apart own knots lie");
  const RowPlaces places(form, context, rows);
  Correction out = grid.own ? own_knots(form, places) : spread_knots(form, places, grid.fine);
  int knots = 1;
  for (const int k : out.knots) knots *= k;

  std::vector<CorrectionCorners> corners(rows.size());
  std::vector<double> residual(rows.size());
  CancelCheck check;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    check();
    corners[i] = correction_corners(out, places[i]);
    residual[i] = std::log(rows.seconds[i] / form.seconds(rows.x(i), context, parameters));
  }
  const std::vector<Triplet> smooth =
      grid.own ? prior(form, out, knots, grid.smoothing) : smoothness(out, knots, grid);

  // Rows far off count less, as in fit(): three rounds of weights.
  std::vector<double> weight(rows.size(), 1);
  Eigen::VectorXd values = Eigen::VectorXd::Zero(knots);
  for (int round = 0; round < 3; ++round) {
    // Values are stored to 1e-3; a prior bounds what the rows say little of.
    values = solve_knots(values, smooth, corners, residual, weight, grid.own ? 1e-5 : 1e-7);
    out.values.assign(values.data(), values.data() + values.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      check();
      const double left = std::abs(residual[i] - out.at(places[i]));
      weight[i] = left <= options.outlier ? 1 : options.outlier / left;
    }
  }
  out.smoothing = grid.smoothing;
  return out;
}

}  // namespace shardline
