#include "sim/engine/fold.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "sim/engine/engine.hpp"
#include "tests/sim/engine/random_case.hpp"

namespace shardline {
namespace {

struct Ring {
  std::vector<double> services;
  std::vector<double> hops;

  Cycle cycle() const {
    Cycle c;
    for (const double s : services) {
      c.latency += Seconds(s);
      c.busiest = std::max(c.busiest, Seconds(s));
    }
    for (const double h : hops) c.latency += Seconds(h);
    return c;
  }
};

Ring random_ring(std::mt19937_64& rng, int stations) {
  Ring ring;
  for (int k = 0; k < stations; ++k) {
    ring.services.push_back(spread(rng, 1));
    ring.hops.push_back(rng() % 3 == 0 ? 0 : spread(rng, 2));
  }
  return ring;
}

/// Unrolls the ring: `customers` pass all stations `rounds` times in FIFO order; returns the end of every
/// service at the last station, by round and customer. Customers begin together at the first station.
std::vector<std::vector<Seconds>> unroll(const Ring& ring, int customers, int rounds) {
  Machine m;
  for (std::size_t k = 0; k < ring.services.size(); ++k) m.add("station", BytesPerSecond(1));
  TaskGraph g;
  std::vector<std::vector<TaskId>> arrived(static_cast<std::size_t>(customers));
  std::vector<std::vector<TaskId>> last(ring.services.size());
  std::vector<std::vector<TaskId>> passes;
  for (int round = 0; round < rounds; ++round) {
    passes.emplace_back();
    for (auto& at : arrived) {
      for (ResourceId k = 0; k < ring.services.size(); ++k) {
        std::vector<TaskId> dependencies = last[k];
        dependencies.insert(dependencies.end(), at.begin(), at.end());
        const TaskId service = g.add(Seconds(0), {Demand::on(k, Bytes(ring.services[k]))}, dependencies);
        last[k] = {service};
        at = {g.add(Seconds(ring.hops[k]), {}, {service})};
        if (k + 1 == ring.services.size()) passes.back().push_back(service);
      }
    }
  }
  const Timeline t = simulate(g, m);
  std::vector<std::vector<Seconds>> ends;
  for (const auto& pass : passes) {
    ends.emplace_back();
    for (const TaskId task : pass) ends.back().push_back(t.spans[task].end);
  }
  return ends;
}

TEST(Fold, S9SteadyPeriodOfARing) {
  constexpr int kRounds = 50;
  int bound_by_station = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    const int stations = uniform(rng, 1, 8);
    const int customers = seed % 2 == 0 ? stations : uniform(rng, 1, 12);
    const Ring ring = random_ring(rng, stations);
    const auto ends = unroll(ring, customers, kRounds);
    const Seconds period = steady_period(ring.cycle(), customers);
    bound_by_station += period > ring.cycle().latency ? 1 : 0;
    for (std::size_t c = 0; c < ends.back().size(); ++c) {
      const Seconds mean = (ends[kRounds - 1][c] - ends[kRounds - 11][c]) / 10;
      EXPECT_NEAR(mean / period, 1, 1e-12) << "customer " << c;
    }
  }
  EXPECT_GT(bound_by_station, 40);
  EXPECT_LT(bound_by_station, 160);
}

TEST(Fold, S8PipelineThroughUnequalStations) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    const Ring ring = random_ring(rng, uniform(rng, 1, 8));
    const int customers = uniform(rng, 1, 40);
    Cycle pass = ring.cycle();
    pass.latency -= Seconds(ring.hops.back());  // unroll reports the end of the last service
    const Seconds last = unroll(ring, customers, 1).front().back();
    EXPECT_NEAR(last / pipeline(pass, customers), 1, 1e-12);
  }
}

TEST(Fold, S7RepeatedBlocksWithABarrier) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomCase c = random_case(seed, {.tasks = 20});
    const long count = 1 + static_cast<long>(seed % 30);
    TaskGraph g;
    std::vector<TaskId> barrier;
    for (long block = 0; block < count; ++block) {
      const auto first = static_cast<TaskId>(g.size());
      std::vector<TaskId> all;
      for (TaskId i = 0; i < c.graph.size(); ++i) {
        std::vector<TaskId> dependencies = barrier;
        for (const TaskId d : c.graph.dependencies(i)) dependencies.push_back(first + d);
        all.push_back(g.add(c.graph.latency(i), c.graph.demands(i), dependencies, c.graph.sharing(i)));
      }
      barrier = {g.add(Seconds(0), {}, all)};
    }
    const Seconds block = simulate(c.graph, c.machine).makespan();
    const Seconds whole = simulate(g, c.machine).makespan();
    EXPECT_NEAR(whole.value, repeat(block, count).value, 1e-12 * whole.value);
  }
}

}  // namespace
}  // namespace shardline
