// The searches of planner/studies/partition.hpp. Boundaries are counted in granules; the last part takes what
// is left over.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "planner/studies/partition_proof.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

using Ends = GranuleEnds;

constexpr int kCombined = 8;  // ranks up to which all combinations of moves are tried
constexpr int kRuns = 16;     // ranks up to which the refinement moves every run of boundaries

// One partition whose parts are priced again only where they changed.
class Chain {
 public:
  /// By the closed form of `costs`, or by what `by` says, if `by.least` are the costs. Keeps references.
  Chain(const GranularChain& costs, const PartitionSearch& by) : costs_(costs), by_(by) {}

  void start(Ends ends) {
    ends_ = std::move(ends);
    steps_.clear();
    started_ = false;  // the time of a start is asked for as it is
    for (std::size_t i = 0; i < ends_.size(); ++i) steps_.push_back(priced(ends_, i));
    time_ = measured(ends_, steps_);
    started_ = true;
  }

  /// Moves boundaries first..last by `by` granules if the chain gets faster.
  bool improve(std::size_t first, std::size_t last, long long by) {
    const std::optional<Seconds> t = moved(first, last, by);
    if (!t || *t >= time_) return false;
    take(*t);
    return true;
  }

  const Ends& ends() const { return ends_; }
  Seconds time() const { return time_; }
  std::uint64_t evaluations() const { return evaluations_; }

  /// The time of the chain with each boundary moved by `by`, nothing if parts vanish.
  std::optional<Seconds> tried(const std::vector<long long>& by) {
    trial_ = ends_;
    for (std::size_t i = 0; i < by.size(); ++i) trial_[i] += by[i];
    if (!valid(0, by.size())) return std::nullopt;
    trial_steps_ = steps_;
    for (std::size_t i = 0; i < trial_.size(); ++i)
      if ((i < by.size() && by[i] != 0) || (i > 0 && by[i - 1] != 0)) trial_steps_[i] = priced(trial_, i);
    return measured(trial_, trial_steps_);
  }

  void take(Seconds t) {
    ends_ = trial_;
    steps_ = trial_steps_;
    time_ = t;
  }

 private:
  ChainStep priced(const Ends& ends, std::size_t i) const {
    return costs_.step(i > 0 ? ends[i - 1] : 0, ends[i]);
  }

  bool valid(std::size_t first, std::size_t last) const {
    for (std::size_t i = first; i <= last; ++i)
      if (trial_[i] <= (i > 0 ? trial_[i - 1] : 0)) return false;
    return true;
  }

  std::optional<Seconds> moved(std::size_t first, std::size_t last, long long by) {
    trial_ = ends_;
    for (std::size_t i = first; i <= last; ++i) trial_[i] += by;
    if (!valid(first, last + 1)) return std::nullopt;
    trial_steps_ = steps_;
    for (std::size_t i = first; i <= last + 1; ++i) trial_steps_[i] = priced(trial_, i);
    return measured(trial_, trial_steps_);
  }

  // A trial that a bound of `exact` rules out is not played: the bound stands for its time.
  Seconds measured(const Ends& ends, const std::vector<ChainStep>& steps) {
    ++evaluations_;
    check_cancelled();
    if (!by_.exact) return closed(steps);
    if (started_ && by_.least) {
      const Seconds least = closed(steps) * (1 - kRounding);
      if (least >= time_) return least;
    }
    const std::vector<long long> parts = costs_.partition(ends);
    return started_ && by_.trial ? by_.trial(parts, time_) : by_.exact(parts);
  }

  Seconds closed(const std::vector<ChainStep>& steps) const {
    return chain_time(steps, costs_.cost().layers) + costs_.cost().tail;
  }

  static constexpr double kRounding = 1e-9;  // events add the same costs in another order
  const GranularChain& costs_;
  const PartitionSearch& by_;
  bool started_ = false;
  Ends ends_, trial_;
  std::vector<ChainStep> steps_, trial_steps_;
  Seconds time_;
  std::uint64_t evaluations_ = 0;
};

