// Requests one by one on plans with drafts [R16] [R17] [R20]: whole steps, closed forms, and streams of their
// own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "planner/layers/drafts.hpp"
#include "planner/requests/group_times.hpp"
#include "planner/requests/play_requests.hpp"
#include "planner/requests/sglang_scheduler.hpp"
#include "planner/requests/trtllm_scheduler.hpp"
#include "planner/requests/vllm_drafts.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/deployment.hpp"
#include "planner/studies/deployment_bounds.hpp"
#include "planner/studies/request_service.hpp"
#include "planner/studies/service_knobs.hpp"
#include "tests/planner/serve/drafting_line.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

// A step of the plan is that of an evaluator, which tells it per token, as often as it yields one.
TEST(ServedDrafts, P29StepsAreWhole) {
  const Study study = drafting_study();
  const Plan plan = possible_plan(study, kThree);
  const PlanStepTimes times(study.study, plan, study.sweep().search.all_reduce);
  for (const int requests : {1, 7, 64}) {
    Case c = study.study;
    c.batch = Batch{{{3000, 1, requests}}, {}};
    Plan one = plan;
    one.batch = 1;
    Evaluator e(c, study.sweep().search.all_reduce);
    const double token = e.simulate(one).value, yields = c.acceptance->at(3).mean;
    StepBatch step;
    step.decodes = static_cast<std::uint32_t>(requests);
    step.cached = 3000U * step.decodes;
    step.longest = 3000;
    EXPECT_NEAR(times.of(step).value / (token * yields), 1, PlanStepTimes::kMostError);
    EXPECT_EQ(times.lowered(c.batch).value, token * yields);
  }
  // What is accepted changes nothing of a step.
  const Study other = drafting_study("vllm", {0.3, 0.7});
  const PlanStepTimes rejecting(other.study, plan, other.sweep().search.all_reduce);
  const Batch batch{{{3000, 1, 7}}, {{0, 500, 1}}};
  EXPECT_NEAR(rejecting.lowered(batch) / times.lowered(batch), 1, 1e-12);
}

// Groups with one batch each are lowered as one, prompts beside them and not; requests that decode count 1 +
// k rows, so that a group with them takes longer where others have more.
TEST(ServedDrafts, R10GroupsWithDraftsAreLoweredAsOne) {
  const Study study = drafting_study();
  const PlanStepTimes times(study.study, possible_plan(study, "dp_ep:dp=8,ep=8,drafts=3"),
                            study.sweep().search.all_reduce);
  StepBatch decodes, prompts, both;
  decodes.decodes = both.decodes = 30;
  decodes.cached = both.cached = 150'000;
  decodes.longest = both.longest = 5000;
  both.prompts = {{900, 100}, {50, 0}};
  prompts.prompts = {{4096, 0}};
  for (const StepBatch& b : {decodes, prompts, both}) {
    const std::vector<const StepBatch*> groups(8, &b);
    EXPECT_EQ(step_of_groups(times, groups), times.of(b));
  }
  std::vector<const StepBatch*> groups(8, &decodes);
  groups.front() = &prompts;
  const Seconds few = times.of_group(groups, 0);
  StepBatch more = decodes;
  more.decodes = 120;
  more.cached *= 4;
  groups.back() = &more;
  EXPECT_GT(times.of_group(groups, 0), few);
}

// With nobody beside it, and all drafts accepted, a request takes its prompt's step and (O - 1) / (1 + k)
// steps that decode, each four tokens further. The chunks are as many, and ITL is of them.
TEST(ServedDrafts, R16ZeroLoadIsOneRequestAlone) {
  for (const char* const engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    const Study study = drafting_study(engine, {1, 1});
    ServiceQuestion q = question(study, kThree);
    q.rate = 1e-3;
    q.requests = 20;
    q.output = 129;
    const ServiceAnswer a = drafting_answer(study, q);
    const PlanStepTimes times(study.study, q.plan, study.sweep().search.all_reduce);
    const double prompt = times.lowered(prefill_batch({{0, 2048}})).value;
    EXPECT_NEAR(mean_of(a, Latency::ttft), study.study.engine->host.path.value + prompt, 1e-9);
    double decode = 0;
    for (int i = 0; i < 32; ++i) decode += times.lowered({{{2048 + 4 * i, 1, 1}}, {}}).value;
    EXPECT_NEAR(mean_of(a, Latency::tpot) / (decode / 128), 1, PlanStepTimes::kMostError);
    EXPECT_NEAR(mean_of(a, Latency::itl) / (decode / 32), 1, PlanStepTimes::kMostError);
    EXPECT_EQ(a.load.latencies[static_cast<std::size_t>(Latency::itl)].count, 20U * 32);
    EXPECT_EQ(a.load.answered, 20U);
    ASSERT_TRUE(a.accepted);
    EXPECT_EQ(a.accepted->mean, 4);
  }
}

