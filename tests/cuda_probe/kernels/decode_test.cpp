// The decode kernels' own code, thread by thread on the CPU, against attention in double.
#include "cuda_probe/emulator/warp.hpp"
// The emulator first: it decides what device code means.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cuda_probe/kernels/decode_kernel.hpp"
#include "cuda_probe/kernels/decode_parts.hpp"
#include "cuda_probe/kernels/splits.hpp"
#include "tests/cuda_probe/kernels/support.hpp"

namespace shardline {
namespace {

struct Shape {
  int head_dim = 128, group = 8, kv_heads = 1;
  std::vector<int> lengths;
  int page_rows = 0;  // 0: contiguous
  int splits = 1;
  bool interleaved = true;  // keys and values in one matrix
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << "head_dim " << s.head_dim << ", group " << s.group << ", kv_heads " << s.kv_heads
             << ", page_rows " << s.page_rows << ", splits " << s.splits;
}

constexpr Bf16 kNan{0x7fff};

/// A cache whose every row is NaN but those of the sequences; its rows in the order of `row_of`.
class Problem {
 public:
  explicit Problem(const Shape& s) : s_(s), sequences_(static_cast<int>(s.lengths.size())) {
    a_.sequences = sequences_;
    a_.kv_heads = s.kv_heads;
    a_.q_heads = s.group * s.kv_heads;
    a_.head_dim = s.head_dim;
    a_.scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
    a_.splits = s.splits;
    a_.q_head = s.head_dim + 8;
    a_.q_row = a_.q_heads * a_.q_head + 24;
    a_.out_head = s.head_dim + 16;
    a_.out_row = a_.q_heads * a_.out_head + 8;
    a_.lse_row = a_.q_heads + 3;
    a_.kv_head = s.interleaved ? 2 * s.head_dim : s.head_dim;
    a_.kv_row = s.kv_heads * a_.kv_head + 8;
    std::int64_t rows = 0;
    if (s.page_rows == 0) {
      for (const int length : s.lengths) {
        begin_.push_back(rows + 3);
        rows += 3 + length;
      }
      rows += 70;
    } else {
      rows = scatter_pages();
    }
    fill_cache(rows);
    q_ = normal_numbers(static_cast<std::size_t>(sequences_ * a_.q_row), 5);
    a_.q = q_.data();
    a_.kv_rows = s_.lengths.data();
  }

  emulator::Counts run(const emulator::Options& options) {
    const auto rows = static_cast<std::size_t>(sequences_);
    const std::size_t parts = static_cast<std::size_t>(s_.splits * sequences_ * a_.q_heads);
    out_.assign(rows * static_cast<std::size_t>(a_.out_row), kNan);
    lse_.assign(rows * static_cast<std::size_t>(a_.lse_row), 77);
    partial_out_.assign(parts * static_cast<std::size_t>(s_.head_dim), NAN);
    partial_lse_.assign(parts, NAN);
    a_.out = out_.data();
    a_.lse = lse_.data();
    a_.partial_out = partial_out_.data();
    a_.partial_lse = partial_lse_.data();
    return s_.head_dim == 64 ? run_bands<64>(options) : run_bands<128>(options);
  }

  void check() const {
    std::vector<double> want;
    for (int s = 0; s < sequences_; ++s) {
      for (int head = 0; head < a_.q_heads; ++head) {
        const double lse = reference(s, head, want);
        const Bf16* got = out_.data() + s * a_.out_row + head * a_.out_head;
        const float got_lse = lse_[static_cast<std::size_t>(s * a_.lse_row + head)];
        if (lse == kNothingSeen) {
          ASSERT_EQ(got_lse, -INFINITY) << s << ' ' << head;
        } else {
          ASSERT_NEAR(got_lse, lse, 1e-5 * std::max(1.0, std::abs(lse))) << s << ' ' << head;
        }
        for (int d = 0; d < s_.head_dim; ++d) {
          const double value = static_cast<double>(to_float(got[d]));
          // Weights and the output are rounded to 8 bits: 2^-9 of sum(p |v|), |v| < 6, and of the output.
          ASSERT_NEAR(value, want[static_cast<std::size_t>(d)], 0x1p-9 * (6 + std::abs(value)) + 1e-5)
              << "sequence " << s << " head " << head << " column " << d;
          if (lse == kNothingSeen) {
            ASSERT_EQ(value, 0);
          }
        }
        // What lies between the heads stays as it was.
        for (std::int64_t d = s_.head_dim; d < a_.out_head; ++d) ASSERT_EQ(got[d].bits, kNan.bits);
      }
      for (std::int64_t i = a_.q_heads; i < a_.lse_row; ++i)
        ASSERT_EQ(lse_[static_cast<std::size_t>(s * a_.lse_row + i)], 77);
    }
  }

  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> b;
    for (const Bf16 v : out_) b.push_back(v.bits);
    for (const float v : lse_) {
      b.emplace_back();
      std::memcpy(&b.back(), &v, 4);
    }
    return b;
  }
  const DecodeArguments& a() const { return a_; }
  std::vector<float>& partial_lse() { return partial_lse_; }
  std::vector<float>& partial_out() { return partial_out_; }

