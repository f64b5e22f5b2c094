// The step of a server that prefills alone: what its pool is priced by, and what its launch files say.
// planner/README.md [P22].
#pragma once

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Tokens of a page of SGLang's pairs (launch_sglang.cpp), which what cuts a prompt is a multiple of: budgets
/// of the other engines are, too.
inline constexpr long long kPromptPage = 64;

/// One step of an attention group and microbatch, of prompts that are all as long: as many of them whole as
/// the engine's budget of a step has room for, or, of a longer one, a chunk with nobody beside it.
struct PromptStep {
  long long prompts = 1;  // that share it; more of them wait
  long long chunk = 0;    // tokens of each: all of a prompt, or what the budget cuts it to
  long long tokens() const { return prompts * chunk; }
};

/// Tokens of prompts that a step of an attention group has room for: the engine's default, of which groups
/// have parts where they share it.
long long prompt_budget(const EngineProfile& engine, const Device& device, const Plan& plan);
/// That step, for prompts of `input` tokens. Of ranks that share a prompt by context parallelism one prompt,
/// where the engine says so.
PromptStep prompt_step(const Case& c, const EngineProfile& engine, const Plan& plan, long long input);

/// A server of such steps, as its memory is reckoned and its files are written: a case of its prompts, and
/// the plan with its chunk.
struct ContextServer {
  Case study;
  Plan plan;
  PromptStep step;
};
ContextServer context_server(const Case& c, const EngineProfile& engine, Plan plan, long long input);

}  // namespace shardline
