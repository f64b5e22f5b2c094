// The engine's speed: one core, no allocation inside the timed loop. An event is one start or one end of a
// task. Each benchmark has its goal beside it; besides, all are to be n log n or better.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "sim/engine/engine.hpp"
#include "sim/engine/fold.hpp"
#include "tests/bench/goals.hpp"

namespace shardline {
namespace {

/// 1 MB to 1 GB. Hardly ever twice the same: flows of one size end together, and a thousand sizes would make
/// a million flows look like a thousand.
Bytes random_payload(std::mt19937_64& rng) { return Bytes(1e6 + static_cast<double>(rng() % 999'000'000)); }

struct Case {
  Machine machine;
  TaskGraph graph;
};

/// 64 ranks, each a compute unit, a memory and a link used in turn; every rank hears from its neighbour.
Case exclusive_lanes(std::int64_t tasks) {
  constexpr std::uint32_t kRanks = 64;
  std::mt19937_64 rng(1);
  Case c;
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    c.machine.add("tensor", FlopsPerSecond(1e15));
    c.machine.add("memory", BytesPerSecond(8e12));
    c.machine.add("link", BytesPerSecond(9e11));
  }
  std::vector<TaskId> compute(kRanks, 0);
  std::vector<TaskId> send(kRanks, 0);
  for (std::int64_t step = 0; step < tasks / (2 * kRanks) + 1; ++step) {
    const std::vector<TaskId> received = send;
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      const Bytes bytes = random_payload(rng);
      std::vector<TaskId> after;
      if (step > 0) after = {compute[r], received[(r + 1) % kRanks]};
      compute[r] =
          c.graph.add(microseconds(2), {Demand::on(3 * r, Flops(1e9)), Demand::on(3 * r + 1, bytes)}, after);
      after = {compute[r]};
      if (step > 0) after.push_back(send[r]);
      send[r] = c.graph.add(microseconds(1), {Demand::on(3 * r + 2, bytes)}, after, Sharing::equal_rate);
    }
  }
  return c;
}

/// 64 links, each with 8 chains of flows of random size: always 8 flows to a link.
Case eight_flows_per_link(std::int64_t tasks) {
  constexpr std::uint32_t kChains = 512;
  std::mt19937_64 rng(2);
  Case c;
  for (std::uint32_t link = 0; link < kChains / 8; ++link) c.machine.add("link", BytesPerSecond(4.5e11));
  std::vector<std::vector<TaskId>> last(kChains);
  for (std::int64_t i = 0; i < tasks; ++i) {
    const auto chain = static_cast<std::uint32_t>(i % kChains);
    const std::vector<Demand> demand{Demand::on(chain / 8, random_payload(rng))};
    last[chain] = {c.graph.add(Seconds(0), demand, last[chain], Sharing::equal_rate)};
  }
  return c;
}

/// 64 groups of 8 ports; 8 chains per group whose flows leave by one port and enter by a random other one.
Case eight_flows_between_ports(std::int64_t tasks) {
  constexpr std::uint32_t kChains = 512;
  std::mt19937_64 rng(3);
  Case c;
  for (std::uint32_t port = 0; port < kChains; ++port) {
    c.machine.add("out", BytesPerSecond(4.5e11));
    c.machine.add("in", BytesPerSecond(4.5e11));
  }
  std::vector<std::vector<TaskId>> last(kChains);
  for (std::int64_t i = 0; i < tasks; ++i) {
    const auto chain = static_cast<std::uint32_t>(i % kChains);
    const auto to = static_cast<std::uint32_t>(chain / 8 * 8 + rng() % 8);
    const Bytes bytes = random_payload(rng);
    const std::vector<Demand> demands{Demand::on(2 * chain, bytes), Demand::on(2 * to + 1, bytes)};
    last[chain] = {c.graph.add(microseconds(1), demands, last[chain], Sharing::equal_rate)};
  }
  return c;
}

/// A bulk exchange: all flows on one link, starting together. Every end changes every rate.
Case flows_on_one_link(std::int64_t tasks) {
  std::mt19937_64 rng(4);
  Case c;
  const ResourceId link = c.machine.add("link", BytesPerSecond(4.5e11));
  for (std::int64_t i = 0; i < tasks; ++i) {
    c.graph.add(Seconds(0), {Demand::on(link, random_payload(rng))}, {}, Sharing::equal_rate);
  }
  return c;
}

/// One layer of one rank, as a planner sees it: 20 tasks on 5 of 360 resources; optionally with one transfer
/// that overlaps the kernels on their memory.
Case one_layer(bool overlap) {
  Case c;
  for (int r = 0; r < 72; ++r) {
    c.machine.add("tensor", FlopsPerSecond(1e15));
    c.machine.add("exp", FlopsPerSecond(1e13));
    c.machine.add("memory", BytesPerSecond(8e12));
    c.machine.add("out", BytesPerSecond(9e11));
    c.machine.add("in", BytesPerSecond(9e11));
  }
  std::vector<TaskId> last;
  for (int i = 0; i < 10; ++i) {
    const Bytes bytes(1e6 * (i + 1));
    last = {
        c.graph.add(microseconds(2), {Demand::on(200, Flops(1e9 * (i + 3))), Demand::on(202, bytes)}, last)};
    const TaskId kernel = last.front();
    last = {c.graph.add(microseconds(3), {Demand::on(203, bytes), Demand::on(204, bytes)}, last,
                        Sharing::equal_rate)};
    if (overlap && i % 4 == 1) {
      c.graph.add(microseconds(3), {Demand::on(203, bytes * 8), Demand::on(202, bytes * 8)}, {kernel},
                  Sharing::equal_rate);
    }
  }
  return c;
}

