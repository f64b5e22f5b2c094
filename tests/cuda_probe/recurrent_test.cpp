// Linear attention on the CPU executor: in chunks and shards against the definition, token by token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/execute/cpu/recurrent_reference.hpp"
#include "cuda_probe/execute/verify/verify_cases.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {
namespace {

constexpr double kExact = 1e-12;

View<double> all_of(Matrix<double>& m) { return m.block(0, 0, m.rows(), m.cols()); }

Tensors<double> inputs(const RecurrenceDefinition& d, std::int64_t tokens, std::uint64_t seed) {
  Tensors<double> t;
  t.first_row = {0, tokens};
  set_recurrence(d, seed, t);
  return t;
}

Matrix<double> convolved(const RecurrenceDefinition& d, const Tensors<double>& t, Eigen::Index first,
                         Eigen::Index end) {
  const Eigen::Index before = std::min<Eigen::Index>(first, d.taps - 1);
  Matrix<double> kept = t[Whole::channels].middleRows(first - before, before),
                 rows = t[Whole::channels].middleRows(first, end - first), weight = t[Whole::conv_weight],
                 out(rows.rows(), rows.cols());
  std::vector<View<double>> v{all_of(kept), all_of(rows), all_of(weight), all_of(out)};
  Action a;
  a.function = Function::convolve;
  EXPECT_EQ(wrong_shape<double>(a, {}, {}, v), "");
  convolve<double>(v);
  return out;
}

// Tokens [first, end) behind `state`, of one key head; returns the outputs.
Matrix<double> passed(const RecurrenceDefinition& d, const Tensors<double>& t, Eigen::Index first,
                      Eigen::Index end, int key_head, int chunk, Matrix<double>& state) {
  const int each = d.value_heads / d.key_heads;
  const Eigen::Index n = end - first, keys = Eigen::Index{d.key_heads} * d.key_dim,
                     at = Eigen::Index{key_head} * d.key_dim, head = Eigen::Index{key_head} * each;
  const Matrix<double> x = convolved(d, t, first, end);
  const Eigen::Index decay = d.channel_decay ? d.key_dim : 1;
  Matrix<double> q = x.middleCols(at, d.key_dim), k = x.middleCols(keys + at, d.key_dim),
                 v = x.middleCols(2 * keys + head * d.value_dim, each * d.value_dim),
                 g = t[Whole::decay].block(first, head * decay, n, each * decay),
                 b = t[Whole::beta].block(first, head, n, each), out(n, each * d.value_dim),
                 after(1, Eigen::Index{each} * d.key_dim * d.value_dim);
  std::vector<View<double>> views{all_of(q), all_of(k),     all_of(v),     all_of(g),
                                  all_of(b), all_of(state), all_of(after), all_of(out)};
  Action a;
  a.function = Function::delta_rule;
  a.heads = each;
  a.qk_dim = d.key_dim;
  a.v_dim = d.value_dim;
  a.chunk = chunk;
  EXPECT_EQ(wrong_shape<double>(a, {}, {}, views), "");
  delta_rule<double>(a, views);
  state = after;
  return out;
}

double difference(const Matrix<double>& a, const Matrix<double>& b) {
  return (a - b).cwiseAbs().maxCoeff() / std::max(1e-3, b.cwiseAbs().maxCoeff());
}

// By hand: one head of width 1, three tokens.
TEST(Recurrence, AStateDecaysIsCorrectedAndRead) {
  Matrix<double> q(3, 1), k(3, 1), v(3, 1), g(3, 1), b(3, 1), none(0, 1), after(1, 1), out(3, 1);
  q << 4, -4, 4;
  k << 2, 2, -3;
  v << 1, 2, 3;
  g << std::log(0.5), std::log(0.5), std::log(0.25);
  b << 0.5, 1, 0.5;
  std::vector<View<double>> views{all_of(q), all_of(k),    all_of(v),     all_of(g),
                                  all_of(b), all_of(none), all_of(after), all_of(out)};
  Action a;
  a.function = Function::delta_rule;
  a.qk_dim = a.v_dim = 1;
  a.chunk = 2;
  delta_rule<double>(a, views);
  // Directions are 1 and -1: 0.5; then all of it is replaced by 2; then 0.5 decayed, and half the way from
  // -(0.5) to 3 written with the other sign.
  const double third = 0.5 - 0.5 * (3 + 0.5);
  EXPECT_NEAR(out(0, 0), 0.5, 1e-6);
  EXPECT_NEAR(out(1, 0), -2, 1e-6);
  EXPECT_NEAR(out(2, 0), third, 1e-6);
  EXPECT_NEAR(after(0, 0), third, 1e-6);
}

// Chunks of any size, prompts cut anywhere, both decays: outputs and states of every cut.
TEST(Recurrence, AnySplitOfAPromptGivesTheDefinition) {
  std::mt19937_64 random(5);
  for (const bool channel_decay : {false, true}) {
    for (int trial = 0; trial < 40; ++trial) {
      RecurrenceDefinition d{2,
                             channel_decay ? 2 : 4,
                             1 + static_cast<int>(random() % 6),
                             1 + static_cast<int>(random() % 5),
                             1 + static_cast<int>(random() % 4),
                             channel_decay};
      const std::int64_t tokens = 1 + static_cast<std::int64_t>(random() % 150);
      const Tensors<double> t = inputs(d, tokens, random());
      const int each = d.value_heads / d.key_heads;
      for (int head = 0; head < d.key_heads; ++head) {
        const Eigen::Index numbers = Eigen::Index{each} * d.key_dim * d.value_dim;
        Matrix<double> state(0, numbers);
        for (std::int64_t first = 0; first < tokens;) {
          const std::int64_t end =
              std::min<std::int64_t>(tokens, first + 1 + static_cast<std::int64_t>(random() % 90));
          const int chunk = 1 + static_cast<int>(random() % 70);
          const Matrix<double> out = passed(d, t, first, end, head, chunk, state);
          EXPECT_LT(difference(state, t[Whole::state].block(end - 1, head * numbers, 1, numbers)), kExact);
          // Outputs behind the gated norm.
          Matrix<double> ungated = out, result(out.rows(), out.cols()),
                         gate = t[Whole::gate].block(first, Eigen::Index{head} * each * d.value_dim,
                                                     out.rows(), out.cols());
          std::vector<View<double>> v{all_of(ungated), all_of(gate), all_of(result)};
          Action a;
          a.function = Function::gated_norm;
          a.v_dim = d.value_dim;
          a.logistic = channel_decay;
          gated_norm<double>(a, v);
          EXPECT_LT(
              difference(result, t[Whole::attention_output].block(
                                     first, Eigen::Index{head} * each * d.value_dim, out.rows(), out.cols())),
              kExact);
          first = end;
        }
      }
    }
  }
}

TEST(Recurrence, WrongShapesAreSaid) {
  Matrix<double> one(3, 4), two(2, 4), narrow(3, 2), state(1, 16);
  const auto said = [&](Function f, std::vector<View<double>> views, int heads = 1) {
    Action a;
    a.function = f;
    a.heads = heads;
    a.qk_dim = a.v_dim = 4;
    return wrong_shape<double>(a, {}, {}, views);
  };
  EXPECT_EQ(said(Function::convolve, {all_of(two), all_of(one), all_of(one), all_of(one)}), "");
  EXPECT_EQ(said(Function::convolve, {all_of(one), all_of(one), all_of(one), all_of(one)}),
            "keeps as many rows as it has taps");
  EXPECT_EQ(said(Function::convolve, {all_of(two), all_of(narrow), all_of(one), all_of(one)}),
            "convolves rows and weights of unequal channels");
  EXPECT_EQ(said(Function::convolve, {all_of(two), all_of(one), all_of(one), all_of(two)}),
            "gives other rows than it convolves");
  Matrix<double> single(3, 1);
  const auto delta = [&](Matrix<double>& v, Matrix<double>& g, Matrix<double>& s) {
    return said(Function::delta_rule, {all_of(one), all_of(one), all_of(v), all_of(g), all_of(single),
                                       all_of(s), all_of(state), all_of(one)});
  };
  EXPECT_EQ(delta(one, single, state), "");
  EXPECT_EQ(delta(one, one, state), "");
  EXPECT_EQ(delta(two, single, state), "has values or outputs that do not fit its heads");
  EXPECT_EQ(delta(one, narrow, state), "has decays of neither heads nor channels");
  EXPECT_EQ(delta(one, single, one), "has states that do not fit its heads");
  EXPECT_NE(said(Function::delta_rule, {all_of(one)}), "");
  EXPECT_EQ(said(Function::gated_norm, {all_of(one), all_of(narrow), all_of(one)}), "needs equal shapes");
  EXPECT_EQ(said(Function::gated_norm, {all_of(narrow), all_of(narrow), all_of(narrow)}),
            "has a width that heads do not divide");
}

// EveryStrategy computes all cases of every strategy, to 1e-12: such layers are among them under each that
// takes them, in whole prompts and in parts.
TEST(Recurrence, IsAmongTheCasesOfEveryStrategyThatTakesIt) {
  int strategies_seen = 0;
  for (const Strategy* s : strategies()) {
    if (!s->states) continue;
    ++strategies_seen;
    int cases = 0, chunked = 0;
    for (const cli::VerifyCase& c : cli::verify_cases(*s)) {
      if (!has_recurrence(c.study.model)) continue;
      ++cases;
      chunked += c.plan[kPrefillChunk] > 0;
    }
    EXPECT_GT(cases, 10) << s->name;
    if (s->reads(kPrefillChunk)) {
      EXPECT_GT(chunked, 4) << s->name;
    }
  }
  EXPECT_EQ(strategies_seen, 13);
}

}  // namespace
}  // namespace shardline
