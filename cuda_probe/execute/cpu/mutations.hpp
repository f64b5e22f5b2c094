// Ways to break a schedule. Tests apply them to see that `check` finds what it is there to find.
#pragma once

#include <random>
#include <span>

#include "models/ir/schedule.hpp"

namespace shardline {

struct Mutation {
  const char* name;
  const char* what;
  /// Changes the schedule and its data flow at a random place where that makes a difference; false, and
  /// nothing changed, if there is none.
  bool (*apply)(Schedule& schedule, std::mt19937_64& random);
};

std::span<const Mutation> mutations();

/// A copy with a data flow of its own.
Schedule deep_copy(const Schedule& schedule);

}  // namespace shardline
