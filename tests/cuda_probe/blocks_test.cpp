// The choice of rows to pass on, and the definition that APB and StarAttention are compared with.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "cuda_probe/execute/cpu/check.hpp"
#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/execute/verify/verify_cases.hpp"
#include "cuda_probe/kernels/compress_kernel.hpp"

namespace shardline {
namespace {

// The rows that `compress` keeps of one column of scores, from the row numbers that it is given as KV.
template <class Scalar>
std::vector<int> kept(const std::vector<Scalar>& scores, int keep) {
  const auto n = static_cast<Eigen::Index>(scores.size());
  Matrix<Scalar> s(n, 1), kv(n, 2), out(keep, 2);
  for (Eigen::Index i = 0; i < n; ++i) {
    s(i, 0) = scores[static_cast<std::size_t>(i)];
    kv.row(i).setConstant(static_cast<Scalar>(i));
  }
  Action a;
  a.function = Function::compress;
  a.qk_dim = a.v_dim = 1;
  std::vector<View<Scalar>> views{s.block(0, 0, n, 1), kv.block(0, 0, n, 2), out.block(0, 0, keep, 2)};
  EXPECT_EQ(wrong_shape<Scalar>(a, {}, {}, views), "");
  simple_function<Scalar>(a, views);
  std::vector<int> rows;
  for (Eigen::Index i = 0; i < keep; ++i) rows.push_back(static_cast<int>(out(i, 1)));
  return rows;
}

TEST(Compress, KeepsTheFirstOfEqualScoresInOrder) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(kept<double>({1, 5, 5, 2, 5, 0}, 2), (std::vector{1, 2}));
  EXPECT_EQ(kept<double>({5, 1, 7, 2, 5, 0}, 3), (std::vector{0, 2, 4}));
  EXPECT_EQ(kept<double>({nan, -1, nan, -3}, 3), (std::vector{0, 1, 3}));
  EXPECT_EQ(kept<double>({-0.0, 0.0, -0.0}, 2), (std::vector{0, 1}));
  EXPECT_EQ(kept<double>({3, 2, 1}, 0), (std::vector<int>{}));
}

// The kernel orders scores by score_key, and of equal keys keeps the first.
TEST(Compress, ChoosesAsTheKernelDoes) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> scores(1 + random() % 40);
    // Few values, so that there are ties, among them zeros of both signs, infinities and NaNs.
    const std::array<float, 9> values{0.0f, -0.0f, 1.0f, -1.0f, 1e-40f, INFINITY, -INFINITY, NAN, 2.5f};
    for (float& s : scores) s = values[random() % values.size()];
    const int keep = static_cast<int>(random() % (scores.size() + 1));
    std::vector<int> order(scores.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::stable_sort(order.begin(), order.end(), [&](int i, int j) {
      return score_key(scores[static_cast<std::size_t>(i)]) > score_key(scores[static_cast<std::size_t>(j)]);
    });
    order.resize(static_cast<std::size_t>(keep));
    std::sort(order.begin(), order.end());
    EXPECT_EQ(kept(scores, keep), order) << trial;
  }
}

TEST(Compress, ShapesThatDoNotFitAreNamed) {
  Matrix<double> m(6, 6);
  Action a;
  a.function = Function::compress;
  a.kv_heads = 2;
  a.qk_dim = 2;
  a.v_dim = 1;
  const auto wrong = [&](int score_columns, int kv_rows, int kv_columns, int keep) {
    std::vector<View<double>> v{m.block(0, 0, 4, score_columns), m.block(0, 0, kv_rows, kv_columns),
                                m.block(0, 0, keep, kv_columns)};
    return wrong_shape<double>(a, {}, {}, v);
  };
  EXPECT_EQ(wrong(2, 4, 6, 3), "");
  EXPECT_EQ(wrong(1, 4, 6, 3), "has scores of other heads");
  EXPECT_EQ(wrong(2, 5, 6, 3), "has other scores than rows");
  EXPECT_EQ(wrong(2, 4, 5, 3), "has a kv region of the wrong width");
  EXPECT_EQ(wrong(2, 4, 6, 5), "keeps more rows than there are");
}

