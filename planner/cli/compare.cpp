// compare: two plans side by side, in at most 80 columns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/api/convert_explain.hpp"
#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/named_plans.hpp"
#include "planner/cli/question_parts.hpp"
#include "planner/cli/simulate_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "reports/table.hpp"
#include "reports/terminal.hpp"

namespace shardline::cli {

namespace {

struct CompareOptions {
  std::string scenario, costs, model;
  std::vector<std::string> plans;
  QuestionOptions question;
  EngineOptions engine;
};

void print_lines(const std::string& text) { fmt::print("{}", wrapped(text, text_width(), "  ")); }
// Nothing of an empty text.
void print_under(const std::string& text) {
  if (!text.empty()) fmt::print("   {}", wrapped(text, text_width() - 3, "     "));
}

std::string change(double first, double second) {
  if (!(first > 0)) return "only B";
  if (!(second > 0)) return "only A";
  const double part = 100 * (second / first - 1);
  return std::abs(part) < 0.05 ? "0 %" : fmt::format("{:+.1f} %", part);
}

std::string value_text(ComparedAs as, double v) {
  if (!(v > 0)) return "";
  return as == ComparedAs::memory ? to_string(Bytes(v)) : to_string(Seconds(v));
}

std::string difference_text(ComparedAs as, double first, double second) {
  constexpr double kRounding = 1e-9;
  const double v = second - first;
  if (std::abs(v) <= kRounding * std::max(first, second)) return "0";
  return (v < 0 ? "-" : "+") + value_text(as, std::abs(v));
}

void print_rows(const PlanComparison& c, ComparedAs as, const std::string& title) {
  Table t({title, "A", "B", "B - A", "change"});
  bool any = false;
  for (const ComparedRow& r : c.rows) {
    if (r.as != as) continue;
    any = true;
    t.add({r.name, value_text(as, r.first), value_text(as, r.second), difference_text(as, r.first, r.second),
           change(r.first, r.second)});
  }
  if (any) fmt::print("{}\n", fitted(t));
}

void print_plan(const Study& study, const char* which, const SimulatedPlan& s, const PlanTimes& t) {
  print_lines(fmt::format("{}: {}", which, to_string(s.plan)));
  if (s.misfit) {
    print_under("does not fit: " + *s.misfit);
    return;
  }
  if (s.refusal) print_under(refusal_text(study.study, *s.refusal));
  print_under(outcome_text(study, s.plan, t));
}

// Messages by their name, of either plan.
void print_collectives(const PlanComparison& c) {
  Table t({"collective", "", "ranks", "message", "algorithm", "time"});
  std::string fits;
  std::vector<std::string> known;
  const auto add = [&](const char* which, const std::vector<PricedCollective>& all) {
    for (const PricedCollective& p : all) {
      t.add({p.op.name, which, std::to_string(p.op.group.size), message_text(p.op), algorithm_text(p.cost),
             to_string(p.alone)});
      const std::string fit = p.cost.fit != nullptr
                                  ? fmt::format("{} ({})", p.cost.fit->name(), to_string(p.cost.basis))
                                  : "parameters of the system file";
      if (std::find(known.begin(), known.end(), fit) == known.end()) known.push_back(fit);
    }
  };
  add("A", c.first.collectives);
  add("B", c.second.collectives);
  if (known.empty()) return;
  for (const std::string& fit : known) fits += (fits.empty() ? "" : "; ") + fit;
  fmt::print("{}", fitted(t));
  fmt::print("  {}", wrapped("priced by: " + fits, text_width() - 2, "    "));
  fmt::print("\n");
}

void print_verdict(const PlanComparison& c) {
  const bool shared = c.told_apart(FitErrors::shared), unrelated = c.told_apart(FitErrors::unrelated);
  const double part = 100 * (c.time_ratio - 1);
  const auto range = [&](const ErrorBand& band) {
    return fmt::format("{:+.1f} to {:+.1f} %", 100 * (c.time_ratio * std::exp(band.low) - 1),
                       100 * (c.time_ratio * std::exp(band.high) - 1));
  };
  print_lines(fmt::format(
      "B takes {:.1f} % {} time than A (nominal 90 %: {} if a fit errs alike in both, {} if it errs "
      "in each as it likes).",
      std::abs(part), part < 0 ? "less" : "more", range(c.shared), range(c.unrelated)));
  print_lines(shared && unrelated ? "They are told apart either way."
              : shared            ? "They are told apart only if a fit errs alike in both."
              : unrelated         ? "They are told apart only if a fit errs in each as it likes."
                                  : "They are not told apart, as prices may be off.");
}

void print_copies(const AskedStudy& asked, std::size_t which, const SimulatedPlan& s, const PlanTimes& t) {
  if (!s.misfit) print_under(kept_text(asked, s, t));
  print_under(share_text(asked.copies[which], s.plan.gpus()));
}

void print(const AskedStudy& asked, const PlanComparison& c) {
  const Study& study = asked.study;
  print_lines(asked.title);
  if (!asked.miss.empty()) print_lines(asked.miss);
  fmt::print("{}", wrapped_lines(engine_text(study.study) + precision_text(study.study), text_width()));
  print_plan(study, "A", c.first, c.first_times);
  print_copies(asked, 0, c.first, c.first_times);
  print_plan(study, "B", c.second, c.second_times);
  print_copies(asked, 1, c.second, c.second_times);
  print_under(what_intervals_are(study.study));
  fmt::print("\n");
  const bool prefill = study.study.batch.kind() == StepKind::prefill;
  const bool served = c.first_times.served() && c.second_times.served();
  print_rows(c, ComparedAs::tpot, "part of TPOT");
  print_rows(c, ComparedAs::part,
             prefill  ? "part of a prefill"
             : served ? "part of a step that decodes"
                      : "part of a token");
  print_rows(c, ComparedAs::kind, "op kind on the critical path");
  print_rows(c, ComparedAs::communication, "communication");
  print_rows(c, ComparedAs::basis, "what the time rests on");
  print_rows(c, ComparedAs::memory, "memory per GPU");
  print_collectives(c);
  if (c.both()) print_verdict(c);
}

void declare(Arguments& a, CompareOptions& o) {
  a.add("scenario", o.scenario,
        "Scenario file, or the name of a shipped scenario; with --system a model, as of plan")
      .required()
      .offers(offered_questions)
      .files();
  a.add("--plan", o.plans,
        "Plan text, as sweep prints it; twice; default: the best two of the question of a line")
      .each();
  a.add("--model", o.model, "Which model of the scenario (default: the first)").offers(offered_models);
  add_question(a, o.question, false);
  add_costs(a, o.costs);
  add_engine(a, o.engine);
}

int run(const CompareOptions& o, const Provenance& made_by) {
  const AskedStudy asked = asked_study(o.scenario, o.question, o.model, o.plans, 2, o.costs, o.engine);
  const Study& study = asked.study;
  require_question<Sweep>(study, o.scenario);
  Evaluator a(study.study, study.sweep().search.all_reduce), b(study.study, study.sweep().search.all_reduce);
  PlanComparison c =
      compare_plans(study, a, b, possible_plan(study, asked.plans[0]), possible_plan(study, asked.plans[1]));
  const std::vector<Plan> plans{c.first.plan, c.second.plan};
  add_idle_settings(c.first.unread,
                    idle_settings(study, plans, o.engine.settings, asked.named_plans(), asked.with));
  const std::optional<bool> met = met_by(asked, c.first, c.first_times);
  if (made_by.document != nullptr) {
    api::CompareResult result = api::compare_result(study, c);
    result.version = made_by.version;
    result.command = made_by.command;
    result.scenario = asked.name;
    result.question = {asked.scenario_text.empty() ? o.scenario : "", asked.scenario_text, o.model,
                       asked.plans};
    result.met = met;
    made_by.document->set(api::to_json(result));
  }
  print_warnings(c.first.unread);
  print_warnings(c.first.narrow);
  print_warnings(c.second.narrow);
  print(asked, c);
  return c.both() && met.value_or(true) ? 0 : 3;
}

}  // namespace

const Command kCompareCommand{"compare", "Two plans side by side, and whether they can be told apart",
                              "shardline compare helix_gb200_1m --model llama-3.1-405b --plan "
                              "helix:kvp=8,tpa=8,tpf=64,batch=4 --plan helix:kvp=8,tpa=8,tpf=64,batch=8",
                              prepare<CompareOptions, declare, run>};

}  // namespace shardline::cli
