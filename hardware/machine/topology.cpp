#include "hardware/machine/topology.hpp"

#include <algorithm>
#include <array>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <boost/property_map/function_property_map.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "hardware/machine/fabric_graph.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

using Vertex = FabricPlace;

std::int64_t ticks(Seconds t) { return std::llround(t.value * 1e15); }

}  // namespace

std::string_view to_string(VertexKind kind) {
  constexpr std::array<std::string_view, 5> names{"gpu", "nvswitch", "nic", "leaf", "spine"};
  return names[static_cast<std::size_t>(kind)];
}

void Fabric::connect(Vertex a, Vertex b, BytesPerSecond bandwidth, Seconds latency) {
  for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
    boost::add_edge(from, to, FabricEdge{bandwidth, latency}, *graph_);
    arcs_.resize(boost::num_vertices(*graph_));
    arcs_[from].push_back({to, static_cast<std::uint32_t>(edges_.size()), ticks(latency)});
    edges_.push_back({bandwidth, latency});
    network_.push_back((*graph_)[a].kind != VertexKind::nvswitch &&
                       (*graph_)[b].kind != VertexKind::nvswitch);
  }
}

Fabric::Fabric(const FabricSpec& spec) : spec_(spec), graph_(std::make_shared<FabricGraph>()) {
  SL_CHECK(spec.nodes > 0 && spec.gpus_per_node > 0, "a fabric has GPUs");
  const int count = gpus();
  for (int g = 0; g < count; ++g) boost::add_vertex(FabricVertex{VertexKind::gpu, g}, *graph_);
  connect_nvlink();
  if (spec.network.present && spec.nodes > 1) connect_network();
  arcs_.resize(boost::num_vertices(*graph_));

  distance_.resize(static_cast<std::size_t>(count));
  order_.resize(static_cast<std::size_t>(count));
  latency_.resize(static_cast<std::size_t>(count));
  for (int g = 0; g < count; ++g) find_routes_to(g);
}

void Fabric::connect_nvlink() {
  // Half of a one-way latency sits on each edge of a GPU-switch-GPU route.
  const NvlinkSpec& nvlink = spec_.nvlink;
  for (int node = 0; node < spec_.nodes; ++node) {
    for (int s = 0; s < nvlink.switches; ++s) {
      const Vertex v =
          boost::add_vertex(FabricVertex{VertexKind::nvswitch, node * nvlink.switches + s}, *graph_);
      for (int g = 0; g < spec_.gpus_per_node; ++g) {
        connect(Vertex(node * spec_.gpus_per_node + g), v,
                nvlink.bandwidth * (nvlink.efficiency / nvlink.switches), nvlink.latency / 2.0);
      }
    }
  }
}

void Fabric::connect_network() {
  const NetworkSpec& net = spec_.network;
  const int nics_per_node = (spec_.gpus_per_node + net.gpus_per_nic - 1) / net.gpus_per_nic;
  const int nodes_per_leaf = net.nodes_per_leaf > 0 ? net.nodes_per_leaf : spec_.nodes;
  const int pods = (spec_.nodes + nodes_per_leaf - 1) / nodes_per_leaf;
  const int rails = net.rail_optimised ? nics_per_node : 1;
  std::vector<Vertex> leaves;
  for (int l = 0; l < pods * rails; ++l)
    leaves.push_back(boost::add_vertex(FabricVertex{VertexKind::leaf, l}, *graph_));
  if (leaves.size() > 1) {
    const Vertex spine = boost::add_vertex(FabricVertex{VertexKind::spine, 0}, *graph_);
    const double down = static_cast<double>(nodes_per_leaf) * nics_per_node / rails;
    for (const Vertex leaf : leaves) {
      connect(leaf, spine, net.bandwidth * (net.efficiency * down / net.oversubscription),
              net.spine_latency / 2.0);
    }
  }
  for (int node = 0; node < spec_.nodes; ++node) {
    for (int n = 0; n < nics_per_node; ++n) {
      const Vertex nic = boost::add_vertex(FabricVertex{VertexKind::nic, node * nics_per_node + n}, *graph_);
      // net.latency is measured GPU to GPU. It sits on the host links, or GPUs that share a NIC would reach
      // each other through it in no time.
      for (int g = n * net.gpus_per_nic; g < std::min((n + 1) * net.gpus_per_nic, spec_.gpus_per_node); ++g) {
        connect(Vertex(node * spec_.gpus_per_node + g), nic, net.host_link, net.latency / 2.0);
      }
      const int rail = net.rail_optimised ? n : 0;
      connect(nic, leaves[static_cast<std::size_t>((node / nodes_per_leaf) * rails + rail)],
              net.bandwidth * net.efficiency, Seconds(0));
    }
  }
}

