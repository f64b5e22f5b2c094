// Exchanges between nodes [H11] [H59] [H60] [H61] against a play of every message of all groups at once.
#include "tests/hardware/messages.hpp"

#include <fmt/format.h>

#include <functional>

#include "hardware/collectives/collective.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using testing::groups_of;
using testing::Members;
using testing::Messages;

struct Layout {
  int nodes, gpus_per_node, gpus_per_nic;
  Group group;
  double share;  // of the network, that one message to one peer gets
};

FabricSpec spec_of(const Layout& l) {
  FabricSpec f = testing::hgx(l.nodes);
  f.gpus_per_node = l.gpus_per_node;
  f.nvlink.switches = l.gpus_per_node < 8 ? 2 : 1;
  f.network.gpus_per_nic = l.gpus_per_nic;
  f.network.send_recv_share = l.share;
  // With two members on each of three nodes a ring must change rails once.
  if (l.nodes % 2 == 1 && l.gpus_per_node == 2) f.network.spine_latency = Seconds(0);
  return f;
}

constexpr double kHuge = 1e12;  // bytes: latencies count for less than 1e-6 of the time

std::vector<Layout> layouts() {
  return {{2, 4, 1, {8, 1}, 1},  {2, 4, 1, {4, 2}, 1},  {2, 4, 1, {2, 4}, 1},   {3, 2, 1, {6, 1}, 1},
          {3, 2, 1, {3, 2}, 1},  {3, 4, 1, {12, 1}, 1}, {4, 4, 1, {8, 1}, 0.6}, {2, 4, 2, {8, 1}, 1},
          {2, 4, 4, {4, 2}, .6}, {4, 8, 1, {32, 1}, 1}, {4, 8, 1, {16, 2}, 1},  {4, 8, 1, {8, 4}, 1},
          {4, 8, 1, {4, 8}, 1}};
}

/// How one algorithm lists its messages, and its closed form.
struct Listed {
  const char* name;
  std::function<CollectiveTime(const GroupFabric&, Bytes)> closed;  // of a block or part of the bytes below
  std::function<void(Messages&, const Members&, int local, double bytes)> enumerate;
  bool messages;      // slowed by `share`
  bool between_only;  // needs several members on each of several nodes
  bool streams;       // in chunks
};

std::vector<Listed> algorithms() {
  const auto whole = [](const GroupFabric& g, Bytes block) { return block * static_cast<double>(g.size); };
  const auto leaving = [](const GroupFabric& g, Bytes part) { return part * (g.size - 1.0); };
  const auto direct = [](Messages& m, const Members& g, int, double s) { enumerate_direct(m, g, s); };
  return {
      {"direct all-gather", direct_all_gather, direct, true, false, false},
      {"direct reduce-scatter",
       [=](const GroupFabric& g, Bytes s) { return direct_reduce_scatter(g, whole(g, s)); }, direct, true,
       false, false},
      {"direct all-to-all",
       [=](const GroupFabric& g, Bytes s) { return direct_all_to_all(g, leaving(g, s)); }, direct, false,
       false, false},
      {"rings on every rail", rails_all_gather, testing::enumerate_rings, true, true, true},
      {"rails and NVLink, all-gather", hierarchical_all_gather, testing::enumerate_rail_gather, true, true,
       true},
      {"rails and NVLink, reduce-scatter",
       [=](const GroupFabric& g, Bytes s) { return hierarchical_reduce_scatter(g, whole(g, s)); },
       testing::enumerate_rail_scatter, true, true, true},
      {"forwarded all-to-all",
       [=](const GroupFabric& g, Bytes s) { return rails_all_to_all(g, leaving(g, s)); },
       testing::enumerate_forwarded, false, true, true},
  };
}

double play(const Fabric& f, const Layout& l, const Listed& a, double bytes, int chunks) {
  const int local = group_fabric(f, l.group).whole.members_per_node;
  Messages m(f, a.messages ? l.share : 1.0, chunks);
  for (const Members& members : groups_of(f, l.group)) {
    a.enumerate(m, members, local, bytes);
  }
  return m.play();
}

