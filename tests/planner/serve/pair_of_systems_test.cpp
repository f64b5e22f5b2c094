// A pool for prompts on another system than the one for answers.
#include <gtest/gtest.h>

#include <memory>

#include "planner/scenario/shipped.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/studies/request_service.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {
namespace {

ServiceAnswer answer(const Study& study, const ServiceQuestion& q) {
  return serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
}

const ToldLatency& of(const ServiceAnswer& a, Latency latency) {
  return a.load.latencies[static_cast<std::size_t>(latency)];
}

// [D10] Prompts of another system take its time, caches the way between both, answers as before.
TEST(PairOfSystems, D10PromptsOfAnotherSystemAtZeroLoad) {
  for (const char* const engine : {"sglang", "vllm", "trtllm"}) {
    const Study study = study_of_line(engine);
    PlanQuestion line = small_line();
    line.system = "h200-hgx";
    line.gpus = 1;
    ServiceQuestion q = question(study);
    q.rate = 1e-3;
    q.requests = 30;
    q.prefill = PrefillQuestion{q.plan, 1, {}, 0};
    const ServiceAnswer same = answer(study, q);
    const auto other = std::make_shared<const Study>(study_of_line(engine, line));
    q.prefill->on = other;
    q.prefill->plan = possible_plan(*other, "tensor:tpa=1,tpf=1");
    const ServiceAnswer a = answer(study, q);
    const PlanStepTimes times(half_of_pair(other->study), q.prefill->plan, other->sweep().search.all_reduce);
    const TransferRates rates = handoff_rates({other->study, q.prefill->plan}, {study.study, q.plan}, 2048);
    ASSERT_TRUE(a.load.pair && same.load.pair);
    // Under SGLang room comes before the prompt, and takes the way of the request upon itself.
    const double path = engine == std::string("sglang") ? 0 : other->study.engine->host.path.value;
    EXPECT_NEAR(a.load.pair->prompt.mean, times.lowered(prefill_batch({{0, 2048}})).value + path, 1e-9)
        << engine;
    const double read = a.load.pair->tokens_read;
    EXPECT_NEAR(a.load.pair->transfer.mean, rates.alone(static_cast<double>(read)).value, 1e-9) << engine;
    EXPECT_GT(a.load.pair->transfer.mean, same.load.pair->transfer.mean) << "no NVLink leads there";
    EXPECT_EQ(a.load.pair->prefill_gpus, 1) << engine;
    EXPECT_NEAR(of(a, Latency::tpot).quantiles[0], of(same, Latency::tpot).quantiles[0], 1e-9) << engine;
  }
}

}  // namespace
}  // namespace shardline
