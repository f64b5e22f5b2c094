#include "planner/engines/prompt_step.hpp"

#include <algorithm>

#include "planner/engines/profile.hpp"

namespace shardline {

long long prompt_budget(const EngineProfile& engine, const Device& device, const Plan& plan) {
  const long long all = engine.tokens_of_step(device);
  const long long own = engine.shared_budget ? all / plan.dp : all;
  return std::max(kPromptPage, own / kPromptPage * kPromptPage);
}

namespace {

// Compressed attention has its tokens dealt out one by one, whosever they are.
bool one_at_a_time(const Case& c, const EngineProfile& engine, const Plan& plan) {
  return plan.cp > 1 && engine.context.one_prompt && !has_compression(c.model);
}

}  // namespace

PromptStep prompt_step(const Case& c, const EngineProfile& engine, const Plan& plan, long long input) {
  const long long budget = prompt_budget(engine, c.system.device, plan);
  if (input > budget) return {1, budget};
  if (one_at_a_time(c, engine, plan)) return {1, input};
  return {std::max(1LL, budget / input), input};
}

ContextServer context_server(const Case& c, const EngineProfile& engine, Plan plan, long long input) {
  ContextServer out{c, std::move(plan), prompt_step(c, engine, plan, input)};
  out.study.batch = prefill_batch({{0, input, static_cast<int>(out.step.prompts)}});
  out.study.placement = nullptr;
  out.study.disaggregated = true;
  out.plan.set(kPrefillChunk, static_cast<int>(out.step.chunk));
  return out;
}

}  // namespace shardline
