// Time of a collective by every algorithm that the group's fabric allows; the fastest is taken and named.
#pragma once

#include <string_view>

#include "hardware/machine/topology.hpp"

namespace shardline {

enum class Algorithm : std::uint8_t {
  none,
  direct,
  one_shot,
  two_shot,
  ring,
  tree,
  nvls,
  hierarchical,
  rails
};
std::string_view to_string(Algorithm algorithm);

/// time = latency + wire / rate. Without the kernel cost, which kernel_cost adds.
struct CollectiveTime {
  Algorithm algorithm = Algorithm::none;
  Seconds latency;
  Bytes wire;           // through this rank's port
  BytesPerSecond rate;  // of this rank's share of the fabric
  Seconds total() const { return latency + wire / rate; }
};

/// Group paths, with those inside a node and across nodes that a hierarchical algorithm needs.
struct GroupFabric {
  int size = 1;
  GroupPaths whole;
  bool hierarchical = false;  // equal numbers of members on more than one node
  GroupPaths inside, across;
};

GroupFabric group_fabric(const Fabric& fabric, Group group);

/// Which all-reduce algorithms may be used; a scenario can pin one to compare (`all_reduce: nvls`).
enum class AllReduceRule : std::uint8_t { fastest, one_shot, two_shot, ring, tree, nvls };

// One file each: ring.cpp, tree.cpp, pairwise.cpp, nvls.cpp, hierarchical.cpp. `bytes` as in ExchangeShape.
CollectiveTime ring_all_reduce(const GroupFabric& g, Bytes bytes);      // [H6]
CollectiveTime rails_all_reduce(const GroupFabric& g, Bytes bytes);     // [H6]
CollectiveTime ring_all_gather(const GroupFabric& g, Bytes bytes);      // [H7]
CollectiveTime ring_reduce_scatter(const GroupFabric& g, Bytes bytes);  // [H7]
CollectiveTime tree_all_reduce(const GroupFabric& g, Bytes bytes);      // [H8]
CollectiveTime one_shot_all_reduce(const GroupFabric& g, Bytes bytes);  // [H9]
CollectiveTime two_shot_all_reduce(const GroupFabric& g, Bytes bytes);  // [H10]
CollectiveTime direct_all_gather(const GroupFabric& g, Bytes bytes);    // [H11]
CollectiveTime direct_reduce_scatter(const GroupFabric& g, Bytes bytes);
CollectiveTime direct_all_to_all(const GroupFabric& g, Bytes bytes);                 // [H12]
CollectiveTime send_recv(const GroupFabric& g, Bytes bytes);                         // [H13]
CollectiveTime nvls_all_reduce(const GroupFabric& g, Bytes bytes);                   // [H14]
CollectiveTime hierarchical_all_reduce(const GroupFabric& g, Bytes bytes);           // [H15]
CollectiveTime hierarchical_one_shot_all_reduce(const GroupFabric& g, Bytes bytes);  // [H15]
// The following need `g.hierarchical`.
CollectiveTime rails_all_gather(const GroupFabric& g, Bytes bytes);         // [H59]
CollectiveTime rails_reduce_scatter(const GroupFabric& g, Bytes bytes);     // [H59]
CollectiveTime hierarchical_all_gather(const GroupFabric& g, Bytes bytes);  // [H60]
CollectiveTime hierarchical_reduce_scatter(const GroupFabric& g, Bytes bytes);
CollectiveTime rails_all_to_all(const GroupFabric& g, Bytes bytes);  // [H61]

/// The fastest available algorithm (ties to the earlier one of the enumeration). `kind` must be a
/// communication.
CollectiveTime collective(OpKind kind, const GroupFabric& g, Bytes bytes,
                          AllReduceRule rule = AllReduceRule::fastest);

}  // namespace shardline
