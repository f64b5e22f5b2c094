// The compression kernels' own code, thread by thread on the CPU, against a stable sort.
#include "cuda_probe/emulator/warp.hpp"
// The emulator first: it decides what device code means.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "cuda_probe/kernels/compress_kernel.hpp"
#include "tests/cuda_probe/kernels/support.hpp"

namespace shardline {
namespace {

using Random = std::mt19937_64;

float uniform(Random& random) { return static_cast<float>(random() >> 40) * 0x1p-24f - 0.5f; }

struct Kind {
  const char* name;
  std::function<float(Random&, int row)> score;
};

const std::vector<Kind>& kinds() {
  static const float nan = std::numeric_limits<float>::quiet_NaN();
  static const std::vector<Kind> all{
      {"random", [](Random& r, int) { return uniform(r); }},
      {"magnitudes",
       [](Random& r, int) { return std::ldexp(uniform(r), static_cast<int>(r() % 200) - 100); }},
      {"low bits", [](Random& r, int) { return 1 + static_cast<float>(r() % 700) * 0x1p-23f; }},
      {"ties", [](Random& r, int) { return static_cast<float>(r() % 5); }},
      {"all equal", [](Random&, int) { return -3.0f; }},
      {"rising", [](Random&, int row) { return static_cast<float>(row); }},
      {"falling", [](Random&, int row) { return -static_cast<float>(row); }},
      {"zeros of both signs", [](Random& r, int) { return r() % 2 == 0 ? 0.0f : -0.0f; }},
      {"all NaN", [](Random&, int) { return nan; }},
      {"NaN, infinities, zeros", [](Random& r, int) {
         const float some[] = {nan, -nan, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f, -1e-45f, uniform(r)};
         return some[r() % 9];
       }}};
  return all;
}

class Problem {
 public:
  Problem(const Kind& kind, int rows, int kv_heads, int head_dim, int keep) {
    a_.rows = rows;
    a_.kv_heads = kv_heads;
    a_.head_dim = head_dim;
    a_.keep = keep;
    a_.kv_head = head_dim + 8;
    a_.kv_row = kv_heads * a_.kv_head + 16;
    a_.out_head = head_dim + 16;
    a_.out_row = kv_heads * a_.out_head + 8;
    Random random(3);
    for (int i = 0; i < rows * kv_heads; ++i) scores_.push_back(kind.score(random, i % rows));
    for (std::int64_t i = 0; i < rows * a_.kv_row; ++i) {
      k_.push_back({static_cast<std::uint16_t>(random())});
      v_.push_back({static_cast<std::uint16_t>(random())});
    }
    a_.scores = scores_.data();
    a_.k = k_.data();
    a_.v = v_.data();
  }

  template <int Threads>
  void run(const emulator::Options& options) {
    chosen_.assign(static_cast<std::size_t>(a_.kv_heads * a_.keep), -1);
    k_out_.assign(static_cast<std::size_t>(a_.keep * a_.out_row), Bf16{0x1234});
    v_out_ = k_out_;
    a_.chosen = chosen_.data();
    a_.k_out = k_out_.data();
    a_.v_out = v_out_.data();
    if (a_.keep == 0) return;
    using Select = CompressSelect<Threads>;
    emulator::run({a_.kv_heads, 1, 1, Threads, Select::kSharedBytes}, options,
                  [&](std::byte* shared) { Select::run(a_, shared); });
    emulator::run({CompressGather::blocks(a_), a_.kv_heads, 1, CompressGather::kThreads, 0}, options,
                  [&](std::byte* shared) { CompressGather::run(a_, shared); });
  }

  void check() const {
    std::vector<Bf16> k(k_out_.size(), Bf16{0x1234}), v = k;
    std::vector<std::int32_t> want;
    for (int head = 0; head < a_.kv_heads; ++head) {
      const float* score = a_.scores + head * a_.rows;
      std::vector<std::int32_t> order(static_cast<std::size_t>(a_.rows));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t x, std::int32_t y) {
        if (std::isnan(score[x]) || std::isnan(score[y]))
          return !std::isnan(score[x]) && std::isnan(score[y]);
        return score[x] > score[y];
      });
      order.resize(static_cast<std::size_t>(a_.keep));
      std::sort(order.begin(), order.end());
      want.insert(want.end(), order.begin(), order.end());
      for (int place = 0; place < a_.keep; ++place) {
        const std::int64_t from = order[static_cast<std::size_t>(place)] * a_.kv_row + head * a_.kv_head;
        const std::int64_t to = place * a_.out_row + head * a_.out_head;
        std::copy_n(a_.k + from, a_.head_dim, k.begin() + to);
        std::copy_n(a_.v + from, a_.head_dim, v.begin() + to);
      }
    }
    ASSERT_EQ(chosen_, want);
    ASSERT_EQ(bits(k_out_), bits(k));
    ASSERT_EQ(bits(v_out_), bits(v));
  }
  const std::vector<std::int32_t>& chosen() const { return chosen_; }

 private:
  static std::vector<std::uint16_t> bits(const std::vector<Bf16>& values) {
    std::vector<std::uint16_t> b;
    for (const Bf16 v : values) b.push_back(v.bits);
    return b;
  }

  CompressArguments a_{};
  std::vector<float> scores_;
  std::vector<Bf16> k_, v_, k_out_, v_out_;
  std::vector<std::int32_t> chosen_;
};

TEST(Compress, EqualsStableSort) {
  for (const Kind& kind : kinds()) {
    for (const int rows : {1, 100, 513, 3001}) {
      for (const int keep : {0, 1, rows / 3, rows - 1, rows}) {
        SCOPED_TRACE(testing::Message() << kind.name << ", rows " << rows << ", keep " << keep);
        Problem problem(kind, rows, 2, 8, keep);
        problem.run<64>({});
        problem.check();
        if (HasFatalFailure()) return;
      }
    }
  }
}

// As the launcher starts it; more than one turn of the block.
TEST(Compress, LargestBlocks) {
  for (const int head_dim : {64, 72, 128}) {
    Problem problem(kinds()[0], 9000, 1, head_dim, 2500);
    problem.run<1024>({});
    problem.check();
  }
}

TEST(Compress, OrderOfThreadsDoesNotMatter) {
  Problem problem(kinds()[3], 3000, 2, 16, 700);
  for (const auto order :
       {emulator::ThreadOrder::ascending, emulator::ThreadOrder::descending, emulator::ThreadOrder::random}) {
    problem.run<256>({order, 9, true});
    problem.check();
  }
}

TEST(Compress, KeysOrderAsScores) {
  const float rising[] = {std::numeric_limits<float>::quiet_NaN(),
                          -INFINITY,
                          -3e38f,
                          -1.5f,
                          -1e-45f,
                          0.0f,
                          1e-45f,
                          1.0f,
                          1.0000001f,
                          3e38f,
                          INFINITY};
  for (std::size_t i = 1; i < std::size(rising); ++i)
    EXPECT_LT(score_key(rising[i - 1]), score_key(rising[i])) << i;
  EXPECT_EQ(score_key(-0.0f), score_key(0.0f));
  EXPECT_EQ(score_key(-rising[0]), score_key(rising[0]));
}

TEST(Compress, Bytes) {
  CompressArguments a{};
  a.kv_heads = 2;
  a.rows = 1000;
  a.keep = 100;
  a.head_dim = 128;
  EXPECT_EQ(compress_bytes(a), 2 * (4000 + 100 * 4 + 100 * 256 * 2 * 2));
}

}  // namespace
}  // namespace shardline
