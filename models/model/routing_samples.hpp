// Seeded draws of the experts of tokens, and what is counted on them. [M10]-[M13]: README.md.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace shardline {

/// Grid of token counts that tables of routing have columns for: every one up to kDenseTokens, then evenly
/// spaced points within each doubling.
inline constexpr long long kDenseTokens = 512;
inline constexpr int kTokensPerOctave = 32;
inline constexpr int kTokenOctaves = 15;
inline constexpr int kTokenColumns = static_cast<int>(kDenseTokens) + kTokensPerOctave * kTokenOctaves + 1;

long long grid_tokens(int column);
/// The last grid point at or below `tokens`, and the first at or above it.
int column_below(long long tokens);
int column_above(long long tokens);

/// Tokens of one MoE layer, drawn once; each number of groups (expert e lies in group e mod groups) is then
/// counted by itself, so that only those that are asked for cost time. The same on every machine; immutable.
class RoutingSamples {
 public:
  /// Experts are drawn one by one without replacement, `draws` for each token. `inclusion`: chance of each
  /// expert that a token visits it. `paths`: for the expectations of the largest group.
  RoutingSamples(const std::vector<double>& weights, int draws, const std::vector<double>& inclusion,
                 bool paths);

  /// [M12] Groups that a token's experts lie in; [M13] the chance that group 0 is among them.
  struct Hits {
    double groups, group_zero;
  };
  Hits hits(int groups) const;

  /// [M10] Mean of the largest number of distinct experts over the groups, by column of the grid.
  std::vector<double> largest_distinct(int groups) const;

  /// Means of the largest number over the groups of [M11] (token, expert) pairs and [M13] tokens with an
  /// expert there, for 0 to kDenseTokens tokens.
  struct Loads {
    std::vector<double> pairs, received;
  };
  Loads largest_loads(int groups) const;

 private:
  class Sampler;
  using Expert = std::uint16_t;

  std::vector<Expert> group_of(int groups) const;
  void draw_path(Sampler& sampler, int path, const std::vector<double>& inclusion);

  std::size_t experts_, draws_;
  std::vector<Expert> tokens_;  // of [M12], draws_ experts each
  std::vector<Expert> paths_;   // of [M11] and [M13], likewise, path after path
  // [M10]: each path's experts in the order in which they are first seen, with the column that counts them.
  std::vector<std::vector<std::pair<Expert, Expert>>> first_seen_;
};

}  // namespace shardline
