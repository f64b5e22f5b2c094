// Every closed form [H6]-[H15], recomputed from link figures, and the rules that choose between them.
#include "hardware/collectives/collective.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using testing::hgx;
using testing::kNetworkLatency;
using testing::kNic;
using testing::kNvlink;
using testing::kNvlinkLatency;
using testing::kSpineLatency;

constexpr double kLatency = 4e-6, kPort = 900e9 * 0.8;  // of gb200-nvl72

const Fabric& nvl72() {
  static const Fabric fabric(testing::catalog_system("gb200-nvl72").fabric);
  return fabric;
}
const Fabric& cluster() {
  static const Fabric fabric(hgx(4));
  return fabric;
}

void expect_time(const CollectiveTime& t, Algorithm algorithm, double latency, double drain) {
  EXPECT_EQ(t.algorithm, algorithm);
  EXPECT_NEAR(t.latency.value / latency, 1.0, 1e-12);
  EXPECT_NEAR((t.wire / t.rate).value / drain, 1.0, 1e-12);
  EXPECT_NEAR(t.total().value / (latency + drain), 1.0, 1e-12);
}

TEST(Collective, H6ToH14InOneDomain) {
  for (const int n : {2, 3, 8, 36, 72}) {
    const GroupFabric g = group_fabric(nvl72(), {n, 1});
    for (const double s : {8e3, 1e6, 256e6}) {
      SCOPED_TRACE(std::to_string(n) + " ranks, " + std::to_string(s) + " bytes");
      const Bytes bytes(s);
      const double most = (n - 1.0) / n;
      expect_time(ring_all_reduce(g, bytes), Algorithm::ring, 2 * (n - 1) * kLatency,
                  2 * most * s / kPort);                                                                 // H6
      expect_time(ring_all_gather(g, bytes), Algorithm::ring, (n - 1) * kLatency, (n - 1) * s / kPort);  // H7
      expect_time(ring_reduce_scatter(g, bytes), Algorithm::ring, (n - 1) * kLatency,
                  most * s / kPort);  // H7
      int depth = 0;
      while ((1 << depth) < n) ++depth;
      expect_time(tree_all_reduce(g, bytes), Algorithm::tree, 2 * depth * kLatency, 2 * s / kPort);    // H8
      expect_time(one_shot_all_reduce(g, bytes), Algorithm::one_shot, kLatency, (n - 1) * s / kPort);  // H9
      expect_time(two_shot_all_reduce(g, bytes), Algorithm::two_shot, 2 * kLatency,
                  2 * most * s / kPort);                                                            // H10
      expect_time(direct_all_gather(g, bytes), Algorithm::direct, kLatency, (n - 1) * s / kPort);   // H11
      expect_time(direct_reduce_scatter(g, bytes), Algorithm::direct, kLatency, most * s / kPort);  // H11
      expect_time(direct_all_to_all(g, bytes), Algorithm::direct, kLatency, s / kPort);             // H12
      expect_time(send_recv(g, bytes), Algorithm::direct, kLatency, s / kPort);                     // H13
      expect_time(nvls_all_reduce(g, bytes), Algorithm::nvls, 2 * kLatency,
                  (1 + 1.0 / n) * s / kPort);  // H14
    }
  }
}

TEST(Collective, H6H7H12H13AcrossNodes) {
  const GroupFabric g = group_fabric(cluster(), {16, 1});  // pairs of nodes
  const double s = 64e6, far = kNetworkLatency + kSpineLatency, pairwise = kNic * 15 / 8;
  expect_time(ring_all_reduce(g, Bytes(s)), Algorithm::ring, 30 * far, 2 * 15.0 / 16 * s / kNic);
  expect_time(ring_all_gather(g, Bytes(s)), Algorithm::ring, 15 * far, 15 * s / kNic);
  expect_time(direct_all_to_all(g, Bytes(s)), Algorithm::direct, far, s / pairwise);
  expect_time(tree_all_reduce(g, Bytes(s)), Algorithm::tree, 8 * far, 2 * s / pairwise);
  expect_time(send_recv(group_fabric(cluster(), {2, 8}), Bytes(s)), Algorithm::direct, kNetworkLatency,
              s / kNic);
}

