// planner/serving/plan_steps: times of steps against whole lowerings of random batches.
#include "planner/serving/plan_steps.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "planner/scenario/shipped.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/simulated_plan.hpp"

namespace shardline {
namespace {

struct Served {
  std::string model, system, plan, engine;
  int gpus = 8;
};

// Of every strategy whose steps decode and prefill; dense and routed layers, windows, latents.
const std::vector<Served> kServed{
    {"llama-3.1-70b", "h200-hgx", "tensor:tpa=8,tpf=8", "vllm"},
    {"llama-3.1-70b", "h200-hgx", "tensor:tpa=8,tpf=8", "ideal"},
    {"gpt-oss-120b", "h100-hgx", "tensor:tpa=2,tpf=2", "vllm"},
    {"deepseek-r1", "h200-hgx", "dcp:tpa=8,ep=8,dcp=8", "vllm"},
    {"deepseek-r1", "h200-hgx", "dp_ep:dp=8,ep=8", "vllm"},
    {"llama-3.1-70b", "h200-hgx", "pipeline:pp=2,tpa=4,tpf=4,in_flight=2", "vllm"},
    {"llama-3.1-405b", "gb200-nvl72", "helix:kvp=8,tpa=8,tpf=64", "trtllm", 64},
    {"deepseek-v4-flash", "h200-hgx", "tensor:tpa=8,ep=8", "vllm"},
};

std::unique_ptr<PlanStepTimes> times_of(const Served& s) {
  PlanQuestion q;
  q.model = s.model;
  q.system = s.system;
  q.gpus = s.gpus;
  q.input = 8192;
  q.output = 1024;
  q.engine = s.engine;
  const PlanAnswer a = asked_plan(q, shipped_catalogs());
  return std::make_unique<PlanStepTimes>(a.study.study, possible_plan(a.study, s.plan),
                                         a.study.sweep().search.all_reduce);
}

// A time that jumps where keys begin to be chosen cuts cells until they are smallest.
TEST(PlanSteps, R7OneRequestAloneHasATimeAtEveryLength) {
  for (const char* plan : {"tensor:tpa=8,ep=8", "dp_ep:dp=8,ep=8"}) {
    const auto times = times_of({"deepseek-v3.2", "h200-hgx", plan, "vllm"});
    double before = 0;
    for (std::uint32_t cached = 1; cached < 131'000; cached += 1 + cached / 97) {
      StepBatch one;
      one.decodes = 1;
      one.cached = one.longest = cached;
      const double time = times->of(one).value;
      ASSERT_TRUE(std::isfinite(time) && time > 0) << plan << " " << cached;
      if (before > 0) {
        EXPECT_LT(std::abs(time / before - 1), 0.5) << plan << " " << cached;
      }
      before = time;
    }
  }
}

// A step, and the batch that it is in truth.
struct Drawn {
  StepBatch step;
  Batch batch;
};

class Batches {
 public:
  explicit Batches(std::uint64_t seed) : random_(seed) {}

