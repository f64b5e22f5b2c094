// Windows, chunks and sinks in the executor and its reference; schedules whose layers are of several kinds.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "cuda_probe/execute/cpu/check.hpp"
#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/execute/cpu/hazards.hpp"
#include "tests/cuda_probe/schedules.hpp"
#include "tests/planner/tokens.hpp"

namespace shardline {
namespace {

using testing::layers_of_kinds;
using testing::MadeOfKinds;

constexpr double kNone = -std::numeric_limits<double>::infinity();

std::string lines(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& t : texts) out += t + "\n";
  return out;
}

// ---- the reference, written with other means

// First of ten tokens that the query at i sees: full attention, a window of three, chunks of four.
Eigen::Index first_of_ten(ReachKind kind, Eigen::Index i) {
  switch (kind) {
    case ReachKind::full:
      return 0;
    case ReachKind::window:
      return std::max<Eigen::Index>(0, i - 2);
    case ReachKind::chunk:
      return i / 4 * 4;
  }
  return -1;
}

TEST(Kinds, ReferenceOfReachAndSinksIsASoftmax) {
  for (int kind = 0; kind < kReachKinds; ++kind) {
    Reach reach{static_cast<ReachKind>(kind), 0};
    if (reach.sized()) reach.tokens = reach.kind == ReachKind::chunk ? 4 : 3;
    Problem p;
    p.qk_dim = 3;
    p.v_dim = 2;
    p.lengths = {10};
    p.reach = reach;
    p.sinks = true;
    const Tensors<double> t = reference(p);
    ASSERT_EQ(t[Whole::sinks].size(), 1);
    const double sink = std::exp(t[Whole::sinks](0, 0));
    for (Eigen::Index i = 0; i < 10; ++i) {
      const Eigen::Index from = first_of_ten(reach.kind, i);
      const Eigen::Index n = i + 1 - from;
      const Eigen::VectorXd scores =
          t[Whole::kv].block(from, 0, n, 3) * t[Whole::query].row(i).transpose() / std::sqrt(3.0);
      const Eigen::VectorXd w = scores.array().exp();
      const Eigen::RowVectorXd want = w.transpose() * t[Whole::kv].block(from, 3, n, 2) / (w.sum() + sink);
      EXPECT_LT((want - t[Whole::attention_output].row(i)).cwiseAbs().maxCoeff(), 1e-14);
    }
  }
}

TEST(Kinds, SinksChangeNoOtherNumberOfAProblem) {
  Problem p;
  p.hidden = 8;
  p.ffn_inner = 6;
  p.q_heads = 2;
  p.value_up = 3;
  p.lengths = {5};
  const Tensors<double> without = reference(p);
  p.sinks = true;
  const Tensors<double> with = reference(p);
  for (const Whole w : {Whole::hidden, Whole::query, Whole::kv, Whole::qkv_weight, Whole::value_up_weight,
                        Whole::out_weight, Whole::up_weight, Whole::down_weight})
    EXPECT_EQ(with[w], without[w]) << static_cast<int>(w);
  EXPECT_NE(with[Whole::sinks](0, 0), with[Whole::sinks](0, 1));
  EXPECT_GT((with[Whole::layer_output] - without[Whole::layer_output]).cwiseAbs().maxCoeff(), 1e-3);
  EXPECT_EQ(without[Whole::sinks].size(), 0);
}

// ---- one attend

struct OneAttend {
  Matrix<double> memory;
  std::vector<View<double>> views;
  OneAttend(std::int64_t queries, std::int64_t keys, bool sinks) {
    memory.setConstant(std::max<std::int64_t>({queries, keys, 1}), 4 + 6 + 2 + 1 + 1, 0.25);
    for (Eigen::Index i = 0; i < memory.size(); ++i) memory.data()[i] += 0.01 * static_cast<double>(i % 37);
    views = {memory.block(0, 0, queries, 4), memory.block(0, 4, keys, 6), memory.block(0, 10, queries, 2),
             memory.block(0, 12, queries, 1)};
    if (sinks) views.push_back(memory.block(0, 13, 1, 1));
  }
  static Action action(const Reach& reach) {
    Action a;
    a.qk_dim = 4;
    a.v_dim = 2;
    a.reach = reach;
    return a;
  }
};

TEST(Kinds, AQueryThatSeesNothingGivesItsSinkAlone) {
  // Position 2 sees no key; 9 is too far for the window; 5 sees itself; another request; padding.
  const Tokens queries{{0, 2, 3}, {0, 9, 10}, {0, 5, 6}, {1, 7, 8}, {kPadding, 0, 1}}, keys{{0, 5, 6}};
  for (const bool sinks : {false, true}) {
    OneAttend one(5, 1, sinks);
    const double sink = one.memory(0, 13);
    const Action a = OneAttend::action({ReachKind::window, 4});
    EXPECT_EQ(attend<double>(a, queries, keys, 0.5, one.views).pairs, 1);
    for (const Eigen::Index row : {0, 1, 3, 4}) {
      EXPECT_EQ(one.views[2].row(row), Eigen::RowVector2d(0, 0));
      EXPECT_EQ(one.views[3](row, 0), sinks && row < 4 ? sink : kNone) << row;
    }
    const double score = 0.5 * one.memory.block(2, 0, 1, 4).cwiseProduct(one.memory.block(0, 4, 1, 4)).sum();
    const double all = std::exp(score) + (sinks ? std::exp(sink) : 0);
    EXPECT_NEAR(one.views[3](2, 0), std::log(all), 1e-15);
    EXPECT_NEAR(one.views[2](2, 1), one.memory(0, 9) * std::exp(score) / all, 1e-15);
  }
}

TEST(Kinds, CountsOfAnAttendAreThoseOfItsReachAndFarKeysAreNotRead) {
  std::mt19937_64 random(3);
  int unread = 0;
  for (int round = 0; round < 400; ++round) {
    Tokens lists[2];
    for (Tokens& list : lists) {
      for (long long i = draw(random, 0, 3); i > 0; --i) {
        const long long begin = draw(random, 0, 40);
        const auto request = static_cast<std::int32_t>(draw(random, kPadding, 1));
        list.push_back({request, begin, begin + draw(random, 0, 40), draw(random, 1, 4)});
      }
    }
    Reach reach{static_cast<ReachKind>(draw(random, 0, kReachKinds - 1)), draw(random, 1, 30)};
    if (!reach.sized()) reach.tokens = 0;
    OneAttend one(rows(lists[0]), rows(lists[1]), round % 2 == 0);
    std::int64_t row = 0;
    for (const Interval& i : lists[1]) {
      for (std::int64_t at = 0; at < i.size(); ++at, ++row) {
        const Interval key{i.request, i.position(at), i.position(at) + 1};
        if (rows_in_reach(lists[0], {&key, 1}, reach) > 0) continue;
        one.views[1].row(row).setConstant(std::numeric_limits<double>::quiet_NaN());
        ++unread;
      }
    }
    Action a = OneAttend::action(reach);
    const Attended done = attend<double>(a, lists[0], lists[1], 0.5, one.views);
    EXPECT_EQ(done.pairs, causal_pairs(lists[0], lists[1], reach));
    EXPECT_EQ(done.key_rows, rows_in_reach(lists[0], lists[1], reach));
    EXPECT_TRUE(one.views[2].allFinite());
    a.rectangle = true;
    EXPECT_EQ(attend<double>(a, lists[0], lists[1], 0.5, one.views).key_rows,
              rows_in_reach(lists[0], lists[1], {}));
  }
  EXPECT_GT(unread, 1000);
}

TEST(Kinds, WrongReachesAndSinksAreNamed) {
  const Tokens tokens{{0, 0, 3}};
  OneAttend one(3, 3, true);
  const auto wrong = [&](const Reach& reach, const View<double>& sinks) {
    const std::vector<View<double>> v{one.views[0], one.views[1], one.views[2], one.views[3], sinks};
    return wrong_shape<double>(OneAttend::action(reach), tokens, tokens, v);
  };
  EXPECT_EQ(wrong({}, one.views[4]), "");
  EXPECT_EQ(wrong({}, one.memory.block(0, 12, 1, 2)), "has a sinks region of the wrong width");
  EXPECT_EQ(wrong({}, one.memory.block(0, 13, 2, 1)), "has sinks of other rows than one");
  EXPECT_EQ(wrong({ReachKind::window, 0}, one.views[4]), "has a window or chunk of no tokens");
  one.views.push_back(one.views[4]);
  EXPECT_EQ(wrong_shape<double>(OneAttend::action({}), tokens, tokens, one.views),
            "has 6 regions, but it takes query, kv, output, lse and, where it has them, sinks");
}

// ---- sinks are read, kinds kept apart

TEST(Kinds, SinksAreReadAndNotWritten) {
  EXPECT_TRUE(is_result(Function::attend, 2, 5) && is_result(Function::attend, 3, 5));
  EXPECT_FALSE(is_result(Function::attend, 4, 5));
  EXPECT_TRUE(is_result(Function::merge, 4, 6) && !is_result(Function::merge, 3, 6));
  std::vector<testing::Made> all;
  testing::add_kinds(all);
  for (testing::Made& m : all) {
    if (!m.problem.sinks) continue;
    Dataflow& f = *m.schedule.flow;
    EXPECT_TRUE(hazards(m.schedule).empty()) << m.name;
    // A message of the ring that also writes the sinks, while they are read.
    const SlotId sinks = f.regions_of(*std::find_if(f.actions.begin(), f.actions.end(), has_sinks))[4].slot;
    Move& move = f.moves.front();
    move.source = {move.source.slot, 0, 1, 0, 4};
    move.target = {sinks, 0, 1, 0, 4};
    EXPECT_NE(lines({to_string(m.schedule, hazards(m.schedule).front())}).find("slot 'sinks'"),
              std::string::npos);
    break;
  }
}

TEST(Kinds, EachKindIsComparedWithItsOwnProblem) {
  const MadeOfKinds m = layers_of_kinds();
  const Check c = check(m.schedule, m.problems);
  EXPECT_TRUE(c.passed()) << c.worst << "\n" << lines(c.faults);
  EXPECT_GT(c.max_error_float, 1e-9);
  EXPECT_EQ(c.counts.pairs, 4 * (45 + 15) + 6 * (24 + 12));
}

TEST(Kinds, KindsThatTheListLacksAreFaults) {
  MadeOfKinds m = layers_of_kinds();
  Dataflow& f = *m.schedule.flow;
  const std::string first = lines(check(m.schedule, m.problems[0]).faults);
  EXPECT_EQ(first, "input 'query', rank 0: kind 1 of attention, of 1\n");
  f.outputs[1].kind = 2;
  const std::string outputs = lines(check(m.schedule, m.problems).faults);
  EXPECT_EQ(outputs, "output 'output', rank 0: kind 2 of attention, of 2\nno output of kind 1 is bound\n");
  f.outputs[1].kind = 1;
  f.outputs[1].rows = f.tokens(std::array{Interval{0, 0, 9}, Interval{kPadding, 0, 5}});
  EXPECT_EQ(lines(check(m.schedule, m.problems).faults),
            "180 output elements of kind 1 that no rank gives, the first: request 1, position 0, column 0\n");
}

}  // namespace
}  // namespace shardline
