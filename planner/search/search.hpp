// Every valid plan and batch of a case, or as much of them as the frontier needs.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "planner/engines/launchable.hpp"
#include "planner/search/pareto.hpp"
#include "planner/serving/served.hpp"

namespace shardline {

class SearchJournal;

struct SearchOptions {
  std::vector<StrategyId> strategies;
  std::vector<StrategyId>
      prefills;  // of a workload: of pools that prefill, where prompts have GPUs of their own
  std::vector<int> gpus;
  std::vector<int> batches;  // per attention group and microbatch, ascending
  // Users of the whole deployment, ascending: a plan's batches are those that make one of these numbers,
  // whatever `batches` says of others. Empty: any.
  std::vector<int> users;
  SearchSpace space;
  AllReduceRule all_reduce = AllReduceRule::fastest;
  Metric x = Metric::speed, y = Metric::throughput;
  Seconds most_time{0};                    // plans above it, a TTL or a TTFT, do not count; 0: none
  Seconds most_ttft{0};                    // of a workload: plans whose mean TTFT is above it, likewise
  std::optional<ServedWorkload> workload;  // of decode: points are served [P19], by the case's engine
  // Users beyond what memory holds wait, as in an engine's queue, and the largest batch that fits runs;
  // otherwise such batches do not fit. Set where a scenario has a workload.
  bool queues = false;
  int pool_gpus = 0;                 // of a workload: GPUs of both pools of a pair, at most; 0: the system's
  double least_users = 0;            // of decode: plans that serve fewer do not count
  bool prune = true;                 // skip what a bound proves to be off the frontier of its strategy
  bool keep_all = false;             // keep every simulated point (implies no pruning)
  int threads = 0;                   // 0: all cores
  SearchJournal* journal = nullptr;  // what is finished is kept there, and taken from there
};

struct SearchCounts {
  std::uint64_t plans = 0;           // plans (all degrees, chunks) before the batch is chosen
  std::uint64_t configurations = 0;  // plans x batches that pass check
  std::uint64_t infeasible = 0;      // of these, not fitting memory or serving too few users
  std::uint64_t full = 0;            // of these, only with more users waiting for a memory that is full
  std::uint64_t simulated = 0;       // by events
  std::uint64_t bounds = 0;          // closed forms evaluated
  std::uint64_t pruned = 0;          // ruled out without simulation
  std::uint64_t over_budget = 0;     // simulated, above SearchOptions::most_time or most_ttft
  std::uint64_t partitions = 0;      // chains priced in search of partitions [C13]
  double seconds = 0;                // wall clock
  // Per core, from a sample of the calls; 0 if there were too few.
  double simulations_per_second = 0, bounds_per_second = 0;
};

/// Plans that the engine does not start, by the first rule that refuses each.
struct NotStarted {
  std::uint64_t plans = 0;
  Refusal first;
};

struct SearchResult {
  std::map<StrategyId, Frontier> frontiers;  // of each strategy by itself
  // Of chains with equal parts, beside the searched ones; with a searched partition none is slower.
  Frontier even{Metric::speed, Metric::throughput};
  std::map<std::string, std::uint64_t> rejected;  // infeasible configurations by reason
  std::map<std::string, NotStarted> not_started;  // by the rule's id; no batch of such a plan is counted
  // Strategies of which nothing was looked at, whatever fits, with the reason.
  std::vector<std::pair<StrategyId, std::string>> without_plans;
  // Values of options that were asked for and that no plan has: "chunks 8".
  std::vector<std::string> unused_values;
  SearchCounts counts;
  // Where none has a TTFT of most_ttft or less: what comes nearest, at its smallest batch (nearest_points).
  std::vector<Point> nearest;
  std::vector<Point> all;  // keep_all, in enumeration order
  Frontier overall() const;
  Frontier of(const std::vector<StrategyId>& ids) const;
  Metric x = Metric::speed, y = Metric::throughput;
};

/// `progress(done, total)` in plans, from one thread at a time; returning false stops the search (the result
/// is then incomplete). Results do not depend on the number of threads.
SearchResult search(const Case& c, const SearchOptions& options,
                    const std::function<bool(std::uint64_t, std::uint64_t)>& progress = {});

}  // namespace shardline
