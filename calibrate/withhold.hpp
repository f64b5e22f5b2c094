// How far a fit is off where its table ends: model families, the longest caches and the largest groups are
// withheld in turn. calibrate/README.md [F6].
#pragma once

#include <optional>

#include "calibrate/fit.hpp"

namespace shardline {

/// How the fit in question was made: each refit is made likewise.
struct Refit {
  std::optional<double> smoothing;  // of its correction; nothing: it has none
  FitOptions options;
  std::size_t rows_per_parameter = 4;  // at least; with fewer no refit is made
  std::vector<std::size_t> slow =
      {};  // rows of slow tactics [F7], in ascending order: not in FamilyBand::fast
};

/// [F6] Each family (model_family()) of the rows is withheld and predicted by a fit to all others. Nothing
/// where the form has no families, or fewer than two of the rows' can be withheld.
std::optional<FamilyBand> withhold_families(const Form& form, const FormContext& context, const FitRows& rows,
                                            const Refit& how);

/// What withheld families say of a correction's smoothing.
struct FamilyChoice {
  FamilyBand band;
  std::optional<double> smoothing;  // nothing: the form alone does better
};
/// [F6] The band and errors of the smoothing, or of none, whose median and 90th percentile of withheld
/// families' errors sum up to the least. `how.smoothing` is not looked at.
std::optional<FamilyChoice> choose_by_families(const Form& form, const FormContext& context,
                                               const FitRows& rows, const Refit& how);

/// [F6] The largest shapes on the axis of far_axis() are predicted by a fit to those that lie its doublings
/// below them. `covered`: of these rows, by the band that the same finds with a table that ends where that
/// fit's rows do. Nothing where the form has no such axis, or too few rows lie below.
std::optional<BeyondBand> withhold_beyond(const Form& form, const FormContext& context, const FitRows& rows,
                                          const Refit& how);

}  // namespace shardline
