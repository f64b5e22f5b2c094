// Copies of a plan, the users that a rate keeps busy, and the batches between those of the scenario: held
// against sweeps of every batch.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "planner/scenario/shipped.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/plan_load.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

PlanQuestion question(int gpus) {
  PlanQuestion q;
  q.model = "llama-3.1-8b";
  q.system = "h100-hgx";
  q.gpus = gpus;
  q.input = 8192;
  q.output = 512;
  q.engine = "vllm";
  q.threads = 2;
  return q;
}

PlanAnswer answer(const PlanQuestion& q) {
  return answer_plan(q, shipped_catalogs(), [](std::uint64_t, std::uint64_t) {});
}

// Every plan with every batch to `most`, nothing left out by a bound.
std::vector<Point> every_batch(const PlanAnswer& a, int most, const std::vector<int>& gpus) {
  Study study = a.study;
  SearchOptions& o = study.sweep().search;
  o.gpus = gpus;
  o.users.clear();
  o.batches.resize(static_cast<std::size_t>(most));
  std::iota(o.batches.begin(), o.batches.end(), 1);
  o.keep_all = true;
  o.prune = false;
  o.threads = 2;
  return search(study.study, o).all;
}

double tokens_per_s_gpu(const PlanAnswer& a, const Point& p) {
  return decode_metrics(a.study.study, p.time, p.plan, p.decoding).tokens_per_s_gpu;
}

bool within(const PlanAnswer& a, const Point& p) {
  return (!(a.asked.most_time > Seconds(0)) || p.time <= a.asked.most_time) &&
         (!(a.asked.most_ttft > Seconds(0)) || p.ttft <= a.asked.most_ttft);
}

// Copies, their shares of the users and the plans that are shown are of the GPUs that a setting names.
TEST(PlanCopies, SetGpusAreThoseOfEveryCopy) {
  PlanQuestion q = question(8);
  q.users = 7;
  q.settings = {"gpus=[2]"};
  const PlanAnswer a = answer(q);
  ASSERT_FALSE(a.plans.empty());
  for (const PlannedPoint& p : a.plans) {
    EXPECT_EQ(p.point.plan.gpus(), 2) << to_string(p.point.plan);
    EXPECT_EQ(p.copies, 4);
  }
  EXPECT_EQ(a.study.sweep().search.users, (std::vector<int>{2}));
  EXPECT_THAT(a.scenario, HasSubstr("gpus: [2]"));
  q.settings = {"gpus=[2, 16]"};
  EXPECT_THROW(answer(q), UserError);
}

TEST(LargestThatMeets, IsTheLastBelowTheFirstThatDoesNot) {
  for (int most = 1; most <= 40; ++most) {
    for (int last = 0; last <= most; ++last)
      EXPECT_EQ(largest_that_meets(most, [&](int n) { return n <= last; }), last) << most;
  }
}

// No batch of any plan that meets the target answers more per GPU than the first plan, to the last user.
TEST(PlanCopies, NoBatchOfAnyPlanIsBetterWithinTheTarget) {
  for (const double ttl : {0.0065, 0.010, 0.0137, 0.030}) {
    for (const double ttft : {0.0, 0.7}) {
      for (const char* engine : {"vllm", "ideal"}) {
        const bool ideal = std::string(engine) == "ideal";
        if (ideal && ttft > 0) continue;
        SCOPED_TRACE(fmt::format("{} {} {}", engine, ttl, ttft));
        PlanQuestion q = question(4);
        q.engine = engine;
        q.ttl = Seconds(ttl);
        q.ttft = Seconds(ttft);
        const PlanAnswer a = answer(q);
        double best = 0;
        for (const Point& p : every_batch(a, 200, a.defaults.gpus)) {
          if (within(a, p) && p.plan.batch < 200) best = std::max(best, tokens_per_s_gpu(a, p));
        }
        ASSERT_EQ(a.met, best > 0);
        if (!a.met || a.plans[0].point.plan.batch >= 200) continue;
        EXPECT_TRUE(within(a, a.plans[0].point));
        EXPECT_NEAR(a.tokens_per_s_gpu(a.plans[0]) / best, 1, 1e-9);
      }
    }
  }
}