Problem document(BlockDefinition blocks, std::int64_t tokens) {
  Problem p;
  p.q_heads = 2;
  p.kv_heads = 1;
  p.lengths = {tokens + blocks.query, anchor_length(blocks, tokens)};
  p.blocks = blocks;
  return p;
}

TEST(BlockReference, OneHostIsPlainAttention) {
  const Problem p = document({1, 3, 0, 0, 0}, 20);
  EXPECT_LT(distance_to_exact(p), 1e-14);
}

TEST(BlockReference, StarOnTwoHostsIsPlainAttention) {
  EXPECT_LT(distance_to_exact(document({2, 0, 0, 0, 0}, 21)), 1e-14);
  EXPECT_GT(distance_to_exact(document({3, 0, 0, 0, 0}, 21)), 0.1);
  EXPECT_GT(distance_to_exact(document({2, 0, 0, 2, 0}, 21)), 0.01);  // the query is seen too early
}

// With everything passed on, what differs from exact attention is only that anchors are seen twice: without
// one token of anchor beside it the difference is gone.
TEST(BlockReference, PassingAllButNothingElseApproachesExactAttention) {
  const double all = distance_to_exact(document({3, 1, 8, 0, 6}, 24));
  const double half = distance_to_exact(document({3, 1, 4, 0, 6}, 24));
  EXPECT_GT(all, 1e-3);
  EXPECT_LT(all, half / 2);
}

// By hand: 4 tokens, two hosts, one anchor token and one passed token.
TEST(BlockReference, FourTokensByHand) {
  const Problem p = document({2, 1, 1, 0, 3}, 4);
  const Tensors<double> t = reference(p);
  const auto score = [&](int token) {
    Matrix<double> both(1, t[Whole::query].cols() + t[Whole::kv].cols());
    both << t[Whole::query].row(token), t[Whole::kv].row(token);
    const Matrix<double> up = both * t[Whole::retaining_up_weight];
    double sum = 0;
    for (int i = 0; i < 3; ++i)
      sum += up(0, i) / (1 + std::exp(-up(0, i))) * t[Whole::retaining_down_weight](i, 0);
    return sum;
  };
  const int best = score(1) > score(0) ? 1 : 0;
  // Token 3, head 1: keys 0 (anchor), the passed one, 2 and 3.
  const std::array<int, 4> keys{0, best, 2, 3};
  double total = 0;
  std::array<double, 4> out{};
  for (const int k : keys) {
    double dot = 0;
    for (int i = 0; i < 4; ++i) dot += t[Whole::query](3, 4 + i) * t[Whole::kv](k, i);
    const double weight = std::exp(dot / 2);
    total += weight;
    for (std::size_t i = 0; i < 4; ++i) out[i] += weight * t[Whole::kv](k, 4 + static_cast<int>(i));
  }
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(t[Whole::attention_output](3, 4 + static_cast<int>(i)), out[i] / total, 1e-14);
}

// A schedule of APB is not that of another choice, of more passed tokens, or of a smaller anchor.
TEST(BlockReference, OtherDefinitionsAreToldApart) {
  const auto cases = cli::verify_cases(strategy(std::string("apb")));
  int told = 0;
  for (std::size_t i = 0; i < cases.size(); i += 20) {
    const Schedule s = cli::verify_schedule(cases[i]);
    for (const int change : {0, 1, 2}) {
      Problem p = cases[i].kinds.front();
      if (change == 0) p.blocks.passing += 1;
      if (change == 1) p.blocks.retaining = 0;
      if (change == 2) p.seed += 1;
      EXPECT_EQ(check(s, p).passed(), change == 2) << cases[i].what << " " << change;
      ++told;
    }
  }
  EXPECT_GT(told, 12);
}

}  // namespace
}  // namespace shardline
