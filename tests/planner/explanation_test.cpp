// studies/explanation, knobs, rivals, purchases, plan_comparison [P24] against what a change must do.
#include "planner/studies/explanation.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "planner/scenario/shipped.hpp"
#include "planner/studies/plan_comparison.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

// A device that does nothing but read memory: no fixed times, arithmetic as good as free.
const char* const kReader = R"(name: reader
device:
  name: Reader
  memory: {capacity: 1 TB, bandwidth: 1 TB/s, efficiency: 1, usable: 1}
  compute: {fp8: 1000 PFLOP/s, bf16: 1000 PFLOP/s, exponentials: 1000000 Texp/s, efficiency: 1}
  kernel_cost: 0 s
fabric: {nodes: 1, gpus_per_node: 1}
)";
const char* const kReads =
    "name: q\nsystem: reader\nmodels: [llama-3.1-8b]\ncontext: 8Ki tokens\n"
    "precision: {weights: bf16, kv: bf16, math: bf16}\nstrategies: [tensor]\ngpus: [1]\nbatch: [1, 8]\n";
const char* const kShards =
    "name: q\nsystem: h200-hgx\nmodels: [llama-3.1-70b]\ncontext: 32Ki tokens\n"
    "precision: {weights: fp8, kv: fp8, math: fp8}\nstrategies: [tensor, pipeline]\ngpus: [8]\nbatch: [8]\n";

Study reads() {
  Study s =
      parse_scenario("q.yaml", std::string(kReads).replace(std::string(kReads).find("reader"), 6, "h200-hgx"),
                     shipped_catalogs())
          .studies[0];
  s.study.system = parse_system("reader.yaml", kReader);
  return s;
}

Study shards(const std::string& costs = "calibrated", const std::vector<std::string>& settings = {}) {
  return parse_scenario("q.yaml", kShards, shipped_catalogs(),
                        {costs_named(costs), "", false, false, settings})
      .studies[0];
}

Plan plan(const char* text) { return parse_plan(text); }

double elasticity(const std::vector<Elasticity>& all, Knob knob) {
  for (const Elasticity& e : all) {
    if (e.knob == knob) return e.time.value;
  }
  ADD_FAILURE() << "no elasticity to " << to_string(knob);
  return 0;
}

TEST(Explanation, P24ATimeThatIsAllMemoryGoesWithTheInverseOfItsBandwidth) {
  std::vector<NoElasticity> without;
  const auto all = elasticities_of(reads(), plan("tensor:batch=1"), without);
  EXPECT_NEAR(elasticity(all, Knob::hbm), -1, 1e-3);
  EXPECT_NEAR(elasticity(all, Knob::flops), 0, 1e-3);
  EXPECT_NEAR(elasticity(all, Knob::kernels), 0, 1e-3);
  // Weights are read once, whatever the batch; the cache goes with it and with the context.
  EXPECT_GT(elasticity(all, Knob::batch), 0);
  EXPECT_LT(elasticity(all, Knob::batch), 0.2);
  EXPECT_NEAR(elasticity(all, Knob::context), elasticity(all, Knob::batch), 0.05);
  ASSERT_EQ(without.size(), 3u);  // no links, twice, and no host
}

// Rates twice as high and fixed times half as long: half the time, whatever bounds it.
TEST(Explanation, P24AllRatesAndTimesTogetherScaleTheTime) {
  for (const char* costs : {"calibrated", "parameters"}) {
    for (const char* text : {"tensor:tpa=8,tpf=8,batch=8", "pipeline:pp=2,tpa=4,tpf=4,batch=2"}) {
      const Study s = shards(costs);
      const Plan p = plan(text);
      Study fast = s;
      double times = 1;
      for (const Knob k : {Knob::hbm, Knob::flops, Knob::links}) fast = changed(fast, p, k, 2)->study;
      for (const Knob k : {Knob::latency, Knob::kernels}) {
        const auto c = changed(fast, p, k, 0.5);
        fast = c->study;
        times *= c->times;
      }
      EXPECT_NEAR(time_of(fast, p, times) / time_of(s, p), 0.5, 1e-9) << costs << " " << text;
    }
  }
}

