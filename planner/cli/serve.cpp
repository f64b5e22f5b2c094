// serve: requests that come one by one, on a plan.
#include <fmt/format.h>

#include "planner/api/convert_plan.hpp"
#include "planner/api/convert_serve.hpp"
#include "planner/cli/launch_parts.hpp"
#include "planner/cli/question_parts.hpp"
#include "planner/cli/serve_pictures.hpp"
#include "planner/cli/serve_text.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/scenario/asked_amounts.hpp"
#include "planner/search/provenance.hpp"
#include "planner/studies/service_launch.hpp"
#include "reports/atomic_file.hpp"
#include "reports/terminal.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

struct ServeOptions {
  std::string scenario, model, plan, costs, trace, slo, out;
  std::string router = "round_robin", lengths = "equal";
  std::optional<long long> requests, seed;
  std::optional<std::string> think, path;
  int replicas = 0, prefill_replicas = 1;
  std::string prefill, prefill_system, max_local_prefill;
  std::vector<std::string> knobs, prefill_knobs, failures;
  QuestionOptions question;
  EngineOptions engine;
};

// Where requests are served, and by how many.
void declare_replicas(Arguments& a, ServeOptions& o) {
  a.add("--replicas", o.replicas,
        "Copies of the plan (default: one of --plan, else as many as the line's answer starts)")
      .range(1, 1024);
  a.add("--prefill", o.prefill,
        "Plan of a pool of its own for prompts: --plan then decodes what that one hands over");
  a.add("--prefill-system", o.prefill_system,
        "System that it is on, as its file says (default: the one that --plan is on)")
      .offers(offered_systems)
      .files();
  a.add("--prefill-replicas", o.prefill_replicas, "Copies of the plan that prefills").range(1, 1024);
  a.add("--prefill-knob", o.prefill_knobs, "NAME=VALUE: an option of its engine; again for more").each();
  a.add(
      "--max-local-prefill", o.max_local_prefill,
      "Tokens of prompts at most that --plan computes itself, as Dynamo's max_local_prefill_length (default: "
      "none)");
  a.add("--router", o.router, "Which replica a request goes to")
      .one_of({"round_robin", "least_requests", "least_kv", "prefix"});
  a.add(
       "--failure", o.failures,
       "\"0 at 60 s for 5 min\": a replica dies so long after the beginning, and is back with an empty cache "
       "(without for: never); its requests begin anew on others; with --prefill \"prefill 0 at 60 s\" or "
       "\"decode 0 at 60 s\"; again for more")
      .each();
}