constexpr double kLanes = 10e6;                // goals, in events/s
constexpr double kContended = 2e6;             // eight flows to a resource
constexpr double kCrowded = 2 * 8192 / 10e-3;  // 8,192 flows of one link in 10 ms
constexpr double kSmall = 2 * 20 / 2e-6;       // 20 tasks in 2 us

void play(benchmark::State& state, const Case& c, Engine::Method method, bool replays, double goal_rate) {
  Engine engine(method);
  Timeline timeline;
  engine.run(c.graph, c.machine, timeline);
  if (engine.replayed() != replays) state.SkipWithError("the other path was taken");
  const Goal goal = Goal::rate(state, goal_rate, 2 * static_cast<double>(c.graph.size()));
  for (auto _ : state) {
    engine.run(c.graph, c.machine, timeline);
    benchmark::DoNotOptimize(timeline.spans.data());
    benchmark::ClobberMemory();
  }
  const auto tasks = static_cast<std::int64_t>(c.graph.size());
  state.SetItemsProcessed(state.iterations() * tasks);
  state.counters["events/s"] =
      benchmark::Counter(2.0 * static_cast<double>(tasks), benchmark::Counter::kIsIterationInvariantRate);
  state.SetComplexityN(tasks);
}

void exclusive_lanes_replay(benchmark::State& state) {
  play(state, exclusive_lanes(state.range(0)), Engine::Method::automatic, true, kLanes);
}
void exclusive_lanes_events(benchmark::State& state) {
  play(state, exclusive_lanes(state.range(0)), Engine::Method::events, false, kLanes);
}
void contended_one_link_each(benchmark::State& state) {
  play(state, eight_flows_per_link(state.range(0)), Engine::Method::automatic, false, kContended);
}
void contended_two_ports_each(benchmark::State& state) {
  play(state, eight_flows_between_ports(state.range(0)), Engine::Method::automatic, false, kContended);
}
void all_on_one_link(benchmark::State& state) {
  play(state, flows_on_one_link(state.range(0)), Engine::Method::automatic, false, kCrowded);
}
void small_graph(benchmark::State& state) {
  play(state, one_layer(false), Engine::Method::automatic, true, kSmall);
}
void small_graph_events(benchmark::State& state) {
  play(state, one_layer(false), Engine::Method::events, false, kLanes);
}
void small_graph_contended(benchmark::State& state) {
  play(state, one_layer(true), Engine::Method::automatic, false, kContended);
}

void small_graph_refill_and_play(benchmark::State& state) {
  const Case c = one_layer(false);
  TaskGraph graph;
  Engine engine;
  Timeline timeline;
  const Goal goal = Goal::seconds(state, 2e-6);
  for (auto _ : state) {
    graph.clear();
    for (TaskId i = 0; i < c.graph.size(); ++i) {
      graph.add(c.graph.latency(i), c.graph.demands(i), c.graph.dependencies(i), c.graph.sharing(i));
    }
    engine.run(graph, c.machine, timeline);
    benchmark::DoNotOptimize(timeline.spans.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(c.graph.size()));
}

/// 8 customers on a ring of 8 stations: range(0) rounds unrolled, against the closed form [S9].
void ring_unrolled(benchmark::State& state) {
  Case c;
  std::vector<std::vector<TaskId>> station(8);
  std::vector<std::vector<TaskId>> customer(8);
  for (int k = 0; k < 8; ++k) c.machine.add("station", BytesPerSecond(1));
  for (std::int64_t round = 0; round < state.range(0); ++round) {
    for (auto& at : customer) {
      for (ResourceId k = 0; k < 8; ++k) {
        std::vector<TaskId> after = station[k];
        after.insert(after.end(), at.begin(), at.end());
        station[k] = {c.graph.add(Seconds(0), {Demand::on(k, Bytes(k + 1.5))}, after)};
        at = {c.graph.add(Seconds(0.25), {}, station[k])};
      }
    }
  }
  play(state, c, Engine::Method::automatic, true, kLanes);
}
void ring_folded(benchmark::State& state) {
  Seconds round_trip(42);
  const Goal goal = Goal::seconds(state, 100e-9);
  for (auto _ : state) {
    benchmark::DoNotOptimize(round_trip);
    benchmark::DoNotOptimize(steady_period(round_trip, Seconds(8.5), 8));
  }
}

void sizes(benchmark::internal::Benchmark* b) {
  b->Arg(1'000)->Arg(10'000)->Arg(100'000)->Arg(1'000'000)->Unit(benchmark::kMicrosecond);
}

BENCHMARK(exclusive_lanes_replay)->Apply(sizes)->Complexity();
BENCHMARK(exclusive_lanes_events)->Apply(sizes)->Complexity();
BENCHMARK(contended_one_link_each)->Apply(sizes)->Complexity();
BENCHMARK(contended_two_ports_each)->Apply(sizes)->Complexity();
BENCHMARK(all_on_one_link)
    ->RangeMultiplier(2)
    ->Range(8, 64)
    ->Arg(1'024)
    ->Arg(8'192)
    ->Arg(65'536)
    ->Unit(benchmark::kMicrosecond)
    ->Complexity(benchmark::oNLogN);
BENCHMARK(small_graph);
BENCHMARK(small_graph_events);
BENCHMARK(small_graph_contended);
BENCHMARK(small_graph_refill_and_play);
BENCHMARK(ring_unrolled)->Arg(50)->Arg(5'000)->Unit(benchmark::kMicrosecond);
BENCHMARK(ring_folded);

}  // namespace
}  // namespace shardline