TEST(Collective, H15HierarchicalIsTheSumOfItsThreePhases) {
  for (const int nodes : {2, 4}) {
    const GroupFabric g = group_fabric(cluster(), {8 * nodes, 1});
    ASSERT_TRUE(g.hierarchical);
    const double s = 64e6;
    const double inside = 2 * 7.0 / 8 * s / kNvlink;
    const double across = 2 * (nodes - 1.0) / nodes * (s / 8) / kNic;
    expect_time(hierarchical_all_reduce(g, Bytes(s)), Algorithm::hierarchical,
                2 * kNvlinkLatency + 2 * (nodes - 1) * kNetworkLatency, inside + across);
  }
  EXPECT_FALSE(group_fabric(cluster(), {8, 1}).hierarchical);  // one node
  EXPECT_FALSE(group_fabric(cluster(), {4, 8}).hierarchical);  // one member per node
  EXPECT_FALSE(group_fabric(cluster(), {4, 3}).hierarchical);  // unequal numbers
}

TEST(Collective, LoadsStoresAndMulticastStayInsideADomain) {
  const GroupFabric inside = group_fabric(cluster(), {8, 1}), across = group_fabric(cluster(), {16, 1});
  const std::vector<std::pair<AllReduceRule, Algorithm>> pinned{
      {AllReduceRule::one_shot, Algorithm::one_shot},
      {AllReduceRule::two_shot, Algorithm::two_shot},
      {AllReduceRule::nvls, Algorithm::nvls}};
  for (const auto& [rule, algorithm] : pinned) {
    EXPECT_EQ(collective(OpKind::all_reduce, inside, Bytes(1e6), rule).algorithm, algorithm);
    EXPECT_EQ(collective(OpKind::all_reduce, across, Bytes(1e6), rule).algorithm, Algorithm::ring);
  }
  for (const double s : {1e3, 1e6, 1e9}) {
    const Algorithm a = collective(OpKind::all_reduce, across, Bytes(s)).algorithm;
    EXPECT_TRUE(a == Algorithm::ring || a == Algorithm::tree || a == Algorithm::hierarchical ||
                a == Algorithm::rails)
        << to_string(a);
  }
  // A100 switches cannot reduce.
  const Fabric a100(testing::catalog_system("a100-sxm").fabric);
  const GroupFabric old = group_fabric(a100, {8, 1});
  EXPECT_EQ(collective(OpKind::all_reduce, old, Bytes(1e6), AllReduceRule::nvls).algorithm, Algorithm::ring);
  EXPECT_NE(collective(OpKind::all_reduce, old, Bytes(1e9)).algorithm, Algorithm::nvls);
}

TEST(Collective, H15ShortMessagesGoOneShotInsideAndWholeAcross) {
  const GroupFabric g = group_fabric(cluster(), {16, 1});
  for (const double s : {1e3, 1e6}) {
    const CollectiveTime t = hierarchical_one_shot_all_reduce(g, Bytes(s));
    const Seconds inside = one_shot_all_reduce(group_fabric(cluster(), {8, 1}), Bytes(s)).total(),
                  across = ring_all_reduce(group_fabric(cluster(), {2, 8}), Bytes(s)).total();
    EXPECT_NEAR(t.total() / (inside + across), 1, 1e-12);
    EXPECT_EQ(t.total() < hierarchical_all_reduce(g, Bytes(s)).total(), s < 1e4);
  }
}

TEST(Collective, RailsCarryARingOverEveryNic) {
  const GroupFabric g = group_fabric(cluster(), {16, 1});  // two nodes of eight
  const CollectiveTime one = ring_all_reduce(g, Bytes(1e9)), eight = rails_all_reduce(g, Bytes(1e9));
  EXPECT_EQ(one.wire, eight.wire);
  EXPECT_NEAR(eight.rate / std::min(g.inside.ring, g.across.ring * 8.0), 1, 1e-12);
  EXPECT_NEAR(eight.latency / (g.inside.neighbour_latency * 14.0 + g.across.neighbour_latency * 2.0), 1,
              1e-12);
  EXPECT_GT(eight.rate, one.rate);
}

TEST(Collective, H59RingsOnEveryRail) {
  const GroupFabric g = group_fabric(cluster(), {32, 1});  // four nodes of eight
  const double s = 64e6, latency = 4 * kNetworkLatency + 27 * kNvlinkLatency;
  expect_time(rails_all_gather(g, Bytes(s)), Algorithm::rails, latency, 31 * s / (8 * kNic));
  expect_time(rails_reduce_scatter(g, Bytes(s)), Algorithm::rails, latency, 31 * s / 32 / (8 * kNic));
  EXPECT_EQ(rails_all_gather(g, Bytes(s)).wire, ring_all_gather(g, Bytes(s)).wire);
}

