#include "calibrate/regimes.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

constexpr int kMostRounds = 4;  // of fit and division; the shipped tables need two or three

using Curve = std::vector<double>;

double quantile(std::vector<double>& v, double q) {
  std::sort(v.begin(), v.end());
  const double at = q * static_cast<double>(v.size() - 1);
  const auto i = static_cast<std::size_t>(at);
  const double next = v[std::min(i + 1, v.size() - 1)];
  return v[i] + (at - static_cast<double>(i)) * (next - v[i]);
}

std::map<Curve, std::vector<std::size_t>> curves_of(const Form& form, const FitRows& rows) {
  std::map<Curve, std::vector<std::size_t>> out;
  CancelCheck check;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    check();
    out[tuned_curve(form, rows.x(i))].push_back(i);
  }
  return out;
}

// Rows of the curves that lie far above a fit, in ascending order.
std::vector<std::size_t> slow_rows(const Form& form, const FormContext& context, const FitRows& rows,
                                   std::span<const double> parameters) {
  std::vector<std::size_t> out;
  std::vector<double> above;
  CancelCheck check;
  for (const auto& [curve, own] : curves_of(form, rows)) {
    above.clear();
    for (const std::size_t i : own) {
      check();
      above.push_back(rows.seconds[i] / form.seconds(rows.x(i), context, parameters));
    }
    if (quantile(above, 0.5) > kSlowTactic) out.insert(out.end(), own.begin(), own.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::size_t> others(std::size_t count, const std::vector<std::size_t>& slow) {
  std::vector<std::size_t> all(count), out;
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::set_difference(all.begin(), all.end(), slow.begin(), slow.end(), std::back_inserter(out));
  return out;
}

}  // namespace

Regimes fit_regimes(const Form& form, const FormContext& context, const FitRows& rows,
                    const FitOptions& options) {
  Regimes out;
  out.fit = fit(form, context, rows, options);
  out.fast = others(rows.size(), {});
  if (rows.size() == 0 || tuned_curve(form, rows.x(0)).empty()) return out;
  const Regimes together = out;
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<std::size_t> slow = slow_rows(form, context, rows, out.fit.parameters);
    if (slow == out.slow) break;
    if (rows.size() - slow.size() < form.parameters.size()) return together;
    out.slow = std::move(slow);
    out.fast = others(rows.size(), out.slow);
    out.fit = fit(form, context, rows.only(out.fast), options);
  }
  return out;
}

std::optional<SlowTactics> slow_tactics(const Form& form, const FormContext& context, const FitRows& rows,
                                        const Regimes& regimes, const Correction& correction) {
  if (regimes.slow.empty()) return std::nullopt;
  SlowTactics out;
  out.rows = regimes.slow.size();
  out.of_rows = rows.size();
  out.of_curves = curves_of(form, rows).size();
  std::vector<double> above;
  std::set<Curve> curves;
  CancelCheck check;
  for (const std::size_t i : regimes.slow) {
    check();
    curves.insert(tuned_curve(form, rows.x(i)));
    above.push_back(rows.seconds[i] / predict(form, context, regimes.fit.parameters, correction, rows.x(i)));
  }
  out.curves = curves.size();
  out.median = quantile(above, 0.5);
  out.p90 = quantile(above, 0.9);
  // What the correction of the others explains is the form's error and no tactic's.
  if (out.median <= kSlowTactic) return std::nullopt;
  return out;
}

}  // namespace shardline
