#include "sim/engine/machine.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

ResourceId Machine::add(std::string name, BytesPerSecond capacity) {
  const ResourceId id = add(std::move(name), capacity.value, Unit::bytes);
  fastest_pipe_ = std::max(fastest_pipe_, capacity.value);
  return id;
}

ResourceId Machine::add(std::string name, FlopsPerSecond capacity) {
  return add(std::move(name), capacity.value, Unit::operations);
}

ResourceId Machine::add(std::string name, double capacity, Unit unit) {
  SL_CHECK(std::isfinite(capacity) && capacity > 0,
           "the capacity of resource '" + name + "' is positive and finite");
  const auto id = static_cast<ResourceId>(resources_.size());
  resources_.push_back({std::move(name), capacity, unit});
  capacities_.push_back(capacity);
  units_.push_back(unit);
  return id;
}

void Machine::clear() {
  resources_.clear();
  capacities_.clear();
  units_.clear();
  fastest_pipe_ = 0;
}

}  // namespace shardline
