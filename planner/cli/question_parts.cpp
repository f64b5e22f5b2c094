#include "planner/cli/question_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/api/convert_plan.hpp"
#include "planner/cli/advice.hpp"
#include "planner/cli/named_plans.hpp"
#include "planner/cli/plan_miss.hpp"
#include "planner/cli/plan_notes.hpp"
#include "planner/scenario/asked_amounts.hpp"
#include "planner/studies/plan_load.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "reports/atomic_file.hpp"
#include "reports/table.hpp"
#include "reports/terminal.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline::cli {

namespace {

constexpr const char* kLine = "the question as a scenario";

// The answer of `plan` to the line, whose best plans are looked at; without plans of its own where some are
// named, for nothing has to be searched for then.
PlanAnswer answer_of(const std::string& model, const QuestionOptions& line, const std::string& costs,
                     const EngineOptions& engine, bool search) {
  const Catalogs catalogs = shipped_catalogs();
  const PlanQuestion question =
      api::plan_question_of(asked_of(model, line), run_options_of(engine, costs, 0), catalogs);
  if (!search) return asked_plan(question, catalogs);
  Progress progress(model, Progress::terminal());
  return answer_plan(question, catalogs, [&](std::uint64_t done, std::uint64_t total) {
    progress.show(done, total);
    if (interrupted()) throw Cancelled{};
  });
}

// The first plan, and of several others that shard in another way; other batches of the same only where there
// is no such.
std::vector<const PlannedPoint*> best_of(const PlanAnswer& a, std::size_t wanted) {
  std::vector<const PlannedPoint*> out, rest;
  std::vector<Plan> seen;
  for (const PlannedPoint& p : a.plans) {
    const Plan sharding = sharding_of(p.point.plan);
    const bool other = std::find(seen.begin(), seen.end(), sharding) == seen.end();
    (other ? out : rest).push_back(&p);
    seen.push_back(sharding);
  }
  out.insert(out.end(), rest.begin(), rest.end());
  out.resize(std::min(out.size(), wanted));
  return out;
}

// Empty: all of these meet what is asked, or nothing is.
std::string miss_of_best(const PlanAnswer& a, const std::vector<const PlannedPoint*>& best) {
  if (!a.met) return best.empty() ? "" : miss_text(a);
  const bool all = std::all_of(best.begin(), best.end(), [](const PlannedPoint* p) { return p->meets; });
  if (all) return "";
  const std::string target = target_text(a.question);
  if (!(a.question.rate > 0)) return fmt::format("A meets {}; B misses it", target);
  const std::string within = target.empty() ? "" : " within " + target;
  return fmt::format("A carries {}{}; B does not", shardline::rate_text(a.question.rate), within);
}

AskedStudy study_of_line(const std::string& model, const QuestionOptions& line,
                         std::vector<std::string> plans, std::size_t wanted, const std::string& costs,
                         const EngineOptions& engine) {
  const PlanAnswer a = answer_of(model, line, costs, engine, plans.empty());
  std::vector<long long> copies;
  std::optional<bool> met;
  std::string miss;
  const bool named = !plans.empty();
  for (std::string& text : plans) {
    LinePlan plan = named_plan(a, text);
    text = std::move(plan.text);
    copies.push_back(plan.copies);
  }
  if (!named) {
    const std::vector<const PlannedPoint*> best = best_of(a, wanted);
    for (const PlannedPoint* p : best) {
      plans.push_back(to_string(p->point.asked()));
      copies.push_back(p->copies);
    }
    met = a.met;
    miss = miss_of_best(a, best);
  }
  if (plans.size() < wanted)
    throw UserError({Diagnostic{{},
                                fmt::format("the question has {} plan{}, and {} wanted", plans.size(),
                                            plans.size() == 1 ? "" : "s", wanted == 1 ? "one is" : "two are"),
                                {"shardline plan, with the same options, says why and what is nearest"}}});
  const auto with = [text = a.scenario](const std::vector<std::string>& settings) {
    const Overrides others{{}, "", false, false, settings};
    return parse_scenario(kLine, text, shipped_catalogs(), others).studies.front();
  };
  std::string title = question_text(a.question, a.defaults);
  if (a.question.rate > 0)  // whose TTFT is that of the stream, where the users of a plan begin together
    title += "; as a loop of as many users as it keeps busy, who all begin at once";
  AskedStudy out{"plan", std::move(title), a.scenario, a.study, std::move(plans), std::move(copies),
                 met,    std::move(miss),  with};
  if (named) out.line = a;
  return out;
}

}  // namespace

bool QuestionOptions::given() const {
  return !system.empty() || !input.empty() || !output.empty() || ttl || ttft || rate || tokens_per_user ||
         users || gpus || nodes;
}

void add_question(Arguments& a, QuestionOptions& o, bool required, const char* gpus) {
  Argument system =
      a.add("--system", o.system, "System of the catalogue (shardline list systems), or a .yaml file")
          .offers(offered_systems)
          .files();
  Argument input = a.add("--input", o.input, "Tokens of a request: 32768, 32K (which is 32768)");
  if (required) {
    system.required();
    input.required();
  }
  a.add("--as", o.as, "The model_type to read a config.json as whose own is unknown: llama, deepseek_v3");
  a.add("--output", o.output, "Tokens of its answer; without: the prefill alone");
  a.add("--gpus", o.gpus, gpus).range(1, 8192);
  a.add("--nodes", o.nodes, "Nodes at most, in place of --gpus").range(1, 8192);
  a.add("--users", o.users, "Users at once, each with a request, over all copies").range(1, 1'000'000);
  a.add("--tpot,--ttl", o.ttl,
        "Most time per token of an answer, TPOT of served users and TTL of bare kernels: \"20 ms\"");
  a.add("--ttft", o.ttft, "Most time to the first token, for instance \"2 s\"");
  a.add("--tokens-per-user", o.tokens_per_user, "Least tokens/s of a user, in place of --ttl").positive();
  a.add("--rate", o.rate,
        "Requests by time, for instance 5/s or 300/min: on how many copies they are served");
  if (required)  // of others no answer is a cost
    a.add("--gpu-hour", o.gpu_hour, "Price of a GPU for an hour, in your money: what a million tokens cost")
        .positive();
}

