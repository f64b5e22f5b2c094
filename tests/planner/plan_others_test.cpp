// What each strategy does at best within a target, held against searches of that strategy alone.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "planner/scenario/shipped.hpp"
#include "planner/studies/plan_answer.hpp"

namespace shardline {
namespace {

PlanAnswer answer(const PlanQuestion& q) {
  return answer_plan(q, shipped_catalogs(), [](std::uint64_t, std::uint64_t) {});
}

PlanQuestion question() {
  PlanQuestion q;
  q.model = "llama-3.1-70b";
  q.system = "h200-hgx";
  q.gpus = 8;
  q.input = 4096;
  q.output = 512;
  q.engine = "vllm";
  q.threads = 2;
  return q;
}

// No strategy is told twice, and all of those that are asked for and can meet are told.
void expect_the_best_of_each(PlanQuestion q) {
  const PlanAnswer a = answer(q);
  ASSERT_TRUE(a.met);
  std::set<StrategyId> shown;
  for (const PlannedPoint& p : a.plans)
    if (p.meets) shown.insert(p.point.plan.strategy);
  std::set<StrategyId> others;
  for (const PlannedPoint& p : a.others) {
    EXPECT_TRUE(p.meets);
    EXPECT_FALSE(shown.contains(p.point.plan.strategy)) << to_string(p.point.plan);
    EXPECT_TRUE(others.insert(p.point.plan.strategy).second) << to_string(p.point.plan);
  }
  for (const StrategyId id : a.study.sweep().search.strategies) {
    q.settings = {"strategies=[" + std::string(to_string(id)) + "]"};
    PlanAnswer alone;
    try {
      alone = answer(q);
    } catch (const UserError&) {  // the engine starts none of these
      EXPECT_FALSE(others.contains(id));
      continue;
    }
    EXPECT_EQ(alone.met, shown.contains(id) || others.contains(id)) << to_string(id);
    if (!alone.met || !others.contains(id)) continue;
    EXPECT_TRUE(alone.others.empty()) << "its plans are shown";
    for (const PlannedPoint& p : a.others)
      if (p.point.plan.strategy == id) {
        EXPECT_EQ(to_string(p.point.plan), to_string(alone.plans.front().point.plan));
        EXPECT_EQ(p.copies, alone.plans.front().copies);
        EXPECT_EQ(a.tokens_per_s_gpu(p), alone.tokens_per_s_gpu(alone.plans.front()));
      }
  }
}

TEST(PlanOthers, OfATimePerToken) {
  PlanQuestion q = question();
  q.ttl = Seconds(0.03);
  expect_the_best_of_each(q);
  EXPECT_FALSE(answer(q).others.empty()) << "the question is such that there are some";
}
TEST(PlanOthers, OfUsers) {
  PlanQuestion q = question();
  q.users = 32;
  expect_the_best_of_each(q);
}
TEST(PlanOthers, OfARate) {
  PlanQuestion q = question();
  q.rate = 2;
  q.ttl = Seconds(0.03);
  expect_the_best_of_each(q);
}
TEST(PlanOthers, OfAPrefill) {
  PlanQuestion q = question();
  q.input = 65536;
  q.output = 0;
  q.ttft = Seconds(10);
  expect_the_best_of_each(q);
}
TEST(PlanOthers, NoneWithoutATarget) { EXPECT_TRUE(answer(question()).others.empty()); }

}  // namespace
}  // namespace shardline
