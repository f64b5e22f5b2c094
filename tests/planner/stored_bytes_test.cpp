// What a type takes is said once: memory, the traffic of ops, and prices count the same bytes. The expected
// values are stated here and not taken from bytes_per_element().
#include <gmock/gmock.h>

#include "models/ir/dtype.hpp"
#include "models/model/catalog.hpp"
#include "planner/search/memory.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

struct Stored {
  Dtype type, math;
  double bytes;
};
constexpr Stored kWeights[] = {
    {Dtype::fp4, Dtype::fp4, 0.5625},       {Dtype::fp8, Dtype::fp8, 1},
    {Dtype::fp8_dynamic, Dtype::fp8, 1},    {Dtype::fp8_block, Dtype::fp8, 1 + 4.0 / 16384},
    {Dtype::mxfp4, Dtype::bf16, 17.0 / 32}, {Dtype::mxfp4, Dtype::fp8, 17.0 / 32},
    {Dtype::int4, Dtype::bf16, 33.0 / 64},  {Dtype::int4_group32, Dtype::bf16, 9.0 / 16},
    {Dtype::bf16, Dtype::bf16, 2}};

// Elements of all matrices that one GPU multiplies with, from the model alone.
double matrix_elements(const Model& m) {
  const Attention& a = m.attentions.front();
  const double h = m.hidden, q = double(a.q_heads) * a.head_dim, kv = 2.0 * a.kv_heads * a.head_dim;
  return m.layers() * (h * (q + kv) + q * h + 3 * h * m.ffns.front().inner) + h * m.vocab;
}

