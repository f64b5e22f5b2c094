// When should ring attention pass KV blocks, and when Q blocks? Rules, fits and what a wrong choice costs
// (arXiv 2411.01783: Eq. 1-3 and 5, Algorithms 1 and 5, Appendix D). Knows no strategy: points carry both
// times.
//
// Everywhere: T = `fresh`, the new tokens of the request; P = `cached`, its tokens in the cache; miss rate
// m = T/(T+P); N = `ranks`, the ranks of the ring. Every rule answers pass-KV for T <= 0 and reads P < 0 as
// 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

struct TokenSplit {
  long long fresh = 0;
  long long cached = 0;
  bool operator==(const TokenSplit&) const = default;
};

/// One request with the time of both variants.
struct RingPoint {
  int ranks = 0;
  long long fresh = 0;
  long long cached = 0;
  Seconds pass_kv, pass_q;

  /// A tie goes to pass-KV.
  bool kv_wins() const { return pass_kv <= pass_q; }
  double miss_rate() const { return static_cast<double>(fresh) / static_cast<double>(fresh + cached); }
};

/// What the paper's formulas see of model and machine. One rank may be a node of several GPUs: `compute` and
/// `bandwidth` then are those of the whole node, and the heads those of the whole model.
struct RingSetting {
  double q_heads = 0, kv_heads = 0;
  double element_bytes = 2;
  FlopsPerSecond compute;    // of one rank
  BytesPerSecond bandwidth;  // of one rank, to its neighbour
};

/// Algorithm 1: pass-KV if Eq. 2 holds or m >= 2 N_KV/N_H (Eq. 1). Algorithm 5 lowers the second threshold by
/// T / (N * all_to_all_tokens) (Eq. 5), the cost of returning pass-Q's partial outputs.
struct AnalyticRule {
  int ranks = 0;
  double kv_hidden_tokens = 0;  // per rank; Eq. 2: T >= N * this hides the KV messages
  double message_ratio = 0;     // Eq. 1: 2 N_KV/N_H, the miss rate at which Q and KV messages are equal
  double all_to_all_tokens = std::numeric_limits<double>::infinity();  // per rank; also Eq. 3's T+P per rank

  bool pass_kv(long long fresh, long long cached) const;
};
AnalyticRule algorithm_1(const RingSetting& setting, int ranks);
AnalyticRule algorithm_5(const RingSetting& setting, int ranks);

/// log2 of a positive integer, rounded down, with 24 binary digits after the point: below the true value by
/// less than 2^-24 + 2^-29. Never decreases with x. Integers only, so the same on every machine.
/// x > 0.
std::int64_t fixed_log2(std::int64_t x);
inline constexpr int kLog2Digits = 24;

/// Where a request lies for the rules that decide in integers; fresh > 0, cached read as 0 if negative.
struct RingPlace {
  std::int64_t log_fresh;         // fixed_log2 of T
  std::int64_t log_inverse_miss;  // of 1/m; never negative
};
RingPlace ring_place(long long fresh, long long cached);

/// Appendix D: pass-KV if h(T, P) = alpha ln T + beta ln m + gamma > 0. Decided in integers: the coefficients
/// are divided by the larger of |alpha|, |beta| and rounded to 30 binary digits.
class EmpiricalRule {
 public:
  /// All finite.
  EmpiricalRule(double alpha, double beta, double gamma);
  bool pass_kv(long long fresh, long long cached) const;

  double alpha() const { return alpha_; }
  double beta() const { return beta_; }
  double gamma() const { return gamma_; }

  /// pass-KV if fresh * log2 T + miss * (log2 T - log2 (T+P)) + constant > 0, in fixed_log2's units.
  struct Fixed {
    std::int64_t fresh, miss, constant;
    bool operator==(const Fixed&) const = default;
  };
  const Fixed& fixed() const { return fixed_; }

 private:
  double alpha_, beta_, gamma_;
  Fixed fixed_;
};

/// As printed in the paper; its logarithm is taken as the natural one.
EmpiricalRule appendix_d();

/// `regret` weighs a point by |ln(pass_q / pass_kv)|, to first order the regret of a wrong choice there, so
/// that the fit minimises lost time and near ties do not bend it; `equal` counts wrong choices, as the paper.
enum class FitWeight : std::uint8_t { regret, equal };

/// Logistic regression of kv_wins() on (ln T, ln m): Newton steps on standardised features, with a ridge of
/// 1e-6 of the total weight, so that separable points (even of one class) have a finite fit. Needs one point
/// at least; every T > 0.
EmpiricalRule fit_empirical(std::span<const RingPoint> points, FitWeight weight = FitWeight::regret);
/// The same with a weight of each point, not negative.
EmpiricalRule fit_empirical(std::span<const RingPoint> points, std::span<const double> weights);

/// Where a table has its nodes: lines of T, anywhere, and log2(1/m) = j / miss_per_octave.
struct LookupGrid {
  std::vector<std::int64_t> fresh;  // ascending multiples of 2N, two at least
  int miss_per_octave = 2;
  int miss_nodes = 2;  // two at least