void declare(Arguments& a, ServeOptions& o) {
  a.add("scenario", o.scenario,
        "Scenario file, or the name of a shipped scenario; with --system a model, as of plan")
      .required()
      .offers(offered_questions)
      .files();
  a.add("--plan", o.plan, "Plan text, as plan and sweep print it; default: the best of the line's answer");
  a.add("--model", o.model, "Which model of the scenario (default: the first)").offers(offered_models);
  add_question(
      a, o.question, false,
      "GPUs at most: of all copies of a plan that is chosen, of each replica of those that are named "
      "(default: a node, eight at most)");
  a.add("--trace", o.trace,
        "Recorded requests: Mooncake's JSON lines, Azure's CSV or CSV with arrival_s, input_tokens and "
        "output_tokens; with --rate at that mean rate")
      .files();
  a.add("--requests", o.requests, "Requests at most (default: 2000, ten of each of --users, all of a trace)")
      .range(1, 100'000'000);
  a.add("--think", o.think,
        "Mean time between an answer and the next request of each of --users, exponential: \"5 s\" (default: "
        "none, and all begin at once)");
  a.add(
      "--path", o.path,
      "Time from a client to the engine and back: \"0 ms\" where both are one process (default: that of the "
      "engine's server)");
  a.add("--slo", o.slo,
        "Targets: \"ttft p99 2 s, tpot p99 40 ms\", of ttft, tpot, itl and e2e; without a rate, users or a "
        "trace: the largest rate that meets them");
  a.add("--lengths", o.lengths, "All requests as long as asked, or drawn from 80 to 100 % of it")
      .one_of({"equal", "drawn"});
  declare_replicas(a, o);
  a.add("--seed", o.seed, "Of arrivals and lengths (default: 1)").range(0, 1'000'000'000'000'000);
  a.add("--knob", o.knobs,
        "NAME=VALUE: an option of the engine, for instance max_num_seqs=256 of vLLM; again for more")
      .each();
  add_costs(a, o.costs);
  add_engine(a, o.engine);
  a.add("-o,--out", o.out,
        "Folder for run.json (the answer as --json has it), latencies.csv, series.csv (batch, queue and KV "
        "over time), their pictures, a page of "
        "them, load.html, trace.json of steps and requests for ui.perfetto.dev, and launch files of servers "
        "with the caps and options that were played, of both pools of a pair")
      .output_folder();
}

api::ServeQuestion asked_of(const ServeOptions& o) {
  api::ServeQuestion q;
  const api::PlanQuestion line = asked_of(o.scenario, o.question);
  q.gpus = line.gpus;
  q.nodes = line.nodes;
  q.read_as = line.read_as;
  q.most_ttl_s = line.most_ttl_s;
  q.least_tokens_per_s_user = line.least_tokens_per_s_user;
  q.most_ttft_s = line.most_ttft_s;
  if (o.question.system.empty()) {
    if (!o.question.input.empty() || !o.question.output.empty())
      throw UserError("--system is missing: --input and --output are of a line with a model and a system");
    q.scenario = o.scenario;
    q.model = o.model;
  } else {
    if (!o.model.empty()) throw UserError("--model is of a scenario; the line names its model first");
    q.model = line.model;
    q.system = line.system;
    q.input_tokens = line.input_tokens;
    q.output_tokens = line.output_tokens.value_or(0);
  }
  q.plan = o.plan;
  if (!o.trace.empty()) q.trace = o.trace;
  q.lengths = o.lengths;
  if (o.question.rate) q.requests_per_s = asked_rate("--rate", *o.question.rate);
  q.users = o.question.users;
  if (o.think) q.think_s = asked_time("--think", *o.think).value;
  if (o.path) q.path_s = asked_time("--path", *o.path, true).value;
  q.requests = o.requests.value_or(0);
  q.slo = o.slo;
  q.replicas = o.replicas;
  q.prefill = o.prefill;
  q.prefill_system = o.prefill_system;
  q.prefill_replicas = o.prefill_replicas;
  q.prefill_knobs = o.prefill_knobs;
  if (!o.max_local_prefill.empty())
    q.max_local_prefill = asked_tokens("--max-local-prefill", o.max_local_prefill);
  q.router = o.router;
  q.failures = o.failures;
  q.seed = o.seed.value_or(1);
  q.knobs = o.knobs;
  return q;
}

void write(const Study& study, const ServiceAnswer& answer, const std::string& out,
           const std::string& document, const Provenance& made_by) {
  OutputFolder files(out);
  files.write("run.json", document);
  files.write("latencies.csv", serve_csv(answer));
  files.write("series.csv", series_csv(answer.load.series, answer.question.replicas));
  if (answer.load.pair)
    files.write("prefill_series.csv",
                series_csv(answer.load.pair->prefill_series, answer.question.prefill->replicas));
  files.write("trace.json", requests_trace(answer));
  if (const std::string left = left_out_text(answer); !left.empty()) print_notes("  {}\n", left);
  files.draw(latency_plot(study, answer, made_by), "latencies");
  files.draw(requests_plot(study, answer, made_by), "requests");
  files.draw(use_plot(study, answer, made_by), "use");
  files.write("load.html", service_page(study, answer, made_by));
  const Launch launch = launch_of_service(study, answer, "1");
  std::string heading = sharding_text(answer.question.plan);
  if (answer.question.prefill)
    heading += ", prompts computed by " + sharding_text(answer.question.prefill->plan);
  std::string launches = write_launches(files, study, heading, answer.question.plan, {launch});
  if (!launch.refused.empty())
    launches = "  " + wrapped("no launch files: " + launch.refused, text_width() - 2, "    ");
  fmt::print("{}\n{}", files.publish(), launches);
}

int run(const ServeOptions& o, const Provenance& made_by) {
  if (!o.out.empty()) make_output_folder(o.out);
  api::ServeQuestion question = asked_of(o);
  api::AskedService asked;
  {
    Progress progress(o.scenario, Progress::terminal());
    asked = api::asked_service(question, run_options_of(o.engine, o.costs, 0),
                               [&](std::uint64_t done, std::uint64_t total) {
                                 progress.show(done, total);
                                 check_cancelled();
                               });
  }
  ServiceAnswer answer;
  asked.question.pictures = !o.out.empty();
  {
    Progress progress(asked.study.study.model.name, Progress::terminal(), "requests");
    answer = serve_requests(asked.study, asked.question, [&](std::uint64_t done, std::uint64_t all) {
      progress.show(done, all);
      check_cancelled();
    });
  }
  print_warnings(model_notes(asked.study.study));
  print_warnings(asked.warnings);
  print_warnings(answer.narrow);
  fmt::print("{}", serve_text(asked.study, answer, text_width()));
  question.replicas = asked.question.replicas;
  api::ServeResult result = api::serve_result(asked, answer, question);
  result.version = made_by.version;
  result.command = made_by.command;
  if (made_by.document != nullptr) made_by.document->set(api::to_json(result));
  if (!o.out.empty()) write(asked.study, answer, o.out, api::to_json(result), made_by);
  return answer.load.met ? 0 : 3;
}

}  // namespace

const Command kServeCommand{"serve",
                            "Requests one by one: TTFT and TPOT by percentile, goodput, largest rate",
                            "shardline serve llama-3.1-70b --system h200-hgx --gpus 8 --input 8K --output 1K "
                            "--rate 1/s --slo \"ttft p99 2 s, tpot p99 40 ms\"",
                            prepare<ServeOptions, declare, run>};

}  // namespace shardline::cli
