#include "tests/oracle/fluid_oracle.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace shardline {
namespace {

using Real = long double;
constexpr Real kNever = std::numeric_limits<Real>::infinity();

/// d_ir as a full matrix, rows by task.
std::vector<std::vector<Real>> matrix(const TaskGraph& graph, const Machine& machine) {
  std::vector<std::vector<Real>> d(graph.size(), std::vector<Real>(machine.size(), 0));
  for (TaskId i = 0; i < graph.size(); ++i) {
    for (const Demand& demand : graph.demands(i)) d[i][demand.resource] += static_cast<Real>(demand.amount);
  }
  return d;
}

/// w_i as the rule is written, in progress per second and unit of level.
Real weight_of(const std::vector<Real>& d, Sharing sharing, const Machine& machine) {
  Real alone = 0;
  Real most_bytes = 0;
  Real fastest_pipe = 0;
  for (ResourceId r = 0; r < machine.size(); ++r) {
    const Real capacity = static_cast<Real>(machine.capacity(r));
    alone = std::max(alone, d[r] / capacity);
    if (machine.unit(r) == Unit::bytes) {
      most_bytes = std::max(most_bytes, d[r]);
      fastest_pipe = std::max(fastest_pipe, capacity);
    }
  }
  return sharing == Sharing::equal_slowdown ? 1 / alone : fastest_pipe / most_bytes;
}

/// Raises all rates together until a resource is full, freezes its tasks, and goes on with the rest.
std::vector<Real> fill(const std::vector<std::size_t>& active, const std::vector<std::vector<Real>>& d,
                       const std::vector<Real>& weight, const Machine& machine) {
  std::vector<Real> rate(weight.size(), -1);
  std::size_t open = active.size();
  while (open > 0) {
    Real level = kNever;
    ResourceId full = 0;
    for (ResourceId r = 0; r < machine.size(); ++r) {
      Real left = static_cast<Real>(machine.capacity(r));
      Real load = 0;
      for (const std::size_t i : active) {
        if (rate[i] < 0) load += d[i][r] * weight[i];
        if (rate[i] >= 0) left -= d[i][r] * rate[i];
      }
      if (load > 0 && left / load < level) {
        level = left / load;
        full = r;
      }
    }
    for (const std::size_t i : active) {
      if (rate[i] >= 0 || d[i][full] == 0) continue;
      rate[i] = weight[i] * level;
      --open;
    }
  }
  return rate;
}

}  // namespace

Timeline fluid_oracle(const TaskGraph& graph, const Machine& machine) {
  const std::size_t n = graph.size();
  const auto d = matrix(graph, machine);
  std::vector<Real> weight(n, 0);
  std::vector<Real> latency_left(n);
  std::vector<Real> work_left(n, 0);
  for (TaskId i = 0; i < n; ++i) {
    latency_left[i] = static_cast<Real>(graph.latency(i).value);
    if (graph.demands(i).empty()) continue;
    weight[i] = weight_of(d[i], graph.sharing(i), machine);
    work_left[i] = 1;
  }
  std::vector<Real> start(n, -1);
  std::vector<Real> end(n, -1);
  Real now = 0;
  std::size_t ended = 0;
  while (true) {
    for (TaskId i = 0; i < n; ++i) {
      const auto dependencies = graph.dependencies(i);
      const bool ready =
          std::all_of(dependencies.begin(), dependencies.end(), [&](TaskId p) { return end[p] >= 0; });
      if (start[i] < 0 && ready) start[i] = now;
      if (start[i] < 0 || end[i] >= 0 || latency_left[i] > 0 || work_left[i] > 0) continue;
      end[i] = now;  // ids are a topological order, so one sweep also starts what this end allows
      ++ended;
    }
    if (ended == n) break;
    std::vector<std::size_t> active;
    for (std::size_t i = 0; i < n; ++i) {
      if (start[i] >= 0 && end[i] < 0 && latency_left[i] <= 0) active.push_back(i);
    }
    const std::vector<Real> rate = fill(active, d, weight, machine);
    const auto time_left = [&](std::size_t i) {
      if (start[i] < 0 || end[i] >= 0) return kNever;
      return latency_left[i] > 0 ? latency_left[i] : work_left[i] / rate[i];
    };
    Real step = kNever;
    for (std::size_t i = 0; i < n; ++i) step = std::min(step, time_left(i));
    for (std::size_t i = 0; i < n; ++i) {
      const Real left = time_left(i);
      if (left == kNever) continue;
      Real& rest = latency_left[i] > 0 ? latency_left[i] : work_left[i];
      const Real speed = latency_left[i] > 0 ? 1 : rate[i];
      rest = left <= step ? 0 : rest - step * speed;
    }
    now += step;
  }
  Timeline timeline;
  for (std::size_t i = 0; i < n; ++i) {
    timeline.spans.push_back({Seconds(static_cast<double>(start[i])), Seconds(static_cast<double>(end[i]))});
  }
  return timeline;
}

}  // namespace shardline
