// Ops of one rank that touch the same numbers though no dependency orders them.
#pragma once

#include <string>
#include <vector>

#include "models/ir/schedule.hpp"

namespace shardline {

/// Nothing orders `first` and `second`, and one of them writes what the other reads or writes.
struct Hazard {
  OpIndex first, second;
  int rank = 0;
  SlotId slot;
};

/// At most one per pair of ops and rank. Order comes from dependencies, lanes and block ends.
std::vector<Hazard> hazards(const Schedule& schedule);
std::string to_string(const Schedule& schedule, const Hazard& hazard);

}  // namespace shardline
