#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/engine/engine.hpp"
#include "tests/sim/engine/allocations.hpp"
#include "tests/sim/engine/random_case.hpp"

namespace shardline {
namespace {

constexpr std::uint64_t kSeeds = 100;

/// A case played with its rates.
struct Played {
  RandomCase input;
  Timeline timeline;
  std::vector<RateChange> rates;
};

Played play(std::uint64_t seed) {
  Played p{random_case(seed, {.whole = seed % 4 == 0}), {}, {}};
  Engine().run(p.input.graph, p.input.machine, p.timeline, p.rates);
  return p;
}

TEST(Property, S1RatesIntegrateToOneUnitOfProgress) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Played p = play(seed);
    std::vector<double> progress(p.input.graph.size(), 0);
    std::vector<RateChange> last(p.input.graph.size());
    double now = 0;
    for (const RateChange& change : p.rates) {
      EXPECT_GE(change.at.value, now);
      now = change.at.value;
      RateChange& before = last[change.task];
      progress[change.task] += (change.at - before.at) * before.rate;
      before = change;
    }
    for (TaskId i = 0; i < p.input.graph.size(); ++i) {
      if (p.input.graph.demands(i).empty()) continue;
      EXPECT_NEAR(progress[i], 1, 1e-10) << "task " << i;
      EXPECT_EQ(last[i].rate, PerSecond(0));
      EXPECT_EQ(last[i].at, p.timeline.spans[i].end);
    }
  }
}

/// The definition of weighted max-min: nothing is over capacity, and every active task has a full resource on
/// which no other task stands at a higher level.
void expect_max_min(const RandomCase& c, const std::vector<double>& rate) {
  std::vector<double> used(c.machine.size(), 0);
  std::vector<double> highest(c.machine.size(), 0);
  const auto level = [&](TaskId i) {
    double alone = 0;
    double bytes = 0;
    for (const Demand& d : c.graph.demands(i)) {
      alone = std::max(alone, d.amount / c.machine.capacity(d.resource));
      if (d.unit == Unit::bytes) bytes = std::max(bytes, d.amount);
    }
    return c.graph.sharing(i) == Sharing::equal_slowdown ? rate[i] * alone
                                                         : rate[i] * bytes / c.machine.fastest_pipe().value;
  };
  for (TaskId i = 0; i < c.graph.size(); ++i) {
    if (rate[i] == 0) continue;
    for (const Demand& d : c.graph.demands(i)) {
      used[d.resource] += rate[i] * d.amount / c.machine.capacity(d.resource);
      highest[d.resource] = std::max(highest[d.resource], level(i));
    }
  }
  for (const double u : used) EXPECT_LE(u, 1 + 1e-12);
  for (TaskId i = 0; i < c.graph.size(); ++i) {
    if (rate[i] == 0) continue;
    bool held = false;
    for (const Demand& d : c.graph.demands(i)) {
      held |= used[d.resource] >= 1 - 1e-12 && level(i) >= highest[d.resource] * (1 - 1e-12);
    }
    EXPECT_TRUE(held) << "task " << i << " could go faster";
  }
}

TEST(Property, S3RatesAreMaxMinFairAtEveryMoment) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Played p = play(seed);
    std::vector<double> rate(p.input.graph.size(), 0);
    for (std::size_t k = 0; k < p.rates.size(); ++k) {
      rate[p.rates[k].task] = p.rates[k].rate.value;
      const bool instant_is_over = k + 1 == p.rates.size() || p.rates[k + 1].at > p.rates[k].at;
      if (instant_is_over) expect_max_min(p.input, rate);
    }
  }
}

TEST(Property, TheMakespanIsAtLeastEveryBound) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Played p = play(seed);
    std::vector<double> busy(p.input.machine.size(), 0);
    for (TaskId i = 0; i < p.input.graph.size(); ++i) {
      double alone = 0;
      for (const Demand& d : p.input.graph.demands(i)) {
        const double seconds = d.amount / p.input.machine.capacity(d.resource);
        busy[d.resource] += seconds;
        alone = std::max(alone, seconds);
      }
      const Span& span = p.timeline.spans[i];
      EXPECT_GE((span.end - span.start).value,
                (p.input.graph.latency(i).value + alone) * (1 - 1e-12) - 1e-15 * span.end.value);
    }
    for (const double b : busy) EXPECT_GE(p.timeline.makespan().value, b * (1 - 1e-12));
  }
}

