// The resources that tasks share: pipes (bytes per second) and units (operations per second).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

/// Index of a resource in its Machine.
using ResourceId = std::uint32_t;

/// What a resource serves and a demand asks for.
enum class Unit : std::uint8_t { bytes, operations };

/// A pipe or a unit; `capacity` is in units per second.
struct Resource {
  std::string name;
  double capacity = 0;
  Unit unit = Unit::bytes;
};

/// A set of resources. Ids count from 0 in the order of `add`.
class Machine {
 public:
  /// Adds a pipe. The capacity must be positive and finite (checked).
  ResourceId add(std::string name, BytesPerSecond capacity);
  /// Adds a unit. The capacity must be positive and finite (checked).
  ResourceId add(std::string name, FlopsPerSecond capacity);
  void clear();

  std::size_t size() const { return resources_.size(); }
  /// Units per second.
  double capacity(ResourceId id) const { return capacities_[id]; }
  Unit unit(ResourceId id) const { return units_[id]; }
  const Resource& resource(ResourceId id) const { return resources_[id]; }
  /// The largest capacity among the pipes, C_ref of [S4]; zero without pipes.
  BytesPerSecond fastest_pipe() const { return BytesPerSecond(fastest_pipe_); }

 private:
  ResourceId add(std::string name, double capacity, Unit unit);

  std::vector<Resource> resources_;
  std::vector<double> capacities_;  // beside resources_, so that the engine's loop reads no names
  std::vector<Unit> units_;
  double fastest_pipe_ = 0;
};

}  // namespace shardline