/// Latency limit: equal. Bandwidth limit: equal, but for the one chunk in `chunks` that cannot overlap. In
/// between: no slower than the two together, and no faster than the wire.
void expect_played(const Fabric& f, const Layout& l, const Listed& a, int chunks) {
  const GroupFabric g = group_fabric(f, l.group);
  const double fill = a.streams ? 1.0 / chunks : 0.0;
  const CollectiveTime tiny = a.closed(g, Bytes(1e-6));
  EXPECT_NEAR(play(f, l, a, 1e-6, chunks) / tiny.latency.value, 1.0, 1e-9);

  const double ratio = play(f, l, a, kHuge, chunks) / a.closed(g, Bytes(kHuge)).total().value;
  EXPECT_GE(ratio, 1.0 - 1e-6);
  EXPECT_LE(ratio, 1.0 + fill + 1e-6);

  const CollectiveTime t = a.closed(g, Bytes(5e5));
  const double drain = (t.wire / t.rate).value, between = play(f, l, a, 5e5, chunks);
  EXPECT_GE(between, drain * (1 - 1e-9));
  EXPECT_LE(between, t.latency.value + drain * (1 + fill) * (1 + 1e-9));
}

TEST(Messages, H11H59H60H61EveryMessageOfAllGroupsAtOnce) {
  for (const Layout& l : layouts()) {
    const Fabric f(spec_of(l));
    const GroupFabric g = group_fabric(f, l.group);
    for (const Listed& a : algorithms()) {
      if (a.between_only && !g.hierarchical) continue;
      SCOPED_TRACE(fmt::format("{}, {} nodes x {}, {} GPUs per NIC, {} ranks at stride {}", a.name, l.nodes,
                               l.gpus_per_node, l.gpus_per_nic, l.group.size, l.group.stride));
      expect_played(f, l, a, 8);
    }
  }
}

TEST(Messages, H59H60H61FinerChunksComeAsCloseAsTheyAreFine) {
  for (const Layout& l :
       {Layout{2, 4, 1, {8, 1}, 1}, Layout{3, 2, 1, {6, 1}, 1}, Layout{2, 8, 1, {8, 2}, 1}}) {
    const Fabric f(spec_of(l));
    for (const Listed& a : algorithms()) {
      if (!a.streams) continue;
      SCOPED_TRACE(a.name);
      expect_played(f, l, a, 128);
    }
  }
}

TEST(Messages, H59H60NodesSendEachBlockAsOftenAsItIsNeeded) {
  for (const Layout& l : layouts()) {
    const Fabric f(spec_of(l));
    const GroupFabric g = group_fabric(f, l.group);
    if (!g.hierarchical) continue;
    const int n = l.group.size, local = g.whole.members_per_node, nodes = n / local;
    const std::vector<Members> groups = groups_of(f, l.group);
    const auto left = [&](const auto& enumerate) {
      Messages m(f, 1, 1);
      for (const Members& members : groups) enumerate(m, members);
      return m.network_bytes() / static_cast<double>(groups.size());
    };
    const auto near = [&](double bytes, double wanted) { EXPECT_NEAR(bytes / wanted, 1, 1e-9) << n; };
    // Once per receiver; once per node; once per step of the ring and node.
    near(left([&](Messages& m, const Members& r) { enumerate_direct(m, r, 1); }), double(n) * (n - local));
    const double once = double(n) * (nodes - 1);
    near(left([&](Messages& m, const Members& r) { enumerate_rail_gather(m, r, local, 1); }), once);
    near(left([&](Messages& m, const Members& r) { enumerate_rail_scatter(m, r, local, 1); }), once);
    near(left([&](Messages& m, const Members& r) { enumerate_rings(m, r, local, 1); }), nodes * (n - 1.0));
    near(left([&](Messages& m, const Members& r) { enumerate_forwarded(m, r, local, 1); }),
         double(n) * (n - local));
    // The closed forms count the same bytes, per rank.
    near(n * hierarchical_all_gather(g, Bytes(1)).wire.value, once);
    near(n * rails_all_to_all(g, Bytes(n - 1.0)).wire.value, double(n) * (n - local));
  }
}

}  // namespace
}  // namespace shardline
