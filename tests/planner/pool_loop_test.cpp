// planner/serving/pool_loop: a closed loop over two pools [P22], against a play of every step.
#include "planner/serving/pool_loop.hpp"

#include <gtest/gtest.h>

#include "tests/planner/pool_play.hpp"

namespace shardline {
namespace {

// What prompts that share steps cost together, and each; at most so many.
PromptServer prompts(double shared, double each, int most) {
  PromptServer out;
  for (int k = 1; k < most; k *= 2) out.times.emplace_back(k, Seconds(shared + each * k));
  out.times.emplace_back(most, Seconds(shared + each * most));
  return out;
}

struct Pools {
  PromptServer prefill;
  AnswerServer decode;
  PoolLoad load;
};

// A loop of users whose caches all fit.
Pools of_users(double users, const PromptServer& prefill, double step, double tokens) {
  return {prefill, {users, users, Seconds(step), tokens}, {users, Seconds(0.02), Seconds(0.015), 0}};
}

PoolLoop loop_of(const Pools& x) { return pool_loop(x.prefill, x.decode, x.load); }

PoolPlay played(const Pools& x, const PoolLoop& loop) {
  PoolPlay p(x.prefill, x.decode, x.load);
  p.steady(std::max(3000, static_cast<int>(20 * x.load.users)), x.load.users / loop.requests_per_s);
  return p;
}

// One user, a few, and as many as wait for each other: TTFT and requests per second.
TEST(PoolLoop, P22AgreesWithAPlayOfEveryStep) {
  struct Try {
    double shared, each;
    int most;
    double step, tokens;
  };
  for (const Try& t :
       {Try{0.05, 0.6, 1, 0.01, 1000}, Try{0.01, 0.018, 8, 0.008, 500}, Try{0.02, 0.02, 8, 0.02, 100},
        Try{0.02, 0.005, 64, 0.01, 200}, Try{0.01, 0.1, 4, 0.008, 100}, Try{0.01, 0.3, 1, 0.01, 300}}) {
    for (const double users : {1.0, 2.0, 3.0, 8.0, 64.0}) {
      SCOPED_TRACE(testing::Message() << users << " users, at most " << t.most << " prompts of " << t.each);
      const Pools x = of_users(users, prompts(t.shared, t.each, t.most), t.step, t.tokens);
      const PoolLoop loop = loop_of(x);
      const PoolPlay p = played(x, loop);
      EXPECT_NEAR(loop.requests_per_s / p.requests_per_s(), 1, 0.01);
      EXPECT_NEAR(loop.ttft.value / p.ttft(), 1, users == 1 ? 0.005 : 0.08);
      EXPECT_NEAR(loop.together / p.together(), 1, 0.3);
      EXPECT_LE(loop.together, users);
      PoolPlay burst(x.prefill, x.decode, x.load);
      burst.burst();
      EXPECT_NEAR(loop.burst.value / burst.ttft(), 1, 0.01);
    }
  }
}

TEST(PoolLoop, P22OneUserHasItsPromptAlone) {
  const Pools x = of_users(1, prompts(0.02, 0.05, 8), 0.01, 200);
  const PoolLoop loop = loop_of(x);
  EXPECT_NEAR(loop.ttft.value, 0.02 + 0.07 + 0.015 + 0.01, 1e-9);
  EXPECT_NEAR(loop.burst.value, loop.ttft.value, 1e-9);
  EXPECT_EQ(loop.together, 1);
  EXPECT_NEAR(loop.requests_per_s, 1 / (0.02 + 0.07 + 0.015 + 2), 1e-7);
}

// Two and three users never wait for a step of eight prompts.
TEST(PoolLoop, P22AFewUsersNeverWaitForAFullStep) {
  for (const double users : {2.0, 3.0}) {
    const Pools x = of_users(users, prompts(0.02, 0.05, 8), 0.01, 200);
    const PoolLoop loop = loop_of(x);
    const double alone = 0.02 + 0.07 + 0.015 + 0.01;
    EXPECT_GT(loop.ttft.value, alone);
    EXPECT_LT(loop.ttft.value, alone + (users - 1) * 0.07 / 2);
    EXPECT_NEAR(loop.burst.value, alone + (users - 1) * 0.05, 1e-9);
    EXPECT_LE(loop.together, users);
  }
}

// More users than the pool that decodes has room for: as many are answered as have a place.
TEST(PoolLoop, P22UsersBeyondTheRoomWait) {
  Pools x = of_users(32, prompts(0.02, 0.02, 8), 0.01, 200);
  x.decode.room = 16;
  const PoolLoop loop = loop_of(x);
  const PoolPlay p = played(x, loop);
  EXPECT_NEAR(loop.requests_per_s / p.requests_per_s(), 1, 0.01);
  EXPECT_NEAR(loop.ttft.value / p.ttft(), 1, 0.02);
  EXPECT_GT(loop.room, Seconds(1));
  EXPECT_NEAR(loop.requests_per_s * (0.015 + 0.005 + 2), 16, 0.01);
  // Little's law: everybody is somewhere.
  const double somewhere = (loop.ttft + x.decode.step * (x.decode.steps - 1)).value;
  EXPECT_NEAR(loop.requests_per_s * somewhere, 32, 1e-6);
}

// Groups that step together share prompts evenly; stages take the next ones before the first are done.
TEST(PoolLoop, P22GroupsAndStages) {
  PromptServer groups = prompts(0.1, 0.1, 2), stages = groups;
  groups.groups = 4;
  EXPECT_EQ(groups.most(), 8);
  EXPECT_EQ(groups.prompt(1), groups.prompt(4));
  EXPECT_NEAR(groups.prompt(6).value, 0.25, 1e-12);
  EXPECT_NEAR(groups.most_per_s(), 8 / 0.3, 1e-9);
  stages.microbatches = 4;
  EXPECT_NEAR(stages.most_per_s(), 4 * 2 / 0.3, 1e-9);
  EXPECT_NEAR(stages.step(2).value, 0.3 / 4, 1e-12);
  // Of one user the stages behind the first are part of TTFT all the same.
  EXPECT_NEAR(loop_of(of_users(1, stages, 0.01, 100)).response.value, 0.2, 1e-9);
}

double part_of(std::vector<double> off, double part) {
  std::sort(off.begin(), off.end());
  return off[static_cast<std::size_t>(part * static_cast<double>(off.size() - 1))];
}

// From pools that hardly anybody comes to to those that are full of prompts.
TEST(PoolLoop, P22AnyWorkloadIsThatOfAPlay) {
  std::mt19937_64 random(21);
  std::uniform_real_distribution<double> part(0, 1);
  const auto between = [&](double low, double high) { return low * std::pow(high / low, part(random)); };
  std::vector<double> ttft, rate;
  for (int i = 0; i < 60; ++i) {
    const double users = std::round(between(1, 128)), each = between(0.003, 0.4);
    const int most = std::max(1, static_cast<int>(between(0.1, 0.8) / each));
    Pools x = of_users(users, prompts(between(0.002, 0.03), each, most), between(0.005, 0.04),
                       std::round(between(32, 2000)));
    x.load.path = Seconds(between(0.005, 0.05));
    if (i % 4 == 0) x.decode.room = std::max(1.0, std::floor(users * part(random)));
    const PoolLoop loop = loop_of(x);
    const PoolPlay p = played(x, loop);
    ttft.push_back(std::abs(loop.ttft.value / p.ttft() - 1));
    rate.push_back(std::abs(loop.requests_per_s / p.requests_per_s() - 1));
  }
  EXPECT_LT(part_of(ttft, 0.5), 0.01);
  EXPECT_LT(part_of(ttft, 0.9), 0.06);
  EXPECT_LT(part_of(ttft, 1), 0.6);  // prompts without a pause, and short answers
  EXPECT_LT(part_of(rate, 0.5), 0.003);
  EXPECT_LT(part_of(rate, 0.9), 0.02);
  EXPECT_LT(part_of(rate, 1), 0.12);
}

}  // namespace
}  // namespace shardline
