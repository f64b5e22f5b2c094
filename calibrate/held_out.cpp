#include "calibrate/held_out.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "sim/base/cancel.hpp"

namespace shardline {

void HeldOut::add(double residual, int group) {
  residuals.push_back(residual);
  groups.push_back(group);
}

ErrorBand band_of(std::span<const double> residuals) {
  if (residuals.empty()) return {};
  std::vector<double> sorted(residuals.begin(), residuals.end());
  std::sort(sorted.begin(), sorted.end());
  const auto n = static_cast<double>(sorted.size());
  // Places in order, from 1; 1e-9: a product that is whole in theory stays it.
  const double below = std::floor((n + 1) * (1 - kNominal) / 2 + 1e-9);
  const double above = std::ceil((n + 1) * (1 + kNominal) / 2 - 1e-9);
  const auto at = [&](double place) {
    return sorted[static_cast<std::size_t>(std::clamp(place, 1.0, n)) - 1];
  };
  return {at(below), at(above)};
}

HeldOutBand held_out_band(const HeldOut& rows, double apart) {
  HeldOutBand out;
  out.rows = rows.size();
  const std::set<int> groups(rows.groups.begin(), rows.groups.end());
  const auto of_groups = [&](std::span<const double> residuals, std::size_t count) {
    return band_of(residuals).widened(1 + apart / static_cast<double>(std::max<std::size_t>(1, count)));
  };
  out.band = of_groups(rows.residuals, groups.size());
  if (groups.size() < 2) return out;
  std::size_t inside = 0;
  std::vector<double> others;
  for (const int group : groups) {
    check_cancelled();
    others.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows.groups[i] != group) others.push_back(rows.residuals[i]);
    }
    const ErrorBand band = of_groups(others, groups.size() - 1);
    for (std::size_t i = 0; i < rows.size(); ++i)
      inside += rows.groups[i] == group && band.contains(rows.residuals[i]) ? 1 : 0;
  }
  out.covered = static_cast<double>(inside) / static_cast<double>(rows.size());
  return out;
}

}  // namespace shardline