// The scenario names the batches that were found.
TEST(PlanCopies, TheScenarioHasTheBatchThatMeetsTheTarget) {
  PlanQuestion q = question(1);
  q.ttl = Seconds(0.0137);
  const PlanAnswer a = answer(q);
  ASSERT_TRUE(a.met);
  const int batch = a.plans[0].point.plan.batch;
  const auto graphs = a.study.study.engine->graphs;
  EXPECT_FALSE(std::binary_search(graphs.begin(), graphs.end(), batch)) << "the target is at a graph's batch";
  EXPECT_THAT(a.defaults.batches, ::testing::Contains(batch));
  PlanLoad load(a.study);
  const auto next = load.at(sharding_of(a.plans[0].point.plan), batch + 1);
  ASSERT_TRUE(next);
  EXPECT_GT(next->time, q.ttl);
}

TEST(PlanCopies, FillTheGpusAndShareTheUsers) {
  for (const int gpus : {2, 3, 4}) {
    PlanQuestion q = question(gpus);
    q.any_gpus = true;
    q.users = 12;
    const PlanAnswer a = answer(q);
    ASSERT_TRUE(a.met);
    for (const PlannedPoint& p : a.plans) {
      const int each = p.point.plan.gpus();
      EXPECT_EQ(p.copies, gpus / each);
      EXPECT_EQ(p.point.plan.users() + p.point.all_waiting(), (12 + p.copies - 1) / p.copies);
      EXPECT_EQ(a.users_of(p), 12);
      EXPECT_NEAR(a.tokens_per_s_gpu(p) * gpus,
                  tokens_per_s_gpu(a, p.point) * each * static_cast<double>(p.copies), 1e-9);
    }
    // By brute force: of each number of GPUs its share of the users, the plan that answers most on all.
    double best = 0;
    for (const int each : a.defaults.gpus) {
      const int copies = gpus / each, users = (12 + copies - 1) / copies;
      for (const Point& p : every_batch(a, users, {each})) {
        if (p.plan.users() == users && p.waiting == 0)
          best = std::max(best, tokens_per_s_gpu(a, p) * each * copies / gpus);
      }
    }
    EXPECT_NEAR(a.tokens_per_s_gpu(a.plans[0]) / best, 1, 1e-9);
  }
}

// One user takes one copy, and five of them on four copies are five, not eight: no users are counted who did
// not ask.
TEST(PlanCopies, NoMoreUsersThanAskAreCounted) {
  for (const int users : {1, 3, 5, 7}) {
    PlanQuestion q = question(4);
    q.users = users;
    const PlanAnswer a = answer(q);
    SCOPED_TRACE(users);
    ASSERT_TRUE(a.met);
    double best = 0;
    for (const int each : a.defaults.gpus) {
      const int most = 4 / each, share = (users + most - 1) / most;
      for (const Point& p : every_batch(a, share, {each})) {
        if (p.plan.users() == share && p.waiting == 0)
          best = std::max(best, tokens_per_s_gpu(a, p) * each * users / share / 4);
      }
    }
    EXPECT_NEAR(a.tokens_per_s_gpu(a.plans[0]) / best, 1, 1e-9);
    for (const PlannedPoint& p : a.plans) {
      const int most = 4 / p.point.plan.gpus(), share = (users + most - 1) / most;
      EXPECT_EQ(p.point.plan.users(), share);
      EXPECT_EQ(p.copies, (users + share - 1) / share);
      EXPECT_EQ(a.users_of(p), users);
      EXPECT_LE(a.tokens_per_s_gpu(p), best * (1 + 1e-9));
      EXPECT_NEAR(a.requests_per_s(p) * static_cast<double>(q.output), a.tokens_per_s_gpu(p) * 4, 1e-9);
    }
  }
}

