// Paths of groups against their definition: every flow of every group, followed over the whole graph.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "hardware/machine/routes.hpp"
#include "tests/hardware/flow_oracle.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using testing::hgx;

/// Every group of a layout: the first GPU of each. Groups that fit a node are placed one node each [H5].
std::vector<int> groups_of(const FabricSpec& spec, Group group) {
  const int span = group.size * group.stride;
  const int end = span <= spec.gpus_per_node ? spec.gpus_per_node : spec.nodes * spec.gpus_per_node;
  std::vector<int> first;
  for (int start = 0; start + span <= end; start += span) {
    for (int offset = 0; offset < group.stride; ++offset) first.push_back(start + offset);
  }
  return first;
}

GroupPaths by_definition(const FabricSpec& spec, Group group) {
  const FabricRoutes routes(spec, nodes_per_uplink(spec));
  std::vector<double> pairwise(routes.edges().size(), 0.0), ring(pairwise.size(), 0.0);
  GroupPaths p;
  p.members_per_node = -1;
  for (const int first : groups_of(spec, group)) {
    const auto gpu = [&](int member) { return first + member % group.size * group.stride; };
    std::vector<int> members(static_cast<std::size_t>(spec.nodes), 0);
    for (int to = 0; to < group.size; ++to) {
      ++members[static_cast<std::size_t>(gpu(to) / spec.gpus_per_node)];
      const FabricRoutes::To& target = routes.to(gpu(to));
      for (int from = 0; from < group.size; ++from) {
        const auto source = static_cast<FabricPlace>(gpu(from));
        if (from == to) continue;
        routes.add_load(target, {{source, 1.0 / (group.size - 1)}}, pairwise);
        if (from < to) p.latency = std::max(p.latency, target.latency[source]);
        if (gpu(from + 1) != gpu(to)) continue;
        routes.add_load(target, {{source, 1.0}}, ring);
        p.neighbour_latency = std::max(p.neighbour_latency, target.latency[source]);
      }
    }
    const int most = *std::max_element(members.begin(), members.end());
    p.one_node &= most == group.size;
    for (const int m : members) {
      if (m == 0) continue;
      p.members_per_node = p.members_per_node < 0 || p.members_per_node == m ? m : 0;
    }
  }
  p.pairwise = routes.narrowest(pairwise);
  p.gather = routes.narrowest(pairwise, spec.network.send_recv_share);
  p.ring = routes.narrowest(ring) * (p.one_node ? 1.0 : spec.network.send_recv_share);
  return p;
}

FabricSpec random_fabric(std::mt19937_64& rng) {
  const auto from = [&](int low, int high) {
    return low + static_cast<int>(rng() % unsigned(high - low + 1));
  };
  FabricSpec f;
  f.nodes = from(1, 9);
  f.gpus_per_node = from(1, 8);
  f.nvlink.switches = from(f.nodes > 1 ? 0 : 1, 4);  // without any, GPUs meet at NICs and leaves
  f.nvlink.bandwidth = BytesPerSecond(1e9 * from(50, 500));
  f.nvlink.latency = microseconds(from(0, 8));
  f.nvlink.efficiency = 0.1 * from(3, 10);
  NetworkSpec& n = f.network;
  n.present = true;
  n.bandwidth = BytesPerSecond(1e9 * from(10, 100));
  n.latency = microseconds(from(0, 10));
  n.efficiency = 0.1 * from(3, 10);
  n.gpus_per_nic = from(0, 1) == 0 ? 1 : from(1, 4);
  n.host_link = BytesPerSecond(1e9 * from(10, 100));
  n.rail_optimised = from(0, 1) == 0;
  n.nodes_per_leaf = from(0, 1) == 0 ? 0 : from(1, 4);
  n.oversubscription = 0.5 * from(1, 8);
  n.spine_latency = microseconds(from(0, 1) == 0 ? 0 : from(1, 12));
  n.send_recv_share = 0.1 * from(5, 10);
  return f;
}

