// On a CUDA device: every function of CudaGpu against the stand-in, loopback, and NCCL of one rank. Skipped,
// with the reason, where there is no device.
#include "cuda_probe/gpu/cuda_gpu.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "cuda_probe/gpu/emulated_gpu.hpp"
#include "cuda_probe/transport/loopback.hpp"
#include "tests/cuda_probe/gpu/attention_cases.hpp"
#include "tests/cuda_probe/gpu/collective_cases.hpp"
#include "tests/cuda_probe/gpu/device_data.hpp"
#ifdef SHARDLINE_WITH_NCCL
#include "cuda_probe/transport/nccl.hpp"
#endif

namespace shardline {
namespace {

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (cuda_devices(&why) == 0) GTEST_SKIP() << "no CUDA device: " << why;
    gpu_ = std::make_unique<CudaGpu>(0);
    plain_ = std::make_unique<CudaGpu>(0, KernelPaths{PrefillPath::mma, MlaDecodePath::mma});
  }
  Gpu& gpu() { return *gpu_; }
  CudaGpu& cuda() { return *gpu_; }
  EmulatedGpu& emulated() { return emulated_; }

  /// `f` gives the same on both devices, beyond `absolute` + `relative` * |value|.
  void expect_same(const std::function<std::vector<float>(Gpu&)>& f, double absolute, double relative) {
    EXPECT_EQ(excess(f(gpu()), f(emulated_), absolute, relative), 0);
  }
  /// On every path that the device has.
  template <class Case>
  void expect_same_attention(const Case& c) {
    const Attended want = run(emulated_, c);
    expect_equal(run(gpu(), c), want);
    if constexpr (!std::is_same_v<Case, DecodeCase>) expect_equal(run(*plain_, c), want);
  }
  void expect_equal(const Attended& got, const Attended& want) {
    // Weights rounded to bfloat16 before they meet values of at most 1, and results rounded on both sides.
    EXPECT_EQ(excess(got.out, want.out, 1.0 / 256, 1.0 / 128), 0);
    EXPECT_EQ(excess(got.lse, want.lse, 1e-3, 1e-4), 0);
  }

 private:
  std::unique_ptr<CudaGpu> gpu_, plain_;
  EmulatedGpu emulated_;
};

// One unit of bfloat16's 8 bits: two roundings that went apart.
constexpr double kUnit = 1.0 / 128;

TEST_F(CudaDevice, HasANameAndMultiprocessors) {
  EXPECT_NE(gpu().name(), "");
  EXPECT_GT(gpu().multiprocessors(), 0);
}

TEST_F(CudaDevice, CopiesAndFills) {
  expect_same(
      [](Gpu& g) {
        const Stream s = g.stream();
        OnDevice<Bf16> from(g, random_bf16(64, 1)), to(g, std::vector<Bf16>(64));
        g.copy(s, {.source = from.p,
                   .target = to.p + 2,
                   .rows = 4,
                   .row_bytes = 12,
                   .source_pitch = 16,
                   .target_pitch = 20});
        g.copy(s, {.source = from.p + 50,
                   .target = to.p + 50,
                   .rows = 1,
                   .row_bytes = 6,
                   .source_pitch = 0,
                   .target_pitch = 0});
        g.fill(s, to.p + 60, 0x3f, 8);
        return floats(to.get());
      },
      0, 0);
}

TEST_F(CudaDevice, StreamsAndEventsOrderAndTime) {
  const Stream s = gpu().stream(), t = gpu().stream();
  const Event begin = gpu().event(), middle = gpu().event(), end = gpu().event();
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  OnDevice<std::uint8_t> a(gpu(), kBytes), b(gpu(), kBytes);
  gpu().wait(t, middle);  // never recorded
  gpu().record(begin, s);
  for (const std::uint8_t value : {1, 2, 3}) gpu().fill(s, a.p, value, kBytes);
  gpu().record(middle, s);
  gpu().wait(t, middle);
  gpu().copy(t, {.source = a.p,
                 .target = b.p,
                 .rows = 1,
                 .row_bytes = kBytes,
                 .source_pitch = kBytes,
                 .target_pitch = kBytes});
  gpu().record(end, t);
  gpu().synchronize();
  EXPECT_GT(gpu().elapsed(begin, middle).value, 0);
  EXPECT_GT(gpu().elapsed(begin, end).value, gpu().elapsed(begin, middle).value);
  EXPECT_EQ(b.get(), std::vector<std::uint8_t>(kBytes, 3));
}

