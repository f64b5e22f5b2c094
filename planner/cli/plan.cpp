// plan: the question of one line, and its answer on one screen.
#include <fmt/format.h>

#include "planner/api/convert_plan.hpp"
#include "planner/cli/plan_text.hpp"
#include "planner/cli/question_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "reports/atomic_file.hpp"
#include "reports/standard_output.hpp"
#include "reports/terminal.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

struct PlanOptions {
  std::string model, costs, save;
  QuestionOptions question;
  EngineOptions engine;
  bool verbose = false;  // also statistics of the search
  int threads = 0;
};

void declare(Arguments& a, PlanOptions& o) {
  a.add("model", o.model,
        "Name of the catalogue, repository on Hugging Face, or path of a config.json or .yaml")
      .required();
  add_question(a, o.question, true);
  a.add("--save", o.save, "Write the question as a scenario, for sweep, simulate and changes of yours")
      .output_file();
  a.flag("-v,--verbose", o.verbose, "Also what the search looked at, and rules of the engine by plans");
  add_threads(a, o.threads);
  add_costs(a, o.costs);
  add_engine(a, o.engine);
}

int run(const PlanOptions& o, const Provenance& made_by) {
  refuse_to_overwrite("--save", o.save, {o.model, o.question.system, o.engine.engine});
  const Catalogs catalogs = shipped_catalogs();
  const api::PlanQuestion asked = asked_of(o.model, o.question);
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
  if (!o.save.empty()) write_file(o.save, answer.scenario);
  print_warnings(answer.sweep.unread);
  if (answer.best) print_warnings(answer.best->warnings);
  constexpr std::size_t kWidth = 80;  // also of what is piped
  const std::size_t width = output_width();
  const std::string saved = DocumentOutput::is_standard(o.save) ? "" : o.save;  // what commands can name
  fmt::print("{}", plan_text(answer, saved, width > 0 ? width : kWidth, output_colours()));
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
  return answer.met ? 0 : 3;
}

}  // namespace

const Command kPlanCommand{
    "plan", "One line: the plans around a target, what bounds them, what to run next",
    "shardline plan llama-3.1-70b --system h200-hgx --gpus 8 --input 32K --output 1K --ttl "
    "\"40 ms\"",
    prepare<PlanOptions, declare, run>};

}  // namespace shardline::cli
