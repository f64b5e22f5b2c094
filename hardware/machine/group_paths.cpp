// What groups of ranks get, from routes in a fabric of one node of each kind.
//
// A shortest route between two GPUs stays in their nodes and in the leaves and spine between: whatever a
// third node could do for it, its own nodes do with a crossing less. So it depends on the places of both GPUs
// in their nodes and on how their nodes lie to each other only, and a cell of three nodes has all routes: one
// node, another of its leaf, and one of another leaf. Traffic is counted by those places, node by node. What
// loads a node's edges are the flows that end there and those that leave it; nodes with the same counts load
// theirs alike, and are looked at once.
#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "hardware/machine/group_layout.hpp"
#include "hardware/machine/routes.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

using Loads = std::vector<double>;

using Relation = FabricCell::Relation;
using enum FabricCell::Relation;

int nodes_of_leaf(const FabricSpec& spec) { return std::min(nodes_per_uplink(spec), spec.nodes); }

FabricSpec spec_of_cell(const FabricSpec& whole, bool merged) {
  const int leaf = nodes_of_leaf(whole);
  const bool near = leaf > 1 && whole.nodes > 1, far = whole.nodes > leaf;
  FabricSpec s = whole;
  s.nodes = 1 + int(near) + int(far);
  if (merged) s.nvlink.switches = std::min(1, whole.nvlink.switches);
  s.network.nodes_per_leaf = far ? 1 + int(near) : 0;
  return s;
}

/// Nodes whose traffic is the same, and how it loads the edges of one of them and of its leaves.
struct NodeClass {
  Traffic traffic;
  Loads pairwise, ring;
};

// What `flows`, each of `unit`, lay on the edges of the cell's first node and of its leaves. What a flow lays
// on leaves counts where it ends; what a far one lays on those where it begins counts there.
Loads loads_of(const FabricCell& cell, const Flows& flows, double unit) {
  const FabricRoutes& routes = cell.routes;
  const int places = cell.spec.gpus_per_node;
  Loads out(routes.edges().size(), 0.0), away(out.size());
  FabricRoutes::Sources sources;
  const auto collect = [&](Relation r, std::span<const int> by_source) {
    const auto first = static_cast<FabricPlace>(cell.node(r) * places);
    for (std::size_t s = 0; s < by_source.size(); ++s) {
      if (by_source[s] > 0) sources.emplace_back(first + s, by_source[s] * unit);
    }
  };
  for (int target = 0; target < places; ++target) {
    sources.clear();
    for (const Relation r : {kSame, kNear, kFar}) {
      if (cell.node(r) >= 0) collect(r, flows.into(r, target));
    }
    if (!sources.empty()) routes.add_load(routes.to(target), sources, out);
  }
  for (std::size_t e = 0; e < out.size(); ++e) {
    if (cell.twin[e] != e) out[e] = 0;
  }
  for (const Relation r : {kNear, kFar}) {
    if (cell.node(r) < 0) continue;
    std::fill(away.begin(), away.end(), 0.0);
    for (int target = 0; target < places; ++target) {
      sources.clear();
      collect(r, flows.out_of(r, target));
      if (!sources.empty()) routes.add_load(routes.to(target), sources, away);
    }
    for (std::size_t e = 0; e < out.size(); ++e) {
      const FabricRoutes::Edge& edge = routes.edges()[e];
      if (edge.pod > 0 || (edge.node > 0 && edge.node == cell.node(r))) out[cell.twin[e]] += away[e];
    }
  }
  return out;
}

/// Loads of all nodes of a fabric, from those of each class.
class LoadSum {
 public:
  LoadSum(const FabricCell& cell, int pods)
      : cell_(cell), pods_(std::size_t(pods), Loads(cell.twin.size(), 0.0)) {}

  void add_node(int pod, const Loads& load) {
    for (const std::size_t e : cell_.uplinks) pods_[std::size_t(pod)][e] += load[e];
  }
  BytesPerSecond narrowest(const std::vector<NodeClass>& classes, Loads NodeClass::*loads,
                           double network_share) const {
    BytesPerSecond rate(std::numeric_limits<double>::infinity());
    for (const NodeClass& c : classes) {
      Loads node = c.*loads;
      for (const std::size_t e : cell_.uplinks) node[e] = 0;
      rate = std::min(rate, cell_.routes.narrowest(node, network_share));
    }
    for (const Loads& pod : pods_) rate = std::min(rate, cell_.routes.narrowest(pod, network_share));
    return rate;
  }

 private:
  const FabricCell& cell_;
  std::vector<Loads> pods_;
};

/// What groups of one node load.
struct InsideLoads {
  const FabricRoutes& routes;
  Loads pairwise = Loads(routes.edges().size(), 0.0), ring = pairwise;
  FabricRoutes::Sources sources = {};

  // What reaches the first `targets` members.
  void follow(Group group, int first, int targets, GroupPaths& p) {
    const auto gpu = [&](int member) { return std::size_t(first + member * group.stride); };
    for (int to = 0; to < targets; ++to) {
      const FabricRoutes::To& target = routes.to(int(gpu(to)));
      sources.clear();
      for (int from = 0; from < group.size; ++from) {
        if (from == to) continue;
        sources.emplace_back(gpu(from), 1.0 / (group.size - 1));
        if (from < to || targets == 1) p.latency = std::max(p.latency, target.latency[gpu(from)]);
      }
      routes.add_load(target, sources, pairwise);
      const std::size_t previous = gpu((to + group.size - 1) % group.size);
      p.neighbour_latency = std::max(p.neighbour_latency, target.latency[previous]);
      routes.add_load(target, {{previous, 1.0}}, ring);
    }
  }
};

