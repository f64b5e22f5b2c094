// Routes and shares of the fabric graph, against figures of its links and against an oracle that splits flows
// itself.
#include "hardware/machine/fabric_graph.hpp"

#include <gtest/gtest.h>

#include "tests/hardware/flow_oracle.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using testing::hgx;
using testing::kNetworkLatency;
using testing::kNic;
using testing::kNvlink;
using testing::kNvlinkLatency;
using testing::kSpineLatency;
using testing::oversubscribed;

std::string kinds(const Fabric& f, const Route& r) {
  std::string out;
  for (const auto v : r.vertices) out += (out.empty() ? "" : " ") + std::string(to_string(f.graph()[v].kind));
  return out;
}

void expect_route(const Fabric& f, int from, int to, const std::string& way, double latency,
                  double bottleneck) {
  SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to));
  const Route r = f.route(from, to);
  EXPECT_EQ(kinds(f, r), way);
  EXPECT_NEAR(r.latency.value / latency, 1.0, 1e-12);
  EXPECT_NEAR(r.bottleneck.value / bottleneck, 1.0, 1e-12);
  EXPECT_EQ(f.graph()[r.vertices.front()].index, from);
  EXPECT_EQ(f.graph()[r.vertices.back()].index, to);
  EXPECT_EQ(f.latency(from, to), r.latency);
  EXPECT_NEAR(f.latency(to, from) / r.latency, 1.0, 1e-12);
}

TEST(Topology, Nvl72RoutesUseEverySwitchOfTheDomain) {
  const Fabric f(testing::catalog_system("gb200-nvl72").fabric);
  EXPECT_EQ(f.gpus(), 72);
  // One switch carries 1/18 of a port; the whole port is the sum over the parallel routes.
  for (const int to : {1, 35, 71}) expect_route(f, 0, to, "gpu nvswitch gpu", 4e-6, 900e9 * 0.8);
}

TEST(Topology, HgxRoutesInsideANodeOnARailAndAcrossRails) {
  const Fabric f(hgx(2));
  expect_route(f, 0, 7, "gpu nvswitch gpu", kNvlinkLatency, kNvlink);
  expect_route(f, 3, 11, "gpu nic leaf nic gpu", kNetworkLatency, kNic);
  expect_route(f, 0, 9, "gpu nic leaf spine leaf nic gpu", kNetworkLatency + kSpineLatency, kNic);
}

TEST(Topology, ASlowSpineIsAvoidedThroughNvlink) {
  FabricSpec spec = hgx(2);
  spec.network.spine_latency = Seconds(5e-6);
  const Fabric f(spec);
  const Route r = f.route(0, 9);
  EXPECT_NEAR(r.latency.value, kNetworkLatency + kNvlinkLatency, 1e-15);
  // NVLink first or the rail first: the ways share in proportion to their first link, and one NIC carries
  // each.
  const double nvlink_first = kNvlink / (kNvlink + testing::kHost);
  EXPECT_NEAR(r.bottleneck.value / (kNic / nvlink_first), 1.0, 1e-12);
}

TEST(Topology, OneLeafForAllNodesHasNoSpine) {
  FabricSpec spec = hgx(2);
  spec.network.rail_optimised = false;
  expect_route(Fabric(spec), 0, 9, "gpu nic leaf nic gpu", kNetworkLatency, kNic);
}

TEST(Topology, AHostLinkCanBeTheBottleneck) {
  FabricSpec spec = hgx(2);
  spec.network.host_link = BytesPerSecond(16e9);
  expect_route(Fabric(spec), 0, 8, "gpu nic leaf nic gpu", kNetworkLatency, 16e9);
}

TEST(Topology, GpusOnOneNicReachEachOtherOverNvlinkAndShareTheNic) {
  FabricSpec spec = hgx(2);
  spec.network.gpus_per_nic = 2;
  const Fabric f(spec);
  expect_route(f, 0, 1, "gpu nvswitch gpu", kNvlinkLatency, kNvlink);
  EXPECT_NEAR(f.paths({2, 8}).pairwise.value / (kNic / 2), 1.0, 1e-12);
}

