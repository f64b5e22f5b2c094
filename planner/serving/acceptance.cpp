#include "planner/serving/acceptance.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>

namespace shardline {

namespace {

bool sound(const AcceptanceForm& form) {
  return form.p > 0 && form.p <= 1 && form.g > 0 && form.g <= 1;  // false of NaN, too
}

double mean_of(const std::vector<double>& survival) {
  return std::accumulate(survival.begin(), survival.end(), 1.0);
}

double misfit(const AcceptanceForm& form, std::span<const MeasuredAcceptance> points) {
  double sum = 0;
  for (const MeasuredAcceptance& point : points) {
    const double off = std::log(mean_accepted(form, point.k) / point.mean);
    sum += off * off;
  }
  return sum;
}

// [P28] Of the 14 curves of acceptance.yaml, residuals in order [calibrate F5]: of the form that is fitted to
// all eight k of a curve (112), at a k of which it is not told (84), and 1 to 6 drafts beyond the last one it
// is told of (84, 70, 56, 42, 28, 14). Tests: Acceptance.P28BandsAreThoseOfPublishedCurves.
constexpr ErrorBand kFormBand{-0.026, 0.023}, kBetweenBand{-0.032, 0.030};
constexpr std::array<ErrorBand, 6> kBeyondBands{
    {{-0.050, 0.051}, {-0.079, 0.074}, {-0.083, 0.109}, {-0.099, 0.138}, {-0.117, 0.204}, {-0.130, 0.218}}};
constexpr int kPublishedDrafts = 8;  // the most that the curves have

// Beyond the sixth no curve tells: as much wider as there are more.
ErrorBand beyond_band(int drafts) {
  constexpr int kTold = static_cast<int>(kBeyondBands.size());
  const ErrorBand last = kBeyondBands[static_cast<std::size_t>(std::min(drafts, kTold)) - 1];
  return last.widened(std::max(1.0, static_cast<double>(drafts) / kTold));
}

/// The law of k drafts whose mean is `mean`, 1 <= mean <= 1 + k: that of the form where it has it; else g is
/// kept and p found by halving, and where even certain first drafts give too few, p is 1 and g is found.
std::vector<double> law_of(const AcceptanceForm& form, int k, double mean) {
  if (mean_accepted(form, k) == mean) return survival(form, k);
  const bool by_p = mean_accepted({1, form.g}, k) >= mean;
  double low = 0, high = 1;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (mean_accepted(by_p ? AcceptanceForm{middle, form.g} : AcceptanceForm{1, middle}, k) < mean ? low
                                                                                                : high) =
        middle;
  }
  return survival(by_p ? AcceptanceForm{high, form.g} : AcceptanceForm{1, high}, k);
}

}  // namespace

std::vector<double> survival(const AcceptanceForm& form, int k) {
  SL_CHECK(k >= 0 && k <= kMostDrafts, "0 <= k <= kMostDrafts");
  std::vector<double> out;
  double all = 1, each = form.p;
  for (int j = 1; j <= k; ++j) {
    all *= each;
    each *= form.g;
    out.push_back(all);
  }
  return out;
}

double mean_accepted(const AcceptanceForm& form, int k) { return mean_of(survival(form, k)); }

AcceptanceForm fit_acceptance(std::span<const MeasuredAcceptance> points) {
  const bool several = std::any_of(points.begin(), points.end(),
                                   [&](const MeasuredAcceptance& point) { return point.k != points[0].k; });
  SL_CHECK(several, "at least two different k");
  constexpr int kSteps = 10;  // of a grid to either side of the best point
  const auto bounded = [](double value) { return std::clamp(value, 1e-6, 1.0); };
  AcceptanceForm best{0.5, 0.5};
  double least = misfit(best, points), width = 0.5;
  // The grid shrinks once no point of its border is the best: the valley lies askew, because a greater p and
  // a smaller g nearly cancel.
  for (int round = 0; round < 400 && width > 1e-12; ++round) {
    const AcceptanceForm middle = best;
    bool border = false;
    for (int i = -kSteps; i <= kSteps; ++i) {
      for (int j = -kSteps; j <= kSteps; ++j) {
        const AcceptanceForm at{bounded(middle.p + width * i / kSteps),
                                bounded(middle.g + width * j / kSteps)};
        const double off = misfit(at, points);
        if (off >= least) continue;
        std::tie(least, best) = std::pair(off, at);
        border = std::abs(i) == kSteps || std::abs(j) == kSteps;
      }
    }
    if (!border) width /= 2;
  }
  return best;
}

const char* acceptance_basis_name(AcceptanceBasis basis) {
  switch (basis) {
    case AcceptanceBasis::given:
      return "given";
    case AcceptanceBasis::form:
      return "two-parameter form";
    case AcceptanceBasis::interpolated:
      return "form between given k";
    case AcceptanceBasis::extrapolated:
      return "form beyond given k";
  }
  return "";
}

AcceptanceCurve::AcceptanceCurve(AcceptanceForm form) : form_(form) {
  SL_CHECK(sound(form), "0 < p <= 1 and 0 < g <= 1");
}

