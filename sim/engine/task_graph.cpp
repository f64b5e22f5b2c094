#include "sim/engine/task_graph.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "sim/base/asking.hpp"
#include "sim/base/error.hpp"

namespace shardline {
namespace {

bool finite_and_not_negative(double v) { return v >= 0 && v <= std::numeric_limits<double>::max(); }

}  // namespace

TaskId TaskGraph::add(Seconds latency, std::span<const Demand> demands, std::span<const TaskId> dependencies,
                      Sharing sharing, std::uint32_t tag) {
  SL_CHECK(finite_and_not_negative(latency.value), "a latency is finite and not negative");
  SL_CHECK(tasks_.size() < std::numeric_limits<TaskId>::max() - 1, "task ids fit 32 bits");
  const auto id = static_cast<TaskId>(tasks_.size());
  // Checked before anything is stored, so that a failed add leaves the graph as it was.
  bool bytes = false;
  bool anything = false;
  for (const Demand& demand : demands) {
    SL_CHECK(finite_and_not_negative(demand.amount), "a demand is finite and not negative");
    anything |= demand.amount > 0;
    bytes |= demand.amount > 0 && demand.unit == Unit::bytes;
  }
  SL_CHECK(sharing != Sharing::equal_rate || bytes || !anything, "an equal_rate task moves bytes");
  for (const TaskId dependency : dependencies) {
    SL_CHECK(dependency < id, "a task depends on earlier tasks only; task " + std::to_string(id) +
                                  " depends on " + std::to_string(dependency));
  }

  grow_asking(demands_, demands.size());
  const std::size_t first = demands_.size();
  for (const Demand& demand : demands) {
    if (demand.amount > 0) add_demand(demand, first);
  }
  dependencies_.insert(dependencies_.end(), dependencies.begin(), dependencies.end());
  constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max() - 1;
  SL_CHECK(demands_.size() < kMost && dependencies_.size() < kMost, "row offsets fit 32 bits");
  tasks_.push_back({latency.value, static_cast<std::uint32_t>(demands_.size()),
                    static_cast<std::uint32_t>(dependencies_.size()), tag, sharing});
  return id;
}

void TaskGraph::add_demand(const Demand& demand, std::size_t first) {
  if (demand.resource >= slot_.size()) slot_.resize(std::size_t{demand.resource} + 1, 0);
  // A stale slot is told from a live one by what stands there; so clear() need not visit the table.
  const std::size_t slot = slot_[demand.resource];
  if (slot >= first && slot < demands_.size() && demands_[slot].resource == demand.resource) {
    SL_CHECK(demands_[slot].unit == demand.unit, "demands on one resource have one unit");
    demands_[slot].amount += demand.amount;
    SL_CHECK(std::isfinite(demands_[slot].amount), "the demands on one resource have a finite sum");
    return;
  }
  slot_[demand.resource] = static_cast<std::uint32_t>(demands_.size());
  demands_.push_back(demand);
  resource_bound_ = std::max(resource_bound_, std::size_t{demand.resource} + 1);
}

void TaskGraph::clear() {
  tasks_.clear();
  demands_.clear();
  dependencies_.clear();
  resource_bound_ = 0;
}

}  // namespace shardline
