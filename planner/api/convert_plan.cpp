#include "planner/api/convert_plan.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "planner/api/convert.hpp"
#include "planner/engines/model_names.hpp"
#include "planner/engines/profile.hpp"
#include "planner/scenario/scenario_parts.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/studies/knob_tables.hpp"
#include "planner/studies/line_settings.hpp"
#include "planner/studies/saved_question.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline::api {

namespace {

constexpr long long kMostUsers = 1'000'000;

void require_in(const char* option, std::optional<long long> value, long long least, long long most) {
  if (value && (*value < least || *value > most))
    throw UserError(fmt::format("{} {}: expected {} to {}", argument_name(option), *value, least, most));
}

int gpus_of(const PlanQuestion& asked, const RunOptions& o, const Catalogs& catalogs) {
  const FabricSpec fabric = load_system(asked.system, catalogs.systems, system_settings(o.settings)).fabric;
  const long long all = static_cast<long long>(fabric.nodes) * fabric.gpus_per_node;
  if (asked.gpus && *asked.gpus < 1) require_in("gpus", asked.gpus, 1, all);
  if (asked.nodes && *asked.nodes < 1) require_in("nodes", asked.nodes, 1, fabric.nodes);
  if (asked.nodes && *asked.nodes > fabric.nodes)
    throw UserError({shardline::Diagnostic{
        {},
        fmt::format("{} {}: {} has {}", argument_name("nodes"), *asked.nodes, asked.system, fabric.nodes),
        {fabric.tray > 0 ? fmt::format("a node of it is {}: {} counts GPUs, {} of them a tray",
                                       node_text(fabric), argument_name("gpus"), fabric.tray)
                         : "a node of it is " + node_text(fabric)}}});
  if (asked.gpus && *asked.gpus > all)
    throw UserError(fmt::format("{} {}: {} has {} ({} nodes of {})", argument_name("gpus"), *asked.gpus,
                                asked.system, all, fabric.nodes, fabric.gpus_per_node));
  const long long by_nodes = asked.nodes ? *asked.nodes * fabric.gpus_per_node : 0;
  if (asked.gpus && asked.nodes && *asked.gpus != by_nodes)
    throw UserError(fmt::format("{} {} and {} {}, which are {} GPUs of {}: give one of them",
                                argument_name("gpus"), *asked.gpus, argument_name("nodes"), *asked.nodes,
                                by_nodes, asked.system));
  return static_cast<int>(asked.gpus ? *asked.gpus : by_nodes);
}

Seconds target(const char* option, std::optional<double> value) {
  if (!value) return Seconds(0);
  if (!(*value > 0) || !std::isfinite(*value))
    throw UserError(fmt::format("{} {}: expected a positive time", argument_name(option), *value));
  return target_time(option, *value);
}

double rate_of(std::optional<double> value) {
  if (!value) return 0;
  if (!(*value >= kLeastRate && *value <= kMostRate))
    throw UserError(fmt::format("{} {}: expected {} to {} requests a second", argument_name("rate"), *value,
                                kLeastRate, kMostRate));
  return *value;
}

double price_of(std::optional<double> value) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  if (!value) return 0;
  if (!(*value >= kLeast && *value <= kMost))
    throw UserError(fmt::format("{} {}: expected a price from {} to {}", argument_name("gpu-hour"), *value,
                                kLeast, kMost));
  return *value;
}

// The stricter of two ways to say the same target, in the terms in which it was given.
void set_time_per_token(shardline::PlanQuestion& q, const PlanQuestion& asked) {
  q.ttl = target("ttl", asked.most_ttl_s);
  const Seconds most = time_of_rate(asked.least_tokens_per_s_user);
  if (most == Seconds(0) || (q.ttl > Seconds(0) && q.ttl <= most)) return;
  q.ttl = most;
  q.tokens_per_user = *asked.least_tokens_per_s_user;
}

// Targets that would silently mean nothing.
void require_meaning(const shardline::PlanQuestion& q) {
  if (q.output == 1)
    throw UserError(
        fmt::format("{0} 1: a prefill gives the first token: leave {0} out", argument_name("output")));
  if (q.prefill() && (q.ttl > Seconds(0) || q.users > 0))
    throw UserError(fmt::format(
        "{}, {} and {} are of answers: give their length with {} (without it the question is of the prefill "
        "alone, with {})",
        argument_name("ttl"), argument_name("tokens-per-user"), argument_name("users"),
        argument_name("output"), argument_name("ttft")));
  if (q.rate > 0 && q.prefill())
    throw UserError(fmt::format("{} is of requests that are answered: give the length of answers with {}",
                                argument_name("rate"), argument_name("output")));
  if (q.rate > 0 && q.engine == "ideal")
    throw UserError(fmt::format(
        "{} is of served requests, and bare kernels (ideal) serve nobody: name an engine, or leave {} out",
        argument_name("rate"), argument_name("engine")));
  if (q.rate > 0 && q.users > 0)
    throw UserError(fmt::format("{} and {}: a rate says how many users it keeps busy: give one of them",
                                argument_name("rate"), argument_name("users")));
  if (q.engine == "ideal" && !q.prefill() && q.ttft > Seconds(0))
    throw UserError(fmt::format(
        "{} with {} is of served requests, and bare kernels (ideal) serve nobody: name an engine, or leave "
        "{} out",
        argument_name("ttft"), argument_name("output"), argument_name("output")));
}