AcceptanceCurve::AcceptanceCurve(std::vector<MeasuredAcceptance> points, std::optional<AcceptanceForm> given,
                                 AcceptanceOrigin origin)
    : points_(std::move(points)), form_(given), origin_(std::move(origin)) {
  SL_CHECK(!points_.empty(), "at least one point");
  SL_CHECK(!form_ || sound(*form_), "0 < p <= 1 and 0 < g <= 1");
  int before = 0;
  for (const MeasuredAcceptance& point : points_) {
    SL_CHECK(point.k > before && point.k <= kMostDrafts, "k rise from 1 to kMostDrafts");
    SL_CHECK(point.mean >= 1 && point.mean <= 1 + point.k, "1 <= mean <= 1 + k");
    before = point.k;
  }
  if (!form_ && points_.size() > 1) form_ = fit_acceptance(points_);
}

AcceptedLength AcceptanceCurve::at(int k) const {
  AcceptedLength out = mean_at(k);
  out.curve = origin_.name;
  // Without a form each draft is as probable as any other of this k.
  if (k > 0) out.survival = law_of(form_.value_or(AcceptanceForm{}), k, out.mean);
  return out;
}

AcceptedLength AcceptanceCurve::mean_at(int k) const {
  SL_CHECK(k >= 0 && k <= kMostDrafts, "0 <= k <= kMostDrafts");
  AcceptedLength out;
  out.k = k;
  if (k == 0) return out;
  if (points_.empty()) {
    out.basis = AcceptanceBasis::form;
    out.band = k <= kPublishedDrafts ? kFormBand : beyond_band(k - kPublishedDrafts).hull(kFormBand);
    out.mean = mean_accepted(*form_, k);
    return out;
  }
  const auto above =
      std::find_if(points_.begin(), points_.end(), [&](const auto& point) { return point.k >= k; });
  if (above != points_.end() && above->k == k) {
    out.mean = above->mean;
    return out;
  }
  if (!form_) {
    Diagnostic d;
    d.where = points_[0].where;
    d.what = "acceptance: a mean of " + std::to_string(points_[0].k) + " drafts alone says nothing of " +
             std::to_string(k);
    d.details = {"expected a second k in the table, or p and g of the form beside it"};
    throw UserError(std::vector<Diagnostic>{std::move(d)});
  }
  const auto off = [&](const MeasuredAcceptance& point) {
    return std::log(point.mean / mean_accepted(*form_, point.k));
  };
  double scale = 0;
  if (above == points_.begin() || above == points_.end()) {
    const MeasuredAcceptance& nearest = above == points_.end() ? points_.back() : points_.front();
    out.basis = AcceptanceBasis::extrapolated;
    out.band = beyond_band(std::abs(k - nearest.k));
    scale = off(nearest);
  } else {
    out.basis = AcceptanceBasis::interpolated;
    out.band = kBetweenBand;
    const MeasuredAcceptance& below = *(above - 1);
    const double part = static_cast<double>(k - below.k) / (above->k - below.k);
    scale = (1 - part) * off(below) + part * off(*above);
  }
  out.mean = std::clamp(mean_accepted(*form_, k) * std::exp(scale), 1.0, 1.0 + k);
  return out;
}

std::vector<int> AcceptanceCurve::usual() const {
  if (!form_) return {points_[0].k};
  std::vector<int> out(kPublishedDrafts);
  std::iota(out.begin(), out.end(), 1);
  return out;
}

std::vector<int> AcceptanceCurve::falls() const {
  std::vector<int> out;
  double most = 1;
  for (const MeasuredAcceptance& point : points_) {
    if (point.mean < most) out.push_back(point.k);
    most = std::max(most, point.mean);
  }
  return out;
}

double steps_of_answer(const AcceptedLength& length, long long n) {
  SL_CHECK(n >= 0, "n >= 0");
  const auto k = static_cast<std::size_t>(length.k);
  // A step yields exactly a tokens with the probability that a - 1 drafts are accepted and the a-th is not.
  std::vector<double> exactly(k + 1);
  for (std::size_t a = 0; a <= k; ++a) {
    const double reached = a == 0 ? 1 : length.survival[a - 1];
    exactly[a] = reached - (a < k ? length.survival[a] : 0);
  }
  std::vector<double> last(k + 1, 0.0);  // E(i - 1), E(i - 2), ... in a ring: E(i) in i mod (k + 1)
  double steps = 0;
  for (long long i = 1; i <= n; ++i) {
    steps = 1;
    for (std::size_t a = 1; a <= k + 1 && static_cast<long long>(a) < i; ++a)
      steps += exactly[a - 1] * last[static_cast<std::size_t>(i - static_cast<long long>(a)) % (k + 1)];
    last[static_cast<std::size_t>(i) % (k + 1)] = steps;
  }
  return n == 0 ? 0 : steps;
}

double steps_of_long_answer(const AcceptedLength& length, double n) {
  SL_CHECK(n >= 0, "n >= 0");
  // E[A (A - 1)] = 2 sum_j j S_j, as P(A > j) = S_j.
  double half_moment = 0;
  for (std::size_t j = 0; j < length.survival.size(); ++j)
    half_moment += static_cast<double>(j + 1) * length.survival[j];
  const double mean = mean_of(length.survival);
  return (n + half_moment / mean) / mean;
}

}  // namespace shardline
