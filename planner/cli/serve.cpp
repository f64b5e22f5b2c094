// serve: requests that come one by one, on a plan.
#include <fmt/format.h>

#include "planner/api/convert_plan.hpp"
#include "planner/api/convert_serve.hpp"
#include "planner/cli/question_parts.hpp"
#include "planner/cli/serve_text.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/scenario/asked_amounts.hpp"
#include "planner/studies/plan_load.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "reports/atomic_file.hpp"
#include "reports/terminal.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

struct ServeOptions {
  std::string scenario, model, plan, costs, trace, slo, out;
  std::string router = "round_robin", lengths = "equal";
  std::optional<long long> requests, seed;
  std::optional<std::string> think;
  int replicas = 1;
  std::vector<std::string> knobs;
  QuestionOptions question;
  EngineOptions engine;
};

void declare(Arguments& a, ServeOptions& o) {
  a.add("scenario", o.scenario,
        "Scenario file, or the name of a shipped scenario; with --system a model, as of plan")
      .required()
      .offers(scenario_names)
      .files();
  a.add("--plan", o.plan, "Plan text, as plan and sweep print it; default: the best of the line's answer");
  a.add("--model", o.model, "Which model of the scenario (default: the first)").offers(offered_models);
  add_question(a, o.question, false);
  a.add("--trace", o.trace,
        "Recorded requests: Mooncake's JSON lines, Azure's CSV or CSV with arrival_s, input_tokens and "
        "output_tokens; with --rate at that mean rate")
      .files();
  a.add("--requests", o.requests, "Requests at most (default: 2000, ten of each of --users, all of a trace)")
      .range(1, 100'000'000);
  a.add("--think", o.think,
        "Mean time between an answer and the next request of each of --users, exponential: \"5 s\" (default: "
        "none, "
        "and all begin at once)");
  a.add("--slo", o.slo,
        "Targets: \"ttft p99 2 s, tpot p99 40 ms\", of ttft, tpot, itl and e2e; without a rate, users or a "
        "trace: the largest rate that meets them");
  a.add("--lengths", o.lengths, "All requests as long as asked, or drawn from 80 to 100 % of it")
      .one_of({"equal", "drawn"});
  a.add("--replicas", o.replicas, "Copies of the plan").range(1, 1024);
  a.add("--router", o.router, "Which replica a request goes to")
      .one_of({"round_robin", "least_kv", "prefix"});
  a.add("--seed", o.seed, "Of arrivals and lengths (default: 1)").range(0, 1'000'000'000'000'000);
  a.add("--knob", o.knobs,
        "NAME=VALUE: an option of the engine, for instance max_num_seqs=256 of vLLM; again for more")
      .each();
  add_costs(a, o.costs);
  add_engine(a, o.engine);
  a.add("-o,--out", o.out, "Folder for latencies.csv and series.csv (batch, queue and KV over time)")
      .output_folder();
}

Router router_named(const std::string& name) {
  return name == "least_kv" ? Router::least_kv : name == "prefix" ? Router::prefix : Router::round_robin;
}

// The study, and a plan of it.
struct Asked {
  Study study;
  Plan plan;
};

// The first of the answer's plans that requests can be played on.
Plan best_of(const PlanAnswer& answer) {
  std::string why = "no plan fits";
  for (const PlannedPoint& p : answer.plans) {
    const auto reason = no_play(answer.study.study, p.point.plan);
    if (!reason) return sharding_of(p.point.plan);
    why = fmt::format("{}: {}", to_string(sharding_of(p.point.plan)), *reason);
  }
  throw UserError({Diagnostic{{},
                              "none of the best plans can be served request by request",
                              {why, "name another with --plan, for instance of tensor"}}});
}

Asked asked_of_line(const ServeOptions& o) {
  EngineOptions engine = o.engine;
  if (engine.engine.empty()) engine.engine = "vllm";
  const Catalogs catalogs = shipped_catalogs();
  QuestionOptions line = o.question;
  // Requests that come by themselves say nothing of how many are there at once.
  line.rate.reset();
  const PlanQuestion question =
      api::plan_question_of(asked_of(o.scenario, line), run_options_of(engine, o.costs, 0), catalogs);
  if (question.prefill()) throw UserError("--output is missing: requests are answered");
  if (!o.plan.empty()) {
    PlanAnswer answer = asked_plan(question, catalogs);
    const Plan plan = possible_plan(answer.study, o.plan);
    return {std::move(answer.study), plan};
  }
  Progress progress(o.scenario, Progress::terminal());
  PlanAnswer answer = answer_plan(question, catalogs, [&](std::uint64_t done, std::uint64_t total) {
    progress.show(done, total);
    if (interrupted()) throw Cancelled{};
  });
  const Plan plan = best_of(answer);
  return {std::move(answer.study), plan};
}

Asked asked_study_and_plan(const ServeOptions& o) {
  if (!o.question.system.empty()) return asked_of_line(o);
  if (!o.question.input.empty() || !o.question.output.empty())
    throw UserError("--system is missing: --input and --output are of a line with a model and a system");
  if (o.plan.empty()) throw UserError("--plan is required with a scenario");
  const Scenario scenario = scenario_named(o.scenario, overrides_of(o.costs, o.engine));
  const Study& study = study_of(scenario, o.model);
  require_question<Sweep>(study, o.scenario);
  return {study, possible_plan(study, o.plan)};
}

ServiceQuestion question_of(const ServeOptions& o, const Asked& asked) {
  require_play(asked.study.study, asked.plan);
  ServiceQuestion q;
  q.plan = asked.plan;
  q.input = asked.study.study.served.input;
  q.output = asked.study.study.served.output;
  q.lengths = o.lengths == "drawn" ? LengthLaw::drawn : LengthLaw::equal;
  q.trace = o.trace;
  if (o.question.rate) q.rate = asked_rate("--rate", *o.question.rate);
  if (o.question.users) q.users = *o.question.users;
  if (o.think) q.think = asked_time("--think", *o.think);
  if (o.requests) q.requests = static_cast<std::uint64_t>(*o.requests);
  q.targets = parse_targets("--slo", o.slo);
  q.replicas = o.replicas;
  q.router = router_named(o.router);
  if (o.seed) q.seed = static_cast<std::uint64_t>(*o.seed);
  q.knobs = o.knobs;
  if (q.users > 0 && (q.rate > 0 || !q.trace.empty()))
    throw UserError("--users is of a closed loop: no --rate and no --trace beside it");
  if (o.think && q.users == 0) throw UserError("--think is of users of a closed loop: expected --users");
  if (q.users > 0 && q.router != Router::round_robin)
    throw UserError("--router: users of a closed loop stay with one replica each, in turn");
  q.largest_rate = q.users == 0 && q.rate <= 0 && q.trace.empty();
  if (q.largest_rate && q.targets.empty())
    throw UserError(
        "nothing says when requests come: expected --rate, --users, --trace, or --slo, which "
        "asks for the largest rate that meets it");
  if (q.trace.empty() && (q.input <= 0 || q.output <= 0))
    throw UserError(
        "nothing says how long requests are: expected --input and --output, a workload in the "
        "scenario, or --trace");
  return q;
}

int run(const ServeOptions& o, const Provenance& made_by) {
  const std::vector<LatencyTarget> targets = parse_targets("--slo", o.slo);  // faults before a search
  if (!o.out.empty()) make_output_folder(o.out);
  const Asked asked = asked_study_and_plan(o);
  const ServiceQuestion question = question_of(o, asked);
  ServiceAnswer answer;
  {
    Progress progress(asked.study.study.model.name, Progress::terminal(), "requests");
    answer = serve_requests(asked.study, question, [&](std::uint64_t done, std::uint64_t all) {
      progress.show(done, all);
      if (interrupted()) throw Cancelled{};
    });
  }
  constexpr std::size_t kWidth = 80;  // also of what is piped
  const std::size_t width = output_width();
  fmt::print("{}", serve_text(asked.study, answer, width > 0 ? width : kWidth));
  if (made_by.document != nullptr) {
    api::ServeResult result = api::serve_result(asked.study, answer);
    result.version = made_by.version;
    result.command = made_by.command;
    made_by.document->set(api::to_json(result));
  }
  if (!o.out.empty()) {
    OutputFolder files(o.out);
    files.write("latencies.csv", serve_csv(answer));
    files.write("series.csv", series_csv(answer));
    fmt::print("{}\n", files.publish());
  }
  return answer.load.met ? 0 : 3;
}

}  // namespace

const Command kServeCommand{"serve",
                            "Requests one by one: TTFT and TPOT by percentile, goodput, largest rate",
                            "shardline serve llama-3.1-70b --system h200-hgx --gpus 8 --input 8K --output 1K "
                            "--rate 4/s --slo \"ttft p99 2 s, tpot p99 40 ms\"",
                            prepare<ServeOptions, declare, run>};

}  // namespace shardline::cli
