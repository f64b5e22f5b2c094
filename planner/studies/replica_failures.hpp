// Replicas that die, as people write them: "2 at 60 s for 5 min".
#pragma once

#include <string>
#include <vector>

#include "planner/requests/cluster.hpp"

namespace shardline {

/// How many replicas there are: of one pool, or of both of a pair, where it is said of which one is.
struct ReplicaCounts {
  int decode = 1;
  int prefill = 0;  // 0: one pool
};

/// Each text one failure: of a pair the pool, then the replica's number from 0 on, when it dies after the
/// first request, and for how long (left out: for good). In the order of time. Throws UserError with the
/// place of every fault in the texts, as of a file `name`; of replicas that are not there, and of one that
/// would die while it is down.
std::vector<ReplicaFailure> parse_failures(const std::string& name, const std::vector<std::string>& texts,
                                           const ReplicaCounts& replicas);

/// "2 at 60 s for 5 min", "prefill 2 at 60 s".
std::string to_string(const ReplicaFailure& failure);

}  // namespace shardline
