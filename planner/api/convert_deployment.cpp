#include "planner/api/convert_deployment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "planner/api/convert.hpp"
#include "planner/api/convert_plan.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/search/provenance.hpp"
#include "planner/serving/served.hpp"
#include "planner/studies/idle_settings.hpp"
#include "planner/studies/played_cost.hpp"
#include "planner/studies/saved_question.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline::api {

namespace {

DeployedReplicas deployed_of(const AskedDeployment& asked, const PlayedDeployment& d, const std::string& slo,
                             const std::string& saved) {
  const Study& study = asked.plan.study;
  const ServedLoadAnswer& load = d.answer.load;
  const ServiceQuestion& q = d.answer.question;
  const ErrorRange time = served_time_error(*study.study.engine, d.answer.step_errors);
  DeployedReplicas out;
  out.plan = to_string(q.plan);
  out.replicas = q.replicas;
  if (q.prefill) {
    out.prefill = to_string(q.prefill->plan);
    out.prefill_replicas = q.prefill->replicas;
  }
  out.gpus = d.gpus();
  out.knobs = q.knobs;
  out.met = load.met;
  out.used = d.used;
  out.targets = targets_of(load);
  out.latencies = latencies_of(load);
  out.tpot_low = time.low;
  out.tpot_high = time.high;
  out.may_miss = may_miss(study, d.answer);
  out.goodput_per_s = load.goodput;
  out.output_tokens_per_s_gpu = load.output_per_s_gpu;
  out.time_idle = load.idle;
  out.cost_per_million = cost_per_million(asked, d.answer);
  const PlayedCost cost = played_cost(study, d.answer);
  out.board_w = estimate_of(cost.watts);
  out.joules_per_token = estimate_of(cost.joules_per_token);
  out.serve_command = serve_command(q, slo, saved, settings_beside(asked.plan.question));
  return out;
}

// The replicas that are told first; nothing where none is.
const PlayedDeployment* told_first(const DeploymentAnswer& a) {
  return !a.cheapest.empty() ? &a.cheapest.front() : a.nearest ? &*a.nearest : nullptr;
}

}  // namespace

std::vector<shardline::Diagnostic> deployment_warnings(const AskedDeployment& asked,
                                                       const DeploymentAnswer& a) {
  const Study& study = asked.plan.study;
  std::vector<shardline::Diagnostic> out = model_notes(study.study);
  const PlayedDeployment* const first = told_first(a);
  if (first == nullptr) return out;
  const auto idle =
      idle_in_play(study, first->answer.question, asked.plan.question.settings, asked.with, nullptr);
  out.insert(out.end(), idle.begin(), idle.end());
  for (shardline::Diagnostic& note : idle_knob_notes(first->answer)) out.push_back(std::move(note));
  out.insert(out.end(), first->answer.narrow.begin(), first->answer.narrow.end());
  return out;
}

std::optional<double> cost_per_million(const AskedDeployment& asked, const ServiceAnswer& a) {
  const double price = asked.plan.question.gpu_hour;
  if (!(price > 0) || !(a.load.output_per_s_gpu > 0)) return std::nullopt;
  return money_per_million(price, a.load.output_per_s_gpu);
}

bool may_miss(const Study& study, const ServiceAnswer& a) {
  const double high = served_time_error(*study.study.engine, a.step_errors).high;
  return std::any_of(a.load.targets.begin(), a.load.targets.end(), [&](const TargetResult& t) {
    return (t.target.of == Latency::tpot || t.target.of == Latency::itl) && t.met &&
           t.measured * (1 + high) > t.target.most.value;
  });
}

std::string load_options(const ServiceQuestion& q, const std::string& slo) {
  std::string out;
  if (!q.trace.empty()) out += " --trace " + shell_operand(q.trace);
  if (q.rate > 0) out += " --rate " + rate_argument(q.rate);
  out += " --slo " + shell_word(slo);
  if (q.lengths == LengthLaw::drawn) out += " --lengths drawn";
  if (q.router != Router::round_robin) out += fmt::format(" --router {}", to_string(q.router));
  if (q.requests > 0) out += fmt::format(" --requests {}", q.requests);
  if (q.seed != 1) out += fmt::format(" --seed {}", q.seed);
  for (const std::string& knob : q.knobs) out += " --knob " + shell_word(knob);
  return out;
}