TEST(Collective, H60EachBlockCrossesOnceAndNvlinkSpreadsIt) {
  // Four ranks per node, a block to each other node over each NIC; eight ranks over two nodes wait for it.
  const double s = 64e6, latency = kNetworkLatency + kNvlinkLatency;
  const GroupFabric half = group_fabric(cluster(), {8, 2});
  ASSERT_EQ(half.whole.members_per_node, 4);
  expect_time(hierarchical_all_gather(half, Bytes(s)), Algorithm::hierarchical, latency, s / kNic);
  expect_time(hierarchical_reduce_scatter(half, Bytes(s)), Algorithm::hierarchical, latency, s / 8 / kNic);
  // Four nodes of eight: 28 blocks over NVLink last longer than three over a NIC.
  expect_time(hierarchical_all_gather(group_fabric(cluster(), {32, 1}), Bytes(s)), Algorithm::hierarchical,
              latency, 28 * s / kNvlink);
}

TEST(Collective, H61ForwardingAvoidsTheSpine) {
  const double s = 64e6, latency = kNetworkLatency + kNvlinkLatency;
  const GroupFabric g = group_fabric(cluster(), {16, 1});
  expect_time(rails_all_to_all(g, Bytes(s)), Algorithm::rails, latency, s * 8 / 15 / kNic);
  // A wide and quick spine costs less than the way over NVLink; a narrow one is avoided.
  EXPECT_EQ(collective(OpKind::all_to_all, g, Bytes(s)).algorithm, Algorithm::direct);
  FabricSpec narrow = hgx(2);
  narrow.network.oversubscription = 4;
  const GroupFabric n = group_fabric(Fabric(narrow), {16, 1});
  EXPECT_EQ(collective(OpKind::all_to_all, n, Bytes(s)).algorithm, Algorithm::rails);
  EXPECT_NEAR(rails_all_to_all(n, Bytes(s)).total() / rails_all_to_all(g, Bytes(s)).total(), 1, 1e-12);
}

TEST(Collective, H59H60AllRanksOfANodeAtOnceLeaveNothingToSpread) {
  // One member per node: the other GPUs' NICs carry the other groups.
  const GroupFabric g = group_fabric(cluster(), {4, 8});
  ASSERT_FALSE(g.hierarchical);
  const double s = 64e6;
  expect_time(collective(OpKind::all_gather, g, Bytes(s)), Algorithm::direct, kNetworkLatency, 3 * s / kNic);
  expect_time(collective(OpKind::reduce_scatter, g, Bytes(s)), Algorithm::direct, kNetworkLatency,
              0.75 * s / kNic);
  expect_time(collective(OpKind::all_to_all, g, Bytes(s)), Algorithm::direct, kNetworkLatency, s / kNic);
}

TEST(Collective, H11MessagesToOnePeerSlowTheNetworkAlone) {
  FabricSpec slow = hgx(2);
  slow.network.send_recv_share = 0.5;
  const double s = 64e6;
  const auto drain = [&](const FabricSpec& f, Group group) {
    const CollectiveTime t = direct_all_gather(group_fabric(Fabric(f), group), Bytes(s));
    return (t.wire / t.rate).value;
  };
  EXPECT_NEAR(drain(hgx(2), {16, 1}) / (8 * s / kNic), 1, 1e-12);  // 8 of 15 blocks use the NIC
  EXPECT_NEAR(drain(slow, {16, 1}) / (8 * s / (kNic / 2)), 1, 1e-12);
  EXPECT_EQ(drain(slow, {8, 1}), drain(hgx(2), {8, 1}));
}

constexpr OpKind kSpread[] = {OpKind::all_gather, OpKind::reduce_scatter, OpKind::all_to_all};

TEST(Collective, SpreadingIsNeverSlowerThanDirectAndRisesWithRanks) {
  for (const OpKind kind : kSpread) {
    for (const int stride : {1, 2, 4, 8}) {
      for (double s = 1e2; s < 1e11; s *= 7) {
        Seconds before;
        for (int n = 2; n * stride <= 32; n *= 2) {
          SCOPED_TRACE(fmt::format("{}, {} ranks at stride {}, {} bytes", to_string(kind), n, stride, s));
          const GroupFabric g = group_fabric(cluster(), {n, stride});
          const Seconds now = collective(kind, g, Bytes(s)).total();
          const CollectiveTime direct = kind == OpKind::all_gather       ? direct_all_gather(g, Bytes(s))
                                        : kind == OpKind::reduce_scatter ? direct_reduce_scatter(g, Bytes(s))
                                                                         : direct_all_to_all(g, Bytes(s));
          EXPECT_LE(now, direct.total());
          EXPECT_GE(now.value, before.value * (1 - 1e-12));
          before = now;
        }
      }
    }
  }
}

