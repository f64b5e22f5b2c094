// What prices rest on, and calibrations that are borrowed: hardware/README.md, "What a price rests on".
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hardware/cost/forms/forms.hpp"
#include "sim/base/error.hpp"
#include "tests/hardware/ops.hpp"

namespace shardline {
namespace {

using testing::batched_op, testing::catalog_system, testing::decode_op, testing::elementwise_op,
    testing::exchange_op, testing::gemm_op, testing::mla_decode_op, testing::mla_sequences,
    testing::prefill_op, testing::whole_sequences;

struct Row {
  const char* what;
  Op op;
  Basis basis;
};

void expect_bases(const System& s, const std::vector<Row>& rows) {
  CostModel m(s);
  for (const Row& row : rows)
    EXPECT_EQ(to_string(m.price(row.op).basis), to_string(row.basis)) << s.name << ": " << row.what;
}

Op with_cached(Count rows, Count cached) {
  AttendPrefillShape a = whole_sequences(1, rows, 32, 8, 128, 128);
  a.pairs += rows * cached;
  a.kv_rows += cached;
  a.whole = cached == 0;
  return prefill_op(a, Dtype::bf16, Dtype::bf16);
}

Op behind_window(Count cached, Count window) {
  Op op = decode_op(8, window, 32, 8, 128, Dtype::bf16);
  std::get<AttendDecodeShape>(op.shape).skipped = 8 * (cached - window);
  return op;
}

TEST(CalibratedCost, BasisOfComputation) {
  constexpr Dtype kFp4 = Dtype::fp4, kFp8 = Dtype::fp8, kBf16 = Dtype::bf16;
  expect_bases(
      catalog_system("h100-hgx"),
      {
          {"a measured GEMM", gemm_op({64, 4096, 4096}, kBf16, kBf16), Basis::measured},
          {"the largest m", gemm_op({32768, 4096, 4096}, kBf16, kBf16), Basis::measured},
          {"more rows", gemm_op({33000, 4096, 4096}, kBf16, kBf16), Basis::extrapolated},
          {"a wider one", gemm_op({64, 4096, 70000}, kBf16, kBf16), Basis::extrapolated},
          {"a narrow one", gemm_op({64, 4096, 16}, kBf16, kBf16), Basis::extrapolated},
          {"FP4 weights", gemm_op({64, 4096, 4096}, kFp4, kFp8), Basis::extrapolated},
          {"FP8 weights, BF16 arithmetic", gemm_op({64, 4096, 4096}, kFp8, kBf16), Basis::extrapolated},
          {"no rows", gemm_op({0, 4096, 4096}, kBf16, kBf16), Basis::none},
          {"decode at 128K", decode_op(8, 131'072, 32, 8, 128, kFp8), Basis::measured},
          {"decode at 1M", decode_op(8, 1'000'000, 32, 8, 128, kFp8), Basis::extrapolated},
          {"an FP4 cache", decode_op(8, 10'000, 32, 8, 128, kFp4), Basis::extrapolated},
          {"40 query heads per KV head", decode_op(8, 10'000, 40, 1, 128, kBf16), Basis::assumed},
          {"heads of width 100", decode_op(8, 10'000, 32, 8, 100, kBf16), Basis::measured},
          {"heads of width 32", decode_op(8, 10'000, 32, 8, 32, kBf16), Basis::extrapolated},
          {"MLA at 128K", mla_decode_op(8, 131'072, 16, kBf16), Basis::measured},
          {"MLA at 1M", mla_decode_op(8, 1'000'000, 16, kBf16), Basis::extrapolated},
          {"a window in 100K", behind_window(100'000, 128), Basis::measured},
          {"a window in 1M", behind_window(1'000'000, 128), Basis::extrapolated},
          {"keys wider than values", prefill_op(whole_sequences(1, 8192, 32, 8, 192, 128), kBf16, kBf16),
           Basis::extrapolated},
          {"whole sequences", with_cached(8192, 0), Basis::measured},
          {"a cached prefix", with_cached(4096, 4096), Basis::fitted},
          {"a long prefix", with_cached(4096, 100'000), Basis::extrapolated},
          {"long sequences", with_cached(40'000, 0), Basis::extrapolated},
          {"a kernel of its own", elementwise_op({64, 4096, Bytes(1e6)}), Basis::fitted},
      });
  // The forms of latent attention are of the widths that were measured.
  expect_bases(
      catalog_system("h100-hgx"),
      {{"192 and 96", prefill_op(mla_sequences(1, 4096, 16, 192, 96), kBf16, kBf16), Basis::extrapolated},
       {"256 and 256", prefill_op(mla_sequences(1, 4096, 16, 256, 256), kBf16, kBf16), Basis::extrapolated},
       {"192 and 128", prefill_op(mla_sequences(1, 4096, 16), kBf16, kBf16), Basis::measured},
       {"rank 256", mla_decode_op(8, 10'000, 16, kBf16, 256), Basis::extrapolated},
       {"rank 512", mla_decode_op(8, 10'000, 16, kBf16), Basis::measured}});
  expect_bases(catalog_system("a100-sxm"),
               {{"experts without a gate",
                 testing::experts_op(true, {8, 64, 4096, 2048, false}, 64, 8, kBf16, kBf16), Basis::assumed},
                {"experts", testing::experts_op(true, {8, 64, 4096, 2048, true}, 64, 8, kBf16, kBf16),
                 Basis::measured}});
}

// Latent attention of other widths than those that kernels were measured with: by the same forms, and dearer
// the wider it is.
TEST(CalibratedCost, H62OtherWidthsOfLatentAttentionArePricedByItsForms) {
  struct Wide {
    Op op;
    bool measured;
  };
  const auto expect_rising = [](const char* system, const char* family, const std::vector<Wide>& ops) {
    SCOPED_TRACE(family);
    const System s = catalog_system(system);
    CostModel m(s);
    Seconds before;
    for (const Wide& w : ops) {
      SCOPED_TRACE(describe(w.op));
      const OpCost c = m.price(w.op);
      ASSERT_NE(c.fit, nullptr);
      EXPECT_EQ(std::string_view(c.fit->form->family), family);
      EXPECT_EQ(to_string(c.basis), to_string(w.measured ? Basis::measured : Basis::extrapolated));
      EXPECT_GT(m.time(w.op), before);
      EXPECT_LE(m.floor(w.op), m.time(w.op));
      before = m.time(w.op);
    }
  };
  constexpr Dtype kFp8 = Dtype::fp8, kBf16 = Dtype::bf16;
  std::vector<Wide> decode, absorb, expand, prefill;
  for (const Count rank : {128, 256, 512, 768})
    decode.push_back({mla_decode_op(256, 30'000, 16, kFp8, rank), rank == 512});
  expect_rising("h100-hgx", "mla_decode", decode);
  // Of a wider rotary part keys alone are longer.
  expect_rising("h100-hgx", "mla_decode",
                {{mla_decode_op(256, 30'000, 16, kFp8, 256, 64), false},
                 {mla_decode_op(256, 30'000, 16, kFp8, 256, 128), false}});
  for (const auto& [head, rank] :
       std::vector<std::pair<Count, Count>>{{64, 256}, {128, 256}, {128, 512}, {192, 512}, {192, 768}}) {
    const bool measured = head == 128 && rank == 512;
    absorb.push_back(
        {batched_op({LatentProduct::absorb_query, 1000, head, rank, 32, 1}, kBf16, kBf16), measured});
    expand.push_back(
        {batched_op({LatentProduct::expand_values, 1000, rank, head, 32, 1}, kFp8, kFp8), measured});
  }
  expect_rising("h200-hgx", "mla_bmm", absorb);
  expect_rising("h200-hgx", "mla_bmm", expand);
  for (const auto& [qk, v] :
       std::vector<std::pair<Count, Count>>{{128, 96}, {192, 96}, {192, 128}, {256, 256}, {576, 512}})
    prefill.push_back({prefill_op(mla_sequences(1, 4096, 16, qk, v), kBf16, kBf16), v == 128});
  expect_rising("h100-hgx", "mla_prefill", prefill);
}

TEST(CalibratedCost, BasisOfCommunication) {
  const Op gather = exchange_op(OpKind::all_gather, {8, 1}, 1e5),
           far = exchange_op(OpKind::all_gather, {16, 1}, 1e5);
  expect_bases(catalog_system("h100-hgx"),
               {{"inside a node", gather, Basis::measured},
                {"over two nodes", far, Basis::assumed},
                {"messages of 8 GB", exchange_op(OpKind::all_gather, {8, 1}, 1e9), Basis::extrapolated},
                {"send and receive", exchange_op(OpKind::send_recv, {4, 1}, 1e5), Basis::fitted},
                {"send between nodes", exchange_op(OpKind::send_recv, {4, 8}, 1e5), Basis::assumed}});
  expect_bases(catalog_system("gb200-nvl72"),
               {{"4 GPUs", exchange_op(OpKind::all_gather, {4, 1}, 1e5), Basis::measured},
                {"8 GPUs were not measured", gather, Basis::extrapolated}});
}

// Only even routing was measured; tokens that stand for uneven routing are another exchange's.
TEST(CalibratedCost, BasisOfUnevenRoutingIsFitted) {
  const System s = catalog_system("h100-hgx");
  CostModel m(s);
  for (const bool back : {false, true}) {
    Op op = testing::routed_op({8, 1}, 64, 7168, 8, 256, back, Dtype::fp8);
    const OpCost even = m.price(op);
    EXPECT_EQ(even.basis, Basis::measured);
    std::get<RoutedShape>(op.shape).uneven = true;  // in the same model: its memo tells them apart
    EXPECT_EQ(m.price(op).basis, Basis::fitted);
    EXPECT_EQ(m.time(op).value, CostModel(s).time(op).value);
    op = testing::routed_op({8, 1}, 1e6, 7168, 8, 256, back, Dtype::fp8);
    std::get<RoutedShape>(op.shape).uneven = true;
    EXPECT_EQ(m.price(op).basis, Basis::extrapolated);
  }
}

TEST(CalibratedCost, BasisWithoutACalibrationOrAgainstItIsAssumed) {
  System plain = testing::by_parameters(catalog_system("h100-hgx"));
  const Op gemm = gemm_op({64, 4096, 4096}, Dtype::bf16, Dtype::bf16);
  expect_bases(plain, {{"no calibration", gemm, Basis::assumed}});
  // A pinned algorithm is one that fits do not tell apart.
  const System s = catalog_system("h100-hgx");
  CostModel ring(s, AllReduceRule::ring), ring_of_parameters(plain, AllReduceRule::ring);
  const Op sum = exchange_op(OpKind::all_reduce, {8, 1}, 1e5);
  EXPECT_EQ(ring.price(sum).basis, Basis::assumed);
  EXPECT_EQ(ring.price(sum).algorithm, Algorithm::ring);
  EXPECT_EQ(ring.time(sum), ring_of_parameters.time(sum));
}

// No kernel over an FP4 cache was measured: FP8's, with 0.5625 bytes per element, and marked as altered.
TEST(CalibratedCost, AnFp4CacheIsPricedByTheKernelOfFp8) {
  const System s = catalog_system("gb200-nvl72");
  CostModel m(s);
  const auto fp8 = std::find_if(s.calibration.fits.begin(), s.calibration.fits.end(), [](const KernelFit& f) {
    return f.form->family == std::string_view("attention_decode") && f.words[1] == "fp8" &&
           f.words[2] == "torch_flow";
  });
  ASSERT_NE(fp8, s.calibration.fits.end());
  FormContext c;
  ASSERT_TRUE(fp8->form->context(fp8->words, s, c));
  c.b_bytes = 0.5625;
  std::vector<double> p = fp8->parameters;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (fp8->form->parameters[i].name == std::string_view("l2")) p[i] = std::min(p[i], 2.0);  // a cold cache
  }
  const double x[] = {8, 100'000, 32, 8, 128, 0};
  const Op narrow = decode_op(8, 100'000, 32, 8, 128, Dtype::fp4);
  const Op wide = decode_op(8, 100'000, 32, 8, 128, Dtype::fp8);
  EXPECT_NEAR(m.time(narrow).value / predict(*fp8->form, c, p, fp8->correction, x), 1, 1e-12);
  EXPECT_LT(m.time(narrow), m.time(wide));
  EXPECT_EQ(m.price(wide).basis, Basis::measured);
  EXPECT_EQ(m.price(narrow).basis, Basis::extrapolated);
  const ErrorBand known = m.interval(wide).band, altered = m.interval(narrow).band;
  EXPECT_NEAR((altered.high - altered.low) / (known.high - known.low), 2, 1e-9);
}

// Long BF16 prompts run at the board's power limit; short ones do not.
TEST(CalibratedCost, H67PowerMovesLongPrefillByItsCubeRoot) {
  const auto ratio = [](const char* name, Count tokens, Dtype type) {
    const System with = catalog_system(name);
    System without = with;
    without.calibration.power_limit = 0;
    const Op op = prefill_op(whole_sequences(1, tokens, 16, 2, 128, 128), type, type);
    return CostModel(with).time(op) / CostModel(without).time(op);
  };
  EXPECT_NEAR(ratio("b200-hgx", 1 << 20, Dtype::bf16), std::cbrt(1.2), 0.003);
  EXPECT_NEAR(ratio("gb300-nvl72", 1 << 20, Dtype::bf16), std::cbrt(1200.0 / 1400), 0.003);
  EXPECT_NEAR(ratio("b200-hgx", 1024, Dtype::bf16), 1, 0.001);
  EXPECT_EQ(ratio("gb200-nvl72", 1 << 20, Dtype::bf16), 1);
}

TEST(CalibratedCost, LikeAnotherSystemTakesItsFitsAndOwnPeaks) {
  for (const char* name : {"gb300-nvl72", "b200-hgx"}) {
    SCOPED_TRACE(name);
    const System s = catalog_system(name), from = catalog_system("gb200-nvl72");
    CostModel own(s), other(from);
    std::size_t unlike = 0;
    for (const Count rows : {1, 300, 8192}) {
      const Op op = gemm_op({rows, 7168, 4096}, Dtype::fp4, Dtype::fp4);
      EXPECT_EQ(own.price(op).basis, Basis::extrapolated);
      unlike += own.time(op) != other.time(op) ? 1 : 0;
      // The form with the lender's parameters and the borrower's peaks.
      for (const KernelFit& f : from.calibration.fits) {
        if (f.form->family != std::string_view("gemm") || f.words[1] != "flashinfer_cutedsl_nvfp4")
          continue;  // that TensorRT-LLM's list names
        FormContext context;
        ASSERT_TRUE(f.form->context(f.words, s, context));
        EXPECT_EQ(context.flops, s.device.peak[static_cast<std::size_t>(Dtype::fp4)].value);
        const double x[] = {static_cast<double>(rows), 4096, 7168};
        EXPECT_NEAR(own.time(op).value / predict(*f.form, context, f.parameters, f.correction, x), 1, 1e-12);
      }
    }
    EXPECT_GE(unlike, 2u);
    EXPECT_EQ(own.price(elementwise_op({64, 4096, Bytes(0)})).basis, Basis::extrapolated);
    EXPECT_EQ(own.price(exchange_op(OpKind::all_gather, {4, 1}, 1e5)).basis, Basis::extrapolated);
  }
}

TEST(CalibratedCost, LikeAnotherSystemWithItsPeaksIsThatSystem) {
  const System from = catalog_system("h100-hgx");
  std::string text = testing::read_file(testing::system_catalog() / "h100-hgx.yaml");
  const std::string named = "calibration: h100-hgx";
  text.replace(text.find(named), named.size(), "calibration: {like: h100-hgx}");
  const System same = parse_system("t.yaml", text, testing::system_catalog());
  CostModel a(from), b(same);
  for (const Op& op :
       {gemm_op({64, 4096, 4096}, Dtype::fp8_dynamic, Dtype::fp8),
        decode_op(8, 100'000, 32, 8, 128, Dtype::bf16), exchange_op(OpKind::all_reduce, {8, 1}, 1e6),
        elementwise_op({64, 4096, Bytes(1e6)})}) {
    EXPECT_EQ(a.time(op), b.time(op));
    EXPECT_NE(a.price(op).basis, Basis::extrapolated);
    EXPECT_EQ(b.price(op).basis, Basis::extrapolated);
  }
}

}  // namespace
}  // namespace shardline
