// Requests on plans with stages: times of the stages against the plan's lowering, plays against the closed
// form of its steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "planner/requests/pipeline_clock.hpp"
#include "planner/serving/plan_stages.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/studies/service_knobs.hpp"
#include "planner/studies/service_launch.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

Study study_of(const std::string& engine, const std::string& model = "llama-3.1-70b",
               const std::string& system = "h200-hgx") {
  PlanQuestion q = small_line();
  q.model = model;
  q.system = system;
  q.gpus = 8;
  return study_of_line(engine, q);
}

const char* const kTwo = "pipeline:pp=2,tpa=4,tpf=4,in_flight=2";
const char* const kFour = "pipeline:pp=4,tpa=2,tpf=2,in_flight=4";

StepBatch random_batch(std::mt19937_64& random) {
  StepBatch b;
  if (random() % 3 != 0) {
    b.decodes = static_cast<std::uint32_t>(1 + random() % 200);
    b.longest = static_cast<std::uint32_t>(64 + random() % 20'000);
    b.cached = b.longest + (b.decodes - 1) * (1 + random() % b.longest);
  }
  if (random() % 3 == 0 || b.decodes == 0)
    b.prompts.push_back({static_cast<std::uint32_t>(1 + random() % 4096), 0});
  return b;
}

// One microbatch through all stages is what the evaluator has for it, its host included. A stage is busy no
// longer than it is occupied.
TEST(PlanStages, R36StagesAddUpToThePass) {
  for (const char* engine : {"ideal", "vllm", "sglang", "trtllm"}) {
    for (const char* text : {kTwo, kFour}) {
      const Study study = study_of(engine);
      Plan plan = possible_plan(study, text);
      const AllReduceRule rule = study.sweep().search.all_reduce;
      const PlanStageTimes stages(study.study, plan, rule);
      plan.in_flight = 1;
      const PlanStepTimes one(study.study, plan, rule);
      std::mt19937_64 random(1);
      for (int i = 0; i < 60; ++i) {
        const StepBatch b = random_batch(random);
        Seconds sum;
        for (const StageTime& s : stages.lowered(b)) {
          sum += s.busy + s.handed;
          EXPECT_LE(s.busy, s.occupied * (1 + 1e-12)) << text;
        }
        EXPECT_NEAR(sum / one.lowered(PlanStepTimes::batch_of(b)), 1, 1e-12) << engine << " " << text;
      }
    }
  }
}

// Alike steps that fill the stages go round in the time of a token that the plan's closed form has [S9].
TEST(PlanStages, R36FullStagesAreTheClosedForm) {
  for (const char* engine : {"ideal", "vllm", "sglang", "trtllm"}) {
    for (const char* text : {kTwo, kFour}) {
      const Study study = study_of(engine);
      const Plan plan = possible_plan(study, text);
      const PlanStepTimes times(study.study, plan, study.sweep().search.all_reduce);
      std::mt19937_64 random(2);
      for (int i = 0; i < 40; ++i) {
        StepBatch b = random_batch(random);
        PipelineClock clock(*times.stages(), {static_cast<std::size_t>(plan.pp)});
        std::vector<double> ends;
        for (int step = 0; step < 40 * plan.pp; ++step) {
          clock.decided(Seconds(0), b, true);
          ends.push_back(clock.next_ends().value);
        }
        const double round = (ends.back() - ends[ends.size() - 1 - 20 * plan.pp]) / 20;
        EXPECT_NEAR(round / times.of(b).value, 1, 0.004) << text;
      }
    }
  }
}

// Steps that decode are interpolated, stage by stage, as closely as whole steps are [R6].
TEST(PlanStages, R36InterpolatedAsLowered) {
  const Study study = study_of("vllm");
  const Plan plan = possible_plan(study, kFour);
  const PlanStageTimes stages(study.study, plan, study.sweep().search.all_reduce);
  std::mt19937_64 random(3);
  double worst = 0;
  for (int i = 0; i < 400; ++i) {
    StepBatch b = random_batch(random);
    b.prompts.clear();
    if (b.empty()) continue;
    std::vector<StageTime> told(stages.count());
    stages.of(b, told);
    const std::vector<StageTime> exact = stages.lowered(b);
    for (std::size_t s = 0; s < told.size(); ++s) {
      worst = std::max({worst, std::abs(told[s].busy / exact[s].busy - 1),
                        std::abs(told[s].occupied / exact[s].occupied - 1),
                        std::abs(told[s].handed / exact[s].handed - 1)});
    }
  }
  EXPECT_LE(worst, 1.5 * StepTable::kMostError);
  EXPECT_GT(worst, 1e-6);  // some are between lowerings
  EXPECT_LE(stages.largest_error(), StepTable::kMostError);
}

ServiceAnswer served(const Study& study, const ServiceQuestion& q) {
  return serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
}

double mean_of(const ServiceAnswer& a, Latency latency) {
  return a.load.latencies[static_cast<std::size_t>(latency)].mean;
}

// With nobody beside it a request's prompt passes the stages once, and each token after it once more.
TEST(PipelineService, R36ZeroLoadIsOneRequestAlone) {
  const std::pair<const char*, const char*> all[] = {{"vllm", "async_scheduling=true"},
                                                     {"vllm", "async_scheduling=false"},
                                                     {"sglang", "pp_async_batch_depth=0"},
                                                     {"sglang", "pp_async_batch_depth=1"},
                                                     {"trtllm", "disable_overlap_scheduler=false"},
                                                     {"trtllm", "disable_overlap_scheduler=true"}};
  for (const auto& [engine, knob] : all) {
    const Study study = study_of(engine);
    ServiceQuestion q = question(study, kFour);
    q.rate = 1e-3;
    q.requests = 20;
    q.knobs = {knob};
    const ServiceAnswer a = served(study, q);
    const PlanStageTimes stages(study.study, q.plan, study.sweep().search.all_reduce);
    const auto pass = [&](const StepBatch& b) {
      double sum = 0;
      for (const StageTime& s : stages.lowered(b)) sum += (s.busy + s.handed).value;
      return sum;
    };
    StepBatch prompt, token;
    prompt.prompts.push_back({2048, 0});
    token.decodes = 1;
    double tokens = 0;
    for (std::uint32_t i = 0; i < 127; ++i) {
      token.cached = token.longest = 2048 + i;
      tokens += pass(token);
    }
    EXPECT_NEAR(mean_of(a, Latency::ttft), study.study.engine->host.path.value + pass(prompt), 1e-9);
    EXPECT_NEAR(mean_of(a, Latency::tpot) / (tokens / 127), 1, StepTable::kMostError);
    EXPECT_EQ(a.load.answered, 20U);
    EXPECT_EQ(a.load.steps, 20U * 128);
    EXPECT_GT(a.load.idle, 0.99);
  }
}

// The cache has room for the requests of all turns together: blocks of memory are those of a plan with one.
TEST(PipelineService, R36BlocksAreOfAllTurns) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    const Study study = study_of(engine);
    for (const char* text : {kTwo, kFour}) {
      Plan plan = possible_plan(study, text);
      const std::uint32_t all = service_knobs(study.study, plan, {}, 2176).blocks();
      plan.in_flight = 1;
      EXPECT_NEAR(static_cast<double>(all) / service_knobs(study.study, plan, {}, 2176).blocks(), 1, 1e-3);
    }
  }
}

