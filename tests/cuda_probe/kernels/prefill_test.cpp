// The prefill kernels' own code, thread by thread on the CPU, against attention in double.
#include "cuda_probe/emulator/warp.hpp"
// The emulator first: it decides what device code means.
#include <gtest/gtest.h>

#include <set>

#include "cuda_probe/kernels/attend_plan.hpp"
#include "cuda_probe/kernels/prefill_mma.hpp"
#include "cuda_probe/kernels/prefill_wgmma.hpp"
#include "tests/cuda_probe/kernels/support.hpp"

namespace shardline {
namespace {

struct Problem {
  const char* name;
  Tokens queries, keys;
  int q_heads = 1, kv_heads = 1;
};

/// q [row][head][qk], kv [row][head][qk keys, v values], out [row][head][v] with rows of odd strides.
template <class Kernel, int QkDim, int VDim>
class Attention {
 public:
  explicit Attention(const Problem& p, std::uint64_t seed = 1)
      : p_(p), plan_(plan_attend(p.queries, p.keys)) {
    a_.q_rows = static_cast<std::int32_t>(rows(p.queries));
    a_.kv_rows = static_cast<std::int32_t>(rows(p.keys));
    a_.q_heads = p.q_heads;
    a_.kv_heads = p.kv_heads;
    a_.qk_dim = QkDim;
    a_.v_dim = VDim;
    a_.scale = 1 / std::sqrt(static_cast<float>(QkDim));
    a_.q_head = QkDim;
    a_.q_row = p.q_heads * QkDim + 8;
    a_.kv_head = QkDim + VDim;
    a_.kv_row = p.kv_heads * (QkDim + VDim);
    a_.out_head = VDim;
    a_.out_row = p.q_heads * VDim + 16;
    a_.lse_row = p.q_heads + 1;
    q_ = normal_numbers(static_cast<std::size_t>(a_.q_rows * a_.q_row), seed);
    kv_ = normal_numbers(static_cast<std::size_t>(a_.kv_rows * a_.kv_row), seed + 1);
    a_.q = q_.data();
    a_.k = kv_.data();
    a_.v = kv_.data() + QkDim;
    a_.visible = plan_.visible.data();
    a_.codes = plan_.codes.data();
    a_.runs = plan_.runs.data();
    a_.run_begin = plan_.run_begin.data();
    a_.order = plan_.order.data();
  }

  emulator::Counts run(const emulator::Options& options) {
    out_.assign(static_cast<std::size_t>(a_.q_rows * a_.out_row), Bf16{0x7fff});
    lse_.assign(static_cast<std::size_t>(a_.q_rows * a_.lse_row), NAN);
    a_.out = out_.data();
    a_.lse = lse_.data();
    emulator::Grid grid{a_.q_heads, static_cast<int>(plan_.order.size()), 1, Kernel::kThreads,
                        Kernel::kSharedBytes};
    return emulator::run(grid, options, [&](std::byte* shared) { Kernel::run(arguments(), shared); });
  }

  void check() {
    const std::vector<std::int32_t> codes = plan_.codes;
    std::vector<double> want;
    for (std::int64_t row = 0; row < a_.q_rows; ++row) {
      const Visible sees = plan_.visible[static_cast<std::size_t>(row)];
      for (int head = 0; head < a_.q_heads; ++head) {
        const int kv_head = head / (a_.q_heads / a_.kv_heads);
        const double lse = plain_attention(
            a_.q + row * a_.q_row + head * QkDim, QkDim, a_.k + kv_head * a_.kv_head,
            a_.v + kv_head * a_.kv_head, a_.kv_row, VDim, a_.kv_rows, static_cast<double>(a_.scale),
            [&](std::int64_t i) {
              return codes[static_cast<std::size_t>(i)] >= sees.low &&
                     codes[static_cast<std::size_t>(i)] <= sees.high;
            },
            want);
        const float got_lse = lse_[static_cast<std::size_t>(row * a_.lse_row + head)];
        if (lse == kNothingSeen) {
          ASSERT_EQ(got_lse, -INFINITY) << row << ' ' << head;
        } else {
          ASSERT_NEAR(got_lse, lse, 1e-5 * std::max(1.0, std::abs(lse))) << row << ' ' << head;
        }
        for (int d = 0; d < VDim; ++d) {
          const double got = static_cast<double>(
              to_float(out_[static_cast<std::size_t>(row * a_.out_row + head * VDim + d)]));
          // Weights and the output are rounded to 8 bits: 2^-9 of sum(p |v|), |v| < 6, and of the output.
          ASSERT_NEAR(got, want[static_cast<std::size_t>(d)], 0x1p-9 * (6 + std::abs(got)) + 1e-5)
              << "row " << row << " head " << head << " column " << d;
        }
      }
      // What lies between the rows stays as it was.
      for (std::int64_t d = a_.q_heads * VDim; d < a_.out_row; ++d)
        ASSERT_EQ(out_[static_cast<std::size_t>(row * a_.out_row + d)].bits, 0x7fff);
    }
  }

  std::vector<std::uint16_t> bits() const {
    std::vector<std::uint16_t> b;
    for (const Bf16 v : out_) b.push_back(v.bits);
    return b;
  }
  const AttendPlan& plan() const { return plan_; }
  const PrefillArguments& a() const { return a_; }

