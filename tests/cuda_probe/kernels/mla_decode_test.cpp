// The MLA decode kernels' own code, thread by thread on the CPU, against attention in double.
#include "cuda_probe/emulator/warp.hpp"
// The emulator first: it decides what device code means.
#include <gtest/gtest.h>

#include <numeric>

#include "cuda_probe/kernels/mla_decode_merge.hpp"
#include "cuda_probe/kernels/mla_decode_mma.hpp"
#include "cuda_probe/kernels/mla_decode_wgmma.hpp"
#include "cuda_probe/kernels/splits.hpp"
#include "tests/cuda_probe/kernels/support.hpp"

namespace shardline {
namespace {

struct Problem {
  const char* name;
  int heads = 1, splits = 1, page_rows = 0;  // page_rows 0: contiguous
  std::vector<int> lengths = {0, 1, 31, 33, 400};
};

constexpr int kWidth = kLatent + kRotary;

/// Rows of odd strides; every cache row that no sequence holds is NaN, and in pages the pages are scrambled.
template <class Kernel>
class MlaAttention {
 public:
  explicit MlaAttention(const Problem& p) : lengths_(p.lengths.begin(), p.lengths.end()) {
    a_.sequences = static_cast<std::int32_t>(p.lengths.size());
    a_.q_heads = p.heads;
    a_.splits = p.splits;
    a_.scale = 1 / std::sqrt(192.0f);
    a_.q_head = kWidth + 8;
    a_.q_row = p.heads * a_.q_head + 16;
    a_.kv_row = kWidth + 8;
    a_.out_head = kLatent + 8;
    a_.out_row = p.heads * a_.out_head + 16;
    a_.lse_row = p.heads + 1;
    a_.kv_rows = lengths_.data();
    place_rows(p.page_rows);
    q_ = normal_numbers(static_cast<std::size_t>(a_.sequences * a_.q_row), 1);
    a_.q = q_.data();
    numbers_ = normal_numbers(at_.size() * kWidth, 2);
    kv_.assign(static_cast<std::size_t>(all_rows_ * a_.kv_row), Bf16{0x7fff});
    for (std::size_t i = 0; i < at_.size(); ++i)
      std::copy_n(numbers_.begin() + static_cast<std::ptrdiff_t>(i * kWidth), kWidth,
                  kv_.begin() + static_cast<std::ptrdiff_t>(at_[i] * a_.kv_row));
    a_.kv = kv_.data();
    a_.cache_rows = all_rows_;
  }

  emulator::Counts run(const emulator::Options& options) {
    out_.assign(static_cast<std::size_t>(a_.sequences * a_.out_row), Bf16{0x7fff});
    lse_.assign(static_cast<std::size_t>(a_.sequences * a_.lse_row), NAN);
    const std::size_t cells = static_cast<std::size_t>(a_.splits * a_.sequences * a_.q_heads);
    partial_out_.assign(cells * kLatent, NAN);
    partial_lse_.assign(cells, NAN);
    a_.out = out_.data();
    a_.lse = lse_.data();
    a_.partial_out = partial_out_.data();
    a_.partial_lse = partial_lse_.data();
    const emulator::Grid grid{(a_.q_heads + Kernel::kHeads - 1) / Kernel::kHeads, a_.splits, a_.sequences,
                              Kernel::kThreads, Kernel::kSharedBytes};
    const typename Kernel::Arguments x = arguments();
    const emulator::Counts counts =
        emulator::run(grid, options, [&](std::byte* shared) { Kernel::run(x, shared); });
    if (a_.splits > 1)
      emulator::run({static_cast<int>(MlaDecodeMerge::blocks(a_)), 1, 1, MlaDecodeMerge::kThreads, 0},
                    options, [&](std::byte*) { MlaDecodeMerge::run(a_); });
    return counts;
  }