// Steps that all take as long: an answer of n tokens takes 1 + E(n - 1) of them [P28], whoever is beside it.
// Means of 4,000 answers are within five standard errors.
TEST(ServedDrafts, P28AnswersTakeTheStepsOfTheirLaw) {
  const AcceptanceCurve curve(AcceptanceForm{0.75, 0.85});
  const LinearStepTimes times({Seconds(1), Seconds(0), Seconds(0), Seconds(0), Seconds(0)});
  for (const int k : {1, 3, 7}) {
    for (const std::int64_t output : {2, 10, 77}) {
      SCOPED_TRACE(fmt::format("{} drafts, {} tokens", k, output));
      const AcceptedLength length = curve.at(k);
      VllmDraftScheduler vllm({.max_model_len = 1024}, {length.survival, 3});
      // Its prompts go first: all of them in one step.
      SglangScheduler sglang({.chunked_prefill_size = 65536,
                              .max_prefill_tokens = 65536,
                              .max_running_requests = 4096,
                              .context_length = 1024,
                              .max_total_tokens = 4'000'000},
                             PairRole::none, {length.survival, 3});
      TrtllmKnobs knobs;
      knobs.max_batch_size = 4096;
      knobs.max_num_tokens = 65536;
      knobs.max_seq_len = 1024;
      knobs.blocks = 100'000;
      TrtllmScheduler trtllm(knobs, {length.survival, 3});
      for (Scheduler* const s : {static_cast<Scheduler*>(&vllm), static_cast<Scheduler*>(&sglang),
                                 static_cast<Scheduler*>(&trtllm)}) {
        int left = 4000;
        double sum = 0, squares = 0;
        play_requests(
            [&](TraceRequest& r) {
              r = {Seconds(0), 8, output, {}};
              return left-- > 0;
            },
            *s, times, true,
            [&](const AnsweredRequest& a) {
              const double steps = (a.last - a.first).value;
              sum += steps;
              squares += steps * steps;
            });
        const double mean = sum / 4000, variance = squares / 4000 - mean * mean;
        EXPECT_NEAR(mean, steps_of_answer(length, output - 1), 5 * std::sqrt(variance / 4000) + 1e-9);
      }
    }
  }
}

// TPOT of a closed loop of users with answers of one length against the closed form of served plans [P29].
void tpot_is_that_of_the_closed_form(const std::string& engine) {
  const Study study = drafting_study(engine);
  for (const int k : {1, 3, 7}) {
    for (const int users : {1, 8, 32}) {
      SCOPED_TRACE(fmt::format("{}, {} drafts, {} users", engine, k, users));
      ServiceQuestion q = question(study, fmt::format("tensor:tpa=8,ep=8,drafts={}", k));
      q.rate = 0;
      q.users = users;
      q.requests = static_cast<std::uint64_t>(120 * users);
      q.output = 256;
      const ServiceAnswer a = drafting_answer(study, q);
      ServedWorkload load;
      load.input = 2048;
      load.output = 256;
      load.users = users;
      ServedEvaluator e(study.study, study.sweep().search.all_reduce);
      const double closed = e.of(q.plan, load).served.tpot.value;
      ::testing::Test::RecordProperty(fmt::format("{}k{}u{}", engine, k, users),
                                      std::to_string(mean_of(a, Latency::tpot) / closed - 1));
      EXPECT_NEAR(mean_of(a, Latency::tpot) / closed, 1, 0.03);
    }
  }
}
TEST(ServedDrafts, P29TpotOfAClosedLoopIsThatOfTheClosedForm) {
  tpot_is_that_of_the_closed_form("vllm");
  tpot_is_that_of_the_closed_form("sglang");
  tpot_is_that_of_the_closed_form("trtllm");
}

