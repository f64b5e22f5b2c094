// Reduce-scatter inside each node, all-reduce of the shards across nodes (one ring per local rank, on its own
// rail), all-gather inside each node. Short messages: one-shot all-reduce inside, then every local rank
// reduces the whole buffer across nodes, so that nothing is left to gather.
// All-gather, reduce-scatter and all-to-all: bytes cross the network on the rail of the rank that they end at
// (or came from), and NVLink spreads them, chunk by chunk, while the network goes on.
#include <algorithm>

#include "hardware/collectives/collective.hpp"

namespace shardline {

namespace {

// Both tiers are busy at once; the slower one counts. `across` and `inside` are shares of `bytes`.
CollectiveTime two_tiers(Algorithm algorithm, Seconds latency, Bytes bytes, double across,
                         BytesPerSecond network, double inside, BytesPerSecond nvlink) {
  // One port stands for both tiers, as below.
  return {algorithm, latency, bytes * across, std::min(network, nvlink * (across / inside))};
}

}  // namespace

CollectiveTime hierarchical_all_gather(const GroupFabric& g, Bytes bytes) {
  const double local = g.whole.members_per_node, nodes = g.size / local;
  return two_tiers(Algorithm::hierarchical, g.across.latency + g.inside.latency, bytes, nodes - 1,
                   g.across.gather, nodes * (local - 1), g.inside.gather);
}

CollectiveTime hierarchical_reduce_scatter(const GroupFabric& g, Bytes bytes) {
  return hierarchical_all_gather(g, bytes / static_cast<double>(g.size));
}

CollectiveTime rails_all_to_all(const GroupFabric& g, Bytes bytes) {
  const double n = g.size, local = g.whole.members_per_node, nodes = n / local;
  return two_tiers(Algorithm::rails, g.inside.latency + g.across.all_to_all, bytes, (n - local) / (n - 1),
                   g.across.pairwise, nodes * (local - 1) / (n - 1), g.inside.pairwise);
}

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
