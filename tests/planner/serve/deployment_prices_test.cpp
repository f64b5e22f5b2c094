// What bounds of deployments [P35] take for granted of the times of steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/scenario/shipped.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/studies/deployment_bounds.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/simulated_plan.hpp"

namespace shardline {
namespace {

struct Server {
  std::string model, system, engine, plan;
};

// Fitted prices need not rise with tokens, but a step that has more in it is hardly shorter; somewhere it is.
TEST(Deployment, P35StepsAreHardlyShorterWithMoreInThem) {
  double shortest = 1;
  for (const Server& s : {Server{"deepseek-v3.2", "h200-hgx", "sglang", "tensor:tpa=8,ep=8"},
                          {"qwen3-235b-a22b", "h200-hgx", "vllm", "tensor:tpa=8,ep=8"},
                          {"deepseek-r1", "gb200-nvl72", "trtllm", "tensor:tpa=8,ep=8"},
                          {"llama-3.1-8b", "h100-hgx", "vllm", "tensor"},
                          {"gpt-oss-120b", "h100-hgx", "sglang", "tensor:tpa=2,tpf=2"}}) {
    PlanQuestion q;
    q.model = s.model;
    q.system = s.system;
    q.engine = s.engine;
    q.gpus = 8;
    q.input = 4096;
    q.output = 256;
    const PlanAnswer a = asked_plan(q, shipped_catalogs());
    const PlanStepTimes times(a.study.study, possible_plan(a.study, s.plan),
                              a.study.sweep().search.all_reduce);
    double longest = 0;
    for (std::uint32_t tokens = 16; tokens <= 8192; tokens += 16) {
      StepBatch prompt;
      prompt.prompts = {{tokens, 0}};
      const double time = times.of(prompt).value;
      longest = std::max(longest, time);
      shortest = std::min(shortest, time / longest);
      ASSERT_GE(time, kNoShorter * longest) << s.model << " under " << s.engine << ", " << tokens;
    }
  }
  EXPECT_LT(shortest, 1) << "bounds could count all of a step";
}

}  // namespace
}  // namespace shardline
