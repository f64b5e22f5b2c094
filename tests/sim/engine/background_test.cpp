#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <thread>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/engine/engine.hpp"
#include "tests/sim/engine/random_case.hpp"

namespace shardline {
namespace {

BurstSource bursts(std::vector<ResourceId> on, double mean_burst, double load, int flows = 1) {
  return {std::move(on), Seconds(mean_burst), Seconds(mean_burst * (1 - load) / load), flows};
}

/// A pipe of 1 B/s, so that bytes are seconds alone.
Machine pipes(int count) {
  Machine m;
  for (int i = 0; i < count; ++i) m.add("pipe", BytesPerSecond(1));
  return m;
}

TaskGraph one_flow(double bytes, const std::vector<ResourceId>& through) {
  TaskGraph g;
  std::vector<Demand> demands;
  for (const ResourceId r : through) demands.push_back(Demand::on(r, Bytes(bytes)));
  g.add(Seconds(0), demands, std::initializer_list<TaskId>{}, Sharing::equal_rate);
  return g;
}

Timeline played(const TaskGraph& graph, const Machine& machine, const Background& background) {
  Timeline out;
  Engine().run(graph, machine, background, out);
  return out;
}

// Pinned: results are the same on every platform.
TEST(Background, S10TheGeneratorIsPinned) {
  EXPECT_EQ(random_bits(0, 0, 0), 0x238275BC38FCBE91);
  EXPECT_EQ(random_bits(1, 2, 3), 0x8568F7C4E53B5A35);
  EXPECT_EQ(exponential(0.3), 0x1.34378fcbda720p+0);
}

TEST(Background, S10ExponentialIsTheLogarithm) {
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double u = random_unit(7, 0, i);
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    const double exact = -std::log(u);
    ASSERT_NEAR(exponential(u), exact, 1e-15 * std::max(1.0, exact)) << u;
  }
  EXPECT_NEAR(exponential(0x1p-53), 53 * std::log(2.0), 1e-13);
}

TEST(Background, S10LongRunMeans) {
  Background b(3);
  b.add(bursts({0}, 2.0, 0.25));
  const double end = 4e5;
  double busy = 0, count = 0;
  for (const Span& s : b.bursts(0, Seconds(end))) busy += (s.end - s.start).value, ++count;
  EXPECT_NEAR(busy / end, 0.25, 0.01);
  EXPECT_NEAR(busy / count, 2.0, 0.04);
  // Also at time zero, over seeds.
  int on = 0;
  for (std::uint64_t seed = 0; seed < 10000; ++seed) {
    Background other(seed);
    other.add(bursts({0}, 2.0, 0.25));
    on += BurstClock(other, 0).on();
  }
  EXPECT_NEAR(on, 2500, 200);
}

TEST(Background, S10NoBurstsAreNoBackgroundBitForBit) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomCase c = random_case(seed, {.whole = seed % 4 == 0});
    Timeline alone;
    Engine().run(c.graph, c.machine, alone);
    EXPECT_EQ(played(c.graph, c.machine, Background(1)).spans, alone.spans);
    // Bursts that nobody meets.
    Background elsewhere(seed);
    elsewhere.add(bursts({c.machine.add("unused", BytesPerSecond(1e-3))}, 0.1, 0.5));
    EXPECT_EQ(played(c.graph, c.machine, elsewhere).spans, alone.spans);
  }
}

// The bytes of the flow are the integral of its rate: 1 without a burst, 1 / (1 + flows) beside one.
TEST(Background, S10AFlowEndsWhenItsBytesAreThrough) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const int flows = 1 + static_cast<int>(seed % 3);
    Background b(seed);
    b.add(bursts({0}, 0.3, 0.1 + 0.8 * static_cast<double>(seed) / 200, flows));
    const double bytes = 5, end = played(one_flow(bytes, {0}), pipes(1), b).spans[0].end.value;
    double moved = end;
    for (const Span& s : b.bursts(0, Seconds(end)))
      moved -= (std::min(s.end.value, end) - s.start.value) * flows / (1.0 + flows);
    EXPECT_NEAR(moved, bytes, 1e-12 * bytes);
  }
}

// A flow through two pipes goes at the pace of the slower one.
TEST(Background, S10TheSlowestLinkSetsThePace) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Background b(seed);
    b.add(bursts({0}, 0.5, 0.4));
    b.add(bursts({1}, 0.7, 0.4, 2));
    const double bytes = 9, end = played(one_flow(bytes, {0, 1}), pipes(2), b).spans[0].end.value;
    double moved = 0;
    BurstClock first(b, 0), second(b, 1);
    for (double now = 0; now < end;) {
      const double until = std::min({first.until(), second.until(), end});
      moved += (until - now) / (second.on() ? 3 : first.on() ? 2 : 1);
      if (first.until() == until) first.advance();
      if (second.until() == until) second.advance();
      now = until;
    }
    EXPECT_NEAR(moved, bytes, 1e-12 * bytes);
  }
}