TEST(Collective, AReduceScatterIsAnAllGatherBackwards) {
  for (const Group group : {Group{8, 1}, Group{16, 1}, Group{32, 1}, Group{8, 2}, Group{8, 4}, Group{4, 8}}) {
    const GroupFabric g = group_fabric(cluster(), group);
    for (double s = 1e2; s < 1e11; s *= 7) {
      const CollectiveTime scatter = collective(OpKind::reduce_scatter, g, Bytes(s * group.size));
      const CollectiveTime gather = collective(OpKind::all_gather, g, Bytes(s));
      EXPECT_EQ(scatter.algorithm, gather.algorithm);
      EXPECT_NEAR(scatter.wire / gather.wire, 1, 1e-12);
      EXPECT_NEAR(scatter.total() / gather.total(), 1, 1e-12);
    }
  }
}

TEST(Collective, TheFastestWinsAndIsNamed) {
  for (const Group group : {Group{2, 1}, Group{4, 1}, Group{8, 1}, Group{16, 1}, Group{32, 1}, Group{2, 8}}) {
    const GroupFabric g = group_fabric(cluster(), group);
    for (double s = 1e2; s < 1e10; s *= 4) {
      std::vector<CollectiveTime> all{ring_all_reduce(g, Bytes(s)), tree_all_reduce(g, Bytes(s))};
      if (g.whole.one_node) all.push_back(one_shot_all_reduce(g, Bytes(s)));
      if (g.whole.one_node) all.push_back(two_shot_all_reduce(g, Bytes(s)));
      if (g.whole.multicast) all.push_back(nvls_all_reduce(g, Bytes(s)));
      if (g.hierarchical) all.push_back(hierarchical_all_reduce(g, Bytes(s)));
      if (g.hierarchical) all.push_back(hierarchical_one_shot_all_reduce(g, Bytes(s)));
      if (g.hierarchical) all.push_back(rails_all_reduce(g, Bytes(s)));
      const CollectiveTime chosen = collective(OpKind::all_reduce, g, Bytes(s));
      bool named = false;
      for (const CollectiveTime& t : all) {
        EXPECT_LE(chosen.total(), t.total());
        named = named || (t.algorithm == chosen.algorithm && t.total() == chosen.total());
      }
      EXPECT_TRUE(named) << to_string(chosen.algorithm);
    }
  }
}

TEST(Collective, SmallMessagesGoOneShotAndLargeOnesReduceInTheSwitch) {
  const GroupFabric g = group_fabric(nvl72(), {8, 1});
  EXPECT_EQ(collective(OpKind::all_reduce, g, Bytes(8e3)).algorithm, Algorithm::one_shot);
  EXPECT_EQ(collective(OpKind::all_reduce, g, Bytes(256e6)).algorithm, Algorithm::nvls);
  // Where both take equally long: (n-1) s / B = alpha + (1 + 1/n) s / B.
  const double even = kLatency * kPort / (7 - 1.125);
  EXPECT_EQ(collective(OpKind::all_reduce, g, Bytes(even * 0.999)).algorithm, Algorithm::one_shot);
  EXPECT_EQ(collective(OpKind::all_reduce, g, Bytes(even * 1.001)).algorithm, Algorithm::nvls);
}

TEST(Collective, TiesGoToTheEarlierAlgorithm) {
  // Three ranks: two-shot moves 2 * 2/3 and NVLS 1 + 1/3 of the buffer, with the same latency.
  const GroupFabric g = group_fabric(nvl72(), {3, 1});
  EXPECT_NEAR(two_shot_all_reduce(g, Bytes(1e9)).total() / nvls_all_reduce(g, Bytes(1e9)).total(), 1.0,
              1e-12);
  // No bytes and no latency: all are equal.
  FabricSpec free = hgx(2);
  free.nvlink.latency = Seconds(0);
  EXPECT_EQ(collective(OpKind::all_reduce, group_fabric(Fabric(free), {8, 1}), Bytes(0)).algorithm,
            Algorithm::one_shot);
  EXPECT_EQ(collective(OpKind::all_gather, group_fabric(Fabric(free), {8, 1}), Bytes(0)).algorithm,
            Algorithm::direct);
  free.network.latency = free.network.spine_latency = Seconds(0);
  EXPECT_EQ(collective(OpKind::all_reduce, group_fabric(Fabric(free), {2, 8}), Bytes(0)).algorithm,
            Algorithm::ring);
}

