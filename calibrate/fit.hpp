// Parameters of a cost form from measured rows: robust least squares of the relative error, solved by
// Levenberg-Marquardt on the parameters' logarithms; and a smooth correction on top. calibrate/README.md
// [F1]-[F4].
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calibrate/held_out.hpp"
#include "hardware/cost/calibration.hpp"

namespace shardline {

/// Rows of one variant: x of row i is numbers[i * width, (i + 1) * width).
struct FitRows {
  std::size_t width = 0;
  std::vector<double> numbers;
  std::vector<double> seconds;
  std::size_t size() const { return seconds.size(); }
  std::span<const double> x(std::size_t i) const { return std::span(numbers).subspan(i * width, width); }
  /// [F13] Of a kernel that is the same but for what is around it: fitted together with these, never withheld
  /// or predicted; as `numbers` and `seconds`.
  std::vector<double> kin_numbers = {}, kin_seconds = {};
  /// All kin stay.
  FitRows only(std::span<const std::size_t> rows) const;
  /// These rows and then their kin, as rows without kin.
  FitRows with_kin() const;
};

struct FitOptions {
  double outlier = 0.15;  // relative error from which on a row counts only linearly
  int most_steps = 60;
  double tolerance = 1e-5;  // smallest relative gain of a step that counts
};

struct FitResult {
  std::vector<double> parameters;
  std::vector<double> low, high;  // 95 % confidence, linearised; at a bound: the bound
  double loss = 0;                // mean robust square
  int steps = 0;
};

/// [F1] Deterministic. At least as many rows as parameters, else throws std::invalid_argument.
FitResult fit(const Form& form, const FormContext& context, const FitRows& rows,
              const FitOptions& options = {});

/// How many parameters these rows tell apart, about their starts: none that they say nothing of, and one of
/// those that move all times alike (a fixed time, and one by the width of a model where there is one model).
std::size_t told_parameters(const Form& form, std::span<const std::string> words, const System& system,
                            const FitRows& rows);

/// How smooth and how fine a correction is.
struct CorrectionGrid {
  double smoothing = 0;
  bool steps = false;  // first differences count as well
  bool fine = false;   // FormAxis::fine
  bool own = false;    // knots where the rows lie, FormAxis::own, and a prior in place of differences
  bool dense() const { return fine || own; }
  bool operator==(const CorrectionGrid&) const = default;
};
/// What is tried. Fine ones and own ones stand last, and only where shapes choose.
inline constexpr CorrectionGrid kGrids[] = {{0.3},
                                            {3},
                                            {30},  // forms that are smooth, and few rows
                                            {0.03, true},
                                            {0.3, true},
                                            {3, true},
                                            {0.01, true, true},
                                            {0.03, true, true},
                                            {0.1, true, true},
                                            {0.2, false, false, true},
                                            {0.8, false, false, true}};
inline constexpr std::span<const CorrectionGrid> kCoarseGrids = std::span(kGrids).first(6);
inline constexpr std::span<const CorrectionGrid> kEvenGrids = std::span(kGrids).first(9);
/// Own knots only where the form says how far apart they are.
std::span<const CorrectionGrid> grids_of(const Form& form);
/// A fine grid, or one of own knots, has five to twenty times as many values: it is taken where it makes the
/// error at most this part.
inline constexpr double kFineGain = 0.95;

/// [F2] Ridge and squared second (and first) differences of neighbours times `smoothing` against squared
/// residuals, or for own knots `smoothing` times the prior's square; rows count as in fit().
Correction fit_correction(const Form& form, const FormContext& context, const FitRows& rows,
                          std::span<const double> parameters, const CorrectionGrid& grid,
                          const FitOptions& options = {});

FitError summarise(std::span<const double> predicted, std::span<const double> measured);

/// [F3] Fold of a shape: the same for equal shapes on every machine.
int fold_of(std::span<const double> x, int folds, std::uint64_t seed = 0);

/// A correction of one grid on rows that the fit has not seen.
struct TriedCorrection {
  CorrectionGrid grid;
  FitError error;
  HeldOut residuals;  // by fold
};

/// [F4] Errors on rows that the fit has not seen, all folds together.
struct CrossValidation {
  FitError roofline, form, corrected;
  CorrectionGrid grid;                 // that did best; corrected is that one's
  HeldOut by_form, by_correction;      // the residuals that form and corrected sum up, by fold
  std::vector<TriedCorrection> tried;  // one of each grid
};
CrossValidation cross_validate(const Form& form, const FormContext& context, const FitRows& rows,
                               int folds = 4, const FitOptions& options = {},
                               std::span<const CorrectionGrid> grids = kEvenGrids);

}  // namespace shardline
