#include "planner/studies/plan_copies.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "planner/search/nearest.hpp"
#include "planner/studies/plan_load.hpp"

namespace shardline {

namespace {

double of_one(const PlanAnswer& a, const Point& p) {
  return decode_metrics(a.study.study, p.time, p.plan, p.decoding).tokens_per_s_gpu;
}

double users_of_copies(const PlanAnswer& a, const Point& p, long long copies) {
  return static_cast<double>((shardline::users_of(a.study.study, p.plan) + p.all_waiting()) * copies);
}

// Users that copies cannot share evenly leave some of them with one fewer: the part of all copies' places
// that the users of the question take. Bare kernels are asked for so many users at least.
double taken_by_users(const PlanAnswer& a, const Point& p, long long copies) {
  if (a.question.users == 0 || !a.study.sweep().search.workload) return 1;
  return std::min(1.0, static_cast<double>(a.question.users) / users_of_copies(a, p, copies));
}

double tokens_of(const PlanAnswer& a, const Point& p, long long copies) {
  return of_one(a, p) * p.plan.gpus() * static_cast<double>(copies) * taken_by_users(a, p, copies);
}

}  // namespace

int PlanAnswer::gpus_of(const PlannedPoint& p) const {
  if (question.prefill()) return p.point.plan.gpus();
  return question.rate > 0 ? static_cast<int>(p.copies) * p.point.plan.gpus()
                           : std::max(defaults.most_gpus, p.point.plan.gpus());
}

double PlanAnswer::requests_per_s(const PlannedPoint& p) const {
  const auto& load = study.sweep().search.workload;
  if (question.prefill() || !load) return 0;
  return tokens_of(*this, p.point, p.copies) / static_cast<double>(load->output);
}

double PlanAnswer::users_of(const PlannedPoint& p) const {
  const double all =
      std::round(users_of_copies(*this, p.point, p.copies) * taken_by_users(*this, p.point, p.copies));
  // Users are whole, the mean number that a rate keeps busy is not.
  return all * used(p);
}

double PlanAnswer::used(const PlannedPoint& p) const {
  const double carried = requests_per_s(p);
  return question.rate > 0 && carried > question.rate ? question.rate / carried : 1;
}

double PlanAnswer::tokens_per_s_gpu(const PlannedPoint& p) const {
  const Case& c = study.study;
  if (question.prefill()) return prefill_metrics(c, p.point.time, p.point.plan).new_tokens_per_s_gpu;
  return tokens_of(*this, p.point, p.copies) * used(p) / gpus_of(p);
}

PlanCost PlanAnswer::cost_of(const PlannedPoint& p) const {
  const double part = used(p);
  PlanCost out = shardline::cost_of(study, p.point, p.rating);
  if (part < 1) {
    Rating idling = p.rating;
    idling.watts = idling.watts * part;
    if (idling.watts.total() > 0) idling.watts.idle += study.study.system.power.idle * (1 - part);
    out = shardline::cost_of(study, idling, of_one(*this, p.point) * part);
  }
  out.per_million = shardline::cost_of(study, p.rating, tokens_per_s_gpu(p)).per_million;
  return out;
}

namespace plan_parts {

namespace {

constexpr int kMostGroups = 8192;    // of attention, and of microbatches
constexpr int kMostUsers = 1 << 16;  // of a group

// A plan of the answer before it is rated.
struct Copies {
  Point point;
  long long copies = 1;
  bool meets = true;
  double most_per_s = 0, limit_per_s = 0;  // of all copies
};
// What a question's copies come to, best first.
struct Ranked {
  std::vector<Copies> leading;  // shown of
  std::vector<Copies> all;      // those, and of each strategy by itself
};

// Of one number of GPUs: the question of one copy.
Study of_copy(const PlanAnswer& a, int gpus) {
  Study out = a.study;
  SearchOptions& o = out.sweep().search;
  o.gpus = {gpus};
  o.threads = a.question.threads;
  // A stream of requests has no beginning at which all users come at once.
  if (o.workload && a.question.rate > 0) o.workload->rounds = 0;
  o.most_time = a.asked.most_time;
  o.most_ttft = a.asked.most_ttft;
  if (a.question.users == 0) return out;
  const auto users = static_cast<int>(a.defaults.users_of_copy(a.question.users, gpus));
  if (!o.workload) {
    o.least_users = users;
    return out;
  }
  o.users = {users};
  o.batches.clear();
  for (int groups = std::min(users, kMostGroups); groups >= 1; --groups) {
    if (users % groups == 0) o.batches.push_back(users / groups);
  }
  return out;
}

// Of a search of copies: the points that lead, and those of each strategy's own frontier that do not.
struct Found {
  std::vector<Point> leading, rest;
  bool has(const Plan& p) const {
    const auto is = [&](const Point& q) { return q.plan == p; };
    return std::any_of(leading.begin(), leading.end(), is) || std::any_of(rest.begin(), rest.end(), is);
  }
};

// Leading are points of the frontier of a copy, whatever the target, and those of its frontier within the
// target of TTFT, which may all lie off the first one; where there is none, what comes nearest to it.
Found points_of(const Study& study, const Show& show) {
  const auto searched = [&](const SearchOptions& o) {
    return search(study.study, o, [&](std::uint64_t done, std::uint64_t total) {
      show(done, total);
      return true;
    });
  };
  SearchOptions any = study.sweep().search;
  any.most_time = any.most_ttft = Seconds(0);
  std::vector<SearchResult> searches;
  searches.push_back(searched(any));
  if (study.sweep().search.most_ttft > Seconds(0)) searches.push_back(searched(study.sweep().search));
  Found out;
  const auto add = [&](std::vector<Point>& to, const std::vector<Point>& points) {
    for (const Point& p : points)
      if (!out.has(p.plan)) to.push_back(p);
  };
  for (const SearchResult& r : searches) {
    add(out.leading, r.overall().points());
    add(out.leading, r.nearest);
  }
  for (const SearchResult& r : searches)
    for (const auto& [strategy, frontier] : r.frontiers) add(out.rest, frontier.points());
  return out;
}

std::vector<Plan> shardings_of(const std::vector<Point>& points) {
  std::vector<Plan> out;
  for (const Point& p : points) {
    const Plan s = sharding_of(p.plan);
    if (std::find(out.begin(), out.end(), s) == out.end()) out.push_back(s);
  }
  return out;
}

// What all copies that there are carry at most, of a sharding that would need more of them.
Copies at_most(const PlanAnswer& a, PlanLoad& load, const CarriedRate& c, long long copies) {
  const auto all = static_cast<double>(copies);
  Copies out{c.point, copies, false, c.most_per_s * all, c.limit_per_s * all};
  const Plan sharding = sharding_of(c.point.plan);
  const int fewer = largest_that_meets(kMostUsers, [&](int users) {
    const auto p = load.at(sharding, users);
    return p && load.requests_per_s(*p) < c.most_per_s * (1 - 1e-3);
  });
  if (const auto p = load.at(sharding, fewer + 1); p && within_target(a, *p)) out.point = *p;
  return out;
}

// Every sharding with the copies that carry the rate, or with all that there are where these do not; in
// `wider` the fewest that would.
Ranked of_rate(const PlanAnswer& a, const Show& show, std::optional<Copies>& wider) {
  Ranked out;
  const auto gpus_of = [](const Copies& c) { return c.copies * c.point.plan.gpus(); };
  for (const int gpus : a.defaults.gpus) {
    const Study study = of_copy(a, gpus);
    PlanLoad load(study);
    const long long most = a.defaults.copies(gpus);
    const Found found = points_of(study, show);
    const std::vector<Plan> leading = shardings_of(found.leading);
    std::vector<Plan> shardings = leading;
    for (const Plan& s : shardings_of(found.rest))
      if (std::find(leading.begin(), leading.end(), s) == leading.end()) shardings.push_back(s);
    for (std::size_t i = 0; i < shardings.size(); ++i) {
      const auto c = carried_rate(load, shardings[i], a.question.rate,
                                  [&](const Point& p) { return within_target(a, p); });
      if (!c) continue;
      const auto all = static_cast<double>(c->copies);
      const Copies carries{c->point, c->copies, true, c->most_per_s * all, c->limit_per_s * all};
      out.all.push_back(c->copies <= most ? carries : at_most(a, load, *c, most));
      if (i >= leading.size()) continue;
      out.leading.push_back(out.all.back());
      const bool fits = gpus_of(carries) <= a.study.study.system.gpus();
      if (c->copies > most && fits && (!wider || gpus_of(carries) < gpus_of(*wider))) wider = carries;
    }
  }
  const auto rank = [&](const Copies& c) {
    return std::tuple(!c.meets, c.meets ? static_cast<double>(gpus_of(c)) : -c.most_per_s,
                      c.point.time.value);
  };
  for (std::vector<Copies>* of : {&out.leading, &out.all})
    std::stable_sort(of->begin(), of->end(),
                     [&](const Copies& x, const Copies& y) { return rank(x) < rank(y); });
  return out;
}

// Nothing of the frontier of all copies beats another in both, as for single plans: of those that meet the
// target in time and tokens/s, of the others in excess and tokens/s, of which they have more than all that
// meet it.
void keep_frontier(const PlanAnswer& a, std::vector<Copies>& all,
                   const std::function<double(const Copies&)>& tokens) {
  const auto rank = [&](const Copies& c) {
    return std::tuple(!c.meets, c.meets ? c.point.time.value : excess_of(a, c.point), -tokens(c));
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Copies& x, const Copies& y) { return rank(x) < rank(y); });
  double most = 0;
  std::erase_if(all, [&](const Copies& c) {
    if (tokens(c) <= most) return true;
    most = tokens(c);
    return false;
  });
}

Ranked of_all(const PlanAnswer& a, const Show& show) {
  Ranked out;
  for (const int gpus : a.defaults.gpus) {
    const Study study = of_copy(a, gpus);
    const Found found = points_of(study, show);
    const bool shared = a.question.users > 0 && a.study.sweep().search.workload;
    const long long copies =
        shared ? a.defaults.copies_of_users(a.question.users, gpus) : a.defaults.copies(gpus);
    const auto add = [&](std::vector<Copies>& to, const Point& p) {
      to.push_back({p, copies, within_target(a, p), 0, 0});
    };
    for (const Point& p : found.leading) add(out.leading, p);
    for (const Point& p : found.rest) add(out.all, p);
  }
  out.all.insert(out.all.begin(), out.leading.begin(), out.leading.end());
  const auto tokens = [&](const Copies& c) { return tokens_of(a, c.point, c.copies); };
  if (a.question.users == 0 || !a.study.sweep().search.workload) keep_frontier(a, out.leading, tokens);
  const auto waits = [&](const Copies& c) { return some_wait(a, c.point); };
  for (std::vector<Copies>* of : {&out.leading, &out.all})
    std::stable_sort(of->begin(), of->end(), [&](const Copies& x, const Copies& y) {
      if (x.meets != y.meets) return x.meets;
      if (waits(x) != waits(y)) return waits(y);
      if (x.meets) return tokens(x) > tokens(y);
      return std::tuple(excess_of(a, x.point), -tokens(x)) < std::tuple(excess_of(a, y.point), -tokens(y));
    });
  return out;
}

// Neighbouring batches of a plan are one answer.
std::vector<Copies> shown(const std::vector<Copies>& all, bool from_end_to_end) {
  std::vector<Copies> out;
  if (from_end_to_end) {
    for (std::size_t i = 0; i < std::min(all.size(), kShown); ++i)
      out.push_back(all[i * std::max<std::size_t>(all.size() - 1, 1) /
                        std::max<std::size_t>(std::min(all.size(), kShown) - 1, 1)]);
    return out;
  }
  std::vector<Plan> seen;
  std::size_t beside = 0;
  const bool any = !all.empty() && all.front().meets;
  for (const Copies& c : all) {
    const Plan s = sharding_of(c.point.plan);
    if (out.size() == kShown || (!c.meets && any && beside == kBeside)) break;
    if (c.meets && std::find(seen.begin(), seen.end(), s) != seen.end()) continue;
    if (!c.meets) ++beside;
    seen.push_back(s);
    out.push_back(c);
  }
  return out;
}

PlannedPoint planned(const PlanAnswer& a, const RatedPoints& rated, const Copies& c) {
  PlannedPoint out{c.point, c.meets, rated.of(c.point.plan), {}, c.copies, c.most_per_s, c.limit_per_s};
  if (a.study.sweep().search.workload) out.ttft = rated.ttft_of(c.point.plan);
  return out;
}

}  // namespace

double excess_of(const PlanAnswer& a, const Point& p) {
  return excess(p, a.asked.most_time, a.asked.most_ttft);
}

bool within_target(const PlanAnswer& a, const Point& p) {
  return (!(a.asked.most_time > Seconds(0)) || p.time <= a.asked.most_time) &&
         (!(a.asked.most_ttft > Seconds(0)) || p.ttft <= a.asked.most_ttft);
}

bool shares_among_copies(const PlanAnswer& a) {
  if (a.question.prefill()) return false;
  return a.question.rate > 0 || a.question.users > 0 ||
         std::any_of(a.defaults.gpus.begin(), a.defaults.gpus.end(),
                     [&](int gpus) { return a.defaults.most_gpus % gpus != 0; });
}

PlannedCopies planned_copies(const PlanAnswer& a, const Show& show) {
  const bool frontier = a.question.rate == 0 && a.question.users == 0 && !a.asked.has_target();
  std::optional<Copies> more;
  const Ranked ranked = a.question.rate > 0 ? of_rate(a, show, more) : of_all(a, show);
  const std::vector<Copies> found = shown(ranked.leading, frontier);
  const std::vector<Copies> others =
      a.has_target() ? other_strategies(found, ranked.all) : std::vector<Copies>();
  const bool wider = more && !found.empty() && !found.front().meets;
  std::vector<Point> points;
  for (const Copies& c : found) points.push_back(c.point);
  for (const Copies& c : others) points.push_back(c.point);
  if (wider) points.push_back(more->point);
  const RatedPoints rated = rate(a.study, std::move(points), a.question.threads);
  PlannedCopies out;
  for (const Copies& c : found) out.plans.push_back(planned(a, rated, c));
  for (const Copies& c : others) out.others.push_back(planned(a, rated, c));
  if (wider)
    out.wider = WiderPlan{static_cast<int>(more->copies) * more->point.plan.gpus(), planned(a, rated, *more),
                          a.study.study.system.gpus()};
  return out;
}

}  // namespace plan_parts

}  // namespace shardline
