#include "calibrate/fit.hpp"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <Eigen/QR>
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "calibrate/regimes.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

using Vector = Eigen::VectorXd;
using Matrix = Eigen::MatrixXd;

/// Square up to `outlier`, linear beyond (Huber): the loss, and the weight that gives it as a square.
double loss_of(double residual, double outlier) {
  const double r = std::abs(residual);
  return r <= outlier ? r * r : 2 * outlier * r - outlier * outlier;
}
double weight_of(double residual, double outlier) {
  const double r = std::abs(residual);
  return r <= outlier ? 1 : outlier / r;
}

struct Problem {
  const Form& form;
  const FormContext& context;
  const FitRows& rows;
  double outlier;
  Vector low, high;  // logarithms

  Vector residuals(const Vector& logs) const {
    std::vector<double> p(form.parameters.size());
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = std::exp(logs(static_cast<Eigen::Index>(i)));
    Vector r(static_cast<Eigen::Index>(rows.size()));
    CancelCheck check;  // tables have ten thousands of rows
    for (std::size_t i = 0; i < rows.size(); ++i) {
      check();
      r(static_cast<Eigen::Index>(i)) = std::log(form.seconds(rows.x(i), context, p) / rows.seconds[i]);
    }
    return r;
  }
  double loss(const Vector& r) const {
    double sum = 0;
    for (Eigen::Index i = 0; i < r.size(); ++i) sum += loss_of(r(i), outlier);
    return std::isfinite(sum) ? sum / static_cast<double>(r.size()) : HUGE_VAL;
  }
  /// One-sided differences, into the box.
  Matrix jacobian(const Vector& logs, const Vector& r) const {
    constexpr double kStep = 1e-5;
    Matrix j(r.size(), logs.size());
    for (Eigen::Index i = 0; i < logs.size(); ++i) {
      Vector moved = logs;
      const double step = logs(i) + kStep <= high(i) ? kStep : -kStep;
      moved(i) += step;
      j.col(i) = (residuals(moved) - r) / step;
    }
    return j;
  }
};

Matrix normal_matrix(const Matrix& j, const Vector& weights) {
  return j.transpose() * weights.asDiagonal() * j;
}

Vector weights_of(const Vector& r, double outlier) {
  Vector w(r.size());
  for (Eigen::Index i = 0; i < r.size(); ++i) w(i) = weight_of(r(i), outlier);
  return w;
}

/// 95 % intervals from the curvature at the solution; parameters at a bound are not shared out to others.
void intervals(const Problem& problem, const Vector& logs, FitResult& out) {
  const Vector r = problem.residuals(logs);
  const Matrix j = problem.jacobian(logs, r);
  const Vector w = weights_of(r, problem.outlier);
  Matrix a = normal_matrix(j, w);
  const Eigen::Index n = a.rows();
  std::vector<bool> bound(static_cast<std::size_t>(n));
  for (Eigen::Index i = 0; i < n; ++i) {
    bound[static_cast<std::size_t>(i)] =
        logs(i) <= problem.low(i) + 1e-9 || logs(i) >= problem.high(i) - 1e-9 || !(a(i, i) > 0);
    if (bound[static_cast<std::size_t>(i)]) {
      a.row(i).setZero();
      a.col(i).setZero();
      a(i, i) = 1;
    }
  }
  const double freedom = std::max(1.0, static_cast<double>(r.size() - n));
  const double variance = (w.array() * r.array().square()).sum() / freedom;
  const Matrix covariance = variance * a.ldlt().solve(Matrix::Identity(n, n));
  for (Eigen::Index i = 0; i < n; ++i) {
    const double at = std::exp(logs(i));
    const double half =
        bound[static_cast<std::size_t>(i)] ? 0 : 1.96 * std::sqrt(std::max(0.0, covariance(i, i)));
    out.low.push_back(std::max(std::exp(problem.low(i)), at * std::exp(-half)));
    out.high.push_back(std::min(std::exp(problem.high(i)), at * std::exp(half)));
  }
}

}  // namespace

FitRows FitRows::only(std::span<const std::size_t> which) const {
  FitRows out;
  out.width = width;
  for (const std::size_t i : which) {
    const auto row = x(i);
    out.numbers.insert(out.numbers.end(), row.begin(), row.end());
    out.seconds.push_back(seconds[i]);
  }
  out.kin_numbers = kin_numbers;
  out.kin_seconds = kin_seconds;
  return out;
}

FitRows FitRows::with_kin() const {
  FitRows out{width, numbers, seconds};
  out.numbers.insert(out.numbers.end(), kin_numbers.begin(), kin_numbers.end());
  out.seconds.insert(out.seconds.end(), kin_seconds.begin(), kin_seconds.end());
  return out;
}