// Edges come in pairs of equal latency, so distances from a GPU are also distances to it.
void Fabric::find_routes_to(int gpu) {
  std::vector<Ticks> d(boost::num_vertices(*graph_), std::numeric_limits<Ticks>::max());
  // One extra tick per hop keeps routes short where latencies are zero, and every hop strictly closer.
  boost::dijkstra_shortest_paths(
      *graph_, Vertex(gpu),
      boost::distance_map(
          boost::make_iterator_property_map(d.begin(), boost::get(boost::vertex_index, *graph_)))
          .weight_map(boost::make_function_property_map<FabricGraph::edge_descriptor>(
              [this](const FabricGraph::edge_descriptor& e) { return ticks((*graph_)[e].latency) + 1; })));
  for (int other = 0; other < gpus(); ++other) {
    SL_CHECK(d[static_cast<std::size_t>(other)] != std::numeric_limits<Ticks>::max(),
             "every GPU reaches every other");
  }
  std::vector<Vertex> order(d.size());
  std::iota(order.begin(), order.end(), Vertex(0));
  std::stable_sort(order.begin(), order.end(), [&](Vertex a, Vertex b) { return d[a] > d[b]; });
  std::vector<Seconds> latency(d.size(), Seconds(0));
  for (auto v = order.rbegin(); v != order.rend(); ++v) {
    for (const Arc& arc : arcs_[*v]) {
      if (d[*v] != d[arc.to] + arc.latency + 1) continue;
      latency[*v] = edges_[arc.edge].latency + latency[arc.to];
      break;
    }
  }
  latency_[static_cast<std::size_t>(gpu)] = std::move(latency);
  distance_[static_cast<std::size_t>(gpu)] = std::move(d);
  order_[static_cast<std::size_t>(gpu)] = std::move(order);
}

const std::vector<Fabric::Ticks>& Fabric::distances_to(int gpu) const {
  return distance_[static_cast<std::size_t>(gpu)];
}

void Fabric::add_load(int target, const std::vector<std::pair<int, double>>& sources,
                      std::vector<double>& load) const {
  const auto& d = distances_to(target);
  std::vector<double> through(arcs_.size(), 0.0);
  for (const auto& [gpu, amount] : sources) through[static_cast<std::size_t>(gpu)] += amount;
  for (const Vertex v : order_[static_cast<std::size_t>(target)]) {
    if (through[v] == 0 || v == Vertex(target)) continue;
    const auto onward = [&](const Arc& arc) { return d[v] == d[arc.to] + arc.latency + 1; };
    double width = 0;  // equal-latency ways share in proportion to their bandwidth
    for (const Arc& arc : arcs_[v]) width += onward(arc) ? edges_[arc.edge].bandwidth.value : 0;
    for (const Arc& arc : arcs_[v]) {
      if (!onward(arc)) continue;
      const double share = through[v] * (edges_[arc.edge].bandwidth.value / width);
      load[arc.edge] += share;
      through[arc.to] += share;
    }
  }
}

BytesPerSecond Fabric::narrowest(const std::vector<double>& load, double network_share) const {
  double rate = std::numeric_limits<double>::infinity();
  for (std::size_t e = 0; e < load.size(); ++e) {
    const double share = network_[e] ? network_share : 1.0;
    if (load[e] > 0) rate = std::min(rate, edges_[e].bandwidth.value * share / load[e]);
  }
  return BytesPerSecond(rate);
}

Route Fabric::route(int from_gpu, int to_gpu) const {
  SL_CHECK(from_gpu >= 0 && to_gpu >= 0 && from_gpu < gpus() && to_gpu < gpus(),
           "both ends are GPUs of the fabric");
  const auto& d = distances_to(to_gpu);
  Route r;
  r.latency = latency(from_gpu, to_gpu);
  for (Vertex v = Vertex(from_gpu);;) {
    r.vertices.push_back(v);
    if (v == Vertex(to_gpu)) break;
    const auto next = std::find_if(arcs_[v].begin(), arcs_[v].end(),
                                   [&](const Arc& arc) { return d[v] == d[arc.to] + arc.latency + 1; });
    v = next->to;
  }
  std::vector<double> load(edges_.size(), 0.0);
  add_load(to_gpu, {{from_gpu, 1.0}}, load);
  r.bottleneck = narrowest(load);
  return r;
}

