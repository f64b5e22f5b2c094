// Reduce-scatter inside each node, all-reduce of the shards across nodes (one ring per local rank, on its own
// rail), all-gather inside each node.
#include "hardware/collectives/collective.hpp"

namespace shardline {

CollectiveTime hierarchical_all_reduce(const GroupFabric& g, Bytes bytes) {
  const double local = g.whole.members_per_node;
  const double nodes = g.size / local;
  const Seconds latency = g.inside.latency * 2.0 + g.across.neighbour_latency * (2 * (nodes - 1));
  const Seconds drain = bytes * (2 * (local - 1) / local) / g.inside.pairwise +
                        bytes * (2 * (nodes - 1) / (nodes * local)) / g.across.ring;
  // One port stands for both tiers: the bytes are those of the network, at the rate that gives the same time.
  const Bytes wire = bytes * (2 * (nodes - 1) / (nodes * local));
  return {Algorithm::hierarchical, latency, wire, wire / drain};
}

}  // namespace shardline
