#include "sim/engine/sharing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "sim/engine/engine.hpp"
#include "tests/sim/engine/random_case.hpp"

namespace shardline {
namespace {

TEST(FairShare, TwiceTheWeightGetsTwiceTheShare) {
  FairShare f;
  for (const double weight : {1.0, 2.0, 5.0}) {
    f.add_task(weight);
    f.add_claim(0, 1);
  }
  const auto speeds = f.solve();
  EXPECT_DOUBLE_EQ(speeds[0], 1.0 / 8);
  EXPECT_DOUBLE_EQ(speeds[1], 2.0 / 8);
  EXPECT_DOUBLE_EQ(speeds[2], 5.0 / 8);
}

TEST(FairShare, ATaskHeldElsewhereLeavesItsShare) {
  FairShare f;
  f.add_task(1);  // resources 0 and 1
  f.add_claim(0, 1);
  f.add_claim(1, 1);
  for (int i = 0; i < 3; ++i) {  // resource 0 holds four tasks at 1/4
    f.add_task(1);
    f.add_claim(0, 1);
  }
  f.add_task(1);  // resource 1
  f.add_claim(1, 1);
  const auto speeds = f.solve();
  EXPECT_EQ(std::vector<double>(speeds.begin(), speeds.end()),
            (std::vector<double>{0.25, 0.25, 0.25, 0.25, 0.75}));
}

TEST(FairShare, TasksThatFitTogetherRunAtFullSpeed) {
  for (const double weight : {1.0, 49.0, 700.0, 1e-9 / 3}) {  // 49 * (1 / 49) is not 1
    FairShare f;
    f.add_task(1);
    f.add_claim(0, 1);
    f.add_claim(2, 0.3);
    f.add_task(weight);
    f.add_claim(1, 1);
    f.add_claim(2, 0.6);
    const auto speeds = f.solve();
    EXPECT_EQ(speeds[0], 1);
    EXPECT_EQ(speeds[1], 1);
  }
}

/// A resource filled all but for rounding leaves the next task at least the level reached, never less than
/// nothing.
TEST(FairShare, LevelsNeverFallThroughRounding) {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 2000; ++round) {
    FairShare f;
    double total = 0;
    const int tasks = uniform(rng, 2, 9);
    for (int i = 0; i < tasks; ++i) {
      const double weight = spread(rng, 2);
      total += weight;
      f.add_task(weight);
      f.add_claim(0, 1);
      f.add_claim(1, 1 - 0x1p-53);
    }
    f.add_task(1);
    f.add_claim(1, 1e-17);
    f.add_claim(2, 1);
    const auto speeds = f.solve();
    EXPECT_GE(speeds.back(), std::min(1.0, 1 / total) * (1 - 1e-12));
    for (const double speed : speeds) EXPECT_LE(speed, 1);
  }
}

TEST(FairShare, IsReusable) {
  FairShare f;
  for (int round = 0; round < 3; ++round) {
    f.clear();
    f.add_task(3);
    f.add_claim(0, 1);
    EXPECT_EQ(f.solve().size(), 1u);
    EXPECT_EQ(f.solve()[0], 1);
  }
}

/// The first example of sim/README.md: two transfers cross one 10 B/s trunk, the second also a 2 B/s branch.
std::vector<double> ends_on_trunk(Sharing sharing) {
  Machine m;
  const ResourceId trunk = m.add("trunk", BytesPerSecond(10));
  const ResourceId branch = m.add("branch", BytesPerSecond(2));
  TaskGraph g;
  g.add(Seconds(0), {Demand::on(trunk, Bytes(10))}, {}, sharing);
  g.add(Seconds(0), {Demand::on(trunk, Bytes(2)), Demand::on(branch, Bytes(2))}, {}, sharing);
  const Timeline t = simulate(g, m);
  return {t.spans[0].end.value, t.spans[1].end.value};
}

TEST(Sharing, S4TheRuleChangesTheAnswer) {
  const auto slowdown = ends_on_trunk(Sharing::equal_slowdown);
  EXPECT_DOUBLE_EQ(slowdown[0], 1.2);
  EXPECT_DOUBLE_EQ(slowdown[1], 1.2);
  const auto rate = ends_on_trunk(Sharing::equal_rate);
  EXPECT_DOUBLE_EQ(rate[0], 1.2);  // 8 B/s for 1 s, then 2 bytes at 10 B/s
  EXPECT_DOUBLE_EQ(rate[1], 1.0);  // never below the 2 B/s of its branch
}

/// The second example: a kernel on a 1000 B/s memory and a 10 B/s transfer that crosses the same memory.
std::vector<double> ends_on_memory(Sharing transfer) {
  Machine m;
  const ResourceId memory = m.add("memory", BytesPerSecond(1000));
  const ResourceId link = m.add("link", BytesPerSecond(10));
  TaskGraph g;
  g.add(Seconds(0), {Demand::on(memory, Bytes(990))}, {}, Sharing::equal_slowdown);
  g.add(Seconds(0), {Demand::on(memory, Bytes(10)), Demand::on(link, Bytes(10))}, {}, transfer);
  const Timeline t = simulate(g, m);
  return {t.spans[0].end.value, t.spans[1].end.value};
}

TEST(Sharing, S4ATransferBesideAKernel) {
  const auto rate = ends_on_memory(Sharing::equal_rate);
  EXPECT_DOUBLE_EQ(rate[0], 1.0);
  EXPECT_DOUBLE_EQ(rate[1], 1.0);
  const auto slowdown = ends_on_memory(Sharing::equal_slowdown);
  EXPECT_DOUBLE_EQ(slowdown[0], 0.99 * 1.01);               // both at speed 1/1.01
  EXPECT_DOUBLE_EQ(slowdown[1], 0.99 * 1.01 + (1 - 0.99));  // the last hundredth alone
}

/// On the fastest pipe a memory-bound kernel and an unconstrained transfer get half each.
TEST(Sharing, S4HalvesOnTheFastestPipe) {
  Machine m;
  const ResourceId memory = m.add("memory", BytesPerSecond(1000));
  m.add("link", BytesPerSecond(10));
  m.add("tensor", FlopsPerSecond(1e9));  // other units do not count
  TaskGraph g;
  g.add(Seconds(0), {Demand::on(memory, Bytes(500))}, {}, Sharing::equal_slowdown);
  g.add(Seconds(0), {Demand::on(memory, Bytes(1500))}, {}, Sharing::equal_rate);
  const Timeline t = simulate(g, m);
  EXPECT_DOUBLE_EQ(t.spans[0].end.value, 1);
  EXPECT_DOUBLE_EQ(t.spans[1].end.value, 2);
}

/// A pipe k times slower than the fastest favours the transfer k to 1.
TEST(Sharing, S4TransfersGainOnSlowPipes) {
  Machine m;
  m.add("memory", BytesPerSecond(400));
  const ResourceId link = m.add("link", BytesPerSecond(100));
  TaskGraph g;
  g.add(Seconds(0), {Demand::on(link, Bytes(100))}, {}, Sharing::equal_slowdown);
  g.add(Seconds(0), {Demand::on(link, Bytes(400))}, {}, Sharing::equal_rate);
  const Timeline t = simulate(g, m);
  EXPECT_DOUBLE_EQ(t.spans[0].end.value, 5);  // 20 B/s against 80 B/s
  EXPECT_DOUBLE_EQ(t.spans[1].end.value, 5);
}

}  // namespace
}  // namespace shardline