GroupPaths Fabric::paths(Group group) const {
  SL_CHECK(group.size >= 1 && group.stride >= 1 && group.size * group.stride <= gpus(),
           "the group fits the fabric");
  GroupPaths p;
  p.pairwise = p.ring = p.gather = BytesPerSecond(std::numeric_limits<double>::infinity());
  if (group.size == 1) return p;

  const Placement placement = place(group);
  share_edges(group, placement, p);
  measure_distances(group, placement, p);
  p.multicast = p.one_node && spec_.nvlink.multicast;
  p.send_recv = p.neighbour_latency;
  p.all_to_all = p.latency;
  if (!p.one_node) {
    // Between nodes each step is a point-to-point message, with that path's own latency and bandwidth.
    const NetworkSpec& n = spec_.network;
    p.send_recv += n.send_recv_extra;
    p.all_to_all += n.all_to_all_extra;
    p.ring = p.ring * n.send_recv_share;
  }
  return p;
}

// Groups inside an NVLink domain are placed one node each. Each edge of a domain touches one GPU, so they
// never share an edge: one group tells all, and what reaches one of its members tells what reaches and
// leaves each. Where GPUs meet sooner at a NIC than at a switch, neither groups nor members are alike.
Fabric::Placement Fabric::place(Group group) const {
  const int span = group.size * group.stride;
  const bool inside = span <= spec_.gpus_per_node;
  Placement placement;
  placement.alike = inside && (spec_.nodes == 1 || spec_.nvlink.latency < spec_.network.latency);
  const int end = placement.alike ? span : inside ? spec_.gpus_per_node : gpus();
  const int offsets = placement.alike ? 1 : group.stride;
  for (int start = 0; start + span <= end; start += span) {
    for (int offset = 0; offset < offsets; ++offset) placement.first.push_back(start + offset);
  }
  return placement;
}

void Fabric::share_edges(Group group, const Placement& placement, GroupPaths& p) const {
  std::vector<double> pairwise(edges_.size(), 0.0), ring(edges_.size(), 0.0);
  std::vector<std::pair<int, double>> sources;
  for (const int first : placement.first) {
    const auto gpu = [&](int member) { return first + member * group.stride; };
    for (int to = 0; to < (placement.alike ? 1 : group.size); ++to) {
      sources.clear();
      for (int from = 0; from < group.size; ++from) {
        if (from != to) sources.emplace_back(gpu(from), 1.0 / (group.size - 1));
      }
      add_load(gpu(to), sources, pairwise);
      add_load(gpu(to), {{gpu((to + group.size - 1) % group.size), 1.0}}, ring);
    }
  }
  p.pairwise = narrowest(pairwise);
  p.ring = narrowest(ring);
  p.gather = narrowest(pairwise, spec_.network.send_recv_share);
}

// A group that straddles nodes slows the others down, so the worst of all groups counts, as for the rates.
void Fabric::measure_distances(Group group, const Placement& placement, GroupPaths& p) const {
  p.members_per_node = -1;
  for (const int first : placement.first) {
    const auto gpu = [&](int member) { return first + member * group.stride; };
    std::vector<int> members(static_cast<std::size_t>(spec_.nodes), 0);
    for (int a = 0; a < group.size; ++a) {
      ++members[static_cast<std::size_t>(gpu(a) / spec_.gpus_per_node)];
      p.neighbour_latency = std::max(p.neighbour_latency, latency(gpu(a), gpu((a + 1) % group.size)));
      for (int b = a + 1; b < group.size; ++b) p.latency = std::max(p.latency, latency(gpu(a), gpu(b)));
    }
    const int most = *std::max_element(members.begin(), members.end());
    p.one_node = p.one_node && most == group.size;
    const bool equal =
        std::all_of(members.begin(), members.end(), [&](int m) { return m == 0 || m == most; }) &&
        (p.members_per_node == -1 || p.members_per_node == most);
    p.members_per_node = equal ? most : 0;
  }
}

BytesPerSecond Fabric::bisection(int count) const {
  SL_CHECK(count >= 2 && count <= gpus(), "a bisection has two sides");
  const int half = count / 2;
  std::vector<double> load(edges_.size(), 0.0);
  std::vector<std::pair<int, double>> left;
  for (int g = 0; g < half; ++g) left.emplace_back(g, 1.0 / (count - half));
  for (int g = half; g < count; ++g) add_load(g, left, load);
  return narrowest(load) * half;
}

}  // namespace shardline