 private:
  template <int HeadDim>
  emulator::Counts run_bands(const emulator::Options& options) {
    const emulator::Counts counts = s_.group <= 16   ? run_one<Decode<HeadDim, 1>>(options)
                                    : s_.group <= 32 ? run_one<Decode<HeadDim, 2>>(options)
                                                     : run_one<Decode<HeadDim, 4>>(options);
    if (s_.splits > 1) {
      using Merge = DecodeMerge<HeadDim>;
      emulator::run({a_.q_heads, sequences_, 1, Merge::kThreads, Merge::kSharedBytes}, options,
                    [&](std::byte* shared) { Merge::run(a_, shared); });
    }
    return counts;
  }
  template <class Kernel>
  emulator::Counts run_one(const emulator::Options& options) {
    return emulator::run({s_.kv_heads, sequences_, s_.splits, Kernel::kThreads, Kernel::kSharedBytes},
                         options, [&](std::byte* shared) { Kernel::run(a_, shared); });
  }

  /// Pages of all sequences in a mixed order; entries that no row needs would lead far outside.
  std::int64_t scatter_pages() {
    std::vector<std::int32_t> free;
    std::int32_t most = 1;
    for (const int length : s_.lengths) most = std::max(most, (length + s_.page_rows - 1) / s_.page_rows + 1);
    for (std::int32_t i = 0; i < most * sequences_ + 3; ++i) free.push_back(i);
    std::mt19937_64 random(11);
    for (std::size_t i = free.size() - 1; i > 0; --i) std::swap(free[i], free[random() % (i + 1)]);
    a_.most_pages = most;
    a_.page_rows = s_.page_rows;
    pages_.assign(static_cast<std::size_t>(most * sequences_), 1 << 30);
    std::size_t next = 0;
    for (int s = 0; s < sequences_; ++s) {
      for (int row = 0; row < s_.lengths[static_cast<std::size_t>(s)]; row += s_.page_rows)
        pages_[static_cast<std::size_t>(s * most + row / s_.page_rows)] = free[next++];
    }
    a_.pages = pages_.data();
    return static_cast<std::int64_t>(free.size()) * s_.page_rows;
  }

  std::int64_t row_of(int sequence, int row) const {
    if (s_.page_rows == 0) return begin_[static_cast<std::size_t>(sequence)] + row;
    const std::int64_t page = pages_[static_cast<std::size_t>(sequence * a_.most_pages + row / s_.page_rows)];
    return page * s_.page_rows + row % s_.page_rows;
  }

  void fill_cache(std::int64_t rows) {
    const auto size = static_cast<std::size_t>(rows * a_.kv_row);
    k_.assign(size, kNan);
    if (!s_.interleaved) v_.assign(size, kNan);
    Bf16* const v = s_.interleaved ? k_.data() + s_.head_dim : v_.data();
    for (int s = 0; s < sequences_; ++s) {
      const int length = s_.lengths[static_cast<std::size_t>(s)], width = s_.kv_heads * s_.head_dim;
      const std::vector<Bf16> numbers =
          normal_numbers(static_cast<std::size_t>(2 * length * width), static_cast<std::uint64_t>(100 + s));
      for (int row = 0; row < length; ++row) {
        for (int i = 0; i < width; ++i) {
          const std::int64_t at = row_of(s, row) * a_.kv_row + i / s_.head_dim * a_.kv_head + i % s_.head_dim;
          k_[static_cast<std::size_t>(at)] = numbers[static_cast<std::size_t>(2 * row * width + i)];
          v[at] = numbers[static_cast<std::size_t>((2 * row + 1) * width + i)];
        }
      }
    }
    a_.k = k_.data();
    a_.v = v;
    a_.kv_begin = s_.page_rows == 0 ? begin_.data() : nullptr;
  }