FitResult fit(const Form& form, const FormContext& context, const FitRows& own, const FitOptions& options) {
  const FitRows rows = own.with_kin();
  const auto n = static_cast<Eigen::Index>(form.parameters.size());
  if (rows.size() < form.parameters.size()) throw std::invalid_argument("fewer rows than parameters");
  Problem problem{form, context, rows, options.outlier, Vector(n), Vector(n)};
  Vector logs(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    const FormParameter& p = form.parameters[static_cast<std::size_t>(i)];
    problem.low(i) = std::log(p.low);
    problem.high(i) = std::log(p.high);
    logs(i) = std::log(p.start);
  }
  FitResult out;
  Vector r = problem.residuals(logs);
  double loss = problem.loss(r), damping = 1e-2;
  int idle = 0;
  while (out.steps < options.most_steps && idle < 2) {
    check_cancelled();
    ++out.steps;
    const Matrix j = problem.jacobian(logs, r);
    const Vector w = weights_of(r, options.outlier);
    const Matrix a = normal_matrix(j, w);
    const Vector g = j.transpose() * (w.array() * r.array()).matrix();
    bool better = false;
    for (int trial = 0; trial < 12 && !better; ++trial) {
      Matrix damped = a;
      for (Eigen::Index i = 0; i < n; ++i) damped(i, i) += damping * std::max(a(i, i), 1e-12);
      Vector step = -damped.ldlt().solve(g);
      // A step of more than a factor of e is outside of what the derivatives know.
      step = step.cwiseMax(-1.0).cwiseMin(1.0);
      const Vector moved = (logs + step).cwiseMax(problem.low).cwiseMin(problem.high);
      const Vector moved_r = problem.residuals(moved);
      const double moved_loss = problem.loss(moved_r);
      if (moved_loss < loss) {
        idle = moved_loss > loss * (1 - options.tolerance) ? idle + 1 : 0;
        logs = moved;
        r = moved_r;
        loss = moved_loss;
        damping = std::max(damping / 5, 1e-9);
        better = true;
      } else {
        damping = std::min(damping * 4, 1e9);
      }
    }
    if (!better) break;
  }
  out.loss = loss;
  for (Eigen::Index i = 0; i < n; ++i) out.parameters.push_back(std::exp(logs(i)));
  intervals(problem, logs, out);
  return out;
}

std::size_t told_parameters(const Form& form, std::span<const std::string> words, const System& system,
                            const FitRows& rows) {
  constexpr double kStep = 1e-5, kNothing = 1e-9, kAlike = 1e-4;
  FormContext context;
  form.context(words, system, context);
  std::vector<double> p;
  for (const FormParameter& one : form.parameters) p.push_back(one.start);
  const auto count = static_cast<Eigen::Index>(p.size()), all = static_cast<Eigen::Index>(rows.size());
  Eigen::MatrixXd slopes(all, count);  // of the logarithm of a row's time by that of a parameter
  CancelCheck check;
  for (Eigen::Index i = 0; i < count; ++i) {
    const double start = p[static_cast<std::size_t>(i)];
    for (Eigen::Index row = 0; row < all; ++row) {
      check();
      const auto x = rows.x(static_cast<std::size_t>(row));
      p[static_cast<std::size_t>(i)] = start * std::exp(kStep);
      const double above = form.seconds(x, context, p);
      p[static_cast<std::size_t>(i)] = start * std::exp(-kStep);
      slopes(row, i) = std::log(above / form.seconds(x, context, p)) / (2 * kStep);
    }
    p[static_cast<std::size_t>(i)] = start;
    const double norm = slopes.col(i).norm();
    slopes.col(i) *= norm > kNothing ? 1 / norm : 0;
  }
  return static_cast<std::size_t>(
      Eigen::ColPivHouseholderQR<Eigen::MatrixXd>(slopes).setThreshold(kAlike).rank());
}

FitError summarise(std::span<const double> predicted, std::span<const double> measured) {
  FitError out;
  out.rows = predicted.size();
  if (predicted.empty()) return out;
  std::vector<double> absolute(predicted.size()), relative(predicted.size());
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    relative[i] = predicted[i] / measured[i] - 1;
    absolute[i] = std::abs(relative[i]);
  }
  // Of a million values these two are found ten times as fast as all are sorted.
  const auto quantile = [](std::vector<double>& v, double q) {
    check_cancelled();
    const double at = q * static_cast<double>(v.size() - 1);
    const auto i = static_cast<std::ptrdiff_t>(at);
    std::nth_element(v.begin(), v.begin() + i, v.end());
    const double here = v[static_cast<std::size_t>(i)];
    const auto above = std::min_element(v.begin() + i + 1, v.end());
    const double next = above == v.end() ? here : *above;
    return here + (at - static_cast<double>(i)) * (next - here);
  };
  out.median = quantile(absolute, 0.5);
  out.p90 = quantile(absolute, 0.9);
  out.worst = *std::max_element(absolute.begin(), absolute.end());
  out.bias = quantile(relative, 0.5);
  return out;
}

