// How far a fit is off where its table ends: model families, the longest caches and the largest groups are
// withheld in turn. calibrate/README.md [F6], [F9].
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "calibrate/fit.hpp"

namespace shardline {

/// How the fit in question was made: each refit is made likewise.
struct Refit {
  std::optional<CorrectionGrid> grid;  // of its correction; nothing: it has none
  FitOptions options;
  std::size_t rows_per_parameter = 4;  // at least; with fewer no refit is made
  std::vector<std::size_t> slow =
      {};  // rows of slow tactics [F7], in ascending order: not in FamilyBand::fast
};

/// [F6] Each family (model_family()) of the rows is withheld and predicted by a fit to all others. Nothing
/// where the form has no families, or fewer than two of the rows' can be withheld.
std::optional<FamilyBand> withhold_families(const Form& form, const FormContext& context, const FitRows& rows,
                                            const Refit& how);

/// What withheld families say of a correction's grid.
struct FamilyChoice {
  FamilyBand band;
  std::optional<CorrectionGrid> grid;  // nothing: the form alone does better
};
/// [F6] The band and errors of the coarse grid, or of none, whose median and 90th percentile of withheld
/// families' errors sum up to the least. `how.grid` is not looked at.
std::optional<FamilyChoice> choose_by_families(const Form& form, const FormContext& context,
                                               const FitRows& rows, const Refit& how);

/// [F6] The largest shapes on the axis of far_axis() are predicted by a fit to those that lie its doublings
/// below them; so are those of half their size, and of that again, four steps in all. The band is of all of
/// these rows, holds zero and is wider where steps are few. `covered`: of the largest rows, by the band of
/// the steps before. Nothing where the form has no such axis, or too few rows lie below.
std::optional<BeyondBand> withhold_beyond(const Form& form, const FormContext& context, const FitRows& rows,
                                          const Refit& how);

/// [F9] Rows of one number of thread-block rows (sequences times KV heads; of MLA times tiles of 64 heads; of
/// blocks of sparse attention requests) that a fit to shorter ones predicts.
inline constexpr std::array kLongestFrom{1.0, 2.0, 5.0, 9.0};  // to 1, 4, 8, any
struct LongestOut {
  double fewest = 0, most = 0;  // thread-block rows
  std::size_t rows = 0;
  double bias = 0, low = 0, high = 0;  // median, 5 % and 95 % of predicted / measured - 1
  double within = 0;                   // part of the rows that is at most 15 % off
};
/// [F9] The longest caches of a decode form, or a form of sparse attention, predicted by a fit to those of up
/// to 2^-doublings of their length; for 1, 2 to 4, 5 to 8 and more thread-block rows, where there are such
/// rows. Empty for other forms, and where too few rows are short enough.
std::vector<LongestOut> withhold_longest(const Form& form, const FormContext& context, const FitRows& rows,
                                         double doublings, const Refit& how);

}  // namespace shardline
