#include "planner/studies/simulated_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/engines/architectures.hpp"
#include "planner/engines/launch_rules.hpp"
#include "planner/search/named_kernels.hpp"
#include "planner/search/narrow.hpp"
#include "planner/search/provenance.hpp"
#include "planner/studies/searched_partition.hpp"
#include "planner/studies/unread.hpp"

namespace shardline {

namespace {

std::vector<PricedCollective> collectives(Evaluator& e) {
  std::vector<PricedCollective> out;
  for (const Op& op : e.schedule().ops) {
    const auto same = [&](const PricedCollective& c) { return std::string_view(c.op.name) == op.name; };
    if (!is_communication(op.kind) || std::any_of(out.begin(), out.end(), same)) continue;
    const OpCost cost = e.cost().price(op);
    out.push_back({op, cost, e.cost().alone(cost)});
  }
  return out;
}

}  // namespace

std::string algorithm_text(const OpCost& c) {
  if (!c.fit) return std::string(to_string(c.algorithm));
  const bool nccl = c.fit->form->family == std::string_view("nccl");
  return (nccl ? "NCCL " : "") + c.fit->words.front();
}

const char* message_meaning(OpKind kind) {
  if (kind == OpKind::all_reduce || kind == OpKind::reduce_scatter) return "the whole buffer";
  return kind == OpKind::all_gather ? "what each rank gives" : "what leaves each rank";
}

const Study& study_of(const Scenario& s, const std::string& model) {
  if (model.empty()) return s.studies.front();
  std::vector<std::string> names;
  names.reserve(s.studies.size());
  for (const Study& study : s.studies) names.push_back(study.study.model.name);
  if (const auto named = name_in_any_case(model, names))
    return s.studies[static_cast<std::size_t>(std::find(names.begin(), names.end(), *named) - names.begin())];
  throw UserError({Diagnostic{{}, "the scenario has no model " + model, expected_one_of(model, names)}});
}

Plan possible_plan(const Study& study, const std::string& text) {
  const Plan plan = plan_of(study.study, study.sweep().search.space, text);
  if (const auto reason = check_plan(study.study, plan)) {
    std::vector<std::string> others;
    if (const StepKind kind = study.study.batch.kind(); !strategy(plan.strategy).runs(kind)) {
      for (const Strategy* s : strategies()) {
        if (s->runs(kind)) others.emplace_back(s->name);
      }
    }
    throw UserError({Diagnostic{
        {},
        fmt::format("plan {} is impossible for {}: {}", to_string(plan), study.study.model.name, *reason),
        expected_one_of(strategy(plan.strategy).name, others)}});
  }
  return plan;
}

SimulatedPlan simulate_plan(const Study& study, Evaluator& e, Plan plan) {
  SimulatedPlan out;
  if (takes_partition(study.study, plan)) list_parts(plan, searched_partition(e, plan).tokens);
  out.asked = plan;
  if (study.sweep().search.queues) {
    const int room = largest_batch(with_room(study.study), plan, plan.batch);
    if (room >= std::max(1, least_batch(study.study, plan))) plan.batch = room;
  }
  out.plan = plan;
  out.refusal = does_not_start(study.study, plan);
  out.memory = memory_use(study.study, plan);
  out.misfit = does_not_fit(study.study, out.memory);
  // What of a model is not read is known whether it fits or not.
  std::vector<Diagnostic> of_model = model_notes(study.study);
  if (auto unchecked = unchecked_model(study.study))
    of_model.push_back(Diagnostic{{}, std::move(*unchecked), {}});
  if (out.misfit) {
    out.unread = std::move(of_model);
    return out;
  }
  out.breakdown = break_down(e, plan);
  out.collectives = collectives(e);
  out.unread = unread_parameters(study.study, std::span(&plan, 1), study.sweep().search.all_reduce);
  for (Diagnostic& note : of_model) out.unread.push_back(std::move(note));
  out.narrow = narrow_warnings(study.study, std::span(&plan, 1), study.sweep().search.all_reduce);
  for (Diagnostic& d : unused_kernels(study.study, std::span(&plan, 1), study.sweep().search.all_reduce))
    out.narrow.push_back(std::move(d));
  for (Diagnostic& d : searched_scales(study.study, std::span(&plan, 1), study.sweep().search.all_reduce))
    out.narrow.push_back(std::move(d));
  if (auto unequal = unequal_heads(study.study, std::span(&plan, 1)))
    out.narrow.push_back(std::move(*unequal));
  if (study.sweep().noise) out.noise = noise_effect(e, plan, *study.sweep().noise, 0);
  if (const auto& workload = study.sweep().search.workload;
      workload && serves_prompts(study.study, plan.strategy)) {
    ServedWorkload load = *workload;
    load.users = out.asked.users();
    ServedEvaluator evaluator(study.study, study.sweep().search.all_reduce);
    out.served = evaluator.of(plan, load);
    const Seconds path = study.study.engine->host.path, ttft = out.served->served.ttft;
    if (out.served->serves())
      out.ttft_errors = evaluator.prompt_rating(plan, load.input).errors * std::max(0.0, 1 - path / ttft);
  }
  return out;
}

std::optional<Diagnostic> waiting_note(const SimulatedPlan& s) {
  if (s.asked.batch <= s.plan.batch || s.served) return std::nullopt;
  return Diagnostic{
      {},
      fmt::format("memory has room for {} of {} requests of an attention group: what is described "
                  "here are those alone, and the others wait",
                  s.plan.batch, s.asked.batch),
      {}};
}

}  // namespace shardline
