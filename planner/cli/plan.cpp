// plan: the question of one line, and its answer on one screen.
#include <fmt/format.h>

#include "planner/api/convert_plan.hpp"
#include "planner/cli/plan_text.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/scenario/asked_amounts.hpp"
#include "reports/atomic_file.hpp"
#include "reports/terminal.hpp"

namespace shardline::cli {

namespace {

struct PlanOptions {
  std::string model, system, costs, input, output, save;
  std::optional<std::string> ttl, ttft;
  std::optional<double> tokens_per_user, rate;
  std::optional<long long> users, gpus, nodes;
  EngineOptions engine;
  int threads = 0;
};

void refuse_rate(const PlanOptions& o) {
  if (!o.rate) return;
  throw UserError({Diagnostic{
      {},
      fmt::format("--rate {:g}: how long an open stream of requests queues depends on its bursts, which are "
                  "not modelled",
                  *o.rate),
      {fmt::format(
          "by Little's law {:g} requests/s that take L seconds keep {:g} x L users busy: give --users, and "
          "take L = TTFT + TPOT x (output - 1) of the answer",
          *o.rate, *o.rate)}}});
}

api::PlanQuestion asked_of(const PlanOptions& o) {
  refuse_rate(o);
  api::PlanQuestion q;
  q.model = o.model;
  q.system = o.system;
  q.input_tokens = asked_tokens("--input", o.input);
  if (!o.output.empty()) q.output_tokens = asked_tokens("--output", o.output);
  q.gpus = o.gpus;
  q.nodes = o.nodes;
  q.users = o.users;
  if (o.ttl) q.most_ttl_s = asked_time("--ttl", *o.ttl).value;
  if (o.ttft) q.most_ttft_s = asked_time("--ttft", *o.ttft).value;
  if (o.tokens_per_user) {
    const double ttl = 1 / *o.tokens_per_user;
    q.most_ttl_s = q.most_ttl_s ? std::min(*q.most_ttl_s, ttl) : ttl;
  }
  return q;
}

api::RunOptions run_options_of(const PlanOptions& o) {
  api::RunOptions out;
  out.threads = o.threads;
  out.engine = o.engine.engine;
  out.costs = o.costs;
  out.any_gpus = o.engine.any_gpus;
  out.any_context = o.engine.any_context;
  out.settings = o.engine.settings;
  return out;
}

void declare(Arguments& a, PlanOptions& o) {
  a.add("model", o.model,
        "Name of the catalogue, repository on Hugging Face, or path of a config.json or .yaml")
      .required();
  a.add("--system", o.system, "System of the catalogue (shardline list systems), or a .yaml file").required();
  a.add("--input", o.input, "Tokens of a request: 32768, 32K (which is 32768)").required();
  a.add("--output", o.output, "Tokens of its answer; without: the prefill alone");
  a.add("--gpus", o.gpus, "GPUs at most (default: a node, eight at most)").range(1, 8192);
  a.add("--nodes", o.nodes, "Nodes at most, in place of --gpus").range(1, 8192);
  a.add("--users", o.users, "Users at once, each with a request").range(1, 1'000'000);
  a.add("--ttl", o.ttl, "Most time per token of an answer, for instance \"20 ms\"");
  a.add("--ttft", o.ttft, "Most time to the first token, for instance \"2 s\"");
  a.add("--tokens-per-user", o.tokens_per_user, "Least tokens/s of a user, in place of --ttl").positive();
  a.add("--rate", o.rate, "Requests/s: says how many users they keep busy").positive();
  a.add("--save", o.save, "Write the question as a scenario, for sweep, simulate and changes of yours");
  add_threads(a, o.threads);
  add_costs(a, o.costs);
  add_engine(a, o.engine);
}

int run(const PlanOptions& o, const Provenance& made_by) {
  const Catalogs catalogs = shipped_catalogs();
  const api::PlanQuestion asked = asked_of(o);
  const PlanQuestion question = api::plan_question_of(asked, run_options_of(o), catalogs);
  PlanAnswer answer;
  {
    Progress progress(o.model, Progress::terminal());
    answer = answer_plan(question, catalogs, [&](std::uint64_t done, std::uint64_t total) {
      progress.show(done, total);
      if (interrupted()) throw UserError("interrupted");
    });
  }
  if (!o.save.empty()) write_file(o.save, answer.scenario);
  print_warnings(answer.sweep.unread);
  constexpr std::size_t kWidth = 80;  // also of what is piped
  const std::size_t width = output_width();
  fmt::print("{}", plan_text(answer, o.save, width > 0 ? width : kWidth, output_colours()));
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
