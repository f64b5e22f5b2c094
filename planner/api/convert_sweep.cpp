// What a sweep found.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/api/convert.hpp"
#include "planner/studies/plan_intervals.hpp"
#include "planner/studies/told_apart.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline::api {

namespace {

std::vector<std::string> names(const std::vector<StrategyId>& ids) {
  std::vector<std::string> out;
  for (const StrategyId id : ids) out.emplace_back(to_string(id));
  return out;
}

std::string axis_name(const Study& study, Metric m) {
  for (const NamedMetric& named : metrics_of(study.study.batch.kind())) {
    if (named.metric == m) return named.name;
  }
  return "";
}

SweepCounts counts_of(const SearchCounts& c) {
  return {c.plans,  c.configurations, c.infeasible, c.simulated, c.bounds,
          c.pruned, c.over_budget,    c.partitions, c.seconds};
}

std::vector<NotStarted> not_started_of(const SearchResult& r) {
  std::vector<NotStarted> out;
  for (const auto& [rule, n] : r.not_started)
    out.push_back({rule, n.plans, n.first.says, n.first.text, n.first.source});
  std::stable_sort(out.begin(), out.end(),
                   [](const NotStarted& a, const NotStarted& b) { return a.plans > b.plans; });
  return out;
}

// Points of one sweep, all of which were rated.
class Points {
 public:
  Points(const Study& study, const SweepAnswer& answer)
      : study_(study), answer_(answer), best_(study, answer.found) {}

  PlanPoint of(const RatedPoints& rated, std::size_t i) const {
    PlanPoint out =
        plan_point(study_, rated.points[i], &rated.ratings[i], rated.ttft.empty() ? nullptr : &rated.ttft[i]);
    out.on_frontier = best_.holds(rated.points[i]);
    return out;
  }
  std::vector<PlanPoint> of(const RatedPoints& rated) const {
    std::vector<PlanPoint> out;
    for (std::size_t i = 0; i < rated.points.size(); ++i) out.push_back(of(rated, i));
    return out;
  }
  PlanPoint of(const Point& p) const {
    const RatedPoints& rated = answer_.rated;
    PlanPoint out =
        plan_point(study_, p, &rated.of(p.plan), rated.ttft.empty() ? nullptr : &rated.ttft_of(p.plan));
    out.on_frontier = best_.holds(p);
    return out;
  }

