#include "planner/studies/plan_answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>

#include "planner/engines/checkpoints.hpp"
#include "planner/search/nearest.hpp"
#include "planner/studies/idle_settings.hpp"
#include "planner/studies/line_settings.hpp"
#include "planner/studies/plan_copies.hpp"
#include "planner/studies/plan_load.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline {

namespace {

using namespace plan_parts;

constexpr int kWider = 8;  // times the asked GPUs

SweepQuestion sweep_question(const PlanQuestion& q, bool served) {
  SweepQuestion out;
  out.threads = q.threads;
  out.most_time = q.prefill() ? q.ttft : q.ttl;
  if (!q.prefill()) out.most_ttft = q.ttft;
  // Served users are the workload's.
  if (!q.prefill() && !served) out.least_users = static_cast<double>(q.users);
  return out;
}

// Of a question whose settings name the GPUs of a plan: they stand in for the default, in the search among
// copies and in the shares of the users, too.
bool take_set_gpus(PlanDefaults& defaults, const Study& study, const std::vector<std::string>& settings) {
  if (!sets_key(settings, "gpus")) return false;
  std::vector<int> gpus = study.sweep().search.gpus;
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  if (gpus.back() > defaults.most_gpus)
    throw UserError(fmt::format("{} has a plan of {} GPUs: {} says {} at most",
                                argument_given("set", "gpus=..."), gpus.back(), argument_name("gpus"),
                                defaults.most_gpus));
  defaults.gpus = std::move(gpus);
  defaults.gpus_note.clear();
  return true;
}

// The first engine of those it may be that starts the question at all; the faults of the first where none
// does.
Study study_with(const std::string& scenario, const Catalogs& catalogs, const std::vector<std::string>& set) {
  const Overrides settings{{}, "", false, false, set};
  return parse_scenario("the question as a scenario", scenario, catalogs, settings).studies.front();
}

}  // namespace

PlanAnswer asked_plan(const PlanQuestion& q, const Catalogs& catalogs) {
  PlanAnswer out;
  out.question = q;
  const auto with = [&](std::optional<EngineProfile> engine, const std::string& why) {
    out.defaults = plan_defaults(q, catalogs, std::move(engine));
    out.defaults.engine_why = why;
    out.scenario = plan_scenario(q, out.defaults);
    out.study = study_with(out.scenario, catalogs, q.settings);
    if (!take_set_gpus(out.defaults, out.study, q.settings)) return;
    out.scenario = plan_scenario(q, out.defaults);
    out.study = study_with(out.scenario, catalogs, q.settings);
  };
  if (q.engine == "ideal") {
    with(std::nullopt, "");
  } else if (!q.engine.empty()) {
    with(load_engine(engine_name(q.engine), catalogs.engines), "");
  } else {
    const PlanDefaults of = plan_defaults(q, catalogs, std::nullopt);
    std::optional<UserError> first;
    std::string refused;
    bool found = false;
    for (const MeasuredEngine& e : best_measured(of.model.name, of.system.name, catalogs.engines)) {
      try {
        with(e.profile, e.why(of.model.name, of.system.name) + refused);
        found = true;
        break;
      } catch (const UserError& error) {
        if (!first) first = error;
        refused += fmt::format("; {} does not start it", title_of(e.profile));
      }
    }
    if (!found) throw UserError(*first);
  }
  out.asked = sweep_question(q, out.study.sweep().search.workload.has_value());
  const auto& engine = out.study.study.engine;
  if (engine && q.prefill() && q.ttft > Seconds(0)) {  // a user waits for the request path, too
    out.asked.most_time = q.ttft - engine->host.path;
    if (!(out.asked.most_time > Seconds(0)))
      throw UserError(fmt::format("TTFT at most {}: the request path of {} alone takes {}", to_string(q.ttft),
                                  title_of(*engine), to_string(engine->host.path)));
  }
  return out;
}