std::string saved_load_options(const AskedDeployment& asked, const DeploymentAnswer& a,
                               const std::string& slo) {
  ServiceQuestion q = asked.question.load;
  if (!q.trace.empty()) q.trace = from_anywhere(q.trace);
  const PlayedDeployment* const best = told_first(a);
  q.knobs = best != nullptr ? best->answer.question.knobs : asked.knobs;
  std::string out = load_options(q, slo);
  if (!asked.knobs.empty() && q.knobs != asked.knobs)
    out += fmt::format(" (plan tried {})", fmt::join(asked.knobs, " "));
  return out;
}

std::string serve_command(const ServiceQuestion& q, const std::string& slo, const std::string& file,
                          const std::string& settings) {
  std::string out = fmt::format("shardline serve {} --plan {} --replicas {}", shell_operand(file),
                                shell_word(sharding_text(q.plan)), q.replicas);
  if (q.prefill) {
    out += fmt::format(" --prefill {} --prefill-replicas {}", shell_word(sharding_text(q.prefill->plan)),
                       q.prefill->replicas);
    for (const std::string& knob : q.prefill->knobs) out += " --prefill-knob " + shell_word(knob);
  }
  return out + load_options(q, slo) + settings;
}

namespace {

PoolsAsked pools_asked(const std::string& text) {
  if (text.empty() || text == "any") return PoolsAsked::any;
  if (text == "one") return PoolsAsked::one;
  if (text == "two") return PoolsAsked::two;
  throw UserError(
      {shardline::Diagnostic{{},
                             fmt::format("{}: unknown name {}", argument_name("pools"), text),
                             expected_one_of(text, std::vector<std::string>{"any", "one", "two"})}});
}

}  // namespace

void require_no_load(const PlanQuestion& asked) {
  const char* const of_load = asked.trace                                              ? "trace"
                              : asked.requests > 0                                     ? "requests"
                              : !asked.lengths.empty() && asked.lengths != "equal"     ? "lengths"
                              : !asked.router.empty() && asked.router != "round_robin" ? "router"
                              : asked.seed != 1                                        ? "seed"
                              : !asked.knobs.empty()                                   ? "knob"
                              : !asked.pools.empty() && asked.pools != "any"           ? "pools"
                                                                                       : nullptr;
  if (of_load != nullptr)
    throw UserError(
        fmt::format("{} is of requests that are played: expected {} beside it, targets by percentile",
                    argument_name(of_load), argument_name("slo")));
}

namespace {

[[noreturn]] void refuse_beside_slo(std::string_view option) {
  std::string detail = fmt::format("for instance {} \"ttft p99 2 s, tpot p99 40 ms\"", argument_name("slo"));
  if (option == "users")
    detail = fmt::format("targets by percentile are of requests that come by time: {}, or {}",
                         argument_given("rate", "5/s"), argument_name("trace"));
  throw UserError({shardline::Diagnostic{
      {},
      fmt::format("{} has the targets: no {} beside it", argument_name("slo"), argument_name(option)),
      {std::move(detail)}}});
}

}  // namespace

// Settings of what `slo` does not play.
void require_played(const std::vector<std::string>& settings) {
  for (const char* key : {"workload.lengths", "workload.users", "constraints.pool_gpus"}) {
    for (const std::string& s : settings) {
      if (s.starts_with(std::string(key) + "="))
        throw UserError(fmt::format("{} is not of requests that are played: leave it out beside {}", key,
                                    argument_name("slo")));
    }
  }
}

