// Rows of kernels that a library's tuner chose badly, kept apart from the fit. calibrate/README.md [F7].
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "calibrate/fit.hpp"

namespace shardline {

/// A curve is slow where the median of measured / fitted is above this: between what the fast rows of fused
/// experts scatter by (their 90th percentile is 1.15) and what slow ones take (1.6 to 5).
inline constexpr double kSlowTactic = 1.5;

/// A fit to the rows of fast kernels, and which rows these are.
struct Regimes {
  FitResult fit;
  std::vector<std::size_t> fast, slow;  // rows, in ascending order
};

/// [F7] Fits, takes curves (tuned_curve()) apart that lie more than kSlowTactic above the fit, fits again to
/// the rest, until nothing changes. All rows are fast where the form has no curves, or too few would be left.
/// Deterministic.
Regimes fit_regimes(const Form& form, const FormContext& context, const FitRows& rows,
                    const FitOptions& options = {});

/// How often and by how much the slow rows are slower than `correction` on `parameters` says. Nothing where
/// no row is.
std::optional<SlowTactics> slow_tactics(const Form& form, const FormContext& context, const FitRows& rows,
                                        const Regimes& regimes, const Correction& correction);

}  // namespace shardline