api::PlanQuestion asked_of(const std::string& model, const QuestionOptions& o) {
  api::PlanQuestion q;
  q.model = model;
  q.read_as = o.as;
  q.system = o.system;
  if (!o.input.empty()) q.input_tokens = asked_tokens("--input", o.input);  // whoever needs it says so
  if (!o.output.empty()) q.output_tokens = asked_tokens("--output", o.output);
  q.gpus = o.gpus;
  q.nodes = o.nodes;
  q.users = o.users;
  q.gpu_hour_price = o.gpu_hour;
  if (o.rate) q.requests_per_s = asked_rate("--rate", *o.rate);
  if (o.ttl) q.most_ttl_s = asked_time("--ttl", *o.ttl).value;
  if (o.ttft) q.most_ttft_s = asked_time("--ttft", *o.ttft).value;
  q.least_tokens_per_s_user = o.tokens_per_user;
  return q;
}

api::RunOptions run_options_of(const EngineOptions& engine, const std::string& costs, int threads) {
  api::RunOptions out;
  out.threads = threads;
  out.engine = engine.engine;
  out.costs = costs;
  out.any_gpus = engine.any_gpus;
  out.any_context = engine.any_context;
  out.settings = engine.settings;
  return out;
}

AskedStudy asked_study(const std::string& named, const QuestionOptions& line, const std::string& model,
                       std::vector<std::string> plans, std::size_t wanted, const std::string& costs,
                       const EngineOptions& engine) {
  if (!plans.empty() && plans.size() != wanted)
    throw UserError(fmt::format("--plan is given {} time{}: expected {}", plans.size(),
                                plans.size() == 1 ? "" : "s",
                                wanted == 1 ? "one plan" : "two plans to compare"));
  if (names_plan(named))
    throw UserError({Diagnostic{
        {},
        fmt::format("{} is a plan: its question comes first", named),
        {fmt::format("shardline {0} SCENARIO --plan {1}, or {0} MODEL --system h200-hgx --gpus 8 --input 32K "
                     "--output 1K --plan {1}",
                     wanted == 1 ? "explain" : "compare", shell_word(named))}}});
  if (line.given()) {
    if (line.system.empty() || line.input.empty())
      throw UserError({Diagnostic{
          {},
          fmt::format("{} is missing: a question of one line has --system and --input, a scenario neither",
                      line.system.empty() ? "--system" : "--input"),
          {fmt::format("for instance {} --system h200-hgx --gpus 8 --input 32K --output 1K", named)}}});
    if (!model.empty()) throw UserError("--model is of a scenario; the line names its model first");
    return study_of_line(named, line, std::move(plans), wanted, costs, engine);
  }
  if (names_model(named))
    throw UserError({Diagnostic{
        {},
        fmt::format("{} is a model: a question of one line has --system and --input, too", named),
        {fmt::format("for instance shardline {} {} --system h200-hgx --gpus 8 --input 32K --output 1K",
                     wanted == 1 ? "explain" : "compare", shell_word(named))}}});
  if (plans.empty())
    throw UserError({Diagnostic{
        {},
        wanted == 1 ? "--plan is required with a scenario" : "--plan is required twice with a scenario",
        {"or ask in one line, of whose answer the best is taken: MODEL --system h200-hgx --gpus 8 --input "
         "32K --output 1K"}}});
  const Scenario scenario = scenario_named(named, overrides_of(costs, engine));
  const Study& study = study_of(scenario, model);
  std::vector<long long> copies(plans.size(), 1);
  for (std::string& plan : plans) plan = plan_of_scenario(study, plan);
  return {scenario.name,
          study.title,
          "",
          study,
          std::move(plans),
          std::move(copies),
          {},
          "",
          study_with_settings(named, costs, engine, study.study.model.name)};
}

std::optional<bool> met_by(const AskedStudy& asked, const SimulatedPlan& plan, const PlanTimes& times) {
  if (asked.line) return met_by(*asked.line, plan, times);
  return asked.scenario_text.empty() ? keeps_constraints(asked.study, plan) : asked.met;
}

std::string kept_text(const AskedStudy& asked, const SimulatedPlan& plan, const PlanTimes& times) {
  if (asked.line) return kept_text(*asked.line, times);
  return asked.scenario_text.empty() ? kept_text(asked.study, plan) : "";
}

std::size_t text_width() {
  constexpr std::size_t kRead = 80, kLeast = 20;
  const std::size_t width = output_width();
  return width == 0 ? kRead : std::clamp(width, kLeast, kRead);
}

std::string share_text(long long copies, int gpus_of_one) {
  if (copies < 2) return "";
  return fmt::format("one of {} copies on {}: its users are a copy's share", copies,
                     gpus_text(static_cast<int>(copies * gpus_of_one)));
}

}  // namespace shardline::cli
