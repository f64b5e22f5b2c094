// Direct algorithms: every rank reads from or writes to every other at once. Loads and stores over NVLink, or
// grouped send/recv where a network lies between.
#include "hardware/collectives/collective.hpp"

namespace shardline {

CollectiveTime one_shot_all_reduce(const GroupFabric& g, Bytes bytes) {
  const double n = g.size;
  return {Algorithm::one_shot, g.whole.latency, bytes * (n - 1), g.whole.pairwise};
}

CollectiveTime two_shot_all_reduce(const GroupFabric& g, Bytes bytes) {
  const double n = g.size;
  return {Algorithm::two_shot, g.whole.latency * 2.0, bytes * (2 * (n - 1) / n), g.whole.pairwise};
}

CollectiveTime direct_all_gather(const GroupFabric& g, Bytes bytes) {
  return {Algorithm::direct, g.whole.latency, bytes * (g.size - 1.0), g.whole.gather};
}

CollectiveTime direct_reduce_scatter(const GroupFabric& g, Bytes bytes) {
  const double n = g.size;
  return {Algorithm::direct, g.whole.latency, bytes * ((n - 1) / n), g.whole.gather};
}

CollectiveTime direct_all_to_all(const GroupFabric& g, Bytes bytes) {
  return {Algorithm::direct, g.whole.all_to_all, bytes, g.whole.pairwise};
}

CollectiveTime send_recv(const GroupFabric& g, Bytes bytes) {
  return {Algorithm::direct, g.whole.send_recv, bytes, g.whole.ring};
}

}  // namespace shardline