// What is drawn for a request does not depend on who else is there, on replicas or on what was played before.
TEST(ServedDrafts, R16StreamsAreOfRequests) {
  const Study study = drafting_study();
  ServiceQuestion q = question(study, kThree);
  q.rate = 1e-3;
  q.requests = 60;
  RequestService service(study, q, [](std::uint64_t, std::uint64_t) {});
  const ServiceAnswer first = service.answer(), again = service.answer();
  EXPECT_EQ(first.load.latencies[1].mean, again.load.latencies[1].mean);
  q.replicas = 3;
  const ServiceAnswer three = drafting_answer(study, q);
  for (std::size_t i = 0; i < kToldQuantiles.size(); ++i)
    EXPECT_EQ(three.load.latencies[1].quantiles[i], first.load.latencies[1].quantiles[i]);
  EXPECT_EQ(three.load.steps, first.load.steps);
  q.seed = 2;
  EXPECT_NE(drafting_answer(study, q).load.steps, three.load.steps);
}

// Without drafts nothing is drawn: an acceptance that no plan asks for changes no bit.
TEST(ServedDrafts, R16PlansWithoutDraftsAreAsBefore) {
  Study study = drafting_study();
  ServiceQuestion q = question(study, "tensor:tpa=8,ep=8");
  q.rate = 5;
  const ServiceAnswer with = drafting_answer(study, q);
  study.study.acceptance.reset();
  const ServiceAnswer without = drafting_answer(study, q);
  for (const Latency of : kLatencies) EXPECT_EQ(mean_of(with, of), mean_of(without, of));
  EXPECT_EQ(with.load.steps, without.load.steps);
  EXPECT_FALSE(with.accepted);
}

// What a bound rules out misses when it is played, with all drafts accepted or few; and the bound of TPOT is
// all but reached by requests alone whose drafts all are.
TEST(ServedDrafts, P35WhatABoundRulesOutMisses) {
  std::mt19937_64 random(35);
  const std::function<void(std::uint64_t, std::uint64_t)> step = [](std::uint64_t, std::uint64_t) {};
  int ruled_out = 0;
  double closest = 0;
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    const Study study = drafting_study(i % 5 < 2    ? "sglang"
                                       : i % 5 == 2 ? "trtllm"
                                                    : "vllm",
                                       i % 2 == 0 ? AcceptanceForm{1, 1} : AcceptanceForm{0.7, 0.9});
    ServiceQuestion q = question(study, i % 3 == 0 ? "dp_ep:dp=8,ep=8,drafts=1" : kThree);
    q.requests = 120;
    q.input = i % 4 == 0 ? 300 : 3000;
    q.output = i % 4 == 1 ? 20 : 200;
    q.rate = std::array{0.01, 1.0, 30.0, 300.0}[random() % 4];
    q.targets = {{Latency::ttft, 0.9, Seconds(std::array{0.02, 0.3, 3.0}[random() % 3])},
                 {Latency::tpot, 0.5, Seconds(std::array{0.003, 0.01, 0.03}[random() % 3])}};
    RequestService service(study, q, step);
    const DeploymentBounds bounds(service, service.knobs({}), service.offered(), q,
                                  study.study.engine->host.path);
    for (const int replicas : {1, 2}) {
      const auto reason = bounds.rules_out(replicas);
      const auto played = service.answer({replicas}, false);
      ASSERT_TRUE(played);
      if (reason) {
        EXPECT_FALSE(played->load.met) << to_string(*reason);
      }
      ruled_out += reason ? 1 : 0;
      EXPECT_GE(played->load.targets[0].measured, bounds.least_ttft(0.9).value);
      EXPECT_GE(played->load.targets[1].measured, bounds.least_tpot(0.5).value);
      closest = std::max(closest, bounds.least_tpot(0.5).value / played->load.targets[1].measured);
    }
  }
  EXPECT_GT(ruled_out, 8);
  EXPECT_GT(closest, 0.9);
}