// A plan whose copies leave GPUs idle is worth what it answers on all of them.
TEST(PlanCopies, IdleGpusCount) {
  PlanQuestion q = question(3);
  q.ttl = Seconds(0.010);
  const PlanAnswer a = answer(q);
  ASSERT_TRUE(a.met);
  EXPECT_TRUE(a.by_copies);
  double best = 0;
  for (const int each : a.defaults.gpus) {
    for (const Point& p : every_batch(a, 100, {each})) {
      if (within(a, p)) best = std::max(best, tokens_per_s_gpu(a, p) * each * (3 / each) / 3);
    }
  }
  EXPECT_NEAR(a.tokens_per_s_gpu(a.plans[0]) / best, 1, 1e-9);
}

// [P19] Little's law over the loop, the fewest GPUs by brute force over batches.
TEST(PlanCopies, CarryARate) {
  for (const double rate : {0.5, 3.0, 9.0}) {
    for (const double ttl : {0.0, 0.010}) {
      SCOPED_TRACE(fmt::format("{} {}", rate, ttl));
      PlanQuestion q = question(8);
      q.rate = rate;
      q.ttl = Seconds(ttl);
      const PlanAnswer a = answer(q);
      PlanAnswer endless = a;  // of a stream that has no beginning
      endless.study.sweep().search.workload->rounds = 0;
      int fewest = 1 << 20;
      for (const Point& p : every_batch(endless, 128, a.defaults.gpus)) {
        if (!within(a, p)) continue;
        const int each = p.plan.gpus();
        const double one = tokens_per_s_gpu(a, p) * each / static_cast<double>(q.output);
        const int copies = static_cast<int>(std::ceil(rate / one - 1e-9));
        if (copies * each <= 8) fewest = std::min(fewest, copies * each);
      }
      ASSERT_EQ(a.met, fewest <= 8);
      if (!a.met) continue;
      EXPECT_EQ(a.gpus_of(a.plans[0]), fewest);
      for (const PlannedPoint& p : a.plans) {
        if (!p.meets) continue;
        EXPECT_TRUE(within(a, p.point));
        EXPECT_GE(p.most_per_s, rate * (1 - 1e-9));
        EXPECT_GE(p.limit_per_s, p.most_per_s);
        EXPECT_GE(a.requests_per_s(p), rate * (1 - 1e-9));
        const double answer_time =
            p.point.ttft.value + p.point.time.value * static_cast<double>(q.output - 1);
        EXPECT_NEAR(a.users_of(p) / (rate * answer_time), 1, 1e-6);
        EXPECT_NEAR(a.tokens_per_s_gpu(p) * a.gpus_of(p) / (rate * static_cast<double>(q.output)), 1, 1e-9);
        // With one user less in each group it is not carried.
        const int users = p.point.plan.batch + p.point.waiting;
        if (users == 1) continue;
        PlanLoad load(endless.study);
        const auto fewer = load.at(sharding_of(p.point.plan), users - 1);
        ASSERT_TRUE(fewer);
        EXPECT_LT(load.requests_per_s(*fewer) * static_cast<double>(p.copies), rate);
      }
    }
  }
}

// By how much a point misses what was asked for, written down a second time.
double largest_miss(const PlanAnswer& a, const Point& p) {
  double out = 0;
  if (a.question.ttl.value > 0) out = std::max(out, p.time.value / a.question.ttl.value - 1);
  if (a.question.ttft.value > 0) out = std::max(out, p.ttft.value / a.question.ttft.value - 1);
  return out;
}

// The least miss of all plans of all batches, on each number of GPUs with its share of the users.
double least_miss(const PlanAnswer& a, int gpus, long long users) {
  double least = HUGE_VAL;
  for (const int each : a.defaults.gpus) {
    const int copies = gpus / each, share = static_cast<int>((users + copies - 1) / copies);
    for (const Point& p : every_batch(a, users > 0 ? share : 8, {each})) {
      if (users == 0 || p.plan.users() + p.all_waiting() == share)
        least = std::min(least, largest_miss(a, p));
    }
  }
  return least;
}

