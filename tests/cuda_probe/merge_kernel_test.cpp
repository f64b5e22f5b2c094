// The merge kernel's own code, thread by thread, on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "cuda_probe/kernels/merge.hpp"

namespace shardline {
namespace {

TEST(Bf16, RoundsToNearestEvenAndKeepsSpecialValues) {
  const auto back = [](float f) { return to_float(to_bf16(f)); };
  EXPECT_EQ(back(1.0f), 1.0f);
  EXPECT_EQ(back(-2.5f), -2.5f);
  EXPECT_EQ(back(1.0f + 1.0f / 256), 1.0f);               // half way: to even
  EXPECT_EQ(back(1.0f + 3.0f / 256), 1.0f + 4.0f / 256);  // half way: to even, upwards
  EXPECT_EQ(back(1.0f + 1.1f / 256), 1.0f + 2.0f / 256);
  EXPECT_EQ(back(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(back(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(back(-std::numeric_limits<float>::signaling_NaN())));
  EXPECT_EQ(back(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
}

struct Merge {
  std::vector<std::vector<Bf16>> outputs;
  std::vector<std::vector<float>> lses;
  std::vector<Bf16> out;
  std::vector<float> out_lse;
  MergeArguments a{};

  Merge(int parts, std::int64_t rows, int heads, int head_dim, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto uniform = [&] { return static_cast<float>(random() >> 40) / 8388608.0f - 1; };
    const auto cells = static_cast<std::size_t>(rows * heads);
    for (int p = 0; p < parts; ++p) {
      auto& o = outputs.emplace_back(cells * static_cast<std::size_t>(head_dim));
      auto& l = lses.emplace_back(cells);
      for (Bf16& v : o) v = to_bf16(2 * uniform());
      for (float& v : l) v = random() % 5 == 0 ? -INFINITY : 20 * uniform();
    }
    out.resize(cells * static_cast<std::size_t>(head_dim));
    out_lse.resize(cells);
    a.parts = parts;
    a.rows = rows;
    a.heads = heads;
    a.head_dim = head_dim;
    for (std::size_t p = 0; p < outputs.size(); ++p) {
      // What was never attended may hold anything.
      for (std::size_t i = 0; i < outputs[p].size(); ++i) {
        if (lses[p][i / static_cast<std::size_t>(head_dim)] == -INFINITY) outputs[p][i] = {0x7fc0};  // NaN
      }
      a.outputs[p] = outputs[p].data();
      a.lses[p] = lses[p].data();
    }
    a.out = out.data();
    a.out_lse = out_lse.data();
  }

  void run() {
    for (std::int64_t i = merge_threads(a) - 1; i >= 0; --i) merge_thread(a, i);
  }
};

double weight(float lse, double highest) {
  return lse == -INFINITY ? 0 : std::exp(static_cast<double>(lse) - highest);
}

TEST(MergeKernel, EveryThreadTogetherGiveEquation4InDouble) {
  for (const int head_dim : {8, 64, 128}) {
    for (const int parts : {1, 2, 7, kMostParts}) {
      Merge m(parts, 5, 3, head_dim, static_cast<std::uint64_t>(parts + head_dim));
      m.run();
      const auto width = static_cast<std::size_t>(head_dim);
      for (std::size_t cell = 0; cell < m.out_lse.size(); ++cell) {
        double highest = -std::numeric_limits<double>::infinity(), sum = 0;
        for (const auto& lse : m.lses) highest = std::max(highest, static_cast<double>(lse[cell]));
        for (const auto& lse : m.lses) sum += weight(lse[cell], highest);
        if (sum == 0) {
          EXPECT_EQ(m.out_lse[cell], -INFINITY);
        } else {
          EXPECT_NEAR(static_cast<double>(m.out_lse[cell]), highest + std::log(sum), 4e-6);
        }
        for (std::size_t i = 0; i < width; ++i) {
          double want = 0;
          for (std::size_t p = 0; p < m.lses.size(); ++p) {
            const double part = static_cast<double>(to_float(m.outputs[p][cell * width + i]));
            if (m.lses[p][cell] != -INFINITY) want += weight(m.lses[p][cell], highest) * part;
          }
          want = sum > 0 ? want / sum : 0;
          // Half a unit of bfloat16's 8 bits, and float32's rounding before it.
          EXPECT_NEAR(static_cast<double>(to_float(m.out[cell * width + i])), want,
                      std::abs(want) / 256 + 1e-5);
        }
      }
    }
  }
}

TEST(MergeKernel, PartsWithoutAnOutputAreOnlyWeighed) {
  Merge all(3, 4, 2, 64, 11), own(3, 4, 2, 64, 11);
  own.a.outputs[0] = own.a.outputs[2] = nullptr;
  all.run();
  own.run();
  for (std::size_t cell = 0; cell < own.out_lse.size(); ++cell) {
    EXPECT_EQ(own.out_lse[cell], all.out_lse[cell]);
    const float lse = own.lses[1][cell];
    for (std::size_t i = cell * 64; i < (cell + 1) * 64; ++i) {
      const double want = lse == -INFINITY
                              ? 0
                              : std::exp(static_cast<double>(lse) - static_cast<double>(own.out_lse[cell])) *
                                    static_cast<double>(to_float(own.outputs[1][i]));
      EXPECT_NEAR(static_cast<double>(to_float(own.out[i])), want, std::abs(want) / 256 + 1e-5);
    }
  }
  EXPECT_EQ(merge_bytes(own.a), 4 * 2 * (2 * 128 + 4 * 4.0));
}

TEST(MergeKernel, EachThreadWritesItsOwnEightValues) {
  Merge m(2, 3, 2, 64, 9);
  EXPECT_EQ(merge_threads(m.a), 3 * 2 * 8);
  for (std::int64_t thread = 0; thread < merge_threads(m.a); ++thread) {
    Merge one(2, 3, 2, 64, 9);
    for (Bf16& v : one.out) v = {0x1234};
    for (float& v : one.out_lse) v = -7;
    merge_thread(one.a, thread);
    for (std::size_t i = 0; i < one.out.size(); ++i) {
      const bool own = i / 8 == static_cast<std::size_t>(thread);
      EXPECT_EQ(one.out[i].bits == 0x1234, !own);
    }
    for (std::size_t i = 0; i < one.out_lse.size(); ++i) {
      EXPECT_EQ(one.out_lse[i] == -7, i * 8 != static_cast<std::size_t>(thread));
    }
  }
}

// Rows of parts and results far apart, each by another stride: as those of wider matrices.
TEST(MergeKernel, RowsMayLieApart) {
  const Merge whole(3, 5, 3, 64, 4);
  Merge dense = whole;
  const std::size_t width = 3 * 64;
  std::vector<std::vector<Bf16>> outputs;
  std::vector<std::vector<float>> lses;
  MergeArguments a = whole.a;
  const auto spread = [](const auto& from, std::size_t row, std::size_t stride, auto fill) {
    std::vector<std::decay_t<decltype(fill)>> to(5 * stride, fill);
    for (std::size_t i = 0; i < from.size(); ++i) to[i / row * stride + i % row] = from[i];
    return to;
  };
  for (std::size_t p = 0; p < 3; ++p) {
    a.output_row[p] = static_cast<std::int64_t>(width + 8 * (p + 1));
    a.lse_row[p] = static_cast<std::int64_t>(3 + p);
    outputs.push_back(spread(whole.outputs[p], width, width + 8 * (p + 1), Bf16{0x7fc0}));
    lses.push_back(spread(whole.lses[p], 3, 3 + p, 1e30f));
    a.outputs[p] = outputs.back().data();
    a.lses[p] = lses.back().data();
    dense.a.outputs[p] = dense.outputs[p].data();
    dense.a.lses[p] = dense.lses[p].data();
  }
  dense.a.out = dense.out.data();
  dense.a.out_lse = dense.out_lse.data();
  dense.run();
  std::vector<Bf16> out(5 * (width + 40), Bf16{0x1234});
  std::vector<float> out_lse(5 * 7, -7);
  a.out = out.data();
  a.out_row = static_cast<std::int64_t>(width + 40);
  a.out_lse = out_lse.data();
  a.out_lse_row = 7;
  for (std::int64_t i = 0; i < merge_threads(a); ++i) merge_thread(a, i);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t row = i / (width + 40), column = i % (width + 40);
    EXPECT_EQ(out[i].bits, column < width ? dense.out[row * width + column].bits : 0x1234);
  }
  for (std::size_t i = 0; i < out_lse.size(); ++i)
    EXPECT_EQ(out_lse[i], i % 7 < 3 ? dense.out_lse[i / 7 * 3 + i % 7] : -7);
}

// As the kernel does: the threads of a block all read before one writes.
TEST(MergeKernel, InPlaceOnceTheThreadsOfAHeadHaveRead) {
  EXPECT_TRUE(merges_in_place(64));
  EXPECT_TRUE(merges_in_place(512));
  EXPECT_FALSE(merges_in_place(192)) << "a head would span blocks";
  EXPECT_FALSE(merges_in_place(4096));
  Merge apart(2, 7, 5, 128, 6), in_place(2, 7, 5, 128, 6);
  apart.run();
  MergeArguments& a = in_place.a;
  a.out = in_place.outputs[0].data();
  a.out_lse = in_place.lses[0].data();
  const std::int64_t threads = merge_threads(a);
  for (std::int64_t first = 0; first < threads; first += kMergeBlock) {
    std::vector<MergePiece> pieces;
    const std::int64_t last = std::min(first + kMergeBlock, threads);
    for (std::int64_t i = first; i < last; ++i) pieces.push_back(merge_read(a, i));
    for (std::int64_t i = first; i < last; ++i)
      merge_write(a, i, pieces[static_cast<std::size_t>(i - first)]);
  }
  for (std::size_t i = 0; i < apart.out.size(); ++i)
    EXPECT_EQ(in_place.outputs[0][i].bits, apart.out[i].bits);
  EXPECT_EQ(in_place.lses[0], apart.out_lse);
}

// Places beyond 32 bits take another way than those below.
TEST(MergeKernel, PlacesOfThreadsDoNotOverflow) {
  MergeArguments a{};
  a.rows = std::int64_t{1} << 31;
  a.heads = 96;
  a.head_dim = 128;
  const std::int64_t last = merge_threads(a) - 1;
  for (const std::int64_t index : {std::int64_t{0}, std::int64_t{0xffffffff}, std::int64_t{1} << 32, last}) {
    const MergePlace at = merge_place(a, index);
    EXPECT_EQ((at.row * 96 + at.head) * 16 + at.piece, index);
    EXPECT_LT(at.head, 96);
    EXPECT_LT(at.piece, 16);
  }
}

TEST(MergeKernel, MovesEachPartOnceAndTheResult) {
  const Merge m(3, 10, 16, 128, 1);
  EXPECT_EQ(merge_bytes(m.a), 160 * 4 * (256 + 4.0));
}

}  // namespace
}  // namespace shardline
