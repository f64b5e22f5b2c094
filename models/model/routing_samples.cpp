#include "models/model/routing_samples.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

constexpr std::uint64_t kSeed = 0x5eed;

// Sampled paths. Every path is followed for the first tokens, where the largest count is a small integer;
// counts of many tokens vary less and cost more.
constexpr int kPaths = 1024;
constexpr int kLongPaths = 96;
constexpr long long kShortPath = 64;
constexpr long long kDistinctPath = 256;
constexpr int kHitTokens = 16384;

long long path_length(int path) { return path < kLongPaths ? kDenseTokens : kShortPath; }

/// Uniform in (0, 1).
double unit(std::mt19937_64& rng) { return (static_cast<double>(rng() >> 11) + 0.5) * 0x1p-53; }

}  // namespace

long long grid_tokens(int column) {
  if (column <= kDenseTokens) return column;
  const int beyond = column - static_cast<int>(kDenseTokens);
  return (kDenseTokens << (beyond / kTokensPerOctave)) / kTokensPerOctave *
         (kTokensPerOctave + beyond % kTokensPerOctave);
}

int column_below(long long tokens) {
  if (tokens <= kDenseTokens) return static_cast<int>(tokens);
  const auto octave =
      static_cast<int>(std::bit_width(static_cast<unsigned long long>(tokens / kDenseTokens))) - 1;
  if (octave >= kTokenOctaves) return kTokenColumns - 1;
  const long long step = (kDenseTokens << octave) / kTokensPerOctave;
  return static_cast<int>(kDenseTokens + kTokensPerOctave * octave +
                          (tokens - (kDenseTokens << octave)) / step);
}

int column_above(long long tokens) {
  const int below = column_below(tokens);
  return grid_tokens(below) == tokens || below + 1 == kTokenColumns ? below : below + 1;
}

/// Draws the distinct experts of one token, one by one without replacement.
class RoutingSamples::Sampler {
 public:
  Sampler(const std::vector<double>& weights, std::size_t draws) : draws_(draws), below_(weights.size() + 1) {
    std::partial_sum(weights.begin(), weights.end(), below_.begin() + 1);
  }

  /// In order of rank.
  const std::vector<Expert>& next(std::mt19937_64& rng) {
    drawn_.clear();
    double rest = below_.back();
    for (std::size_t i = 0; i < draws_; ++i) {
      double point = unit(rng) * rest;
      auto at = drawn_.begin();  // step over the weights that are taken
      for (; at != drawn_.end() && below_[*at] <= point; ++at) point += weight(*at);
      const auto above = std::upper_bound(below_.begin() + 1, below_.end() - 1, point);
      auto expert = static_cast<std::size_t>(above - below_.begin()) - 1;
      // Rounding may land the point on a taken neighbour.
      while (std::find(drawn_.begin(), drawn_.end(), expert) != drawn_.end()) {
        expert = (expert + 1) % (below_.size() - 1);
      }
      drawn_.insert(std::upper_bound(drawn_.begin(), drawn_.end(), expert), static_cast<Expert>(expert));
      rest -= weight(expert);
    }
    return drawn_;
  }

 private:
  double weight(std::size_t expert) const { return below_[expert + 1] - below_[expert]; }

  std::size_t draws_;
  std::vector<double> below_;  // summed weights of all experts of smaller rank
  std::vector<Expert> drawn_;
};

RoutingSamples::RoutingSamples(const std::vector<double>& weights, int draws,
                               const std::vector<double>& inclusion, bool paths)
    : experts_(weights.size()), draws_(static_cast<std::size_t>(draws)) {
  Sampler sampler(weights, draws_);
  std::mt19937_64 rng(kSeed);
  CancelCheck check;
  for (int token = 0; token < kHitTokens; ++token) {
    check();
    const std::vector<Expert>& drawn = sampler.next(rng);
    tokens_.insert(tokens_.end(), drawn.begin(), drawn.end());
  }
  if (!paths) return;
  for (int path = 0; path < kPaths; ++path) {
    check_cancelled();
    draw_path(sampler, path, inclusion);
  }
}

