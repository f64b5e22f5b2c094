// The options of a serving engine that say a plan. What else its server needs, the type of its cache and
// the tokens of its steps among it, is added in launch_vllm.cpp, _sglang and _trtllm.
#pragma once

#include <string>
#include <vector>

#include "planner/engines/kept_memory.hpp"
#include "planner/engines/launch_options.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

struct Deployment {
  std::string engine;              // "TensorRT-LLM", "vLLM"
  std::string profile;             // its name as a profile has it: "trtllm"
  LaunchOptions environment;       // variables, in front of a command
  LaunchOptions options;           // those of the plan
  std::vector<std::string> notes;  // what the engine lacks for this plan, or does differently
  std::string unsaid;              // what of the plan no option says, so that no file is written; or nothing
  bool generation_only = false;    // prompts are computed by another server of a disaggregated pair
};

/// [P20] Tokens that a server must have room for in one request: the longest sequence of the step and 1Ki
/// tokens of an answer behind it (InferenceMAX's closed loops answer with 1Ki), as far as the model's own
/// maximum allows, or without end under any_context.
long long served_length(const Case& c);
/// Whether that is more than the model's maximum.
bool beyond_model(const Case& c);
/// Requests that an engine has at once in one attention group.
long long sequences(const Case& c, const Plan& plan);
/// Those of one step: of one microbatch.
long long sequences_of_step(const Case& c, const Plan& plan);
/// What an engine reckons with where it keeps memory, of a server that prefills and decodes: graphs of as
/// many requests as a step of the plan has, as its launch files say.
KeptOf kept_of(const Case& c, const EngineProfile& engine, const Plan& plan);
/// [P38] Whether its attention groups hold prompts back for each other: of servers that do both.
bool holds_prompts(const Case& c, const Plan& plan);
/// Whether prompts pass in pieces, as a plan's chunks or beside requests that decode.
bool in_chunks(const Case& c, const Plan& plan);
/// New tokens of one step of an attention group.
long long step_tokens(const Case& c, const Plan& plan);

/// Tokens of a block of the cache under TensorRT-LLM: the case's, but under MLA those that it has kernels
/// for, 64 on Hopper and 32 on Blackwell [P21].
int tensorrt_llm_block(const Case& c);

/// The plan's degrees as options of these engines: what strategies add theirs to.
Deployment tensorrt_llm_deployment(const Case& c, const Plan& plan);
Deployment vllm_deployment(const Case& c, const Plan& plan);
Deployment sglang_deployment(const Case& c, const Plan& plan);

/// Every engine that can run the plan, or the case's engine alone where it names one; of a strategy with a
/// `launch`, those that it names. TensorRT-LLM: docs/source/features/helix.md and the LLM API's parallel
/// sizes; vLLM: serving/expert_parallel_deployment and context parallelism documentation.
std::vector<Deployment> deployments(const Case& c, const Plan& plan);

}  // namespace shardline