Case one_gpu(const Stored& stored) {
  Case c = decode_case("llama-3.1-8b", "gb200-nvl72", 10'000);
  c.precision.weights = c.precision.head = stored.type;
  c.precision.math = stored.math;
  return c;
}

// Sums of a decode step's ops: weights by geometry, then HBM traffic as it is priced.
struct Traffic {
  Bytes weights, kv, priced;
};
Traffic traffic_of(const Case& c, const Plan& plan) {
  CostModel cost(c.system);
  Schedule s;
  lower(s, c, plan);
  const std::vector<double> runs = executions(s);
  Traffic t;
  for (std::size_t b = 0; b < s.blocks.size(); ++b) {
    for (OpIndex i = s.blocks[b].first; i < s.blocks[b].last; ++i) {
      t.weights += weight_bytes(s.ops[i]) * runs[b];
      t.kv += kv_bytes(s.ops[i]) * runs[b];
      if (is_gemm(s.ops[i].kind) || is_attention(s.ops[i].kind))
        t.priced += cost.price(s.ops[i]).memory * runs[b];
    }
  }
  return t;
}

TEST(StoredBytes, WeightsInMemoryInTrafficAndInPricesAreTheSame) {
  for (const Stored& stored : kWeights) {
    Case c = one_gpu(stored);
    c.system.calibration = {};
    const Plan plan;
    const double expected = matrix_elements(c.model) * stored.bytes;
    const double embedding = double(c.model.hidden) * c.model.vocab * stored.bytes;
    const Traffic t = traffic_of(c, plan);
    EXPECT_DOUBLE_EQ(t.weights.value, expected) << to_string(stored.type);
    EXPECT_DOUBLE_EQ(memory_use(c, plan).weights.value, expected + embedding) << to_string(stored.type);
    EXPECT_DOUBLE_EQ((t.priced - t.kv).value, expected) << to_string(stored.type);
  }
}

TEST(StoredBytes, TheCacheInMemoryInTrafficAndInPricesIsTheSame) {
  for (const auto& [type, bytes] : {std::pair(Dtype::fp4, 0.5625), {Dtype::fp8, 1.0}, {Dtype::bf16, 2.0}}) {
    for (const char* model : {"llama-3.1-8b", "deepseek-r1"}) {
      Case c = decode_case(model, "gb200-nvl72", 10'000);
      c.system.calibration = {};
      c.precision.kv = type;
      Plan plan;
      plan.batch = 3;
      const double expected =
          3 * 10'000.0 * kv_elements_per_layer(c.model.attentions.front()) * c.model.layers() * bytes;
      const Traffic t = traffic_of(c, plan);
      EXPECT_DOUBLE_EQ(t.kv.value, expected) << model << ' ' << to_string(type);
      EXPECT_DOUBLE_EQ(memory_use(c, plan).kv.value, expected) << model << ' ' << to_string(type);
      EXPECT_DOUBLE_EQ((t.priced - t.weights).value, expected) << model << ' ' << to_string(type);
    }
  }
}

// A measured price is never below the peak of HBM for the bytes that are stored, nor far above it for a long
// read: its form counts the same bytes.
TEST(StoredBytes, MeasuredPricesCountThemToo) {
  const Case c = one_gpu(kWeights[0]);
  CostModel cost(c.system);
  for (const Stored& stored : kWeights) {
    Schedule s;
    ScheduleBuilder b(s);
    b.begin_block("block");
    b.gemm("gemm", Part::ffn, stored.type, stored.math, GemmShape{1, 65536, 65536});
    b.end_block();
    const OpCost price = cost.price(s.ops[0]);
    ASSERT_NE(price.fit, nullptr) << to_string(stored.type);
    const Seconds peak = Bytes(65536.0 * 65536 * stored.bytes) / c.system.device.memory_bandwidth;
    EXPECT_GE(cost.alone(price), peak) << to_string(stored.type);
    EXPECT_LE(cost.alone(price), peak * 3) << to_string(stored.type);
  }
}

TEST(StoredBytes, WeightsInBlocksOfFp8HaveKernelsOfTheirOwn) {
  const Case c = one_gpu(kWeights[0]);
  CostModel cost(c.system);
  const auto dtype_of = [&](Dtype stored, bool experts) {
    Schedule s;
    ScheduleBuilder b(s);
    b.begin_block("block");
    if (experts)
      b.gemm("gemm", Part::ffn, stored, Dtype::fp8,
             GroupedGemmShape{256, 32, 7168, 4096, 32, 64, 7168, 2048, true});
    else
      b.gemm("gemm", Part::ffn, stored, Dtype::fp8, GemmShape{256, 7168, 4096});
    b.end_block();
    const OpCost price = cost.price(s.ops[0]);
    const bool borrowed = experts && stored == Dtype::fp8_block;  // TensorRT-LLM's, by SGLang's rows
    EXPECT_EQ(price.basis, borrowed ? Basis::fitted : Basis::measured) << to_string(stored) << experts;
    return price.fit->words[experts ? 1 : 0];
  };
  for (const bool experts : {false, true}) {
    EXPECT_EQ(dtype_of(experts ? Dtype::fp8 : Dtype::fp8_dynamic, experts), "fp8");
    EXPECT_EQ(dtype_of(Dtype::fp8_block, experts), "fp8_block");
  }
}

TEST(StoredBytes, TokensOnTheirWayToExpertsCarryTheirScales) {
  for (const auto& [type, bytes] :
       {std::pair(Dtype::fp4, 0.5625), {Dtype::fp8, 1 + 4.0 / 128}, {Dtype::bf16, 2.0}}) {
    Case c = decode_case("deepseek-r1", "gb200-nvl72", 10'000);
    c.precision.dispatch = type;
    Plan plan;
    plan.strategy = strategy_id("dp_ep");
    plan.dp = plan.ep = 8;
    plan.batch = 16;
    Schedule s;
    lower(s, c, plan);
    double dispatch = 0, combine = 0;
    for (const Op& op : s.ops) {
      if (op.kind == OpKind::dispatch) dispatch = message_bytes(op).value;
      if (op.kind == OpKind::combine) combine = message_bytes(op).value;
    }
    EXPECT_DOUBLE_EQ(dispatch / combine, bytes / 2) << to_string(type);
  }
}

// A paper's accounting changes what is counted, not which kernels there are.
TEST(StoredBytes, UnscaledFp4IsCountedAsHalfAByteAndPricedAsFp4) {
  Case c = one_gpu({Dtype::fp4_unscaled, Dtype::fp4, 0.5});
  EXPECT_DOUBLE_EQ(traffic_of(c, Plan{}).weights.value, matrix_elements(c.model) * 0.5);
  CostModel cost(c.system);
  const auto price = [&](Dtype stored) {
    Schedule s;
    ScheduleBuilder b(s);
    b.begin_block("block");
    b.gemm("gemm", Part::ffn, stored, Dtype::fp4, GemmShape{64, 4096, 4096});
    b.end_block();
    return cost.price(s.ops[0]);
  };
  EXPECT_DOUBLE_EQ(cost.alone(price(Dtype::fp4_unscaled)).value, cost.alone(price(Dtype::fp4)).value);
  EXPECT_EQ(price(Dtype::fp4_unscaled).basis, price(Dtype::fp4).basis);
}

TEST(StoredBytes, DeepSeekR1InFp4Takes377GB) {
  const Model r1 = load_model("deepseek-r1", source_path("models/catalog"));
  EXPECT_NEAR(parameter_count(r1) * bytes_per_element(Dtype::fp4), 377.45e9, 0.01e9);
}

}  // namespace
}  // namespace shardline