DeploymentQuestion drafting_deployments(Study& study, double tpot) {
  SearchOptions& search = study.sweep().search;
  std::erase_if(search.strategies, [](StrategyId s) {
    return strategy(s).launched_as != LaunchedAs::tensor && strategy(s).name != std::string("dp_ep");
  });
  search.space.options = {{&kDrafts, {0, 1, 3}}};
  DeploymentQuestion q;
  q.most_gpus = 8;
  q.pools = PoolsAsked::one;
  q.load = question(study, kThree);
  q.load.rate = 5;
  q.load.requests = 100;
  q.load.output = 200;
  q.load.targets = {{Latency::ttft, 0.9, Seconds(1)}, {Latency::tpot, 0.9, Seconds(tpot)}};
  q.threads = 1;
  return q;
}

DeploymentAnswer cheapest(const Study& study, const DeploymentQuestion& q) {
  return cheapest_deployment(study, q, [](std::uint64_t, std::uint64_t) {});
}

// Plans with drafts and without, pruned and played to their ends, by one thread and by two: to the bit.
TEST(ServedDrafts, P35PruningLeavesTheAnswer) {
  const auto text = [](const DeploymentAnswer& a) {
    std::string out;
    for (const PlayedDeployment& d : a.cheapest)
      out += fmt::format("{} x {} {:a} {:a}\n", d.answer.question.replicas, to_string(d.answer.question.plan),
                         d.used, d.answer.load.goodput);
    return out;
  };
  for (const auto& [engine, tpot] :
       {std::pair("vllm", 0.017), std::pair("vllm", 0.03), std::pair("trtllm", 0.03)}) {
    SCOPED_TRACE(fmt::format("{} {}", engine, tpot));
    Study study = drafting_study(engine);
    DeploymentQuestion q = drafting_deployments(study, tpot);
    const DeploymentAnswer pruned = cheapest(study, q);
    q.threads = 2;
    EXPECT_EQ(text(cheapest(study, q)), text(pruned));
    q.exhaustive = true;
    EXPECT_EQ(text(cheapest(study, q)), text(pruned));
    EXPECT_GT(pruned.certificate.candidates, 10U);
    EXPECT_EQ(pruned.cheapest.empty(), tpot < 0.02);
  }
}

// With 150 blocks and answers that are paused a server with drafts ends with an error: asked for alone that
// is said; among deployments it is none, and others are played. In other draws of the load one that does not
// end in this one may, which is none that it keeps.
TEST(ServedDrafts, R20AServerThatEndsIsNoDeployment) {
  Study study = drafting_study("trtllm");
  DeploymentQuestion q = drafting_deployments(study, 1000);
  q.knobs = {{"capacity_scheduler_policy=MAX_UTILIZATION", "blocks=150"}};
  q.load.targets.front().most = Seconds(1000);
  q.load.rate = 0.8;
  q.load.input = 1000;
  q.load.output = 500;
  q.load.requests = 300;
  ServiceQuestion one = q.load;
  one.knobs = q.knobs.front();
  EXPECT_THROW(drafting_answer(study, one), EngineStops);
  const DeploymentAnswer a = cheapest(study, q);
  ASSERT_FALSE(a.cheapest.empty());
  for (const PlayedDeployment& d : a.cheapest)
    EXPECT_NE(to_string(d.answer.question.plan), to_string(one.plan));
  q.knobs.front().back() = "blocks=100";
  q.load.rate = 0.2;
  q.load.requests = 1000;
  const DeploymentAnswer other = cheapest(study, q);
  ASSERT_TRUE(other.others);
  EXPECT_EQ(other.others->draws, 8);
  EXPECT_GT(other.others->stops, 0);
  EXPECT_LE(other.others->kept + other.others->stops, 8);
}