  /// Covers T in [fresh_min, fresh_max] and m in [miss_min, 1], with T rounded to multiples of 2N (those that
  /// coincide then are one line).
  static LookupGrid covering(int ranks, long long fresh_min, long long fresh_max, double miss_min,
                             int fresh_per_octave, int miss_per_octave);
  std::size_t nodes() const { return fresh.size() * static_cast<std::size_t>(miss_nodes); }
};

/// What to time for a table: the nodes with T+P <= limit, T outer, P rounded to multiples of 2N so that
/// sharding is even. Nodes beyond the limit are left out.
std::vector<TokenSplit> table_points(const LookupGrid& grid, int ranks, long long limit);

/// ln(pass_q / pass_kv) at the nodes of a grid, as one signed byte each; bilinear in log2 T and log2(1/m)
/// between the nodes, clamped to the grid's edge outside; the sign decides. Integers only after construction.
class LookupTable {
 public:
  /// `values` in the order of values(); as many as the grid has nodes.
  LookupTable(int ranks, LookupGrid grid, double step, std::vector<std::int8_t> values);

  /// `points` are the timed table_points(grid, ranks, limit), in that order (checked). A node just beyond the
  /// limit continues the plane through its neighbours inside; one further out takes the value of the next
  /// smaller T at the same m. The grid's first node lies within the limit.
  static LookupTable build(const LookupGrid& grid, int ranks, long long limit,
                           std::span<const RingPoint> points);

  bool pass_kv(long long fresh, long long cached) const;
  /// ln(pass_q / pass_kv) as the table has it: at most 127 steps either way. Its sign is the choice. fresh >
  /// 0.
  double log_ratio(long long fresh, long long cached) const;
  int ranks() const { return ranks_; }
  const LookupGrid& grid() const { return grid_; }
  /// fixed_log2 of each line's T.
  const std::vector<std::int32_t>& lines() const { return lines_; }
  /// Natural-log units of one count.
  double step() const { return step_; }
  /// T outer: values()[i * miss_nodes + j].
  const std::vector<std::int8_t>& values() const { return values_; }
  /// One per value and four per line.
  std::size_t bytes() const { return values_.size() + 4 * lines_.size(); }

 private:
  /// Between the four nodes around a request: the sum of their values by their weights, and the weights'.
  struct Between {
    std::int64_t sum, weights;
  };
  Between between(long long fresh, long long cached) const;

  int ranks_ = 0;
  LookupGrid grid_;
  std::vector<std::int32_t> lines_;
  double step_ = 0;
  std::vector<std::int8_t> values_;
};

/// Times points, in their order.
using RingTimer = std::function<std::vector<RingPoint>(int ranks, std::span<const TokenSplit> splits)>;

/// Stop when no probe loses more than `regret`, or before the table exceeds `bytes`.
struct Refinement {
  double regret = 0.005;
  std::size_t bytes = 2048;
};

struct RefinedTable {
  LookupTable table;
  /// All that was timed: first the starting grid's table_points in their order, then the probes.
  std::vector<RingPoint> points;
  std::size_t grid_points = 0;  // how many of `points` are the starting grid's
};

/// A table with further lines of T where the choice jumps, as at the end of a wave of tiles. Each gap between
/// two lines is probed at the grid's miss rates just above its lower line and at its quarters; a line is
/// added at the worst probe of each gap that loses more than `regret`, and the new gaps are probed.
RefinedTable refined_table(const LookupGrid& start, int ranks, long long limit, const RingTimer& time,
                           const Refinement& refinement = {});

/// The table whose N is nearest on a log scale, the smaller one of two equally near. `tables` ascend in N and
/// are not empty.
const LookupTable& nearest_table(std::span<const LookupTable> tables, int ranks);

/// Where test points are drawn.
struct TokenRange {
  long long fresh_min = 1, fresh_max = 1;
  double miss_min = 1;        // m in [miss_min, 1]
  long long total_limit = 1;  // T+P at most
};

/// `count` distinct points for testing, log-uniform in T and m by a low-discrepancy sequence (R2), T and P
/// rounded to multiples of 2N, inside the range, and none of them one of `excluded`. Fewer if the range holds
/// too few.
std::vector<TokenSplit> test_points(const TokenRange& range, int ranks, std::size_t count,
                                    std::span<const TokenSplit> excluded);

/// Cost of a rule's choices: time(chosen) / min(both) - 1 at each point.
struct Regret {
  std::size_t points = 0;
  std::size_t right = 0;  // regret zero
  double mean = 0;
  double p99 = 0;  // nearest rank: the smallest value that 99 % of points do not exceed
  double worst = 0;
  RingPoint worst_at;  // the first one
};

/// True for pass-KV.
using RingChoice = std::function<bool(int ranks, long long fresh, long long cached)>;

/// Sums in the order of `points`; all zero for no points.
Regret regret(std::span<const RingPoint> points, const RingChoice& choice);

}  // namespace shardline
