// What goes between two layouts of a cache, number by number: the oracle of pieces and descriptors.
#pragma once

#include <map>
#include <utility>

#include "tests/planner/handoff/random_pairs.hpp"

namespace shardline::testing {

/// By sender and receiver, from the definitions of the strategies.
std::map<std::pair<int, int>, RankPair> enumerated(const RandomPair& pair);

}  // namespace shardline::testing
