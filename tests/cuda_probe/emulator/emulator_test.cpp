// The emulator itself: what PTX promises, and that misuse is found.
#include "cuda_probe/device/hopper.hpp"
#include "cuda_probe/device/mma.hpp"
#include "cuda_probe/device/simt.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace shardline {
namespace {

using namespace device;
using emulator::EmulationError;
using emulator::Grid;
using emulator::Options;
using emulator::ThreadOrder;

std::string error_of(const Grid& grid, const std::function<void(std::byte*)>& body) {
  try {
    emulator::run(grid, {}, body);
  } catch (const EmulationError& e) {
    return e.what();
  }
  return {};
}

TEST(Emulator, ShufflesAndBallotsWithinAWarp) {
  emulator::run({2, 1, 1, 64, 0}, {}, [](std::byte*) {
    EXPECT_EQ(shuffle(thread(), 5), warp() * 32 + 5);
    EXPECT_EQ(shuffle_xor(thread(), 3), thread() ^ 3);
    EXPECT_EQ(ballot(lane() % 2 == 0), 0x55555555u);
  });
}

TEST(Emulator, BarrierMakesWritesVisibleInEveryOrder) {
  for (const auto order : {ThreadOrder::ascending, ThreadOrder::descending, ThreadOrder::random}) {
    emulator::run({1, 1, 1, 96, 96 * 4}, {order, 3, true}, [](std::byte* shared) {
      int* numbers = reinterpret_cast<int*>(shared);
      numbers[thread()] = thread();
      sync_threads();
      EXPECT_EQ(numbers[(thread() + 50) % 96], (thread() + 50) % 96);
    });
  }
}

TEST(Emulator, AMissingBarrierShowsInSomeOrder) {
  int wrong = 0;
  for (const auto order : {ThreadOrder::ascending, ThreadOrder::descending}) {
    emulator::run({1, 1, 1, 64, 256}, {order, 1, true}, [&](std::byte* shared) {
      int* numbers = reinterpret_cast<int*>(shared);
      numbers[thread()] = thread();
      if (numbers[63 - thread()] != 63 - thread()) ++wrong;
    });
  }
  EXPECT_GT(wrong, 0);
}

TEST(Emulator, FindsMisuse) {
  EXPECT_NE(error_of({1, 1, 1, 64, 0},
                     [](std::byte*) {
                       if (thread() < 40) sync_threads();
                     })
                .find("sync_threads"),
            std::string::npos);
  EXPECT_NE(error_of({1, 1, 1, 32, 0},
                     [](std::byte*) {
                       if (lane() < 16) {
                         shuffle(1, 0);
                       } else {
                         sync_warp();
                       }
                     })
                .find("while others"),
            std::string::npos);
  EXPECT_NE(
      error_of({1, 1, 1, 32, 64}, [](std::byte* shared) { shared_address(shared + 64); }).find("outside"),
      std::string::npos);
  EXPECT_NE(error_of({1, 1, 1, 128, 2048},
                     [](std::byte* shared) {
                       float d[32] = {};
                       wgmma<false>(d, rows_descriptor(shared_address(shared)),
                                    rows_descriptor(shared_address(shared)), false);
                     })
                .find("wgmma_fence"),
            std::string::npos);
  EXPECT_NE(error_of({1, 1, 1, 32, 64},
                     [](std::byte* shared) { barrier_arrive(reinterpret_cast<std::uint64_t*>(shared)); })
                .find("not initialised"),
            std::string::npos);
}

TEST(Emulator, PassesOnWhatTheKernelThrows) {
  EXPECT_THROW(emulator::run({1, 1, 1, 32, 0}, {},
                             [](std::byte*) {
                               if (thread() == 9) throw std::out_of_range("9");
                               sync_warp();
                             }),
               std::out_of_range);
}

// Fragments as the PTX ISA draws them: element (row, column) of a is 16 * row + column, b is the identity.
TEST(Emulator, MmaFragments) {
  emulator::run({1, 1, 1, 32, 0}, {}, [](std::byte*) {
    const int g = lane() / 4, t = lane() % 4;
    const auto element = [](int row, int k) { return static_cast<float>(16 * row + k); };
    const std::uint32_t a[4] = {pack(element(g, 2 * t), element(g, 2 * t + 1)),
                                pack(element(g + 8, 2 * t), element(g + 8, 2 * t + 1)),
                                pack(element(g, 2 * t + 8), element(g, 2 * t + 9)),
                                pack(element(g + 8, 2 * t + 8), element(g + 8, 2 * t + 9))};
    const auto unit = [&](int k) { return pack(k == g ? 1.0f : 0.0f, k + 1 == g ? 1.0f : 0.0f); };
    float c[4] = {0.5f, 0.5f, 0.5f, 0.5f};
    mma(c, a, unit(2 * t), unit(2 * t + 8));
    EXPECT_EQ(c[0], element(g, 2 * t) + 0.5f);
    EXPECT_EQ(c[1], element(g, 2 * t + 1) + 0.5f);
    EXPECT_EQ(c[2], element(g + 8, 2 * t) + 0.5f);
    EXPECT_EQ(c[3], element(g + 8, 2 * t + 1) + 0.5f);
  });
}

TEST(Emulator, LoadMatricesAndTransposed) {
  emulator::run({1, 1, 1, 32, 512}, {}, [](std::byte* shared) {
    auto* m = reinterpret_cast<std::uint16_t*>(shared);  // four 8 x 8 matrices, one after the other
    for (int i = lane(); i < 256; i += 32) m[i] = static_cast<std::uint16_t>(i);
    sync_warp();
    std::uint32_t w[4];
    load_matrices(w, m + lane() * 8);
    for (int i = 0; i < 4; ++i) {
      const auto low = static_cast<std::uint32_t>(64 * i + lane() / 4 * 8 + lane() % 4 * 2);
      EXPECT_EQ(w[i], low | (low + 1) << 16);
    }
    load_matrices_transposed(w, m + lane() * 8);
    for (int i = 0; i < 4; ++i) {
      const auto low = static_cast<std::uint32_t>(64 * i + lane() % 4 * 2 * 8 + lane() / 4);
      EXPECT_EQ(w[i], low | (low + 8) << 16);
    }
  });
}

TEST(Emulator, CopiesArriveWhenWaitedFor) {
  std::vector<Words4> source(64);
  for (std::uint32_t i = 0; i < 64; ++i) source[i] = {{i, i, i, i}};
  for (const bool late : {true, false}) {
    emulator::run({1, 1, 1, 32, 32 * 32}, {ThreadOrder::ascending, 1, late}, [&](std::byte* shared) {
      auto* to = reinterpret_cast<Words4*>(shared);
      const auto t = static_cast<std::uint32_t>(thread());
      copy_async(to + t, &source[t], true);
      commit_copies();
      copy_async(to + 32 + t, &source[32 + t], t % 2 == 0);
      commit_copies();
      EXPECT_EQ(to[t].w[0] == t, !late);
      wait_copies<1>();
      EXPECT_EQ(to[t].w[0], t);
      wait_copies<0>();
      EXPECT_EQ(to[32 + t].w[3], t % 2 == 0 ? 32 + t : 0);
    });
  }
}

/// Small integers; rows below the last are zeros. Maps of it have boxes of 64 columns x 128 rows.
struct Matrix {
  static constexpr int kRows = 200, kColumns = 128;
  std::vector<Bf16> values = std::vector<Bf16>(kRows * kColumns);

