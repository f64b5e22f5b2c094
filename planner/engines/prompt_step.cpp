#include "planner/engines/prompt_step.hpp"

#include <algorithm>

#include "planner/engines/profile.hpp"

namespace shardline {

long long prompt_budget(const EngineProfile& engine, const Device& device, const Plan& plan) {
  const long long all = engine.tokens_of_step(device);
  const long long own = engine.shared_budget ? all / plan.dp : all;
  return std::max(kPromptPage, own / kPromptPage * kPromptPage);
}

PromptStep prompt_step(const EngineProfile& engine, const Device& device, const Plan& plan, long long input) {
  const long long budget = prompt_budget(engine, device, plan);
  if (input > budget) return {1, budget};
  return {std::max(1LL, budget / input), input};
}

ContextServer context_server(const Case& c, const EngineProfile& engine, Plan plan, long long input) {
  ContextServer out{c, std::move(plan), prompt_step(engine, c.system.device, plan, input)};
  out.study.batch = prefill_batch({{0, input, static_cast<int>(out.step.prompts)}});
  out.study.placement = nullptr;
  out.study.disaggregated = true;
  out.plan.set(kPrefillChunk, static_cast<int>(out.step.chunk));
  return out;
}

}  // namespace shardline
