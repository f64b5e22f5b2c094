// The stand-in's kernels against naive loops in double precision, and against numbers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cuda_probe/gpu/emulated_gpu.hpp"
#include "tests/cuda_probe/gpu/attention_cases.hpp"
#include "tests/cuda_probe/gpu/device_data.hpp"

namespace shardline {
namespace {

// Half a unit of bfloat16's 8 bits, and what sums in float32 lose before.
constexpr double kRounding = 1.0 / 256, kSums = 2e-6;

template <class Case>
void expect_naive(const Case& c) {
  EmulatedGpu gpu;
  const Attended got = run(gpu, c), want = naive(c);
  EXPECT_EQ(excess(got.out, want.out, kSums, kRounding), 0);
  EXPECT_EQ(excess(got.lse, want.lse, 1e-5, 1e-6), 0);
}

TEST(ReferenceAttention, PrefillIsCausalPerRequest) {
  expect_naive(PrefillCase{.queries = {{0, 0, 20}}, .keys = {{0, 0, 20}}});
  expect_naive(PrefillCase{.queries = {{0, 30, 40}, {1, 0, 7}, {kPadding, 0, 3}, {2, 4, 5}},
                           .keys = {{1, 0, 9}, {0, 5, 40}, {kPadding, 0, 2}, {2, 5, 9}},
                           .kv_heads = 1});
  expect_naive(PrefillCase{.queries = {{0, 0, 300}}, .keys = {{0, 0, 300}}, .q_heads = 2, .kv_heads = 1});
}

TEST(ReferenceAttention, PrefillTakesEveryShapeAndLayout) {
  expect_naive(PrefillCase{.queries = {{0, 5, 9}}, .keys = {{0, 0, 9}}, .qk_dim = 128, .v_dim = 128});
  const PrefillCase expanded{
      .queries = {{0, 5, 9}}, .keys = {{0, 0, 9}}, .q_heads = 2, .kv_heads = 2, .qk_dim = 192, .v_dim = 128};
  expect_naive(expanded);
  PrefillCase interleaved = expanded;
  interleaved.interleaved = true;
  expect_naive(interleaved);
}

TEST(ReferenceAttention, PrefillOfWhatSeesNothingIsZero) {
  EmulatedGpu gpu;
  const Attended got = run(gpu, PrefillCase{.queries = {{0, 0, 2}}, .keys = {{1, 0, 4}}});
  EXPECT_EQ(got.out, std::vector<float>(2 * 4 * 64, 0.0f));
  EXPECT_EQ(got.lse, std::vector<float>(2 * 4, -INFINITY));
}

TEST(ReferenceAttention, DecodeContiguousAndPaged) {
  for (const int page_rows : {0, 16, 64}) {
    for (const int splits : {1, 3}) {
      expect_naive(DecodeCase{.kv_rows = {17, 0, 1, 130}, .page_rows = page_rows, .splits = splits});
      expect_naive(MlaCase{.kv_rows = {17, 0, 1, 130}, .page_rows = page_rows, .splits = splits});
    }
  }
  expect_naive(DecodeCase{.kv_rows = {33}, .q_heads = 8, .kv_heads = 8, .head_dim = 128});
}

/// One row, one head of 64, two keys with scores 0 and log 3: weights 1/4 and 3/4.
TEST(ReferenceAttention, DecodeOfTwoKeysByHand) {
  EmulatedGpu gpu;
  std::vector<float> q(64), k(128), v(128);
  q[5] = 1;
  k[64 + 5] = 1;
  v[0] = 4, v[64] = 8, v[63] = -8, v[127] = 8;
  OnDevice<Bf16> dq(gpu, bf16(q)), dk(gpu, bf16(k)), dv(gpu, bf16(v)), out(gpu, 64);
  OnDevice<float> lse(gpu, 1);
  OnDevice<std::int64_t> begin(gpu, std::vector<std::int64_t>{0});
  OnDevice<std::int32_t> rows(gpu, std::vector<std::int32_t>{2});
  DecodeArguments a{};
  a.q = dq.p, a.k = dk.p, a.v = dv.p, a.out = out.p, a.lse = lse.p;
  a.q_row = a.q_head = a.kv_row = a.kv_head = a.out_row = a.out_head = 64;
  a.kv_begin = begin.p, a.kv_rows = rows.p;
  a.sequences = a.q_heads = a.kv_heads = a.splits = a.lse_row = 1;
  a.head_dim = 64;
  a.scale = std::log(3.0f);
  gpu.decode(gpu.stream(), a);
  const auto got = floats(out.get());
  EXPECT_EQ(got[0], 7);
  EXPECT_EQ(got[63], 4);
  EXPECT_EQ(got[1], 0);
  EXPECT_NEAR(static_cast<double>(lse.get()[0]), std::log(4.0), 1e-6);
}

TEST(ReferenceKernels, GemmByHandWithStridesAndBatches) {
  EmulatedGpu gpu;
  // Two batches of [1, 8] * [8, 8]; the second w is twice the identity, rows 16 apart.
  std::vector<float> a(16), w(2 * 8 * 16, 1e9f);
  for (int i = 0; i < 16; ++i) a[static_cast<std::size_t>(i)] = static_cast<float>(i);
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      w[i * 16 + j] = j == 0 ? 1.0f : 0.0f;
      w[128 + i * 16 + j] = i == j ? 2.0f : 0.0f;
    }
  }
  OnDevice<Bf16> da(gpu, bf16(a)), dw(gpu, bf16(w)), out(gpu, 16);
  gpu.gemm(gpu.stream(), {.a = da.p,
                          .w = dw.p,
                          .out = out.p,
                          .rows = 1,
                          .k = 8,
                          .n = 8,
                          .a_row = 8,
                          .w_row = 16,
                          .out_row = 8,
                          .batches = 2,
                          .a_batch = 8,
                          .w_batch = 128,
                          .out_batch = 8});
  EXPECT_EQ(floats(out.get()), (std::vector<float>{28, 0, 0, 0, 0, 0, 0, 0, 16, 18, 20, 22, 24, 26, 28, 30}));
}

