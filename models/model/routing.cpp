#include "models/model/routing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {
namespace {

constexpr int kMostExperts = 1024;
constexpr std::uint64_t kSeed = 0x5eed;

// Grid of token counts: every one up to kDense, then kPerOctave evenly spaced points per doubling.
constexpr long long kDense = 512;
constexpr int kPerOctave = 32;
constexpr int kOctaves = 15;
constexpr int kColumns = static_cast<int>(kDense) + kPerOctave * kOctaves + 1;

// Sampled paths. Every path is followed for the first tokens, where the largest count is a small integer;
// counts of many tokens vary less and cost more.
constexpr int kPaths = 1024;
constexpr int kLongPaths = 96;
constexpr long long kShortPath = 64;
constexpr long long kDistinctPath = 256;
constexpr int kHitTokens = 16384;

long long grid_tokens(int column) {
  if (column <= kDense) return column;
  const int beyond = column - static_cast<int>(kDense);
  return (kDense << (beyond / kPerOctave)) / kPerOctave * (kPerOctave + beyond % kPerOctave);
}

/// The last grid point at or below `tokens`.
int column_below(long long tokens) {
  if (tokens <= kDense) return static_cast<int>(tokens);
  const auto octave = static_cast<int>(std::bit_width(static_cast<unsigned long long>(tokens / kDense))) - 1;
  if (octave >= kOctaves) return kColumns - 1;
  const long long step = (kDense << octave) / kPerOctave;
  return static_cast<int>(kDense + kPerOctave * octave + (tokens - (kDense << octave)) / step);
}

int column_above(long long tokens) {
  const int below = column_below(tokens);
  return grid_tokens(below) == tokens || below + 1 == kColumns ? below : below + 1;
}

double interpolate(const std::vector<double>& row, long long tokens) {
  const int below = column_below(tokens);
  if (below + 1 == kColumns) return row[static_cast<std::size_t>(below)];
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

/// Uniform in (0, 1).
double unit(std::mt19937_64& rng) { return (static_cast<double>(rng() >> 11) + 0.5) * 0x1p-53; }

/// Draws the distinct experts of one token, one by one without replacement.
class Sampler {
 public:
  Sampler(const std::vector<double>& weights, int draws) : draws_(draws), below_(weights.size() + 1) {
    std::partial_sum(weights.begin(), weights.end(), below_.begin() + 1);
  }

  /// In order of rank.
  const std::vector<int>& next(std::mt19937_64& rng) {
    drawn_.clear();
    double rest = below_.back();
    for (int i = 0; i < draws_; ++i) {
      double point = unit(rng) * rest;
      auto at = drawn_.begin();  // step over the weights that are taken
      for (; at != drawn_.end() && below_[size(*at)] <= point; ++at) point += weight(*at);
      const auto above = std::upper_bound(below_.begin() + 1, below_.end() - 1, point);
      int expert = static_cast<int>(above - below_.begin()) - 1;
      // Rounding may land the point on a taken neighbour.
      while (std::find(drawn_.begin(), drawn_.end(), expert) != drawn_.end()) {
        expert = (expert + 1) % static_cast<int>(below_.size() - 1);
      }
      drawn_.insert(std::upper_bound(drawn_.begin(), drawn_.end(), expert), expert);
      rest -= weight(expert);
    }
    return drawn_;
  }

 private:
  static std::size_t size(int n) { return static_cast<std::size_t>(n); }
  double weight(int expert) const { return below_[size(expert) + 1] - below_[size(expert)]; }

  int draws_;
  std::vector<double> below_;  // summed weights of all experts of smaller rank
  std::vector<int> drawn_;
};

/// One counter per group, for every number of groups at once, and the largest counter of each number of
/// groups.
class GroupCounts {
 public:
  explicit GroupCounts(int experts) : experts_(experts), largest_(to_size(experts)) {
    int offset = 0;
    std::vector<int> offsets;
    for (int groups = 1; groups <= experts; ++groups) {
      offsets.push_back(offset);
      offset += groups;
    }
    counts_.resize(to_size(offset));
    for (int expert = 0; expert < experts; ++expert) {
      for (int groups = 1; groups <= experts; ++groups) {
        cell_.push_back(offsets[to_size(groups - 1)] + expert % groups);
      }
    }
  }

  void clear() {
    std::ranges::fill(counts_, 0);
    std::ranges::fill(largest_, 0);
    last_token_.assign(counts_.size(), 0);
  }

  /// Counts `expert`; calls risen(row) for each row (groups - 1) whose largest count rises.
  template <class F>
  void add(int expert, F&& risen) {
    const int* cell = &cell_[to_size(expert) * to_size(experts_)];
    for (std::size_t row = 0; row < to_size(experts_); ++row) {
      const int count = ++counts_[to_size(cell[row])];
      if (count <= largest_[row]) continue;
      largest_[row] = count;
      risen(row);
    }
  }

  /// Counts token `token`, from 1, of which this is an expert: once per group; calls risen(row) likewise.
  template <class F>
  void add_token(int expert, long long token, F&& risen) {
    const int* cell = &cell_[to_size(expert) * to_size(experts_)];
    for (std::size_t row = 0; row < to_size(experts_); ++row) {
      const std::size_t at = to_size(cell[row]);
      if (last_token_[at] == token) continue;
      last_token_[at] = static_cast<int>(token);
      if (++counts_[at] <= largest_[row]) continue;
      largest_[row] = counts_[at];
      risen(row);
    }
  }

  /// Calls hit(row) for each row in which `expert` would be the first of its group, and counts it.
  template <class F>
  void add_first(int expert, F&& hit) {
    const int* cell = &cell_[to_size(expert) * to_size(experts_)];
    for (std::size_t row = 0; row < to_size(experts_); ++row) {
      if (++counts_[to_size(cell[row])] == 1) hit(row);
    }
  }

 private:
  static std::size_t to_size(int n) { return static_cast<std::size_t>(n); }

  int experts_;
  std::vector<int> counts_;
  std::vector<int> largest_;
  std::vector<int> last_token_;
  std::vector<int> cell_;  // by expert, then by number of groups
};

/// Row per number of groups (from 1), column per grid point of tokens.
using Table = std::vector<std::vector<double>>;

/// [M10] Mean of the largest number of distinct experts over the groups.
Table largest_distinct(const std::vector<double>& weights, int draws, const std::vector<double>& inclusion) {
  Table means(weights.size(), std::vector<double>(kColumns));
  Sampler sampler(weights, draws);
  GroupCounts counts(static_cast<int>(weights.size()));
  std::vector<bool> seen;
  std::vector<std::pair<double, int>> later;
  for (int path = 0; path < kPaths; ++path) {
    std::mt19937_64 rng(kSeed + static_cast<std::uint64_t>(path));
    counts.clear();
    seen.assign(weights.size(), false);
    const auto see = [&](int expert, long long tokens) {
      if (seen[static_cast<std::size_t>(expert)]) return;
      seen[static_cast<std::size_t>(expert)] = true;
      const auto column = static_cast<std::size_t>(column_above(tokens));
      counts.add(expert, [&](std::size_t row) { means[row][column] += 1.0 / kPaths; });
    };
    for (long long tokens = 1; tokens <= kDistinctPath; ++tokens) {
      for (const int expert : sampler.next(rng)) see(expert, tokens);
    }
    // What is missing now is rare, so the waits for it are as good as independent.
    later.clear();
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (seen[i]) continue;
      const double wait = std::ceil(std::log(unit(rng)) / std::log1p(-inclusion[i]));
      later.emplace_back(std::min(wait, 0x1p40), static_cast<int>(i));
    }
    std::ranges::sort(later);
    for (const auto& [wait, expert] : later) see(expert, kDistinctPath + static_cast<long long>(wait));
  }
  for (auto& row : means) std::partial_sum(row.begin(), row.end(), row.begin());
  return means;
}

/// For up to kDense tokens, means of the largest number over the groups of
struct LargestLoads {
  Table pairs;     ///< [M11] (token, expert) pairs
  Table received;  ///< [M13] tokens
};
LargestLoads largest_loads(const std::vector<double>& weights, int draws) {
  LargestLoads means;
  means.pairs = means.received = Table(weights.size(), std::vector<double>(kDense + 1));
  Sampler sampler(weights, draws);
  GroupCounts pairs(static_cast<int>(weights.size())), received = pairs;
  for (int path = 0; path < kPaths; ++path) {
    std::mt19937_64 rng(kSeed + static_cast<std::uint64_t>(path));
    pairs.clear();
    received.clear();
    const long long length = path < kLongPaths ? kDense : kShortPath;
    for (long long tokens = 1; tokens <= length; ++tokens) {
      const double part = 1.0 / (tokens <= kShortPath ? kPaths : kLongPaths);
      const auto column = static_cast<std::size_t>(tokens);
      for (const int expert : sampler.next(rng)) {
        pairs.add(expert, [&](std::size_t row) { means.pairs[row][column] += part; });
        received.add_token(expert, tokens, [&](std::size_t row) { means.received[row][column] += part; });
      }
    }
  }
  for (Table* table : {&means.pairs, &means.received}) {
    for (auto& row : *table) std::partial_sum(row.begin(), row.end(), row.begin());
  }
  return means;
}

/// [M12] and [M13] for zipf: means over sampled tokens.
void sample_hits(const std::vector<double>& weights, int draws, std::vector<double>& hits,
                 std::vector<double>& visits) {
  hits.assign(weights.size(), 0);
  visits.assign(weights.size(), 0);
  Sampler sampler(weights, draws);
  GroupCounts counts(static_cast<int>(weights.size()));
  std::mt19937_64 rng(kSeed);
  for (int token = 0; token < kHitTokens; ++token) {
    counts.clear();
    for (const int expert : sampler.next(rng)) {
      counts.add_first(expert, [&](std::size_t row) {
        hits[row] += 1;
        if (static_cast<std::size_t>(expert) % (row + 1) == 0) visits[row] += 1;
      });
    }
  }
  for (double& value : hits) value /= kHitTokens;
  for (double& value : visits) value /= kHitTokens;
}

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

ExpertRouting::ExpertRouting(int experts, int experts_per_token, Routing routing)
    : experts_(experts), experts_per_token_(experts_per_token), routing_(routing) {
  SL_CHECK(1 <= experts_per_token && experts_per_token <= experts && experts <= kMostExperts,
           fmt::format("{} of {} experts", experts_per_token, experts));
  SL_CHECK(0 <= routing.skew && routing.skew <= kLargestSkew, fmt::format("skew {}", routing.skew));
  const bool uniform = routing.kind == RoutingKind::uniform || routing.skew == 0;
  std::vector<double> weights;
  for (int rank = 1; rank <= experts; ++rank) weights.push_back(uniform ? 1 : std::pow(rank, -routing.skew));
  if (uniform) {
    inclusion_.assign(weights.size(), 1.0 * experts_per_token / experts);
  } else {
    inclusion_ = inclusion_probabilities(weights, experts_per_token);
    sample_hits(weights, experts_per_token, groups_hit_, visits_);
  }
  const bool busiest = routing.load == ExpertLoad::busiest;
  if (busiest) {
    distinct_ = largest_distinct(weights, experts_per_token, inclusion_);
    LargestLoads loads = largest_loads(weights, experts_per_token);
    pairs_ = std::move(loads.pairs);
    received_ = std::move(loads.received);
  } else {
    distinct_.assign(weights.size(), std::vector<double>(kColumns));
  }

  for (int groups = 1; groups <= experts; ++groups) {
    double share = 0;
    for (int rank = 0; rank < experts; rank += groups) share += inclusion_[static_cast<std::size_t>(rank)];
    share_.push_back(share);
    if (uniform) {
      groups_hit_.push_back(uniform_groups_hit(experts, experts_per_token, groups));
      visits_.push_back(uniform_visit(experts, experts_per_token, largest_group(experts, groups)));
    }
  }
  // The largest count is never expected below the expectation of group 0, which also carries the table on
  // where the sampled paths end.
  for (int column = 0; column < kColumns; ++column) {
    const auto tokens = static_cast<double>(grid_tokens(column));
    std::vector<double> chance;
    for (const double q : inclusion_) chance.push_back(touched(q, tokens));
    for (int groups = 1; groups <= experts; ++groups) {
      double group_zero = 0;
      for (int rank = 0; rank < experts; rank += groups) group_zero += chance[static_cast<std::size_t>(rank)];
      double& cell = distinct_[index(groups)][static_cast<std::size_t>(column)];
      cell = groups == 1 ? group_zero : std::max(cell, group_zero);
    }
  }
}

std::size_t ExpertRouting::index(int groups) const {
  SL_CHECK(1 <= groups && groups <= experts_, fmt::format("{} groups of {} experts", groups, experts_));
  return static_cast<std::size_t>(groups - 1);
}

double ExpertRouting::inclusion(int rank) const {
  SL_CHECK(0 <= rank && rank < experts_, fmt::format("expert {} of {}", rank, experts_));
  return inclusion_[static_cast<std::size_t>(rank)];
}

double ExpertRouting::distinct_experts(int groups, long long tokens) const {
  SL_CHECK(tokens >= 0, fmt::format("{} tokens", tokens));
  const std::vector<double>& row = distinct_[index(groups)];
  if (routing_.load == ExpertLoad::mean && routing_.kind == RoutingKind::uniform) {
    return largest_group(experts_, groups) * touched(inclusion_[0], static_cast<double>(tokens));
  }
  return interpolate(row, tokens);
}

double ExpertRouting::pairs(int groups, long long tokens) const {
  return largest(pairs_, group_zero_share(groups), groups, tokens);
}

double ExpertRouting::tokens_received(int groups, long long tokens) const {
  return largest(received_, visits_[index(groups)], groups, tokens);
}

double ExpertRouting::imbalance(int groups, long long tokens) const {
  if (tokens == 0) return 1;
  const double mean = static_cast<double>(tokens) * groups_hit(groups) / groups;
  return std::max(1.0, tokens_received(groups, tokens) / mean);
}

double ExpertRouting::largest(const std::vector<std::vector<double>>& sampled, double share, int groups,
                              long long tokens) const {
  SL_CHECK(tokens >= 0, fmt::format("{} tokens", tokens));
  const auto count = static_cast<double>(tokens);
  const double mean = share * count;
  if (routing_.load == ExpertLoad::mean || groups == 1) return mean;
  const std::vector<double>& row = sampled[index(groups)];
  if (tokens <= kDense) return std::max(mean, row[static_cast<std::size_t>(tokens)]);
  const double dense_mean = share * static_cast<double>(kDense);
  const double excess = std::max(0.0, row[static_cast<std::size_t>(kDense)] - dense_mean);
  return mean + excess * std::sqrt(count / static_cast<double>(kDense));
}

}  // namespace shardline
