#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "sim/engine/engine.hpp"

namespace shardline {
namespace {

constexpr Bytes kPayload(300);
constexpr BytesPerSecond kBandwidth(100);
constexpr Seconds kAlpha(0.25);

TEST(ClosedForm, NothingTakesNoTime) {
  EXPECT_EQ(simulate({}, {}).makespan(), Seconds(0));
  EXPECT_TRUE(critical_path({}, {}).empty());
}

TEST(ClosedForm, S1LatencyOnly) {
  Machine m;
  const ResourceId link = m.add("link", kBandwidth);
  TaskGraph g;
  g.add(kAlpha, {}, {});
  g.add(kAlpha, {Demand::on(link, Bytes(0))}, {0});
  EXPECT_EQ(simulate(g, m).makespan(), kAlpha + kAlpha);
  EXPECT_TRUE(g.demands(1).empty());
}

TEST(ClosedForm, S2RooflineTakesTheLongestDemand) {
  Machine m;
  const ResourceId memory = m.add("memory", BytesPerSecond(10));
  const ResourceId tensor = m.add("tensor", FlopsPerSecond(1000));
  TaskGraph g;
  g.add(Seconds(0), {Demand::on(memory, Bytes(50)), Demand::on(tensor, Flops(2000))}, {});
  g.add(Seconds(0), {Demand::on(memory, Bytes(50)), Demand::on(tensor, Flops(8000))}, {0});
  const Timeline t = simulate(g, m);
  EXPECT_EQ(t.spans[0], (Span{Seconds(0), Seconds(5)}));
  EXPECT_EQ(t.spans[1], (Span{Seconds(5), Seconds(13)}));
}

TEST(ClosedForm, DemandsOnOneResourceAddUp) {
  Machine m;
  const ResourceId link = m.add("link", kBandwidth);
  const ResourceId other = m.add("other", kBandwidth);
  TaskGraph g;
  g.add(Seconds(0),
        {Demand::on(link, Bytes(100)), Demand::on(other, Bytes(50)), Demand::on(link, Bytes(200))}, {});
  ASSERT_EQ(g.demands(0).size(), 2u);
  EXPECT_EQ(simulate(g, m).makespan(), kPayload / kBandwidth);
}

TEST(ClosedForm, Chain) {
  Machine m;
  const ResourceId link = m.add("link", kBandwidth);
  TaskGraph g;
  std::vector<TaskId> last;
  Seconds expected;
  for (int i = 1; i <= 100; ++i) {
    const Bytes payload(i);
    last = {g.add(kAlpha, {Demand::on(link, payload)}, last)};
    expected = expected + kAlpha + payload / kBandwidth;
  }
  EXPECT_EQ(simulate(g, m).makespan(), expected);
}

TEST(ClosedForm, ForkJoinTakesTheLongestBranch) {
  Machine m;
  TaskGraph g;
  const TaskId fork = g.add(kAlpha, {}, {});
  std::vector<TaskId> branches;
  for (int i = 1; i <= 7; ++i) {
    const ResourceId lane = m.add("lane", kBandwidth);
    branches.push_back(g.add(Seconds(0), {Demand::on(lane, kPayload * i)}, {fork}));
  }
  g.add(kAlpha, {}, branches);
  EXPECT_EQ(simulate(g, m).makespan(), kAlpha + kPayload * 7 / kBandwidth + kAlpha);
}

/// n unequal flows that share one link from time 0: the k-th shortest ends at sum_j min(d_j, d_k) / C.
TEST(ClosedForm, S3SharedLink) {
  for (const Sharing sharing : {Sharing::equal_slowdown, Sharing::equal_rate}) {
    Machine m;
    const ResourceId link = m.add("link", kBandwidth);
    TaskGraph g;
    for (int i = 1; i <= 9; ++i) g.add(Seconds(0), {Demand::on(link, Bytes(i * i))}, {}, sharing);
    const Timeline t = simulate(g, m);
    for (int k = 1; k <= 9; ++k) {
      Bytes moved;
      for (int j = 1; j <= 9; ++j) moved += Bytes(std::min(j, k) * std::min(j, k));
      EXPECT_NEAR(t.spans[static_cast<std::size_t>(k - 1)].end / (moved / kBandwidth), 1, 1e-14);
    }
  }
}

TEST(ClosedForm, LatencyThenHalfRate) {
  for (const Sharing sharing : {Sharing::equal_slowdown, Sharing::equal_rate}) {
    Machine m;
    const ResourceId link = m.add("link", kBandwidth);
    TaskGraph g;
    for (int flow = 0; flow < 2; ++flow) g.add(kAlpha, {Demand::on(link, kPayload)}, {}, sharing);
    EXPECT_EQ(simulate(g, m).makespan(), kAlpha + 2 * (kPayload / kBandwidth));
  }
}

TEST(ClosedForm, ALateFlowSlowsTheFirst) {
  Machine m;
  const ResourceId link = m.add("link", kBandwidth);
  TaskGraph g;
  g.add(Seconds(0), {Demand::on(link, kPayload)}, {});  // 3 s alone
  g.add(Seconds(1), {Demand::on(link, kPayload)}, {});
  const Timeline t = simulate(g, m);
  EXPECT_EQ(t.spans[0].end, Seconds(5));  // 1 s alone, then 2 s of work at half speed
  EXPECT_EQ(t.spans[1].end, Seconds(6));  // 4 s at half speed, then 1 s of work alone
}

/// Neighbours that fit beside a task come and go without touching a bit of its end.
TEST(ClosedForm, ATaskThatIsNeverSlowedEndsToTheBit) {
  Machine m;
  const ResourceId memory = m.add("memory", BytesPerSecond(1));
  const ResourceId tensor = m.add("tensor", FlopsPerSecond(3));
  const ResourceId link = m.add("link", BytesPerSecond(0.1));
  TaskGraph g;
  g.add(Seconds(0.1), {Demand::on(memory, Bytes(0.3)), Demand::on(tensor, Flops(3.1))}, {});
  for (int i = 0; i < 20; ++i) {
    std::vector<TaskId> before;
    if (i > 0) before = {static_cast<TaskId>(i)};
    g.add(Seconds(0.01),
          {Demand::on(memory, Bytes(0.0013 * (i + 1))), Demand::on(link, Bytes(0.0013 * (i + 1)))}, before);
  }
  Engine engine;
  Timeline t;
  engine.run(g, m, t);
  EXPECT_FALSE(engine.replayed());
  EXPECT_EQ(t.spans[0].end, Seconds(0.1) + Flops(3.1) / FlopsPerSecond(3));
}

/// Flows that arrive in turn, with just the work that lets all end together but for rounding: one end, one
/// bit.
TEST(ClosedForm, RoundingDoesNotSplitOneEndIntoMany) {
  for (int step = 1; step <= 40; ++step) {
    Machine m;
    const ResourceId link = m.add("link", BytesPerSecond(1));
    TaskGraph g;
    double service = 0;  // that the first flow has had when flow i arrives
    for (int i = 0; i < 5; ++i) {
      const double arrival = 0.01 * step * i;
      if (i > 0) service += 0.01 * step / i;
      g.add(Seconds(arrival), {Demand::on(link, Bytes(2 - service))}, {});
    }
    const Timeline t = simulate(g, m);
    for (const Span& span : t.spans) EXPECT_EQ(span.end, t.spans[0].end) << "step " << step;
  }
}

TEST(ClosedForm, PipelineOverTwoLanes) {
  constexpr int kChunks = 17;
  const std::vector<std::pair<double, double>> cases = {{2, 3}, {3, 2}, {2, 2}};
  for (const auto& [a, c] : cases) {
    Machine m;
    const ResourceId first = m.add("first", BytesPerSecond(1));
    const ResourceId second = m.add("second", BytesPerSecond(1));
    TaskGraph g;
    std::vector<TaskId> before_first;
    std::vector<TaskId> before_second;
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      before_first = {g.add(Seconds(0), {Demand::on(first, Bytes(a))}, before_first)};
      before_second.push_back(before_first.front());
      before_second = {g.add(Seconds(0), {Demand::on(second, Bytes(c))}, before_second)};
    }
    EXPECT_EQ(simulate(g, m).makespan(), Seconds(a + c + (kChunks - 1) * std::max(a, c)));
  }
}

TEST(ClosedForm, S6CriticalPathNamesTheSlowBranch) {
  Machine m;
  TaskGraph g;
  g.add(Seconds(1), {}, {});
  g.add(Seconds(2), {}, {0});
  g.add(Seconds(3), {}, {0});
  g.add(Seconds(3), {}, {0});  // ties with task 2: the smaller id is named
  g.add(Seconds(1), {}, {1, 3, 2});
  g.add(Seconds(0.5), {}, {1});
  EXPECT_EQ(critical_path(g, simulate(g, m)), (std::vector<TaskId>{0, 2, 4}));
}

}  // namespace
}  // namespace shardline
