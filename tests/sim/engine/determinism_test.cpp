#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "sim/engine/engine.hpp"
#include "tests/sim/engine/random_case.hpp"

namespace shardline {
namespace {

std::vector<RandomCase> mixed_cases() {
  std::vector<RandomCase> cases;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    cases.push_back(seed % 3 == 0 ? random_lanes(seed) : random_case(seed, {.whole = seed % 2 == 0}));
  }
  return cases;
}

std::vector<std::vector<Span>> play_all(const std::vector<RandomCase>& cases, Engine& engine) {
  std::vector<std::vector<Span>> out;
  Timeline t;
  for (const RandomCase& c : cases) {
    engine.run(c.graph, c.machine, t);
    out.push_back(t.spans);
  }
  return out;
}

TEST(Determinism, AReusedEngineGivesTheSameBits) {
  const auto cases = mixed_cases();
  std::vector<std::vector<Span>> fresh;
  for (const RandomCase& c : cases) fresh.push_back(simulate(c.graph, c.machine).spans);
  Engine engine;
  for (int round = 0; round < 3; ++round) EXPECT_EQ(play_all(cases, engine), fresh);
}

TEST(Determinism, ThreadsGiveTheSameBits) {
  const auto cases = mixed_cases();
  Engine engine;
  const auto expected = play_all(cases, engine);
  std::vector<std::vector<std::vector<Span>>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&cases, &result] {
      Engine own;
      for (int round = 0; round < 5; ++round) result = play_all(cases, own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

TEST(Determinism, S5ReplayEqualsEventsExactly) {
  int replays = 0;
  Engine automatic;
  Engine events(Engine::Method::events);
  Timeline a;
  Timeline b;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomCase c = seed < 200 ? random_lanes(seed) : random_case(seed, {.tasks = 12, .resources = 12});
    automatic.run(c.graph, c.machine, a);
    events.run(c.graph, c.machine, b);
    EXPECT_FALSE(events.replayed());
    replays += automatic.replayed() ? 1 : 0;
    EXPECT_EQ(a.spans, b.spans);
  }
  EXPECT_GE(replays, 200);
}

TEST(Determinism, S5SharingRefusesTheReplay) {
  Machine m;
  const ResourceId link = m.add("link", BytesPerSecond(1));
  TaskGraph g;
  g.add(Seconds(0), {Demand::on(link, Bytes(2))}, {});
  g.add(Seconds(2), {Demand::on(link, Bytes(2))}, {});  // starts as the first ends
  Engine engine;
  Timeline t;
  engine.run(g, m, t);
  EXPECT_TRUE(engine.replayed());
  g.add(Seconds(3.5), {Demand::on(link, Bytes(2))}, {});
  engine.run(g, m, t);
  EXPECT_FALSE(engine.replayed());
  EXPECT_EQ(t.spans[1].end, Seconds(4.5));
  EXPECT_EQ(t.spans[2].end, Seconds(6));
}

TEST(Determinism, S5WorkBelowTheClocksResolution) {
  Machine m;
  const ResourceId link = m.add("link", BytesPerSecond(1));
  TaskGraph g;
  g.add(Seconds(1e16), {}, {});
  for (int i = 0; i < 5; ++i) g.add(Seconds(0), {Demand::on(link, Bytes(0.25))}, {0});
  g.add(Seconds(0), {Demand::on(link, Bytes(64))}, {5});
  Engine engine;
  Timeline t;
  engine.run(g, m, t);
  EXPECT_FALSE(engine.replayed());
  EXPECT_NEAR((t.makespan() - Seconds(1e16)).value, 65.25, 2);  // the clock ticks in steps of 2
}

/// Rates are a function of who is active, not of who came first.
TEST(Determinism, RatesForgetTheOrderOfArrival) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    constexpr int kTasks = 9;
    Machine m;
    for (int r = 0; r < 3; ++r) m.add("pipe", BytesPerSecond(spread(rng, 1)));
    std::vector<std::vector<Demand>> demands;
    for (int i = 0; i < kTasks; ++i) {
      demands.push_back(
          {Demand::on(0, Bytes(100 * spread(rng, 1))),
           Demand::on(static_cast<ResourceId>(uniform(rng, 1, 2)), Bytes(100 * spread(rng, 1)))});
    }
    std::vector<std::vector<double>> together;  // rates once all are active, by order of arrival
    for (const bool forwards : {true, false}) {
      TaskGraph g;
      for (int i = 0; i < kTasks; ++i) {
        g.add(milliseconds(forwards ? 1 + i : kTasks - i), demands[static_cast<std::size_t>(i)], {},
              Sharing::equal_rate);
      }
      Timeline t;
      std::vector<RateChange> changes;
      Engine().run(g, m, t, changes);
      std::vector<double> rates(kTasks);
      for (const RateChange& c : changes) {
        if (c.at <= milliseconds(kTasks)) rates[c.task] = c.rate.value;
      }
      together.push_back(rates);
    }
    EXPECT_EQ(together[0], together[1]);
  }
}

/// Twin halves that share nothing, interleaved in one graph, each give the bits of one half played alone.
TEST(Determinism, SymmetricHalvesStaySymmetric) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomCase c = random_case(seed, {.resources = 3});
    Machine twins;
    for (int half = 0; half < 2; ++half) {
      for (ResourceId r = 0; r < c.machine.size(); ++r) {
        if (c.machine.unit(r) == Unit::bytes) {
          twins.add("pipe", BytesPerSecond(c.machine.capacity(r)));
        } else {
          twins.add("unit", FlopsPerSecond(c.machine.capacity(r)));
        }
      }
    }
    TaskGraph g;
    for (TaskId i = 0; i < c.graph.size(); ++i) {
      for (TaskId half = 0; half < 2; ++half) {
        std::vector<Demand> demands(c.graph.demands(i).begin(), c.graph.demands(i).end());
        for (Demand& d : demands) d.resource += half * static_cast<ResourceId>(c.machine.size());
        std::vector<TaskId> dependencies;
        for (const TaskId d : c.graph.dependencies(i)) dependencies.push_back(2 * d + half);
        g.add(c.graph.latency(i), demands, dependencies, c.graph.sharing(i));
      }
    }
    const Timeline one = simulate(c.graph, c.machine);
    const Timeline two = simulate(g, twins);
    for (TaskId i = 0; i < c.graph.size(); ++i) {
      EXPECT_EQ(two.spans[2 * i], one.spans[i]);
      EXPECT_EQ(two.spans[2 * i + 1], one.spans[i]);
    }
  }
}

}  // namespace
}  // namespace shardline
