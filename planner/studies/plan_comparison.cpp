#include "planner/studies/plan_comparison.hpp"

#include <array>

namespace shardline {

namespace {

void add(std::vector<ComparedRow>& to, ComparedAs as, std::string_view name, double first, double second) {
  if (first > 0 || second > 0) to.push_back({as, std::string(name), first, second});
}

template <class Name, std::size_t N>
void add_all(std::vector<ComparedRow>& to, ComparedAs as, const std::array<Seconds, N>& first,
             const std::array<Seconds, N>& second) {
  for (std::size_t i = 0; i < N; ++i)
    add(to, as, to_string(static_cast<Name>(i)), first[i].value, second[i].value);
}

void add_times(std::vector<ComparedRow>& to, const Breakdown& a, const Breakdown& b) {
  constexpr double kRounding = 1e-12;
  add_all<Part>(to, ComparedAs::part, a.parts, b.parts);
  if (a.waiting.value > kRounding || b.waiting.value > kRounding)
    add(to, ComparedAs::part, "waiting for a stage", a.waiting.value, b.waiting.value);
  add_all<OpKind>(to, ComparedAs::kind, a.kinds, b.kinds);
  add_all<Basis>(to, ComparedAs::basis, a.bases, b.bases);
  add(to, ComparedAs::communication, "exposed", a.exposed_communication.value, b.exposed_communication.value);
  add(to, ComparedAs::communication, "hidden", a.hidden_communication.value, b.hidden_communication.value);
}

// [P19] Of TPOT: prompts of others, and steps that decode, whose parts follow.
void add_tpot(std::vector<ComparedRow>& to, const SimulatedPlan& a, const SimulatedPlan& b) {
  if (!a.served || !b.served || !a.served->serves() || !b.served->serves()) return;
  const Served &x = a.served->served, &y = b.served->served;
  add(to, ComparedAs::tpot, "steps that decode", x.tpot.value * (1 - x.prefill_part),
      y.tpot.value * (1 - y.prefill_part));
  add(to, ComparedAs::tpot, "prompts of others", x.tpot.value * x.prefill_part,
      y.tpot.value * y.prefill_part);
}

void add_memory(std::vector<ComparedRow>& to, const MemoryUse& a, const MemoryUse& b) {
  add(to, ComparedAs::memory, "weights", a.weights.value, b.weights.value);
  add(to, ComparedAs::memory, "KV cache", a.kv.value, b.kv.value);
  add(to, ComparedAs::memory, "activations", a.activations.value, b.activations.value);
  add(to, ComparedAs::memory, "communication buffers", a.buffers.value, b.buffers.value);
  add(to, ComparedAs::memory, "total", a.total().value, b.total().value);
}

}  // namespace

std::string_view to_string(ComparedAs as) {
  constexpr std::array<std::string_view, 6> kNames{"tpot",  "part",          "kind",
                                                   "basis", "communication", "memory"};
  return kNames[static_cast<std::size_t>(as)];
}

bool PlanComparison::told_apart(FitErrors errors) const {
  return both() && shardline::told_apart(time_ratio, errors == FitErrors::shared ? shared : unrelated);
}

PlanComparison compare_plans(const Study& study, Evaluator& a, Evaluator& b, const Plan& first,
                             const Plan& second) {
  PlanComparison out;
  out.first = simulate_plan(study, a, first);
  out.second = simulate_plan(study, b, second);
  for (SimulatedPlan* const s : {&out.first, &out.second}) {
    if (auto note = waiting_note(*s)) s->narrow.push_back(std::move(*note));
  }
  const bool fit = !out.first.misfit && !out.second.misfit;
  if (fit) add_tpot(out.rows, out.first, out.second);
  if (fit) add_times(out.rows, out.first.breakdown, out.second.breakdown);
  add_memory(out.rows, out.first.memory, out.second.memory);
  const auto times = [&](const SimulatedPlan& s) { return times_of(study, s.served ? s.asked : s.plan); };
  if (!out.first.misfit) out.first_times = times(out.first);
  if (!out.second.misfit) out.second_times = times(out.second);
  if (!fit) return out;
  const PlanTimes &x = out.first_times, &y = out.second_times;
  out.time_ratio = y.time() / x.time();
  out.rate_ratio = y.tokens_per_s_gpu / x.tokens_per_s_gpu;
  out.shared = ratio_band(y.errors, x.errors, FitErrors::shared);
  out.unrelated = ratio_band(y.errors, x.errors, FitErrors::unrelated);
  out.rate_shared = ratio_band(x.errors, y.errors, FitErrors::shared);
  return out;
}

}  // namespace shardline