TEST(Topology, OversubscribedSpine) {
  const Fabric f(oversubscribed());
  expect_route(f, 0, 8, "gpu nic leaf nic gpu", kNetworkLatency, kNic);
  expect_route(f, 0, 16, "gpu nic leaf spine leaf nic gpu", kNetworkLatency + kSpineLatency, kNic);
  // 16 ranks of a leaf send 16/31 of their traffic up 16/4 NICs' worth of uplink.
  const double uplink = 16 * kNic / 4;
  EXPECT_NEAR(f.paths({32, 1}).pairwise.value / (uplink / (16 * 16.0 / 31)), 1.0, 1e-12);
  EXPECT_NEAR(f.bisection(32).value / uplink, 1.0, 1e-12);
  FabricSpec full = oversubscribed();
  full.network.oversubscription = 1;
  EXPECT_NEAR(Fabric(full).bisection(32).value / (16 * kNic), 1.0, 1e-12);
}

TEST(Topology, Bisection) {
  const Fabric nvl72(testing::catalog_system("gb200-nvl72").fabric);
  EXPECT_NEAR(nvl72.bisection(72).value / (36 * 720e9), 1.0, 1e-12);
  EXPECT_NEAR(nvl72.bisection(8).value / (4 * 720e9), 1.0, 1e-12);
  const Fabric nodes(hgx(2));
  EXPECT_NEAR(nodes.bisection(8).value / (4 * kNvlink), 1.0, 1e-12);
  EXPECT_NEAR(nodes.bisection(16).value / (8 * kNic), 1.0, 1e-12);
}

TEST(Topology, H4H5PathsOfGroupsOfANode) {
  const Fabric f(hgx(4));
  for (const Group g : {Group{2, 1}, Group{4, 1}, Group{8, 1}, Group{2, 4}, Group{4, 2}}) {
    SCOPED_TRACE(std::to_string(g.size) + "/" + std::to_string(g.stride));
    const GroupPaths p = f.paths(g);
    EXPECT_TRUE(p.one_node);
    EXPECT_TRUE(p.multicast);
    EXPECT_EQ(p.members_per_node, g.size);
    EXPECT_EQ(p.latency, Seconds(kNvlinkLatency));
    EXPECT_EQ(p.neighbour_latency, Seconds(kNvlinkLatency));
    EXPECT_NEAR(p.pairwise.value / kNvlink, 1.0, 1e-12);
    EXPECT_NEAR(p.ring.value / kNvlink, 1.0, 1e-12);
  }
}

TEST(Topology, H4H5PathsOfGroupsAcrossNodes) {
  const Fabric f(hgx(4));
  // On one rail, a NIC each.
  for (const Group g : {Group{2, 8}, Group{4, 8}, Group{2, 16}}) {
    const GroupPaths p = f.paths(g);
    EXPECT_FALSE(p.one_node);
    EXPECT_FALSE(p.multicast);
    EXPECT_EQ(p.members_per_node, 1);
    EXPECT_EQ(p.latency, Seconds(kNetworkLatency));
    EXPECT_NEAR(p.pairwise.value / kNic, 1.0, 1e-12);
    EXPECT_NEAR(p.ring.value / kNic, 1.0, 1e-12);
  }
  // Two nodes: 8 of 15 destinations lie behind the NIC; the ring's node-to-node hop changes rails.
  const GroupPaths two = f.paths({16, 1});
  EXPECT_EQ(two.members_per_node, 8);
  EXPECT_NEAR(two.pairwise.value / (kNic * 15 / 8), 1.0, 1e-12);
  EXPECT_NEAR(two.ring.value / kNic, 1.0, 1e-12);
  EXPECT_NEAR(two.latency.value, kNetworkLatency + kSpineLatency, 1e-15);
  EXPECT_NEAR(two.neighbour_latency.value, kNetworkLatency + kSpineLatency, 1e-15);
}

