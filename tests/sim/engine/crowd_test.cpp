// Crowds [S11] against the oracle and the definitions, and against closed forms where rounding is worst.
#include "sim/engine/crowd.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "sim/engine/engine.hpp"
#include "tests/oracle/fluid_oracle.hpp"
#include "tests/sim/engine/allocations.hpp"
#include "tests/sim/engine/random_case.hpp"

namespace shardline {
namespace {

void expect_oracle(const RandomCase& c) {
  const Timeline expected = fluid_oracle(c.graph, c.machine);
  const Timeline actual = simulate(c.graph, c.machine);
  for (TaskId i = 0; i < c.graph.size(); ++i) {
    EXPECT_NEAR(actual.spans[i].start / expected.spans[i].end,
                expected.spans[i].start / expected.spans[i].end, 1e-9)
        << "start of task " << i;
    EXPECT_NEAR(actual.spans[i].end / expected.spans[i].end, 1, 1e-9) << "end of task " << i;
  }
}

TEST(Crowd, S11AgreesWithTheOracle) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    expect_oracle(random_crowd(seed));
  }
}

TEST(Crowd, S11AgreesWithTheOracleAtVeryDifferentMagnitudes) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    expect_oracle(random_crowd(seed, 8));
  }
}

/// The same tasks, each with a trifle on a unit of its own: nothing else is shared, but nobody is in a crowd.
TEST(Crowd, S11EqualsTheGeneralWay) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomCase c = random_crowd(seed);
    RandomCase general = c;
    general.graph.clear();
    for (TaskId i = 0; i < c.graph.size(); ++i) {
      std::vector<Demand> demands(c.graph.demands(i).begin(), c.graph.demands(i).end());
      demands.push_back(Demand::on(general.machine.add("own", FlopsPerSecond(1e9)), Flops(1)));
      general.graph.add(c.graph.latency(i), demands, c.graph.dependencies(i), c.graph.sharing(i));
    }
    const Timeline expected = simulate(general.graph, general.machine);
    const Timeline actual = simulate(c.graph, c.machine);
    for (TaskId i = 0; i < c.graph.size(); ++i) {
      EXPECT_NEAR(actual.spans[i].end / expected.spans[i].end, 1, 1e-12) << "task " << i;
    }
  }
}

/// Listing rates changes no bit, and they integrate to one unit of progress.
TEST(Crowd, S11RatesIntegrateToOneUnitOfProgress) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomCase c = random_crowd(seed);
    Timeline timeline;
    std::vector<RateChange> rates;
    Engine().run(c.graph, c.machine, timeline, rates);
    EXPECT_EQ(timeline.spans, simulate(c.graph, c.machine).spans);
    std::vector<double> progress(c.graph.size(), 0);
    std::vector<RateChange> last(c.graph.size());
    for (const RateChange& change : rates) {
      RateChange& before = last[change.task];
      progress[change.task] += (change.at - before.at) * before.rate;
      before = change;
    }
    for (TaskId i = 0; i < c.graph.size(); ++i) EXPECT_NEAR(progress[i], 1, 1e-10) << "task " << i;
  }
}

/// 1,000 equal and 1,000 distinct flows from time 0 on one pipe: the k-th end moves k and all beyond alike.
TEST(Crowd, S11EndsFollowTheClosedForm) {
  constexpr int kFlows = 1000;
  Machine m;
  const ResourceId link = m.add("link", BytesPerSecond(3));
  m.add("other", BytesPerSecond(700));
  TaskGraph g;
  for (int i = 0; i < kFlows; ++i) {
    g.add(Seconds(0), {Demand::on(link, Bytes(i + 1))}, {}, Sharing::equal_rate);
    g.add(Seconds(0), {Demand::on(link, Bytes(7))}, {}, Sharing::equal_rate);
  }
  const Timeline t = simulate(g, m);
  double moved = 0;  // of those that end no later
  for (int i = 0; i < kFlows; ++i) {
    const double beyond = kFlows - 1 - i, bytes = i + 1;
    moved += bytes;
    const double sevens = kFlows * std::min(bytes, 7.0);
    EXPECT_NEAR(t.spans[2 * static_cast<TaskId>(i)].end.value / ((moved + beyond * bytes + sevens) / 3), 1,
                1e-13);
    EXPECT_EQ(t.spans[2 * static_cast<TaskId>(i) + 1].end, t.spans[1].end);  // equals end at once
  }
}