  double reference(int s, int head, std::vector<double>& want) const {
    const int length = s_.lengths[static_cast<std::size_t>(s)];
    const std::int64_t column = head / s_.group * a_.kv_head;
    std::vector<Bf16> k, v;
    for (int row = 0; row < length; ++row) {
      const std::int64_t at = row_of(s, row) * a_.kv_row + column;
      k.insert(k.end(), a_.k + at, a_.k + at + s_.head_dim);
      v.insert(v.end(), a_.v + at, a_.v + at + s_.head_dim);
    }
    return plain_attention(
        a_.q + s * a_.q_row + head * a_.q_head, s_.head_dim, k.data(), v.data(), s_.head_dim, s_.head_dim,
        length, static_cast<double>(a_.scale), [](std::int64_t) { return true; }, want);
  }

  Shape s_;
  int sequences_;
  DecodeArguments a_{};
  std::vector<std::int64_t> begin_;
  std::vector<std::int32_t> pages_;
  std::vector<Bf16> q_, k_, v_, out_;
  std::vector<float> lse_, partial_out_, partial_lse_;
};

void check(const Shape& shape) {
  Problem problem(shape);
  const emulator::Counts counts = problem.run({});
  problem.check();
  // Each tile of keys and values is read once for all heads of a group.
  double tiles = 0;
  for (const int length : shape.lengths) tiles += (length + 63) / 64;
  EXPECT_EQ(counts.bytes_async, tiles * 64 * shape.kv_heads * shape.head_dim * 2 * 2);
  const int bands = (shape.group + 15) / 16;
  EXPECT_EQ(counts.mma_flops, tiles * 64 * shape.kv_heads * bands * 16 * shape.head_dim * 4);
}

TEST(Decode, EqualsPlainAttention) {
  const std::vector<int> lengths{64, 0, 65, 1, 1000, 63};
  int turn = 0;
  for (const int head_dim : {64, 128}) {
    for (const int group : {1, 3, 4, 8, 16, 24, 40, 64}) {
      const Shape shape{head_dim, group,        1 + turn % 2, lengths, turn % 4 < 2 ? 0 : 16 << turn / 4,
                        1,        turn % 3 != 0};
      ++turn;
      SCOPED_TRACE(testing::PrintToString(shape));
      check(shape);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Decode, SplitsAreMerged) {
  const std::vector<int> lengths{0, 1000, 1, 65};
  for (const int head_dim : {64, 128}) {
    for (const int splits : {2, 5, 16, 40}) {
      const bool even = splits % 2 == 0;
      const Shape shape{head_dim, even ? 5 : 24, even ? 2 : 1, lengths, even ? 32 : 0, splits};
      SCOPED_TRACE(testing::PrintToString(shape));
      check(shape);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Decode, PagesOfAllSizes) {
  for (const int page_rows : {16, 32, 64, 128, 256}) {
    const Shape shape{64, 4, 2, {300, 16, 17, 255, 256}, page_rows, 3, false};
    SCOPED_TRACE(testing::PrintToString(shape));
    check(shape);
    if (HasFatalFailure()) return;
  }
}

TEST(Decode, OrderOfThreadsAndCopiesDoesNotMatter) {
  for (const Shape& shape :
       {Shape{64, 8, 1, {600, 70}, 16, 1}, Shape{128, 20, 1, {330}, 0, 1}, Shape{128, 50, 1, {330}, 64, 2}}) {
    SCOPED_TRACE(testing::PrintToString(shape));
    Problem problem(shape);
    problem.run({});
    const auto want = problem.bits();
    for (const emulator::Options& options : kOtherOrders) {
      problem.run(options);
      EXPECT_EQ(problem.bits(), want) << static_cast<int>(options.order) << options.late;
    }
  }
}

// Scores far apart: splits must be weighed by their log-sum-exps, whichever holds the highest.
TEST(Decode, MergeWeighsByLogSumExp) {
  const Shape shape{64, 1, 1, {0}, 0, 70};
  Problem problem(shape);
  problem.run({});
  std::vector<float>& lse = problem.partial_lse();
  for (const int highest : {0, 7, 8, 69}) {
    std::fill(lse.begin(), lse.end(), -INFINITY);
    std::fill(problem.partial_out().begin(), problem.partial_out().end(), NAN);
    double sum = 0, weights = 0;
    for (const int split : {0, 7, 8, 17, 40, 69}) {
      const float value = split == highest ? 500.0f : split == 40 ? 300.0f : 499.0f;
      lse[static_cast<std::size_t>(split)] = value;
      const double weight = std::exp(static_cast<double>(value) - 500);
      weights += weight;
      sum += weight * (split + 1);
      std::fill_n(problem.partial_out().begin() + split * 64, 64, static_cast<float>(split + 1));
    }
    using Merge = DecodeMerge<64>;
    emulator::run({1, 1, 1, Merge::kThreads, Merge::kSharedBytes}, {},
                  [&](std::byte* shared) { Merge::run(problem.a(), shared); });
    const double want = sum / weights;
    for (int d = 0; d < 64; ++d) ASSERT_NEAR(to_float(problem.a().out[d]), want, want * 0x1p-8) << highest;
    EXPECT_NEAR(problem.a().lse[0], 500 + std::log(weights), 500 * 0x1p-22);
  }
}

TEST(Decode, TilesAreSharedEvenly) {
  for (const int tiles : {0, 1, 7, 2048}) {
    for (const int splits : {1, 3, 8, 66}) {
      int next = 0, least = tiles, most = 0;
      for (int split = 0; split < splits; ++split) {
        const decode_parts::Tiles part = decode_parts::split_tiles(tiles, splits, split);
        EXPECT_EQ(part.first, next);
        next = part.last;
        least = std::min(least, part.last - part.first);
        most = std::max(most, part.last - part.first);
      }
      EXPECT_EQ(next, tiles);
      EXPECT_LE(most - least, 1);
    }
  }
}

TEST(Decode, SplitsFillTheDevice) {
  constexpr int kSms = 132;
  for (const std::int64_t rows : {1, 1000, 8192, 131072, 1 << 20}) {
    for (const int sequences : {1, 3, 32, 1000}) {
      for (const int kv_heads : {1, 2, 8, 32}) {
        const int splits = decode_splits(rows, sequences, kv_heads, kSms);
        SCOPED_TRACE(testing::Message() << rows << ' ' << sequences << ' ' << kv_heads << ": " << splits);
        ASSERT_GE(splits, 1);
        if (splits > 1) {
          EXPECT_GE(rows / splits, 512);
        }
        const double waves = static_cast<double>(splits) * sequences * kv_heads / (2 * kSms);
        // Few pairs of a long cache: full waves. Long enough that 512 keys do not stand in the way.
        if (rows / 512 * sequences * kv_heads >= 8 * kSms) {
          EXPECT_GE(waves / std::ceil(waves), 0.9);
        }
      }
    }
  }
  EXPECT_EQ(decode_splits(0, 1, 1, kSms), 1);
  EXPECT_EQ(decode_splits(131072, 0, 8, kSms), 1);
}

TEST(Decode, BytesAndFlops) {
  DecodeArguments a{};
  a.sequences = 2;
  a.q_heads = 16;
  a.kv_heads = 2;
  a.head_dim = 128;
  a.splits = 1;
  // 300 rows of 2 heads, 512 bytes each; 32 rows of queries and of outputs.
  EXPECT_EQ(decode_bytes(a, 300), 300 * 2 * 512 + 32 * 512);
  a.splits = 3;
  EXPECT_EQ(decode_bytes(a, 300), 300 * 2 * 512 + 32 * 512 + 2 * 3 * 32 * (512 + 4));
  EXPECT_EQ(decode_flops(a, 300), 4.0 * 300 * 16 * 128);
}

}  // namespace
}  // namespace shardline
