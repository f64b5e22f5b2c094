// Ring algorithms: each rank talks to its successor only, in lock step. The choice of NCCL for large
// messages.
#include <algorithm>

#include "hardware/collectives/collective.hpp"

namespace shardline {

CollectiveTime ring_all_reduce(const GroupFabric& g, Bytes bytes) {
  const double n = g.size;
  return {Algorithm::ring, g.whole.neighbour_latency * (2 * (n - 1)), bytes * (2 * (n - 1) / n),
          g.whole.ring};
}

CollectiveTime rails_all_reduce(const GroupFabric& g, Bytes bytes) {
  const double n = g.size, local = g.whole.members_per_node, nodes = n / local;
  const Seconds latency =
      g.inside.neighbour_latency * (2 * (local - 1)) + g.across.neighbour_latency * (2 * (nodes - 1));
  return {Algorithm::rails, latency, bytes * (2 * (n - 1) / n),
          std::min(g.inside.ring, g.across.ring * local)};
}

CollectiveTime rails_all_gather(const GroupFabric& g, Bytes bytes) {
  const double n = g.size, local = g.whole.members_per_node, nodes = n / local;
  // A block goes over all links of the ring but the one that ends at its owner: one inside a node, at worst.
  const Seconds latency = g.inside.neighbour_latency * (n - 1 - nodes) + g.across.neighbour_latency * nodes;
  // Of `local` rings, each member leaves its node in one and passes on inside it in the others.
  const BytesPerSecond rate = std::min(g.inside.ring * (local / (local - 1)), g.across.ring * local);
  return {Algorithm::rails, latency, bytes * (n - 1), rate};
}

CollectiveTime rails_reduce_scatter(const GroupFabric& g, Bytes bytes) {
  return rails_all_gather(g, bytes / static_cast<double>(g.size));
}

CollectiveTime ring_all_gather(const GroupFabric& g, Bytes bytes) {
  const double n = g.size;
  return {Algorithm::ring, g.whole.neighbour_latency * (n - 1), bytes * (n - 1), g.whole.ring};
}

CollectiveTime ring_reduce_scatter(const GroupFabric& g, Bytes bytes) {
  const double n = g.size;
  return {Algorithm::ring, g.whole.neighbour_latency * (n - 1), bytes * ((n - 1) / n), g.whole.ring};
}

}  // namespace shardline
