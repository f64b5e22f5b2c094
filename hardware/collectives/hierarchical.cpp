// Reduce-scatter inside each node, all-reduce of the shards across nodes (one ring per local rank, on its own
// rail), all-gather inside each node. Short messages: one-shot all-reduce inside, then every local rank
// reduces the whole buffer across nodes, so that nothing is left to gather.
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

CollectiveTime hierarchical_one_shot_all_reduce(const GroupFabric& g, Bytes bytes) {
  const double local = g.whole.members_per_node;
  const double nodes = g.size / local;
  const Seconds latency = g.inside.latency + g.across.neighbour_latency * (2 * (nodes - 1));
  const Bytes wire = bytes * (2 * (nodes - 1) / nodes);
  const Seconds drain = bytes * (local - 1) / g.inside.pairwise + wire / g.across.ring;
  return {Algorithm::hierarchical, latency, wire, wire / drain};
}

}  // namespace shardline
