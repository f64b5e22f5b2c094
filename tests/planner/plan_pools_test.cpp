// Pools of their own for prompts and answers beside the plans of a line: the pair at the target, and what an
// answer is where pools alone meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "planner/scenario/shipped.hpp"
#include "planner/serving/pools.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/simulated_plan.hpp"

namespace shardline {
namespace {

PlanQuestion question() {
  PlanQuestion q;
  q.model = "llama-3.1-8b";
  q.system = "h100-hgx";
  q.gpus = 8;
  q.input = 8192;
  q.output = 512;
  q.threads = 2;
  return q;
}

PlanAnswer answer(const PlanQuestion& q) {
  return answer_plan(q, shipped_catalogs(), [](std::uint64_t, std::uint64_t) {});
}

// Of every plan that decodes the best pair in whole replicas that meets the target, whichever budgets there
// are.
std::optional<double> most_of_pairs(const PlanAnswer& a) {
  std::optional<double> most;
  for (PoolPair& p : pool_pairs(a.study, 2)) {
    if (p.decode.time > a.asked.most_time) continue;
    fit_whole(a.study, p);
    if (p.whole.gpus == 0 || p.whole.gpus > most_pool_gpus(a.study)) continue;
    if (!most || p.whole_output_per_s_gpu > *most) most = p.whole_output_per_s_gpu;
  }
  return most;
}

// At targets between the budgets that start from the fastest pair, too. Ratios of pools, by which a pair is
// chosen for each budget, are not those of whole replicas: these may answer less by the last replica.
TEST(PlanPools, ThePairIsThatOfTheTarget) {
  int found = 0;
  for (const double ms : {4.5, 5.5, 6.5, 8.0, 10.5, 13.0, 17.0, 23.0, 31.0}) {
    PlanQuestion q = question();
    q.ttl = Seconds(ms / 1e3);
    const PlanAnswer a = answer(q);
    const std::optional<double> most = most_of_pairs(a);
    ASSERT_EQ(a.pools.has_value(), most.has_value()) << ms;
    if (!most) continue;
    ++found;
    EXPECT_LE(a.pools->decode.time, q.ttl);
    EXPECT_GE(a.pools->whole_output_per_s_gpu, 0.85 * *most) << ms;
  }
  EXPECT_GE(found, 6);
}

// Prompts of others take a large part of each step: apart from them the same GPUs are fast enough.
TEST(PlanPools, PoolsAloneMayMeetATarget) {
  PlanQuestion q = question();
  q.input = 32768;
  q.gpus = 4;
  q.users = 8;
  bool only_pools = false;
  for (double ms = 6; ms < 16 && !only_pools; ms += 0.5) {
    q.ttl = Seconds(ms / 1e3);
    const PlanAnswer a = answer(q);
    if (!a.pools) continue;
    EXPECT_LE(a.pools->decode.time, q.ttl);
    EXPECT_GE(users_of(*a.pools), q.users);
    only_pools = !a.met;
  }
  EXPECT_TRUE(only_pools);
}

// The batch of a row is that of all its users: asked for by itself it is the same row.
TEST(PlanPools, APlanOfTheAnswerAskedForAgainIsTheSame) {
  PlanQuestion q = question();
  q.gpus = 1;
  q.input = 65536;
  q.users = 32;
  const PlanAnswer a = answer(q);
  ASSERT_FALSE(a.plans.empty());
  const Point& p = a.plans.front().point;
  ASSERT_GT(p.waiting, 0);
  Evaluator evaluator(a.study.study, a.study.sweep().search.all_reduce);
  const SimulatedPlan again = simulate_plan(a.study, evaluator, parse_plan(to_string(p.asked())));
  ASSERT_TRUE(again.served);
  EXPECT_EQ(p.asked().users(), 32);
  EXPECT_DOUBLE_EQ(again.served->served.ttft.value, p.ttft.value);
  EXPECT_DOUBLE_EQ(again.served->served.tpot.value, p.time.value);
}

}  // namespace
}  // namespace shardline