  Matrix() {
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kColumns; ++c)
        values[index(r, c)] = to_bf16(static_cast<float>((r * 7 + c * 3) % 11 - 5));
    }
  }
  static std::size_t index(int r, int c) { return static_cast<std::size_t>(r * kColumns + c); }
  float at(int r, int c) const { return r < kRows ? to_float(values[index(r, c)]) : 0.0f; }
  TensorMap map() const { return {values.data(), {kColumns, kRows, 1}, {2, 2 * kColumns, 0}, {64, 128, 1}}; }
};

// Rows kFirst to kFirst + 127 of the matrix in two tiles of 64 columns each, then a barrier.
constexpr int kFirst = 100, kTile = 128 * 128;

void copy_tiles(std::byte* shared, const TensorMap& map) {
  auto* barrier = reinterpret_cast<std::uint64_t*>(shared + 2 * kTile);
  if (thread() == 0) {
    barrier_init(barrier, 1);
    fence_barriers();
  }
  sync_threads();
  if (thread() == 0) {
    barrier_expect(barrier, 2 * kTile);
    copy_tensor(shared, &map, barrier, 0, kFirst, 0);
    copy_tensor(shared + kTile, &map, barrier, 64, kFirst, 0);
  }
  barrier_wait(barrier, 0);
}

/// The row and the first column of d[0] of this thread.
int row_of_thread() { return warp() * 16 + lane() / 4; }
int column_of_thread() { return 2 * (lane() % 4); }

/// d: rows 64.. of the tiles times rows 0..127 of them, 16 deep from column 80.
void multiply_from_shared(std::byte* shared, const Matrix& matrix, float (&d)[64]) {
  const int row = row_of_thread(), column = column_of_thread();
  const std::uint32_t second = shared_address(shared + kTile);
  wgmma_fence();
  wgmma<false>(d, rows_descriptor(second + 64 * 128 + 32), rows_descriptor(second + 32), false);
  wgmma_commit();
  wgmma_wait<0>();
  for (int i = 0; i < 64; ++i) {
    float want = 0;
    for (int k = 80; k < 96; ++k)
      want +=
          matrix.at(kFirst + 64 + row + i % 4 / 2 * 8, k) * matrix.at(kFirst + i / 4 * 8 + column + i % 2, k);
    ASSERT_EQ(d[i], want) << i;
  }
}

