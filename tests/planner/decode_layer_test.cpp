// What a decode layer sends and runs beside its matrices: exchanges that carry
// the routing's skew, norms that no all-reduce takes along, activations
// gathered behind a pipeline hand-off, ranks of a dense FFN.
#include "planner/layers/share.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "planner/search/evaluate.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

// A number in NVFP4, with its share of a scale.
constexpr double kFp4 = 0.5 + 1.0 / 16;

Case r1() { return decode_case("deepseek-r1", "gb200-nvl72", 100'000); }

double bytes_of(const Schedule& s, std::string_view name) {
  const std::vector<Op> found = ops_named(s, name);
  EXPECT_EQ(found.size(), 1u) << name;
  return found.empty() ? 0 : message_bytes(found.front()).value;
}

// 64 ranks of 16 tokens of 7168 numbers, in FP4 there and in BF16 back.
TEST(DecodeLayer, DispatchAndCombineCarryTheSkew) {
  const char* plan = "dp_ep:dp=64,ep=64,batch=16";
  Case c = r1();
  const Schedule even = lowered(c, plan);
  EXPECT_NEAR(bytes_of(even, "dispatch"), 16 * 7168 * 7.675750 * kFp4, 1);
  EXPECT_NEAR(bytes_of(even, "combine"), 16 * 7168 * 7.675750 * 2, 4);
  double before = bytes_of(even, "dispatch"), time = Evaluator(c).simulate(parse_plan(plan)).value;
  for (const double skew : {0.5, 1.0}) {
    set_routing(c, {RoutingKind::zipf, skew, ExpertLoad::mean});
    const Schedule skewed = lowered(c, plan);
    // Rows that the busiest rank receives of all 1024 tokens.
    const double rows = c.routing.back()->tokens_received(64, 1024);
    EXPECT_NEAR(bytes_of(skewed, "dispatch") / (rows * 7168 * kFp4), 1, 1e-12);
    EXPECT_NEAR(bytes_of(skewed, "combine") / (rows * 7168 * 2), 1, 1e-12);
    EXPECT_GT(bytes_of(skewed, "dispatch"), 1.2 * before);
    const double slower = Evaluator(c).simulate(parse_plan(plan)).value;
    EXPECT_GT(slower, time);
    before = bytes_of(skewed, "dispatch");
    time = slower;
  }
}

TEST(DecodeLayer, APrefillsDispatchCarriesTheSkewToo) {
  Case c = r1();
  c.batch = prefill_batch({{0, 8000}});
  const char* plan = "ring_pass_kv:cp=4,tpa=2,ep=8,batch=1";
  const double even = bytes_of(lowered(c, plan), "dispatch");
  set_routing(c, {RoutingKind::zipf, 1, ExpertLoad::mean});
  const double rows = c.routing.back()->tokens_received(8, 8000);
  EXPECT_NEAR(bytes_of(lowered(c, plan), "dispatch") / (rows * 7168 * kFp4), 1, 1e-12);
  EXPECT_NEAR(even / (8000 / 8.0 * 7168 * ExpertRouting(256, 8, {}).groups_hit(8) * kFp4), 1, 1e-12);
}

// Norms and residual additions ride on all-reduces; those of a layer without
// one are kernels.
TEST(DecodeLayer, HalfLayersWithoutAnAllReducePayTheirNorm) {
  struct Row {
    const char* plan;
    std::size_t kernels;  // of attention, dense and expert blocks together
  };
  Case c = r1();
  for (const Row& row :
       {Row{"dp_ep:dp=8,ep=8,batch=4", 3}, Row{"dp_ep:dp=4,tpa=2,ep=8,batch=4", 1},
        Row{"dp_ep:dp=4,tpa=2,ep=8,dense_tp=8,batch=4", 2},
        Row{"dp_ep:dp=4,tpa=2,ep=8,dense_tp=1,batch=4", 2}, Row{"tensor:tpa=8,tpf=8,batch=4", 0},
        Row{"tensor:batch=4", 3}, Row{"helix:kvp=8,tpf=8,batch=4,value_up=after", 0}}) {
    const std::vector<Op> norms = ops_named(lowered(c, row.plan), "residual and norm");
    EXPECT_EQ(norms.size(), row.kernels) << row.plan;
    for (const Op& op : norms) {
      EXPECT_EQ(shape<ElementwiseShape>(op).bytes.value, 4 * 4 * 7168 * 2) << row.plan;
      EXPECT_EQ(op.launches, 1) << row.plan;
    }
  }
  c.kernels.separate_elementwise = true;  // all of them are kernels then
  EXPECT_TRUE(ops_named(lowered(c, "dp_ep:dp=8,ep=8,batch=4"), "residual and norm").empty());
}

// NVIDIA/TensorRT-LLM merges what its Helix exchanged by a kernel: it reads kvp partial outputs of its heads,
// each with 8 bytes of statistics, and writes one.
TEST(DecodeLayer, ShardsMayBeMergedByAKernelOfTheirOwn) {
  Case c = r1();
  struct Row {
    const char* plan;
    double width;
  };
  for (const Row& row : {Row{"helix:kvp=8,tpf=8,batch=4,value_up=after", 512},
                         Row{"helix:kvp=8,tpf=8,batch=4,value_up=before", 128}}) {
    SCOPED_TRACE(row.plan);
    c.kernels.separate_shard_merge = false;
    for (const Op& op : ops_named(lowered(c, row.plan), "merge shards")) {
      EXPECT_EQ(op.launches, 0);
      EXPECT_EQ(shape<ElementwiseShape>(op).bytes.value, 0);
    }
    c.kernels.separate_shard_merge = true;
    const std::vector<Op> merges = ops_named(lowered(c, row.plan), "merge shards");
    ASSERT_FALSE(merges.empty());
    for (const Op& op : merges) {
      EXPECT_EQ(op.launches, 1);
      EXPECT_DOUBLE_EQ(shape<ElementwiseShape>(op).bytes.value,
                       4 * 16 * (8 * (row.width * 2 + 8) + row.width * 2));
    }
  }
}

// arXiv 2104.04473, section 4.1: each rank sends a slice, and the ranks of the
// next stage gather.
TEST(DecodeLayer, AStageGathersTheSlicesThatItsRanksWereHanded) {
  const Case c = decode_case("llama-3.1-405b", "gb200-nvl72", 100'000);
  const double whole = 6 * 16384.0 * 2;
  for (const char* plan : {"pipeline:pp=4,tpa=8,tpf=8,batch=6", "helix:pp=4,kvp=2,tpa=4,tpf=8,batch=6"}) {
    SCOPED_TRACE(plan);
    const Schedule s = lowered(c, plan);
    EXPECT_DOUBLE_EQ(bytes_of(s, "hand-off") * 8, whole);
    EXPECT_DOUBLE_EQ(bytes_of(s, "gather hand-off") * 8, whole);
    EXPECT_EQ(ops_named(s, "gather hand-off").front().group.size, 8);
    // Once in every stage but the first.
    const std::vector<double> runs = executions(s);
    for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
      if (std::string_view(s.blocks[b].name) == "receive") {
        EXPECT_EQ(runs[b], 3);
      }
    }
  }
  EXPECT_TRUE(ops_named(lowered(c, "pipeline:pp=8,batch=6"), "gather hand-off").empty());
}

TEST(DecodeLayer, APrefillStageGathersWithinItsTpGroup) {
  Case c = decode_case("llama-3.1-405b", "gb200-nvl72", 0);
  c.batch = prefill_batch({{0, 8000}});
  const Schedule s = lowered(c, "ring_pass_kv:pp=2,cp=2,tpa=4,tpf=4,batch=1");
  EXPECT_DOUBLE_EQ(bytes_of(s, "gather hand-off") * 4, 4000 * 16384.0 * 2);
  EXPECT_DOUBLE_EQ(bytes_of(s, "hand-off") * 4, 4000 * 16384.0 * 2);
  EXPECT_EQ(ops_named(s, "gather hand-off").front().group, (Group{4, 1}));
}

// R1's dense FFN: 7168 x 18432. By default its ranks are those of an attention
// group.
TEST(DecodeLayer, ADenseFfnIsSharedByAGroupOrAllOrNone) {
  const Case c = r1();
  struct Row {
    const char* plan;
    Count rows, width;
  };
  for (const Row& row : {Row{"dp_ep:dp=16,tpa=4,ep=64,batch=8", 8, 18432 / 4},
                         Row{"dp_ep:dp=16,tpa=4,ep=64,dense_tp=4,batch=8", 8, 18432 / 4},
                         Row{"dp_ep:dp=16,tpa=4,ep=64,dense_tp=64,batch=8", 128, 18432 / 64},
                         Row{"dp_ep:dp=16,tpa=4,ep=64,dense_tp=1,batch=8", 2, 18432},
                         Row{"dp_ep:dp=16,tpa=4,ep=64,dense_tp=1,batch=9", 3, 18432},
                         Row{"kv_shard:kvp=8,batch=8", 8, 18432}}) {
    SCOPED_TRACE(row.plan);
    const Schedule s = lowered(c, row.plan);
    const Op op = ops_named(s, "ffn up").front();
    const auto& up = shape<GemmShape>(op);
    EXPECT_EQ(up.rows, row.rows);
    EXPECT_EQ(up.n, 2 * row.width);
    EXPECT_EQ(ffn_weights(c, dense_ffn(c.model), parse_plan(row.plan)).dense,
              3.0 * 7168 * static_cast<double>(row.width));
  }
  Plan p = parse_plan("dp_ep:dp=16,tpa=4,ep=64,dense_tp=2,batch=8");
  EXPECT_EQ(check_plan(c, p).value_or(""),
            "dense_tp is 2; it must be 1 or 4 (an attention group) or 64 (all of the stage)");
  p = parse_plan("tensor:tpa=8,tpf=8,dense_tp=1,batch=8");
  EXPECT_EQ(check_plan(c, p).value_or(""), "tensor does not use dense_tp: its degrees are tpa, ep, tpf");
}

TEST(DecodeLayer, EveryNumberOfDenseRanksIsTried) {
  const Case c = r1();
  for (const char* name : {"dp_ep", "helix"}) {
    std::vector<Plan> plans;
    strategy(std::string(name)).enumerate(c, 64, SearchSpace{}, plans);
    std::map<int, int> tried;
    for (const Plan& p : plans) {
      if (p.dp == 8) ++tried[dense_ffn_ranks(p)];
    }
    EXPECT_EQ(tried[1], tried[8]);
    EXPECT_EQ(tried[64], tried[8]);
    EXPECT_GT(tried[8], 0);
    EXPECT_EQ(tried.size(), 3u);
  }
}

// Shared experts join the routed ones' kernels only where both are of one type.
TEST(DecodeLayer, SharedExpertsOfAnotherTypeAreKernelsOfTheirOwn) {
  Case c = r1();
  const char* plan = "tensor:tpa=8,ep=8,tpf=1,batch=8";
  const auto launches = [&](const char* name) { return ops_named(lowered(c, plan), name).front().launches; };
  const auto quantizations = [&] { return ops_named(lowered(c, plan), "quantize").size(); };
  EXPECT_EQ(launches("shared experts up") + launches("shared experts down"), 0);
  const std::size_t before = quantizations();
  c.precision.shared_weights = c.precision.shared_math = Dtype::fp8;
  EXPECT_EQ(launches("shared experts up") + launches("shared experts down"), 2);
  EXPECT_EQ(quantizations(), before + (c.kernels.separate_elementwise ? 1 : 0));
}

}  // namespace
}  // namespace shardline
