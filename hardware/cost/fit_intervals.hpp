// How far measurements lie from a fit that had not seen them: nominal 90 % bands, kept with the fit.
// calibrate/README.md [F5], [F6].
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hardware/cost/forms/form.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

/// Of ln(measured / predicted): nine times of ten between low and high, once of twenty below, once above.
/// low <= high; neither need have the sign that its name suggests.
struct ErrorBand {
  double low = 0, high = 0;
  bool contains(double residual) const { return low <= residual && residual <= high; }
  /// `factor` times as wide, around its middle: a biased band does not move.
  ErrorBand widened(double factor) const {
    const double middle = (low + high) / 2, half = (high - low) / 2 * factor;
    return {middle - half, middle + half};
  }
  /// The least that contains both.
  ErrorBand hull(const ErrorBand& other) const {
    return {std::min(low, other.low), std::max(high, other.high)};
  }
};

/// Absolute errors of predictions, as parts of the measured time.
struct FitError {
  std::size_t rows = 0;
  double median = 0, p90 = 0, worst = 0;
  double bias = 0;  // median of predicted / measured - 1
};

/// A band with what it was found from.
struct HeldOutBand {
  ErrorBand band;
  std::size_t rows = 0;  // withheld
  /// Part of the rows inside bands that the other groups of withheld rows make; less than 0: one group.
  double covered = -1;
};

/// Of kinds of shapes none of whose rows was fitted: a model's experts, widths and groups of attention heads.
struct FamilyBand : HeldOutBand {
  std::vector<std::vector<double>> families;  // that were measured, each what names it; in ascending order
  FitError error;  // of the rows that were withheld; of none: a file from before errors were kept
  FitError fast;   // of those among them that no slow tactic made; of none: there is no slow tactic
};

/// Curves (rows that differ in their tokens only) that take far longer than a fit to the rest says, because
/// the library's tuner chose a slow kernel for them. Which curves these are depends on chance: the same shape
/// is slow under one routing and fast under another. The fit is made of the others. calibrate/README.md [F7].
struct SlowTactics {
  std::size_t rows = 0, of_rows = 0;      // slow ones, and all
  std::size_t curves = 0, of_curves = 0;  // the same
  double median = 1, p90 = 1;             // of measured / predicted over the slow rows
  double share() const { return static_cast<double>(rows) / static_cast<double>(of_rows); }
};

/// Of rows beyond those that were fitted, on one axis: longer caches, larger groups.
struct BeyondBand : HeldOutBand {
  std::size_t axis = 0;     // of the form
  double from = 0, to = 0;  // fitted up to `from`, withheld at `to`; log2
};

/// What withheld rows say of one fit, by what was withheld.
struct FitIntervals {
  HeldOutBand inside;                // shapes, dealt into folds; of no rows where none were kept
  std::optional<FamilyBand> family;  // nothing where there are not two
  std::optional<BeyondBand> beyond;  // nothing where the axis is too short
  /// From the 90th percentile of the error instead, symmetric: the calibration kept no residuals.
  bool derived = false;
  std::optional<SlowTactics> slow = std::nullopt;  // nothing where no curve is slow
};

/// What names the model that a shape belongs to, from the numbers of its form: hidden, inter, topk and
/// experts of moe, head_dim and query heads per KV head of attention, heads of MLA. Empty: the form has no
/// families.
std::vector<double> model_family(const Form& form, std::span<const double> x);

/// What rows of one curve have in common, from the numbers of their form: all but the tokens of moe. Empty:
/// the form's kernels are not tuned curve by curve.
std::vector<double> tuned_curve(const Form& form, std::span<const double> x);

/// The axis on which a form is used far beyond its data, and how many doublings of it are withheld: 2 of the
/// cached tokens of decode attention, 1 of the GPUs of an exchange.
struct FarAxis {
  std::size_t axis = 0;
  double doublings = 0;
};
std::optional<FarAxis> far_axis(const Form& form);

/// Of a calibration that kept none: +-ln(1 + p90) of the errors of `rows` withheld rows; of none +-ln 1.6.
FitIntervals derived_intervals(std::size_t rows, double p90);

/// "9.4 % of rows (8.1 % of curves) are of a slow tactic, 2.9 times as long (90th percentile 4.7)".
std::string slow_tactics_text(const SlowTactics& slow);

FitIntervals read_intervals(const Reader& reader, const Form& form);
/// The mapping that read_intervals() reads, as lines indented by `indent`; to 1e-4.
std::string intervals_yaml(const FitIntervals& intervals, const Form& form, const std::string& indent);

}  // namespace shardline
