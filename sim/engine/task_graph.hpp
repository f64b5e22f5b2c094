// Tasks with a latency, demands on resources and dependencies, in compressed rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/engine/machine.hpp"
#include "sim/engine/sharing.hpp"

namespace shardline {

/// Index of a task in its TaskGraph.
using TaskId = std::uint32_t;

/// An amount that a task takes from one resource.
struct Demand {
  ResourceId resource = 0;
  Unit unit = Unit::bytes;
  double amount = 0;

  static Demand on(ResourceId resource, Bytes bytes) { return {resource, Unit::bytes, bytes.value}; }
  static Demand on(ResourceId resource, Flops flops) { return {resource, Unit::operations, flops.value}; }
};

/// A graph of tasks [S1]. Dependencies point to smaller ids, so ids are a topological order. `clear` keeps
/// the storage: a graph refilled to its former size allocates nothing.
class TaskGraph {
 public:
  /// Adds a task. Its latency and demands are finite and not negative, its dependencies exist already, and an
  /// equal_rate task has a demand in bytes or none (all checked). Zero demands are dropped; demands on one
  /// resource are added up. `tag` is the caller's own.
  TaskId add(Seconds latency, std::span<const Demand> demands, std::span<const TaskId> dependencies,
             Sharing sharing = Sharing::equal_slowdown, std::uint32_t tag = 0);
  TaskId add(Seconds latency, std::initializer_list<Demand> demands,
             std::initializer_list<TaskId> dependencies, Sharing sharing = Sharing::equal_slowdown,
             std::uint32_t tag = 0) {
    return add(latency, std::span(demands.begin(), demands.size()),
               std::span(dependencies.begin(), dependencies.size()), sharing, tag);
  }
  TaskId add(Seconds latency, std::initializer_list<Demand> demands, std::span<const TaskId> dependencies,
             Sharing sharing = Sharing::equal_slowdown, std::uint32_t tag = 0) {
    return add(latency, std::span(demands.begin(), demands.size()), dependencies, sharing, tag);
  }
  TaskId add(Seconds latency, std::span<const Demand> demands, std::initializer_list<TaskId> dependencies,
             Sharing sharing = Sharing::equal_slowdown, std::uint32_t tag = 0) {
    return add(latency, demands, std::span(dependencies.begin(), dependencies.size()), sharing, tag);
  }
  void clear();

  std::size_t size() const { return tasks_.size(); }
  Seconds latency(TaskId id) const { return Seconds(tasks_[id].latency); }
  Sharing sharing(TaskId id) const { return tasks_[id].sharing; }
  std::uint32_t tag(TaskId id) const { return tasks_[id].tag; }
  std::span<const Demand> demands(TaskId id) const {
    const std::uint32_t begin = first_demand(id);
    return {demands_.data() + begin, tasks_[id].demands_end - begin};
  }
  std::span<const TaskId> dependencies(TaskId id) const {
    const std::uint32_t begin = id == 0 ? 0 : tasks_[id - 1].dependencies_end;
    return {dependencies_.data() + begin, tasks_[id].dependencies_end - begin};
  }

  /// Position of the task's first demand in all demands.
  std::uint32_t first_demand(TaskId id) const { return id == 0 ? 0 : tasks_[id - 1].demands_end; }
  std::size_t demand_count() const { return demands_.size(); }
  std::size_t dependency_count() const { return dependencies_.size(); }
  /// One more than the largest resource id demanded; zero without demands.
  std::size_t resource_bound() const { return resource_bound_; }

 private:
  struct Row {
    double latency;
    std::uint32_t demands_end;
    std::uint32_t dependencies_end;
    std::uint32_t tag;
    Sharing sharing;
  };

  void add_demand(const Demand& demand, std::size_t first);

  std::vector<Row> tasks_;
  std::vector<Demand> demands_;
  std::vector<TaskId> dependencies_;
  std::vector<std::uint32_t> slot_;  // per resource, where its last demand may stand in demands_
  std::size_t resource_bound_ = 0;
};

}  // namespace shardline