/// One resource that is never idle moves its whole load at its capacity.
TEST(Property, ABusyResourceLosesNothing) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    Machine m;
    const ResourceId link = m.add("link", BytesPerSecond(100 * spread(rng, 6)));
    TaskGraph g;
    Seconds load;
    for (int i = 0; i < 30; ++i) {
      const Bytes bytes(100 * spread(rng, 10));
      std::vector<TaskId> dependencies;
      if (i > 0 && rng() % 2 == 0) dependencies.push_back(static_cast<TaskId>(uniform(rng, 0, i - 1)));
      g.add(Seconds(0), {Demand::on(link, bytes)}, dependencies,
            rng() % 2 == 0 ? Sharing::equal_rate : Sharing::equal_slowdown);
      load += bytes / BytesPerSecond(m.capacity(link));
    }
    EXPECT_NEAR(simulate(g, m).makespan() / load, 1, 1e-12);
  }
}

TEST(Property, S6TheCriticalPathSumsToTheMakespan) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Played p = play(seed);
    Seconds sum;
    const auto path = critical_path(p.input.graph, p.timeline);
    for (std::size_t k = 0; k < path.size(); ++k) {
      const Span& span = p.timeline.spans[path[k]];
      EXPECT_EQ(span.start, k == 0 ? Seconds(0) : p.timeline.spans[path[k - 1]].end);
      sum += span.end - span.start;
    }
    const double makespan = p.timeline.makespan().value;
    EXPECT_NEAR(sum.value, makespan, 1e-12 * makespan);
  }
}

TEST(Property, RaisingACapacityNeverLengthensAChain) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    const Machine before = random_machine(rng, {});
    const RandomShape shape{};
    const TaskGraph loose = random_graph(rng, before, shape);
    TaskGraph chain;
    for (TaskId i = 0; i < loose.size(); ++i) {
      std::vector<TaskId> dependencies;
      if (i > 0) dependencies.push_back(i - 1);
      chain.add(loose.latency(i), loose.demands(i), dependencies, loose.sharing(i));
    }
    for (ResourceId raised = 0; raised < before.size(); ++raised) {
      Machine after;
      for (ResourceId r = 0; r < before.size(); ++r) {
        const double capacity = before.capacity(r) * (r == raised ? 1.7 : 1);
        if (before.unit(r) == Unit::bytes) after.add("pipe", BytesPerSecond(capacity));
        if (before.unit(r) == Unit::operations) after.add("unit", FlopsPerSecond(capacity));
      }
      EXPECT_LE(simulate(chain, after).makespan(), simulate(chain, before).makespan());
    }
  }
}

TEST(Property, SteadyUseAllocatesNothing) {
  for (const std::uint64_t seed : {3u, 4u, 5u}) {
    const RandomCase contended = random_case(seed, {.tasks = 200});
    const RandomCase lanes = random_lanes(seed);
    Engine engine;
    Timeline t;
    TaskGraph refilled;
    const std::vector<Demand> demand{Demand::on(0, Bytes(1))};
    const auto round = [&] {
      for (const RandomCase* c : {&contended, &lanes}) {
        refilled.clear();
        for (TaskId i = 0; i < c->graph.size(); ++i) {
          refilled.add(c->graph.latency(i), c->graph.demands(i), c->graph.dependencies(i),
                       c->graph.sharing(i));
        }
        engine.run(refilled, c->machine, t);
      }
    };
    round();
    const long before = allocations();
    EXPECT_GT(before, 0);
    for (int i = 0; i < 10; ++i) round();
    EXPECT_EQ(allocations() - before, 0);
  }
}

}  // namespace
}  // namespace shardline
