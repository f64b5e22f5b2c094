// The fewest GPUs that serve users within a target, held against questions of each number of GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/scenario/shipped.hpp"
#include "planner/studies/plan_answer.hpp"

namespace shardline {
namespace {

PlanAnswer answer(const PlanQuestion& q) {
  return answer_plan(q, shipped_catalogs(), [](std::uint64_t, std::uint64_t) {});
}

PlanQuestion question(long long users, double ttl) {
  PlanQuestion q;
  q.model = "llama-3.1-70b";
  q.system = "h200-hgx";
  q.gpus = 8;
  q.input = 8192;
  q.output = 512;
  q.users = users;
  q.ttl = Seconds(ttl);
  q.engine = "vllm";
  q.threads = 2;
  return q;
}

bool serves_all(const PlannedPoint& p) { return p.meets && p.point.all_waiting() == 0; }

int taken(const PlannedPoint& p) { return static_cast<int>(p.copies) * p.point.plan.gpus(); }

// Asked of every number of GPUs alone, the first that serves all users is the one that is told; where that is
// a row's, nothing is.
void expect_the_fewest(const PlanQuestion& q) {
  const PlanAnswer a = answer(q);
  ASSERT_TRUE(a.met);
  int least_row = q.gpus;
  for (const PlannedPoint& p : a.plans)
    if (p.meets) least_row = std::min(least_row, taken(p));
  int fewest = 0;
  for (int gpus = 1; fewest == 0 && gpus <= q.gpus; ++gpus) {
    PlanQuestion less = q;
    less.gpus = gpus;
    for (const PlannedPoint& p : answer(less).plans)
      if (serves_all(p)) fewest = fewest == 0 ? taken(p) : std::min(fewest, taken(p));
  }
  ASSERT_EQ(a.fewer.has_value(), fewest < least_row) << fewest << " of " << least_row;
  if (!a.fewer) return;
  EXPECT_EQ(a.fewer->gpus, fewest);
  EXPECT_EQ(taken(a.fewer->best), fewest);
  EXPECT_TRUE(serves_all(a.fewer->best));
  EXPECT_LE(a.fewer->best.point.time, q.ttl > Seconds(0) ? q.ttl : a.fewer->best.point.time);
  PlanQuestion same = q;
  same.gpus = fewest;
  const PlanAnswer there = answer(same);
  EXPECT_EQ(to_string(a.fewer->best.point.plan), to_string(there.plans.front().point.plan));
  EXPECT_NEAR(a.fewer->tokens_per_s_gpu, there.tokens_per_s_gpu(there.plans.front()),
              1e-9 * a.fewer->tokens_per_s_gpu);
}

TEST(PlanFewer, OfATarget) {
  expect_the_fewest(question(16, 0.04));
  EXPECT_TRUE(answer(question(16, 0.04)).fewer) << "the question is such that there are fewer";
}
TEST(PlanFewer, OfATightTarget) {
  expect_the_fewest(question(16, 0.02));
  EXPECT_FALSE(answer(question(16, 0.02)).fewer) << "eight GPUs are needed";
}
TEST(PlanFewer, OfUsersAlone) { expect_the_fewest(question(9, 0)); }
TEST(PlanFewer, OfOneUser) { expect_the_fewest(question(1, 0.03)); }
// Most users of one GPU would wait, which no target of TPOT sees.
TEST(PlanFewer, WhoseUsersDoNotWait) { expect_the_fewest(question(200, 0.2)); }

// One GPU has room for one user and gives that one the shortest TPOT, which is no near miss of 64.
TEST(PlanFewer, NearMissesServeAllUsers) {
  PlanQuestion q = question(64, 0.025);
  q.engine = "trtllm";
  const PlanAnswer a = answer(q);
  ASSERT_FALSE(a.met);
  bool waited = false;
  for (const PlannedPoint& p : a.plans) {
    EXPECT_FALSE(waited && p.point.all_waiting() == 0) << to_string(p.point.plan);
    waited = waited || p.point.all_waiting() > 0;
  }
  EXPECT_TRUE(waited) << "the question is such that in some plan users wait";
  EXPECT_EQ(a.plans.front().point.all_waiting(), 0);
  for (const PlannedPoint& p : a.plans) {
    if (p.point.all_waiting() == 0) {
      EXPECT_GE(p.point.time, a.plans.front().point.time);
    }
  }
}

TEST(PlanFewer, NotWithoutUsersOrAnAnswer) {
  PlanQuestion q = question(0, 0.04);
  EXPECT_FALSE(answer(q).fewer);
  q = question(16, 0.001);
  EXPECT_FALSE(answer(q).fewer);
  q = question(16, 0.04);
  q.settings = {"gpus=[8]"};
  EXPECT_FALSE(answer(q).fewer) << "the number of GPUs was said";
}

}  // namespace
}  // namespace shardline
