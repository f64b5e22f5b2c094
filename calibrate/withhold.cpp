#include "calibrate/withhold.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "calibrate/regimes.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

// Shapes of one place on an axis differ by less: kv_len of a module is 2^n + 1.
constexpr double kSamePlace = 0.25;
constexpr std::size_t kFewestRows = 10;  // that tell how far a fit is off
constexpr double kFamiliesApart = 1;     // see held_out_band()
// Of [F6]: of 1 to 6 steps and 0, .5 and 1 these brought coverage of rows left out nearest to 90 %.
constexpr std::size_t kMostSteps = 4;
constexpr double kStepsApart = 0.5;

// Parameters that some row says something of: the others keep their starts, and need none.
std::size_t moved(const Form& form, const FitResult& r) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < r.parameters.size(); ++i)
    n += r.parameters[i] == std::exp(std::log(form.parameters[i].start)) ? 0 : 1;
  return n;
}

using Grids = std::vector<std::optional<CorrectionGrid>>;

// Without the kin of the model that is withheld: it is unknown to every kernel then.
void drop_kin(const Form& form, std::span<const double> withheld, FitRows& rows) {
  if (rows.kin_seconds.empty()) return;
  const std::vector<double> family = model_family(form, withheld);
  FitRows kept;
  for (std::size_t i = 0; i < rows.kin_seconds.size(); ++i) {
    const auto x = std::span<const double>(rows.kin_numbers).subspan(i * rows.width, rows.width);
    if (!family.empty() && model_family(form, x) == family) continue;
    kept.numbers.insert(kept.numbers.end(), x.begin(), x.end());
    kept.seconds.push_back(rows.kin_seconds[i]);
  }
  rows.kin_numbers = std::move(kept.numbers);
  rows.kin_seconds = std::move(kept.seconds);
}

// Residuals of `outside` by a fit to `inside`, for each grid; nothing where `inside` is too little.
std::vector<std::vector<double>> residuals(const Form& form, const FormContext& context, const FitRows& rows,
                                           std::span<const std::size_t> inside,
                                           std::span<const std::size_t> outside, const Refit& how,
                                           const Grids& grids) {
  std::vector<std::vector<double>> out(grids.size());
  if (outside.empty() || inside.size() < form.parameters.size()) return out;
  FitRows seen = rows.only(inside);
  drop_kin(form, rows.x(outside.front()), seen);
  const Regimes regimes = fit_regimes(form, context, seen, how.options);
  if (inside.size() < how.rows_per_parameter * moved(form, regimes.fit)) return out;
  const FitRows fast = seen.only(regimes.fast);
  CancelCheck check;
  for (std::size_t s = 0; s < grids.size(); ++s) {
    Correction correction;
    if (grids[s])
      correction = fit_correction(form, context, fast, regimes.fit.parameters, *grids[s], how.options);
    for (const std::size_t row : outside) {
      check();
      out[s].push_back(std::log(rows.seconds[row] /
                                predict(form, context, regimes.fit.parameters, correction, rows.x(row))));
    }
  }
  return out;
}

// Of residuals ln(measured / predicted).
FitError error_of(std::span<const double> residuals) {
  std::vector<double> predicted(residuals.size()), measured(residuals.size(), 1);
  std::transform(residuals.begin(), residuals.end(), predicted.begin(),
                 [](double r) { return std::exp(-r); });
  return summarise(predicted, measured);
}

// Bands and errors of withheld families, one per grid; nothing where too few can be withheld.
std::vector<FamilyBand> families_withheld(const Form& form, const FormContext& context, const FitRows& rows,
                                          const Refit& how, const Grids& grids) {
  std::map<std::vector<double>, std::vector<std::size_t>> families;
  CancelCheck check;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    check();
    families[model_family(form, rows.x(i))].push_back(i);
  }
  if (families.size() < 2) return {};
  std::vector<HeldOut> all(grids.size()), fast(grids.size());
  std::vector<std::vector<double>> names;
  int group = 0;
  for (const auto& [family, outside] : families) {
    check_cancelled();
    names.push_back(family);
    std::vector<std::size_t> inside;
    for (const auto& [other, own] : families) {
      if (other != family) inside.insert(inside.end(), own.begin(), own.end());
    }
    std::sort(inside.begin(), inside.end());
    const auto found = residuals(form, context, rows, inside, outside, how, grids);
    for (std::size_t s = 0; s < grids.size(); ++s) {
      for (std::size_t i = 0; i < found[s].size(); ++i) {
        all[s].add(found[s][i], group);
        if (!std::binary_search(how.slow.begin(), how.slow.end(), outside[i]))
          fast[s].add(found[s][i], group);
      }
    }
    ++group;
  }
  std::vector<FamilyBand> out;
  for (std::size_t s = 0; s < grids.size(); ++s) {
    const HeldOutBand band = held_out_band(all[s], kFamiliesApart);
    if (band.covered < 0 || band.rows < kFewestRows) return {};
    FamilyBand& own = out.emplace_back();
    static_cast<HeldOutBand&>(own) = band;
    own.families = names;
    own.error = error_of(all[s].residuals);
    if (!how.slow.empty()) own.fast = error_of(fast[s].residuals);
  }
  return out;
}

// Of rows at `to`, by a fit to those up to `from`.
std::vector<double> beyond(const Form& form, const FormContext& context, const FitRows& rows,
                           std::span<const double> places, double from, double to, const Refit& how) {
  std::vector<std::size_t> inside, outside;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (places[i] <= from + kSamePlace) inside.push_back(i);
    if (std::abs(places[i] - to) <= kSamePlace) outside.push_back(i);
  }
  return residuals(form, context, rows, inside, outside, how, {how.grid}).front();
}