  // Lengths about a mean, by a lognormal of random width, as requests of a trace have them.
  void decodes(Drawn& d) {
    const auto requests = static_cast<int>(between(1, 1000));
    const double mean = between(64, 65536), width = unit_(random_);
    for (int i = 0; i < requests; ++i) {
      const double tokens = mean * std::exp(width * normal_(random_));
      const auto cached = static_cast<std::uint32_t>(std::clamp(tokens, 1.0, 131'000.0));
      d.batch.decode.push_back({cached, 1, 1});
      ++d.step.decodes;
      d.step.cached += cached;
      d.step.longest = std::max(d.step.longest, cached);
    }
  }
  void prompts(Drawn& d) {
    const auto count = static_cast<int>(between(1, 8));
    for (int i = 0; i < count; ++i) {
      const auto tokens = static_cast<std::uint32_t>(between(1, 8192.0 / count));
      const auto past = random_() % 2 == 0 ? 0 : static_cast<std::uint32_t>(between(1, 60'000));
      d.batch.prefill.push_back({past, tokens, 1});
      d.step.prompts.push_back({tokens, past});
    }
  }

 private:
  double between(double low, double high) { return low * std::pow(high / low, unit_(random_)); }
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> unit_{0, 1};
  std::normal_distribution<double> normal_;
};

// 300 batches of each strategy; with SHARDLINE_WHOLE=1, as the long test runs it, 10,000.
TEST(PlanSteps, R6AsWholeLoweringsOfRandomBatches) {
  const int count = std::getenv("SHARDLINE_WHOLE") != nullptr ? 10'000 : 300;
  for (const Served& served : kServed) {
    const auto times = times_of(served);
    Batches random(1);
    std::vector<double> errors;
    for (int i = 0; i < count; ++i) {
      Drawn d;
      if (i % 3 != 1) random.decodes(d);
      if (i % 3 != 0) random.prompts(d);
      errors.push_back(std::abs(times->of(d.step) / times->lowered(d.batch) - 1));
    }
    std::sort(errors.begin(), errors.end());
    const std::string what = served.model + " " + served.plan + " of " + served.engine;
    EXPECT_LE(errors[errors.size() / 2], 1e-3) << what;
    EXPECT_LE(errors.back(), 1e-2) << what;
    // A step without prompts is on a line between lowerings: some differ.
    EXPECT_GT(errors.back(), 1e-6) << what;
  }
}

// The error that is stored holds for batches like those that are lowered, from short contexts on.
TEST(PlanSteps, R6StoredErrorHoldsForAlikeBatches) {
  const auto times = times_of(kServed.front());
  std::mt19937_64 random(2);
  double worst = 0;
  for (int i = 0; i < 2000; ++i) {
    StepBatch step;
    step.decodes = static_cast<std::uint32_t>(1 + random() % 64);
    step.longest = static_cast<std::uint32_t>(64 + random() % 30'000);
    step.cached = step.longest + (step.decodes - 1) * (1 + random() % step.longest);
    worst = std::max(worst, std::abs(times->of(step) / times->lowered(PlanStepTimes::batch_of(step)) - 1));
  }
  EXPECT_GT(times->effort().cells, 10u);
  EXPECT_LE(times->effort().largest_error, PlanStepTimes::kMostError);
  EXPECT_LE(worst, 1.5 * PlanStepTimes::kMostError);
}

// What is lowered has as many requests and tokens as the step.
TEST(PlanSteps, R6LoweredBatchHasTheTokensOfTheStep) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    StepBatch step;
    for (std::uint64_t n = 1 + random() % 40; n > 0; --n) {
      const auto cached = static_cast<std::uint32_t>(1 + random() % 1000);
      ++step.decodes;
      step.cached += cached;
      step.longest = std::max(step.longest, cached);
    }
    step.prompts = {{5, 7}, {6, 7}, {5, 7}};
    const Batch batch = PlanStepTimes::batch_of(step);
    std::uint64_t cached = 0, longest = 0;
    for (const Segment& s : batch.decode) {
      cached += static_cast<std::uint64_t>(s.cached * s.count);
      longest = std::max(longest, static_cast<std::uint64_t>(s.cached));
    }
    EXPECT_EQ(requests_in(batch.decode), step.decodes);
    EXPECT_EQ(cached, step.cached);
    EXPECT_EQ(longest, step.longest);
    EXPECT_EQ(batch.prefill, (std::vector<Segment>{{7, 5, 2}, {7, 6, 1}}));
  }
}

// A stretch is a line: each of its steps, asked for by itself, lies on it.
TEST(PlanSteps, R6StretchesAreTheirSteps) {
  const auto times = times_of(kServed[2]);
  std::mt19937_64 random(4);
  for (int i = 0; i < 200; ++i) {
    StepBatch step;
    step.decodes = static_cast<std::uint32_t>(1 + random() % 50);
    step.longest = static_cast<std::uint32_t>(16 + random() % 5000);
    step.cached = step.longest + (step.decodes - 1) * (1 + random() % step.longest);
    const DecodeStretch line = times->decode(step);
    ASSERT_GE(line.steps, 1u);
    for (const std::uint64_t k : {line.steps / 2, line.steps - 1}) {
      StepBatch later = step;
      later.cached += k * step.decodes;
      later.longest += static_cast<std::uint32_t>(k);
      const double on_line = (line.start + line.slope * static_cast<double>(k)).value;
      EXPECT_NEAR(times->of(later).value / on_line, 1, 1e-12);
    }
  }
}

}  // namespace
}  // namespace shardline
