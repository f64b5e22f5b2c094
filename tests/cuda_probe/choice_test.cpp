// The choice of an index: ties by position, whole or from the candidates of ranks that share a cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cuda_probe/execute/cpu/functions.hpp"

namespace shardline {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

View<double> all_of(Matrix<double>& m) { return m.block(0, 0, m.rows(), m.cols()); }

struct Chosen {
  Matrix<double> scores, positions;
};

// Of one row of scores, at these positions.
Chosen chosen(const std::vector<double>& scores, TokenView keys, int kept) {
  Matrix<double> s(1, static_cast<Eigen::Index>(scores.size()));
  for (std::size_t i = 0; i < scores.size(); ++i) s(0, static_cast<Eigen::Index>(i)) = scores[i];
  Chosen out{Matrix<double>(1, kept), Matrix<double>(1, kept)};
  Action a;
  a.function = Function::choose;
  std::vector<View<double>> views{all_of(s), all_of(out.scores), all_of(out.positions)};
  EXPECT_EQ(wrong_shape<double>(a, {}, keys, views), "");
  choose<double>(keys, views);
  return out;
}

std::vector<int> positions_of(const Chosen& c) {
  std::vector<int> out;
  for (Eigen::Index i = 0; i < c.positions.cols(); ++i) out.push_back(static_cast<int>(c.positions(0, i)));
  return out;
}

TEST(Choice, OfEqualScoresTheOneOfLowerPositionComesFirst) {
  const Interval keys[] = {{0, 10, 16}};
  EXPECT_EQ(positions_of(chosen({1, 5, 5, 2, 5, 0}, keys, 2)), (std::vector{11, 12}));
  EXPECT_EQ(positions_of(chosen({1, 5, 5, 2, 5, 0}, keys, 4)), (std::vector{11, 12, 14, 13}));
  EXPECT_EQ(positions_of(chosen({-0.0, 0.0, kNone, kNone, kNone, kNone}, keys, 4)),
            (std::vector{10, 11, -1, -1}));
  // Whatever the order in which keys lie.
  const Interval turned[] = {{0, 13, 16}, {0, 10, 13}};
  EXPECT_EQ(positions_of(chosen({5, 5, 5, 5, 5, 5}, turned, 3)), (std::vector{10, 11, 12}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(positions_of(chosen({9, nan, 1, 1, 1, 1}, keys, 2)), (std::vector{11, 10}));
}

// Few values, so that most scores tie; ranks hold blocks of keys round robin, some none at all.
TEST(Choice, CandidatesOfAllRanksGiveTheChoiceOfTheWhole) {
  std::mt19937_64 random(3);
  int ties = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const int keys = 1 + static_cast<int>(random() % 40), ranks = 1 + static_cast<int>(random() % 4),
              block = 1 + static_cast<int>(random() % 3), kept = 1 + static_cast<int>(random() % 12);
    std::vector<double> scores;
    for (int i = 0; i < keys; ++i) scores.push_back(static_cast<double>(random() % 4));
    const Interval whole[] = {{0, 0, keys}};
    const Chosen expected = chosen(scores, whole, kept);
    std::vector<Chosen> parts;
    for (int r = 0; r < ranks; ++r) {
      std::vector<Interval> list;
      std::vector<double> own;
      for (int at = r * block; at < keys; at += ranks * block) {
        const int end = std::min(keys, at + block);
        list.push_back({0, at, end});
        own.insert(own.end(), scores.begin() + at, scores.begin() + end);
      }
      parts.push_back(chosen(own, list, kept));
    }
    Chosen merged{Matrix<double>(1, kept), Matrix<double>(1, kept)};
    std::vector<View<double>> views;
    for (Chosen& p : parts) {
      views.push_back(all_of(p.scores));
      views.push_back(all_of(p.positions));
    }
    views.push_back(all_of(merged.scores));
    views.push_back(all_of(merged.positions));
    Action a;
    a.function = Function::choose_among;
    EXPECT_EQ(wrong_shape<double>(a, {}, {}, views), "");
    simple_function<double>(a, views);
    EXPECT_EQ(positions_of(merged), positions_of(expected)) << trial;
    if (kept < keys) ties += scores[static_cast<std::size_t>(expected.positions(0, kept - 1))] < 3;
  }
  EXPECT_GT(ties, 50);
}

// By hand: two heads, of which a negative product counts nothing.
TEST(Choice, ScoresAreWeighedPositiveProducts) {
  Matrix<double> q(1, 4), w(1, 2), k(3, 2), s(1, 3);
  q << 1, 2, -1, 1;
  w << 0.5, 3;
  k << 1, 1, 2, -3, 0, 4;
  Action a;
  a.function = Function::index_scores;
  a.heads = 2;
  a.qk_dim = 2;
  const Interval queries[] = {{0, 1, 2}}, keys[] = {{0, 0, 3}};
  std::vector<View<double>> views{all_of(q), all_of(w), all_of(k), all_of(s)};
  EXPECT_EQ(wrong_shape<double>(a, queries, keys, views), "");
  EXPECT_EQ(index_scores<double>(a, queries, keys, views), 2 * 4);  // the third key is behind the query
  EXPECT_EQ(s(0, 0), 0.5 * 3 + 3 * 0);
  EXPECT_EQ(s(0, 1), 0);
  EXPECT_EQ(s(0, 2), kNone);
}

// By hand: row 1 of two tokens of two numbers each, then the same with the two tokens before them, whose
// first part it takes, too. Row 0 was there before.
TEST(Choice, RowsAreWeighedMeansOverTheirRootMeanSquare) {
  Matrix<double> old(1, 2), values(2, 2), gates(2, 2), bias(2, 2), rows(2, 2);
  old << 7, 8;
  values << 1, 2, 3, 6;
  gates << 0, 0, 0, std::log(3.0);
  bias << 0, 0, std::log(3.0), 0;
  Action a;
  a.function = Function::make_rows;
  a.ratio = 2;
  const Interval tokens[] = {{0, 2, 4}}, numbers[] = {{0, 0, 2}};
  std::vector<View<double>> views{all_of(old), all_of(values), all_of(gates), all_of(bias), all_of(rows)};
  EXPECT_EQ(wrong_shape<double>(a, tokens, numbers, views), "");
  make_rows<double>(a, tokens, numbers, views);
  EXPECT_EQ(rows(0, 0), 7);
  EXPECT_EQ(rows(0, 1), 8);
  // Weights 1 and 3 of both channels: 2.5 and 5, whose mean square is 15.625.
  EXPECT_NEAR(rows(1, 0), 2.5 / std::sqrt(15.625 + 1e-6), 1e-15);
  EXPECT_NEAR(rows(1, 1), 5 / std::sqrt(15.625 + 1e-6), 1e-15);
  Matrix<double> wide(4, 4), flat = Matrix<double>::Zero(4, 4), no_bias = Matrix<double>::Zero(2, 4);
  wide << 2, 4, 9, 9, 2, 4, 9, 9, 9, 9, 4, 8, 9, 9, 4, 8;  // 9: parts that the row does not take
  const Interval four[] = {{0, 0, 4}};
  std::vector<View<double>> doubled{all_of(old), all_of(wide), all_of(flat), all_of(no_bias), all_of(rows)};
  EXPECT_EQ(wrong_shape<double>(a, four, numbers, doubled), "");
  make_rows<double>(a, four, numbers, doubled);
  EXPECT_NEAR(rows(1, 0), 3 / std::sqrt(22.5 + 1e-6), 1e-15);
  EXPECT_NEAR(rows(1, 1), 6 / std::sqrt(22.5 + 1e-6), 1e-15);
  const Interval few[] = {{0, 1, 4}};
  Matrix<double> three = wide.bottomRows(3), of_three = flat.bottomRows(3);
  std::vector<View<double>> lacking{all_of(old), all_of(three), all_of(of_three), all_of(no_bias),
                                    all_of(rows)};
  EXPECT_EQ(wrong_shape<double>(a, few, numbers, lacking), "makes a row of tokens that it lacks");
}

// A query at position 4 sees rows 0 and 1 of two tokens, and not row 2, whose last token is behind it.
TEST(Choice, ScoresAreOfWholeRowsBehindAQuery) {
  Matrix<double> q(1, 2), w(1, 1), k(3, 2), s(1, 3);
  q << 1, 1;
  w << 2;
  k << 1, 1, 2, 3, 4, 4;
  Action a;
  a.function = Function::index_scores;
  a.qk_dim = 2;
  a.ratio = 2;
  const Interval queries[] = {{0, 4, 5}}, numbers[] = {{0, 0, 3}};
  std::vector<View<double>> views{all_of(q), all_of(w), all_of(k), all_of(s)};
  EXPECT_EQ(index_scores<double>(a, queries, numbers, views), 2 * 2);
  EXPECT_EQ(s(0, 0), 4);
  EXPECT_EQ(s(0, 1), 10);
  EXPECT_EQ(s(0, 2), kNone);
}

TEST(Choice, WrongShapesAreSaid) {
  Matrix<double> one(1, 3), two(2, 3), narrow(1, 2);
  Action a;
  a.function = Function::choose;
  const Interval keys[] = {{0, 0, 3}};
  const auto said = [&](std::vector<View<double>> views) { return wrong_shape<double>(a, {}, keys, views); };
  EXPECT_EQ(said({all_of(one), all_of(narrow), all_of(one)}), "keeps other scores than positions");
  EXPECT_EQ(said({all_of(two), all_of(one), all_of(one)}), "chooses for other rows than it has scores of");
  EXPECT_EQ(said({all_of(narrow), all_of(one), all_of(one)}), "has scores of other keys than it lists");
  EXPECT_NE(said({all_of(one), all_of(one)}), "");
}

}  // namespace
}  // namespace shardline