using Steps = std::vector<std::vector<double>>;

// Rows of a step err together, as those of a model do: which way the next one goes the others do not say, so
// that the band holds zero, and is wider where they are few.
std::optional<ErrorBand> band_of_steps(std::span<const std::vector<double>> steps) {
  std::vector<double> all;
  for (const std::vector<double>& step : steps) all.insert(all.end(), step.begin(), step.end());
  if (all.size() < kFewestRows) return std::nullopt;
  return band_of(all).widened(1 + kStepsApart / static_cast<double>(steps.size())).hull({0, 0});
}

}  // namespace

std::optional<FamilyBand> withhold_families(const Form& form, const FormContext& context, const FitRows& rows,
                                            const Refit& how) {
  std::vector<FamilyBand> found = families_withheld(form, context, rows, how, {how.grid});
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

std::optional<FamilyChoice> choose_by_families(const Form& form, const FormContext& context,
                                               const FitRows& rows, const Refit& how) {
  Grids grids{std::nullopt};
  grids.insert(grids.end(), kCoarseGrids.begin(), kCoarseGrids.end());
  std::vector<FamilyBand> found = families_withheld(form, context, rows, how, grids);
  if (found.empty()) return std::nullopt;
  const auto sum = [](const FamilyBand& b) { return b.error.median + b.error.p90; };
  const auto best = std::min_element(found.begin(), found.end(),
                                     [&](const auto& a, const auto& b) { return sum(a) < sum(b); });
  const auto at = static_cast<std::size_t>(best - found.begin());
  return FamilyChoice{std::move(found[at]), grids[at]};
}

std::optional<BeyondBand> withhold_beyond(const Form& form, const FormContext& context, const FitRows& rows,
                                          const Refit& how) {
  const std::optional<FarAxis> far = far_axis(form);
  if (!far || rows.size() == 0) return std::nullopt;
  std::vector<double> places(rows.size());
  double at[kMostAxes];
  for (std::size_t i = 0; i < rows.size(); ++i) {
    form.coordinates(rows.x(i), context, at);
    places[i] = at[far->axis];
  }
  BeyondBand out;
  out.axis = far->axis;
  out.to = *std::max_element(places.begin(), places.end());
  out.from = out.to - far->doublings;
  // One more than the band takes: the earlier ones try it on the rows of the last.
  Steps steps;
  for (std::size_t i = 0; i <= kMostSteps; ++i) {
    const double to = out.to - static_cast<double>(i);
    std::vector<double> found = beyond(form, context, rows, places, to - far->doublings, to, how);
    if (i == 0 && found.empty()) return std::nullopt;
    if (!found.empty()) steps.push_back(std::move(found));
  }
  const std::span all(steps);
  const std::vector<double>& last = steps.front();
  const std::optional<ErrorBand> band = band_of_steps(all.first(std::min(kMostSteps, all.size())));
  if (!band) return std::nullopt;
  out.band = *band;
  for (const std::vector<double>& step : all.first(std::min(kMostSteps, all.size()))) out.rows += step.size();
  if (const auto earlier = band_of_steps(all.subspan(1))) {
    const auto inside =
        std::count_if(last.begin(), last.end(), [&](double r) { return earlier->contains(r); });
    out.covered = static_cast<double>(inside) / static_cast<double>(last.size());
  }
  return out;
}

namespace {

// Thread-block rows of a decode form's shape, requests of a block's of sparse attention; 0 of other forms.
double block_rows(const Form& form, std::span<const double> x) {
  const std::string_view family = form.family;
  if (family == "attention_decode") return x[0] * x[3];
  if (family == "sparse_decode" || family == "sparse_prefill") return x[0];
  return family == "mla_decode" ? x[0] * std::ceil(x[2] / 64) : 0;
}

}  // namespace

std::vector<LongestOut> withhold_longest(const Form& form, const FormContext& context, const FitRows& rows,
                                         double doublings, const Refit& how) {
  constexpr double kFar = 0.15;
  const std::optional<FarAxis> far = far_axis(form);
  if (!far || rows.size() == 0 || block_rows(form, rows.x(0)) == 0) return {};
  std::vector<double> places(rows.size());
  double at[kMostAxes];
  for (std::size_t i = 0; i < rows.size(); ++i) {
    form.coordinates(rows.x(i), context, at);
    places[i] = at[far->axis];
  }
  const double to = *std::max_element(places.begin(), places.end());
  const std::vector<double> all = beyond(form, context, rows, places, to - doublings, to, how);
  if (all.empty()) return {};
  std::vector<double> of_row;  // of each of `all`, in the order of beyond()
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (std::abs(places[i] - to) <= kSamePlace) of_row.push_back(block_rows(form, rows.x(i)));
  }
  std::vector<LongestOut> out;
  for (std::size_t k = 0; k < kLongestFrom.size(); ++k) {
    const double fewest = kLongestFrom[k];
    const double most = k + 1 < kLongestFrom.size() ? kLongestFrom[k + 1] - 1 : HUGE_VAL;
    std::vector<double> errors;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (of_row[i] >= fewest && of_row[i] <= most) errors.push_back(std::expm1(-all[i]));
    }
    if (errors.empty()) continue;
    std::sort(errors.begin(), errors.end());
    const auto part = [&](double p) {
      return errors[static_cast<std::size_t>(std::lround(p * static_cast<double>(errors.size() - 1)))];
    };
    const auto near =
        std::count_if(errors.begin(), errors.end(), [&](double e) { return std::abs(e) <= kFar; });
    out.push_back({fewest, most, errors.size(), part(0.5), part(0.05), part(0.95),
                   static_cast<double>(near) / static_cast<double>(errors.size())});
  }
  return out;
}

}  // namespace shardline