TEST(PipelineService, R36RefusesByName) {
  const Study vllm = study_of("vllm");
  const Plan plan = possible_plan(vllm, kTwo);
  EXPECT_EQ(no_play(vllm.study, plan), std::nullopt);
  EXPECT_THAT(*no_play(vllm.study, plan, true), HasSubstr("a pool of prompts"));
  Plan one = plan;
  one.in_flight = 1;
  EXPECT_THAT(*no_play(vllm.study, one), HasSubstr("in_flight=2"));
  EXPECT_THAT(fault([&] {
                ServiceQuestion q = question(vllm, kTwo);
                q.prefill = {possible_plan(vllm, "tensor:tpa=8,tpf=8"), 1, {}, 0, "prefill-knob"};
                served(vllm, q);
              }),
              HasSubstr("not in pairs of pools"));
}

TEST(PipelineService, R37RefusesByName) {
  const Study sglang = study_of("sglang");
  const Plan plan = possible_plan(sglang, kTwo);
  EXPECT_EQ(no_play(sglang.study, plan), std::nullopt);
  EXPECT_THAT(*no_play(sglang.study, plan, true), HasSubstr("a pool of prompts"));
  Plan one = plan;
  one.in_flight = 1;
  EXPECT_THAT(*no_play(sglang.study, one), HasSubstr("in_flight=2"));
  EXPECT_THAT(*no_play(study_of("sglang", "gpt-oss-120b").study, plan), HasSubstr("windows in stages"));
  const auto refused = [&](const char* text, const char* knob) {
    return fault([&] {
      ServiceQuestion q = question(sglang, text);
      q.requests = 4;
      q.knobs = {knob};
      served(sglang, q);
    });
  };
  EXPECT_THAT(refused(kTwo, "enable_mixed_chunk=true"), HasSubstr("does not start with it"));
  EXPECT_THAT(refused("tensor:tpa=8,tpf=8", "pp_async_batch_depth=1"), HasSubstr("has no stages"));
  EXPECT_EQ(refused(kTwo, "pp_async_batch_depth=1"), "");
  EXPECT_THAT(refused(kTwo, "enable_prefill_delayer=true"),
              HasSubstr("--knob enable_prefill_delayer=true: SGLang does not start with it where there are "
                        "stages, as in "));
  // Settings of a plan whose knobs do not go with it are passed over by plan, which asks service_knobs().
  EXPECT_THAT(
      fault([&] { service_knobs(sglang.study, plan, {"enable_mixed_chunk=true"}, 2176); }),
      HasSubstr("--knob enable_mixed_chunk=true: SGLang does not start with it where there are stages"));
}