PlannedPlan planned_of(const PlanAnswer& a, const PlannedPoint& p) {
  Copies all;
  all.count = p.copies;
  all.gpus = a.gpus_of(p);
  all.users = a.question.prefill() ? 0 : a.users_of(p);
  all.tokens_per_s_gpu = a.tokens_per_s_gpu(p);
  if (const double rate = a.requests_per_s(p); rate > 0) all.requests_per_s = rate;
  if (a.question.rate > 0 && p.most_per_s > 0) {
    all.most_requests_per_s = p.most_per_s;
    all.limit_requests_per_s = p.limit_per_s;
    if (p.meets) all.requests_per_s = a.question.rate;
  }
  const PlanCost cost = a.cost_of(p);
  all.board_w = estimate_of(cost.watts);
  all.joules_per_token = estimate_of(cost.joules);
  all.cost_per_million_tokens = estimate_of(cost.per_million);
  return {plan_point(a.study, p.point, &p.rating, &p.ttft), p.meets, all};
}

BestPlan best_of(const PlanAnswer& a) {
  const System& system = a.study.study.system;
  BestPlan out{memory_of(system, a.best->memory), breakdown_of(system, a.best->breakdown), std::nullopt,
               warnings_of({}, a.best->warnings)};
  if (a.best->served && a.best->served->serves()) out.prefill_share = a.best->served->served.prefill_part;
  return out;
}

}  // namespace

shardline::PlanQuestion plan_question_of(const PlanQuestion& asked, const RunOptions& o,
                                         const Catalogs& catalogs) {
  for (const auto& [name, value] : {std::pair("model", &asked.model), std::pair("system", &asked.system)})
    if (value->empty())
      throw UserError(fmt::format("{} is missing: its name, or a file", argument_name(name)));
  require_in("users", asked.users, 1, kMostUsers);
  require_in("input", asked.input_tokens, 1, scenario_parts::kLongest);
  require_in("output", asked.output_tokens, 1, scenario_parts::kLongest);
  require_beside_line(o.settings);
  shardline::PlanQuestion q;
  q.model = without_address(asked.model);
  q.as = asked.read_as.value_or("");
  q.system = asked.system;
  q.gpus = gpus_of(asked, o, catalogs);
  q.nodes = static_cast<int>(asked.nodes.value_or(0));
  q.input = asked.input_tokens;
  q.output = asked.output_tokens.value_or(0);
  q.users = asked.users.value_or(0);
  q.rate = rate_of(asked.requests_per_s);
  q.gpu_hour = price_of(asked.gpu_hour_price);
  set_time_per_token(q, asked);
  q.ttft = target("ttft", asked.most_ttft_s);
  q.engine = same_engine(o.engine, kIdealEngine) ? kIdealEngine : o.engine;
  if (q.engine.empty()) q.engine = engine_of_knobs(asked.knobs);  // whose options are named is meant
  q.costs = o.costs;
  q.any_gpus = o.any_gpus;
  q.any_context = o.any_context;
  q.settings = o.settings;
  q.threads = o.threads;
  require_meaning(q);
  return q;
}

PlanResult plan_result(const PlanAnswer& a) {
  PlanResult out;
  out.title = question_text(a.question, a.defaults);
  out.scenario_text = saved_scenario(a, shipped_catalogs());
  out.engine_why = a.defaults.engine_why;
  out.gpus_note = a.defaults.gpus_note;
  out.met = a.met || a.pools.has_value();
  for (const PlannedPoint& p : a.plans) out.plans.push_back(planned_of(a, p));
  for (const PlannedPoint& p : a.others) out.others.push_back(planned_of(a, p));
  if (!a.met && !a.plans.empty() && a.question.rate == 0) {
    const shardline::Miss miss = miss_of(a, a.plans.front().point);
    out.miss = Miss{miss.what, miss.part, miss.time.value};
  }
  if (a.best) out.best = best_of(a);
  if (a.fewer) out.fewer = FewerGpus{planned_of(a, a.fewer->best), a.fewer->gpus, a.fewer->tokens_per_s_gpu};
  if (a.wider) out.wider = WiderPlan{planned_of(a, a.wider->best), a.wider->gpus, a.wider->most};
  if (a.narrower)
    out.narrower =
        NarrowerCheckpoint{planned_of(*a.narrower, a.narrower->plans.front()), a.narrower->question.model};
  out.sweep = model_sweep(a.study, a.asked, a.sweep);
  return out;
}

}  // namespace shardline::api
