// Replicas that die, as people write them: "2 at 60 s for 5 min".
#pragma once

#include <string>
#include <vector>

#include "planner/requests/cluster.hpp"

namespace shardline {

/// Each text one failure: the replica's number from 0 on, when it dies after the first request, and for how
/// long (left out: for good). In the order of time. Throws UserError with the place of every fault in the
/// texts, as of a file `name`; of replicas that are not there, and of one that would die while it is down.
std::vector<ReplicaFailure> parse_failures(const std::string& name, const std::vector<std::string>& texts,
                                           int replicas);

/// "2 at 60 s for 5 min".
std::string to_string(const ReplicaFailure& failure);

}  // namespace shardline
