#include "hardware/machine/routes.hpp"

#include <algorithm>
#include <bit>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

using Vertex = FabricPlace;

// Femtoseconds, so that equal routes compare equal. One extra tick per hop keeps routes short where latencies
// are zero, and every hop strictly closer.
std::int64_t ticks_of(Seconds latency) { return std::llround(latency.value * 1e15) + 1; }

int nics_per_node(const FabricSpec& spec) {
  return (spec.gpus_per_node + spec.network.gpus_per_nic - 1) / spec.network.gpus_per_nic;
}

}  // namespace

LinkBandwidths link_bandwidths(const FabricSpec& spec, int nodes_per_uplink) {
  const NetworkSpec& net = spec.network;
  const int rails = net.rail_optimised ? nics_per_node(spec) : 1;
  const double down = static_cast<double>(nodes_per_uplink) * nics_per_node(spec) / rails;  // NICs of a leaf
  return {spec.nvlink.bandwidth * spec.nvlink.efficiency, net.host_link, net.bandwidth * net.efficiency,
          net.bandwidth * (net.efficiency * down / net.oversubscription)};
}

FabricRoutes::FabricRoutes(const FabricSpec& spec, int nodes_per_uplink) : found_(std::make_unique<Found>()) {
  SL_CHECK(spec.nodes > 0 && spec.gpus_per_node > 0, "a fabric has GPUs");
  const int count = spec.nodes * spec.gpus_per_node;
  for (int g = 0; g < count; ++g) boost::add_vertex(FabricVertex{VertexKind::gpu, g}, graph_);
  connect_nvlink(spec);
  if (spec.network.present && spec.nodes > 1) connect_network(spec, nodes_per_uplink);
  arcs_.resize(boost::num_vertices(graph_));
  found_->to.resize(static_cast<std::size_t>(count));
  const To& first = to(0);  // edges come in pairs: who reaches the first GPU is reached by all
  for (std::size_t g = 0; g < found_->to.size(); ++g) {
    SL_CHECK(first.distance[g] != std::numeric_limits<Ticks>::max(), "every GPU reaches every other");
  }
}

void FabricRoutes::connect(Vertex a, Vertex b, const Edge& edge) {
  const Ticks ticks = ticks_of(edge.latency);
  arcs_.resize(boost::num_vertices(graph_));
  for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
    boost::add_edge(from, to, FabricEdge{edge.bandwidth, edge.latency, ticks}, graph_);
    arcs_[from].push_back({to, static_cast<std::uint32_t>(edges_.size()), ticks});
    edges_.push_back(edge);
  }
}

void FabricRoutes::connect_nvlink(const FabricSpec& spec) {
  // Half of a one-way latency sits on each edge of a GPU-switch-GPU route.
  const NvlinkSpec& nvlink = spec.nvlink;
  for (int node = 0; node < spec.nodes; ++node) {
    for (int s = 0; s < nvlink.switches; ++s) {
      const Vertex v =
          boost::add_vertex(FabricVertex{VertexKind::nvswitch, node * nvlink.switches + s}, graph_);
      for (int g = 0; g < spec.gpus_per_node; ++g) {
        connect(
            Vertex(node * spec.gpus_per_node + g), v,
            {nvlink.bandwidth * (nvlink.efficiency / nvlink.switches), nvlink.latency / 2.0, false, node});
      }
    }
  }
}

void FabricRoutes::connect_network(const FabricSpec& spec, int nodes_per_uplink) {
  const NetworkSpec& net = spec.network;
  const LinkBandwidths bandwidths = link_bandwidths(spec, nodes_per_uplink);
  const int nics = nics_per_node(spec);
  const int nodes_per_leaf = net.nodes_per_leaf > 0 ? net.nodes_per_leaf : spec.nodes;
  const int pods = (spec.nodes + nodes_per_leaf - 1) / nodes_per_leaf;
  const int rails = net.rail_optimised ? nics : 1;
  std::vector<Vertex> leaves;
  for (int l = 0; l < pods * rails; ++l)
    leaves.push_back(boost::add_vertex(FabricVertex{VertexKind::leaf, l}, graph_));
  if (leaves.size() > 1) {
    const Vertex spine = boost::add_vertex(FabricVertex{VertexKind::spine, 0}, graph_);
    for (int l = 0; l < pods * rails; ++l) {
      connect(leaves[static_cast<std::size_t>(l)], spine,
              {bandwidths.uplink, net.spine_latency / 2.0, true, -1, l / rails});
    }
  }
  for (int node = 0; node < spec.nodes; ++node) {
    for (int n = 0; n < nics; ++n) {
      const Vertex nic = boost::add_vertex(FabricVertex{VertexKind::nic, node * nics + n}, graph_);
      // net.latency is measured GPU to GPU. It sits on the host links, or GPUs that share a NIC would reach
      // each other through it in no time.
      for (int g = n * net.gpus_per_nic; g < std::min((n + 1) * net.gpus_per_nic, spec.gpus_per_node); ++g) {
        connect(Vertex(node * spec.gpus_per_node + g), nic, {bandwidths.host, net.latency / 2.0, true, node});
      }
      const int rail = net.rail_optimised ? n : 0;
      connect(nic, leaves[static_cast<std::size_t>((node / nodes_per_leaf) * rails + rail)],
              {bandwidths.nic, Seconds(0), true, node});
    }
  }
}