TEST(ReferenceKernels, RowsByHand) {
  EmulatedGpu gpu;
  const Stream s = gpu.stream();
  // Mean square 4: the root is 2.
  OnDevice<Bf16> x(gpu, bf16({4, -4, 0, 0, 0, 0, 0, 0})), out(gpu, 8);
  gpu.rms_norm(s, {x.p, nullptr, out.p, 1, 8, 8, 0, 8});
  EXPECT_EQ(floats(out.get()), (std::vector<float>{2, -2, 0, 0, 0, 0, 0, 0}));
  // silu(0) = 0; silu(x) is x for large x, 0 for very negative x; silu(log 3) = 3/4 log 3.
  const float log3 = to_float(to_bf16(std::log(3.0f)));
  OnDevice<Bf16> gates(gpu, bf16({0, 64, -128, log3, 0, 0, 0, 0, 5, 0.5, 7, -4, 1, 1, 1, 1}));
  gpu.swiglu(s, {gates.p, nullptr, out.p, 1, 8, 16, 0, 8});
  const auto got = floats(out.get());
  EXPECT_EQ(got[0], 0);
  EXPECT_EQ(got[1], 32);
  EXPECT_EQ(got[2], 0);
  EXPECT_NEAR(static_cast<double>(got[3]), -3 * std::log(3.0), 0.02);
  OnDevice<Bf16> y(gpu, bf16({1, 2, 3, 256, 5, 6, 7, 8})), z(gpu, bf16({1, -2, 0.5, 1, 0, 0, 0, 0}));
  gpu.add(s, {y.p, z.p, y.p, 1, 8, 8, 8, 8});
  EXPECT_EQ(floats(y.get()), (std::vector<float>{2, 0, 3.5, 256, 5, 6, 7, 8}));
}

