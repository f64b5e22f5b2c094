// How many experts a batch of tokens wakes, and how evenly. Equations [M8]-[M13]: README.md.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace shardline {

/// uniform: every set of experts is equally likely. zipf: the r-th most popular expert has weight r^-skew,
/// and a token draws its experts one by one without replacement.
enum class RoutingKind : std::uint8_t { uniform, zipf };

/// mean: the group that expects most. busiest: the expectation of the largest over the groups, which a step
/// waits for.
enum class ExpertLoad : std::uint8_t { mean, busiest };

struct Routing {
  RoutingKind kind = RoutingKind::uniform;
  double skew = 0;  ///< zipf only, 0 to kLargestSkew
  ExpertLoad load = ExpertLoad::mean;

  bool operator==(const Routing&) const = default;
};

inline constexpr double kLargestSkew = 2;

/// Expert use of one MoE layer. The expert of popularity rank r (from 0) lies in group r mod groups, so group
/// 0 holds ceil(experts / groups) experts and is never the lighter one. Safe to share between threads; copies
/// share what they know. Lookups take constant time, but for the first of each number of groups: with
/// `busiest` some 10 ms of counting on tokens that the constructor drew in some 0.4 s (a seeded Monte
/// Carlo, the same on every machine, whatever is asked first).
class ExpertRouting {
 public:
  /// 1 <= experts_per_token <= experts <= 1024; 0 <= skew <= kLargestSkew.
  ExpertRouting(int experts, int experts_per_token, Routing routing);

  int experts() const { return experts_; }
  int experts_per_token() const { return experts_per_token_; }
  const Routing& routing() const { return routing_; }

  /// [M9], [M10] Distinct experts that `tokens` tokens touch in one of `groups` groups, 1 <= groups <=
  /// experts.
  double distinct_experts(int groups, long long tokens) const;

  /// [M11] (token, expert) pairs that one of `groups` groups computes for `tokens` tokens.
  double pairs(int groups, long long tokens) const;

  /// [M12] Groups that one token's experts lie in, on average.
  double groups_hit(int groups) const;

  /// [M13] Tokens of `tokens` that have an expert in one of `groups` groups: rows that its ranks receive in a
  /// dispatch and return in a combine.
  double tokens_received(int groups, long long tokens) const;

  /// [M13] That over its mean of all groups, at least 1: how much longer an exchange is for the group with
  /// most to receive than for a rank that sends.
  double imbalance(int groups, long long tokens) const;

  /// [M13] Tokens under even uniform routing that send a group as much as one of `tokens` does to the
  /// busiest: a ratio.
  double as_even(int groups, long long tokens) const;

  /// [M13] Whether that ratio is not 1, by more than rounding: then a cost of even routing is of other
  /// tokens.
  bool uneven(int groups, long long tokens) const;

  /// [M8] Probability that a token visits the expert of popularity rank `rank`.
  double inclusion(int rank) const;

 private:
  struct Groups;
  struct Known;
  bool uniform() const;
  const Groups& of(int groups) const;
  Groups count(int groups) const;
  // Of something whose mean per token in group 0 is `share`, and whose largest is sampled.
  double largest(const std::vector<double>& sampled, double share, int groups, long long tokens) const;

  int experts_;
  int experts_per_token_;
  Routing routing_;
  std::vector<double> inclusion_;
  std::shared_ptr<Known> known_;
};

/// [M8] Probabilities that each of `weights` is among the first `draws` of successive sampling without
/// replacement.
std::vector<double> inclusion_probabilities(const std::vector<double>& weights, int draws);

}  // namespace shardline
