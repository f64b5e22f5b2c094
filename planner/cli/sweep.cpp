// sweep: the question, and one answer per model.
#include <fmt/format.h>

#include <algorithm>

#include "planner/cli/interval_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "reports/atomic_file.hpp"

namespace shardline::cli {

namespace {

SweepQuestion read_question(const SweepOptions& o) {
  SweepQuestion q;
  if (o.ttl) q.most_time = time_target("--ttl", *o.ttl);
  if (o.tokens_per_user) {
    const Seconds ttl(1 / *o.tokens_per_user);
    q.most_time = q.most_time > Seconds(0) ? std::min(q.most_time, ttl) : ttl;
  }
  if (o.users) q.least_users = *o.users;
  q.exhaustive = o.exhaustive || o.all;
  q.keep_all = o.all && !o.out.empty();
  q.threads = o.threads;
  return q;
}

// With the TTFT that the command or the scenario asks for.
SweepQuestion question_of(const Study& study, SweepQuestion q, const SweepOptions& o) {
  const std::optional<Seconds> asked = o.ttft ? std::optional(time_target("--ttft", *o.ttft)) : std::nullopt;
  if (study.study.batch.kind() == StepKind::prefill) {
    q.most_time = asked.value_or(q.most_time);
    return q;
  }
  q.most_ttft = study.sweep().search.most_ttft;
  if (asked) q.most_ttft = q.most_ttft > Seconds(0) ? std::min(q.most_ttft, *asked) : *asked;
  return q;
}

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
  a.add("scenario", o.scenario, "Scenario file, or the name of a shipped scenario").required();
  a.add("-o,--out", o.out, "Folder for frontier.csv, plots and page (none: print only)");
  a.add("--ttl", o.ttl, "Your token-to-token latency target, for instance \"20 ms\"");
  a.add("--ttft", o.ttft, "Your time-to-first-token target (prefill, or a workload), for instance \"80 s\"");
  a.add("--tokens-per-user", o.tokens_per_user, "Your target in tokens/s/user").positive();
  a.add("--users", o.users, "Users to serve at once, at least").positive();
  a.flag("--all", o.all, "Also write all.csv with every simulated configuration");
  a.flag("--exhaustive", o.exhaustive, "Simulate every feasible configuration, without pruning");
  add_threads(a, o.threads);
  add_costs(a, o.costs);
  add_engine(a, o.engine);
}

int run(const SweepOptions& o, const Provenance& made_by) {
  const Scenario scenario = scenario_named(o.scenario, overrides_of(o.costs, o.engine));
  const SweepQuestion of_all = read_question(o);
  if (!o.out.empty()) make_output_folder(o.out);
  bool any = false, met = true;
  for (const Study& study : scenario.studies) {
    require_target(study, o);
    const SweepQuestion question = question_of(study, of_all, o);
    SweepAnswer answer;
    {
      Progress progress(study.study.model.name, Progress::terminal());
      const auto show = [&](std::uint64_t done, std::uint64_t total) {
        progress.show(done, total);
        if (interrupted()) throw UserError("interrupted; nothing was written for " + study.title);
      };
      answer = answer_sweep(study, question, show, [] { return !interrupted(); });
    }
    fmt::print("{}\n{}", study.title,
               engine_text(study.study) + checkpoint_text(study.study) + precision_text(study.study) +
                   chunk_text(study.study));
    print_counts(answer.found);
    print_not_started(study.study, answer.found);
    const bool prefill = study.study.batch.kind() == StepKind::prefill;
    (prefill ? report_prefill : report_decode)(study, answer, question, o, made_by);
    any = any || answer.any() || !answer.pools.empty();
    // A prefill that does not fit fails the sweep, though others fit.
    met = met && (answer.any() ? !question.has_target() || !answer.meeting.empty()
                               : !prefill && !answer.found.nearest_ttft);
  }
  return any && met ? 0 : 3;
}

}  // namespace

const Command kSweepCommand{"sweep", "Simulate every valid plan and batch; show the Pareto frontier",
                            "shardline sweep helix_gb200_1m --ttl \"10 ms\" -o out/helix",
                            prepare<SweepOptions, declare, run>};

}  // namespace shardline::cli
