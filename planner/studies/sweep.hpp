// What a sweep answers: the plans of a study that nothing beats, what they rest on, and those that meet what
// was asked for.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/compare.hpp"
#include "planner/serving/pools.hpp"
#include "planner/studies/rated_points.hpp"

namespace shardline {

struct SweepQuestion {
  Seconds most_time{0};        // TTL of a decode step, TTFT of a prefill; 0: any
  double tokens_per_user = 0;  // where most_time was asked as the least tokens/s of a user; 0: it was not
  Seconds most_ttft{0};        // of a workload, beside TPOT; 0: any
  double least_users = 0;      // of a decode step
  bool exhaustive = false;     // simulate every feasible configuration
  bool keep_all = false;       // and keep them
  int threads = 0;             // 0: all cores; results do not depend on it
  SearchJournal* journal = nullptr;
  bool has_target() const { return most_time > Seconds(0) || most_ttft > Seconds(0) || least_users > 0; }
};

/// "TPOT at most 20 ms", and where it was asked in tokens/s of a user "50 tokens/s/user or more (TPOT at most
/// 20 ms)".
std::string time_target_text(const std::string& name, Seconds most_time, double tokens_per_user);

/// The best plan within a TTL budget.
struct BudgetPlan {
  Seconds budget;
  Point best;
};

struct SweepAnswer {
  SearchResult found;
  std::vector<Point> frontier;             // of all strategies; of a prefill the lowest cost first
  std::vector<Point> exact_frontier;       // of the exact ones, where some are approximate
  RatedPoints rated;                       // each strategy's own frontier
  std::optional<RatedPoints> all;          // every configuration, if asked for
  std::vector<Diagnostic> unread;          // unread_parameters() of the rated plans, and unchecked_model()
  std::vector<Diagnostic> narrow;          // narrow_warnings() of the rated plans
  std::vector<Point> meeting;              // what meets the target, the best first, five at most
  std::vector<BudgetPlan> budgets;         // of a decode step: each plan once
  std::optional<Gain> gain;                // of a decode step's comparison, where both sides have plans
  std::optional<ErrorBand> interactivity;  // of ln(true gain->interactivity / it) [H65]
  std::vector<PoolPair> pools;             // of a workload: the best pair per TPOT budget, each once
  RatedPoints pool_decoders;               // their plans that decode
  std::vector<NoisyPlan> noisy;  // the rated plans beside the traffic of others, of studies with noise

  bool any() const { return !frontier.empty(); }
};

/// `progress` in plans; it may throw to stop. `go_on` is asked between plans beside noise.
SweepAnswer answer_sweep(const Study& study, const SweepQuestion& question,
                         const std::function<void(std::uint64_t done, std::uint64_t total)>& progress,
                         const std::function<bool()>& go_on);

/// By how much of its time the answers of both pools per GPU may be off [P12]: of a request's time on the
/// GPUs of each; in whole replicas of the slower pool.
ErrorTerms pair_errors(const SweepAnswer& answer, const PoolPair& pair);
ErrorTerms whole_errors(const SweepAnswer& answer, const PoolPair& pair);
/// [P32] What boards of both pools draw on average, in the ratio that answers most and in whole replicas,
/// where the GPUs of the faster pool wait.
BoardWatts pair_watts(const SweepAnswer& answer, const PoolPair& pair);
BoardWatts whole_watts(const SweepAnswer& answer, const PoolPair& pair, const BoardPower& power);
/// Of a pair's TTFT: of steps of prompts, those that are waited for among them, and of steps that decode, the
/// first and those that make room, in the parts of it that they are.
ErrorTerms first_token_errors(const SweepAnswer& answer, const PoolPair& pair);

/// The strategies of a study that are exact.
std::vector<StrategyId> exact_ones(const Study& study);
/// Whether one of them is not: tables and files then have a column for it.
bool any_approximate(const Study& study);

/// Whether points are on the frontier of all strategies; exact ones are measured against exact ones only.
class BestPoints {
 public:
  BestPoints(const Study& study, const SearchResult& found);
  bool holds(const Point& point) const;

 private:
  Frontier exact_, all_;
};

}  // namespace shardline
