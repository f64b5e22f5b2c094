// The cost of single ops by a system's parameters [H1]-[H3], [H18], and of blocks of them [H16], [H17], by
// closed forms of the device's figures.
#include "hardware/cost/kernel_cost.hpp"

#include <gtest/gtest.h>

#include "hardware/timing/lowering.hpp"
#include "sim/base/cancel.hpp"
#include "tests/hardware/ops.hpp"

namespace shardline {
namespace {

constexpr double kFlops = 10e15 * 0.70, kMemory = 8e12 * 0.85, kExp = 5e12, kKernel = 2.5e-6;  // gb200-nvl72
constexpr double kPort = 900e9 * 0.80, kHop = 4e-6;

const System& gb200() {
  static const System s = testing::by_parameters(testing::catalog_system("gb200-nvl72"));
  return s;
}
const System& h100() {
  static const System s = testing::by_parameters(testing::catalog_system("h100-hgx"));
  return s;
}

using testing::only_op;

Op gemm(Count rows, Count k, Count n, Dtype weights, Dtype math, double launches = 1) {
  return testing::gemm_op({rows, k, n}, weights, math, launches);
}

Seconds alone(CostModel& m, const Op& op) { return m.alone(m.price(op)); }

TEST(KernelCost, H1H2GemmIsARoofline) {
  CostModel m(gb200());
  for (const Count rows : {1, 64, 512, 4096, 65536}) {
    const double bytes = 8192.0 * 28672 * 0.5625, ops = 2.0 * static_cast<double>(rows) * 8192 * 28672;
    const double expected = kKernel + std::max(bytes / kMemory, ops / kFlops);
    EXPECT_NEAR(alone(m, gemm(rows, 8192, 28672, Dtype::fp4, Dtype::fp4)).value / expected, 1.0, 1e-12)
        << rows;
  }
  // Both sides of the ridge are met: 0.5625 bytes and 2 rows operations per weight.
  const double ridge = kFlops / kMemory * 0.5625 / 2;
  EXPECT_GT(ridge, 64);
  EXPECT_LT(ridge, 4096);
}

TEST(KernelCost, H2EveryExpertThatIsVisitedIsRead) {
  CostModel m(gb200());
  const OpCost c =
      m.price(testing::experts_op(false, {8, 64, 2048, 7168, true}, 64, 5, Dtype::fp4, Dtype::fp4));
  EXPECT_DOUBLE_EQ(c.memory.value, 5 * 7168.0 * 2048 * 0.5625);
  EXPECT_NEAR(c.tensor.value, 2 * 64 * 7168.0 * 2048, 1);  // rows are all pairs, whatever expert they go to
}

TEST(KernelCost, H2ArithmeticRunsAtItsOwnRateAndBytesAtTheirWidth) {
  CostModel m(gb200());
  const Count rows = 100'000;  // compute-bound
  const double ops = 2.0 * rows * 4096 * 4096;
  EXPECT_NEAR(
      alone(m, gemm(rows, 4096, 4096, Dtype::fp4, Dtype::bf16)).value / (kKernel + ops / (2.5e15 * 0.70)),
      1.0, 1e-12);
  EXPECT_NEAR(
      alone(m, gemm(rows, 4096, 4096, Dtype::fp8, Dtype::fp8)).value / (kKernel + ops / (5e15 * 0.70)), 1.0,
      1e-12);
  EXPECT_NEAR(
      alone(m, gemm(1, 4096, 4096, Dtype::bf16, Dtype::bf16)).value / (kKernel + 4096.0 * 4096 * 2 / kMemory),
      1.0, 1e-12);
}

TEST(KernelCost, H2AttentionReadsItsCacheMultipliesAndExponentiates) {
  CostModel m(gb200());
  struct Row {
    AttendDecodeShape shape;
    double elements;  // of a row of the cache
    const char* bound;
  };
  constexpr Count kRows = 500'000;
  constexpr CacheRows kHeads = CacheRows::heads, kLatent = CacheRows::latent;
  const Row rows[] = {
      // Grouped: few queries per cached head.
      {{kHeads, 16, 1, 128, 128, kRows, kRows, 4}, 2 * 128, "memory"},
      // Absorbed MLA, just below the ridge, and twice its heads.
      {{kLatent, 128, 1, 576, 512, kRows, kRows, 4}, 576, "memory"},
      {{kLatent, 256, 1, 576, 512, kRows, kRows, 4}, 576, "tensor"},
      // Many heads of no width.
      {{kLatent, 4096, 1, 1, 1, kRows, kRows, 4}, 1, "exponentials"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.bound);
    const AttendDecodeShape& a = row.shape;
    const Op op = only_op([&](ScheduleBuilder& b) { b.attend("attend", Dtype::fp4, Dtype::fp4, a); });
    const double bytes = kRows * row.elements * 0.5625 / kMemory;
    const double ops = static_cast<double>(2 * kRows * a.q_heads * (a.qk_dim + a.v_dim)) / kFlops;
    const double exponentials = static_cast<double>(kRows * a.q_heads) / kExp;
    const double most = std::max({bytes, ops, exponentials});
    EXPECT_EQ(most == bytes ? "memory" : most == ops ? "tensor" : "exponentials", std::string(row.bound));
    EXPECT_NEAR(alone(m, op).value / (kKernel + most), 1.0, 1e-12);
  }
}

TEST(KernelCost, H18PrefillAttentionRunsInWholeWaves) {
  System s = gb200();
  s.device.sms = 100;
  s.device.attention_efficiency = 0.5;
  s.device.tile_efficiency = 0.6;
  const double peak = s.device.peak[static_cast<std::size_t>(Dtype::bf16)].value;
  CostModel m(s);
  const auto time = [&](Count rows, Count tiles) {
    const AttendPrefillShape a{AttentionFamily::gqa, CacheRows::heads, 10,   1,    128, 128,
                               rows * 50'000,        50'000,           rows, tiles};
    const Op op = only_op([&](ScheduleBuilder& b) { b.attend("attend", Dtype::bf16, Dtype::bf16, a); });
    return alone(m, op).value - kKernel;
  };
  const auto ops = [](double rows) { return 4 * 10 * 128.0 * rows * 50'000; };
  // 10 heads x 10 tiles fill one wave of 100: the tile's rate would be 0.6, long kernels sustain 0.5.
  EXPECT_NEAR(time(1280, 10) / (ops(1280) / (0.5 * peak)), 1, 1e-12);
  // One row more begins a second wave; 60 tiles take as long as 100, and half-filled tiles as full ones.
  EXPECT_NEAR(time(1281, 11) / (2 * ops(1280) / (0.6 * peak)), 1, 1e-12);
  EXPECT_NEAR(time(768, 6) / (ops(1280) / (0.6 * peak)), 1, 1e-12);
  EXPECT_NEAR(time(640, 10) / (ops(1280) / (0.6 * peak)), 1, 1e-12);
}

TEST(KernelCost, HandingOutADocumentTakesItsTimeOnce) {
  System s = gb200();
  s.calibration = {};
  s.runtime.distribute = Seconds(0.05);
  CostModel m(s);
  const auto time = [&](Drive drive) {
    return alone(m, only_op([&](ScheduleBuilder& b) {
                   b.drive(drive);
                   b.elementwise("op", Part::ffn, OpKind::elementwise, {1, 1, Bytes(1e9)}, 1);
                 }))
        .value;
  };
  const double once = 1e9 / kMemory;
  EXPECT_NEAR(time(Drive::eager), kKernel + once, 1e-15);
  EXPECT_NEAR(time(Drive::distribute), kKernel + once + 0.05, 1e-15);
}

TEST(KernelCost, H1LaunchesCount) {
  CostModel m(gb200());
  for (const double launches : {0.25, 1.0, 3.0}) {
    EXPECT_NEAR(m.price(gemm(1, 64, 64, Dtype::fp4, Dtype::fp4, launches)).latency.value, launches * kKernel,
                1e-18);
  }
  // Elementwise kernels are all launch.
  const Op norm = only_op([](ScheduleBuilder& b) {
    b.elementwise("norm", Part::qkv, OpKind::elementwise, {64, 16384, Bytes(0)}, 2);
  });
  EXPECT_NEAR(alone(m, norm).value, 2 * kKernel, 1e-18);
}

TEST(KernelCost, H3ExchangesAddTheirCollective) {
  CostModel m(gb200());
  const Op op = only_op([](ScheduleBuilder& b) {
    b.exchange("sum", Part::ffn_sum, OpKind::all_to_all, {8, 1}, Bytes(1e6));
  });
  const OpCost c = m.price(op);
  EXPECT_EQ(c.port_resource, RankResource::nvlink);
  EXPECT_EQ(c.algorithm, Algorithm::direct);
  EXPECT_NEAR(m.alone(c).value / (kKernel + kHop + 1e6 / kPort), 1.0, 1e-12);
}

TEST(KernelCost, H3AcrossNodesTheNetworkPortIsBusyForTheDrainTime) {
  CostModel m(h100());
  for (const Group g : {Group{2, 8}, Group{16, 1}, Group{32, 1}}) {
    for (const OpKind kind :
         {OpKind::all_reduce, OpKind::all_gather, OpKind::all_to_all, OpKind::send_recv}) {
      const Op op =
          only_op([&](ScheduleBuilder& b) { b.exchange("x", Part::exchange, kind, g, Bytes(3e6)); });
      const OpCost c = m.price(op);
      EXPECT_EQ(c.port_resource, RankResource::network);
      const CollectiveTime t = collective(kind, m.group(g), Bytes(3e6));
      EXPECT_NEAR(m.alone(c).value / (kKernel + t.total().value), 1.0, 1e-12) << to_string(kind);
      EXPECT_EQ(c.algorithm, t.algorithm);
    }
  }
}

TEST(KernelCost, TimeIsThatOfThePricedOp) {
  CostModel m(gb200());
  Schedule s;
  ScheduleBuilder b(s);
  b.begin_block("all");
  b.gemm("gemm", Part::ffn, Dtype::fp4, Dtype::fp4, GemmShape{8, 4096, 4096});
  b.gemm("batched", Part::qkv, Dtype::fp4, Dtype::fp4,
         BatchedGemmShape{LatentProduct::absorb_query, 8, 128, 512, 16, 1});
  b.gemm("experts", Part::ffn, Dtype::fp4, Dtype::fp4,
         GroupedGemmShape{64, 8, 4096, 2048, 8, 64, 4096, 1024, true});
  b.attend("decode", Dtype::fp8, Dtype::fp8,
           AttendDecodeShape{CacheRows::heads, 16, 1, 128, 128, 100'000, 100'000, 2});
  b.attend("prefill", Dtype::fp8, Dtype::fp8, testing::whole_sequences(1, 2000, 16, 1, 128, 128));
  for (const OpKind kind : {OpKind::elementwise, OpKind::merge, OpKind::compress}) {
    b.elementwise("pointwise", Part::qkv, kind, {8, 4096, Bytes(0)}, 1.5);
  }
  b.exchange("sum", Part::ffn_sum, OpKind::all_reduce, {8, 1}, Bytes(1e5));
  b.route("dispatch", OpKind::dispatch, {8, 1}, {Bytes(1e5), 8, 4096, 8, 64, Dtype::fp8}, Dtype::fp8);
  b.run({b.end_block()});
  b.end_stage();
  for (const Op& op : s.ops) EXPECT_EQ(m.time(op), alone(m, op)) << op.name;
}

// A product of few rows waits for its weights, one of many for the arithmetic; messages wait for the port of
// their way; what demands nothing is overhead.
TEST(KernelCost, LimitIsTheLongestDemand) {
  CostModel m(h100());
  const auto limit = [&](const Op& op) { return m.limit(m.price(op)); };
  const auto sum = [&](Group group, double bytes) {
    return only_op([&](ScheduleBuilder& b) {
      b.exchange("sum", Part::ffn_sum, OpKind::all_reduce, group, Bytes(bytes));
    });
  };
  EXPECT_EQ(limit(gemm(1, 4096, 4096, Dtype::bf16, Dtype::bf16)), Limit::memory);
  EXPECT_EQ(limit(gemm(65536, 4096, 4096, Dtype::bf16, Dtype::bf16)), Limit::tensor);
  EXPECT_EQ(limit(sum({8, 1}, 1e6)), Limit::nvlink);
  EXPECT_EQ(limit(sum({2, 8}, 1e6)), Limit::network);
  EXPECT_EQ(m.limit(OpCost{}), Limit::overhead);
}

TEST(KernelCost, AlgorithmRuleIsObeyed) {
  CostModel m(gb200(), AllReduceRule::ring);
  const Op op = only_op([](ScheduleBuilder& b) {
    b.exchange("sum", Part::ffn_sum, OpKind::all_reduce, {8, 1}, Bytes(1e3));
  });
  EXPECT_EQ(m.price(op).algorithm, Algorithm::ring);
  EXPECT_NEAR(alone(m, op).value / (kKernel + 14 * kHop + 1e3 * 2 * 7 / 8 / kPort), 1.0, 1e-12);
}

TEST(KernelCost, ArithmeticWithoutAUnitIsRefused) {
  CostModel m(h100());
  EXPECT_THROW(m.price(gemm(1, 64, 64, Dtype::fp4, Dtype::fp4)), std::logic_error);
  EXPECT_NO_THROW(m.price(gemm(1, 64, 64, Dtype::fp4, Dtype::fp8)));  // FP4 weights, FP8 arithmetic
}

TEST(KernelCost, ACachedGroupIsTheGroup) {
  CostModel m(h100());
  for (int round = 0; round < 2; ++round) {
    for (const Group g : {Group{2, 1}, Group{8, 1}, Group{2, 8}, Group{1 << 6, 1}}) {
      const GroupFabric fresh = group_fabric(Fabric(h100().fabric), g);
      EXPECT_EQ(m.group(g).size, g.size);
      EXPECT_EQ(m.group(g).whole.pairwise, fresh.whole.pairwise);
      EXPECT_EQ(m.group(g).whole.latency, fresh.whole.latency);
    }
  }
}

/// A layer: gemm, exchange, gemm; `repeat` layers on ranks of one group of eight.
Schedule layers(int repeat, int copies) {
  Schedule s;
  ScheduleBuilder b(s);
  b.begin_block("layer");
  b.gemm("up", Part::ffn, Dtype::fp4, Dtype::fp4, GemmShape{4, 8192, 3584});
  b.gemm("down", Part::ffn, Dtype::fp4, Dtype::fp4, GemmShape{4, 3584, 8192});
  b.exchange("sum", Part::ffn_sum, OpKind::all_reduce, {8, 1}, Bytes(4 * 8192 * 2));
  b.run({b.end_block()}, repeat);
  b.end_stage(copies);
  s.ranks_per_stage = 8;
  return s;
}

TEST(KernelCost, H16H17AChainOfOpsTakesTheSumOfTheirTimes) {
  CostModel m(gb200());
  PassScratch scratch(m);
  const Schedule s = layers(10, 1);
  double sum = 0;
  for (const Op& op : s.ops) sum += 10 * alone(m, op).value;
  EXPECT_NEAR(simulate_pass(s, m, scratch).latency.value / sum, 1.0, 1e-12);
  EXPECT_NEAR(bound_pass(s, m, scratch).latency.value / sum, 1.0, 1e-12);
  const PassTime four = simulate_pass(layers(10, 4), m, scratch);
  EXPECT_NEAR(four.latency.value / (4 * sum), 1.0, 1e-12);
  EXPECT_NEAR(four.busiest.value / sum, 1.0, 1e-12);
}

TEST(KernelCost, H16FoldedAndUnfoldedAgree) {
  CostModel m(gb200());
  PassScratch scratch(m);
  const Schedule s = layers(3, 2);
  TaskGraph graph;
  lower_unfolded(s, m, graph);
  Timeline timeline;
  Engine engine;
  engine.run(graph, m.machine(16), timeline);
  EXPECT_NEAR(timeline.makespan() / simulate_pass(s, m, scratch).latency, 1.0, 1e-12);
}

TEST(KernelCost, H17OpsThatShareAResourceAreSlowerThanTheBound) {
  CostModel m(gb200());
  PassScratch scratch(m);
  Schedule s;
  ScheduleBuilder b(s);
  b.begin_block("two");
  b.exchange("first", Part::exchange, OpKind::all_to_all, {8, 1}, Bytes(64e6));
  b.after({});
  b.exchange("second", Part::exchange, OpKind::all_to_all, {8, 1}, Bytes(64e6));
  b.run({b.end_block()});
  b.end_stage();
  const double one = alone(m, s.ops[0]).value;
  EXPECT_NEAR(bound_pass(s, m, scratch).latency.value / one, 1.0, 1e-12);
  EXPECT_NEAR(simulate_pass(s, m, scratch).latency.value / (2 * one), 1.0, 1e-12);  // the lane runs in order
}

// Prompts of millions of chunks are as many ops, whose bound lasts for seconds.
TEST(KernelCost, H17BoundsOfManyOpsCanBeStopped) {
  CostModel m(gb200());
  PassScratch scratch(m);
  Schedule s;
  ScheduleBuilder b(s);
  b.begin_block("many");
  for (int i = 0; i < 20'000; ++i)
    b.exchange("next", Part::exchange, OpKind::all_to_all, {8, 1}, Bytes(64e6));
  b.run({b.end_block()});
  b.end_stage();
  int asked = 0;
  const CancelQuestion third = [&] { return ++asked == 3; };
  const CancelScope scope(&third);
  EXPECT_THROW(bound_pass(s, m, scratch), Cancelled);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace shardline