Ends ends_of(const PartitionProblem& problem, std::span<const long long> partition) {
  Ends ends;
  long long sum = 0;
  for (const long long tokens : partition) ends.push_back((sum += tokens) / problem.granularity);
  return ends;
}

long long largest_stride(const PartitionProblem& p) {
  long long stride = 1;
  while (stride * 8 * p.ranks * p.granularity <= p.context) stride *= 2;
  return stride;
}

// Coordinate descent at halving strides, until the chain has been priced `most` times.
void refine(Chain& chain, int ranks, long long stride,
            std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
  const auto boundaries = static_cast<std::size_t>(ranks - 1);
  for (; stride > 0; stride /= 2) {
    bool better = true;
    for (int pass = 0; better && pass < 64; ++pass) {
      better = false;
      const auto move = [&](std::size_t first, std::size_t last) {
        while (chain.evaluations() < most && chain.improve(first, last, -stride)) better = true;
        while (chain.evaluations() < most && chain.improve(first, last, stride)) better = true;
      };
      for (std::size_t first = 0; first < boundaries; ++first) {
        move(first, first);
        if (ranks <= kRuns) {
          for (std::size_t last = first + 1; last < boundaries; ++last) move(first, last);
        } else if (first + 1 < boundaries) {
          move(first, boundaries - 1);
        }
      }
    }
  }
}

// The best neighbour at a stride is taken until none is better.
void descend(Chain& chain, int ranks, long long stride) {
  const auto boundaries = static_cast<std::size_t>(ranks - 1);
  std::vector<long long> by(boundaries), best;
  while (true) {
    Seconds least = chain.time();
    best.clear();
    const auto consider = [&] {
      const std::optional<Seconds> t = chain.tried(by);
      if (t && *t < least) {
        least = *t;
        best = by;
      }
    };
    if (ranks <= kCombined) {
      std::fill(by.begin(), by.end(), -stride);
      for (std::size_t i = 0; i < boundaries;) {
        if (std::any_of(by.begin(), by.end(), [](long long b) { return b != 0; })) consider();
        for (i = 0; i < boundaries && by[i] == stride; ++i) by[i] = -stride;
        if (i < boundaries) by[i] += stride;
      }
    } else {
      for (std::size_t first = 0; first < boundaries; ++first) {
        for (std::size_t last = first; last < boundaries; ++last) {
          for (const long long d : {-stride, stride}) {
            std::fill(by.begin(), by.end(), 0);
            std::fill(by.begin() + static_cast<std::ptrdiff_t>(first),
                      by.begin() + static_cast<std::ptrdiff_t>(last) + 1, d);
            consider();
          }
        }
      }
    }
    if (best.empty()) return;
    chain.take(*chain.tried(best));
  }
}

struct Period {
  Seconds least;
  Ends ends;
};

// [K2] The least period for which parts, as long as it allows from the last on, leave nothing over; to
// `precision`, below the least.
Period least_period(const GranularChain& costs, const Ends& start, double precision = 0) {
  Period out{costs.period(start), start};
  Seconds low;  // below it there is none
  Ends ends;
  while (low < out.least) {
    if (low >= out.least * (1 - precision)) {
      out.least = low;
      break;
    }
    Seconds middle = (low + out.least) / 2;
    if (middle <= low || middle >= out.least) break;
    Seconds next = out.least;
    if (costs.pack_early(middle, ends, next)) {
      out.ends = ends;
      out.least = std::min(costs.period(ends), middle);
    } else {
      low = next;
      // Between `middle` and `next` nothing changes, so `next` itself is the next candidate.
      Seconds unused = out.least;
      if (low < out.least && costs.pack_early(low, ends, unused)) {
        out.ends = ends;
        out.least = low;
      }
    }
  }
  return out;
}

}  // namespace

