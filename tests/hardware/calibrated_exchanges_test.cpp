// Prices of messages [H55], [H46]: equal to the forms themselves, of the implementation that an engine takes.
#include <cmath>
#include <utility>

#include "tests/hardware/fitted.hpp"

namespace shardline {
namespace {

using testing::exchange_op, testing::expect_price, testing::fitted, testing::routed_op, testing::system_named;

TEST(CalibratedCost, H55CollectivesCostWhatTheirFitSays) {
  for (const char* name : {"a100-sxm", "h100-hgx", "h200-hgx"}) {
    const System& s = system_named(name);
    for (const double n : {2.0, 4.0, 8.0}) {
      const Group g{static_cast<int>(n), 1};
      for (const double bytes : {4096.0, 1e6, 1e8}) {
        const auto nccl = [&](const char* op, double buffer) { return fitted(s, "nccl", {op}, {n, buffer}); };
        expect_price(s, exchange_op(OpKind::all_gather, g, bytes / n), nccl("all_gather", bytes),
                     Basis::measured);
        expect_price(s, exchange_op(OpKind::reduce_scatter, g, bytes), nccl("reduce_scatter", bytes),
                     Basis::measured);
        // What leaves a rank is all of its buffer but its own part.
        expect_price(s, exchange_op(OpKind::all_to_all, g, bytes * (n - 1) / n), nccl("alltoall", bytes),
                     Basis::measured);
        expect_price(
            s, exchange_op(OpKind::all_reduce, g, bytes),
            std::min(nccl("all_reduce", bytes), fitted(s, "allreduce", {"trtllm_auto", "bf16"}, {n, bytes})),
            Basis::measured);
        // Not measured: as two ranks that exchange halves of an all-to-all.
        if (2 * bytes > 5e8) continue;
        expect_price(s, exchange_op(OpKind::send_recv, g, bytes),
                     fitted(s, "nccl", {"alltoall"}, {2, 2 * bytes}), Basis::fitted);
      }
    }
  }
}

TEST(CalibratedCost, H55KernelsOfDispatchAlsoGatherFewTokens) {
  const System& s = system_named("gb200-nvl72");
  const double n = 16, tokens = 4, width = 2048;
  ExchangeShape shape;
  shape.bytes = Bytes(tokens * width * 2);
  shape.carrier = Carrier::engine;
  shape.rows = tokens;
  const double kernel =
      fitted(s, "alltoall", {"trtllm_nvlink_two_sided", "dispatch", "bf16"}, {n, 1, tokens, width, n, n, 0});
  expect_price(s, exchange_op(OpKind::all_gather, {16, 1}, shape), kernel, Basis::fitted);
  // A message of a library's stays one, rows or not.
  shape.carrier = Carrier::library;
  const Op plain = exchange_op(OpKind::all_gather, {16, 1}, shape);
  expect_price(s, plain, fitted(s, "nccl", {"all_gather"}, {n, shape.bytes.value * n}), Basis::extrapolated);
}

/// Dispatch (with preparation) and combine of each implementation that a system has fits of.
std::vector<std::pair<double, double>> implementations(const System& s, const std::string& type,
                                                       const std::vector<std::string>& names,
                                                       std::vector<double> x) {
  std::vector<std::pair<double, double>> all;
  for (const std::string& name : names) {
    x[6] = name.ends_with("normal") ? 24 : 0;
    const bool nvlink = name.find("nvlink") != std::string::npos;
    double there = fitted(s, "alltoall", {name, "dispatch", type}, x);
    if (name.ends_with("two_sided")) there += fitted(s, "alltoall", {name, "prepare", type}, x);
    all.emplace_back(there, fitted(s, "alltoall", {name, "combine", nvlink ? type : "bf16"}, x));
  }
  return all;
}

TEST(CalibratedCost, H55DispatchAndCombineAreOfOneImplementation) {
  struct Row {
    const char* system;
    Dtype type;
    const char* word;
    std::vector<std::string> names;
    int gpus;
  };
  const Row rows[] = {
      {"h100-hgx",
       Dtype::fp8,
       "fp8",
       {"deepep_ll", "deepep_normal", "deepep_v050_ll", "deepep_v050_normal"},
       8},
      {"gb200-nvl72", Dtype::fp4, "nvfp4", {"trtllm_nvlink_one_sided"}, 16},
      {"gb200-nvl72", Dtype::fp8, "fp8", {"trtllm_nvlink_two_sided"}, 16},
      {"gb200-nvl72", Dtype::fp4, "nvfp4", {"trtllm_nvlink_two_sided"}, 64},
  };
  for (const Row& row : rows) {
    const System& s = system_named(row.system);
    CostModel m(s);
    const Group g{row.gpus, 1};
    for (double tokens = 1; tokens <= 65536; tokens *= 2) {
      SCOPED_TRACE(tokens);
      const double there = m.time(routed_op(g, tokens, 7168, 8, 256, false, row.type)).value;
      const double back = m.time(routed_op(g, tokens, 7168, 8, 256, true, row.type)).value;
      bool one = false;
      for (const auto& [d, c] :
           implementations(s, row.word, row.names, {double(row.gpus), 1, tokens, 7168, 8, 256, 0}))
        one = one || (std::abs(there / d - 1) < 1e-12 && std::abs(back / c - 1) < 1e-12);
      EXPECT_TRUE(one) << there << " " << back;
    }
  }
  // Between nodes the one that was measured there.
  const System& h100 = system_named("h100-hgx");
  CostModel m(h100);
  const Op far = routed_op({32, 1}, 64, 7168, 8, 256, false, Dtype::fp8);
  EXPECT_EQ(m.price(far).basis, Basis::measured);
  EXPECT_NEAR(m.time(far).value / fitted(h100, "alltoall", {"deepep_v050_ll", "dispatch", "fp8"},
                                         {32, 4, 64, 7168, 8, 256, 0}),
              1, 1e-12);
}

/// The implementation that an exchange's price is of.
std::string implementation_of(const System& s, int gpus, double tokens, Count topk, Dtype type) {
  CostModel m(s);
  return m.price(routed_op({gpus, 1}, tokens, 7168, topk, 288, false, type)).fit->words[0];
}

// TensorRT-LLM asks for its one-sided kernels first, which know eight experts per token and were measured
// with NVFP4 rows on up to 32 GPUs; whatever was measured comes before what was not.
TEST(CalibratedCost, H55TheEngineTakesItsFirstImplementation) {
  const System& s = system_named("gb200-nvl72");
  for (const double tokens : {1.0, 32.0, 4096.0}) {
    SCOPED_TRACE(tokens);
    EXPECT_EQ(implementation_of(s, 8, tokens, 8, Dtype::fp4), "trtllm_nvlink_one_sided");
    EXPECT_EQ(implementation_of(s, 32, tokens, 8, Dtype::fp4), "trtllm_nvlink_one_sided");
    EXPECT_EQ(implementation_of(s, 32, tokens, 9, Dtype::fp4), "trtllm_nvlink_two_sided");
    EXPECT_EQ(implementation_of(s, 32, tokens, 8, Dtype::bf16), "trtllm_nvlink_two_sided");
    EXPECT_EQ(implementation_of(s, 64, tokens, 8, Dtype::fp4), "trtllm_nvlink_two_sided");
    // Nothing was measured on 72: never what was measured on 4, however fast that would be.
    EXPECT_EQ(implementation_of(s, 72, tokens, 8, Dtype::fp4), "trtllm_nvlink_one_sided");
    EXPECT_EQ(implementation_of(s, 72, tokens, 8, Dtype::bf16), "trtllm_nvlink_two_sided");
  }
}

TEST(CalibratedCost, H55AnImplementationAndANarrowCombineMayBePreferred) {
  System s = system_named("gb200-nvl72");
  const Op back = routed_op({16, 1}, 512, 7168, 8, 256, true, Dtype::fp4);
  s.calibration.prefer = {"trtllm_nvlink_two_sided"};
  EXPECT_EQ(implementation_of(s, 16, 512, 8, Dtype::fp4), "trtllm_nvlink_two_sided");
  const double wide = CostModel(s).time(back).value;
  s.calibration.prefer.emplace_back("combine_low_precision");
  CostModel m(s);
  EXPECT_EQ(m.price(back).fit->words[1], "combine_low_precision");
  EXPECT_LT(m.time(back).value, wide);
  // Gathers that these kernels carry do not depend on it.
  s.calibration.prefer = {"trtllm_nvlink_one_sided"};
  ExchangeShape few;
  few.bytes = Bytes(4. * 2048 * 2);
  few.carrier = Carrier::engine;
  few.rows = 4;
  const Op gather = exchange_op(OpKind::all_gather, {16, 1}, few);
  EXPECT_EQ(CostModel(s).time(gather), CostModel(system_named("gb200-nvl72")).time(gather));
}

// Published: NCCL 2.26.2 on all 72 GPUs of a GB200 NVL72 (coreweave/nccl-tests, README), on which nothing was
// fitted but the square of the fill.
TEST(CalibratedCost, H46ReachesPublishedAllReducesOf72Gpus) {
  CostModel m(system_named("gb200-nvl72"));
  const std::pair<double, double> published[] = {
      {0x1p29, 1806.7e-6}, {0x1p30, 3108.8e-6}, {0x1p31, 5589.1e-6}, {0x1p32, 10094e-6}, {0x1p33, 20299e-6}};
  for (const auto& [bytes, seconds] : published) {
    const Op op = exchange_op(OpKind::all_reduce, {72, 1}, bytes);
    EXPECT_NEAR(m.time(op).value / seconds, 1, 0.08) << bytes;
    EXPECT_EQ(m.price(op).basis, Basis::extrapolated);
  }
  // 811 GB/s of bus bandwidth on 8 GPUs (lixueduan.com, posts/ai/13-gb200-mnnvl-nccl-test).
  const double eight = m.time(exchange_op(OpKind::all_reduce, {8, 1}, 0x1p33)).value;
  EXPECT_NEAR(1.75 * 0x1p33 / eight / 811e9, 1, 0.05);
}

}  // namespace
}  // namespace shardline
