// Shortest routes through the graph of a fabric, and what traffic along them loads its edges with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "hardware/machine/fabric_graph.hpp"
#include "hardware/machine/topology.hpp"

namespace shardline {

/// The graph of a fabric with its routes. GPU g is vertex g. Routes to a GPU are found when they are first
/// asked for; safe to share between threads.
class FabricRoutes {
 public:
  using Ticks = std::int64_t;

  /// A leaf's uplink carries what `nodes_per_uplink` nodes send through it. SL_CHECKs connected GPUs.
  FabricRoutes(const FabricSpec& spec, int nodes_per_uplink);

  /// An edge belongs to a node or, between a leaf and a spine, to the nodes of one leaf.
  struct Edge {
    BytesPerSecond bandwidth;
    Seconds latency;
    bool network = true;  // not of an NVLink domain
    int node = -1, pod = -1;
  };
  /// All shortest ways to one GPU.
  struct To {
    FabricPlace target = 0;
    std::vector<Ticks> distance;
    std::vector<Seconds> latency;  // of the first shortest route from each vertex
    // Vertices by rank, farthest first, and the links by which each goes on.
    struct Link {
      std::uint32_t rank;  // of the vertex it leads to, larger than that of the one it leaves
      std::uint32_t edge;
      double share;
    };
    std::vector<std::uint32_t> rank;   // of each vertex
    std::vector<std::uint32_t> begin;  // of each rank's links, and the end of all
    std::vector<Link> links;
  };
  /// GPUs and what each sends.
  using Sources = std::vector<std::pair<FabricPlace, double>>;

  const FabricGraph& graph() const { return graph_; }
  const std::vector<Edge>& edges() const { return edges_; }
  const To& to(int gpu) const;
  /// Vertices of the first shortest route.
  std::vector<FabricPlace> route(int from_gpu, int to_gpu) const;
  /// Adds what flows over each edge. Where equally short ways part, they share in proportion to their next
  /// links' bandwidth.
  void add_load(const To& to, const Sources& sources, std::vector<double>& load) const;
  /// The rate at which a unit of the load fills the first edge; edges of the network give the share.
  BytesPerSecond narrowest(const std::vector<double>& load, double network_share = 1) const;

 private:
  struct Arc {
    FabricPlace to;
    std::uint32_t edge;
    Ticks ticks;
  };
  struct Found {
    std::mutex mutex;
    std::vector<std::unique_ptr<To>> to;  // by GPU
  };

  void connect_nvlink(const FabricSpec& spec);
  void connect_network(const FabricSpec& spec, int nodes_per_uplink);
  void connect(FabricPlace a, FabricPlace b, const Edge& edge);
  std::unique_ptr<To> find(int gpu) const;
  void find_links(const std::vector<FabricPlace>& order, To& to) const;

  FabricGraph graph_;
  std::vector<Edge> edges_;
  std::vector<std::vector<Arc>> arcs_;  // flat copy of the graph for the inner loops
  std::unique_ptr<Found> found_;
};

/// Nodes whose traffic a leaf's uplink is made for.
inline int nodes_per_uplink(const FabricSpec& spec) {
  return spec.network.nodes_per_leaf > 0 ? spec.network.nodes_per_leaf : spec.nodes;
}

/// What the links of a fabric achieve, one way.
struct LinkBandwidths {
  BytesPerSecond nvlink;  // of a GPU, all its switches together
  BytesPerSecond host;    // of a GPU to its NIC
  BytesPerSecond nic;     // to its leaf
  BytesPerSecond uplink;  // of a leaf to the spine
};
/// Of a fabric whose uplinks carry what `nodes_per_uplink` nodes send through a leaf.
LinkBandwidths link_bandwidths(const FabricSpec& spec, int nodes_per_uplink);

}  // namespace shardline