// Of a system without measurements they are one number of its file.
TEST(Explanation, P24KernelsFixedTimesAreTheKernelCostOfASystemFile) {
  const Study s = shards("parameters");
  for (const char* text : {"tensor:tpa=8,tpf=8,batch=8", "pipeline:pp=2,tpa=4,tpf=4,batch=2"}) {
    const Plan p = plan(text);
    const auto c = changed(s, p, Knob::kernels, 0.5);
    Study direct = s;
    direct.study.system.device.kernel_cost = s.study.system.device.kernel_cost * 0.5;
    EXPECT_NEAR(time_of(c->study, p, c->times) / time_of(direct, p), 1, 1e-9) << text;
    EXPECT_LT(time_of(direct, p), time_of(s, p));
  }
}

// So the elasticities to times less those to rates add up to 1, up to the width of the differences.
TEST(Explanation, P24ElasticitiesToTimesLessThoseToRatesAreOne) {
  for (const char* costs : {"calibrated", "parameters"}) {
    std::vector<NoElasticity> without;
    const auto all = elasticities_of(shards(costs), plan("tensor:tpa=8,tpf=8,batch=8"), without);
    const double times = elasticity(all, Knob::latency) + elasticity(all, Knob::kernels);
    const double rates =
        elasticity(all, Knob::hbm) + elasticity(all, Knob::flops) + elasticity(all, Knob::links);
    EXPECT_NEAR(times - rates, 1, 0.02) << costs;
    for (const Elasticity& e : all) {
      EXPECT_LE(e.time.low, e.time.high) << to_string(e.knob);
      if (e.knob == Knob::batch) continue;
      EXPECT_NEAR(e.rate.value, -e.time.value, 1e-9) << to_string(e.knob);
    }
  }
}

const char* const kLongPrompt =
    "name: q\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\nphase: prefill\nrequests: [{new: 128Ki tokens}]\n"
    "precision: {weights: bf16, kv: bf16, math: bf16}\nstrategies: [tensor]\ngpus: [8]\nbatch: [1]\n";

Study long_prompt(const std::string& costs) {
  return parse_scenario("q.yaml", kLongPrompt, shipped_catalogs(), {costs_named(costs), "", false, false, {}})
      .studies[0];
}

// Its attention of 33 ms per layer is slowed by power management, whose 20 ms are no launch.
TEST(Explanation, P24LongerLaunchesMakeNothingFaster) {
  const Study s = long_prompt("calibrated");
  const Plan p = plan("tensor:tpa=8,tpf=8,batch=1");
  std::vector<NoElasticity> without;
  const auto all = elasticities_of(s, p, without);
  EXPECT_GT(elasticity(all, Knob::kernels), 0);
  EXPECT_LT(elasticity(all, Knob::kernels), 0.02);
  // What it would be with that time stretched, too.
  const auto shorter = changed(s, p, Knob::kernels, 1 / 1.1), longer = changed(s, p, Knob::kernels, 1.1);
  EXPECT_LT(time_of(longer->study, p, longer->times), time_of(shorter->study, p, shorter->times));
  const Study calm = without_throttling(s);
  EXPECT_LT(time_of(calm, p), time_of(s, p));
}

const Bottleneck* named(const std::vector<Bottleneck>& all, const std::string& name) {
  for (const Bottleneck& b : all) {
    if (b.name == name) return &b;
  }
  return nullptr;
}

