// What serve is asked: a scenario and a plan, or a model on a system and the best plan of it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include "hardware/machine/system.hpp"
#include "planner/api/convert_plan.hpp"
#include "planner/api/convert_serve.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/serving/trace.hpp"
#include "planner/studies/idle_settings.hpp"
#include "planner/studies/plan_load.hpp"
#include "planner/studies/replica_failures.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "planner/studies/sized_trace.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/error.hpp"

namespace shardline::api {

namespace {

struct StudyAndPlan {
  Study study;
  Plan plan;
  int copies = 1;           // that a line's answer starts
  int most_gpus = 0;        // of a line that names them; 0: any
  std::string chosen = {};  // how targets chose the plan; empty: there were none
};

using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// The first of the answer's plans that requests can be played on.
const PlannedPoint& best_of(const PlanAnswer& answer) {
  std::string why = "no plan fits";
  for (const PlannedPoint& p : answer.plans) {
    const auto reason = no_play(answer.study.study, p.point.plan);
    if (!reason) return p;
    why = fmt::format("{}: {}", to_string(sharding_of(p.point.plan)), *reason);
  }
  throw UserError({shardline::Diagnostic{
      {},
      "none of the best plans can be served request by request",
      {why, fmt::format("name another with {}, for instance of tensor", argument_name("plan"))}}});
}

shardline::PlanQuestion line_of(const ServeQuestion& q, RunOptions o, const Catalogs& catalogs) {
  // A plan of prompts and one of answers are of one engine, which nobody measured as a pair: vLLM hands over
  // most.
  if (o.engine.empty() && !q.prefill.empty()) o.engine = "vllm";
  PlanQuestion line;
  line.model = q.model;
  line.system = q.system;
  line.input_tokens = q.input_tokens;
  if (q.output_tokens > 0) line.output_tokens = q.output_tokens;
  line.gpus = q.gpus;
  line.nodes = q.nodes;
  line.users = q.users;  // requests that come by themselves say nothing of how many are there at once
  line.most_ttl_s = q.most_ttl_s;
  line.least_tokens_per_s_user = q.least_tokens_per_s_user;
  line.most_ttft_s = q.most_ttft_s;
  line.read_as = q.read_as;
  line.knobs = q.knobs;
  shardline::PlanQuestion question = plan_question_of(line, o, catalogs);
  if (question.prefill()) throw UserError(argument_name("output") + " is missing: requests are answered");
  return question;
}

Study line_study(const ServeQuestion& q, const RunOptions& o) {
  const Catalogs catalogs = shipped_catalogs();
  return asked_plan(line_of(q, o, catalogs), catalogs).study;
}

StudyAndPlan of_line(const ServeQuestion& q, const RunOptions& o, const Progress& progress) {
  const Catalogs catalogs = shipped_catalogs();
  const shardline::PlanQuestion question = line_of(q, o, catalogs);
  if (!q.plan.empty()) {
    PlanAnswer answer = asked_plan(question, catalogs);
    const Plan plan = possible_plan(answer.study, q.plan);
    const int most = q.gpus || q.nodes ? answer.defaults.most_gpus : 0;
    return {std::move(answer.study), plan, 1, most};
  }
  PlanAnswer answer = answer_plan(question, catalogs, progress);
  const PlannedPoint& best = best_of(answer);
  const Plan plan = sharding_of(best.point.plan);
  const int copies = static_cast<int>(best.copies);
  const std::string targets = target_text(answer.question);
  std::string chosen;
  if (!targets.empty())
    chosen = fmt::format("{}; requests are held to {} alone",
                         best.meets ? "the plan was chosen by " + targets
                                    : "no plan meets " + targets + ", the nearest is played",
                         argument_name("slo"));
  return {std::move(answer.study), plan, copies, q.gpus || q.nodes ? answer.defaults.most_gpus : 0,
          std::move(chosen)};
}

Study scenario_study(const ServeQuestion& q, const RunOptions& o) {
  const Overrides given{costs_named(o.costs), o.engine, o.any_gpus, o.any_context, o.settings};
  const Scenario scenario = q.scenario_text.empty()
                                ? scenario_named(q.scenario, given)
                                : parse_scenario(q.scenario.empty() ? "scenario" : q.scenario,
                                                 q.scenario_text, shipped_catalogs(), given);
  const Study& study = study_of(scenario, q.model);
  if (!std::holds_alternative<Sweep>(study.question))
    throw UserError(scenario.name + " asks for another answer: expected a scenario that sweeps");
  return study;
}

StudyAndPlan of_scenario(const ServeQuestion& q, const RunOptions& o) {
  if (q.plan.empty())
    throw UserError(
        {shardline::Diagnostic{{},
                               argument_name("plan") + " is required with a scenario",
                               {fmt::format("for instance {}; of a model and a system it is chosen",
                                            argument_given("plan", "tensor:tpa=8,tpf=8"))}}});
  Study study = scenario_study(q, o);
  const Plan plan = possible_plan(study, q.plan);
  return {std::move(study), plan};
}

// Of a pool that prefills: one that runs prompts alone, too, where there are such.
Plan prefill_plan(const Study& study, const ServeQuestion& asked) {
  // Plans that have prompts alone have no drafts, and drafts are an option of steps that decode.
  if (!halves_apart(study.study) || parse_plan(asked.prefill)[kDrafts] > 0)
    return possible_plan(study, asked.prefill);
  Study prompts = study;
  const long long input = asked.input_tokens > 0 ? asked.input_tokens : study.study.served.input;
  prompts.study.batch = prefill_batch({{0, std::max(1LL, input), 1}});
  prompts.study.placement = nullptr;
  return possible_plan(prompts, asked.prefill);
}

// The same question of the other system that prompts are on, whose plan of a line is named. Settings of a
// system are of the one that answers: that both have one bandwidth is no question.
std::shared_ptr<const Study> prompts_on(const ServeQuestion& asked, const RunOptions& o) {
  if (asked.prefill_system.empty()) return nullptr;
  ServeQuestion other = asked;
  RunOptions on = o;
  std::erase_if(on.settings, [](const std::string& s) { return sets_system(s); });
  if (other.scenario.empty() && other.scenario_text.empty()) {
    other.system = asked.prefill_system;
    return std::make_shared<const Study>(line_study(other, on));
  }
  on.settings.push_back("system=" + asked.prefill_system);
  return std::make_shared<const Study>(scenario_study(other, on));
}

// The place of a name among those that there are; empty: the first.
std::size_t choice(const std::string& name, const std::string& found,
                   std::span<const std::string_view> names) {
  if (found.empty()) return 0;
  const auto at = std::find(names.begin(), names.end(), found);
  if (at == names.end())
    throw UserError({shardline::Diagnostic{
        {},
        fmt::format("{} {} is not known", name, found),
        expected_one_of(found, std::vector<std::string>(names.begin(), names.end()))}});
  return static_cast<std::size_t>(at - names.begin());
}

void require_in(const std::string& name, long long value, long long least, long long most) {
  if (value < least || value > most)
    throw UserError(fmt::format("{} {}: expected {} to {}", name, value, least, most));
}

std::vector<ReplicaFailure> failures_of(const ServeQuestion& asked, int replicas) {
  return parse_failures(argument_name("failure"), asked.failures,
                        {replicas, asked.prefill.empty() ? 0 : asked.prefill_replicas});
}

// What is of requests, whatever they are served on.
ServiceQuestion load_of(const ServeQuestion& asked) {
  constexpr double kMostThink = 1e7;  // s: four months
  constexpr double kMostPath = 60;    // s
  constexpr long long kMostRequests = 100'000'000, kMostUsers = 1'000'000;
  constexpr int kMostReplicas = 1024;
  constexpr std::array<std::string_view, 2> kLaws{"equal", "drawn"};
  constexpr std::array<std::string_view, 4> kRouters{"round_robin", "least_requests", "least_kv", "prefix"};
  constexpr std::array<Router, 4> kRouterOf{Router::round_robin, Router::least_requests, Router::least_kv,
                                            Router::prefix};
  ServiceQuestion q;
  q.lengths =
      choice(argument_name("lengths"), asked.lengths, kLaws) == 1 ? LengthLaw::drawn : LengthLaw::equal;
  q.router = kRouterOf[choice(argument_name("router"), asked.router, kRouters)];
  q.targets = parse_targets(argument_name("slo"), asked.slo);
  if (asked.users) require_in(argument_name("users"), *asked.users, 1, kMostUsers);
  if (asked.requests_per_s && !(*asked.requests_per_s >= kLeastRate && *asked.requests_per_s <= kMostRate))
    throw UserError(fmt::format("{} {}: expected {} to {} requests a second", argument_name("rate"),
                                *asked.requests_per_s, kLeastRate, kMostRate));
  require_in(argument_name("requests"), asked.requests, 0, kMostRequests);
  require_in(argument_name("replicas"), asked.replicas, 0, kMostReplicas);
  require_in(argument_name("seed"), asked.seed, 0, 1'000'000'000'000'000);
  q.trace = asked.trace.value_or("");
  q.rate = asked.requests_per_s.value_or(0);
  q.users = asked.users.value_or(0);
  if (asked.think_s) {
    if (!(*asked.think_s >= 0 && *asked.think_s <= kMostThink))
      throw UserError(fmt::format("{} {}: expected a time of at most {:.0f} s", argument_name("think"),
                                  *asked.think_s, kMostThink));
    q.think = Seconds(*asked.think_s);
  }
  if (asked.path_s) {
    if (!(*asked.path_s >= 0 && *asked.path_s <= kMostPath))
      throw UserError(fmt::format("{} {}: expected a time of at most {:.0f} s", argument_name("path"),
                                  *asked.path_s, kMostPath));
    q.path = Seconds(*asked.path_s);
  }
  q.requests = static_cast<std::uint64_t>(asked.requests);
  q.replicas = asked.replicas > 0 || asked.plan.empty() ? asked.replicas : 1;
  require_in(argument_name("prefill-replicas"), asked.prefill_replicas, 1, kMostReplicas);
  q.failures = failures_of(asked, q.replicas > 0 ? q.replicas : kMostReplicas);
  require_in(argument_name("max-local-prefill"), asked.max_local_prefill, 0, std::int64_t{1} << 30);
  if (asked.prefill.empty() && (asked.prefill_replicas > 1 || !asked.prefill_knobs.empty() ||
                                asked.max_local_prefill > 0 || !asked.prefill_system.empty()))
    throw UserError(fmt::format("{}, {}, {} and {} are of a pool that prefills: expected {}",
                                argument_name("prefill-system"), argument_name("prefill-replicas"),
                                argument_name("prefill-knob"), argument_name("max-local-prefill"),
                                argument_name("prefill")));
  if (!asked.prefill.empty() && asked.plan.empty())
    throw UserError(
        fmt::format("{} needs {}, the plan of the pool that decodes: the search answers with plans "
                    "that do both",
                    argument_name("prefill"), argument_name("plan")));
  q.seed = static_cast<std::uint64_t>(asked.seed);
  q.knobs = asked.knobs;
  q.largest_rate = q.users == 0 && q.rate <= 0 && q.trace.empty();
  return q;
}

// Arrivals are seconds since the first one: so late that doubles no longer tell milliseconds apart, all
// latencies would be 0.
void require_told_apart(const ServiceQuestion& q) {
  const auto requests = static_cast<double>(q.requests);
  const double lasts = q.rate > 0 ? requests / q.rate : q.users > 0 ? requests / q.users * q.think.value : 0;
  if (lasts > kLatestArrival)
    throw UserError(
        fmt::format("{} {} come over {:.3g} s, at most {:.0f} s are played: ask for fewer, or for a "
                    "higher rate",
                    argument_name("requests"), q.requests, lasts, kLatestArrival));
}

void require_consistent(const ServiceQuestion& q, bool asked_think) {
  require_told_apart(q);
  if (q.users > 0 && (q.rate > 0 || !q.trace.empty()))
    throw UserError(fmt::format("{} is of a closed loop: no {} and no {} beside it", argument_name("users"),
                                argument_name("rate"), argument_name("trace")));
  if (!q.trace.empty() && q.lengths != LengthLaw::equal)
    throw UserError(fmt::format("{} beside {}: lengths are those of its rows", argument_name("lengths"),
                                argument_name("trace")));
  if (asked_think && q.users == 0)
    throw UserError(fmt::format("{} is of users of a closed loop: expected {}", argument_name("think"),
                                argument_name("users")));
  if (q.users > 0 && q.router != Router::round_robin)
    throw UserError(argument_name("router") + ": users of a closed loop stay with one replica each, in turn");
  if (q.largest_rate && q.targets.empty())
    throw UserError(fmt::format(
        "nothing says when requests come: expected {}, {}, {}, or {}, which asks for the largest rate that "
        "meets it",
        argument_name("rate"), argument_name("users"), argument_name("trace"), argument_name("slo")));
}

// Every word is heard, or refused: those that choose a plan where none is chosen.
void require_heard(const ServeQuestion& q, bool named) {
  const char* target = q.least_tokens_per_s_user ? "tokens-per-user"
                       : q.most_ttl_s            ? "ttl"
                       : q.most_ttft_s           ? "ttft"
                                                 : nullptr;
  if (named) {
    const char* of_line = q.gpus ? "gpus" : q.nodes ? "nodes" : q.read_as ? "as" : target;
    if (of_line != nullptr)
      throw UserError(fmt::format("{} is of a line with a model and {}: a scenario says it itself",
                                  argument_name(of_line), argument_name("system")));
  } else if (target != nullptr && !q.plan.empty()) {
    throw UserError({shardline::Diagnostic{
        {},
        fmt::format("{} chooses a plan, and {} names it", argument_name(target), argument_name("plan")),
        {fmt::format("targets of requests are those of {}", argument_given("slo", "tpot p99 40 ms"))}}});
  }
}

// GPUs of a line are those of a server: each plan has no more of them.
void require_gpus(const ServiceQuestion& q, int most) {
  const int all = std::max(q.plan.gpus(), q.prefill && !q.prefill->on ? q.prefill->plan.gpus() : 0);
  if (most > 0 && all > most)
    throw UserError(fmt::format("{} GPU{} asked for, and a plan that is named has {}", most,
                                most == 1 ? " is" : "s are", all));
}

// Of a line that leaves lengths to its trace: the means of the trace, by which the best plan is found.
ServeQuestion with_lengths(ServeQuestion asked, std::uint64_t requests, const Progress& progress) {
  if (!asked.trace || asked.trace->empty() || (asked.input_tokens > 0 && asked.output_tokens > 0))
    return asked;
  const TraceSize size = size_of(*asked.trace, requests, progress);
  const auto mean = [](double tokens) { return std::max(1LL, std::llround(tokens)); };
  if (asked.input_tokens <= 0) asked.input_tokens = mean(size.input);
  if (asked.output_tokens <= 0)
    asked.output_tokens = std::max(2LL, mean(size.output));  // 1 is a prefill alone
  return asked;
}

}  // namespace

ServiceQuestion asked_load(const ServeQuestion& asked) {
  ServiceQuestion out = load_of(asked);
  require_consistent(out, asked.think_s.has_value());
  return out;
}

AskedService asked_service(const ServeQuestion& asked, const RunOptions& o,
                           const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const bool named = !asked.scenario.empty() || !asked.scenario_text.empty();
  if (named && !asked.system.empty())
    throw UserError(fmt::format("a scenario names its system: no {} beside it", argument_name("system")));
  if (!named && asked.system.empty())
    throw UserError(argument_name("system") +
                    " is missing: without a scenario a model is served on a system");
  if (!named && asked.input_tokens <= 0 && asked.trace.value_or("").empty())
    throw UserError(fmt::format("{0} is missing: requests of a line have a length, for instance {1} and {2}",
                                argument_name("input"), argument_given("input", "8K"),
                                argument_given("output", "512")));
  require_heard(asked, named);
  ServiceQuestion question = asked_load(asked);  // faults before a search
  StudyAndPlan on =
      named ? of_scenario(asked, o) : of_line(with_lengths(asked, question.requests, progress), o, progress);
  require_play(on.study.study, on.plan);  // before lengths are asked for, which would not help
  question.plan = on.plan;
  if (question.replicas == 0) {
    question.replicas = on.copies;
    question.failures = failures_of(asked, on.copies);
  }
  if (!asked.prefill.empty()) {
    const auto other = prompts_on(asked, o);
    const Study& prompts = other ? *other : on.study;
    question.prefill = {prefill_plan(prompts, asked), asked.prefill_replicas, asked.prefill_knobs,
                        asked.max_local_prefill,      "prefill-knob",         other};
    if (const auto reason = no_pair({prompts.study, question.prefill->plan}, {on.study.study, on.plan}))
      throw UserError(
          fmt::format("{} {}: {}", argument_name("prefill"), to_string(question.prefill->plan), *reason));
  }
  require_gpus(question, on.most_gpus);
  const ServedRequest& workload = on.study.study.served;
  question.input = named && asked.input_tokens > 0 ? asked.input_tokens : workload.input;
  question.output = named && asked.output_tokens > 0 ? asked.output_tokens : workload.output;
  if (question.trace.empty() && (question.input <= 0 || question.output <= 0))
    throw UserError(fmt::format(
        "nothing says how long requests are: expected {} and {}, a workload in the scenario, or {}",
        argument_name("input"), argument_name("output"), argument_name("trace")));
  const auto without = [&](const std::vector<std::string>& others) {
    RunOptions other = o;
    other.settings = others;
    return named ? scenario_study(asked, other)
                 : line_study(with_lengths(asked, question.requests, progress), other);
  };
  const auto same_plans = [&](const Study& other) {
    return possible_plan(other, asked.plan) == question.plan &&
           (!question.prefill || question.prefill->on ||
            prefill_plan(other, asked) == question.prefill->plan);
  };
  std::vector<shardline::Diagnostic> idle =
      asked.plan.empty() ? idle_in_play(on.study, question, o.settings, without, nullptr)
                         : idle_in_play(on.study, question, o.settings, without, same_plans);
  if (question.router != Router::round_robin && question.replicas == 1 && asked.prefill_replicas == 1)
    idle.push_back(
        {{}, argument_name("router") + " changes nothing here: there is one replica to go to", {}});
  if (!on.chosen.empty()) idle.push_back({{}, std::move(on.chosen), {}});
  return {std::move(on.study), std::move(question), std::move(idle)};
}

}  // namespace shardline::api
