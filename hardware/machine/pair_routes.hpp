// The ways between two GPUs of a fabric: there are seven kinds, whatever its size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hardware/machine/topology.hpp"

namespace shardline {

/// How the places of two GPUs lie to each other, as far as the routes between them can tell. A NIC of a
/// rail-optimised network has a leaf of its own in each group of leaves; else all NICs there share one.
enum class PairKind : std::uint8_t {
  one_nic,              // of one node
  one_node_one_leaf,    // other NICs
  one_node_two_leaves,  // other rails
  one_leaf,             // of two nodes below the same leaves
  two_leaves,           // the same with another rail
  far_one_rail,         // of nodes below other leaves
  far_two_rails,
};
inline constexpr std::size_t kPairKinds = 7;

/// The place of a GPU in its node: the NIC and the rail (leaf) that serve it, counted from 0.
class NodePlaces {
 public:
  explicit NodePlaces(const FabricSpec& spec);
  int count() const { return static_cast<int>(nic_.size()); }
  int nics() const { return nics_; }
  int rails() const { return rails_; }
  int nic(int place) const { return nic_[static_cast<std::size_t>(place)]; }
  int rail(int place) const { return rails_ == 1 ? 0 : nic(place); }
  /// GPUs of a NIC; the last one may have fewer.
  int gpus_of_nic(int nic) const { return gpus_of_nic_[static_cast<std::size_t>(nic)]; }

  /// Of two other GPUs of a node.
  PairKind inside(int place, int other) const {
    if (nic(place) == nic(other)) return PairKind::one_nic;
    return rails_ == 1 ? PairKind::one_node_one_leaf : PairKind::one_node_two_leaves;
  }
  /// Of GPUs of two nodes, which are `near` if they are below the same leaves.
  static PairKind across(bool near, bool one_rail) {
    if (near) return one_rail ? PairKind::one_leaf : PairKind::two_leaves;
    return one_rail ? PairKind::far_one_rail : PairKind::far_two_rails;
  }

 private:
  int nics_, rails_;
  std::vector<int> nic_, gpus_of_nic_;
};

/// What a unit of flow between two GPUs of a kind takes.
struct PairRoute {
  bool exists = false;  // the fabric has such a pair
  // Shares that go through the NVSwitches of the source's node and of the target's. Inside a node both are
  // the same way. Between nodes NVLink leads to (or from) a GPU on the other's rail, which relays.
  double nvlink_at_source = 0, nvlink_at_target = 0;
  double spine = 0;  // share that climbs from a leaf to the spine
  Seconds latency;   // of the first shortest route
};

/// The routes of a fabric by the kind of pair.
///
/// A shortest route stays in the nodes of its ends and in the leaves and spine between: whatever a third node
/// could do for it, its own nodes do with a crossing less. All pairs of a kind go through links of the same
/// widths and latencies, so one pair of each, in a fabric of one node, another below its leaves and one
/// below others, has all routes.
class PairRoutes {
 public:
  explicit PairRoutes(const FabricSpec& whole);

  const FabricSpec& spec() const { return spec_; }  // of the whole fabric
  const NodePlaces& places() const { return places_; }
  int nodes_per_leaf() const { return nodes_per_leaf_; }
  const PairRoute& of(PairKind kind) const { return routes_[static_cast<std::size_t>(kind)]; }

 private:
  FabricSpec spec_;
  NodePlaces places_;
  int nodes_per_leaf_;
  std::array<PairRoute, kPairKinds> routes_;
};

}  // namespace shardline
