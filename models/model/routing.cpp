#include "models/model/routing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "models/model/routing_samples.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {
namespace {

constexpr int kMostExperts = 1024;

double interpolate(const std::vector<double>& row, long long tokens) {
  const int below = column_below(tokens);
  if (below + 1 == kTokenColumns) return row[static_cast<std::size_t>(below)];
  const double left = row[static_cast<std::size_t>(below)];
  const double right = row[static_cast<std::size_t>(below) + 1];
  const auto from = static_cast<double>(grid_tokens(below));
  const auto to = static_cast<double>(grid_tokens(below + 1));
  return left + (right - left) * (static_cast<double>(tokens) - from) / (to - from);
}

double touched(double probability, double tokens) {
  if (tokens <= 0) return 0;
  return probability >= 1 ? 1 : -std::expm1(tokens * std::log1p(-probability));
}

int largest_group(int experts, int groups) { return (experts + groups - 1) / groups; }

/// Uniform routing: chance that some of a token's experts are among `size` ones.
double uniform_visit(int experts, int draws, int size) {
  double missed = 1;
  for (int i = 0; i < draws; ++i) missed *= std::max(0.0, 1.0 * experts - size - i) / (experts - i);
  return 1 - missed;
}

/// [M12] for uniform: over the groups of both sizes.
double uniform_groups_hit(int experts, int draws, int groups) {
  const int larger = experts % groups, size = experts / groups;
  return larger * uniform_visit(experts, draws, size + 1) +
         (groups - larger) * uniform_visit(experts, draws, size);
}

}  // namespace

std::vector<double> inclusion_probabilities(const std::vector<double>& weights, int draws) {
  const std::size_t n = weights.size();
  const auto k = static_cast<std::size_t>(draws);
  if (k >= n) return std::vector<double>(n, 1.0);
  const auto [low, high] = std::ranges::minmax(weights);
  constexpr double kStep = 1.0 / 16;
  const double first = -40 - std::log(high);
  const int nodes = static_cast<int>((std::log(800 / low) - first) / kStep) + 1;

  std::vector<double> result(n);
  std::vector<double> done(n);              // chance that an expert's clock has rung by time t
  std::vector<double> before((n + 1) * k);  // of the experts before i, chance that c have rung
  std::vector<double> fewer(k);             // of the experts after i, chance that at most c have rung
  for (int node = 0; node < nodes; ++node) {
    check_cancelled();
    const double t = std::exp(first + kStep * node);
    for (std::size_t i = 0; i < n; ++i) done[i] = -std::expm1(-weights[i] * t);
    std::fill(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(k), 0.0);
    before[0] = 1;
    for (std::size_t i = 0; i < n; ++i) {
      const double* now = &before[i * k];
      double* next = &before[(i + 1) * k];
      for (std::size_t c = 0; c < k; ++c)
        next[c] = now[c] * (1 - done[i]) + (c > 0 ? now[c - 1] * done[i] : 0);
    }
    std::ranges::fill(fewer, 1.0);
    for (std::size_t i = n; i-- > 0;) {
      double chosen = 0;  // chance that at most k - 1 of the others have rung
      for (std::size_t c = 0; c < k; ++c) chosen += before[i * k + c] * fewer[k - 1 - c];
      result[i] += kStep * weights[i] * t * (1 - done[i]) * chosen;
      for (std::size_t c = k; c-- > 0;)
        fewer[c] = fewer[c] * (1 - done[i]) + (c > 0 ? fewer[c - 1] * done[i] : 0);
    }
  }
  return result;
}

/// What is known of one number of groups.
struct ExpertRouting::Groups {
  double share = 0;              // expected pairs per token in group 0
  double hit = 0, even_hit = 0;  // groups that a token visits; of uniform routing
  double visit = 0;              // chance that a token has an expert in group 0
  std::vector<double> distinct;  // by column of the grid of tokens
  RoutingSamples::Loads largest;
};

/// Numbers of groups are worked out when they are first asked for.
struct ExpertRouting::Known {
  std::unique_ptr<const RoutingSamples> samples;
  std::vector<std::atomic<const Groups*>> groups;
  std::mutex mutex;
  std::vector<std::unique_ptr<const Groups>> owned;

  explicit Known(int experts) : groups(static_cast<std::size_t>(experts)) {}
};

ExpertRouting::ExpertRouting(int experts, int experts_per_token, Routing routing)
    : experts_(experts), experts_per_token_(experts_per_token), routing_(routing) {
  SL_CHECK(1 <= experts_per_token && experts_per_token <= experts && experts <= kMostExperts,
           fmt::format("{} of {} experts", experts_per_token, experts));
  SL_CHECK(0 <= routing.skew && routing.skew <= kLargestSkew, fmt::format("skew {}", routing.skew));
  std::vector<double> weights;
  for (int rank = 1; rank <= experts; ++rank)
    weights.push_back(uniform() ? 1 : std::pow(rank, -routing.skew));
  inclusion_ = uniform() ? std::vector<double>(weights.size(), 1.0 * experts_per_token / experts)
                         : inclusion_probabilities(weights, experts_per_token);
  known_ = std::make_shared<Known>(experts);
  const bool busiest = routing.load == ExpertLoad::busiest;
  if (busiest || !uniform())
    known_->samples = std::make_unique<RoutingSamples>(weights, experts_per_token, inclusion_, busiest);
}

