// How long hand-offs take on a fabric, in cases whose times are sums.
#include "planner/handoff/transfer.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "cuda_probe/execute/verify/verify_models.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {
namespace {

FabricSpec two_nodes() {
  FabricSpec f;
  f.nodes = 2;
  f.gpus_per_node = 8;
  f.nvlink = {
      .switches = 4, .bandwidth = BytesPerSecond(400e9), .latency = Seconds(3e-6), .efficiency = 0.75};
  f.network.present = true;
  f.network.bandwidth = BytesPerSecond(50e9);
  f.network.latency = Seconds(8e-6);
  f.network.efficiency = 0.9;
  f.network.host_link = BytesPerSecond(64e9);
  f.network.send_recv_extra = Seconds(5e-6);
  f.network.send_recv_share = 0.8;
  return f;
}

// Two layers of 8 KV heads of 2 x 4 numbers in BF16.
Case eight_heads() {
  for (const cli::Layers& layers : cli::verify_layers()) {
    Case c = cli::small_case(layers, {});
    if (c.model.attentions.size() == 1 && c.model.attentions.front().kv_heads == 8) return c;
  }
  return {};
}

Plan tp(int ranks) {
  Plan p;
  p.strategy = strategy_id("tensor");
  p.tpa = p.tpf = ranks;
  return p;
}

Handoff between(const Case& c, const Plan& a, const Plan& b, long long tokens) {
  return hand_over(cache_layout(c, a, CacheSide::prefilled, tokens),
                   cache_layout(c, b, CacheSide::to_decode, tokens), {});
}

constexpr long long kTokens = 16 * 4096;
constexpr double kRankBytes = 2.0 * 2 * 2 * 8 * kTokens;  // of two of eight heads
constexpr double kNvlink = 300e9, kNetwork = 50e9 * 0.9 * 0.8;

Transfer transfer(const Handoff& h, int target, double prefill = 0, double room = 0) {
  return {&h, 0, target, Seconds(0), Seconds(prefill), Seconds(room)};
}

TEST(Transfer, D7DescriptorsThenHandshakeThenBytes) {
  const Case c = eight_heads();
  const Handoff h = between(c, tp(4), tp(4), kTokens);
  ASSERT_EQ(rank_pairs(h).size(), 4U);
  // Whole pages, two layers, keys and values.
  EXPECT_EQ(rank_pairs(h).front().descriptors, 2 * 2 * kTokens / 16);
  EXPECT_EQ(rank_pairs(h).front().bytes.value, kRankBytes);
  const double submit = 4.0 * kTokens / 16;
  const TransferCosts costs;
  const TransferFabric fabric(two_nodes(), 16);
  EXPECT_NEAR(fabric.play({transfer(h, 4)}, costs).front().exposed.value,
              submit * costs.nvlink_descriptor.value + 2 * 3e-6 + kRankBytes / kNvlink, 1e-9);
  // Over the network: a NIC per GPU, so that pairs share nothing.
  EXPECT_NEAR(fabric.play({transfer(h, 8)}, costs).front().exposed.value,
              submit * costs.network_descriptor.value + 2 * (8e-6 + 5e-6) + kRankBytes / kNetwork, 1e-9);
}

// Two systems of one network are as two nodes of it: the second way to the same sum.
TEST(Transfer, D10BetweenTwoSystemsOfOneKindIsAsBetweenTheirNodes) {
  const Case c = eight_heads();
  const TransferFabric one(two_nodes(), 16), two(two_nodes(), 8, two_nodes(), 8);
  const TransferCosts costs;
  for (const auto& [from, to] : std::vector<std::pair<int, int>>{{4, 4}, {4, 8}, {8, 4}, {8, 1}, {1, 8}}) {
    const Handoff h = between(c, tp(from), tp(to), kTokens);
    EXPECT_NEAR(two.play({transfer(h, 0)}, costs).front().exposed.value,
                one.play({transfer(h, 8)}, costs).front().exposed.value, 1e-12)
        << from << " to " << to;
    EXPECT_NEAR(two.play({transfer(h, 0), transfer(h, 0)}, costs).back().exposed.value,
                one.play({transfer(h, 8), transfer(h, 8)}, costs).back().exposed.value, 1e-12)
        << from << " to " << to;
  }
}

// The narrower network's rate and the longer one's latency, on whichever side.
TEST(Transfer, D10BetweenTwoSystemsTheSlowerSideDecides) {
  const Case c = eight_heads();
  const Handoff h = between(c, tp(4), tp(4), kTokens);
  FabricSpec slow = two_nodes();
  slow.network.bandwidth = BytesPerSecond(25e9);
  slow.network.latency = Seconds(20e-6);
  slow.gpus_per_node = 4;
  const TransferCosts costs;
  const double expected = 4.0 * kTokens / 16 * costs.network_descriptor.value + 2 * (20e-6 + 5e-6) +
                          kRankBytes / (25e9 * 0.9 * 0.8);
  EXPECT_NEAR(TransferFabric(two_nodes(), 4, slow, 4).play({transfer(h, 0)}, costs).front().exposed.value,
              expected, 1e-9);
  EXPECT_NEAR(TransferFabric(slow, 4, two_nodes(), 4).play({transfer(h, 0)}, costs).front().exposed.value,
              expected, 1e-9);
}

TEST(Transfer, D10WhatLeadsNowhereIsRefused) {
  Case from = eight_heads(), to = from;
  from.system.fabric = to.system.fabric = two_nodes();
  from.system.name = "first";
  to.system.name = "second";
  EXPECT_EQ(no_way_between(from, to), std::nullopt);
  to.precision.kv = Dtype::fp8;
  EXPECT_EQ(no_way_between(from, to),
            "its KV cache is in bf16 on first and in fp8 on second: a cache is handed over as it is, see "
            "precision.kv");
  to.system.fabric.network.present = false;
  EXPECT_EQ(no_way_between(from, to), "second has no network: nothing leads from it to another system");
}

TEST(Transfer, D7RequestsTogetherShareTheirLinks) {
  const Case c = eight_heads();
  const Handoff h = between(c, tp(4), tp(4), kTokens);
  const TransferFabric fabric(two_nodes(), 16);
  TransferCosts free;
  free.nvlink_descriptor = Seconds(0);
  const auto both = fabric.play({transfer(h, 4), transfer(h, 4)}, free);
  for (const TransferTime& t : both) EXPECT_NEAR(t.exposed.value, 2 * 3e-6 + 2 * kRankBytes / kNvlink, 1e-9);
  // The second begins when half of the first is there: each then has half of the link, so that the first ends
  // after 1.5 times its time alone, and the second as long after it began.
  const double alone = kRankBytes / kNvlink;
  Transfer late = transfer(h, 4, alone / 2);
  const auto ended = fabric.play({transfer(h, 4), late}, free);
  EXPECT_NEAR(ended[0].exposed.value, 2 * 3e-6 + 1.5 * alone, 1e-9);
  EXPECT_NEAR(ended[1].exposed.value, 2 * 3e-6 + 1.5 * alone, 1e-9);
}

// Three requests between the same replicas: each rank submits one's descriptors after the other's, under
// either rule, and their bytes are gone before the next ones are submitted.
TEST(Transfer, D7RequestsTogetherAreSubmittedOneAfterTheOther) {
  const Case c = eight_heads();
  const Handoff h = between(c, tp(4), tp(4), kTokens);
  const TransferFabric fabric(two_nodes(), 16);
  for (const bool receiver : {true, false}) {
    TransferCosts costs;
    costs.nvlink_descriptor = Seconds(1e-4);
    costs.receiver_posts = receiver;
    long long descriptors = 0;
    for (const RankPair& p : rank_pairs(h)) descriptors = p.descriptors;
    const double each = 1e-4 * static_cast<double>(descriptors);
    ASSERT_GT(each, kRankBytes / kNvlink);
    const auto all = fabric.play({transfer(h, 4), transfer(h, 4), transfer(h, 4)}, costs);
    for (int i = 0; i < 3; ++i)
      EXPECT_NEAR(all[static_cast<std::size_t>(i)].exposed.value,
                  (i + 1) * each + 2 * 3e-6 + kRankBytes / kNvlink, 1e-9)
          << i << receiver;
  }
}

TEST(Transfer, D7ASenderOfSeveralSubmitsOneAfterTheOther) {
  const Case c = eight_heads();
  const Handoff h = between(c, tp(1), tp(4), kTokens);
  const TransferFabric fabric(two_nodes(), 16);
  TransferCosts costs;
  const double each = 4.0 * kTokens / 16 * costs.nvlink_descriptor.value;
  // Receivers read by themselves, all from one link.
  EXPECT_NEAR(fabric.play({transfer(h, 4)}, costs).front().exposed.value,
              each + 2 * 3e-6 + 4 * kRankBytes / kNvlink, 1e-9);
  costs.receiver_posts = false;
  EXPECT_GE(fabric.play({transfer(h, 4)}, costs).front().exposed.value,
            4 * each + 2 * 3e-6 + kRankBytes / kNvlink - 1e-9);
}

TEST(Transfer, D7OwnMessagesTakeTheirPartOfTheLinks) {
  const Case c = eight_heads();
  const Handoff h = between(c, tp(4), tp(4), kTokens);
  const TransferFabric fabric(two_nodes(), 16);
  TransferCosts free;
  free.nvlink_descriptor = Seconds(0);
  const double alone = kRankBytes / kNvlink;
  // Messages without a pause, of as many bytes as ranks receive: half of every link that leads to a receiver.
  const OwnMessages busy{4, {2, 1}, Bytes(kRankBytes / 10), Seconds(0)};
  const OwnMessages others{6, {2, 1}, Bytes(kRankBytes / 10), Seconds(0)};
  const double slow = fabric.play({transfer(h, 4)}, free, {busy, others}).front().exposed.value;
  EXPECT_NEAR(slow, 2 * 3e-6 + 2 * alone, 0.02 * alone);
  // A step that sends seldom hardly matters.
  const OwnMessages seldom{4, {4, 1}, Bytes(kRankBytes / 1000), Seconds(alone / 10)};
  const double little = fabric.play({transfer(h, 4)}, free, {seldom}).front().exposed.value;
  EXPECT_GE(little, 2 * 3e-6 + alone - 1e-12);
  EXPECT_LT(little, 2 * 3e-6 + 1.05 * alone);
}

TEST(Transfer, D8LayersGoBehindThePrefillAndTheWaitCountsOnce) {
  const Case c = eight_heads();
  const Handoff h = between(c, tp(4), tp(4), kTokens);
  const TransferFabric fabric(two_nodes(), 16);
  TransferCosts layers;
  layers.by_layer = true;
  const TransferCosts whole;
  const double submit = 4.0 * kTokens / 16 * whole.nvlink_descriptor.value, alone = kRankBytes / kNvlink;
  // A long prefill hides all but the second layer.
  const TransferTime hidden = fabric.play({transfer(h, 4, 10)}, layers).front();
  EXPECT_NEAR(hidden.exposed.value, submit / 2 + 2 * 3e-6 + alone / 2, 1e-9);
  EXPECT_NEAR(hidden.end.value, 10 + hidden.exposed.value, 1e-12);
  EXPECT_NEAR(fabric.play({transfer(h, 4, 10)}, whole).front().exposed.value, submit + 2 * 3e-6 + alone,
              1e-9);
  // Room 3 s after the prefill: nothing goes before, and the wait is no part of the transfer.
  for (const TransferCosts& costs : {whole, layers}) {
    const TransferTime late = fabric.play({transfer(h, 4, 10, 13)}, costs).front();
    EXPECT_GE(late.exposed.value, submit / 2 + 2 * 3e-6 + alone / 2 - 1e-9);
    EXPECT_LE(late.exposed.value, submit + 2 * 2 * 3e-6 + alone + 1e-9);
    EXPECT_NEAR(late.end.value, 13 + late.exposed.value, 1e-12);
  }
}

TEST(Transfer, D9ReplicasLieSideBySideWhereTheyCan) {
  const FabricSpec spec = two_nodes();
  EXPECT_EQ(gpu_beside(spec, 4, 4), 4);
  EXPECT_EQ(gpu_beside(spec, 4, 8), 8);
  EXPECT_EQ(gpu_beside(spec, 8, 8), 8);
  EXPECT_EQ(gpu_beside(spec, 12, 8), 8);  // there are no 20 GPUs
}

}  // namespace
}  // namespace shardline
