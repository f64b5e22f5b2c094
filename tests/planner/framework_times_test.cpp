// A plan by every framework's kernels [P16], and what that does to its interval.
#include "planner/search/framework_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hardware/machine/frameworks.hpp"
#include "planner/plan/plan.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/provenance.hpp"
#include "planner/studies/plan_intervals.hpp"
#include "planner/studies/told_apart.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

constexpr const char* kPlan = "tensor:tpa=2,tpf=2,batch=4";

Case open_case(const char* system = "h200-hgx") {
  Case c = decode_case("llama-3.1-8b", system, 32'768);
  c.precision = all_bf16();
  c.frameworks = std::make_shared<const MeasuredFrameworks>(source_path("hardware/catalog"));
  return c;
}

Case named(Case c, const std::string& framework) {
  use_framework(c.system, framework, source_path("hardware/catalog"));
  return c;
}

std::vector<FrameworkTime> others(const Case& c, const char* plan = kPlan) {
  Evaluator e(c);
  return e.by_other_frameworks(parse_plan(plan));
}

// Each is what the question would get that names it, also on a machine with another bandwidth.
TEST(FrameworkTimes, P16AreTheTimesByEveryFrameworksKernels) {
  for (const double bandwidth : {1.0, 0.5}) {
    Case c = open_case();
    c.system.device.memory_bandwidth = c.system.device.memory_bandwidth * bandwidth;
    const auto all = others(c);
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].framework, "sglang");
    EXPECT_EQ(all[1].framework, "vllm");
    EXPECT_EQ(c.frameworks->names(c.system), (std::vector<std::string>{"sglang", "vllm"}));
    for (const FrameworkTime& f : all) {
      const Case of_it = named(c, f.framework);
      Evaluator e(of_it), own(c);
      EXPECT_EQ(e.simulate(parse_plan(kPlan)), f.time) << f.framework;
      EXPECT_NE(own.simulate(parse_plan(kPlan)), f.time) << f.framework;
      EXPECT_TRUE(others(of_it).empty());
      EXPECT_TRUE(of_it.frameworks->names(of_it.system).empty());
    }
    EXPECT_NE(all[0].time, all[1].time);
  }
}

// Callers change a case from plan to plan, as a conversation does: its times are of the case as it is.
TEST(FrameworkTimes, P16AreOfTheCaseAsItIs) {
  Case c = open_case();
  Evaluator e(c);
  const auto before = e.by_other_frameworks(parse_plan(kPlan));
  c.batch = decode_batch(100'000);
  const auto after = e.by_other_frameworks(parse_plan(kPlan)), anew = others(c);
  ASSERT_EQ(after.size(), anew.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].time, anew[i].time);
    EXPECT_GT(after[i].time, before[i].time);
  }
}

TEST(FrameworkTimes, P16NothingWithoutACalibrationOrWithoutFrameworks) {
  EXPECT_TRUE(others(open_case("h100-gti")).empty());
  Case alone = open_case();
  alone.frameworks = nullptr;
  EXPECT_TRUE(others(alone).empty());
}

// The interval of a plan whose framework nobody names holds the time by each; a plan whose framework is named
// has the interval of that framework's prices, as without the others.
TEST(FrameworkTimes, P16IntervalsHoldTheTimesByEveryFramework) {
  for (const char* model : {"llama-3.1-8b", "deepseek-r1", "gpt-oss-120b"}) {
    for (const char* system : {"h100-hgx", "h200-hgx", "gb200-nvl72"}) {
      Case c = decode_case(model, system, 32'768);
      c.precision = all_bf16();
      Case closed = c;
      c.frameworks = open_case().frameworks;
      const Plan plan = parse_plan("tensor:tpa=8,tpf=8,batch=16");
      Evaluator open(c), alone(closed);
      const Breakdown b = break_down(open, plan), bare = break_down(alone, plan);
      EXPECT_EQ(b.time, bare.time);
      const ErrorRange wide = time_error(b.errors), narrow = time_error(bare.errors);
      EXPECT_LE(wide.low, narrow.low);
      EXPECT_GE(wide.high, narrow.high);
      ASSERT_EQ(b.others.size(), 2u) << model << " on " << system;
      EXPECT_TRUE(bare.errors.libraries().empty());
      double bias = 0;  // of the framework's own prices, which moves the whole interval
      for (const ErrorTerm& t : b.errors.all()) bias += t.middle;
      for (const FrameworkTime& f : b.others) {
        EXPECT_GE(f.time / b.time + bias, 1 + wide.low) << model << system << f.framework;
        EXPECT_LE(f.time / b.time + bias, 1 + wide.high) << model << system << f.framework;
      }
      EXPECT_EQ(rating_of(open, plan).errors, b.errors);
    }
  }
}

// Whoever runs one of two plans runs the other by the same kernels: of a plan and itself nothing is open, of
// two plans the ratio by each framework.
TEST(FrameworkTimes, P16RatiosAreByOneFrameworkAtATime) {
  const Case c = open_case();
  Evaluator e(c);
  const Breakdown a = break_down(e, parse_plan("tensor:tpa=1,tpf=1,batch=1")),
                  b = break_down(e, parse_plan("tensor:tpa=8,tpf=8,batch=64"));
  for (const FitErrors errors : {FitErrors::shared, FitErrors::unrelated}) {
    const auto of_frameworks = [&](const ErrorTerms& x, const ErrorTerms& y) {
      ErrorTerms p, q;
      p.set_libraries({x.libraries().begin(), x.libraries().end()});
      q.set_libraries({y.libraries().begin(), y.libraries().end()});
      return ratio_band(p, q, errors);
    };
    const ErrorBand same = of_frameworks(a.errors, a.errors), band = of_frameworks(a.errors, b.errors);
    EXPECT_EQ(same.low, 0);
    EXPECT_EQ(same.high, 0);
    double low = 0, high = 0;
    for (std::size_t f = 0; f < a.others.size(); ++f) {
      const double log = std::log((a.others[f].time / b.others[f].time) / (a.time / b.time));
      low = std::min(low, log);
      high = std::max(high, log);
    }
    EXPECT_GT(high - low, 0.01);
    EXPECT_NEAR(band.low, low, 1e-12);
    EXPECT_NEAR(band.high, high, 1e-12);
  }
}

TEST(FrameworkTimes, P16WhatIntervalsAreSaysWhoseKernelsAreOpen) {
  const Case c = open_case();
  EXPECT_NE(what_intervals_are(c).find("of trtllm, sglang or vllm (none is named)"), std::string::npos)
      << what_intervals_are(c);
  EXPECT_EQ(what_intervals_are(named(c, "sglang")), kWhatIntervalsAre);
  EXPECT_EQ(what_intervals_are(open_case("h100-gti")), kWhatIntervalsAre);
}

}  // namespace
}  // namespace shardline