// The nearest is what misses least by the TPOT and the TTFT that the table shows, and the others follow by
// the same: random targets against every batch of every plan. Where one meets it, it is found though no plan
// of the frontier of TPOT and tokens/s does.
TEST(PlanCopies, TheNearestMissesLeastByTheTimesShown) {
  std::mt19937_64 rng(20);
  const auto log_uniform = [&](double low, double high) {
    return low * std::exp(std::uniform_real_distribution<double>(0, std::log(high / low))(rng));
  };
  int missed = 0, met = 0;
  for (int i = 0; i < 24; ++i) {
    const int gpus = i % 2 == 0 ? 2 : 4;
    PlanQuestion q = question(gpus);
    q.engine = i % 3 == 0 ? "sglang" : "vllm";
    if (i % 4 != 3) q.users = 1LL << (i % 6);
    if (i % 3 != 2) q.ttl = Seconds(log_uniform(0.003, 0.02));
    q.ttft = Seconds(log_uniform(0.1, 3));
    const PlanAnswer a = answer(q);
    SCOPED_TRACE(fmt::format("{}: {} GPUs {} users, TPOT {} TTFT {}, {}", i, gpus, q.users, to_string(q.ttl),
                             to_string(q.ttft), q.engine));
    const double least = least_miss(a, gpus, q.users);
    EXPECT_EQ(a.met, least == 0);
    (a.met ? met : missed) += 1;
    ASSERT_FALSE(a.plans.empty());
    double last = 0;
    for (const PlannedPoint& p : a.plans) {
      const double part = largest_miss(a, p.point);
      EXPECT_EQ(p.meets, part == 0);
      EXPECT_GE(part, last);
      EXPECT_DOUBLE_EQ(miss_of(a, p.point).part, part);
      last = part;
    }
    if (!a.met) {
      EXPECT_NEAR(largest_miss(a, a.plans[0].point), least, 1e-9);
    }
  }
  EXPECT_GT(missed, 5);
  EXPECT_GT(met, 5);
}

// Of 16 users on one copy of two GPUs; of eight users on each of two copies memory has room for two.
TEST(PlanCopies, AQueueForMemoryIsNotTheNearest) {
  PlanQuestion q = question(2);
  q.model = "llama-3.1-70b";
  q.system = "h200-hgx";
  q.engine = "trtllm";
  q.output = 1024;
  q.users = 16;
  q.ttft = Seconds(1);
  const PlanAnswer a = answer(q);
  ASSERT_FALSE(a.met);
  ASSERT_GE(a.plans.size(), 2u);
  EXPECT_EQ(a.plans[0].point.plan.gpus(), 2);
  EXPECT_EQ(a.plans[0].point.all_waiting(), 0);
  EXPECT_LT(a.plans[0].point.ttft, Seconds(2));
  EXPECT_GT(a.plans[1].point.ttft, Seconds(100));
}

TEST(PlanCopies, SaturationIsSaid) {
  PlanQuestion q = question(2);
  q.rate = 1000;
  const PlanAnswer a = answer(q);
  EXPECT_FALSE(a.met);
  ASSERT_FALSE(a.plans.empty());
  EXPECT_LT(a.plans[0].limit_per_s, 1000);
  EXPECT_NEAR(a.plans[0].most_per_s / a.plans[0].limit_per_s, 1, 0.02);  // without a target they are the same
  q.rate = 4 * a.plans[0].most_per_s;
  const PlanAnswer more = answer(q);
  EXPECT_FALSE(more.met);
  ASSERT_TRUE(more.wider);
  EXPECT_GE(more.wider->best.most_per_s, q.rate * (1 - 1e-9));
  EXPECT_GT(more.wider->gpus, 2);
  // More than all GPUs of the system carry: no number of them that it has is an answer.
  q.rate = 1e4 * a.plans[0].most_per_s;
  q.ttl = Seconds(0.04);
  const PlanAnswer beyond = answer(q);
  EXPECT_FALSE(beyond.met);
  EXPECT_FALSE(beyond.wider);
}

}  // namespace
}  // namespace shardline
