#include "planner/studies/thresholds.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <set>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {
namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 61;  // so that T+P cannot overflow
constexpr std::int64_t kOctave = std::int64_t{1} << kLog2Digits;
constexpr double kLn2 = 0.693147180559945309417;

long long rounded(double tokens, long long multiple) {
  return std::llround(tokens / static_cast<double>(multiple)) * multiple;
}

AnalyticRule analytic(const RingSetting& s, int ranks) {
  SL_CHECK(ranks > 0 && s.q_heads > 0 && s.kv_heads > 0 && s.element_bytes > 0 && s.compute.value > 0 &&
               s.bandwidth.value > 0,
           "a ring setting is positive");
  AnalyticRule rule;
  rule.ranks = ranks;
  rule.kv_hidden_tokens =
      s.compute.value / s.bandwidth.value * s.element_bytes * s.kv_heads / (2 * s.q_heads);
  rule.message_ratio = 2 * s.kv_heads / s.q_heads;
  return rule;
}

/// ln(1 + exp(x)) without overflow.
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

struct Sample {
  Eigen::Vector3d features;  // 1, ln T, ln m; the last two standardised
  double sign;               // +1 where pass-KV wins
  double weight;
};

struct Scale {
  double mean = 0, deviation = 1;
};

Scale standardise(std::vector<Sample>& samples, int feature) {
  const double n = static_cast<double>(samples.size());
  Scale scale;
  for (const Sample& s : samples) scale.mean += s.features[feature] / n;
  double variance = 0;
  for (const Sample& s : samples) variance += std::pow(s.features[feature] - scale.mean, 2) / n;
  if (variance > 1e-12) scale.deviation = std::sqrt(variance);
  for (Sample& s : samples) s.features[feature] = (s.features[feature] - scale.mean) / scale.deviation;
  return scale;
}

double loss(const std::vector<Sample>& samples, const Eigen::Vector3d& b, double ridge) {
  double sum = ridge / 2 * b.squaredNorm();
  for (const Sample& s : samples) sum += s.weight * softplus(-s.sign * s.features.dot(b));
  return sum;
}

Eigen::Vector3d minimise(const std::vector<Sample>& samples, double ridge) {
  Eigen::Vector3d b = Eigen::Vector3d::Zero();
  double here = loss(samples, b, ridge);
  for (int iteration = 0; iteration < 200; ++iteration) {
    Eigen::Vector3d gradient = ridge * b;
    Eigen::Matrix3d hessian = ridge * Eigen::Matrix3d::Identity();
    for (const Sample& s : samples) {
      const double wrong = 1 / (1 + std::exp(s.sign * s.features.dot(b)));
      gradient -= s.weight * s.sign * wrong * s.features;
      hessian += s.weight * wrong * (1 - wrong) * s.features * s.features.transpose();
    }
    if (gradient.norm() < 1e-12) break;
    const Eigen::Vector3d step = hessian.ldlt().solve(gradient);
    // Newton overshoots where the losses are nearly straight lines, as far from the boundary.
    double length = 1;
    double next = loss(samples, b - step, ridge);
    while (!(next < here) && length > 1e-9) {
      length /= 2;
      next = loss(samples, b - length * step, ridge);
    }
    if (!(next < here)) break;
    b -= length * step;
    here = next;
  }
  return b;
}

}  // namespace

bool AnalyticRule::pass_kv(long long fresh, long long cached) const {
  if (fresh <= 0) return true;
  const auto t = static_cast<double>(std::min<std::int64_t>(fresh, kMaxTokens));
  const auto p = static_cast<double>(std::clamp<std::int64_t>(cached, 0, kMaxTokens));
  // Quotients only: no product and sum that a compiler could fuse.
  return t >= ranks * kv_hidden_tokens || t / (t + p) >= message_ratio - t / (ranks * all_to_all_tokens);
}

AnalyticRule algorithm_1(const RingSetting& setting, int ranks) { return analytic(setting, ranks); }

AnalyticRule algorithm_5(const RingSetting& setting, int ranks) {
  AnalyticRule rule = analytic(setting, ranks);
  rule.all_to_all_tokens = setting.compute.value / setting.bandwidth.value * setting.element_bytes / 4;
  return rule;
}

std::int64_t fixed_log2(std::int64_t x) {
  SL_CHECK(x > 0, "a logarithm's argument is positive");
  const int whole = std::bit_width(static_cast<std::uint64_t>(x)) - 1;
  // The mantissa in [1, 2) with 31 digits after the point: each squaring brings one digit of the logarithm.
  std::uint64_t m = whole > 31 ? static_cast<std::uint64_t>(x) >> (whole - 31)
                               : static_cast<std::uint64_t>(x) << (31 - whole);
  std::int64_t log = whole;
  for (int digit = 0; digit < kLog2Digits; ++digit) {
    m = (m * m) >> 31;
    const std::uint64_t carry = m >> 32;
    m >>= carry;
    log = 2 * log + static_cast<std::int64_t>(carry);
  }
  return log;
}

RingPlace ring_place(long long fresh, long long cached) {
  const std::int64_t t = std::min<std::int64_t>(fresh, kMaxTokens);
  const std::int64_t p = std::clamp<std::int64_t>(cached, 0, kMaxTokens);
  const std::int64_t log_fresh = fixed_log2(t);
  return {log_fresh, fixed_log2(t + p) - log_fresh};
}

