// Watts of plans and what their tokens cost [P32].
#include "planner/studies/plan_cost.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "hardware/cost/op_power.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/serving/served_plan.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

Study study(const std::string& model, const std::string& system, const std::string& more) {
  return parse_scenario("q.yaml", "name: q\nsystem: " + system + "\nmodels: [" + model + "]\n" + more,
                        shipped_catalogs())
      .studies[0];
}

// The slow way: every stage, every run of every block, every op of every rank's class.
double joules_of_a_rank(Evaluator& e, double step) {
  const Schedule& s = e.schedule();
  const System& system = e.study().system;
  double kernels = 0, seconds = 0;
  int stages = 0;
  for (const Stage& stage : s.stages) {
    for (int copy = 0; copy < stage.copies; ++copy, ++stages) {
      for (const Repeat& repeat : s.program_of(stage)) {
        for (int time = 0; time < repeat.times; ++time) {
          for (const BlockIndex b : s.blocks_of(repeat)) {
            for (OpIndex i = s.blocks[b].first; i < s.blocks[b].last; ++i) {
              for (int c = 0; c < s.classes; ++c) {
                const Op op = s.op_of_class(i, c);
                const double members = op.member == kEveryMember ? 1 : op.group.size;
                const Seconds t = e.cost().time(op);
                kernels += op_watts(system, op, t) * t.value / members / s.classes;
                seconds += t.value / members / s.classes;
              }
            }
          }
        }
      }
    }
  }
  const double under_way = static_cast<double>(s.in_flight) / stages;
  return kernels * under_way + system.power.idle * (step - seconds * under_way);
}

void expect_sum(const Study& s, const char* text) {
  SCOPED_TRACE(text);
  const Plan plan = parse_plan(text);
  Evaluator e(s.study, AllReduceRule::fastest);
  const Rating rating = rating_of(e, plan);
  const double step = rating.time.value * tokens_per_step(s.study, plan);
  e.simulate(plan);
  EXPECT_NEAR(rating.watts.total() * step, joules_of_a_rank(e, step), 1e-9 * rating.watts.total() * step);
  EXPECT_GT(rating.watts.total(), s.study.system.power.idle);
  EXPECT_LT(rating.watts.total(), s.study.system.device.power_limit);
}

TEST(PlanCost, P32WattsAreThoseOfAllOpsOfARank) {
  const Study decode = study("deepseek-r1", "gb200-nvl72",
                             "context: 256Ki tokens\nstrategies: [tensor, pipeline, helix]\ngpus: [8, 16]\n"
                             "batch: [8]\n");
  for (const char* text : {"tensor:tpa=8,tpf=8,batch=8", "pipeline:pp=2,tpa=8,tpf=8,batch=8",
                           "helix:kvp=8,tpa=1,tpf=8,batch=8,chunks=4"})
    expect_sum(decode, text);
  const Study prefill =
      study("llama-3.1-70b", "h200-hgx",
            "phase: prefill\nrequests: [{new: 64Ki tokens}]\nstrategies: [tensor, ring_pass_kv, "
            "kv_runahead]\ngpus: [8]\nbatch: [1]\n");
  for (const char* text : {"tensor:tpa=8,tpf=8,batch=1", "ring_pass_kv:cp=2,tpa=4,tpf=4,batch=1"})
    expect_sum(prefill, text);
}

TEST(PlanCost, P32MoneyIsGpuTimeAndJoulesAreWattsByTheRate) {
  Study s = study("llama-3.1-70b", "h200-hgx",
                  "context: 32Ki tokens\nstrategies: [tensor]\ngpus: [8]\nbatch: [8]\ngpu_hour_price: 3.6\n");
  EXPECT_EQ(s.gpu_hour, 3.6);
  Evaluator e(s.study, AllReduceRule::fastest);
  const Rating rating = rating_of(e, parse_plan("tensor:tpa=8,tpf=8,batch=8"));
  const PlanCost cost = cost_of(s, rating, 100);
  ASSERT_TRUE(cost.joules && cost.per_million && cost.watts);
  EXPECT_DOUBLE_EQ(cost.joules->value, rating.watts.total() / 100);
  EXPECT_DOUBLE_EQ(cost.per_million->value, 3.6 / 3600 / 100 * 1e6);  // 10 in whatever money
  EXPECT_LT(cost.joules->error.low, 0);
  EXPECT_GT(cost.joules->error.low, -1);
  EXPECT_GT(cost.joules->error.high, cost.per_million->error.high);  // watts are off, too
  s.gpu_hour = 0;
  EXPECT_FALSE(cost_of(s, rating, 100).per_million);
  EXPECT_FALSE(cost_of(s, rating, 0).joules);
  s.study.system.power = {};
  Evaluator unknown(s.study, AllReduceRule::fastest);
  EXPECT_FALSE(cost_of(s, rating_of(unknown, parse_plan("tensor:tpa=8,tpf=8,batch=8")), 100).joules);
}

