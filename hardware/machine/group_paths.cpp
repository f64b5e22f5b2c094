// What groups of ranks get, from what their members send over the links of each node and of its leaves.
//
// Links of a sort are equally wide, so the fullest of each sort tells the rate. Loads are sums of counts: how
// many flows of each kind of pair begin or end at a GPU, a NIC or a leaf. No flow is followed by itself.
#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "hardware/machine/group_layout.hpp"
#include "hardware/machine/routes.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

using enum PairKind;

/// The largest load of the links of a sort, one way.
struct Fullest {
  double nvlink = 0, host = 0, nic = 0, uplink = 0;

  void take(const Fullest& other) {
    nvlink = std::max(nvlink, other.nvlink);
    host = std::max(host, other.host);
    nic = std::max(nic, other.nic);
    uplink = std::max(uplink, other.uplink);
  }
  /// The rate at which a unit of the load fills the first link; links of the network give the share.
  BytesPerSecond rate(const LinkBandwidths& of, double unit, double network_share) const {
    double rate = std::numeric_limits<double>::infinity();
    const auto fill = [&](double load, double bandwidth) {
      if (load > 0) rate = std::min(rate, bandwidth / (load * unit));
    };
    fill(nvlink, of.nvlink.value);
    fill(host, of.host.value * network_share);
    fill(nic, of.nic.value * network_share);
    fill(uplink, of.uplink.value * network_share);
    return BytesPerSecond(rate);
  }
};

/// What the nodes with one position load: their own links, and both ways the uplinks of their rails.
struct NodeLoads {
  Fullest own;
  std::array<std::vector<double>, 2> rails;
};

// What a node's flows lay on its links of one direction: `mine` are those that begin there and leave, or end
// there and arrive. `theirs`, of the other direction, count where a GPU of the node relays them: what NVLink
// has brought to it leaves by its NIC, and the reverse.
struct OneWay {
  const PairRoutes& pairs;
  const EndCounts &mine, &theirs;
  double PairRoute::*nvlink_at_me;
  double PairRoute::*nvlink_at_other;

  void lay(Fullest& own, std::vector<double>& uplinks) const {
    const NodePlaces& places = pairs.places();
    const auto count = std::size_t(places.count());
    std::vector<double> nvlink(count), host(count), nics(std::size_t(places.nics()));
    uplinks.assign(std::size_t(places.rails()), 0.0);
    for (std::size_t k = 0; k < kPairKinds; ++k) {
      const auto kind = static_cast<PairKind>(k);
      if (!mine.any(kind)) continue;
      const PairRoute& route = pairs.of(kind);
      const double through = route.*nvlink_at_me, passing = 1 - through;
      for (int place = 0; place < places.count(); ++place) {
        const double flows = mine.at(kind, place);
        nvlink[std::size_t(place)] += flows * through;
        host[std::size_t(place)] += flows * passing;
        if (kind != one_nic) nics[std::size_t(places.nic(place))] += flows * passing;
        uplinks[std::size_t(places.rail(place))] += flows * route.spine;
      }
    }
    if (places.rails() > 1 && (mine.any(two_leaves) || theirs.any(two_leaves))) relay(nvlink, host, nics);
    own.nvlink = std::max(own.nvlink, *std::max_element(nvlink.begin(), nvlink.end()));
    own.host = std::max(own.host, *std::max_element(host.begin(), host.end()));
    own.nic = std::max(own.nic, *std::max_element(nics.begin(), nics.end()));
  }

  // The GPUs of a rail's NIC share what they relay for it.
  void relay(std::vector<double>& nvlink, std::vector<double>& host, std::vector<double>& nics) const {
    const NodePlaces& places = pairs.places();
    const PairRoute& route = pairs.of(two_leaves);
    for (int place = 0; place < places.count(); ++place) {
      const int rail = places.rail(place), peers = places.gpus_of_nic(rail);
      nvlink[std::size_t(place)] += theirs.other_rail(rail) * route.*nvlink_at_other / peers;
      host[std::size_t(place)] += mine.other_rail(rail) * route.*nvlink_at_me / peers;
    }
    for (int rail = 0; rail < places.rails(); ++rail)
      nics[std::size_t(rail)] += mine.other_rail(rail) * route.*nvlink_at_me;
  }
};