 private:
  const Study& study_;
  const SweepAnswer& answer_;
  BestPoints best_;
};

std::vector<FrontierPlan> frontier_of(const Study& study, const SweepAnswer& answer, const Points& points) {
  const Metric x = study.sweep().search.x, y = study.sweep().search.y;
  const bool open = comparable(answer.rated);
  std::vector<FrontierPlan> out;
  for (const Point& best : answer.frontier) {
    FrontierPlan& f = out.emplace_back(FrontierPlan{points.of(best), {}});
    const auto as_good = [&](const Point& p) { return score(x, p) >= score(x, best); };
    if (open) f.maybe_better = names(shardline::maybe_better(answer.rated, y, best, as_good));
  }
  return out;
}

std::vector<BudgetPlan> budgets_of(const SweepAnswer& answer, const Points& points) {
  const bool open = comparable(answer.rated);
  std::vector<BudgetPlan> out;
  for (const auto& [budget, best] : answer.budgets) {
    BudgetPlan& b = out.emplace_back(BudgetPlan{budget.value, points.of(best), {}});
    const auto within = [limit = budget](const Point& p) { return p.time <= limit; };
    if (open) b.maybe_better = names(shardline::maybe_better(answer.rated, Metric::throughput, best, within));
  }
  return out;
}

// As open_target_text() of the command line says it.
std::vector<MeetingPlan> meeting_of(const Study& study, const shardline::SweepQuestion& asked,
                                    const SweepAnswer& answer, const Points& points) {
  const bool prefill = study.study.batch.kind() == StepKind::prefill;
  std::vector<MeetingPlan> out;
  for (const Point& p : answer.meeting) {
    MeetingPlan& m = out.emplace_back(MeetingPlan{points.of(p)});
    const Estimate time = prefill ? *m.point.ttft_s : m.point.tpot_s ? *m.point.tpot_s : *m.point.ttl_s;
    m.may_miss = asked.most_time > Seconds(0) && time.high > asked.most_time.value;
    if (!prefill && asked.most_ttft > Seconds(0)) {
      m.ttft_error_unknown = std::isnan(m.point.ttft_s->high);
      m.may_miss = m.may_miss || m.point.ttft_s->high > asked.most_ttft.value;
    }
    m.maybe_first = out.size() > 1 && !prefill &&
                    !told_apart(answer.rated, Metric::throughput, answer.meeting.front(), p);
  }
  return out;
}

Gain gain_of(const Study& study, const SweepAnswer& answer) {
  const shardline::Gain& g = *answer.gain;
  Gain out;
  out.candidate = names(study.sweep().compare.candidate);
  out.baseline = names(study.sweep().compare.baseline);
  out.interactivity.value = g.interactivity;
  if (answer.interactivity && comparable(answer.rated))
    out.interactivity = {g.interactivity, g.interactivity * std::exp(answer.interactivity->low),
                         g.interactivity * std::exp(answer.interactivity->high)};
  out.throughput = g.throughput;
  out.geometric_mean = g.geometric_mean;
  for (const shardline::GainPoint& p : g.curve) out.curve.push_back({p.slack, p.gain});
  return out;
}

void set_search(const SearchResult& r, ModelSweep& out) {
  out.counts = counts_of(r.counts);
  for (const auto& [reason, n] : r.rejected) out.rejected.push_back({reason, n});
  out.not_started = not_started_of(r);
  for (const auto& [id, reason] : r.without_plans)
    out.without_plans.push_back({std::string(to_string(id)), reason});
  out.unused_values = r.unused_values;
}

bool any_plan(const SweepAnswer& answer) { return answer.any() || !answer.pools.empty(); }

// Of whole replicas, where such fit the GPUs of pools, else of one that decodes.
bool meets(const shardline::SweepQuestion& asked, const shardline::PoolPair& p) {
  const bool whole = p.whole.gpus > 0;
  const auto users =
      static_cast<double>((whole ? p.whole.decode : 1) * (p.decode.plan.users() + p.decode.all_waiting()));
  const Seconds first = (whole ? p.whole_loop : p.loop).ttft;
  return users >= asked.least_users &&
         (!(asked.most_time > Seconds(0)) || p.decode.time <= asked.most_time) &&
         (!(asked.most_ttft > Seconds(0)) || first <= asked.most_ttft);
}

// A prefill that does not fit fails a sweep, though others fit; so does a target that nothing meets, plans
// that do both nor pools.
bool meets(const Study& study, const shardline::SweepQuestion& asked, const SweepAnswer& answer) {
  if (answer.any() && (!asked.has_target() || !answer.meeting.empty())) return true;
  if (study.study.batch.kind() == StepKind::prefill) return false;
  if (!answer.any() && answer.found.nearest.empty() && !asked.has_target()) return true;
  return std::any_of(answer.pools.begin(), answer.pools.end(),
                     [&](const shardline::PoolPair& p) { return meets(asked, p); });
}

constexpr Seconds kLeastTarget(1e-9), kMostTarget(1e9);
constexpr double kLeastSpeed = 1e-9, kMostSpeed = 1e9;  // tokens/s

}  // namespace

Seconds target_time(const char* option, double seconds) {
  const Seconds time(seconds);
  if (time < kLeastTarget || time > kMostTarget)
    throw UserError(fmt::format("{} {}: expected a time from {} to {}", argument_name(option),
                                to_string(time), to_string(kLeastTarget), to_string(kMostTarget)));
  return time;
}

Seconds time_of_rate(const std::optional<double>& tokens_per_s_user) {
  if (!tokens_per_s_user) return Seconds(0);
  const double rate = *tokens_per_s_user;
  if (!(rate > 0) || !std::isfinite(rate))
    throw UserError(fmt::format("{} {}: expected a positive number", argument_name("tokens-per-user"), rate));
  if (rate < kLeastSpeed || rate > kMostSpeed)
    throw UserError(fmt::format("{} {}: expected {} to {} tokens a second", argument_name("tokens-per-user"),
                                rate, kLeastSpeed, kMostSpeed));
  return Seconds(1 / rate);
}