const FabricRoutes::To& FabricRoutes::to(int gpu) const {
  const std::lock_guard lock(found_->mutex);
  std::unique_ptr<To>& found = found_->to[static_cast<std::size_t>(gpu)];
  if (!found) found = find(gpu);
  return *found;
}

// Edges come in pairs of equal latency, so distances from a GPU are also distances to it.
std::unique_ptr<FabricRoutes::To> FabricRoutes::find(int gpu) const {
  check_cancelled();
  auto out = std::make_unique<To>();
  out->target = Vertex(gpu);
  std::vector<Ticks>& d = out->distance;
  d.assign(boost::num_vertices(graph_), std::numeric_limits<Ticks>::max());
  boost::dijkstra_shortest_paths(graph_, Vertex(gpu),
                                 boost::distance_map(boost::make_iterator_property_map(
                                                         d.begin(), boost::get(boost::vertex_index, graph_)))
                                     .weight_map(boost::get(&FabricEdge::ticks, graph_)));
  std::vector<Vertex> order(d.size());
  std::iota(order.begin(), order.end(), Vertex(0));
  std::stable_sort(order.begin(), order.end(), [&](Vertex a, Vertex b) { return d[a] > d[b]; });
  out->latency.assign(d.size(), Seconds(0));
  for (auto v = order.rbegin(); v != order.rend(); ++v) {
    for (const Arc& arc : arcs_[*v]) {
      if (d[*v] != d[arc.to] + arc.ticks) continue;
      out->latency[*v] = edges_[arc.edge].latency + out->latency[arc.to];
      break;
    }
  }
  find_links(order, *out);
  return out;
}

void FabricRoutes::find_links(const std::vector<FabricPlace>& order, To& to) const {
  const std::vector<Ticks>& d = to.distance;
  to.rank.resize(d.size());
  for (std::size_t i = 0; i < order.size(); ++i) to.rank[order[i]] = static_cast<std::uint32_t>(i);
  for (const Vertex v : order) {
    to.begin.push_back(static_cast<std::uint32_t>(to.links.size()));
    const auto onward = [&](const Arc& arc) { return d[v] == d[arc.to] + arc.ticks; };
    double width = 0;  // equal-latency ways share in proportion to their bandwidth
    for (const Arc& arc : arcs_[v]) width += onward(arc) ? edges_[arc.edge].bandwidth.value : 0;
    for (const Arc& arc : arcs_[v]) {
      if (onward(arc))
        to.links.push_back({to.rank[arc.to], arc.edge, edges_[arc.edge].bandwidth.value / width});
    }
  }
  to.begin.push_back(static_cast<std::uint32_t>(to.links.size()));
}

std::vector<FabricPlace> FabricRoutes::route(int from_gpu, int to_gpu) const {
  const std::vector<Ticks>& d = to(to_gpu).distance;
  std::vector<FabricPlace> vertices{Vertex(from_gpu)};
  while (vertices.back() != Vertex(to_gpu)) {
    const Vertex v = vertices.back();
    const auto next = std::find_if(arcs_[v].begin(), arcs_[v].end(),
                                   [&](const Arc& arc) { return d[v] == d[arc.to] + arc.ticks; });
    vertices.push_back(next->to);
  }
  return vertices;
}

void FabricRoutes::add_load(const To& to, const Sources& sources, std::vector<double>& load) const {
  check_cancelled();
  thread_local std::vector<double> through;         // by rank
  thread_local std::vector<std::uint64_t> waiting;  // ranks that something has reached
  through.assign(arcs_.size(), 0.0);
  waiting.assign(arcs_.size() / 64 + 1, 0);
  const auto reach = [&](std::uint32_t rank, double amount) {
    through[rank] += amount;
    waiting[rank / 64] |= std::uint64_t{1} << rank % 64;
  };
  for (const auto& [gpu, amount] : sources) reach(to.rank[gpu], amount);
  for (std::size_t word = 0; word < waiting.size(); ++word) {
    while (waiting[word] != 0) {  // links lead to later ranks, perhaps of this word
      const std::size_t rank = 64 * word + static_cast<std::size_t>(std::countr_zero(waiting[word]));
      waiting[word] &= waiting[word] - 1;
      for (std::uint32_t i = to.begin[rank]; i < to.begin[rank + 1]; ++i) {
        const To::Link& link = to.links[i];
        const double share = through[rank] * link.share;
        load[link.edge] += share;
        reach(link.rank, share);
      }
    }
  }
}

BytesPerSecond FabricRoutes::narrowest(const std::vector<double>& load, double network_share) const {
  double rate = std::numeric_limits<double>::infinity();
  for (std::size_t e = 0; e < load.size(); ++e) {
    const double share = edges_[e].network ? network_share : 1.0;
    if (load[e] > 0) rate = std::min(rate, edges_[e].bandwidth.value * share / load[e]);
  }
  return BytesPerSecond(rate);
}

}  // namespace shardline
