// plan: the question of one line, and its answer on one screen.
#include <fmt/format.h>

#include <exception>
#include <functional>

#include "planner/api/convert_deployment.hpp"
#include "planner/api/convert_plan.hpp"
#include "planner/cli/deployment_text.hpp"
#include "planner/cli/plan_text.hpp"
#include "planner/cli/question_parts.hpp"
#include "planner/cli/shared_work.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/studies/saved_question.hpp"
#include "reports/atomic_file.hpp"
#include "reports/standard_output.hpp"
#include "reports/terminal.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

struct PlanOptions {
  std::string model, costs, save, slo, trace;
  std::string router, lengths, pools;
  std::optional<long long> requests, seed;
  std::vector<std::string> knobs;
  QuestionOptions question;
  EngineOptions engine;
  bool verbose = false;  // also statistics of the search
  int threads = 0;
};

void declare(Arguments& a, PlanOptions& o) {
  a.add("model", o.model,
        "Name of the catalogue, repository on Hugging Face, or path of a config.json or .yaml")
      .required()
      .offers(offered_models)
      .files();
  add_question(a, o.question, true);
  a.add("--save", o.save, "Write the question as a scenario, for sweep, simulate and changes of yours")
      .output_file();
  a.flag("-v,--verbose", o.verbose, "Also what the search looked at, and rules of the engine by plans");
  a.add(
      "--slo", o.slo,
      "Targets by percentile, \"ttft p99 2 s, tpot p99 40 ms\": the fewest GPUs whose replicas keep them at "
      "--rate or with --trace, request by request");
  a.add("--trace", o.trace, "Of --slo: recorded requests, as serve takes them; with --rate at that mean rate")
      .files();
  a.add("--requests", o.requests, "Of --slo: requests at most (default: 2000, all of a trace)")
      .range(1, 100'000'000);
  a.add("--lengths", o.lengths, "Of --slo: all requests as long as asked, or drawn from 80 to 100 % of it")
      .one_of({"equal", "drawn"});
  a.add("--router", o.router, "Of --slo: which replica a request goes to")
      .one_of({"round_robin", "least_requests", "least_kv", "prefix"});
  a.add("--seed", o.seed, "Of --slo: of arrivals and lengths (default: 1)").range(0, 1'000'000'000'000'000);
  a.add("--knob", o.knobs,
        "Of --slo: NAME=VALUE[,VALUE ...], an option of the engine, each of whose values is tried; again for "
        "more")
      .each();
  a.add("--pools", o.pools,
        "Of --slo: one pool for prompts and answers, two with one for each, or whichever needs fewer GPUs")
      .one_of({"any", "one", "two"});
  add_threads(a, o.threads);
  add_costs(a, o.costs);
  add_engine(a, o.engine);
}

// Words at their default value are words, too.
void require_slo_beside(const PlanOptions& o) {
  const char* const of_load = !o.lengths.empty()  ? "--lengths"
                              : !o.router.empty() ? "--router"
                              : !o.pools.empty()  ? "--pools"
                              : o.seed            ? "--seed"
                              : o.requests        ? "--requests"
                                                  : nullptr;
  if (o.slo.empty() && of_load != nullptr)
    throw UserError(fmt::format(
        "{} is of requests that are played: expected --slo beside it, targets by percentile", of_load));
}

api::PlanQuestion asked_of(const PlanOptions& o) {
  require_slo_beside(o);
  api::PlanQuestion q = asked_of(o.model, o.question);
  q.slo = o.slo;
  if (!o.trace.empty()) q.trace = o.trace;
  q.requests = o.requests.value_or(0);
  if (!o.lengths.empty()) q.lengths = o.lengths;
  if (!o.router.empty()) q.router = o.router;
  q.seed = o.seed.value_or(1);
  q.knobs = o.knobs;
  if (!o.pools.empty()) q.pools = o.pools;
  return q;
}

// The file of --save: its name for what commands can say of it, which is none of standard output. A disk that
// is full by now costs no answer: that is printed, without the name, and `fault` is thrown behind it.
struct Saved {
  std::string name;
  std::exception_ptr fault;
};

Saved save(const std::string& file, const std::function<std::string()>& text) {
  if (file.empty()) return {};
  try {
    write_file(file, text());
  } catch (const UserError&) {
    return {"", std::current_exception()};
  }
  return {DocumentOutput::is_standard(file) ? "" : file, nullptr};
}

// Nothing where this process did a part of another's answer.
std::optional<DeploymentAnswer> answer_deployment(const PlanOptions& o, const api::AskedDeployment& asked) {
  SharedRanks ranks;
  if (ranks.helps()) {
    ranks.done(work_on_deployment(asked.plan.study, asked.question, *ranks.get()));
    return std::nullopt;
  }
  Progress progress(o.model, Progress::terminal(), "candidates");
  SharedProgress shared(o.model, ranks.get() != nullptr ? ranks.get()->count() : 1);
  DeploymentAnswer answer = cheapest_deployment(
      asked.plan.study, asked.question,
      [&](std::uint64_t done, std::uint64_t total) {
        progress.show(done, total);
        shared.show(done, total);
        check_cancelled();
      },
      ranks.get());
  ranks.done(!answer.lost_ranks.empty());
  return answer;
}

int run_deployment(const PlanOptions& o, const Provenance& made_by) {
  const api::PlanQuestion question = asked_of(o);
  const api::AskedDeployment asked =
      api::asked_deployment(question, run_options_of(o.engine, o.costs, o.threads));
  const std::optional<DeploymentAnswer> answered = answer_deployment(o, asked);
  if (!answered) {
    if (made_by.document != nullptr) made_by.document->set("");
    return 0;
  }
  const DeploymentAnswer& answer = *answered;
  if (!answer.lost_ranks.empty())
    say(fmt::format("warning: rank {} was not heard of any more: the others did its part\n",
                    fmt::join(answer.lost_ranks, ", ")));
  const Saved saved = save(o.save, [&] {
    return saved_scenario(asked.plan, shipped_catalogs(), api::saved_load_options(asked, answer, o.slo));
  });
  print_warnings(api::deployment_warnings(asked, answer));
  constexpr std::size_t kWidth = 80;
  const std::size_t width = output_width();
  fmt::print("{}", deployment_text(asked, answer, o.slo, saved.name, width > 0 ? width : kWidth, o.verbose));
  if (made_by.document != nullptr) {
    api::PlanResult result = api::deployment_result(
        asked, answer, o.slo, saved.name.empty() ? std::string(api::kUnsavedQuestion) : saved.name);
    result.version = made_by.version;
    result.command = made_by.command;
    result.question = question;
    made_by.document->set(api::to_json(result));
  }
  if (saved.fault) std::rethrow_exception(saved.fault);
  return answer.cheapest.empty() ? 3 : 0;
}

int run(const PlanOptions& o, const Provenance& made_by) {
  std::vector<std::string> read{o.model, o.question.system, o.engine.engine};
  if (!o.trace.empty()) read.push_back(o.trace);
  constexpr std::string_view kCalibration = "calibration=";
  for (const std::string& setting : o.engine.settings) {
    if (setting.starts_with(kCalibration)) read.push_back(setting.substr(kCalibration.size()));
  }
  refuse_to_overwrite("--save", o.save, read);
  require_place_of(o.save, MissingFolder::is_refused);
  require_own(o.save, "--save", kSavedBy);
  if (!o.slo.empty()) return run_deployment(o, made_by);
  const api::PlanQuestion asked = asked_of(o);
  api::require_no_load(asked);
  const Catalogs catalogs = shipped_catalogs();
  const PlanQuestion question =
      api::plan_question_of(asked, run_options_of(o.engine, o.costs, o.threads), catalogs);
  PlanAnswer answer;
  {
    Progress progress(o.model, Progress::terminal());
    answer = answer_plan(question, catalogs, [&](std::uint64_t done, std::uint64_t total) {
      progress.show(done, total);
      if (interrupted()) throw Cancelled{};
    });
  }
  const Saved saved = save(o.save, [&] { return saved_scenario(answer, catalogs); });
  print_warnings(answer.sweep.unread);
  if (answer.best) print_warnings(answer.best->warnings);
  constexpr std::size_t kWidth = 80;  // also of what is piped
  const std::size_t width = output_width();
  fmt::print("{}", plan_text(answer, saved.name, width > 0 ? width : kWidth, output_colours()));
  if (o.verbose) {
    print_notes("searched:\n");
    print_counts(answer.sweep.found, true);
    print_not_started(answer.study.study, answer.sweep.found, true);
  }
  if (made_by.document != nullptr) {
    api::PlanResult result = api::plan_result(answer);
    result.version = made_by.version;
    result.command = made_by.command;
    result.question = asked;
    made_by.document->set(api::to_json(result));
  }
  if (saved.fault) std::rethrow_exception(saved.fault);
  return answer.met || answer.pools ? 0 : 3;
}

}  // namespace

const Command kPlanCommand{
    "plan", "One line: the plans around a target, what bounds them, what to run next",
    "shardline plan llama-3.1-70b --system h200-hgx --gpus 8 --input 32K --output 1K --ttl "
    "\"40 ms\"",
    prepare<PlanOptions, declare, run>};

}  // namespace shardline::cli