TEST(Collective, TimeRisesWithBytesAndGroupSize) {
  const std::vector<OpKind> kinds{OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter,
                                  OpKind::all_to_all, OpKind::send_recv};
  for (const Fabric* f : {&nvl72(), &cluster()}) {
    for (const OpKind kind : kinds) {
      SCOPED_TRACE(to_string(kind));
      for (int n = 2; n <= 32; n *= 2) {
        Seconds before;
        for (double s = 1e2; s < 1e10; s *= 3) {
          const Seconds now = collective(kind, group_fabric(*f, {n, 1}), Bytes(s)).total();
          EXPECT_GT(now, before) << n << " ranks, " << s << " bytes";
          before = now;
        }
      }
    }
    // In-switch reduction alone is exempt: 1 + 1/n falls with n.
    for (const AllReduceRule rule :
         {AllReduceRule::ring, AllReduceRule::tree, AllReduceRule::one_shot, AllReduceRule::two_shot}) {
      for (const double s : {1e3, 1e6, 1e9}) {
        Seconds before;
        for (int n = 2; n <= 8; n *= 2) {
          const Seconds now =
              collective(OpKind::all_reduce, group_fabric(*f, {n, 1}), Bytes(s), rule).total();
          EXPECT_GE(now, before) << n << " ranks, " << s << " bytes";
          before = now;
        }
      }
    }
  }
}

TEST(Collective, WireBytesAreConserved) {
  for (const int n : {2, 4, 8, 32}) {
    const GroupFabric g = group_fabric(nvl72(), {n, 1});
    const Bytes s(1e6);
    // All-reduce is a reduce-scatter of the buffer and an all-gather of its shares.
    const CollectiveTime ring = ring_all_reduce(g, s), first = ring_reduce_scatter(g, s),
                         second = ring_all_gather(g, s / static_cast<double>(n));
    EXPECT_NEAR(ring.wire / (first.wire + second.wire), 1.0, 1e-12);
    EXPECT_NEAR(ring.latency / (first.latency + second.latency), 1.0, 1e-12);
    const CollectiveTime two = two_shot_all_reduce(g, s), scatter = direct_reduce_scatter(g, s),
                         gather = direct_all_gather(g, s / static_cast<double>(n));
    EXPECT_NEAR(two.wire / (scatter.wire + gather.wire), 1.0, 1e-12);
    EXPECT_NEAR(two.latency / (scatter.latency + gather.latency), 1.0, 1e-12);
    // Without help from the switch, nobody reduces with less than 2 (n-1)/n; with it, with less than 1.
    const Bytes least = s * (2 * (n - 1.0) / n * (1 - 1e-12));
    for (const CollectiveTime& t : {ring, two, one_shot_all_reduce(g, s), tree_all_reduce(g, s)}) {
      EXPECT_GE(t.wire, least) << to_string(t.algorithm);
      EXPECT_GE(t.wire, first.wire);
    }
    EXPECT_GE(nvls_all_reduce(g, s).wire, s);
    // An all-gather brings every rank the other n-1 contributions; an all-to-all moves what it is given.
    EXPECT_EQ(direct_all_gather(g, s).wire, s * (n - 1.0));
    EXPECT_EQ(direct_all_to_all(g, s).wire, s);
  }
}

TEST(Collective, OnlyCommunicationHasATime) {
  const GroupFabric g = group_fabric(nvl72(), {2, 1});
  for (const OpKind kind :
       {OpKind::gemm, OpKind::batched_gemm, OpKind::grouped_gemm, OpKind::attend_prefill,
        OpKind::attend_decode, OpKind::merge, OpKind::elementwise, OpKind::compress, OpKind::launch,
        OpKind::index_logits, OpKind::top_k, OpKind::attend_sparse, OpKind::module_rest}) {
    EXPECT_THROW(collective(kind, g, Bytes(1)), std::logic_error) << to_string(kind);
  }
}

}  // namespace
}  // namespace shardline