TEST(ReferenceKernels, MergeInPlaceByHand) {
  EmulatedGpu gpu;
  OnDevice<Bf16> a(gpu, bf16(std::vector<float>(8, 4))), b(gpu, bf16(std::vector<float>(8, 8)));
  OnDevice<float> a_lse(gpu, std::vector<float>{0}), b_lse(gpu, std::vector<float>{std::log(3.0f)});
  MergeArguments m{};
  m.parts = 2, m.rows = 1, m.heads = 1, m.head_dim = 8;
  m.outputs[0] = a.p, m.outputs[1] = b.p, m.lses[0] = a_lse.p, m.lses[1] = b_lse.p;
  m.out = a.p, m.out_lse = a_lse.p;
  gpu.merge(gpu.stream(), m);
  EXPECT_EQ(floats(a.get()), std::vector<float>(8, 7));
  EXPECT_NEAR(static_cast<double>(a_lse.get()[0]), std::log(4.0), 1e-6);
}

TEST(ReferenceKernels, CompressKeepsTheHighestInOrderTiesToTheLowerRowNansLast) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EmulatedGpu gpu;
  OnDevice<float> scores(gpu, std::vector<float>{1, 3, kNan, 2, 2, kNan, -INFINITY, kNan, 0, kNan});
  std::vector<float> rows;
  for (int i = 0; i < 5 * 2 * 8; ++i) rows.push_back(static_cast<float>(i / 8));  // 2 * row + head
  OnDevice<Bf16> k(gpu, bf16(rows)), v(gpu, bf16(rows)), k_out(gpu, 48), v_out(gpu, 48);
  OnDevice<std::int32_t> chosen(gpu, 6);
  CompressArguments a{};
  a.scores = scores.p, a.k = k.p, a.v = v.p, a.chosen = chosen.p, a.k_out = k_out.p, a.v_out = v_out.p;
  a.kv_row = a.out_row = 16, a.kv_head = a.out_head = 8;
  a.rows = 5, a.kv_heads = 2, a.head_dim = 8, a.keep = 3;
  gpu.compress(gpu.stream(), a);
  EXPECT_EQ(chosen.get(), (std::vector<std::int32_t>{1, 3, 4, 0, 1, 3}));
  const auto got = floats(k_out.get());
  std::vector<float> heads;
  for (std::size_t i = 0; i < 48; i += 8) heads.push_back(got[i]);
  EXPECT_EQ(heads, (std::vector<float>{2, 1, 6, 3, 8, 7}));
  EXPECT_EQ(floats(v_out.get()), got);
}

TEST(ReferenceKernels, RefuseWhatTheHeadersExclude) {
  EmulatedGpu gpu;
  const Stream s = gpu.stream();
  OnDevice<Bf16> m(gpu, std::vector<Bf16>(256));
  const auto error = [&](auto enqueue) {
    enqueue();
    const std::string text = error_of([&] { gpu.synchronize(); });
    return text.empty() ? text : text.substr(text.find(": ") + 2);
  };
  EXPECT_EQ(error([&] {
              gpu.add(s, {m.p, m.p, m.p, 1, 4, 8, 8, 8});
            }),
            "columns and strides must be multiples of 8");
  EXPECT_EQ(error([&] {
              gpu.add(s, {m.p + 1, m.p, m.p, 1, 8, 8, 8, 8});
            }),
            "pointers must be aligned to 16 bytes");
  EXPECT_EQ(error([&] {
              gpu.add(s, {m.p, m.p + 8, m.p + 8, 2, 16, 16, 16, 16});
            }),
            "out overlaps a, but is not a");
  EXPECT_EQ(error([&] { gpu.add(s, {m.p, m.p + 8, m.p + 8, 2, 8, 16, 16, 16}); }), "");  // interleaved
  EXPECT_EQ(error([&] {
              gpu.rms_norm(s, {m.p, nullptr, m.p, 17, 16, 16, 0, 16});
            }),
            "out touches bytes [512, 544) of an allocation of 512");
  GemmArguments g{.a = m.p,
                  .w = m.p + 64,
                  .out = m.p + 64,
                  .rows = 8,
                  .k = 8,
                  .n = 8,
                  .a_row = 8,
                  .w_row = 8,
                  .out_row = 8};
  EXPECT_EQ(error([&] { gpu.gemm(s, g); }), "source and target overlap");
  g.out = m.p + 128;
  g.batches = 2;
  EXPECT_EQ(error([&] { gpu.gemm(s, g); }), "writes the same bytes twice");
}

}  // namespace
}  // namespace shardline