TEST(Explanation, P24OverheadIsFixedTimesAndWhatPeakRatesDoNotExplain) {
  const Plan p = plan("tensor:tpa=8,tpf=8,batch=1");
  const auto bottlenecks = [&](const Study& s, Breakdown& b, std::vector<Elasticity>& all) {
    Evaluator e(s.study);
    const SimulatedPlan simulated = simulate_plan(s, e, p);
    std::vector<NoElasticity> without;
    all = elasticities_of(s, p, without);
    b = simulated.breakdown;
    return bottlenecks_of(s, simulated, all);
  };
  Breakdown b;
  std::vector<Elasticity> all;
  const auto long_one = bottlenecks(long_prompt("calibrated"), b, all);
  Seconds overhead;
  for (const Seconds part : b.limit_parts[static_cast<std::size_t>(Limit::overhead)]) overhead += part;
  EXPECT_EQ(named(long_one, "overhead"), nullptr);  // less than is told of
  const Bottleneck* const beyond = named(long_one, "beyond peak rates");
  ASSERT_NE(beyond, nullptr);
  EXPECT_NEAR(beyond->time / overhead, 1, 0.1);
  EXPECT_EQ(beyond->parts.front().first, "attention");
  EXPECT_THAT(beyond->text, HasSubstr("that peak rates do not explain is"));
  // A system without measurements has fixed times alone.
  const auto assumed = bottlenecks(long_prompt("parameters"), b, all);
  EXPECT_EQ(named(assumed, "beyond peak rates"), nullptr);
  // Where launches are much of a step they are most of overhead, but no more than their elasticities say.
  const Study s = shards();
  Evaluator e(s.study);
  const SimulatedPlan decoded = simulate_plan(s, e, plan("tensor:tpa=8,tpf=8,batch=8"));
  std::vector<NoElasticity> without;
  all = elasticities_of(s, decoded.plan, without);
  const auto of_decode = bottlenecks_of(s, decoded, all);
  const Bottleneck* const fixed = named(of_decode, "overhead");
  ASSERT_NE(fixed, nullptr);
  EXPECT_LE(fixed->share, elasticity(all, Knob::latency) + elasticity(all, Knob::kernels));
  overhead = Seconds(0);
  for (const Seconds part : decoded.breakdown.limit_parts[static_cast<std::size_t>(Limit::overhead)])
    overhead += part;
  EXPECT_GT(fixed->time / overhead, 0.9);
  const Bottleneck* const rest = named(of_decode, "beyond peak rates");
  ASSERT_NE(rest, nullptr);
  EXPECT_NEAR((fixed->time + rest->time) / overhead, 1, 1e-9);
}

// What neither bytes nor arithmetic explain of an index's kernels stands by itself, and nowhere else.
TEST(Explanation, P24ChoosingKeysIsNoLaunch) {
  const Study s =
      parse_scenario("q.yaml",
                     "name: q\nsystem: h200-hgx\nmodels: [deepseek-v3.2]\ncontext: 128Ki tokens\n"
                     "kernels: {framework: sglang}\nstrategies: [tensor]\ngpus: [8]\nbatch: [1]\n",
                     shipped_catalogs())
          .studies[0];
  Evaluator e(s.study);
  const SimulatedPlan simulated = simulate_plan(s, e, plan("tensor:tpa=8,tpf=8,batch=1"));
  const auto all = bottlenecks_of(s, simulated, {});
  Seconds overhead, told;
  for (const Seconds t : simulated.breakdown.limit_parts[static_cast<std::size_t>(Limit::overhead)])
    overhead += t;
  for (const char* name : {"overhead", "beyond peak rates", "choosing keys"})
    told += named(all, name) == nullptr ? Seconds(0) : named(all, name)->time;
  EXPECT_NEAR(told / overhead, 1, 0.05);  // but for shares too small to be told of
  const Bottleneck* const choice = named(all, "choosing keys");
  ASSERT_NE(choice, nullptr);
  EXPECT_THAT(choice->text, HasSubstr("Choosing keys by an index takes"));
  const auto& kinds = simulated.breakdown.kinds;
  EXPECT_GT(choice->time, kinds[static_cast<std::size_t>(OpKind::top_k)] * 0.8);  // hardly any bytes
}

TEST(Explanation, WhatCanBeChangedIsInTheGlossary) {
  std::ifstream in(source_path("reports/glossary.md"));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  ASSERT_FALSE(text.empty());
  for (std::size_t k = 0; k < kKnobs; ++k) {
    const std::string name(to_string(static_cast<Knob>(k)));
    const bool row = text.find("\n| " + name + " ") != std::string::npos ||
                     text.find("\n| " + name + ",") != std::string::npos ||
                     text.find(", " + name + " |") != std::string::npos ||
                     text.find(", " + name + ",") != std::string::npos;
    EXPECT_TRUE(row) << name;
  }
}

TEST(Explanation, P24ATurnoverIsWhereBothPlansTakeAsLong) {
  const Study s = shards();
  const Plan p = plan("tensor:tpa=8,tpf=8,batch=8");
  const Rivals rivals = rivals_of(s, p, times_of(s, p));
  ASSERT_FALSE(rivals.best.empty());
  EXPECT_GT(rivals.compared, 1u);
  EXPECT_TRUE(rivals.equal_users);
  for (const Rival& r : rivals.best) {
    EXPECT_EQ(r.plan.gpus(), p.gpus());
    EXPECT_EQ(r.plan.users(), p.users());
    EXPECT_NEAR(r.ratio, time_of(s, r.plan) / time_of(s, p), 1e-12);
    for (const Turnover& t : r.turnovers) {
      if (!t.factor || t.knob == Knob::batch || t.knob == Knob::context) continue;
      const auto own = changed(s, p, t.knob, *t.factor), other = changed(s, r.plan, t.knob, *t.factor);
      const double there = time_of(other->study, r.plan, other->times) / time_of(own->study, p, own->times);
      EXPECT_EQ(there<1, r.ratio> 1) << to_string(t.knob);
      EXPECT_NEAR(there, 1, 0.01) << to_string(t.knob);
    }
  }
}