AskedDeployment asked_deployment(const PlanQuestion& asked, const RunOptions& o) {
  require_played(o.settings);
  if (asked.most_ttl_s || asked.least_tokens_per_s_user || asked.most_ttft_s || asked.users)
    refuse_beside_slo(asked.least_tokens_per_s_user ? "tokens-per-user"
                      : asked.most_ttl_s            ? "ttl"
                      : asked.most_ttft_s           ? "ttft"
                                                    : "users");
  if (!asked.output_tokens)
    throw UserError(fmt::format("{} is missing: requests are answered", argument_name("output")));
  if (!asked.requests_per_s && !asked.trace)
    throw UserError(fmt::format("nothing says when requests come: expected {} or {}", argument_name("rate"),
                                argument_name("trace")));
  ServeQuestion load;
  load.trace = asked.trace;
  load.lengths = asked.lengths;
  load.requests_per_s = asked.requests_per_s;
  load.requests = asked.requests;
  load.replicas = 1;  // each play says its own
  load.slo = asked.slo;
  load.router = asked.router;
  load.seed = asked.seed;
  AskedDeployment out;
  out.question.load = asked_load(load);
  PlanQuestion line = asked;
  line.requests_per_s.reset();  // of a steady stream, which this is not
  const Catalogs catalogs = shipped_catalogs();
  const shardline::PlanQuestion question = plan_question_of(line, o, catalogs);
  if (question.engine == kIdealEngine)
    throw UserError(fmt::format("{}: bare kernels (ideal) serve nobody: name an engine, or leave {} out",
                                argument_name("slo"), argument_name("engine")));
  out.plan = asked_plan(question, catalogs);
  out.question.load.input = question.input;
  out.question.load.output = question.output;
  out.question.most_gpus = out.plan.defaults.most_gpus;
  out.question.knobs = knob_settings(asked.knobs);
  out.question.pools = pools_asked(asked.pools);
  out.knobs = asked.knobs;
  out.question.threads = o.threads;
  out.with = [line, o](const std::vector<std::string>& settings) {
    const Catalogs shipped = shipped_catalogs();
    RunOptions other = o;
    other.settings = settings;
    return asked_plan(plan_question_of(line, other, shipped), shipped).study;
  };
  return out;
}

PlanResult deployment_result(const AskedDeployment& asked, const DeploymentAnswer& a, const std::string& slo,
                             const std::string& saved) {
  PlanResult out;
  out.title = question_text(asked.plan.question, asked.plan.defaults);
  out.scenario_text = saved_scenario(asked.plan, shipped_catalogs(), saved_load_options(asked, a, slo));
  out.engine_why = asked.plan.defaults.engine_why;
  out.gpus_note = asked.plan.defaults.gpus_note;
  out.met = !a.cheapest.empty();
  out.sweep.setting = setting_of(asked.plan.study);
  if (out.sweep.setting.workload)
    out.sweep.setting.workload->lengths = asked.question.load.lengths == LengthLaw::drawn ? "drawn" : "equal";
  out.sweep.warnings = diagnostics_of(deployment_warnings(asked, a));
  DeploymentSearch& search = out.deployment.emplace();
  for (const PlayedDeployment& d : a.cheapest) search.cheapest.push_back(deployed_of(asked, d, slo, saved));
  if (a.others) search.other_draws = OtherDraws{a.others->draws, a.others->kept, a.others->used};
  if (a.nearest) search.nearest = deployed_of(asked, *a.nearest, slo, saved);
  const DeploymentCertificate& c = a.certificate;
  search.plans = static_cast<long long>(c.plans);
  search.pairs = static_cast<long long>(c.pairs);
  search.no_pairs = a.no_pairs;
  search.candidates = static_cast<long long>(c.candidates);
  search.dearer = static_cast<long long>(c.dearer);
  for (std::size_t i = 0; i < kRuledOut; ++i)
    search.ruled_out.push_back(
        {std::string(to_string(static_cast<RuledOut>(i))), static_cast<long long>(c.ruled_out[i])});
  search.requests_played = static_cast<long long>(c.requests);
  for (const auto& [plan, why] : a.not_played) search.not_played.push_back({to_string(plan), why});
  for (const auto& knobs : a.knobs_refused)
    search.knobs_refused.push_back(fmt::format("{}", fmt::join(knobs, " ")));
  return out;
}

}  // namespace shardline::api