// Groups inside an NVLink domain are placed one node each. Each edge of a domain touches one GPU, so they
// never share an edge: one group tells all, and what reaches one of its members tells what reaches and
// leaves each. Where GPUs meet sooner at a NIC than at a switch, neither groups nor members are alike: all
// groups of a node are followed.
void paths_inside(const FabricSpec& spec, const FabricCell& cell, Group group, GroupPaths& p) {
  InsideLoads inside{cell.routes};
  const int span = group.size * group.stride;
  if (spec.nodes == 1 || spec.nvlink.latency < spec.network.latency) {
    inside.follow(group, 0, 1, p);
  } else {
    for (int start = 0; start + span <= spec.gpus_per_node; start += span) {
      for (int offset = 0; offset < group.stride; ++offset)
        inside.follow(group, start + offset, group.size, p);
    }
  }
  p.members_per_node = group.size;
  p.pairwise = cell.routes.narrowest(inside.pairwise);
  p.gather = cell.routes.narrowest(inside.pairwise, spec.network.send_recv_share);
  p.ring = cell.routes.narrowest(inside.ring);
}

// The class of nodes with this traffic, perhaps a new one.
std::size_t class_of(const FabricCell& cell, Group group, const Traffic& traffic,
                     std::vector<NodeClass>& classes) {
  for (std::size_t c = 0; c < classes.size(); ++c) {
    if (classes[c].traffic == traffic) return c;
  }
  classes.push_back(
      {traffic, loads_of(cell, traffic.pairwise, 1.0 / (group.size - 1)), loads_of(cell, traffic.ring, 1.0)});
  return classes.size() - 1;
}

// A group that straddles nodes slows the others down, so the worst of all groups counts.
void paths_across(const FabricSpec& spec, const FabricCell& cell, Group group, GroupPaths& p) {
  GroupLayout layout(spec, cell.nodes_per_leaf, group);
  Traffic traffic{Flows(spec.gpus_per_node), Flows(spec.gpus_per_node)};
  std::vector<NodeClass> classes;
  std::map<std::array<int, 3>, std::size_t> class_at;
  LoadSum pairwise(cell, cell.pods), ring(cell, cell.pods);
  for (int node = 0; node < spec.nodes; ++node) {
    const auto [known, is_new] = class_at.try_emplace(layout.position(node));
    if (is_new) {
      layout.count(node, traffic);
      known->second = class_of(cell, group, traffic, classes);
    }
    pairwise.add_node(node / cell.nodes_per_leaf, classes[known->second].pairwise);
    ring.add_node(node / cell.nodes_per_leaf, classes[known->second].ring);
  }
  p.pairwise = pairwise.narrowest(classes, &NodeClass::pairwise, 1);
  p.gather = pairwise.narrowest(classes, &NodeClass::pairwise, spec.network.send_recv_share);
  p.ring = ring.narrowest(classes, &NodeClass::ring, 1);
  p.one_node = layout.fewest() == group.size;
  p.members_per_node = layout.fewest() == layout.most() ? layout.most() : 0;
  for (const Relation r : {kSame, kNear, kFar}) {
    for (int target = 0; target < spec.gpus_per_node; ++target) {
      const FabricRoutes::To& to = cell.routes.to(target);
      for (int source = 0; source < spec.gpus_per_node; ++source) {
        const bool pair = layout.forward(r, target, source), next = layout.neighbours(r, target, source);
        if (!pair && !next) continue;
        const Seconds latency = to.latency[std::size_t(cell.node(r) * spec.gpus_per_node + source)];
        if (pair) p.latency = std::max(p.latency, latency);
        if (next) p.neighbour_latency = std::max(p.neighbour_latency, latency);
      }
    }
  }
}

}  // namespace

FabricCell::FabricCell(const FabricSpec& whole, bool merged)
    : spec(spec_of_cell(whole, merged)),
      nodes_per_leaf(nodes_of_leaf(whole)),
      pods((whole.nodes + nodes_per_leaf - 1) / nodes_per_leaf),
      routes(spec, nodes_per_uplink(whole)) {
  near = nodes_per_leaf > 1 && whole.nodes > 1 ? 1 : -1;
  far = pods > 1 ? spec.nodes - 1 : -1;
  std::vector<std::size_t> first_node, first_pod;  // edges in order
  std::vector<std::size_t> seen_of_node(std::size_t(spec.nodes)), seen_of_pod(2);
  for (std::size_t e = 0; e < routes.edges().size(); ++e) {
    const FabricRoutes::Edge& edge = routes.edges()[e];
    const bool uplink = edge.pod >= 0;
    std::vector<std::size_t>& first = uplink ? first_pod : first_node;
    std::size_t& seen = uplink ? seen_of_pod[std::size_t(edge.pod)] : seen_of_node[std::size_t(edge.node)];
    if ((uplink ? edge.pod : edge.node) == 0) {
      first.push_back(e);
      if (uplink) uplinks.push_back(e);
    }
    twin.push_back(first[seen++]);
  }
}

GroupPaths Fabric::paths(Group group) const {
  SL_CHECK(group.size >= 1 && group.stride >= 1 && group.size * group.stride <= gpus(),
           "the group fits the fabric");
  GroupPaths p;
  p.pairwise = p.ring = p.gather = BytesPerSecond(std::numeric_limits<double>::infinity());
  if (group.size == 1) return p;

  const bool inside = group.size * group.stride <= spec_.gpus_per_node;
  if (inside) paths_inside(spec_, *inside_, group, p);
  if (!inside) paths_across(spec_, *across_, group, p);
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

}  // namespace shardline