namespace {

PlannedPoint planned(const PlanAnswer& a, const RatedPoints& rated, const Point& p, bool meets) {
  PlannedPoint out{p, meets, rated.of(p.plan), {}};
  if (!a.question.prefill()) out.copies = std::max(1, a.defaults.copies(p.plan.gpus()));
  if (a.study.sweep().search.workload) out.ttft = rated.ttft_of(p.plan);
  return out;
}

// Of all plans of the sweep, where none meets targets of TPOT and TTFT: those that come nearest.
std::vector<Point> nearest_to(const PlanAnswer& a) {
  SearchOptions o = a.study.sweep().search;
  o.most_time = a.asked.most_time;
  o.most_ttft = a.asked.most_ttft;
  o.threads = a.question.threads;
  return nearest_points(a.study.study, o);
}

// What meets the target, or the frontier's ends and steps where none is asked for; then what comes next.
std::vector<PlannedPoint> around_target(const PlanAnswer& a) {
  std::vector<PlannedPoint> out;
  const auto add = [&](const Point& p, bool meets) { out.push_back(planned(a, a.sweep.rated, p, meets)); };
  if (!a.asked.has_target()) {
    std::vector<Point> points;
    for (const BudgetPlan& b : a.sweep.budgets) points.push_back(b.best);
    // Budgets end at ten times the shortest time; who asks for none is told what answers most, too.
    if (const Point* most = best_within(a.sweep.frontier, Seconds(std::numeric_limits<double>::infinity()));
        most != nullptr && !points.empty() && most->plan != points.back().plan)
      points.push_back(*most);
    if (a.question.prefill()) points = a.sweep.frontier;
    for (std::size_t i = 0; i < std::min(points.size(), kShown); ++i)  // from end to end
      add(points[i * std::max<std::size_t>(points.size() - 1, 1) /
                 std::max<std::size_t>(std::min(points.size(), kShown) - 1, 1)],
          true);
    return out;
  }
  for (const Point& p : a.sweep.meeting) add(p, true);
  std::vector<Point> others;
  for (const Point& p : a.sweep.frontier) {
    if (a.asked.most_time > Seconds(0) && p.time > a.asked.most_time) others.push_back(p);
  }
  // Whatever the search left of the frontier, none is nearer to both targets than these.
  if (out.empty() && a.asked.most_ttft > Seconds(0) && a.study.sweep().search.workload)
    others = nearest_to(a);
  std::stable_sort(others.begin(), others.end(),
                   [&](const Point& x, const Point& y) { return excess_of(a, x) < excess_of(a, y); });
  const std::size_t room = out.empty() ? kShown : std::min(kShown - out.size(), kBeside);
  if (others.size() > room) others.erase(others.begin() + static_cast<std::ptrdiff_t>(room), others.end());
  const RatedPoints rated = rate(a.study, others, a.question.threads);
  for (const Point& p : others) out.push_back(planned(a, rated, p, false));
  return out;
}

// Of the frontiers of all strategies what meets the target, best first.
std::vector<PlannedPoint> ranked_within_target(const PlanAnswer& a) {
  std::vector<PlannedPoint> out;
  for (const Point& p : a.sweep.rated.points)
    if (within_target(a, p)) out.push_back(planned(a, a.sweep.rated, p, true));
  std::stable_sort(out.begin(), out.end(), [&](const PlannedPoint& x, const PlannedPoint& y) {
    const auto gpus = [&](const PlannedPoint& p) { return a.question.prefill() ? p.point.plan.gpus() : 0; };
    return std::tuple(gpus(x), -a.tokens_per_s_gpu(x)) < std::tuple(gpus(y), -a.tokens_per_s_gpu(y));
  });
  return out;
}

std::optional<PoolPair> best_pair(const PlanAnswer& a) {
  const PoolPair* most = nullptr;
  for (const PoolPair& p : a.sweep.pools) {
    if (p.whole.gpus == 0 || p.whole.gpus > most_pool_gpus(a.study)) continue;
    const double carried = p.whole_output_per_s_gpu * p.whole.gpus / static_cast<double>(a.question.output);
    if (users_of(p) < a.question.users || carried < a.question.rate) continue;
    const bool meets = (!(a.asked.most_time > Seconds(0)) || p.decode.time <= a.asked.most_time) &&
                       (!(a.asked.most_ttft > Seconds(0)) || p.whole_loop.ttft <= a.asked.most_ttft);
    if (meets && (most == nullptr || p.whole_output_per_s_gpu > most->whole_output_per_s_gpu)) most = &p;
  }
  return most == nullptr ? std::nullopt : std::optional(*most);
}

bool meets(const PlanAnswer& a) {
  return a.sweep.any() && (!a.asked.has_target() || !a.sweep.meeting.empty());
}

void simulate_best(PlanAnswer& a) {
  Evaluator e(a.study.study, a.study.sweep().search.all_reduce);
  SimulatedPlan s = simulate_plan(a.study, e, a.plans.front().point.asked());
  a.best = BestPlan{s.breakdown, s.memory, s.served, std::move(s.narrow)};
}

// The best plan of the same question of more GPUs. A plan of fewer is not faster there, but users are shared
// among more copies of it.
std::optional<PlannedPoint> best_on(const PlanAnswer& a, int gpus, const Show& show) {
  PlanAnswer other = a;
  other.defaults.most_gpus = gpus;
  if (a.question.users > 0) {
    other.defaults.gpus = default_gpus(a.study.study.system, gpus, false);
    const PlannedCopies found = planned_copies(other, show);
    return found.plans.empty() ? std::nullopt : std::optional(found.plans.front());
  }
  other.study.sweep().search.gpus = {gpus};
  other.sweep = answer_sweep(other.study, other.asked, show, [] { return true; });
  std::vector<PlannedPoint> found = around_target(other);
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

// Of a rate: copies of plans of more GPUs, on as many as there are.
std::optional<WiderPlan> wider_of_rate(const PlanAnswer& a, int most, const Show& show) {
  PlanAnswer other = a;
  other.defaults.most_gpus = a.study.study.system.gpus();
  other.defaults.gpus = default_gpus(a.study.study.system, most, false);
  const PlannedCopies found = planned_copies(other, show);
  if (found.plans.empty()) return std::nullopt;
  const PlannedPoint& best = found.plans.front();
  return WiderPlan{static_cast<int>(best.copies) * best.point.plan.gpus(), best, other.defaults.most_gpus};
}

// The same question of more GPUs, one count after the other.
std::optional<WiderPlan> wider(const PlanAnswer& a, const Show& show) {
  const int asked = a.defaults.most_gpus, all = a.study.study.system.gpus();
  const int most = static_cast<int>(std::min<long long>(all, static_cast<long long>(asked) * kWider));
  if (a.question.rate > 0) {
    if (auto carries = wider_of_rate(a, most, show)) return carries;
  }
  std::optional<WiderPlan> nearest;
  for (const int gpus : default_gpus(a.study.study.system, most, false)) {
    if (gpus <= asked) continue;
    const std::optional<PlannedPoint> best = best_on(a, gpus, show);
    if (!best) continue;
    const WiderPlan found{gpus, *best, gpus};
    if (best->meets) return found;
    const auto rank = [&](const Point& p) { return std::pair(some_wait(a, p), excess_of(a, p)); };
    if (!nearest || rank(best->point) < rank(nearest->best.point)) nearest = found;
    nearest->most = gpus;
  }
  return nearest;
}

// Settings without which the plans of the answer are as good.
void add_idle(PlanAnswer& a, const Catalogs& catalogs) {
  std::vector<Plan> plans;
  for (const PlannedPoint& p : a.plans) plans.push_back(p.point.plan);
  add_idle_settings(a.sweep.unread, idle_settings(a.study, plans, a.question.settings, {},
                                                  [&](const std::vector<std::string>& others) {
                                                    return study_with(a.scenario, catalogs, others);
                                                  }));
}

}  // namespace

namespace {

void sweep(PlanAnswer& a, const Show& show) {
  a.sweep = answer_sweep(a.study, a.asked, show, [] { return true; });
}

// The batches of the scenario are those of CUDA graphs or powers of two: between the last that meets the
// target, or fits where there is none, and the next one more users may do. All plans get the batches that
// were found for some, and the scenario names them, so that it has the same answer.
void bisect_batches(PlanAnswer& a, const Catalogs& catalogs, const Show& show) {
  if (a.question.prefill() || a.question.users > 0 || a.question.rate > 0) return;
  constexpr int kRounds = 3;  // of plans that only such a batch brings to the frontier
  for (int i = 0; i < kRounds; ++i) {
    const std::vector<int> more = batches_at_target(a.study, plans_of(a.sweep.rated),
                                                    [&](const Point& p) { return within_target(a, p); });
    if (more.empty()) return;
    std::vector<int>& batches = a.defaults.batches;
    batches.insert(batches.end(), more.begin(), more.end());
    std::sort(batches.begin(), batches.end());
    a.scenario = plan_scenario(a.question, a.defaults);
    a.study = study_with(a.scenario, catalogs, a.question.settings);
    sweep(a, show);
  }
}

}  // namespace

namespace {

// Batches between those of graphs that the copies' search found: without them no command that reads the
// scenario lists the plans of the answer.
void add_batches(PlanAnswer& a, const Catalogs& catalogs) {
  std::vector<int>& batches = a.defaults.batches;
  if (batches.empty()) return;  // they follow from the users
  for (const PlannedPoint& p : a.plans) batches.push_back(p.point.plan.batch);
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  a.scenario = plan_scenario(a.question, a.defaults);
  a.study = study_with(a.scenario, catalogs, a.question.settings);
}

// Sweeps, and chooses what is shown.
void find_plans(PlanAnswer& a, const Catalogs& catalogs, const Show& show) {
  sweep(a, show);
  bisect_batches(a, catalogs, show);
  a.by_copies = shares_among_copies(a);
  if (a.by_copies) {
    PlannedCopies found = planned_copies(a, show);
    a.plans = std::move(found.plans);
    a.others = std::move(found.others);
    a.wider = std::move(found.wider);
    a.met = !a.plans.empty() && a.plans.front().meets;
    add_batches(a, catalogs);
  } else {
    a.met = meets(a);
  }
  if (!a.plans.empty()) return;
  a.plans = around_target(a);
  if (a.has_target()) a.others = other_strategies(a.plans, ranked_within_target(a));
}

// Of the checkpoints that store the model in fewer bits than the question does the widest that fits and meets
// the target, else, where no plan of the question's types fits, the widest that fits. One that the engine
// does not start is left out.
std::shared_ptr<const PlanAnswer> narrower_that_fits(const PlanAnswer& a, const Catalogs& catalogs,
                                                     const Show& show) {
  const Case& asked = a.study.study;
  const Module main = has_experts(asked.model) ? Module::experts : Module::dense_ffn;
  const int own = element_bits(asked.precision.of(main).weights);
  std::vector<PublishedCheckpoint> known = published_checkpoints(asked.model);
  std::erase_if(known, [&](const PublishedCheckpoint& p) { return element_bits(p.type) >= own; });
  std::stable_sort(known.begin(), known.end(),
                   [](const auto& x, const auto& y) { return element_bits(x.type) > element_bits(y.type); });
  std::shared_ptr<const PlanAnswer> out;
  for (const PublishedCheckpoint& p : known) {
    PlanQuestion q = a.question;
    q.model = p.repository;
    try {
      PlanAnswer other = asked_plan(q, catalogs);
      find_plans(other, catalogs, show);
      // Where the question's own types have a plan, others are worth a word if they meet the target.
      if (other.plans.empty() || ((out || !a.plans.empty()) && !other.met)) continue;
      out = std::make_shared<const PlanAnswer>(std::move(other));
      if (out->met) break;
    } catch (const UserError&) {
      continue;
    }
  }
  return out;
}

// Types that --set names are no checkpoint's, and files of the user's are in those that they are in.
bool takes_checkpoints(const PlanQuestion& q) {
  std::error_code error;
  return q.as.empty() && !std::filesystem::exists(q.model, error) &&
         std::none_of(q.settings.begin(), q.settings.end(),
                      [](const std::string& s) { return s.starts_with("precision"); });
}

// Whether copies carry a part of the rate: how many more would carry all of it is then known.
bool carries_some(const PlanAnswer& a) {
  return a.question.rate > 0 && !a.plans.empty() && a.plans.front().most_per_s > 0;
}

}  // namespace

long long users_of(const PoolPair& p) {
  return p.whole.decode * (p.decode.plan.users() + p.decode.all_waiting());
}

PlanAnswer answer_plan(const PlanQuestion& q, const Catalogs& catalogs, const Show& show) {
  PlanAnswer out = asked_plan(q, catalogs);
  find_plans(out, catalogs, show);
  out.pools = best_pair(out);
  if (!out.plans.empty()) simulate_best(out);
  add_idle(out, catalogs);
  const bool other_gpus = !sets_key(q.settings, "gpus");  // the question may be asked of
  if (!out.met && !out.wider && !carries_some(out) && other_gpus) out.wider = wider(out, show);
  if (other_gpus) out.fewer = fewer_gpus(out, show);
  if (!out.met && !carries_some(out) && takes_checkpoints(q))
    out.narrower = narrower_that_fits(out, catalogs, show);
  return out;
}

}  // namespace shardline
