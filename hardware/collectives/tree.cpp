// Pipelined double binary tree: every rank is an inner node of one of two trees, so both directions of its
// port carry the whole buffer once up and once down.
#include <cmath>

#include "hardware/collectives/collective.hpp"

namespace shardline {

CollectiveTime tree_all_reduce(const GroupFabric& g, Bytes bytes) {
  const double depth = std::ceil(std::log2(static_cast<double>(g.size)));
  return {Algorithm::tree, g.whole.latency * (2 * depth), bytes * 2.0, g.whole.pairwise};
}

}  // namespace shardline