  void check() const {
    std::vector<double> want;
    std::int64_t first = 0;
    for (std::int64_t sequence = 0; sequence < a_.sequences; ++sequence) {
      const std::int64_t length = lengths_[static_cast<std::size_t>(sequence)];
      for (int head = 0; head < a_.q_heads; ++head) {
        const Bf16* keys = numbers_.data() + first * kWidth;
        const double lse = plain_attention(
            a_.q + sequence * a_.q_row + head * a_.q_head, kWidth, keys, keys, kWidth, kLatent, length,
            static_cast<double>(a_.scale), [](std::int64_t) { return true; }, want);
        const float got_lse = lse_[static_cast<std::size_t>(sequence * a_.lse_row + head)];
        if (lse == kNothingSeen) {
          ASSERT_EQ(got_lse, -INFINITY) << sequence << ' ' << head;
        } else {
          ASSERT_NEAR(got_lse, lse, 1e-5 * std::max(1.0, std::abs(lse))) << sequence << ' ' << head;
        }
        for (int d = 0; d < a_.out_head; ++d) {
          const Bf16 bits = out_[static_cast<std::size_t>(sequence * a_.out_row + head * a_.out_head + d)];
          const double got = static_cast<double>(to_float(bits));
          if (d >= kLatent) {  // what lies between stays as it was
            ASSERT_EQ(bits.bits, 0x7fff);
          } else if (length == 0) {
            ASSERT_EQ(bits.bits, 0);
          } else {
            // Weights and the output are rounded to 8 bits: 2^-9 of sum(p |v|), |v| < 6, and of the output.
            ASSERT_NEAR(got, want[static_cast<std::size_t>(d)], 0x1p-9 * (6 + std::abs(got)) + 1e-5)
                << "sequence " << sequence << " head " << head << " column " << d;
          }
        }
      }
      first += length;
    }
    for (const float lse : partial_lse_) ASSERT_FALSE(a_.splits > 1 && std::isnan(lse));
  }

  /// Each key's score 8 * scale above that of the key before, through a rotary column.
  void raise_scores() {
    for (std::int64_t s = 0; s < a_.sequences; ++s) {
      for (std::int64_t h = 0; h < a_.q_heads; ++h)
        q_[static_cast<std::size_t>(s * a_.q_row + h * a_.q_head + kWidth - 1)] = to_bf16(8);
    }
    for (std::size_t i = 0; i < at_.size(); ++i) {
      const Bf16 place = to_bf16(static_cast<float>(i));
      numbers_[i * kWidth + kWidth - 1] = place;
      kv_[static_cast<std::size_t>(at_[i] * a_.kv_row + kWidth - 1)] = place;
    }
  }

  std::vector<std::uint16_t> bits() const {
    std::vector<std::uint16_t> b;
    for (const Bf16 v : out_) b.push_back(v.bits);
    return b;
  }
  const MlaDecodeArguments& a() const { return a_; }
  const std::vector<float>& lse() const { return lse_; }

 private:
  /// Where the rows of all sequences lie: at_[i] for the i-th.
  void place_rows(int page_rows) {
    for (const std::int32_t length : lengths_) longest_ = std::max(longest_, length);
    if (page_rows == 0) {
      for (const std::int32_t length : lengths_) {
        all_rows_ += 3;
        begin_.push_back(all_rows_);
        for (int i = 0; i < length; ++i) at_.push_back(all_rows_++);
      }
      all_rows_ += 3;
      a_.kv_begin = begin_.data();
      return;
    }
    a_.page_rows = page_rows;
    a_.most_pages = (longest_ + page_rows - 1) / page_rows + 1;
    std::vector<std::int32_t> order(static_cast<std::size_t>(a_.sequences * a_.most_pages));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(5));
    pages_.assign(order.size(), -1000000);  // an entry beyond a sequence must not be used
    for (std::size_t s = 0, next = 0; s < lengths_.size(); ++s) {
      const std::size_t begin = s * static_cast<std::size_t>(a_.most_pages);
      for (int i = 0; i < lengths_[s]; ++i) {
        std::int32_t& page = pages_[begin + static_cast<std::size_t>(i / page_rows)];
        if (i % page_rows == 0) page = order[next++];
        at_.push_back(std::int64_t{page} * page_rows + i % page_rows);
      }
    }
    all_rows_ = static_cast<std::int64_t>(order.size()) * page_rows;
    a_.pages = pages_.data();
  }

  /// Forms with tensor maps get what their launcher makes of a_.
  typename Kernel::Arguments arguments() const {
    if constexpr (std::is_same_v<typename Kernel::Arguments, MlaDecodeArguments>) {
      return a_;
    } else {
      typename Kernel::Arguments x{};
      using Map = decltype(x.q);
      const auto n = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
      x.a = a_;
      x.q = Map{a_.q,
                {kWidth, n(a_.q_heads), n(a_.sequences)},
                {2, n(2 * a_.q_head), n(2 * a_.q_row)},
                {64, Kernel::kHeads, 1}};
      x.kv = Map{a_.kv,
                 {kWidth, n(a_.cache_rows), 1},
                 {2, n(2 * a_.kv_row), n(2 * a_.kv_row)},
                 {64, static_cast<std::uint32_t>(Kernel::box_rows(a_)), 1}};
      return x;
    }
  }