NodeLoads loads_of(const PairRoutes& pairs, const EndCounts& from, const EndCounts& to) {
  NodeLoads out;
  const auto at_source = &PairRoute::nvlink_at_source, at_target = &PairRoute::nvlink_at_target;
  OneWay{pairs, from, to, at_source, at_target}.lay(out.own, out.rails[0]);
  OneWay{pairs, to, from, at_target, at_source}.lay(out.own, out.rails[1]);
  return out;
}

/// Loads of all nodes of a fabric, with the sums over the nodes below each leaf.
class LoadSum {
 public:
  void add_node(int pod, const NodeLoads& node) {
    fullest_.take(node.own);
    if (pod != pod_) finish_pod();
    pod_ = pod;
    for (std::size_t way = 0; way < uplinks_.size(); ++way) {
      uplinks_[way].resize(node.rails[way].size(), 0.0);
      for (std::size_t r = 0; r < uplinks_[way].size(); ++r) uplinks_[way][r] += node.rails[way][r];
    }
  }
  const Fullest& finish() {
    finish_pod();
    return fullest_;
  }

 private:
  void finish_pod() {
    for (std::vector<double>& rails : uplinks_) {
      for (double& load : rails) {
        fullest_.uplink = std::max(fullest_.uplink, load);
        load = 0;
      }
    }
  }
  Fullest fullest_;
  int pod_ = 0;
  std::array<std::vector<double>, 2> uplinks_;
};

// A group that straddles nodes slows the others down, so the worst of all groups counts. Groups that fit a
// node are placed one node each, and load no other's links.
void count_groups(const PairRoutes& pairs, GroupLayout& layout, int nodes, Group group, GroupPaths& p) {
  struct Loads {
    NodeLoads pairwise, ring;
  };
  Traffic traffic(pairs.places());
  std::map<std::array<int, 3>, Loads> known;
  LoadSum pairwise, ring;
  for (int node = 0; node < nodes; ++node) {
    const auto [at, is_new] = known.try_emplace(layout.position(node));
    if (is_new) {
      layout.count(node, traffic);
      at->second = {loads_of(pairs, traffic.pairwise, traffic.pairwise),
                    loads_of(pairs, traffic.ring_from, traffic.ring_to)};
    }
    pairwise.add_node(node / pairs.nodes_per_leaf(), at->second.pairwise);
    ring.add_node(node / pairs.nodes_per_leaf(), at->second.ring);
  }
  const FabricSpec& spec = pairs.spec();
  const LinkBandwidths bandwidths = link_bandwidths(spec, nodes_per_uplink(spec));
  const double unit = 1.0 / (group.size - 1);
  p.pairwise = pairwise.finish().rate(bandwidths, unit, 1);
  p.gather = pairwise.finish().rate(bandwidths, unit, spec.network.send_recv_share);
  p.ring = ring.finish().rate(bandwidths, 1, 1);
}

}  // namespace

GroupPaths Fabric::paths(Group group) const {
  SL_CHECK(group.size >= 1 && group.stride >= 1 && group.size * group.stride <= gpus(),
           "the group fits the fabric");
  GroupPaths p;
  p.pairwise = p.ring = p.gather = BytesPerSecond(std::numeric_limits<double>::infinity());
  if (group.size == 1) return p;

  const int nodes = group.size * group.stride <= spec_.gpus_per_node ? 1 : spec_.nodes;
  GroupLayout layout(*pairs_, nodes, group);
  count_groups(*pairs_, layout, nodes, group, p);
  p.one_node = layout.fewest() == group.size;
  p.members_per_node = layout.fewest() == layout.most() ? layout.most() : 0;
  for (std::size_t k = 0; k < kPairKinds; ++k) {
    const auto kind = static_cast<PairKind>(k);
    const Seconds latency = pairs_->of(kind).latency;
    if (layout.any_pair(kind)) p.latency = std::max(p.latency, latency);
    if (layout.any_neighbours(kind)) p.neighbour_latency = std::max(p.neighbour_latency, latency);
  }
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