void expect_definition(const FabricSpec& spec, const Fabric& fabric, Group group) {
  SCOPED_TRACE(std::to_string(group.size) + "/" + std::to_string(group.stride));
  const GroupPaths p = fabric.paths(group), expected = by_definition(spec, group);
  EXPECT_EQ(p.one_node, expected.one_node);
  EXPECT_EQ(p.members_per_node, expected.members_per_node);
  EXPECT_EQ(p.latency, expected.latency);
  EXPECT_EQ(p.neighbour_latency, expected.neighbour_latency);
  EXPECT_NEAR(p.pairwise / expected.pairwise, 1, 1e-12);
  EXPECT_NEAR(p.gather / expected.gather, 1, 1e-12);
  EXPECT_NEAR(p.ring / expected.ring, 1, 1e-12);
}

TEST(GroupPaths, H4H5EqualTheirDefinitionOnRandomFabrics) {
  std::mt19937_64 rng(11);
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    const FabricSpec spec = random_fabric(rng);
    const Fabric fabric(spec);
    for (int k = 0; k < 6 && fabric.gpus() > 1; ++k) {
      const int size = 2 + static_cast<int>(rng() % unsigned(fabric.gpus() - 1));
      const int stride = 1 + static_cast<int>(rng() % unsigned(fabric.gpus() / size));
      expect_definition(spec, fabric, {size, stride});
    }
  }
}

TEST(GroupPaths, H4H5EqualTheirDefinitionOnShippedSystems) {
  for (const char* name : {"h100-hgx", "b200-hgx", "gb200-nvl72", "a800-apb"}) {
    SCOPED_TRACE(name);
    const FabricSpec spec = testing::catalog_system(name).fabric;
    const Fabric fabric(spec);
    for (const Group g : {Group{2, 1}, Group{6, 1}, Group{8, 1}, Group{16, 1}, Group{2, 16}, Group{72, 1},
                          Group{7, 3}, Group{4, 8}, Group{64, 1}, Group{128, 1}}) {
      if (g.size * g.stride <= fabric.gpus()) expect_definition(spec, fabric, g);
    }
  }
}

/// Nothing is shorter over a third node, which the cell of three nodes rests on.
TEST(GroupPaths, RoutesStayInTheNodesOfTheirEnds) {
  std::mt19937_64 rng(12);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    const FabricSpec spec = random_fabric(rng);
    const FabricRoutes routes(spec, nodes_per_uplink(spec));
    const int gpus = spec.nodes * spec.gpus_per_node;
    for (int to = 0; to < gpus; ++to) {
      const int from = static_cast<int>(rng() % unsigned(gpus));
      std::vector<double> load(routes.edges().size(), 0.0);
      routes.add_load(routes.to(to), {{static_cast<FabricPlace>(from), 1.0}}, load);
      for (std::size_t e = 0; e < load.size(); ++e) {
        const int node = routes.edges()[e].node;
        if (load[e] == 0 || node < 0) continue;
        EXPECT_TRUE(node == from / spec.gpus_per_node || node == to / spec.gpus_per_node);
      }
    }
  }
}

/// A fabric of 4,096 GPUs costs what its groups cost: three nodes' routes, not 4,096 GPUs'.
TEST(GroupPaths, OfFourThousandGpus) {
  const Fabric large(hgx(512)), small(hgx(16));
  for (const Group g : {Group{8, 1}, Group{16, 1}, Group{2, 8}, Group{16, 8}, Group{128, 1}}) {
    const GroupPaths a = large.paths(g), b = small.paths(g);
    EXPECT_EQ(a.members_per_node, b.members_per_node);
    EXPECT_EQ(a.latency, b.latency);
    EXPECT_NEAR(a.pairwise / b.pairwise, 1, 1e-12);
    EXPECT_NEAR(a.ring / b.ring, 1, 1e-12);
  }
  // All to all: a NIC carries 4,088 of 4,095 parts, a rail's uplink 7/8 of what its NICs carry.
  EXPECT_NEAR(large.paths({4096, 1}).pairwise.value / (testing::kNic * 4095 / 4088), 1, 1e-12);
}

}  // namespace
}  // namespace shardline