EmpiricalRule::EmpiricalRule(double alpha, double beta, double gamma)
    : alpha_(alpha), beta_(beta), gamma_(gamma), fixed_{} {
  SL_CHECK(std::isfinite(alpha) && std::isfinite(beta) && std::isfinite(gamma), "coefficients are finite");
  const double largest = std::max(std::abs(alpha), std::abs(beta));
  if (largest == 0) {
    fixed_.constant = gamma > 0 ? 1 : 0;
    return;
  }
  constexpr double kOne = 1 << 30;
  constexpr double kConstantOne = kOne * static_cast<double>(kOctave);
  fixed_.fresh = std::llround(alpha / largest * kOne);
  fixed_.miss = std::llround(beta / largest * kOne);
  // 128 octaves outweigh any T and m, so the clamp changes no decision.
  fixed_.constant = std::llround(std::clamp(gamma / (largest * kLn2), -128.0, 128.0) * kConstantOne);
}

bool EmpiricalRule::pass_kv(long long fresh, long long cached) const {
  if (fresh <= 0) return true;
  const RingPlace at = ring_place(fresh, cached);
  return fixed_.fresh * at.log_fresh - fixed_.miss * at.log_inverse_miss + fixed_.constant > 0;
}

EmpiricalRule appendix_d() { return {-1.059, 1.145, 12.112}; }

EmpiricalRule fit_empirical(std::span<const RingPoint> points, std::span<const double> weights) {
  SL_CHECK(!points.empty() && points.size() == weights.size(), "a fit has points, each with a weight");
  std::vector<Sample> samples;
  samples.reserve(points.size());
  double total = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const RingPoint& p = points[i];
    samples.push_back({{1, std::log(static_cast<double>(p.fresh)), std::log(p.miss_rate())},
                       p.kv_wins() ? 1.0 : -1.0,
                       weights[i]});
    total += weights[i];
  }
  // Ties everywhere: any rule is right.
  for (Sample& s : samples)
    s.weight = total > 0 ? s.weight / total : 1.0 / static_cast<double>(points.size());
  const Scale fresh = standardise(samples, 1);
  const Scale miss = standardise(samples, 2);
  const Eigen::Vector3d b = minimise(samples, 1e-6);
  const double alpha = b[1] / fresh.deviation;
  const double beta = b[2] / miss.deviation;
  return {alpha, beta, b[0] - alpha * fresh.mean - beta * miss.mean};
}

EmpiricalRule fit_empirical(std::span<const RingPoint> points, FitWeight weight) {
  std::vector<double> weights;
  weights.reserve(points.size());
  for (const RingPoint& p : points)
    weights.push_back(weight == FitWeight::regret ? std::abs(std::log(p.pass_q / p.pass_kv)) : 1);
  return fit_empirical(points, weights);
}

std::vector<TokenSplit> test_points(const TokenRange& range, int ranks, std::size_t count,
                                    std::span<const TokenSplit> excluded) {
  SL_CHECK(
      0 < range.fresh_min && range.fresh_min <= range.fresh_max && 0 < range.miss_min && range.miss_min <= 1,
      "test points have a range");
  // R2: multiples of 1/g and 1/g^2, g the real root of g^3 = g + 1, fill the square evenly from the start.
  constexpr double kG = 1.32471795724474602596;
  std::set<std::pair<long long, long long>> taken;
  for (const TokenSplit& s : excluded) taken.emplace(s.fresh, s.cached);
  const double low = std::log2(static_cast<double>(range.fresh_min));
  const double high = std::log2(static_cast<double>(range.fresh_max));
  std::vector<TokenSplit> out;
  double x = 0.5;
  double y = 0.5;
  for (std::size_t tries = 0; out.size() < count && tries < 1000 + 100 * count; ++tries) {
    x = std::fmod(x + 1 / kG, 1.0);
    y = std::fmod(y + 1 / (kG * kG), 1.0);
    const long long multiple = 2LL * ranks;
    const long long fresh = rounded(std::exp2(low + (high - low) * x), multiple);
    if (fresh < range.fresh_min || fresh > range.fresh_max) continue;
    const double total = static_cast<double>(fresh) / std::pow(range.miss_min, y);
    const long long cached = rounded(total - static_cast<double>(fresh), multiple);
    if (fresh + cached > range.total_limit) continue;
    if (static_cast<double>(fresh) < range.miss_min * static_cast<double>(fresh + cached)) continue;
    if (taken.emplace(fresh, cached).second) out.push_back({fresh, cached});
  }
  return out;
}

Regret regret(std::span<const RingPoint> points, const RingChoice& choice) {
  Regret out;
  out.points = points.size();
  if (points.empty()) return out;
  std::vector<double> losses;
  losses.reserve(points.size());
  out.worst_at = points.front();
  double sum = 0;
  for (const RingPoint& p : points) {
    const Seconds chosen = choice(p.ranks, p.fresh, p.cached) ? p.pass_kv : p.pass_q;
    const double lost = chosen / std::min(p.pass_kv, p.pass_q) - 1;
    if (lost == 0) ++out.right;
    if (lost > out.worst) {
      out.worst = lost;
      out.worst_at = p;
    }
    sum += lost;
    losses.push_back(lost);
  }
  out.mean = sum / static_cast<double>(points.size());
  const std::size_t rank = (points.size() * 99 + 99) / 100;
  const auto nth = losses.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(losses.begin(), nth, losses.end());
  out.p99 = *nth;
  return out;
}

}  // namespace shardline