void RoutingSamples::draw_path(Sampler& sampler, int path, const std::vector<double>& inclusion) {
  std::mt19937_64 rng(kSeed + static_cast<std::uint64_t>(path));
  std::vector<bool> seen(experts_);
  auto& order = first_seen_.emplace_back();
  const auto see = [&](std::size_t expert, long long tokens) {
    if (seen[expert]) return;
    seen[expert] = true;
    order.emplace_back(static_cast<Expert>(expert), static_cast<Expert>(column_above(tokens)));
  };
  for (long long token = 1; token <= kDistinctPath; ++token) {
    const std::vector<Expert>& drawn = sampler.next(rng);
    if (token <= path_length(path)) paths_.insert(paths_.end(), drawn.begin(), drawn.end());
    for (const Expert expert : drawn) see(expert, token);
  }
  std::mt19937_64 further = rng;
  for (long long token = kDistinctPath; token < path_length(path); ++token) {
    const std::vector<Expert>& drawn = sampler.next(further);
    paths_.insert(paths_.end(), drawn.begin(), drawn.end());
  }
  // What is missing now is rare, so the waits for it are as good as independent.
  std::vector<std::pair<double, std::size_t>> later;
  for (std::size_t i = 0; i < experts_; ++i) {
    if (seen[i]) continue;
    const double wait = std::ceil(std::log(unit(rng)) / std::log1p(-inclusion[i]));
    later.emplace_back(std::min(wait, 0x1p40), i);
  }
  std::ranges::sort(later);
  for (const auto& [wait, expert] : later) see(expert, kDistinctPath + static_cast<long long>(wait));
}

std::vector<RoutingSamples::Expert> RoutingSamples::group_of(int groups) const {
  std::vector<Expert> group(experts_);
  for (std::size_t i = 0; i < experts_; ++i)
    group[i] = static_cast<Expert>(i % static_cast<std::size_t>(groups));
  return group;
}

RoutingSamples::Hits RoutingSamples::hits(int groups) const {
  const std::vector<Expert> group = group_of(groups);
  std::vector<std::size_t> last_token(static_cast<std::size_t>(groups));
  double all = 0, zero = 0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::size_t g = group[tokens_[i]], token = i / draws_ + 1;
    if (last_token[g] == token) continue;
    last_token[g] = token;
    ++all;
    if (g == 0) ++zero;
  }
  return {all / kHitTokens, zero / kHitTokens};
}

std::vector<double> RoutingSamples::largest_distinct(int groups) const {
  std::vector<double> mean(kTokenColumns);
  const std::vector<Expert> group = group_of(groups);
  std::vector<int> count(static_cast<std::size_t>(groups));
  for (const auto& order : first_seen_) {
    std::ranges::fill(count, 0);
    int largest = 0;
    for (const auto& [expert, column] : order) {
      if (++count[group[expert]] <= largest) continue;
      ++largest;
      mean[column] += 1.0 / kPaths;
    }
  }
  std::partial_sum(mean.begin(), mean.end(), mean.begin());
  return mean;
}

RoutingSamples::Loads RoutingSamples::largest_loads(int groups) const {
  struct Group {
    int pairs = 0, received = 0;
    long long last_token = 0;
  };
  Loads mean{std::vector<double>(kDenseTokens + 1), std::vector<double>(kDenseTokens + 1)};
  const std::vector<Expert> group = group_of(groups);
  std::vector<Group> count(static_cast<std::size_t>(groups));
  const Expert* drawn = paths_.data();
  for (int path = 0; path < kPaths; ++path) {
    check_cancelled();
    std::ranges::fill(count, Group{});
    int most_pairs = 0, most_received = 0;
    for (long long token = 1; token <= path_length(path); ++token, drawn += draws_) {
      const double part = 1.0 / (token <= kShortPath ? kPaths : kLongPaths);
      for (std::size_t i = 0; i < draws_; ++i) {
        Group& g = count[group[drawn[i]]];
        if (++g.pairs > most_pairs) {
          ++most_pairs;
          mean.pairs[static_cast<std::size_t>(token)] += part;
        }
        if (g.last_token == token) continue;
        g.last_token = token;
        if (++g.received > most_received) {
          ++most_received;
          mean.received[static_cast<std::size_t>(token)] += part;
        }
      }
    }
  }
  for (std::vector<double>* row : {&mean.pairs, &mean.received})
    std::partial_sum(row->begin(), row->end(), row->begin());
  return mean;
}

}  // namespace shardline