// One user in each micro-batch: steps of one request go round in the time of a token that the plan has for as
// many microbatches, but for the prompts of others, one in 128 of its steps. In one micro-batch the same
// users have a stage for themselves in turn, and a token takes the way of one step through all.
TEST(PipelineService, R37OneUserAStageIsTheClosedForm) {
  const Study study = study_of("sglang");
  for (const char* text : {kTwo, kFour}) {
    SCOPED_TRACE(text);
    ServiceQuestion q = question(study, text);
    q.rate = 0;
    q.users = q.plan.pp;
    q.requests = static_cast<std::uint64_t>(40 * q.users);
    q.knobs = {"pp_max_micro_batch_size=1"};
    const double apart = mean_of(served(study, q), Latency::tpot);
    q.knobs = {};
    const double together = mean_of(served(study, q), Latency::tpot);
    const PlanStepTimes times(study.study, q.plan, study.sweep().search.all_reduce);
    StepBatch step;
    step.decodes = 1;
    step.cached = step.longest = 2048 + 64;
    RecordProperty("apart", std::to_string(apart / times.of(step).value - 1));
    EXPECT_NEAR(apart / times.of(step).value, 1, 0.05);
    EXPECT_LT(together, 0.9 * apart);
  }
}

TEST(PipelineService, R38RefusesByName) {
  const Study trtllm = study_of("trtllm");
  const Plan plan = possible_plan(trtllm, kTwo);
  EXPECT_EQ(no_play(trtllm.study, plan), std::nullopt);
  EXPECT_THAT(*no_play(trtllm.study, plan, true), HasSubstr("a pool of prompts"));
  Plan one = plan;
  one.in_flight = 1;
  EXPECT_THAT(*no_play(trtllm.study, one), HasSubstr("as long as somebody is in none: in_flight=2"));
  const auto refused = [&](const char* text, const char* knob) {
    return fault([&] {
      ServiceQuestion q = question(trtllm, text);
      q.requests = 4;
      q.knobs = {knob};
      served(trtllm, q);
    });
  };
  const char* const pauses = "capacity_scheduler_policy=MAX_UTILIZATION";
  EXPECT_THAT(refused(kTwo, pauses), HasSubstr("--knob capacity_scheduler_policy=MAX_UTILIZATION: "
                                               "TensorRT-LLM pauses nobody where there are stages"));
  EXPECT_EQ(refused(kTwo, "capacity_scheduler_policy=STATIC_BATCH"), "");
  EXPECT_EQ(refused("tensor:tpa=8,tpf=8", pauses), "");
  // Settings of a plan whose knobs do not go with it are passed over by plan, which asks service_knobs().
  EXPECT_THAT(fault([&] { service_knobs(trtllm.study, plan, {pauses}, 2176); }), HasSubstr("pauses nobody"));
}