TEST_F(CudaDevice, ErrorsNameTheCall) {
  RowArguments odd{};
  odd.rows = 1, odd.columns = 3;
  const std::string text = error_of([&] { gpu().add(gpu().stream(), odd); });
  EXPECT_NE(text.find("cuda_gpu.cpp:"), std::string::npos) << text;
  EXPECT_NE(text.find("shardline::add(a, handle(stream)): cudaErrorInvalidValue"), std::string::npos) << text;
  int on_host = 0;
  EXPECT_EQ(error_of([&] { gpu().release(&on_host); }),
            "release: memory that was not allocated on this device");
  EXPECT_EQ(error_of([&] { gpu().record(Event{99}, gpu().stream()); }), "event 99 does not exist");
  EXPECT_EQ(error_of([&] { gpu().synchronize(); }), "");
}

void (Gpu::*const kRowKernels[])(Stream, const RowArguments&) = {&Gpu::rms_norm, &Gpu::swiglu, &Gpu::add};

TEST_F(CudaDevice, RowKernels) {
  for (const auto kernel : kRowKernels) {
    for (const std::int64_t columns : {8, 264, 2056, 5120}) {
      for (const bool in_place : {false, true}) {
        expect_same(
            [&](Gpu& g) {
              const std::int64_t row = 2 * columns + 8;
              OnDevice<Bf16> a(g, random_bf16(static_cast<std::size_t>(7 * row), 1));
              OnDevice<Bf16> b(g, random_bf16(a.size, 2)), out(g, std::vector<Bf16>(a.size));
              (g.*kernel)(g.stream(), {a.p, b.p, in_place ? a.p : out.p, 7, columns, row, row, row});
              return floats(in_place ? a.get() : out.get());
            },
            0, kUnit);
      }
    }
  }
}

TEST_F(CudaDevice, Gemm) {
  struct Shape {
    std::int64_t rows, k, n, batches, gap;
  };
  for (const Shape& m : {Shape{8, 64, 64, 1, 0}, Shape{1, 256, 24, 1, 8}, Shape{130, 72, 136, 3, 16},
                         Shape{3, 128, 512, 5, 0}}) {
    // Twice, the second through the cached plan.
    for (int repeat = 0; repeat < 2; ++repeat) {
      expect_same(
          [&](Gpu& g) {
            GemmArguments a{.rows = m.rows, .k = m.k, .n = m.n};
            a.a_row = m.k + m.gap, a.w_row = m.n + m.gap, a.out_row = m.n + m.gap;
            a.batches = m.batches;
            a.a_batch = m.rows * a.a_row, a.w_batch = m.k * a.w_row;
            // Batches interleaved in the rows of one matrix are strides like any other.
            a.out_batch = m.rows * a.out_row + 8;
            OnDevice<Bf16> left(g, random_bf16(static_cast<std::size_t>(m.batches * a.a_batch), 1));
            OnDevice<Bf16> right(g, random_bf16(static_cast<std::size_t>(m.batches * a.w_batch), 2));
            OnDevice<Bf16> out(g, std::vector<Bf16>(static_cast<std::size_t>(m.batches * a.out_batch)));
            a.a = left.p, a.w = right.p, a.out = out.p;
            g.gemm(g.stream(), a);
            return floats(out.get());
          },
          1e-4, kUnit);
    }
  }
}

TEST_F(CudaDevice, GemmOfHeadsInterleavedInRows) {
  expect_same(
      [](Gpu& g) {  // [row][head][64] * [head][64][32]
        OnDevice<Bf16> a(g, random_bf16(5 * 4 * 64, 1)), w(g, random_bf16(4 * 64 * 32, 2)),
            out(g, 5 * 4 * 32);
        g.gemm(g.stream(), {.a = a.p,
                            .w = w.p,
                            .out = out.p,
                            .rows = 5,
                            .k = 64,
                            .n = 32,
                            .a_row = 256,
                            .w_row = 32,
                            .out_row = 128,
                            .batches = 4,
                            .a_batch = 64,
                            .w_batch = 2048,
                            .out_batch = 32});
        return floats(out.get());
      },
      1e-4, kUnit);
}

TEST_F(CudaDevice, Prefill) {
  for (const auto& [qk_dim, v_dim] : {std::pair{64, 64}, std::pair{128, 128}, std::pair{192, 128}}) {
    for (const bool interleaved : {false, true}) {
      PrefillCase c{.queries = {{0, 100, 300}, {kPadding, 0, 5}, {1, 0, 40}},
                    .keys = {{1, 0, 40}, {0, 0, 300}, {kPadding, 0, 7}},
                    .qk_dim = qk_dim,
                    .v_dim = v_dim,
                    .interleaved = interleaved};
      expect_same_attention(c);
      c.kv_heads = 4;
      expect_same_attention(c);
      c.queries = {{2, 0, 3}};  // sees nothing
      expect_same_attention(c);
    }
  }
}