// Seven users are no whole number of microbatches of any pipeline.
TEST(Explanation, P24UsersThatNoOtherPlanSharesEvenlyAreComparedWithTheNearest) {
  const StrategyId of = plan("pipeline:pp=2,tpa=4,tpf=4,batch=4").strategy;
  Study s = shards();
  s.sweep().search.strategies = {of};
  const Plan p = plan("tensor:tpa=8,tpf=8,batch=7");
  const Rivals rivals = rivals_of(s, p, times_of(s, p));
  EXPECT_FALSE(rivals.equal_users);
  ASSERT_FALSE(rivals.best.empty());
  for (const Rival& r : rivals.best) {
    const long long groups = r.plan.in_flight;
    EXPECT_EQ(r.plan.strategy, of);
    EXPECT_LT(std::abs(r.plan.users() - 7), groups);
    EXPECT_NE(r.plan.users(), 7);
  }
  const Plan even = plan("tensor:tpa=8,tpf=8,batch=8");
  EXPECT_TRUE(rivals_of(s, even, times_of(s, even)).equal_users);
}

TEST(Explanation, P24AnotherSystemIsPricedAsItsOwnScenarioIs) {
  const Study s = shards();
  const Plan p = plan("tensor:tpa=8,tpf=8,batch=8");
  std::size_t unmeasured = 0;
  const auto with = [](const std::vector<std::string>& set) { return shards("calibrated", set); };
  const auto all = purchases_of(s, p, times_of(s, p), {}, shipped_catalogs().systems, with, unmeasured);
  EXPECT_GT(unmeasured, 0u);
  bool seen = false;
  for (const Purchase& b : all) {
    if (b.what != "h100-hgx") continue;
    seen = true;
    ASSERT_TRUE(b.times);
    EXPECT_EQ(b.times->step, time_of(shards("calibrated", {"system=h100-hgx", "gpus=[8]"}), p));
  }
  EXPECT_TRUE(seen);
}