// Kernels priced by the system file's parameters draw by the same laws: prompts, too.
TEST(PlanCost, P32PromptsDrawWithoutACalibration) {
  Study s = study("llama-3.1-70b", "h200-hgx",
                  "engine: vllm\nworkload: {input: 4096 tokens, output: 128 tokens}\nstrategies: "
                  "[tensor]\ngpus: [8]\nbatch: [1]\n");
  s.study.system.calibration = {};
  ServedEvaluator e(s.study, AllReduceRule::fastest);
  const Rating prompt = e.prompt_rating(parse_plan("tensor:tpa=8,tpf=8,batch=1"), 4096);
  EXPECT_GT(prompt.watts.total(), s.study.system.power.idle);
  EXPECT_LE(prompt.watts.total(), s.study.system.device.power_limit);
  EXPECT_EQ(prompt.shares.measured, 0);
  EXPECT_GT(prompt.time.value, 0);
}

TEST(PlanCost, P32ErrorsOfOneLawAddUpAndOfSeveralBySquares) {
  BoardPower power;
  power.most = 1000;
  power.laws[0].band = {std::log(0.5), std::log(2)};
  power.laws[2].band = {std::log(0.8), std::log(1.5)};
  BoardWatts watts;
  watts.kernels = {300, 0, 400};
  watts.idle = 100;
  const ErrorRange error = watts_error(power, watts);
  EXPECT_NEAR(error.high, std::hypot(300. / 800 * 1, 400. / 800 * 0.5), 1e-12);
  EXPECT_NEAR(error.low, -std::hypot(300. / 800 * 0.5, 400. / 800 * 0.2), 1e-12);
  const ErrorRange energy = energy_error({}, {-0.2, 0.25});
  EXPECT_NEAR(energy.low, -0.2, 1e-12);
  EXPECT_NEAR(energy.high, 0.25, 1e-12);
}

// A GPU that serves prompts, too, draws what lies between both steps.
TEST(PlanCost, P32ServedBoardsAreBetweenTheirSteps) {
  const Study s = study("llama-3.1-8b", "h100-hgx",
                        "engine: vllm\nprecision: {weights: bf16, kv: bf16, math: bf16}\nstrategies: "
                        "[tensor]\ngpus: [1, 2]\nbatch: [16]\nworkload: {input: 8Ki tokens, output: 512 "
                        "tokens}\n");
  const SweepAnswer a = answer_sweep(
      s, {}, [](std::uint64_t, std::uint64_t) {}, [] { return true; });
  ASSERT_FALSE(a.rated.points.empty());
  ServedEvaluator served(s.study, AllReduceRule::fastest);
  for (std::size_t i = 0; i < a.rated.points.size(); ++i) {
    const Point& p = a.rated.points[i];
    Evaluator e(s.study, AllReduceRule::fastest);
    const double decode = rating_of(e, p.plan).watts.total();
    const double prompt = served.prompt_rating(p.plan, 8192).watts.total();
    const double mean = a.rated.ratings[i].watts.total();
    EXPECT_GT(mean, std::min(decode, prompt));
    EXPECT_LT(mean, std::max(decode, prompt));
  }
  ASSERT_FALSE(a.pools.empty());
  for (const PoolPair& p : a.pools) {
    const double watts = pair_watts(a, p).total();
    EXPECT_GT(watts, s.study.system.power.idle);
    EXPECT_LT(watts, s.study.system.device.power_limit);
    if (p.whole.gpus > 0) {
      EXPECT_LE(whole_watts(a, p, s.study.system.power).total(), s.study.system.device.power_limit);
      EXPECT_GE(whole_cost(s, a, p).joules->value, pair_cost(s, a, p).joules->value * 0.5);
    }
  }
}

}  // namespace
}  // namespace shardline