int fold_of(std::span<const double> x, int folds, std::uint64_t seed) {
  // FNV-1a over the bits, then mixed: neighbours must not fall into folds in turn.
  std::uint64_t h = 14695981039346656037ull ^ seed;
  for (const double v : x) {
    const auto bits = std::bit_cast<std::uint64_t>(v);
    for (int i = 0; i < 64; i += 8) h = (h ^ (bits >> i & 0xff)) * 1099511628211ull;
  }
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdull;
  h ^= h >> 33;
  return static_cast<int>(h % static_cast<std::uint64_t>(folds));
}

namespace {

/// t0 + max(work / (e_c peak), traffic / (e_m bandwidth)), what every form is compared with; x: work,
/// traffic.
constexpr FormParameter kRoofline[] = {
    {"t0", "us", 0.01, 5, 1e4}, {"e_compute", "1", 1e-3, 0.6, 2}, {"e_memory", "1", 1e-3, 0.7, 2}};

Form roofline_form() {
  Form f{};
  f.parameters = kRoofline;
  f.seconds = [](std::span<const double> x, const FormContext& c, std::span<const double> p) {
    return p[0] * 1e-6 + std::max(c.flops > 0 ? x[0] / (p[1] * c.flops) : 0, x[1] / (p[2] * c.bandwidth));
  };
  return f;
}

FitRows roofline_rows(const Form& form, const FormContext& context, const FitRows& rows) {
  FitRows out;
  out.width = 2;
  out.seconds = rows.seconds;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out.numbers.push_back(form.work(rows.x(i), context));
    out.numbers.push_back(form.traffic(rows.x(i), context));
  }
  return out;
}

HeldOut held_out(std::span<const double> predicted, std::span<const double> measured,
                 std::span<const int> groups) {
  HeldOut out;
  for (std::size_t i = 0; i < predicted.size(); ++i) out.add(std::log(measured[i] / predicted[i]), groups[i]);
  return out;
}

}  // namespace

CrossValidation cross_validate(const Form& form, const FormContext& context, const FitRows& rows, int folds,
                               const FitOptions& options, std::span<const CorrectionGrid> grids) {
  const Form roofline = roofline_form();
  const FitRows plain = roofline_rows(form, context, rows);
  std::vector<double> measured, by_roofline, by_form;
  std::vector<std::vector<double>> by_correction(grids.size());
  std::vector<int> folds_of;
  CancelCheck check;
  for (int fold = 0; fold < folds; ++fold) {
    check_cancelled();
    std::vector<std::size_t> inside, outside;
    for (std::size_t i = 0; i < rows.size(); ++i)
      (fold_of(rows.x(i), folds) == fold ? outside : inside).push_back(i);
    if (outside.empty()) continue;
    const FitRows seen = rows.only(inside), unseen = rows.only(outside);
    if (seen.size() < std::max(form.parameters.size(), std::size(kRoofline))) continue;
    const FitResult base = fit(roofline, context, plain.only(inside), options);
    const Regimes regimes = fit_regimes(form, context, seen, options);
    const FitResult& own = regimes.fit;
    const FitRows fast = seen.only(regimes.fast);
    for (std::size_t i = 0; i < unseen.size(); ++i) {
      check();
      measured.push_back(unseen.seconds[i]);
      folds_of.push_back(fold);
      by_roofline.push_back(roofline.seconds(plain.x(outside[i]), context, base.parameters));
      by_form.push_back(form.seconds(unseen.x(i), context, own.parameters));
    }
    for (std::size_t s = 0; s < grids.size(); ++s) {
      const Correction c = fit_correction(form, context, fast, own.parameters, grids[s], options);
      for (std::size_t i = 0; i < unseen.size(); ++i) {
        check();
        by_correction[s].push_back(predict(form, context, own.parameters, c, unseen.x(i)));
      }
    }
  }
  CrossValidation out;
  out.roofline = summarise(by_roofline, measured);
  out.form = summarise(by_form, measured);
  out.by_form = held_out(by_form, measured, folds_of);
  for (std::size_t s = 0; s < grids.size(); ++s) {
    check_cancelled();
    const FitError e = summarise(by_correction[s], measured);
    out.tried.push_back({grids[s], e, held_out(by_correction[s], measured, folds_of)});
    const double at_most = grids[s].dense() && !out.grid.dense() ? kFineGain : 1;
    if (s == 0 || e.median + e.p90 < at_most * (out.corrected.median + out.corrected.p90)) {
      out.corrected = e;
      out.grid = grids[s];
      out.by_correction = out.tried.back().residuals;
    }
  }
  return out;
}

}  // namespace shardline