/// From registers, against rows 32..47 as K and all 128 columns as N; on top of what is in d.
void multiply_from_registers(std::byte* shared, const Matrix& matrix, float (&d)[64]) {
  const int row = row_of_thread(), column = column_of_thread();
  const auto left = [](int m, int k) { return static_cast<float>((m * 5 + k) % 7); };
  std::uint32_t a[4];
  for (int i = 0; i < 4; ++i) {
    const int m = row + i % 2 * 8, k = column + i / 2 * 8;
    a[i] = pack(left(m, k), left(m, k + 1));
  }
  float before[64];
  std::copy(d, d + 64, before);
  wgmma_fence();
  wgmma<true>(d, a, columns_descriptor(shared_address(shared) + 32 * 128, kTile), true);
  wgmma_commit();
  wgmma_wait<0>();
  for (int i = 0; i < 64; ++i) {
    float want = before[i];
    for (int k = 0; k < 16; ++k)
      want += left(row + i % 4 / 2 * 8, k) * matrix.at(kFirst + 32 + k, i / 4 * 8 + column + i % 2);
    ASSERT_EQ(d[i], want) << i;
  }
}

// A box of a larger matrix comes in, swizzled, with zeros outside; products of it in all operand forms.
TEST(Emulator, TensorCopyAndWarpgroupProducts) {
  const Matrix matrix;
  const TensorMap map = matrix.map();
  for (const bool late : {true, false}) {
    emulator::run({1, 1, 1, 128, 2 * kTile + 64}, {ThreadOrder::random, 5, late}, [&](std::byte* shared) {
      copy_tiles(shared, map);
      for (int c = 0; c < 64; c += 8)
        EXPECT_EQ(to_float(*reinterpret_cast<Bf16*>(shared + kTile + tile_offset(thread(), c))),
                  matrix.at(kFirst + thread(), 64 + c));
      float d[64];
      multiply_from_shared(shared, matrix, d);
      multiply_from_registers(shared, matrix, d);
    });
  }
}

// Ordinary writes reach wgmma by a fence only.
TEST(Emulator, ProductsNeedAFenceAfterOrdinaryWrites) {
  const auto with = [](bool fence) {
    return error_of({1, 1, 1, 128, 16384}, [&](std::byte* shared) {
      for (int i = thread(); i < 16384 / 4; i += 128)
        reinterpret_cast<std::uint32_t*>(shared)[i] = 0x3f803f80u;
      if (fence) fence_for_async();
      sync_threads();
      float d[32];
      wgmma_fence();
      wgmma<false>(d, rows_descriptor(shared_address(shared)), rows_descriptor(shared_address(shared) + 8192),
                   false);
      wgmma_commit();
      wgmma_wait<0>();
      EXPECT_EQ(d[0], 16);
    });
  };
  EXPECT_EQ(with(true), "");
  EXPECT_NE(with(false).find("fence_for_async"), std::string::npos);
}

// What one warp has waited for another may still read.
TEST(Emulator, AWaitIsOfOneWarpOnly) {
  const auto with = [](bool meet) {
    return error_of({1, 1, 1, 128, 16384}, [&](std::byte* shared) {
      for (int i = thread(); i < 16384 / 4; i += 128)
        reinterpret_cast<std::uint32_t*>(shared)[i] = 0x3f803f80u;
      fence_for_async();
      sync_threads();
      float d[32];
      wgmma_fence();
      wgmma<false>(d, rows_descriptor(shared_address(shared)), rows_descriptor(shared_address(shared) + 8192),
                   false);
      wgmma_commit();
      wgmma_wait<0>();
      if (meet) sync_threads();
      if (warp() == 0) reinterpret_cast<std::uint32_t*>(shared + 8192)[lane()] = 0;
    });
  };
  EXPECT_EQ(with(true), "");
  EXPECT_NE(with(false), "");
}

TEST(Emulator, FindsMisuseOfCopies) {
  alignas(16) static const Bf16 matrix[64 * 8] = {};
  const TensorMap map{matrix, {64, 8, 1}, {2, 128, 1024}, {64, 8, 1}};
  const auto with = [&](bool fence, bool wait) {
    return error_of({1, 1, 1, 32, 1024 + 64}, [&](std::byte* shared) {
      auto* barrier = reinterpret_cast<std::uint64_t*>(shared + 1024);
      if (thread() == 0) {
        barrier_init(barrier, 1);
        if (fence) fence_barriers();
      }
      sync_threads();
      if (thread() == 0) {
        barrier_expect(barrier, 1024);
        copy_tensor(shared, &map, barrier, 0, 0, 0);
      }
      if (wait) barrier_wait(barrier, 0);
    });
  };
  EXPECT_EQ(with(true, true), "");
  EXPECT_NE(with(false, true).find("fence_barriers"), std::string::npos);
  EXPECT_NE(with(true, false).find("ended before"), std::string::npos);
}

}  // namespace
}  // namespace shardline