TEST(Topology, AGroupThatStraddlesNodesCountsForAll) {
  const Fabric f(hgx(2));
  const GroupPaths p = f.paths({3, 3});  // 0 3 6 in one node, 2 5 8 not
  EXPECT_FALSE(p.one_node);
  EXPECT_FALSE(p.multicast);
  EXPECT_EQ(p.members_per_node, 0);
  EXPECT_NEAR(p.latency.value, kNetworkLatency + kSpineLatency, 1e-15);
  EXPECT_EQ(f.paths({4, 3}).members_per_node, 0);  // 0 3 6 | 9
  EXPECT_EQ(f.paths({1, 1}).latency, Seconds(0));
  // 0 5 and the last group, 24 29, lie in one node; 4 9 between them does not.
  const GroupPaths pairs = Fabric(hgx(4)).paths({2, 5});
  EXPECT_FALSE(pairs.one_node);
  EXPECT_EQ(pairs.members_per_node, 0);
}

TEST(Topology, PlacementInsideASymmetricDomainDoesNotMatter) {
  const Fabric f(testing::catalog_system("gb200-nvl72").fabric);
  for (const int size : {2, 3, 4, 8, 9, 18, 24, 36}) {
    for (int stride = 1; size * stride <= 72; stride *= 2) {
      const GroupPaths p = f.paths({size, stride});
      EXPECT_NEAR(p.pairwise.value / 720e9, 1.0, 1e-12) << size << "/" << stride;
      EXPECT_NEAR(p.ring.value / 720e9, 1.0, 1e-12) << size << "/" << stride;
      EXPECT_EQ(p.latency, Seconds(4e-6));
      EXPECT_EQ(p.members_per_node, size);
    }
  }
}

TEST(Topology, H4H5SharesConserveFlowAndAgreeWithTheOracle) {
  FabricSpec slow_spine = hgx(2), shared = hgx(2);
  slow_spine.network.spine_latency = Seconds(5e-6);
  shared.network.gpus_per_nic = 4;
  FabricSpec near_nic = hgx(2);  // three GPUs, or two, meet at their NIC before they meet at a switch
  near_nic.network.gpus_per_nic = 3;
  near_nic.network.host_link = BytesPerSecond(1e12);
  near_nic.network.latency = Seconds(kNvlinkLatency / 2);
  for (const FabricSpec& spec : {hgx(2), slow_spine, shared, near_nic, hgx(1), oversubscribed()}) {
    const Fabric f(spec);
    const testing::FlowOracle oracle(f);
    for (const Group g :
         {Group{2, 1}, Group{8, 1}, Group{16, 1}, Group{2, 8}, Group{4, 4}, Group{3, 3}, Group{5, 2}}) {
      if (g.size * g.stride > f.gpus()) continue;
      SCOPED_TRACE(std::to_string(g.size) + "/" + std::to_string(g.stride));
      std::vector<double> pairwise(oracle.edges(), 0.0), ring(oracle.edges(), 0.0);
      const int span = g.size * g.stride;
      for (int start = 0; start + span <= f.gpus(); start += span) {
        for (int offset = 0; offset < g.stride; ++offset) {
          const auto gpu = [&](int m) {
            return static_cast<std::size_t>(start + offset + m % g.size * g.stride);
          };
          for (int a = 0; a < g.size; ++a) {
            oracle.send(gpu(a), gpu(a + 1), 1.0, ring);
            for (int b = 0; b < g.size; ++b) {
              if (a != b) oracle.send(gpu(a), gpu(b), 1.0 / (g.size - 1), pairwise);
            }
          }
        }
      }
      const GroupPaths p = f.paths(g);
      EXPECT_NEAR(p.pairwise.value / oracle.narrowest(pairwise), 1.0, 1e-9);
      EXPECT_NEAR(p.ring.value / oracle.narrowest(ring), 1.0, 1e-9);
    }
  }
}

TEST(Topology, ImpossibleQuestionsAreRefused) {
  const Fabric f(hgx(2));
  EXPECT_THROW(f.paths({17, 1}), std::logic_error);
  EXPECT_THROW(f.paths({0, 1}), std::logic_error);
  EXPECT_THROW(f.route(0, 16), std::logic_error);
  EXPECT_THROW(f.bisection(1), std::logic_error);
  FabricSpec cut = hgx(2);
  cut.network.present = false;
  EXPECT_THROW(Fabric{cut}, std::logic_error);
}

}  // namespace
}  // namespace shardline
