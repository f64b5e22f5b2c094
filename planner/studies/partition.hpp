// How many tokens each rank of a KV-Runahead chain takes (arXiv 2405.05329): the chain's closed form, its
// lower bound, the paper's grid search, a faster exact one, and the lookup table that is interpolated
// (KVR-P). Knows no strategy: a chain is its four costs. planner/README.md [K1]-[K6].
//
// Everywhere: rank i of p holds `tokens` c_i of the context, and `prefix` S_i = c_0 + ... + c_i.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

/// One layer on one rank.
struct ChainStep {
  Seconds project;  // q: until its own keys and values are ready
  Seconds join;     // k: puts them behind those it received
  Seconds rest;     // r: attention and all that follows
  Seconds send;     // x: the joined prefix on the link to the next rank
  Seconds host{};   // h: until the rank's host has launched it

  /// Time from one layer's joined prefix to the next one's, on a rank that waits for no other.
  Seconds loop() const { return std::max(project + join + rest, host); }
};

/// Costs of a chain, all layers alike. None may fall when its tokens or its prefix grow: searches rely on it.
struct ChainCost {
  int layers = 1;
  Seconds tail;    // of the last rank, after its last layer
  Seconds host{};  // of a layer, on any rank
  Seconds turn{};  // beside a layer's kernels where ranks communicate; part of `rest` of a step
  std::function<Seconds(long long tokens)> project;
  std::function<Seconds(long long tokens, long long prefix)> join;  // empty: nothing is joined
  std::function<Seconds(long long tokens, long long prefix)> rest;
  std::function<Seconds(long long prefix)> send;

  /// Of a rank with `tokens` > 0 tokens. The first rank joins nothing.
  ChainStep step(long long tokens, long long prefix) const;
};

/// [K1] When the last of `steps` ends its last layer: longest path through ranks and layers, messages of a
/// link in order and beside the computation. At least one step.
Seconds chain_time(std::span<const ChainStep> steps, int layers);
/// The same of a partition, and the tail. Parts are positive.
Seconds chain_time(const ChainCost& cost, std::span<const long long> partition);

/// The whole time of one partition: by the closed form, or by whatever prices it better (event simulation).
using ChainEvaluator = std::function<Seconds(std::span<const long long> partition)>;

/// Every boundary but the last is a multiple of `granularity`, which is the fewest tokens of a rank.
/// Needs context >= ranks * granularity.
struct PartitionProblem {
  long long context = 0;
  int ranks = 1;
  long long granularity = 1;
};

/// Parts of equal size, to one granule.
std::vector<long long> even_partition(const PartitionProblem& problem);
/// The partition whose boundaries are nearest to shares `ratios` of the context (positive; one per rank).
std::vector<long long> partition_of(const PartitionProblem& problem, std::span<const double> ratios);
std::vector<double> ratios_of(std::span<const long long> partition);

struct PartitionResult {
  std::vector<long long> tokens;
  Seconds ttft;                   // by the evaluator
  std::uint64_t evaluations = 0;  // whole chains priced; where ranks are priced one by one, p of them are one
  bool proven = false;            // no partition of this granularity has a smaller closed form than `ttft`
};

/// [K2] What no partition of this granularity can beat.
struct PartitionBound {
  Seconds period;  // least possible largest loop or message of a chain: a layer cannot pass faster
  Seconds ttft;    // with it, and the least that filling and draining the chain takes
  Seconds alone;   // TTFT(1): one rank with the whole context
  Seconds ideal;   // Eq. 3: TTFT(1)/2 (1/p + 1/p^2), messages free and attention of whole rectangles alone
};

struct PartitionSearch {
  ChainEvaluator exact;             // empty: the closed form. Its result is never slower than even parts
  std::uint64_t proof = 1'500'000;  // most steps of the proof; 0: none
  std::uint64_t most_exact = std::numeric_limits<std::uint64_t>::max();  // chains the evaluator is asked for
  // Costs whose closed form `exact` never falls below. Trials that it rules out count as asked for, and are
  // not: no result changes. May be null.
  const ChainCost* least = nullptr;
  // Takes the place of `exact` in trials: a partition's time, or a bound of it that is not below `known`
  // either. May be empty.
  std::function<Seconds(std::span<const long long> partition, Seconds known)> trial = {};
};

/// [K3] The paper's search: from the even partition, all neighbours at a stride, the best taken until none is
/// better, then half the stride. Neighbours move boundaries by one stride either way or not: all combinations
/// up to 8 ranks, runs of adjacent boundaries beyond.
PartitionResult grid_search(const ChainCost& cost, const PartitionProblem& problem,
                            const ChainEvaluator& exact = {});

/// [K4] Bisection on the period, refinement of the closed form, proof within a budget, refinement by the
/// exact evaluator. `bound` is that of the closed form.
struct SearchedPartition {
  PartitionResult best;
  PartitionBound bound;
};
SearchedPartition best_partition(const ChainCost& cost, const PartitionProblem& problem,
                                 const PartitionSearch& search = {});

/// [K2] What no partition of this granularity can beat, known to 0.1 %: SearchedPartition::bound without the
/// search. Where `cost` is a bound of a chain's times, so is this. `dip`: by how much a part that begins
/// earlier may take less at most; nothing else may fall.
Seconds partition_bound(const ChainCost& cost, const PartitionProblem& problem, double dip = 0);

/// Evaluations that the paper states for its search: (p-1)^5 log_4(context).
double published_search_cost(const PartitionProblem& problem);

/// [K5] Searched partitions of one number of ranks, by context (KVR-P).
class PartitionTable {
 public:
  explicit PartitionTable(int ranks) : ranks_(ranks) {}

  struct Row {
    long long context = 0;
    std::vector<double> ratios;
  };
  /// Contexts ascend.
  void add(long long context, std::span<const long long> partition);

  /// Between the neighbouring rows linearly in the context, beyond the first and last as these. At least one
  /// row.
  std::vector<double> ratios(long long context) const;
  /// A row's own partition at its context, if it was of this granularity. Less than a granule below a row:
  /// the row's, its last part cut, as kernels that work in whole tiles take the same time. Else
  /// partition_of(ratios).
  std::vector<long long> partition(long long context, long long granularity) const;

  int ranks() const { return ranks_; }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  int ranks_;
  std::vector<Row> rows_;
};

}  // namespace shardline