 private:
  const typename Kernel::Arguments& arguments() {
    if constexpr (std::is_same_v<typename Kernel::Arguments, PrefillArguments>) {
      return a_;
    } else {
      const auto map = [](const Bf16* base, int columns, int rows, int heads, std::int64_t row,
                          std::int64_t head) {
        return device::TensorMap{
            base,
            {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows),
             static_cast<std::uint64_t>(heads)},
            {2, static_cast<std::uint64_t>(2 * row), static_cast<std::uint64_t>(2 * head)},
            {64, 128, 1}};
      };
      x_.q = map(a_.q, QkDim, a_.q_rows, a_.q_heads, a_.q_row, a_.q_head);
      x_.k = map(a_.k, QkDim, a_.kv_rows, a_.kv_heads, a_.kv_row, a_.kv_head);
      x_.v = map(a_.v, VDim, a_.kv_rows, a_.kv_heads, a_.kv_row, a_.kv_head);
      x_.a = a_;
      return x_;
    }
  }

  Problem p_;
  AttendPlan plan_;
  PrefillArguments a_{};
  typename Kernel::Arguments x_{};
  std::vector<Bf16> q_, kv_, out_;
  std::vector<float> lse_;
};

std::vector<Problem> problems() {
  return {{"one token", {{0, 0, 1}}, {{0, 0, 1}}},
          {"causal, one tile", {{0, 0, 128}}, {{0, 0, 128}}, 2, 1},
          {"causal, odd length", {{0, 0, 301}}, {{0, 0, 301}}, 2, 2},
          {"cached tokens", {{0, 333, 400}}, {{0, 0, 400}}},
          {"ring step: two halves against another rank's",
           {{0, 64, 128}, {0, 384, 448}},
           {{0, 128, 192}, {0, 320, 384}}},
          {"keys all later", {{0, 0, 40}}, {{0, 200, 400}}},
          {"three requests and padding",
           {{0, 10, 60}, {1, 0, 100}, {kPadding, 0, 7}, {2, 5, 40}},
           {{0, 0, 60}, {1, 0, 100}, {kPadding, 0, 30}, {2, 0, 40}},
           2,
           1}};
}

template <class K>
class Prefill : public testing::Test {};
template <class Kernel_, int QkDim_, int VDim_>
struct Form {
  using Kernel = Kernel_;
  static constexpr int kQk = QkDim_, kV = VDim_;
};
using Forms = testing::Types<Form<PrefillMma<64, 64>, 64, 64>, Form<PrefillMma<128, 128>, 128, 128>,
                             Form<PrefillMma<192, 128>, 192, 128>, Form<PrefillWgmma<64, 64>, 64, 64>,
                             Form<PrefillWgmma<128, 128>, 128, 128>, Form<PrefillWgmma<192, 128>, 192, 128>>;
TYPED_TEST_SUITE(Prefill, Forms);

TYPED_TEST(Prefill, EqualsPlainAttention) {
  for (const Problem& p : problems()) {
    SCOPED_TRACE(p.name);
    Attention<typename TypeParam::Kernel, TypeParam::kQk, TypeParam::kV> attention(p);
    const emulator::Counts counts = attention.run({});
    attention.check();
    if (this->HasFatalFailure()) return;
    // Whole tiles of the runs, and nothing else.
    double products = 0;
    for (std::size_t t = 0; t + 1 < attention.plan().run_begin.size(); ++t) {
      for (int r = attention.plan().run_begin[t]; r < attention.plan().run_begin[t + 1]; ++r) {
        const KeyRun& run = attention.plan().runs[static_cast<std::size_t>(r)];
        constexpr int kKeys = TypeParam::Kernel::kKeys;
        products += static_cast<double>((run.last - run.first + kKeys - 1) / kKeys * kKeys) * kQueryTile;
      }
    }
    EXPECT_EQ(counts.mma_flops, 2 * products * attention.a().q_heads * (TypeParam::kQk + TypeParam::kV));
  }
}

TYPED_TEST(Prefill, OrderOfThreadsAndCopiesDoesNotMatter) {
  // Seven key tiles: each stage is used again and again, and its parity comes round twice.
  const Problem p{"", {{0, 650, 800}}, {{0, 0, 800}}, 2, 1};
  Attention<typename TypeParam::Kernel, TypeParam::kQk, TypeParam::kV> attention(p);
  attention.run({});
  const auto want = attention.bits();
  for (const emulator::Options& options : kOtherOrders) {
    attention.run(options);
    EXPECT_EQ(attention.bits(), want) << static_cast<int>(options.order) << options.late;
  }
}

// Each block has its own (tile, head); no section ends before all its tiles, heaviest first, have begun.
TEST(PrefillBlocks, CoverAllWorkInSections) {
  for (const auto& [q_heads, kv_heads, tiles, together] : std::vector<std::array<int, 4>>{
           {8, 2, 5, 2}, {8, 2, 5, 1}, {12, 6, 3, 4}, {1, 1, 7, 1}, {5, 5, 1, 2}}) {
    std::set<std::pair<int, int>> seen;
    int tile = 0, section = 0;
    for (int number = 0; number < q_heads * tiles; ++number) {
      const auto w = prefill_parts::work_of(number, q_heads, kv_heads, tiles, together);
      ASSERT_TRUE(w.tile >= 0 && w.tile < tiles && w.head >= 0 && w.head < q_heads) << number;
      EXPECT_TRUE(seen.insert({w.tile, w.head}).second) << number;
      const int now = w.head / (q_heads / kv_heads * together);
      EXPECT_GE(now, section);
      EXPECT_TRUE(now > section || w.tile >= tile) << number;
      section = now;
      tile = w.tile;
    }
  }
}

}  // namespace
}  // namespace shardline