// More memory gives nothing to a plan that it does not hold back, whatever a larger batch would.
TEST(Explanation, P24MoreMemoryIsOfPlansThatItLimits) {
  const Study s = shards();
  const auto with = [](const std::vector<std::string>& set) { return shards("calibrated", set); };
  const Plan few = plan("tensor:tpa=8,tpf=8,batch=2");
  Plan full = few;
  full.batch = largest_batch(s.study, few, 65'536);
  ASSERT_GT(full.batch, few.batch);
  for (const Plan& p : {few, full}) {
    std::size_t unmeasured = 0;
    const auto all = purchases_of(s, p, times_of(s, p), {}, shipped_catalogs().systems, with, unmeasured);
    const auto at = std::find_if(all.begin(), all.end(),
                                 [](const Purchase& b) { return b.key == "device.memory.capacity"; });
    ASSERT_NE(at, all.end());
    EXPECT_EQ(at->times.has_value(), p.batch == full.batch);
    if (at->times) {
      EXPECT_GT(at->plan.batch, full.batch);
    } else {
      EXPECT_EQ(at->why, fmt::format("memory does not limit the batch: {} fit as it is", full.batch));
    }
  }
}

TEST(PlanComparison, RowsOfBothPlansAddUpToTheirSteps) {
  const Study s = shards();
  const Plan a = plan("tensor:tpa=8,tpf=8,batch=8"), b = plan("pipeline:pp=2,tpa=4,tpf=4,batch=4");
  Evaluator x(s.study), y(s.study);
  const PlanComparison c = compare_plans(s, x, y, a, b);
  for (const ComparedAs as : {ComparedAs::part, ComparedAs::basis}) {
    double first = 0, second = 0;
    for (const ComparedRow& r : c.rows) {
      if (r.as != as) continue;
      first += r.first;
      second += r.second;
    }
    EXPECT_NEAR(first / c.first.breakdown.time.value, 1, 1e-9) << to_string(as);
    EXPECT_LE(second, c.second.breakdown.time.value * (1 + 1e-9)) << to_string(as);
  }
  EXPECT_NEAR(c.time_ratio, c.second.breakdown.time / c.first.breakdown.time, 1e-12);
}

TEST(PlanComparison, APlanIsNotToldApartFromItself) {
  const Study s = shards();
  const Plan a = plan("tensor:tpa=8,tpf=8,batch=8");
  Evaluator x(s.study), y(s.study);
  const PlanComparison c = compare_plans(s, x, y, a, a);
  EXPECT_EQ(c.time_ratio, 1);
  EXPECT_NEAR(c.shared.low, 0, 1e-12);
  EXPECT_NEAR(c.shared.high, 0, 1e-12);
  EXPECT_FALSE(c.told_apart(FitErrors::shared));
  EXPECT_FALSE(c.told_apart(FitErrors::unrelated));
}

std::string fault(const std::vector<std::string>& settings) {
  try {
    shards("calibrated", settings);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Settings, StandInPlaceOfTheFilesNumbers) {
  const Study s = shards("calibrated", {"device.memory.bandwidth=2.4 TB/s", "context=64Ki tokens",
                                        "kernels.elementwise=separate"});
  EXPECT_DOUBLE_EQ(s.study.system.device.memory_bandwidth.value, 2.4e12);
  EXPECT_EQ(s.study.longest(), 65536);
  EXPECT_TRUE(s.study.kernels.separate_elementwise);
  EXPECT_THAT(s.title, HasSubstr("with device.memory.bandwidth=2.4 TB/s"));
}

// Its fits are then another machine's: nothing is called measured, and the interval is no narrower.
TEST(Settings, AChangedRateMakesTheFitsThoseOfAnotherMachine) {
  const Plan p = plan("tensor:tpa=8,tpf=8,batch=8");
  const Study as_is = shards(), other = shards("calibrated", {"device.memory.bandwidth=4 TB/s"});
  Evaluator a(as_is.study), b(other.study);
  const Breakdown x = break_down(a, p), y = break_down(b, p);
  const auto measured = static_cast<std::size_t>(Basis::measured);
  EXPECT_GT(x.bases[measured].value, 0);
  EXPECT_EQ(y.bases[measured].value, 0);
  EXPECT_GT(y.time, x.time);
  const ErrorRange narrow = time_error(x.errors), wide = time_error(y.errors);
  EXPECT_GT(wide.high - wide.low, narrow.high - narrow.low);
}

TEST(Settings, FaultsAreLocatedInThem) {
  EXPECT_THAT(fault({"device.memory.bandwith=4 TB/s"}),
              testing::AllOf(HasSubstr("--set:1:15: unknown key device.memory.bandwith"),
                             HasSubstr("did you mean bandwidth?")));
  EXPECT_THAT(fault({"device.memory.bandwidth=4"}),
              HasSubstr("--set:1:25: device.memory.bandwidth: expected"));
  EXPECT_THAT(fault({"bandwidth=4 TB/s"}), HasSubstr("did you mean device.memory.bandwidth"));
  EXPECT_THAT(fault({"contxt=4Ki tokens"}), HasSubstr("did you mean context?"));
  EXPECT_THAT(fault({"batch"}), HasSubstr("--set:1:1: a setting without ="));
  EXPECT_THAT(fault({"batch="}), HasSubstr("a setting without a value"));
  EXPECT_THAT(fault({"batch=[1"}), HasSubstr("--set:1:"));
  EXPECT_THAT(fault({"a..b=1"}), HasSubstr("has an empty name"));
  EXPECT_THAT(fault({"a b=1"}), HasSubstr("--set:1:2: a key of a setting"));
  EXPECT_THAT(fault({"batch=1", "batch=2"}), HasSubstr("batch is set twice"));
  EXPECT_THAT(fault({"context.of=1"}), HasSubstr("context is no mapping that has a key of"));
  // Faults of both files are listed together.
  EXPECT_THAT(fault({"device.memory.bandwidth=4", "batch=zero"}),
              testing::AllOf(HasSubstr("device.memory.bandwidth"), HasSubstr("batch")));
}

}  // namespace
}  // namespace shardline