/// A clock that has run for 1e9 s with a few slow tasks does not lose the microseconds of fast ones.
TEST(Crowd, S11ALongPastDoesNotBlurAShortTask) {
  Machine m;
  const ResourceId link = m.add("link", BytesPerSecond(1));
  m.add("other", BytesPerSecond(1e12));
  TaskGraph g;
  for (int i = 0; i < 40; ++i) g.add(Seconds(0), {Demand::on(link, Bytes(1e12))}, {});
  const TaskId wait = g.add(Seconds(0x1p30), {}, {});
  for (int i = 0; i < 40; ++i)
    g.add(Seconds(0), {Demand::on(link, Bytes(0.125))}, {wait}, Sharing::equal_rate);
  const Timeline t = simulate(g, m);
  // 40 flows of 1/8 byte at 1 B/s: weights 1e12 times those of the slow ones.
  for (TaskId i = wait + 1; i < g.size(); ++i) EXPECT_NEAR(t.spans[i].end.value - 0x1p30, 5, 1e-6);
}

TEST(Crowd, S11BackgroundTakesItsShare) {
  Machine m;
  const ResourceId link = m.add("link", BytesPerSecond(100));
  std::vector<double> makespans;
  for (const int flows : {10, 100}) {  // without a crowd and with one, the same bytes
    TaskGraph g;
    for (int i = 0; i < flows; ++i) {
      g.add(Seconds(0), {Demand::on(link, Bytes(1e4 / flows))}, {}, Sharing::equal_rate);
    }
    Background b(5);
    b.add({{link}, Seconds(1), Seconds(1), flows});  // as many beside: half the pipe while a burst lasts
    Timeline t;
    Engine().run(g, m, b, t);
    makespans.push_back(t.makespan().value);
  }
  EXPECT_GT(makespans[0], 110);
  EXPECT_NEAR(makespans[1] / makespans[0], 1, 1e-12);
}

TEST(Crowd, BitsAndMemoryAreSteady) {
  std::vector<RandomCase> cases;
  for (std::uint64_t seed = 0; seed < 6; ++seed) cases.push_back(random_crowd(seed));
  Engine engine;
  std::vector<Timeline> first(cases.size()), again(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) engine.run(cases[i].graph, cases[i].machine, first[i]);
  again = first;
  const long before = allocations();
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) engine.run(cases[i].graph, cases[i].machine, again[i]);
  }
  EXPECT_EQ(allocations() - before, 0);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(again[i].spans, first[i].spans);
    EXPECT_EQ(simulate(cases[i].graph, cases[i].machine).spans, first[i].spans);
  }
}

/// n log n takes less than a second, n^2 minutes.
TEST(Crowd, AHundredThousandFlowsOnOneLinkAreNotQuadratic) {
  constexpr TaskId kFlows = 100'000;
  Machine m;
  const ResourceId link = m.add("link", BytesPerSecond(1e9));
  TaskGraph g;
  for (TaskId i = 0; i < kFlows; ++i) {
    g.add(Seconds(0), {Demand::on(link, Bytes(1e6 + i))}, {}, Sharing::equal_rate);
  }
  const auto begin = std::chrono::steady_clock::now();
  const Timeline t = simulate(g, m);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_NEAR(t.makespan().value, kFlows * (1e6 + (kFlows - 1) / 2.0) / 1e9, 1e-3);
  EXPECT_LT(took.count(), 20);  // on any machine, under any sanitizer
}

}  // namespace
}  // namespace shardline
