// Pairs with attention DP of SGLang's servers [R18] and of vLLM's [R19]: at zero load, their links, and the
// search for deployments.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "planner/requests/group_times.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/deployment.hpp"
#include "planner/studies/request_service.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {
namespace {

constexpr const char *kTensor = "tensor:tpa=8,ep=8", *kGroups = "dp_ep:dp=8,ep=8";

Study r1(const std::string& engine = "sglang", int gpus = 8) {
  PlanQuestion q;
  q.model = "deepseek-r1";
  q.system = "h200-hgx";
  q.gpus = gpus;
  q.input = 2048;
  q.output = 128;
  return study_of_line(engine, q);
}

const ToldLatency& of(const ServiceAnswer& a, Latency latency) {
  return a.load.latencies[static_cast<std::size_t>(latency)];
}

// One at a time, thirty of them.
ServiceAnswer alone(const Study& study, const char* prompts, const char* answers) {
  ServiceQuestion q = question(study, answers);
  q.rate = 1e-3;
  q.requests = 30;
  q.prefill = PrefillQuestion{possible_plan(study, prompts), 1, {}, 0};
  return serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
}

// Of one group beside others with nothing.
double step(const Study& study, const Plan& plan, const StepBatch& batch) {
  const PlanStepTimes times(half_of_pair(study.study), plan, study.sweep().search.all_reduce);
  const StepBatch nothing;
  std::vector<const StepBatch*> groups(static_cast<std::size_t>(plan.dp), &nothing);
  groups.front() = &batch;
  return step_of_groups(times, groups).value;
}

double token_step(const Study& study, const Plan& plan, std::uint32_t cached) {
  StepBatch token;
  token.decodes = 1;
  token.cached = token.longest = cached;
  return step(study, plan, token);
}

// One request at a time, on a server with and without groups behind one with and without. Each of its tokens
// is a step of a group.
void of_each_pair(const Study& study, const std::function<void(const ServiceAnswer&)>& expect) {
  for (const char* const prompts : {kTensor, kGroups}) {
    for (const char* const answers : {kTensor, kGroups}) {
      SCOPED_TRACE(fmt::format("{} behind {}", answers, prompts));
      const ServiceAnswer a = alone(study, prompts, answers);
      ASSERT_TRUE(a.load.pair);
      expect(a);
      double decode = 0;
      for (std::uint32_t i = 0; i < 127; ++i) decode += token_step(study, a.question.plan, 2048 + i);
      EXPECT_NEAR(of(a, Latency::tpot).mean / (decode / 127), 1, PlanStepTimes::kMostError);
    }
  }
}

// One request at a time: its prompt is a step of one group beside others with nothing, its cache goes over
// that group's links, and each token is a step of a group.
TEST(PairGroups, R18OneRequestAlone) {
  const Study study = r1();
  of_each_pair(study, [&](const ServiceAnswer& a) {
    const ServiceQuestion& q = a.question;
    // Of a group an eighth of the server's chunk: two steps of 1,024 tokens.
    double prompt = 0;
    const std::uint32_t chunk = q.prefill->plan.dp > 1 ? 1024 : 2048;
    for (std::uint32_t past = 0; past < 2048; past += chunk) {
      StepBatch part;
      part.prompts = {{chunk, past}};
      prompt += step(study, q.prefill->plan, part);
    }
    EXPECT_NEAR(a.load.pair->prompt.mean, prompt, 1e-9);
    const TransferRates rates = handoff_rates({study.study, q.prefill->plan}, {study.study, q.plan}, 2048);
    const double last = chunk < 2048 ? 1024 : 2048;  // the first half goes meanwhile
    EXPECT_NEAR(a.load.pair->transfer.mean, rates.alone(static_cast<double>(last)).value, 1e-9);
  });
}

// Rooms are drawn for each request: eight users at a time have their prompts in different groups, but for
// those who draw the same one, and seldom wait for more than another.
TEST(PairGroups, R18PromptsGoToAllGroups) {
  const Study study = r1();
  ServiceQuestion q = question(study, kTensor);
  q.rate = 0;
  q.users = 8;
  q.requests = 400;
  q.output = 2;
  q.prefill = PrefillQuestion{possible_plan(study, kGroups), 1, {}, 0};
  const auto served = [&] { return serve_requests(study, q, [](std::uint64_t, std::uint64_t) {}); };
  const double eight = served().load.pair->prompt.mean;
  q.users = 1;
  const double one = served().load.pair->prompt.mean;
  EXPECT_GT(eight, one);
  EXPECT_LT(eight, 4 * one) << "eight behind one another would be";
}

// Links are those of a group's GPUs: eight hand-offs at once to eight groups take no longer than one, from a
// server whose eight GPUs each send a part.
TEST(PairGroups, R18LinksAreOfGroups) {
  const Study study = r1();
  const Plan tensor = possible_plan(study, kTensor), groups = possible_plan(study, kGroups);
  const TransferRates to = handoff_rates({study.study, tensor}, {study.study, groups}, 2048);
  EXPECT_EQ(to.senders, 8);
  EXPECT_EQ(to.receivers, 1);
  const TransferRates both = handoff_rates({study.study, groups}, {study.study, groups}, 2048);
  EXPECT_EQ(both.senders, 1);
  EXPECT_EQ(both.receivers, 1);
}

// Under vLLM a prompt is one step, and dummy batches run while its cache is read: with async scheduling it is
// in the fourth step from the one in which the transfer ends on.
TEST(PairGroups, R19OneRequestAlone) {
  const Study study = r1("vllm");
  of_each_pair(study, [&](const ServiceAnswer& a) {
    const ServiceQuestion& q = a.question;
    StepBatch prompt;
    prompt.prompts = {{2048, 0}};
    const double path = study.study.engine->host.path.value;
    EXPECT_NEAR(a.load.pair->prompt.mean, path + step(study, q.prefill->plan, prompt), 1e-9);
    EXPECT_NEAR(a.load.pair->room.mean, path, 1e-9);
    const TransferRates rates = handoff_rates({study.study, q.prefill->plan}, {study.study, q.plan}, 2048);
    const double transfer = rates.alone(2048).value;
    EXPECT_NEAR(a.load.pair->transfer.mean, transfer, 1e-9);
    double begin = token_step(study, q.plan, 2047);
    if (q.plan.dp > 1) {
      const double dummy =
          dummy_steps(PlanStepTimes(study.study, q.plan, study.sweep().search.all_reduce)).start.value;
      begin += (std::ceil(transfer / dummy) + 3) * dummy - transfer;
    }
    EXPECT_NEAR(a.load.pair->begin.mean, begin, 1e-9);
    EXPECT_EQ(a.load.pair->decode_dummies > 0, q.plan.dp > 1);
    EXPECT_EQ(a.load.pair->prefill_dummies > 0, q.prefill->plan.dp > 1);
  });
}

// Under TensorRT-LLM a prompt is one step, its cache is asked for when it comes to the server for answers,
// and the token that was computed with it is the client's when it is there.
TEST(PairGroups, R21OneRequestAlone) {
  const Study study = r1("trtllm");
  of_each_pair(study, [&](const ServiceAnswer& a) {
    const ServiceQuestion& q = a.question;
    StepBatch prompt;
    prompt.prompts = {{2048, 0}};
    const double path = study.study.engine->host.path.value;
    EXPECT_NEAR(a.load.pair->prompt.mean, path + step(study, q.prefill->plan, prompt), 1e-9);
    EXPECT_NEAR(a.load.pair->room.mean, path, 1e-9);
    const TransferRates rates = handoff_rates({study.study, q.prefill->plan}, {study.study, q.plan}, 2048);
    EXPECT_NEAR(a.load.pair->transfer.mean, rates.alone(2048).value, 1e-9);
    EXPECT_NEAR(a.load.pair->begin.mean, 0, 1e-12);
  });
}

// Pruned and played to their ends: to the bit. Bounds of halves with groups rule out what misses alone.
void expect_the_exhaustive_answer(const std::string& engine, bool drafts = false) {
  Study study = r1(engine, 16);
  std::erase_if(study.sweep().search.strategies, [](StrategyId s) {
    return strategy(s).name != std::string("tensor") && strategy(s).name != std::string("dp_ep");
  });
  study.sweep().search.space.options.clear();
  if (drafts) {
    study.study.acceptance = std::make_shared<const AcceptanceCurve>(AcceptanceForm{0.8, 0.9});
    study.sweep().search.space.options = {{&kDrafts, {0, 2}}};
  }
  std::mt19937_64 random(18);
  const auto one_of = [&](auto... values) {
    const std::array all{values...};
    return all[random() % all.size()];
  };
  const auto text = [](const DeploymentAnswer& a) {
    std::string out;
    for (const PlayedDeployment& d : a.cheapest)
      out += fmt::format("{} x {} behind {} x {} {:a} {:a}\n", d.answer.question.replicas,
                         to_string(d.answer.question.plan), d.answer.question.prefill->replicas,
                         to_string(d.answer.question.prefill->plan), d.used, d.answer.load.goodput);
    return out;
  };
  int met = 0, groups = 0, drafting = 0;
  std::uint64_t pairs = 0;
  for (int i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    DeploymentQuestion q;
    q.most_gpus = 16;
    q.pools = PoolsAsked::two;
    q.load = question(study, kTensor);
    q.load.rate = one_of(1.0, 8.0, 20.0);
    q.load.requests = 60;
    q.load.input = one_of(600, 2048);
    q.load.output = one_of(30, 128);
    q.load.targets = {{Latency::ttft, 0.9, Seconds(one_of(0.3, 1.0, 4.0))},
                      {Latency::tpot, 0.9, Seconds(one_of(0.02, 0.03, 0.05))}};
    const auto step = [](std::uint64_t, std::uint64_t) {};
    const DeploymentAnswer pruned = cheapest_deployment(study, q, step);
    q.exhaustive = true;
    EXPECT_EQ(text(cheapest_deployment(study, q, step)), text(pruned));
    met += pruned.cheapest.empty() ? 0 : 1;
    pairs += pruned.certificate.pairs;
    for (const PlayedDeployment& d : pruned.cheapest) drafting += d.answer.question.plan[kDrafts] > 0 ? 1 : 0;
    for (const PlayedDeployment& d : pruned.cheapest)
      groups += d.answer.question.plan.dp > 1 || d.answer.question.prefill->plan.dp > 1 ? 1 : 0;
  }
  EXPECT_GT(pairs, 0U);
  EXPECT_GT(met, 1);
  EXPECT_GT(groups, 0);
  EXPECT_EQ(drafting > 0, drafts);
}
TEST(PairGroups, P35PruningLeavesTheAnswer) { expect_the_exhaustive_answer("sglang"); }
TEST(PairGroups, P35PruningLeavesTheAnswerOfVllm) { expect_the_exhaustive_answer("vllm"); }
TEST(PairGroups, P35PruningLeavesTheAnswerOfTrtllm) { expect_the_exhaustive_answer("trtllm"); }
TEST(PairGroups, P35PruningLeavesTheAnswerOfTrtllmWithDrafts) {
  expect_the_exhaustive_answer("trtllm", true);
}
TEST(PairGroups, P35PruningLeavesTheAnswerOfVllmWithDrafts) { expect_the_exhaustive_answer("vllm", true); }

}  // namespace
}  // namespace shardline
