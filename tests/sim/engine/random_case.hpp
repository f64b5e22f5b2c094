// Random machines and graphs for the engine's tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "sim/engine/machine.hpp"
#include "sim/engine/task_graph.hpp"

namespace shardline {

struct RandomCase {
  Machine machine;
  TaskGraph graph;
};

struct RandomShape {
  int tasks = 40;
  int resources = 6;
  int demands = 3;       // at most, per task
  int dependencies = 2;  // at most, per task
  bool whole = false;    // small whole numbers, so that many events coincide
  double decades = 2;    // spread of capacities and durations
};

inline int uniform(std::mt19937_64& rng, int low, int high) {
  return static_cast<int>(low + static_cast<int>(rng() % static_cast<std::uint64_t>(high - low + 1)));
}
inline double unit_interval(std::mt19937_64& rng) { return static_cast<double>(rng() >> 11) * 0x1p-53; }
inline double spread(std::mt19937_64& rng, double decades) {
  return std::pow(10.0, decades * (unit_interval(rng) - 0.5));
}

/// The first resource is a pipe; the others are pipes or units.
inline Machine random_machine(std::mt19937_64& rng, const RandomShape& shape) {
  Machine machine;
  const int resources = uniform(rng, 1, shape.resources);
  for (int r = 0; r < resources; ++r) {
    const double capacity = shape.whole ? uniform(rng, 1, 4) : 100 * spread(rng, shape.decades);
    if (r == 0 || rng() % 3 != 0) {
      machine.add("pipe", BytesPerSecond(capacity));
    } else {
      machine.add("unit", FlopsPerSecond(capacity));
    }
  }
  return machine;
}

inline TaskGraph random_graph(std::mt19937_64& rng, const Machine& machine, const RandomShape& shape) {
  TaskGraph graph;
  const int tasks = uniform(rng, 1, shape.tasks);
  for (int i = 0; i < tasks; ++i) {
    std::vector<Demand> demands;
    bool bytes = false;
    for (int k = uniform(rng, 0, shape.demands); k > 0; --k) {
      const auto r = static_cast<ResourceId>(uniform(rng, 0, static_cast<int>(machine.size()) - 1));
      const double seconds = spread(rng, shape.decades);
      const double amount = shape.whole ? uniform(rng, 0, 4) : seconds * machine.capacity(r);
      bytes |= machine.unit(r) == Unit::bytes && amount > 0;
      demands.push_back({r, machine.unit(r), amount});
    }
    std::vector<TaskId> dependencies;
    for (int k = i == 0 ? 0 : uniform(rng, 0, shape.dependencies); k > 0; --k) {
      dependencies.push_back(static_cast<TaskId>(uniform(rng, 0, i - 1)));
    }
    const double latency = rng() % 2 == 0 ? 0 : shape.whole ? 1 : spread(rng, shape.decades);
    const Sharing sharing = bytes && rng() % 2 == 0 ? Sharing::equal_rate : Sharing::equal_slowdown;
    graph.add(Seconds(latency), demands, dependencies, sharing, static_cast<std::uint32_t>(i));
  }
  return graph;
}

inline RandomCase random_case(std::uint64_t seed, const RandomShape& shape) {
  std::mt19937_64 rng(seed);
  RandomCase out;
  out.machine = random_machine(rng, shape);
  out.graph = random_graph(rng, out.machine, shape);
  return out;
}

/// Far more tasks than resources, most with one demand: they start together and one by one, end apart and at
/// once, and a few with two demands join crowds and break them up.
inline RandomCase random_crowd(std::uint64_t seed, double decades = 2) {
  std::mt19937_64 rng(seed);
  RandomCase out;
  const int pipes = uniform(rng, 1, 3);
  for (int r = 0; r < pipes; ++r) out.machine.add("pipe", BytesPerSecond(100 * spread(rng, decades)));
  out.machine.add("unit", FlopsPerSecond(100));
  const bool whole = seed % 3 == 0;
  const int two = uniform(rng, 10, 200);  // one task in so many has a second demand
  for (TaskId i = 0; i < 300; ++i) {
    const auto r = static_cast<ResourceId>(rng() % 3 == 0 ? uniform(rng, 0, pipes) : 0);
    const double seconds = whole ? uniform(rng, 1, 4) : spread(rng, decades);
    std::vector<Demand> demands{{r, out.machine.unit(r), seconds * out.machine.capacity(r)}};
    if (uniform(rng, 1, two) == 1) {
      const auto other = static_cast<ResourceId>(uniform(rng, 0, pipes));
      demands.push_back({other, out.machine.unit(other), spread(rng, decades) * out.machine.capacity(other)});
    }
    std::vector<TaskId> dependencies;
    if (i > 100 && rng() % 2 == 0)
      dependencies.push_back(static_cast<TaskId>(uniform(rng, 0, static_cast<int>(i) - 1)));
    const double latency = rng() % 2 == 0 ? 0 : whole ? uniform(rng, 1, 20) : 100 * unit_interval(rng);
    const bool bytes = demands.front().unit == Unit::bytes;
    out.graph.add(Seconds(latency), demands, dependencies,
                  bytes && rng() % 2 == 0 ? Sharing::equal_rate : Sharing::equal_slowdown, i);
  }
  return out;
}

/// Lanes used in turn, each task after the one before it on its lane: nothing is ever shared.
inline RandomCase random_lanes(std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  RandomCase out;
  const int lanes = uniform(rng, 1, 8);
  for (int r = 0; r < lanes; ++r) out.machine.add("lane", BytesPerSecond(100 * spread(rng, 2)));
  std::vector<std::vector<TaskId>> last(static_cast<std::size_t>(lanes));
  for (int i = uniform(rng, 1, 60); i > 0; --i) {
    const auto lane = static_cast<ResourceId>(uniform(rng, 0, lanes - 1));
    std::vector<TaskId> dependencies = last[lane];
    if (out.graph.size() > 0 && rng() % 2 == 0) {
      dependencies.push_back(static_cast<TaskId>(uniform(rng, 0, static_cast<int>(out.graph.size()) - 1)));
    }
    const Seconds latency(rng() % 2 == 0 ? 0 : spread(rng, 2));
    last[lane] = {out.graph.add(latency, std::vector{Demand::on(lane, Bytes(100 * spread(rng, 2)))},
                                dependencies,
                                rng() % 2 == 0 ? Sharing::equal_rate : Sharing::equal_slowdown)};
  }
  return out;
}

}  // namespace shardline
