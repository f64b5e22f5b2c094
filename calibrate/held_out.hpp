// Residuals of rows that a fit had not seen, and the bands that they make. calibrate/README.md [F5].
#pragma once

#include <span>
#include <vector>

#include "hardware/cost/fit_intervals.hpp"

namespace shardline {

/// Withheld rows, in groups that were withheld together.
struct HeldOut {
  std::vector<double> residuals;  // ln(measured / predicted)
  std::vector<int> groups;        // of each
  std::size_t size() const { return residuals.size(); }
  void add(double residual, int group);
};

inline constexpr double kNominal = 0.9;  // of rows inside a band

/// [F5] From the 5 % to the 95 % quantile of any number of residuals. Of n the (n + 1) 5 %-th and (n + 1) 95
/// %-th in order, rounded outwards, so that the next row of the same kind is inside with 90 % or more; of
/// less than 19 all. {0, 0} of none.
ErrorBand band_of(std::span<const double> residuals);

/// band_of() all, and the part of them that is inside bands of the other groups. Where groups differ more
/// than rows do, bands of few groups are too narrow for the next one: each is 1 + `apart` / groups times as
/// wide.
HeldOutBand held_out_band(const HeldOut& rows, double apart = 0);

}  // namespace shardline