TEST_F(CudaDevice, Decode) {
  for (const int head_dim : {64, 128}) {
    for (const int page_rows : {0, 16, 256}) {
      for (const int splits : {1, 4}) {
        for (const auto& [q_heads, kv_heads] : {std::pair{8, 2}, std::pair{4, 4}, std::pair{64, 1}}) {
          expect_same_attention(DecodeCase{.kv_rows = {300, 0, 1, 65},
                                           .q_heads = q_heads,
                                           .kv_heads = kv_heads,
                                           .head_dim = head_dim,
                                           .page_rows = page_rows,
                                           .splits = splits});
        }
      }
    }
  }
}

TEST_F(CudaDevice, MlaDecode) {
  for (const int q_heads : {1, 16, 128}) {
    for (const int page_rows : {0, 64}) {
      for (const int splits : {1, 3})
        expect_same_attention(MlaCase{
            .kv_rows = {200, 0, 1, 65}, .q_heads = q_heads, .page_rows = page_rows, .splits = splits});
    }
  }
}

TEST_F(CudaDevice, Merge) {
  for (const int head_dim : {64, 128, 512}) {
    expect_same(
        [&](Gpu& g) {
          MergeArguments m{};
          m.parts = 3, m.rows = 11, m.heads = 3, m.head_dim = head_dim;
          std::vector<OnDevice<Bf16>> parts;
          std::vector<OnDevice<float>> lses;
          for (std::size_t p = 0; p < 3; ++p) {
            parts.emplace_back(g, random_bf16(static_cast<std::size_t>(33 * head_dim), p));
            auto lse = random_floats(33, 10 + p);
            lse[p] = lse[7] = -INFINITY;
            lses.emplace_back(g, lse);
            m.outputs[p] = parts[p].p, m.lses[p] = lses[p].p;
          }
          m.out = parts[1].p, m.out_lse = lses[1].p;  // in place
          g.merge(g.stream(), m);
          auto result = floats(parts[1].get());
          const auto lse = lses[1].get();
          result.insert(result.end(), lse.begin(), lse.end());
          return result;
        },
        1e-5, kUnit);
  }
}

TEST_F(CudaDevice, Compress) {
  for (const std::int32_t rows : {1, 100, 3000}) {
    for (const std::int32_t keep : {1, (rows + 2) / 3, rows}) {
      expect_same(
          [&](Gpu& g) {
            const auto size = static_cast<std::size_t>(rows * 2 * 64),
                       kept = static_cast<std::size_t>(keep * 2);
            auto values = random_floats(static_cast<std::size_t>(rows * 2), 3);
            for (float& v : values) v = std::round(20 * v);  // many ties
            OnDevice<float> scores(g, values);
            OnDevice<Bf16> k(g, random_bf16(size, 1)), v(g, random_bf16(size, 2)), k_out(g, 64 * kept),
                v_out(g, 64 * kept);
            OnDevice<std::int32_t> chosen(g, kept);
            g.compress(g.stream(), {.scores = scores.p,
                                    .k = k.p,
                                    .v = v.p,
                                    .kv_row = 128,
                                    .kv_head = 64,
                                    .rows = rows,
                                    .kv_heads = 2,
                                    .head_dim = 64,
                                    .keep = keep,
                                    .chosen = chosen.p,
                                    .k_out = k_out.p,
                                    .v_out = v_out.p,
                                    .out_row = 128,
                                    .out_head = 64});
            std::vector<float> result = floats(k_out.get());
            const auto other = floats(v_out.get());
            result.insert(result.end(), other.begin(), other.end());
            for (const std::int32_t row : chosen.get()) result.push_back(static_cast<float>(row));
            return result;
          },
          0, 0);
    }
  }
}

TEST_F(CudaDevice, LoopbackOfFourRanks) {
  LoopbackTransport transport(gpu(), 4);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(exchange_fault(transport, seed), "") << seed;
    EXPECT_EQ(collectives_fault(transport, seed), "") << seed;
  }
}

#ifdef SHARDLINE_WITH_NCCL
TEST_F(CudaDevice, NcclOfOneRank) {
  NcclTransport transport({&cuda()}, 0, 1);
  EXPECT_TRUE(transport.local(0));
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(exchange_fault(transport, seed), "") << seed;
    EXPECT_EQ(collectives_fault(transport, seed), "") << seed;
  }
}

TEST_F(CudaDevice, NcclOfAllDevices) {
  const int devices = cuda_devices();
  if (devices < 2) GTEST_SKIP() << "one CUDA device only";
  std::vector<std::unique_ptr<CudaGpu>> gpus;
  std::vector<CudaGpu*> pointers;
  for (int i = 0; i < devices; ++i) pointers.push_back(gpus.emplace_back(std::make_unique<CudaGpu>(i)).get());
  NcclTransport transport(pointers, 0, devices);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(exchange_fault(transport, seed), "") << seed;
    EXPECT_EQ(collectives_fault(transport, seed), "") << seed;
  }
}
#endif

}  // namespace
}  // namespace shardline