TEST(ServedDrafts, WhatIsNotPlayedIsSaid) {
  const Study vllm = drafting_study(), sglang = drafting_study("sglang"), trtllm = drafting_study("trtllm");
  const Plan three = possible_plan(vllm, kThree);
  EXPECT_EQ(no_play(vllm.study, three), std::nullopt);
  EXPECT_EQ(no_play(sglang.study, three), std::nullopt);
  EXPECT_EQ(no_play(vllm.study, possible_plan(vllm, "dp_ep:dp=8,ep=8,drafts=2")), std::nullopt);
  EXPECT_EQ(no_play(trtllm.study, three), std::nullopt);
  EXPECT_EQ(no_play(trtllm.study, possible_plan(trtllm, "dp_ep:dp=8,ep=8,drafts=2")), std::nullopt);
  EXPECT_EQ(no_pair({vllm.study, three}, {vllm.study, three}), std::nullopt);
  EXPECT_THAT(
      no_pair({vllm.study, three}, {vllm.study, possible_plan(vllm, "tensor:tpa=8,ep=8")}).value_or(""),
      HasSubstr("both plans say as many drafts"));
}

// SGLang's 48 requests of all groups together, unless it is told otherwise; each note is of a play that it
// caps.
TEST(ServedDrafts, R17SglangDecodesFewRequestsWithDrafts) {
  const Study study = drafting_study("sglang");
  const auto knobs = [&](const char* plan, const std::vector<std::string>& given) {
    return service_knobs(study.study, possible_plan(study, plan), given, 2304);
  };
  const auto notes = [&](const char* plan, const std::vector<std::string>& given) {
    std::string out;
    for (const Diagnostic& d : play_notes(study.study, possible_plan(study, plan), knobs(plan, given)))
      out += d.what + "\n";
    return out;
  };
  EXPECT_EQ(knobs(kThree, {}).requests(), 48U);
  EXPECT_EQ(knobs("dp_ep:dp=8,ep=8,drafts=3", {}).requests(), 6U);
  EXPECT_EQ(knobs(kThree, {"max_running_requests=256"}).requests(), 256U);
  EXPECT_GT(knobs("tensor:tpa=8,ep=8", {}).requests(), 2000U);
  EXPECT_THAT(notes(kThree, {}), HasSubstr("at most 48 requests at once"));
  EXPECT_THAT(notes("dp_ep:dp=8,ep=8,drafts=3", {}), HasSubstr("at most 48 requests at once"));
  EXPECT_EQ(notes(kThree, {"max_running_requests=256"}), "");
  EXPECT_EQ(notes("tensor:tpa=8,ep=8", {}), "");
}

// With attention DP TensorRT-LLM takes as many requests into a group as a step verifies, 8,192 / 4 of them or
// fewer by a knob; of one group there is no such cap.
TEST(ServedDrafts, R20TrtllmTakesAsManyRequestsAsAStepVerifies) {
  const Study study = drafting_study("trtllm");
  const auto knobs = [&](const char* plan, const std::vector<std::string>& given) {
    return service_knobs(study.study, possible_plan(study, plan), given, 2304);
  };
  const auto notes = [&](const char* plan, const std::vector<std::string>& given) {
    std::string out;
    for (const Diagnostic& d : play_notes(study.study, possible_plan(study, plan), knobs(plan, given)))
      out += d.what + "\n";
    return out;
  };
  const char* const groups = "dp_ep:dp=8,ep=8,drafts=3";
  EXPECT_EQ(knobs(groups, {"max_num_tokens=1026"}).requests(), 256U);
  EXPECT_EQ(knobs(groups, {"max_num_tokens=1026", "max_batch_size=100"}).requests(), 100U);
  EXPECT_EQ(knobs("dp_ep:dp=8,ep=8", {"max_num_tokens=1026"}).requests(), 2048U);
  EXPECT_EQ(knobs(kThree, {"max_num_tokens=1026"}).requests(), 2048U);
  EXPECT_THAT(notes(groups, {"max_num_tokens=1026"}), HasSubstr("at most 256 requests at once in each"));
  EXPECT_EQ(notes(groups, {"max_num_tokens=1026", "max_batch_size=100"}), "");
  EXPECT_EQ(notes(kThree, {"max_num_tokens=1026"}), "");
}

}  // namespace
}  // namespace shardline
