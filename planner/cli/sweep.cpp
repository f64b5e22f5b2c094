// sweep: the question, and one answer per model.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "planner/api/convert.hpp"
#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/sweep_journal.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "reports/atomic_file.hpp"
#include "reports/terminal.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

// A target of the other phase would silently mean nothing.
void require_target(const Study& study, const SweepOptions& o) {
  require_question<Sweep>(study, o.scenario);
  if (study.study.batch.kind() != StepKind::prefill && o.ttft && workload_of(study) == nullptr)
    throw UserError("--ttft is for prefill scenarios and for workloads; this one decodes: use --ttl");
  if (study.study.batch.kind() == StepKind::prefill && (o.ttl || o.tokens_per_user || o.users))
    throw UserError(
        "--ttl, --tokens-per-user and --users are for decode scenarios; this one is a prefill: use --ttft");
}

void declare(Arguments& a, SweepOptions& o) {
  a.add("scenario", o.scenario, "Scenario file, or the name of a shipped scenario")
      .required()
      .offers(offered_sweeps)
      .files();
  a.add("-o,--out", o.out, "Folder for frontier.csv, plots and page (none: print only)").output_folder();
  a.add("--tpot,--ttl", o.ttl, "Your token-to-token latency target, for instance \"20 ms\"");
  a.add("--ttft", o.ttft, "Your time-to-first-token target (prefill, or a workload), for instance \"80 s\"");
  a.add("--tokens-per-user", o.tokens_per_user, "Your target in tokens/s/user").positive();
  a.add("--users", o.users, "Users to serve at once, at least").range(1, 1'000'000);
  a.flag("--all", o.all, "Also write all.csv with every simulated configuration");
  a.flag("--exhaustive", o.exhaustive, "Simulate every feasible configuration, without pruning");
  a.flag("-v,--verbose", o.verbose, "Also what the search looked at, and rules of the engine by plans");
  add_threads(a, o.threads);
  add_costs(a, o.costs);
  add_engine(a, o.engine);
}

SweepAnswer answer_of(const Study& study, const SweepQuestion& question) {
  Progress progress(study.study.model.name, Progress::terminal());
  const auto show = [&](std::uint64_t done, std::uint64_t total) {
    progress.show(done, total);
    if (interrupted()) throw Cancelled{};
  };
  return answer_sweep(study, question, show, [] { return !interrupted(); });
}

void report(const Study& study, const SweepAnswer& answer, const SweepQuestion& question,
            const SweepOptions& o, const Provenance& made_by) {
  const std::size_t width = output_width();
  print_notes(
      "{}{}{}", emphasised(wrapped(study.title, width, "  "), Emphasis::strong, output_colours()),
      wrapped_lines(engine_text(study.study) + checkpoint_text(study.study) + precision_text(study.study) +
                        chunk_text(study.study) + drafts_text(study.study),
                    width),
      costs_line(study.study.system));
  const bool none = !answer.any() && answer.pools.empty();
  print_counts(answer.found, o.verbose || none);
  print_not_started(study.study, answer.found, o.verbose || !answer.any());
  const bool prefill = study.study.batch.kind() == StepKind::prefill;
  (prefill ? report_prefill : report_decode)(study, answer, question, o, made_by);
}

int run(const SweepOptions& o, const Provenance& made_by) {
  if (o.all && o.out.empty() && made_by.document == nullptr)
    throw UserError("--all keeps every configuration for all.csv or the document: expected -o or --json");
  const Scenario scenario = scenario_named(o.scenario, overrides_of(o.costs, o.engine));
  const api::SweepQuestion asked = asked_of(o, made_by);
  const std::vector<FolderClaim> claims = claim_folders(scenario, o.out);
  api::SweepResult result;
  result.version = made_by.version;
  result.command = made_by.command;
  result.scenario = scenario.name;
  result.summary = scenario.summary;
  result.question = asked;
  api::SweepVerdict verdict;
  std::deque<SweepJournal> journals;  // of all models until all are done: a run that goes on needs them
  for (const Study& study : scenario.studies) {
    require_target(study, o);
    SweepQuestion question = api::question_for(study, asked, o.threads);
    if (!o.out.empty())
      question.journal = &journals
                              .emplace_back(folder_of(study, o.out),
                                            made_by.version + "\n" + made_by.command + "\n" + study.title)
                              .search();
    SweepAnswer answer = answer_of(study, question);
    if (question.journal != nullptr && question.journal->resumed() > 0)
      fmt::print(stderr, "  {}: went on behind {} plans of the run before\n", study.study.model.name,
                 question.journal->resumed());
    add_idle_settings(answer.unread, idle_settings(study, plans_of(answer.rated), o.engine.settings, {},
                                                   study_with_settings(o.scenario, o.costs, o.engine,
                                                                       study.study.model.name)));
    report(study, answer, question, o, made_by);
    verdict.add(study, question, answer);
    if (made_by.document != nullptr) result.models.push_back(api::model_sweep(study, question, answer));
  }
  for (SweepJournal& journal : journals) journal.remove();
  result.met = verdict.met();
  if (made_by.document != nullptr) made_by.document->set(api::to_json(result));
  return verdict.met() ? 0 : 3;
}

}  // namespace

const Command kSweepCommand{"sweep", "Simulate every valid plan and batch; show the Pareto frontier",
                            "shardline sweep helix_gb200_1m --ttl \"10 ms\" -o out/helix",
                            prepare<SweepOptions, declare, run>};

}  // namespace shardline::cli
