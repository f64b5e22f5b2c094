// The fabric's graph itself, for those who walk it: the only header with Boost.Graph, whose 80,000 lines
// would otherwise be parsed by all that knows a system.
#pragma once

#include <boost/graph/adjacency_list.hpp>

#include "hardware/machine/topology.hpp"

namespace shardline {

struct FabricGraph
    : boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, FabricVertex, FabricEdge> {};

}  // namespace shardline