// One user a stage, and one request in a step: as under SGLang the steps of one request go round in the time
// of a token that the plan has for as many microbatches, but for the prompts of others. With room for both in
// a step they meet in one.
TEST(PipelineService, R38OneUserAStageIsTheClosedForm) {
  const Study study = study_of("trtllm");
  for (const char* text : {kTwo, kFour}) {
    SCOPED_TRACE(text);
    ServiceQuestion q = question(study, text);
    q.rate = 0;
    q.users = q.plan.pp;
    q.requests = static_cast<std::uint64_t>(40 * q.users);
    q.knobs = {"max_batch_size=1"};
    const double apart = mean_of(served(study, q), Latency::tpot);
    const PlanStepTimes times(study.study, q.plan, study.sweep().search.all_reduce);
    StepBatch step;
    step.decodes = 1;
    step.cached = step.longest = 2048 + 64;
    RecordProperty("apart", std::to_string(apart / times.of(step).value - 1));
    EXPECT_NEAR(apart / times.of(step).value, 1, 0.05);
  }
}

// Places of a step, and as many active requests as all stages have of them.
TEST(PipelineService, R38StepsOfStagesAreSaid) {
  const Study study = study_of("trtllm");
  ServiceQuestion q = question(study, kTwo);
  q.requests = 10;
  q.knobs = {"max_batch_size=24", "disable_overlap_scheduler=true"};
  const ServiceAnswer a = served(study, q);
  std::string said;
  for (const Diagnostic& d : a.narrow) said += to_string(d);
  EXPECT_THAT(said, HasSubstr("the first of 2 stages has passed on the one before the last, of 24 requests"));
  EXPECT_THAT(said, HasSubstr("disable_overlap_scheduler=true changes nothing in stages"));
  EXPECT_EQ(a.knobs.requests(), 48U);
  EXPECT_EQ(served_options(study.study, a).graphs, 24);
}

// Half as many places in each of two micro-batches as run in all, unless somebody says another.
TEST(PipelineService, R37MicroBatchesAreSaid) {
  const Study study = study_of("sglang");
  const auto said = [&](const char* plan, std::vector<std::string> knobs) {
    ServiceQuestion q = question(study, plan);
    q.requests = 10;
    q.knobs = std::move(knobs);
    std::string out;
    for (const Diagnostic& d : served(study, q).narrow) out += to_string(d);
    return out;
  };
  EXPECT_THAT(said(kTwo, {"max_running_requests=64"}),
              HasSubstr("2 micro-batches take turns in 2 stages, with 32 requests each at most"));
  EXPECT_THAT(said(kFour, {"pp_max_micro_batch_size=7", "pp_async_batch_depth=2"}),
              HasSubstr("6 micro-batches take turns in 4 stages, with 7 requests each at most"));
  EXPECT_THAT(said("tensor:tpa=8,tpf=8", {}), Not(HasSubstr("micro-batches")));
}

TEST(PipelineService, R36WhatIsPlayedIsSaid) {
  const Study study = study_of("vllm");
  const auto said = [&](const char* plan, const char* knob) {
    ServiceQuestion q = question(study, plan);
    q.requests = 10;
    q.knobs = {knob};
    std::string out;
    for (const Diagnostic& d : served(study, q).narrow) out += to_string(d);
    return out;
  };
  EXPECT_THAT(said(kFour, "async_scheduling=true"), HasSubstr("up to 5 steps are decided for 4 stages"));
  EXPECT_THAT(said(kFour, "async_scheduling=false"), HasSubstr("4 steps are on their way through 4 stages"));
  EXPECT_THAT(said("tensor:tpa=8,tpf=8", "async_scheduling=true"), Not(HasSubstr("stages")));
}

}  // namespace
}  // namespace shardline