  MlaDecodeArguments a_{};
  std::int32_t longest_ = 0;
  std::int64_t all_rows_ = 0;
  std::vector<std::int32_t> lengths_, pages_;
  std::vector<std::int64_t> begin_, at_;
  std::vector<Bf16> q_, numbers_, kv_, out_;
  std::vector<float> lse_, partial_out_, partial_lse_;
};

template <class Kernel>
class MlaDecode : public testing::Test {};
using Forms = testing::Types<MlaDecodeMma<64, 32>, MlaDecodeMma<32, 32>, MlaDecodeMma<16, 32>,
                             MlaDecodeMma<64, 16>, MlaDecodeWgmma>;
TYPED_TEST_SUITE(MlaDecode, Forms);

TYPED_TEST(MlaDecode, EqualsPlainAttention) {
  const std::vector<Problem> problems{{"one head", 1},
                                      {"16 heads in 3 splits", 16, 3},
                                      {"16 heads, pages of 64", 16, 1, 64},
                                      {"40 heads, 9 splits, pages of 16", 40, 9, 16},
                                      {"128 heads", 128, 1, 16, {0, 33}},
                                      {"128 heads, 3 splits", 128, 3, 64, {31, 65}}};
  for (const Problem& p : problems) {
    SCOPED_TRACE(p.name);
    MlaAttention<TypeParam> attention(p);
    const emulator::Counts counts = attention.run({});
    attention.check();
    if (this->HasFatalFailure()) return;
    // Whole tiles and nothing else: each row is read once per tile of heads.
    double keys = 0;
    for (const int length : p.lengths)
      keys += (length + TypeParam::kKeys - 1) / TypeParam::kKeys * TypeParam::kKeys;
    const double heads = (p.heads + TypeParam::kHeads - 1) / TypeParam::kHeads;
    EXPECT_EQ(counts.mma_flops, 2 * keys * heads * TypeParam::kHeads * (kWidth + kLatent));
  }
}

TYPED_TEST(MlaDecode, OrderOfThreadsAndCopiesDoesNotMatter) {
  for (const Problem& p : {Problem{"", 1, 1, 0, {150}}, Problem{"", 40, 2, 16, {81}}}) {
    MlaAttention<TypeParam> attention(p);
    attention.run({});
    const auto want = attention.bits();
    const auto lse = attention.lse();
    attention.check();
    for (const emulator::Options& options : kOtherOrders) {
      attention.run(options);
      EXPECT_EQ(attention.bits(), want) << static_cast<int>(options.order) << options.late;
      for (std::int32_t s = 0; s < attention.a().sequences; ++s) {
        const auto row = lse.begin() + s * attention.a().lse_row;
        EXPECT_TRUE(std::equal(row, row + attention.a().q_heads,
                               attention.lse().begin() + s * attention.a().lse_row));
      }
    }
  }
}

// Scores that rise from tile to tile: earlier results must be scaled down each time.
TYPED_TEST(MlaDecode, LaterKeysMayOutweighEarlierOnes) {
  MlaAttention<TypeParam> attention({"", 16, 1, 0, {160}});
  attention.raise_scores();
  attention.run({});
  attention.check();
}

TEST(MlaDecodeSplits, FillTheDeviceAndNoMore) {
  constexpr int kSms = 132;
  for (const std::int64_t rows : {1, 33, 1000, 8192, 131072, 1'000'000}) {
    for (const int sequences : {1, 4, 32, 256}) {
      for (const int heads : {1, 16, 64, 128}) {
        const int splits = mla_decode_splits(rows, sequences, heads, kSms);
        SCOPED_TRACE(testing::Message() << rows << ' ' << sequences << ' ' << heads << ": " << splits);
        ASSERT_GE(splits, 1);
        EXPECT_LE(splits, (rows + 31) / 32);
        // More blocks than four waves of them would only add partial results.
        EXPECT_TRUE(splits == 1 || std::int64_t{splits} * sequences * ((heads + 63) / 64) <= 4 * kSms);
      }
    }
  }
  EXPECT_GE(mla_decode_splits(131072, 1, 128, kSms) * 2, kSms * 9 / 10);
  EXPECT_EQ(mla_decode_splits(8192, 256, 128, kSms), 1);
}

}  // namespace
}  // namespace shardline
