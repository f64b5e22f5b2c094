// Watts and joules of played requests [R39]: against whole lowerings of each step, and those that are alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "planner/requests/play_requests.hpp"
#include "planner/search/provenance.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/serving/prompt_power.hpp"
#include "planner/studies/service_knobs.hpp"
#include "tests/planner/serve/played_boards.hpp"

namespace shardline {
namespace {

// Lengths about a mean, as requests of a trace have them, and prompts beside half of them.
StepBatch random_batch(std::mt19937_64& random, Batch& whole) {
  std::uniform_real_distribution<double> unit;
  std::normal_distribution<double> normal;
  const auto between = [&](double low, double high) { return low * std::pow(high / low, unit(random)); };
  StepBatch step;
  const auto requests = static_cast<int>(between(1, 1000));
  const double mean = between(64, 65536), width = unit(random);
  for (int i = 0; i < requests; ++i) {
    const auto cached =
        static_cast<std::uint32_t>(std::clamp(mean * std::exp(width * normal(random)), 1.0, 131'000.0));
    whole.decode.push_back({cached, 1, 1});
    ++step.decodes;
    step.cached += cached;
    step.longest = std::max(step.longest, cached);
  }
  if (random() % 2 == 0) {
    step.prompts.push_back({static_cast<std::uint32_t>(between(1, 8192)), 0});
    whole.prefill.push_back({0, step.prompts.front().tokens, 1});
  }
  return step;
}

// 125 batches of each strategy: joules of kernels are as near to those of a whole lowering as times are.
TEST(PlayedEnergy, R39AsWholeLoweringsOfRandomBatches) {
  struct Served {
    const char *model, *system, *plan, *engine;
    int gpus = 8;
  };
  for (const Served& s :
       {Served{"llama-3.1-70b", "h200-hgx", "tensor:tpa=8,tpf=8", "vllm"},
        Served{"llama-3.1-70b", "h200-hgx", "tensor:tpa=8,tpf=8", "ideal"},
        Served{"gpt-oss-120b", "h100-hgx", "tensor:tpa=2,tpf=2", "vllm"},
        Served{"deepseek-r1", "h200-hgx", "dcp:tpa=8,ep=8,dcp=8", "vllm"},
        Served{"deepseek-r1", "h200-hgx", "dp_ep:dp=8,ep=8", "sglang"},
        Served{"llama-3.1-70b", "h200-hgx", "pipeline:pp=2,tpa=4,tpf=4,in_flight=2", "vllm"},
        Served{"llama-3.1-405b", "gb200-nvl72", "helix:kvp=8,tpa=8,tpf=64", "trtllm", 64},
        Served{"deepseek-v4-flash", "h200-hgx", "tensor:tpa=8,ep=8", "vllm"}}) {
    SCOPED_TRACE(std::string(s.model) + " " + s.plan);
    const Study study = study_of_boards(s.model, s.system, s.gpus, s.engine, 8192, 1024);
    const PlanStepTimes times(study.study, possible_plan(study, s.plan), study.sweep().search.all_reduce);
    std::mt19937_64 random(1);
    std::vector<double> errors;
    for (int i = 0; i < 125; ++i) {
      Batch whole;
      const StepBatch step = random_batch(random, whole);
      const PricedStep fast = times.priced(step), slow = times.lowered_priced(whole);
      EXPECT_EQ(fast.time, times.of(step));
      ASSERT_GT(joules_of(slow.energy), 0);
      errors.push_back(std::abs(joules_of(fast.energy) / joules_of(slow.energy) - 1));
    }
    std::sort(errors.begin(), errors.end());
    RecordProperty(std::string(s.model) + " " + s.plan + " " + s.engine,
                   std::to_string(errors[errors.size() / 2]) + " " + std::to_string(errors.back()));
    EXPECT_LE(errors[errors.size() / 2], 1e-3);
    EXPECT_LE(errors.back(), 1e-2);
    EXPECT_GT(errors.back(), 1e-7);  // some lie between knots
  }
}

// Times of a plan's tables, and joules of a whole lowering of each step, one by one.
class Lowered : public StepTimes {
 public:
  explicit Lowered(const PlanStepTimes& times) : times_(times) {}
  Seconds of(const StepBatch& b) const override { return times_.of(b); }
  DecodeStretch decode(const StepBatch& b) const override {
    return {times_.decode(b).start, Seconds(0), 1, priced(b).energy};
  }
  Seconds of_group(std::span<const StepBatch* const> groups, std::size_t which) const override {
    return times_.of_group(groups, which);
  }
  PricedStep priced(const StepBatch& b) const override {
    return {times_.of(b), times_.lowered_priced(PlanStepTimes::batch_of(b)).energy};
  }

 private:
  const PlanStepTimes& times_;
};

std::vector<TraceRequest> random_requests(int count, double gap, double longest) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> wait(1 / gap);
  std::uniform_real_distribution<double> unit;
  std::vector<TraceRequest> out;
  double time = 0;
  for (int i = 0; i < count; ++i) {
    time += wait(random);
    out.push_back({Seconds(time),
                   1 + static_cast<std::int64_t>(unit(random) * longest),
                   1 + static_cast<std::int64_t>(unit(random) * 300),
                   {}});
  }
  return out;
}

// Whole plays, in each of which every step is lowered: what is told differs by less than 0.1 %. In the long
// one most steps with prompts are alike others, whose power is taken.
TEST(PlayedEnergy, R39AsPlaysOfWholeLoweredSteps) {
  struct Load {
    const char* system;
    int requests;
    double gap, longest;
  };
  for (const Load& l : {Load{"h200-hgx", 150, 0.02, 6000}, Load{"h200-hgx", 150, 0.5, 6000},
                        Load{"gb200-nvl72", 150, 0.02, 6000}, Load{"h200-hgx", 3000, 0.05, 2000}}) {
    SCOPED_TRACE(std::string(l.system) + " " + std::to_string(l.gap));
    const Study study = study_of_boards("llama-3.1-70b", l.system, 4, "vllm");
    const Plan plan = possible_plan(study, "tensor:tpa=4,tpf=4");
    const PlanStepTimes times(study.study, plan, study.sweep().search.all_reduce);
    const std::vector<TraceRequest> requests = random_requests(l.requests, l.gap, l.longest);
    const auto played = [&](const StepTimes& by, bool jump) {
      const auto scheduler =
          scheduler_of(service_knobs(study.study, plan, {}, 4000), draft_law(study.study, plan, 1));
      std::size_t next = 0;
      return play_requests(
          [&](TraceRequest& r) { return next < requests.size() && (r = requests[next++], true); }, *scheduler,
          by, jump);
    };
    const ServedRequests fast = played(times, true), slow = played(Lowered(times), false);
    EXPECT_LT(fast.events, slow.events);
    EXPECT_NEAR(fast.end.value / slow.end.value, 1, 1e-9);
    const double off = joules_of(fast.energy) / joules_of(slow.energy) - 1;
    RecordProperty(std::string(l.system) + " " + std::to_string(l.requests) + " " + std::to_string(l.gap),
                   std::to_string(off));
    EXPECT_NEAR(off, 0, 1e-3);
    EXPECT_NE(off, 0);
    EXPECT_NEAR(fast.energy.seconds / slow.energy.seconds, 1, 1e-3);
  }
}

// Steps of 100 tokens are looked at eight times, 2 s and 10 J each. One of 3 s then draws 80 J / 16 s x 3 s,
// until the 17th is looked at. Those of 200 tokens, and any in another play, are looked at by themselves.
TEST(PlayedEnergy, R39StepsAlikeDrawTheSamePower) {
  PromptPower power;
  StepBatch batch;
  batch.prompts = {{100, 0}};
  int looked = 0;
  const auto step = [&](double time) {
    return power.of(
        batch, 0, [&] { return Seconds(time); },
        [&] {
          ++looked;
          return PricedStep{Seconds(2), {{10, 0, 0}, 1}};
        });
  };
  for (int i = 0; i < 8; ++i) EXPECT_EQ(step(3).energy.joules[0], 10);
  EXPECT_EQ(looked, 8);
  for (int i = 8; i < 16; ++i) {
    const PricedStep alike = step(3);
    EXPECT_EQ(alike.time, Seconds(3));
    EXPECT_NEAR(alike.energy.joules[0], 15, 1e-12);
    EXPECT_NEAR(alike.energy.seconds, 1.5, 1e-12);
  }
  EXPECT_EQ(looked, 8);
  step(3);
  EXPECT_EQ(looked, 9);
  batch.prompts = {{120, 0}};  // from 96 to 127 tokens are alike
  step(3);
  EXPECT_EQ(looked, 9);
  batch.prompts = {{200, 0}};
  step(3);
  EXPECT_EQ(looked, 10);
  batch.prompts = {{100, 0}};
  power.begin_play();
  step(3);
  EXPECT_EQ(looked, 11);
}

// Whatever was played before with the same times of steps.
TEST(PlayedEnergy, R39APlayDoesNotDependOnThoseBefore) {
  const Study study = study_of_boards("llama-3.1-8b", "h200-hgx", 4, "vllm");
  ServiceQuestion q = question(study, "tensor:tpa=1,tpf=1");
  q.rate = 8;
  const std::function<void(std::uint64_t, std::uint64_t)> step = [](std::uint64_t, std::uint64_t) {};
  RequestService service(study, q, step), prompts(study, q, step);
  RequestService::Pools one, pair;
  pair.prefill_replicas = 1;
  pair.prefill = &prompts;
  const PairServer server{study.study, q.plan};
  pair.rates = handoff_rates(server, server, 2048);
  const auto drawn = [&](const RequestService::Pools& pools) {
    const ServedLoadAnswer load = service.answer(pools, false)->load;
    return std::pair(load.watts.total(), load.pair ? load.pair->prefill_watts.total() : 0);
  };
  const auto first = drawn(one), both = drawn(pair);
  prompts.answer(one, false);
  EXPECT_EQ(drawn(pair), both);
  EXPECT_EQ(drawn(one), first);
  EXPECT_GT(both.second, 0);
}

// A step's own power is the closed form's of the same batch: 64 requests that decode.
TEST(PlayedEnergy, R39AStepDrawsWhatTheClosedFormSaysOfIt) {
  for (const char* text : {"tensor:tpa=8,tpf=8", "pipeline:pp=2,tpa=4,tpf=4,in_flight=2"}) {
    const Study study = study_of_boards("llama-3.1-70b", "h200-hgx", 8, "vllm");
    Case c = study.study;
    Plan plan = possible_plan(study, text);
    plan.batch = 1;
    c.batch = decode_batch(4001);
    c.batch.decode.front().count = 64;
    Evaluator e(c, study.sweep().search.all_reduce);
    const Rating rating = rating_of(e, plan);
    StepBatch step;
    step.decodes = 64;
    step.cached = 64 * 4000;
    step.longest = 4000;
    const PlanStepTimes times(study.study, plan, study.sweep().search.all_reduce);
    const PricedStep priced = times.lowered_priced(PlanStepTimes::batch_of(step));
    EXPECT_NEAR(priced.time / rating.time, 1, 1e-12) << text;
    const BoardWatts watts = mean_watts(c.system.power, priced.energy, priced.time);
    EXPECT_NEAR(watts.total() / rating.watts.total(), 1, 1e-9) << text;
    EXPECT_GT(watts.total(), c.system.power.idle);
  }
}

}  // namespace
}  // namespace shardline