PartitionResult grid_search(const ChainCost& cost, const PartitionProblem& problem,
                            const ChainEvaluator& exact) {
  const GranularChain costs(cost, problem);
  const PartitionSearch by{exact};
  Chain chain(costs, by);
  chain.start(ends_of(problem, even_partition(problem)));
  for (long long stride = largest_stride(problem); stride > 0; stride /= 2)
    descend(chain, problem.ranks, stride);
  return {costs.partition(chain.ends()), chain.time(), chain.evaluations()};
}

Seconds partition_bound(const ChainCost& cost, const PartitionProblem& problem, double dip) {
  constexpr double kPrecision = 1e-3;  // nearer takes longer than it rules out
  const GranularChain costs(cost, problem);
  const PartitionSearch closed;
  Chain known(costs, closed);
  known.start(ends_of(problem, even_partition(problem)));
  const Period found = least_period(costs, known.ends(), kPrecision);
  const Ends even = known.ends();
  const Seconds even_time = known.time();
  known.start(found.ends);
  if (even_time < known.time()) known.start(even);
  // Ends that are packed for a period hold those of every partition whose period is shorter by the dip. So
  // the windows of the proof are those of a chain that is so much slower.
  const Proof proof = prove(costs, found.least * (1 - dip), known.ends(), known.time() * (1 + 2 * dip), 0);
  return std::min(known.time(), proof.bound * (1 - dip));
}

SearchedPartition best_partition(const ChainCost& cost, const PartitionProblem& problem,
                                 const PartitionSearch& search) {
  const GranularChain costs(cost, problem);
  const PartitionSearch closed;
  Chain chain(costs, closed);
  const Ends even = ends_of(problem, even_partition(problem));
  chain.start(even);
  SearchedPartition out;
  const Period period = least_period(costs, even);
  out.bound.period = period.least;

  // A period above the least one may fill the chain faster: with early ends, prefixes are short.
  Ends best = chain.ends();
  Seconds least = chain.time();
  for (const double slack : {0.0, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1}) {
    Ends ends;
    Seconds unused;
    for (const bool early : {true, false}) {
      const Seconds limit = period.least * (1 + slack);
      if (!(early ? costs.pack_early(limit, ends, unused) : costs.pack_late(limit, ends))) continue;
      chain.start(ends);
      if (chain.time() < least) {
        least = chain.time();
        best = ends;
      }
    }
  }
  chain.start(best);
  refine(chain, problem.ranks, std::max(1LL, largest_stride(problem) / 4));

  const Proof proof = prove(costs, period.least, chain.ends(), chain.time(), search.proof);
  if (!proof.better.empty()) chain.start(proof.better);
  out.bound.ttft = proof.bound;
  const double p = problem.ranks;
  const Seconds layer = cost.project(problem.context) + cost.rest(problem.context, problem.context);
  out.bound.alone = std::max(layer, cost.host) * cost.layers + cost.tail;
  out.bound.ideal = out.bound.alone * ((1 / p + 1 / (p * p)) / 2);
  // Ranks were priced one by one, whole chains by the exact evaluator.
  const auto ranks = static_cast<std::uint64_t>(problem.ranks);
  if (!search.exact) {
    const auto chains = (costs.priced() + ranks - 1) / ranks;
    out.best = {costs.partition(chain.ends()), chain.time(), chains, proof.complete};
    return out;
  }
  std::optional<GranularChain> bounds;
  if (search.least) bounds.emplace(*search.least, problem);
  Chain exactly(bounds ? *bounds : costs, search);
  exactly.start(even);
  const Seconds even_time = exactly.time();
  exactly.start(chain.ends());
  if (even_time < exactly.time()) exactly.start(even);
  refine(exactly, problem.ranks, std::max(1LL, largest_stride(problem) / 2), search.most_exact);
  const auto chains = (costs.priced() + (bounds ? bounds->priced() : 0) + ranks - 1) / ranks;
  constexpr double kRounding = 1e-12;  // events add the same costs in another order
  out.best = {costs.partition(exactly.ends()), exactly.time(), chains + exactly.evaluations(),
              proof.complete && exactly.time() <= chain.time() * (1 + kRounding)};
  return out;
}

}  // namespace shardline