bool ExpertRouting::uniform() const { return routing_.kind == RoutingKind::uniform || routing_.skew == 0; }

const ExpertRouting::Groups& ExpertRouting::of(int groups) const {
  SL_CHECK(1 <= groups && groups <= experts_, fmt::format("{} groups of {} experts", groups, experts_));
  std::atomic<const Groups*>& place = known_->groups[static_cast<std::size_t>(groups - 1)];
  const Groups* found = place.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  const std::lock_guard lock(known_->mutex);
  found = place.load(std::memory_order_relaxed);
  if (found != nullptr) return *found;
  found = known_->owned.emplace_back(std::make_unique<Groups>(count(groups))).get();
  place.store(found, std::memory_order_release);
  return *found;
}

ExpertRouting::Groups ExpertRouting::count(int groups) const {
  Groups g;
  for (int rank = 0; rank < experts_; rank += groups) g.share += inclusion(rank);
  g.even_hit = uniform_groups_hit(experts_, experts_per_token_, groups);
  if (uniform()) {
    g.hit = g.even_hit;
    g.visit = uniform_visit(experts_, experts_per_token_, largest_group(experts_, groups));
  } else {
    const RoutingSamples::Hits hits = known_->samples->hits(groups);
    g.hit = hits.groups;
    g.visit = hits.group_zero;
  }
  const bool busiest = routing_.load == ExpertLoad::busiest;
  if (!busiest && routing_.kind == RoutingKind::uniform) return g;  // distinct_experts() has a closed form
  if (busiest) {
    g.distinct = known_->samples->largest_distinct(groups);
    g.largest = known_->samples->largest_loads(groups);
  } else {
    g.distinct.assign(kTokenColumns, 0);
  }
  // The largest count is never expected below the expectation of group 0, which also carries the table on
  // where the sampled paths end.
  for (int column = 0; column < kTokenColumns; ++column) {
    double zero = 0;
    for (int rank = 0; rank < experts_; rank += groups)
      zero += touched(inclusion(rank), static_cast<double>(grid_tokens(column)));
    double& cell = g.distinct[static_cast<std::size_t>(column)];
    cell = groups == 1 ? zero : std::max(cell, zero);
  }
  return g;
}

double ExpertRouting::inclusion(int rank) const {
  SL_CHECK(0 <= rank && rank < experts_, fmt::format("expert {} of {}", rank, experts_));
  return inclusion_[static_cast<std::size_t>(rank)];
}

double ExpertRouting::distinct_experts(int groups, long long tokens) const {
  SL_CHECK(tokens >= 0, fmt::format("{} tokens", tokens));
  const Groups& g = of(groups);
  if (g.distinct.empty())
    return largest_group(experts_, groups) * touched(inclusion_[0], static_cast<double>(tokens));
  return interpolate(g.distinct, tokens);
}

double ExpertRouting::pairs(int groups, long long tokens) const {
  const Groups& g = of(groups);
  return largest(g.largest.pairs, g.share, groups, tokens);
}

double ExpertRouting::groups_hit(int groups) const { return of(groups).hit; }

double ExpertRouting::tokens_received(int groups, long long tokens) const {
  const Groups& g = of(groups);
  return largest(g.largest.received, g.visit, groups, tokens);
}

double ExpertRouting::imbalance(int groups, long long tokens) const {
  if (tokens == 0) return 1;
  const double mean = static_cast<double>(tokens) * groups_hit(groups) / groups;
  return std::max(1.0, tokens_received(groups, tokens) / mean);
}

double ExpertRouting::as_even(int groups, long long tokens) const {
  const Groups& g = of(groups);
  return imbalance(groups, tokens) * g.hit / g.even_hit;
}

bool ExpertRouting::uneven(int groups, long long tokens) const {
  constexpr double kRounding = 1e-9;
  return std::abs(as_even(groups, tokens) - 1) > kRounding;
}

double ExpertRouting::largest(const std::vector<double>& sampled, double share, int groups,
                              long long tokens) const {
  SL_CHECK(tokens >= 0, fmt::format("{} tokens", tokens));
  const auto count = static_cast<double>(tokens);
  const double mean = share * count;
  if (routing_.load == ExpertLoad::mean || groups == 1) return mean;
  if (tokens <= kDenseTokens) return std::max(mean, sampled[static_cast<std::size_t>(tokens)]);
  const double dense_mean = share * static_cast<double>(kDenseTokens);
  const double excess = std::max(0.0, sampled[static_cast<std::size_t>(kDenseTokens)] - dense_mean);
  return mean + excess * std::sqrt(count / static_cast<double>(kDenseTokens));
}

}  // namespace shardline
