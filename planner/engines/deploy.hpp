// The launch flags of a serving engine that runs a plan.
#pragma once

#include <string>
#include <vector>

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

struct Deployment {
  std::string engine;              // "TensorRT-LLM" or "vLLM"
  std::vector<std::string> lines;  // a command line or YAML lines
  std::vector<std::string> notes;  // what the engine lacks for this plan, or does differently
};

/// The plan's degrees as the flags of these engines, one command line or the lines of a YAML file: what
/// strategies add theirs to.
Deployment tensorrt_llm_deployment(const Case& c, const Plan& plan);
Deployment vllm_deployment(const Case& c, const Plan& plan);
Deployment sglang_deployment(const Case& c, const Plan& plan);

/// Every engine that can run the plan; of a strategy with a `launch`, those that it names. TensorRT-LLM:
/// docs/source/features/helix.md and the LLM API's parallel sizes; vLLM: serving/expert_parallel_deployment
/// and context parallelism documentation.
std::vector<Deployment> deployments(const Case& c, const Plan& plan);

}  // namespace shardline
