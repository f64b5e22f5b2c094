// The next best plan, and what would have to change for it to be ahead.
#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/studies/explanation.hpp"

namespace shardline {

namespace {

constexpr double kGrid = 1.189207115002721;  // 2^(1/4): how finely a turnover is sought
constexpr std::uint64_t kOfFactor = 4;       // simulations: both plans with more and with less of the thing
constexpr std::uint64_t kFactors = 12;       // of kGrid up to kMostFactor
constexpr std::uint64_t kRivals = 2;
constexpr double kClose = 1e-3;          // part of it to which it is found
constexpr std::size_t kServedOnes = 64;  // plans whose serving is computed, by their steps the fastest

// The plan with so many users in each of its groups, where it fits and starts.
std::optional<Plan> with_batch(const Study& study, Plan plan, long long batch) {
  plan.batch = static_cast<int>(batch);
  if (cannot_run(study, plan) || does_not_start(study.study, plan)) return std::nullopt;
  return plan;
}

struct Candidates {
  std::vector<Plan> plans;
  bool equal_users = true;
};

// Plans of the scenario's strategies on as many GPUs for as many users, but those with parts that are
// searched for and, beside an exact one, approximate ones. Where the users divide into the groups of none,
// those for the next fewer and the next more.
Candidates candidates(const Study& study, const Plan& plan) {
  const SearchOptions& o = study.sweep().search;
  const bool exact = strategy(plan.strategy).exact;
  std::vector<Plan> all;
  for (const StrategyId id : o.strategies) {
    const Strategy& s = strategy(id);
    if (!s.takes(study.study) || s.parts != nullptr || (exact && !s.exact)) continue;
    enumerate_plans(study.study, s, plan.gpus(), o.space, all);
  }
  Candidates even, near{{}, false};
  const auto add = [&](Candidates& to, const Plan& p, long long batch) {
    if (const auto ready = with_batch(study, p, batch); ready && *ready != plan) to.plans.push_back(*ready);
  };
  for (const Plan& p : all) {
    const long long groups = static_cast<long long>(p.in_flight) * p.dp, users = plan.users();
    if (users % groups == 0) {
      add(even, p, users / groups);
    } else {
      if (users > groups) add(near, p, users / groups);
      add(near, p, users / groups + 1);
    }
  }
  return even.plans.empty() ? near : even;
}

struct Timed {
  Plan plan;
  Seconds time;
};

// The fastest of each strategy; the steps of a plan whose bound is above the best one are not simulated.
std::vector<Timed> best_of_each(const Study& study, const std::vector<Plan>& plans) {
  Evaluator e(study.study, study.sweep().search.all_reduce);
  std::vector<Timed> bounds;
  bounds.reserve(plans.size());
  for (const Plan& p : plans) bounds.push_back({p, e.bound(p)});
  std::stable_sort(bounds.begin(), bounds.end(),
                   [](const Timed& a, const Timed& b) { return a.time < b.time; });
  const bool served = study.sweep().search.workload && study.study.engine;
  std::vector<Timed> best;
  std::size_t seen = 0;
  for (const Timed& b : bounds) {
    const auto same = [&](const Timed& t) { return t.plan.strategy == b.plan.strategy; };
    const auto at = std::find_if(best.begin(), best.end(), same);
    if (at != best.end() && (b.time >= at->time || (served && seen >= kServedOnes))) continue;
    ++seen;
    const Seconds time = served ? time_of(study, b.plan) : e.simulate(b.plan);
    if (at == best.end()) {
      best.push_back({b.plan, time});
    } else if (time < at->time) {
      *at = {b.plan, time};
    }
  }
  std::stable_sort(best.begin(), best.end(), [](const Timed& a, const Timed& b) { return a.time < b.time; });
  return best;
}

// ln of the rival's time over the plan's, one thing changed; nothing where it cannot be changed so far. What
// does not fit is infinitely far behind.
std::optional<double> behind(const Study& study, const Plan& plan, const Plan& rival, Knob knob,
                             double factor) {
  const auto time = [&](const Plan& p) -> std::optional<Seconds> {
    if (factor == 1) return time_of(study, p);  // tokens and requests cannot be changed by nothing
    const auto s = changed(study, p, knob, factor);
    if (!s) return std::nullopt;
    if (cannot_run(s->study, s->plan)) return Seconds(std::numeric_limits<double>::infinity());
    return time_of(s->study, s->plan, s->times);
  };
  const auto own = time(plan), other = time(rival);
  if (!own || !other) return std::nullopt;
  const bool own_fits = std::isfinite(own->value), other_fits = std::isfinite(other->value);
  if (!own_fits && !other_fits) return std::nullopt;
  if (!own_fits || !other_fits) return own_fits ? 1e3 : -1e3;
  return std::log(*other / *own);
}

// Between a factor at which the order is as it is and one at which it is the other.
double bisected(const Study& study, const Plan& plan, const Plan& rival, Knob knob, double as_is,
                double turned, bool ahead) {
  while (std::abs(turned / as_is - 1) > kClose) {
    const double middle = std::sqrt(as_is * turned);
    const std::optional<double> d = behind(study, plan, rival, knob, middle);
    (d && (*d < 0) != ahead ? turned : as_is) = middle;
  }
  return turned;
}

Turnover turnover(const Study& study, const Plan& plan, const Plan& rival, Knob knob,
                  const Advance& advance) {
  Turnover out{knob, std::nullopt, ""};
  const std::optional<double> now = behind(study, plan, rival, knob, 1);
  const bool ahead = now && *now < 0;  // the rival is ahead as it is
  bool any = false;
  double up = 1, down = 1;
  for (double f = kGrid; f <= kMostFactor * (1 + 1e-9) && !out.factor; f *= kGrid) {
    for (const double at : {f, 1 / f}) {
      const std::optional<double> d = behind(study, plan, rival, knob, at);
      if (!d) continue;
      any = true;
      double& last = at > 1 ? up : down;
      if ((*d < 0) != ahead) {
        const double turn = bisected(study, plan, rival, knob, last, at, ahead);
        if (!out.factor || std::abs(std::log(turn)) < std::abs(std::log(*out.factor))) out.factor = turn;
      }
      last = at;
    }
    if (advance) advance(kOfFactor);
  }
  if (!out.factor) out.why = any ? "no factor up to 8x either way" : "cannot be changed";
  return out;
}

// Of plans for other users no batch is where both serve as many.
Rival rival_of(const Study& study, const Plan& plan, const PlanTimes& own, const Plan& other,
               bool equal_users, const Advance& advance) {
  Rival out;
  out.plan = other;
  out.times = times_of(study, other);
  out.ratio = out.times.time() / own.time();
  out.band = ratio_band(out.times.errors, own.errors, FitErrors::shared);
  out.told_apart = told_apart(out.ratio, out.band);
  for (std::size_t k = 0; k < kKnobs; ++k) {
    if (!equal_users && static_cast<Knob>(k) == Knob::batch) continue;
    out.turnovers.push_back(turnover(study, plan, other, static_cast<Knob>(k), advance));
  }
  return out;
}

}  // namespace

std::uint64_t simulations_of_rivals() { return kRivals * kKnobs * kFactors * kOfFactor; }

Rivals rivals_of(const Study& study, const Plan& plan, const PlanTimes& own, const Advance& advance) {
  const Candidates found = candidates(study, plan);
  const std::vector<Timed> best = best_of_each(study, found.plans);
  Rivals out{found.plans.size(), found.equal_users, {}};
  if (best.empty()) return out;
  out.best.push_back(rival_of(study, plan, own, best.front().plan, found.equal_users, advance));
  if (best.front().plan.strategy != plan.strategy) return out;
  if (best.size() > 1)
    out.best.push_back(rival_of(study, plan, own, best[1].plan, found.equal_users, advance));
  return out;
}

}  // namespace shardline
