// The row-wise CUDA kernels' own code, thread by thread, on the CPU, against the stand-in's loops.
#include <gtest/gtest.h>

#include <functional>

#include "cuda_probe/gpu/emulated_gpu.hpp"
#include "cuda_probe/kernels/elementwise_kernels.hpp"
#include "tests/cuda_probe/gpu/attention_cases.hpp"
#include "tests/cuda_probe/gpu/device_data.hpp"

namespace shardline {
namespace {

struct Rows {
  std::int64_t rows, columns, gap;  // gap between rows
};
constexpr Rows kShapes[] = {{1, 8, 0}, {3, 64, 8}, {2, 2048, 0}, {2, 2056, 16}, {2, 5120, 0}};

/// Results of the kernel's threads, last first, and of the stand-in.
void compare(const std::function<void(const RowArguments&)>& threads,
             void (Gpu::*kernel)(Stream, const RowArguments&), int widths, double relative) {
  for (const Rows& r : kShapes) {
    for (const bool in_place : {false, true}) {
      EmulatedGpu gpu;
      const std::int64_t row = widths * r.columns + r.gap;
      const auto size = static_cast<std::size_t>(r.rows * row);
      auto a = random_bf16(size, 1), b = random_bf16(size, 2);
      for (Bf16& x : a) x = to_bf16(8 * to_float(x));
      OnDevice<Bf16> da(gpu, a), db(gpu, b), dout(gpu, std::vector<Bf16>(size));
      auto out = std::vector<Bf16>(size);
      (gpu.*kernel)(gpu.stream(), {da.p, db.p, in_place ? da.p : dout.p, r.rows, r.columns, row, row, row});
      threads({a.data(), b.data(), in_place ? a.data() : out.data(), r.rows, r.columns, row, row, row});
      const auto want = floats(in_place ? da.get() : dout.get());
      EXPECT_EQ(excess(floats(in_place ? a : out), want, 0, relative), 0) << r.rows << " x " << r.columns;
    }
  }
}

void run_rms(const RowArguments& a) {
  for (std::int64_t row = a.rows - 1; row >= 0; --row) {
    float partials[kRowThreads];
    for (int lane = kRowThreads - 1; lane >= 0; --lane) partials[lane] = rms_partial(a, row, lane);
    for (int width = kRowThreads / 2; width > 0; width /= 2) {
      for (int lane = kRowThreads - 1; lane >= 0; --lane) rms_halve(partials, lane, width);
    }
    for (int lane = kRowThreads - 1; lane >= 0; --lane) rms_write(a, row, lane, partials[0]);
  }
}

template <auto kThread>
void run_threads(const RowArguments& a) {
  for (std::int64_t i = row_threads(a) - 1; i >= 0; --i) kThread(a, i);
}

TEST(ElementwiseKernels, AddIsTheSameBits) { compare(run_threads<add_thread>, &Gpu::add, 1, 0); }
TEST(ElementwiseKernels, SwigluIsTheSameBits) { compare(run_threads<swiglu_thread>, &Gpu::swiglu, 2, 0); }
// Sums in another order may round to the neighbour: one unit of 8 bits.
TEST(ElementwiseKernels, RmsNormWithinOneUnit) { compare(run_rms, &Gpu::rms_norm, 1, 1.0 / 128); }

TEST(ElementwiseKernels, RmsNormSumsEverySquareOnce) {
  for (const std::int64_t columns : {8, 2048, 2056, 8200}) {
    std::vector<Bf16> ones(static_cast<std::size_t>(columns), to_bf16(1));
    const RowArguments a{ones.data(), nullptr, ones.data(), 1, columns, columns, 0, columns};
    float sum = 0;
    for (int lane = 0; lane < kRowThreads; ++lane) sum += rms_partial(a, 0, lane);
    EXPECT_EQ(sum, static_cast<float>(columns));
  }
}

}  // namespace
}  // namespace shardline