shardline::SweepQuestion question_for(const Study& study, const SweepQuestion& asked, int threads) {
  shardline::SweepQuestion q;
  q.exhaustive = asked.exhaustive || asked.keep_all;
  q.keep_all = asked.keep_all;
  q.threads = threads;
  const auto target = [](const char* name, double value) {
    if (!(value > 0) || !std::isfinite(value))
      throw UserError(fmt::format("{}: expected a positive number, found {}", argument_name(name), value));
    return value;
  };
  const bool prefill = study.study.batch.kind() == StepKind::prefill;
  if (prefill && (asked.most_ttl_s || asked.least_tokens_per_s_user || asked.least_users))
    throw UserError(fmt::format("{}, {} and {} are for steps that decode; this one is a prefill: {}",
                                argument_name("ttl"), argument_name("tokens-per-user"),
                                argument_name("users"), argument_name("ttft")));
  if (!prefill && asked.most_ttft_s && workload_of(study) == nullptr)
    throw UserError(fmt::format("{} is for prefills and for workloads; this one decodes: {}",
                                argument_name("ttft"), argument_name("ttl")));
  if (asked.most_ttl_s) q.most_time = target_time("ttl", target("ttl", *asked.most_ttl_s));
  const Seconds of_rate = time_of_rate(asked.least_tokens_per_s_user);
  if (of_rate > Seconds(0) && (q.most_time == Seconds(0) || of_rate < q.most_time)) {
    q.most_time = of_rate;
    q.tokens_per_user = *asked.least_tokens_per_s_user;
  }
  if (asked.least_users) q.least_users = target("users", *asked.least_users);
  if (!prefill) q.most_ttft = study.sweep().search.most_ttft;
  if (!asked.most_ttft_s) return q;
  const Seconds ttft = target_time("ttft", target("ttft", *asked.most_ttft_s));
  if (prefill)
    q.most_time = ttft;
  else
    q.most_ttft = q.most_ttft > Seconds(0) ? std::min(q.most_ttft, ttft) : ttft;
  return q;
}

ModelSweep model_sweep(const Study& study, const shardline::SweepQuestion& asked, const SweepAnswer& answer) {
  ModelSweep out;
  out.setting = setting_of(study);
  out.met = any_plan(answer) && meets(study, asked, answer);
  out.x_axis = axis_name(study, answer.found.x);
  out.y_axis = axis_name(study, answer.found.y);
  set_search(answer.found, out);
  const Points points(study, answer);
  out.points = points.of(answer.rated);
  out.frontier = frontier_of(study, answer, points);
  if (answer.all) out.all = points.of(*answer.all);
  out.meeting = meeting_of(study, asked, answer, points);
  out.budgets = budgets_of(answer, points);
  if (!answer.found.nearest.empty() && !answer.any())
    out.nearest = plan_point(study, answer.found.nearest.front(), nullptr, nullptr);
  if (answer.gain) out.gain = gain_of(study, answer);
  out.pools = pool_pairs_of(study, answer);
  if (const auto& noise = study.sweep().noise) {
    out.noise = noise_of(*noise);
    for (const auto& [plan, effect] : answer.noisy) out.noisy.push_back(noisy_plan(plan, effect));
  }
  out.warnings = warnings_of(answer.unread, answer.narrow);
  return out;
}

std::vector<Winner> winners_of(const Study& study, const shardline::SweepQuestion& asked,
                               const SweepAnswer& answer) {
  std::vector<Winner> out;
  if (!answer.any()) return out;
  const Points points(study, answer);
  if (asked.has_target()) {
    for (const Point& p : answer.meeting) out.push_back({"meets the target", points.of(p), ""});
  } else if (study.study.batch.kind() == StepKind::prefill) {
    for (const Point& p : answer.frontier) out.push_back({"frontier", points.of(p), ""});
  } else {
    for (const auto& [budget, best] : answer.budgets) out.push_back({"within a budget", points.of(best), ""});
  }
  return out;
}

RunRecord run_record(const Study& study, const shardline::SweepQuestion& asked, const SweepAnswer& answer) {
  const SearchCounts& c = answer.found.counts;
  RunRecord out;
  out.study = study.title;
  if (asked.has_target()) {
    const auto given = [](double value) { return value > 0 ? std::optional(value) : std::nullopt; };
    const bool prefill = study.study.batch.kind() == StepKind::prefill;
    const auto time = given(asked.most_time.value);
    out.target = Target{prefill ? std::nullopt : time, given(asked.tokens_per_user),
                        prefill ? time : given(asked.most_ttft.value), given(asked.least_users)};
  }
  out.met = any_plan(answer) && meets(study, asked, answer);
  out.winners = winners_of(study, asked, answer);
  out.pools = pool_pairs_of(study, answer);
  out.engine = engine_of(study.study);
  out.workload = asked_workload(study);
  out.what = what_of(study);
  out.intervals = what_intervals_are(study.study);
  out.costs = costs_text(study.study.system);
  if (!study.study.system.calibration.empty()) out.calibration_hash = study.study.system.calibration.hash;
  out.configurations = c.configurations;
  out.infeasible = c.infeasible;
  out.simulated = c.simulated;
  out.pruned = c.pruned;
  return out;
}

void SweepVerdict::add(const Study& study, const shardline::SweepQuestion& asked, const SweepAnswer& answer) {
  any_ = any_ || any_plan(answer);
  met_ = met_ && meets(study, asked, answer);
}

}  // namespace shardline::api
