// The fabric as a graph of GPUs, NVSwitches, NICs, leaf and spine switches. Routes, latencies and the
// bandwidth that a group of ranks gets follow from the graph and from where the ranks sit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "models/ir/schedule.hpp"
#include "sim/base/reader.hpp"
#include "sim/base/units.hpp"

namespace shardline {

struct NvlinkSpec {
  int switches = 0;          // per node; a GPU has an equal share of its links to each
  BytesPerSecond bandwidth;  // per GPU and direction
  Seconds latency;           // GPU to GPU, with the synchronisation of one step
  double efficiency = 1;     // achieved fraction of the bandwidth
  bool multicast = false;    // NVLS: the switches reduce and multicast
};

struct NetworkSpec {
  bool present = false;
  BytesPerSecond bandwidth;  // per NIC and direction
  Seconds latency;           // GPU to GPU through one leaf, with the synchronisation of one step
  double efficiency = 1;
  int gpus_per_nic = 1;
  BytesPerSecond host_link;     // GPU to NIC (PCIe or C2C)
  bool rail_optimised = true;   // one leaf per local GPU index; else one leaf per `nodes_per_leaf` nodes
  int nodes_per_leaf = 0;       // 0: one leaf reaches all nodes
  double oversubscription = 1;  // leaf downlink over uplink bandwidth
  Seconds spine_latency;        // added when a route climbs to a spine switch
  // Beside those of a collective's step: grouped send/recv takes longer, and one message to one peer does not
  // fill a NIC as messages to many do.
  Seconds send_recv_extra, all_to_all_extra;
  double send_recv_share = 1;  // of the bandwidth above that a ring of messages gets
};

struct FabricSpec {
  int nodes = 1;
  int gpus_per_node = 1;
  int tray = 0;  // GPUs of the boards that a node is made of, which are handed out whole; 0: the node is one
  NvlinkSpec nvlink;
  NetworkSpec network;
  int gpus_per_tray() const { return tray > 0 ? tray : gpus_per_node; }
};

FabricSpec read_fabric(const Reader& reader);

enum class VertexKind : std::uint8_t { gpu, nvswitch, nic, leaf, spine };
std::string_view to_string(VertexKind kind);

struct FabricVertex {
  VertexKind kind = VertexKind::gpu;
  int index = 0;  // GPUs: the rank that sits there
};

struct FabricEdge {
  BytesPerSecond bandwidth;  // achieved, one direction
  Seconds latency;
  std::int64_t ticks = 0;  // of latency, what routes are compared by
};

/// The vertices above and the edges between them, one each way: hardware/machine/fabric_graph.hpp.
struct FabricGraph;
class FabricRoutes;               // hardware/machine/routes.hpp
class PairRoutes;                 // hardware/machine/pair_routes.hpp
using FabricPlace = std::size_t;  // of a vertex in the graph

/// A route and its narrowest edge.
struct Route {
  std::vector<FabricPlace> vertices;  // both GPUs included
  Seconds latency;
  BytesPerSecond bottleneck;  // of all parallel shortest routes together
};

/// What a group of ranks gets when every such group of the machine communicates at once.
struct GroupPaths {
  bool one_node = true;       // all members share an NVLink domain
  bool multicast = false;     // ... whose switches can reduce and multicast
  int members_per_node = 1;   // 0 if nodes hold unequal numbers
  Seconds latency;            // largest route latency between two members
  Seconds neighbour_latency;  // largest between ring neighbours
  BytesPerSecond pairwise;    // per rank when each sends equally to all others [H4]
  BytesPerSecond ring;        // per rank when each sends to its successor only [H5]
  BytesPerSecond gather;      // pairwise, of point-to-point messages where a network is crossed [H4]
  Seconds send_recv;          // neighbour_latency, of a send and receive
  Seconds all_to_all;         // latency, of an all-to-all
};

class Fabric {
 public:
  /// SL_CHECKs a positive GPU count and connected GPUs. Takes as long for a thousand nodes as for three.
  explicit Fabric(const FabricSpec& spec);

  const FabricSpec& spec() const { return spec_; }
  const FabricGraph& graph() const;
  int gpus() const { return spec_.nodes * spec_.gpus_per_node; }

  /// Shortest route by latency. Where equally short ways part, they share in proportion to their next links'
  /// bandwidth.
  Route route(int from_gpu, int to_gpu) const;

  /// One-way latency of route(from, to).
  Seconds latency(int from_gpu, int to_gpu) const;

  /// group.size * group.stride must not exceed gpus().
  GroupPaths paths(Group group) const;

  /// Smallest total bandwidth between two halves of the first `gpus` GPUs (even split in rank order).
  BytesPerSecond bisection(int gpus) const;

 private:
  // The whole graph, which the paths of groups need not, is built when it is first asked for.
  struct Whole;
  const FabricRoutes& routes() const;

  FabricSpec spec_;
  std::shared_ptr<const PairRoutes> pairs_;  // copies share it: nothing changes it
  std::shared_ptr<Whole> whole_;
};

}  // namespace shardline
