// Pairs of vLLM's [R16] and TensorRT-LLM's [R20] servers whose plans have drafts: whole steps, the law of
// answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "planner/layers/drafts.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/studies/request_service.hpp"
#include "planner/studies/served_pair.hpp"
#include "tests/planner/serve/drafting_line.hpp"

namespace shardline {
namespace {

// A pair of servers with nobody beside it: the prompt's last token is computed again in a step of its own,
// which verifies nothing, and 32 steps of four tokens follow.
TEST(PairDrafts, R16ZeroLoadOfAPairIsOneRequestAlone) {
  const Study study = drafting_study("vllm", {1, 1});
  ServiceQuestion q = question(study, kThree);
  q.rate = 1e-3;
  q.requests = 20;
  q.output = 130;
  q.prefill = PrefillQuestion{q.plan, 1, {}, 0};
  const ServiceAnswer a = drafting_answer(study, q);
  const PlanStepTimes times(half_of_pair(study.study), q.plan, study.sweep().search.all_reduce);
  const auto step = [&](long long cached) { return times.lowered({{{cached, 1, 1}}, {}}).value; };
  const double path = study.study.engine->host.path.value;
  ASSERT_TRUE(a.load.pair);
  EXPECT_NEAR(a.load.pair->prompt.mean, path + times.lowered(prefill_batch({{0, 2048}})).value, 1e-9);
  const TransferRates rates = handoff_rates({study.study, q.plan}, {study.study, q.plan}, 2048);
  EXPECT_NEAR(a.load.pair->transfer.mean, rates.alone(2048).value, 1e-9);
  EXPECT_NEAR(a.load.pair->begin.mean / step(2047), 1, PlanStepTimes::kMostError);
  double decode = step(2048 + 4 * 32);  // of four tokens the answer ends with the first
  for (int i = 0; i < 32; ++i) decode += step(2048 + 4 * i);
  EXPECT_NEAR(mean_of(a, Latency::tpot) / (decode / 129), 1, PlanStepTimes::kMostError);
  // The module is a layer more that is read.
  Study without = drafting_study("vllm", {1, 1});
  const Plan bare = possible_plan(without, "tensor:tpa=8,ep=8");
  const TransferRates fewer = handoff_rates({without.study, bare}, {without.study, bare}, 2048);
  EXPECT_NEAR(rates.token / fewer.token, 62.0 / 61, 1e-3);
}

// Under TensorRT-LLM the first token comes with the cache, and 33 steps of four tokens each follow.
TEST(PairDrafts, R20ZeroLoadOfAPairIsOneRequestAlone) {
  const Study study = drafting_study("trtllm", {1, 1});
  ServiceQuestion q = question(study, kThree);
  q.rate = 1e-3;
  q.requests = 20;
  q.output = 130;
  q.prefill = PrefillQuestion{q.plan, 1, {}, 0};
  const ServiceAnswer a = drafting_answer(study, q);
  const PlanStepTimes times(half_of_pair(study.study), q.plan, study.sweep().search.all_reduce);
  const double path = study.study.engine->host.path.value;
  ASSERT_TRUE(a.load.pair);
  EXPECT_NEAR(a.load.pair->prompt.mean, path + times.lowered(prefill_batch({{0, 2048}})).value, 1e-9);
  EXPECT_NEAR(a.load.pair->begin.mean, 0, 1e-12);
  double decode = 0;
  for (int i = 0; i < 33; ++i) decode += times.lowered({{{2048 + 4 * i, 1, 1}}, {}}).value;
  EXPECT_NEAR(mean_of(a, Latency::tpot) / (decode / 129), 1, PlanStepTimes::kMostError);
}

// TPOT of a closed loop of a pair: the steps that an answer takes by its law [P28], each of as many requests
// as run, half through their answers.
void expect_the_steps_of_the_law(const std::string& engine) {
  const Study study = drafting_study(engine);
  for (const int k : {1, 3, 7}) {
    for (const int users : {1, 8, 32}) {
      SCOPED_TRACE(fmt::format("{} drafts, {} users", k, users));
      ServiceQuestion q = question(study, fmt::format("tensor:tpa=8,ep=8,drafts={}", k));
      q.rate = 0;
      q.users = users;
      q.requests = static_cast<std::uint64_t>(120 * users);
      q.output = 256;
      q.prefill = PrefillQuestion{q.plan, 1, {}, 0};
      const ServiceAnswer a = drafting_answer(study, q);
      const PlanStepTimes times(half_of_pair(study.study), q.plan, study.sweep().search.all_reduce);
      StepBatch step;
      step.decodes = static_cast<std::uint32_t>(std::max(1.0, std::round(a.load.running)));
      step.longest = 2048 + 128;
      step.cached = step.decodes * step.longest;
      const double steps = steps_of_answer(study.study.acceptance->at(k), 255);
      const double closed = times.of(step).value * steps / 255;
      ::testing::Test::RecordProperty(fmt::format("k{}u{}", k, users),
                                      std::to_string(mean_of(a, Latency::tpot) / closed - 1));
      EXPECT_NEAR(mean_of(a, Latency::tpot) / closed, 1, 0.04);
    }
  }
}
TEST(PairDrafts, P29TpotIsThatOfTheStepsOfItsLaw) { expect_the_steps_of_the_law("vllm"); }
TEST(PairDrafts, P29TpotIsThatOfTheStepsOfItsLawUnderTrtllm) { expect_the_steps_of_the_law("trtllm"); }

}  // namespace
}  // namespace shardline
