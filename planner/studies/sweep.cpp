#include "planner/studies/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/engines/architectures.hpp"
#include "planner/engines/launch_rules.hpp"
#include "planner/handoff/cache_layout.hpp"
#include "planner/search/named_kernels.hpp"
#include "planner/search/narrow.hpp"
#include "planner/search/provenance.hpp"
#include "planner/studies/plan_load.hpp"
#include "planner/studies/told_apart.hpp"
#include "planner/studies/unread.hpp"
#include "sim/base/asking.hpp"

namespace shardline {

namespace {

constexpr std::size_t kShown = 5;                                                    // that meet a target
constexpr std::array<double, 8> kBudgets{1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0};  // x the lowest TTL

std::vector<Point> frontier_of(const Study& study, const Frontier& frontier) {
  std::vector<Point> out = frontier.points();
  if (study.study.batch.kind() == StepKind::prefill && !maximised(frontier.x()))
    std::reverse(out.begin(), out.end());
  return out;
}

const Point& fastest(const std::vector<Point>& frontier) {
  return *std::min_element(frontier.begin(), frontier.end(),
                           [](const Point& a, const Point& b) { return a.time < b.time; });
}

// The best plan of each budget, without repetition.
std::vector<BudgetPlan> budget_plans(const std::vector<Point>& frontier) {
  const Seconds lowest = fastest(frontier).time;
  std::vector<BudgetPlan> out;
  const Point* last = nullptr;
  for (const double factor : kBudgets) {
    const Point* best = best_within(frontier, lowest * factor);
    if (best != last) out.push_back({lowest * factor, *best});
    last = best;
  }
  return out;
}

// By tokens/s/GPU. Neighbouring batches of one plan are one answer: the best of each sharding is shown.
std::vector<Point> best_shardings(std::vector<Point> meeting) {
  std::sort(meeting.begin(), meeting.end(), [](const Point& a, const Point& b) {
    return value(Metric::throughput, a) > value(Metric::throughput, b);
  });
  std::vector<Point> out;
  std::vector<Plan> shown;
  for (const Point& p : meeting) {
    const Plan sharding = sharding_of(p.plan);
    if (std::find(shown.begin(), shown.end(), sharding) != shown.end()) continue;
    shown.push_back(sharding);
    out.push_back(p);
    if (out.size() == kShown) break;
  }
  return out;
}

std::vector<Point> fewest_gpus(std::vector<Point> meeting) {
  std::stable_sort(meeting.begin(), meeting.end(),
                   [](const Point& a, const Point& b) { return a.plan.gpus() < b.plan.gpus(); });
  if (meeting.size() > kShown) meeting.erase(meeting.begin() + kShown, meeting.end());
  return meeting;
}

// The search left out plans with too few users, and those whose first tokens come too late.
std::vector<Point> meeting(const Study& study, const SweepQuestion& q, const std::vector<Point>& frontier) {
  std::vector<Point> out;
  for (const Point& p : frontier) {
    if (q.most_time == Seconds(0) || p.time <= q.most_time) out.push_back(p);
  }
  return study.study.batch.kind() != StepKind::prefill ? best_shardings(std::move(out))
                                                       : fewest_gpus(std::move(out));
}

// The pair of each budget, and of the target, that answers most on the GPUs of both pools, without
// repetition.
std::vector<PoolPair> best_pairs(const std::vector<PoolPair>& pairs, Seconds most_time) {
  std::vector<PoolPair> out;
  if (pairs.empty()) return out;
  std::vector<Seconds> budgets;
  for (const double factor : kBudgets) budgets.push_back(pairs.front().decode.time * factor);
  if (most_time > Seconds(0)) budgets.push_back(most_time);
  std::sort(budgets.begin(), budgets.end());
  for (const Seconds budget : budgets) {
    const PoolPair* best = nullptr;
    for (const PoolPair& p : pairs) {
      if (p.decode.time > budget) break;
      if (best == nullptr || p.output_per_s_gpu > best->output_per_s_gpu) best = &p;
    }
    if (best != nullptr && (out.empty() || out.back().decode.plan != best->decode.plan)) out.push_back(*best);
  }
  return out;
}

void find_pools(Study study, const SweepQuestion& q, SweepAnswer& out) {
  const int threads = q.threads;
  study.sweep().search.most_ttft = q.most_ttft;
  out.pools = best_pairs(pool_pairs(study, threads), q.most_time);
  std::vector<Point> decoders;
  for (PoolPair& p : out.pools) {
    fit_whole(study, p);
    decoders.push_back(p.decode);
  }
  out.pool_decoders = rate(study, std::move(decoders), threads);
  rate_prefills(study, out.pools);
}

SearchOptions options_of(const Study& study, const SweepQuestion& q) {
  SearchOptions o = study.sweep().search;
  o.threads = q.threads;
  o.journal = q.journal;
  o.prune = !q.exhaustive && !q.keep_all;
  o.keep_all = q.keep_all;
  o.least_users = q.least_users;
  o.most_ttft = q.most_ttft;
  return o;
}

}  // namespace

std::string time_target_text(const std::string& name, Seconds most_time, double tokens_per_user) {
  const std::string time = fmt::format("{} at most {}", name, to_string(most_time));
  return tokens_per_user > 0 ? fmt::format("{} tokens/s/user or more ({})", tokens_per_user, time) : time;
}

SweepAnswer answer_sweep(const Study& study, const SweepQuestion& q,
                         const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                         const std::function<bool()>& go_on) {
  SweepAnswer out;
  out.found = search(study.study, options_of(study, q), [&](std::uint64_t done, std::uint64_t total) {
    progress(done, total);
    return true;
  });
  out.frontier = frontier_of(study, out.found.overall());
  if (study.sweep().search.workload) find_pools(study, q, out);
  std::vector<Diagnostic> of_model = model_notes(study.study);
  if (auto unchecked = unchecked_model(study.study))
    of_model.push_back(Diagnostic{{}, std::move(*unchecked), {}});
  if (!out.any()) {
    out.unread = std::move(of_model);
    return out;
  }
  if (any_approximate(study)) out.exact_frontier = frontier_of(study, out.found.of(exact_ones(study)));
  out.rated = rate_frontiers(study, out.found, q.threads);
  if (q.keep_all) {
    std::vector<Point> all;
    append_asking(all, out.found.all);
    out.all = rate(study, std::move(all), q.threads);
  }
  out.unread = unread_parameters(study.study, plans_of(out.rated), study.sweep().search.all_reduce);
  for (Diagnostic& note : of_model) out.unread.push_back(std::move(note));
  out.narrow = narrow_warnings(study.study, plans_of(out.rated), study.sweep().search.all_reduce);
  for (Diagnostic& d : unused_kernels(study.study, plans_of(out.rated), study.sweep().search.all_reduce))
    out.narrow.push_back(std::move(d));
  for (Diagnostic& d : searched_scales(study.study, plans_of(out.rated), study.sweep().search.all_reduce))
    out.narrow.push_back(std::move(d));
  if (auto unequal = unequal_heads(study.study, plans_of(out.rated)))
    out.narrow.push_back(std::move(*unequal));
  if (q.has_target()) out.meeting = meeting(study, q, out.frontier);
  if (study.study.batch.kind() != StepKind::prefill) {
    out.budgets = budget_plans(out.frontier);
    const auto candidate = out.found.of(study.sweep().compare.candidate).points(),
               baseline = out.found.of(study.sweep().compare.baseline).points();
    if (!candidate.empty() && !baseline.empty()) {
      out.gain = gain(candidate, baseline);
      out.interactivity = ratio_band(out.rated, Metric::speed, fastest(candidate), fastest(baseline));
    }
  }
  if (study.sweep().noise) out.noisy = noisy_plans(study, plans_of(out.rated), q.threads, go_on);
  return out;
}

ErrorTerms pair_errors(const SweepAnswer& answer, const PoolPair& p) {
  ErrorTerms out = answer.pool_decoders.of(p.decode.plan).errors * (1 / (1 + p.prefill_gpus));
  out += p.prefill.errors * (p.prefill_gpus / (1 + p.prefill_gpus));
  return out;
}

ErrorTerms whole_errors(const SweepAnswer& answer, const PoolPair& p) {
  const bool decodes = p.whole_loop.decode_busy >= p.whole_loop.prefill_busy;
  return decodes ? answer.pool_decoders.of(p.decode.plan).errors : p.prefill.errors;
}

BoardWatts pair_watts(const SweepAnswer& answer, const PoolPair& p) {
  BoardWatts out = answer.pool_decoders.of(p.decode.plan).watts * (1 / (1 + p.prefill_gpus));
  out += p.prefill.watts * (p.prefill_gpus / (1 + p.prefill_gpus));
  return out;
}

BoardWatts whole_watts(const SweepAnswer& answer, const PoolPair& p, const BoardPower& power) {
  BoardWatts out;
  const auto add = [&](const BoardWatts& busy, double part, int replicas, int gpus) {
    const double boards = static_cast<double>(replicas) * gpus / p.whole.gpus;
    out += busy * (part * boards);
    if (busy.total() > 0) out.idle += power.idle * (1 - part) * boards;
  };
  // Users who do not decode leave a step its weights to read: the pool's boards are taken to be busy.
  add(answer.pool_decoders.of(p.decode.plan).watts, 1, p.whole.decode, p.decode.plan.gpus());
  add(p.prefill.watts, std::clamp(p.whole_loop.prefill_busy, 0.0, 1.0), p.whole.prefill,
      p.prefill.plan.gpus());
  return out;
}

ErrorTerms first_token_errors(const SweepAnswer& answer, const PoolPair& p) {
  const double decode = std::min(1.0, (p.answer.step + p.loop.room) / p.loop.ttft);
  const double prompts = std::max(0.0, 1 - decode - (p.path + p.handoff) / p.loop.ttft);
  ErrorTerms out = p.prefill.errors * prompts;
  out += answer.pool_decoders.of(p.decode.plan).errors * decode;
  return out;
}

std::vector<StrategyId> exact_ones(const Study& study) {
  std::vector<StrategyId> out;
  for (const StrategyId id : study.sweep().search.strategies) {
    if (strategy(id).exact) out.push_back(id);
  }
  return out;
}

bool any_approximate(const Study& study) {
  return exact_ones(study).size() < study.sweep().search.strategies.size();
}

BestPoints::BestPoints(const Study& study, const SearchResult& found)
    : exact_(found.of(exact_ones(study))), all_(found.overall()) {}

bool BestPoints::holds(const Point& p) const {
  const Frontier& f = strategy(p.plan.strategy).exact ? exact_ : all_;
  return !f.dominates(score(f.x(), p), score(f.y(), p));
}

}  // namespace shardline