TEST(Background, S10RatesIntegrateToOneUnitOfProgress) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const RandomCase c = random_case(seed, {.whole = seed % 4 == 0});
    Background b(seed);
    for (ResourceId r = 0; r < c.machine.size(); ++r) {
      if (c.machine.unit(r) == Unit::bytes) b.add(bursts({r}, 0.2, 0.5, 1 + static_cast<int>(seed % 2)));
    }
    Timeline timeline;
    std::vector<RateChange> rates;
    Engine().run(c.graph, c.machine, b, timeline, &rates);
    EXPECT_EQ(timeline.spans, played(c.graph, c.machine, b).spans);
    std::vector<double> progress(c.graph.size(), 0);
    std::vector<RateChange> last(c.graph.size());
    for (const RateChange& change : rates) {
      RateChange& before = last[change.task];
      progress[change.task] += (change.at - before.at) * before.rate;
      before = change;
    }
    for (TaskId i = 0; i < c.graph.size(); ++i) {
      if (c.graph.demands(i).empty()) continue;
      EXPECT_NEAR(progress[i], 1, 1e-10) << "task " << i;
    }
  }
}

// Other sources and more flows of a source leave the times of its bursts alone.
TEST(Background, S10MoreTrafficNeverHastensAFlow) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    double before = 5;
    for (int flows = 1; flows < 5; ++flows) {
      Background b(seed);
      b.add(bursts({0}, 0.3, 0.3, flows));
      const double end = played(one_flow(5, {0}), pipes(1), b).spans[0].end.value;
      EXPECT_GE(end, before);
      b.add(bursts({0}, 0.2, 0.4));
      EXPECT_GE(played(one_flow(5, {0}), pipes(1), b).spans[0].end.value, end);
      before = end;
    }
  }
}

// Over long times a flow gets 1 - load * flows / (1 + flows) of its pipe.
TEST(Background, S10MeanOverSeedsConvergesToTheLoad) {
  double before = 0;
  for (const double load : {0.1, 0.5, 0.9}) {
    double sum = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      Background b(seed);
      b.add(bursts({0}, 1, load));
      sum += played(one_flow(500, {0}), pipes(1), b).spans[0].end.value / 500;
    }
    EXPECT_NEAR(sum / 40, 1 / (1 - load / 2), 0.01);
    EXPECT_GT(sum, before);
    before = sum;
  }
}

TEST(Background, S10SameBitsOnEveryThread) {
  const RandomCase c = random_case(5, {.tasks = 200});
  Background b(9);
  for (ResourceId r = 0; r < c.machine.size(); ++r) {
    if (c.machine.unit(r) == Unit::bytes) b.add(bursts({r}, 0.1, 0.5));
  }
  ASSERT_FALSE(b.empty());
  const Timeline expected = played(c.graph, c.machine, b);
  EXPECT_NE(expected.spans, simulate(c.graph, c.machine).spans);
  std::array<Timeline, 4> out;
  std::vector<std::thread> threads;
  for (Timeline& mine : out) {
    threads.emplace_back([&] {
      Engine engine;
      for (int run = 0; run < 5; ++run) {
        engine.run(c.graph, c.machine, mine);  // what came before does not matter
        engine.run(c.graph, c.machine, b, mine);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const Timeline& mine : out) EXPECT_EQ(mine.spans, expected.spans);
}

TEST(Background, S10OtherSeedsAreOtherBursts) {
  Background a(1), b(2);
  a.add(bursts({0}, 0.3, 0.5));
  b.add(bursts({0}, 0.3, 0.5));
  EXPECT_NE(played(one_flow(5, {0}), pipes(1), a).spans, played(one_flow(5, {0}), pipes(1), b).spans);
}

TEST(Background, S10RefusesWhatCannotBe) {
  Background b;
  EXPECT_ANY_THROW(b.add({{0}, Seconds(0), Seconds(1), 1}));
  EXPECT_ANY_THROW(b.add({{0}, Seconds(1), Seconds(0), 1}));
  EXPECT_ANY_THROW(b.add({{0}, Seconds(1), Seconds(1), 0}));
  b.add({{3}, Seconds(1), Seconds(1), 1});
  EXPECT_ANY_THROW(played(one_flow(1, {0}), pipes(1), b));
}

}  // namespace
}  // namespace shardline
