// The executor and its reference: hand-made schedules compute what one device computes, and faults are
// located.
#include "cuda_probe/execute/cpu/executor.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <random>

#include "cuda_probe/execute/cpu/check.hpp"
#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/execute/cpu/hazards.hpp"
#include "cuda_probe/execute/cpu/mutations.hpp"
#include "tests/cuda_probe/schedules.hpp"

namespace shardline {
namespace {

using testing::all_made;
using testing::Made;

std::string lines(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& t : texts) out += t + "\n";
  return out;
}

std::string error_of(const Schedule& s, const Problem& p) {
  try {
    const Tensors<double> t = reference(p);
    Executor<double>(s, t).run();
  } catch (const ExecutionError& error) {
    return error.what();
  }
  return {};
}

TEST(Executor, HandMadeSchedulesComputeAndChargeWhatTheyShould) {
  for (const Made& m : all_made()) {
    SCOPED_TRACE(m.name);
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      Problem p = m.problem;
      p.seed = seed;
      const Check c = check(m.schedule, p);
      EXPECT_TRUE(c.passed()) << c.max_error_double << ", " << c.max_error_float << " at " << c.worst << "\n"
                              << lines(c.faults);
      EXPECT_GT(c.max_error_float, 1e-9) << "float is not double";
      EXPECT_GT(c.counts.pairs, 0);
    }
  }
}

// The reference uses loops; here a softmax of one head is written with other means.
TEST(Executor, ReferenceIsASoftmax) {
  Problem p;
  p.qk_dim = 3;
  p.v_dim = 2;
  p.lengths = {7};
  p.scale = 0.7;
  const Tensors<double> t = reference(p);
  const Matrix<double>&q = t[Whole::query], &kv = t[Whole::kv];
  for (Eigen::Index i = 0; i < 7; ++i) {
    const Eigen::VectorXd w = (0.7 * kv.topLeftCorner(i + 1, 3) * q.row(i).transpose()).array().exp();
    const Eigen::RowVectorXd want = w.transpose() * kv.block(0, 3, i + 1, 2) / w.sum();
    EXPECT_LT((want - t[Whole::attention_output].row(i)).cwiseAbs().maxCoeff(), 1e-14);
  }
}

TEST(Executor, ReferenceHeadsAndRequestsAreIndependent) {
  Problem p;
  p.q_heads = 4;
  p.kv_heads = 2;
  p.lengths = {3, 4};
  const Tensors<double> t = reference(p);
  Problem one = p;
  one.q_heads = one.kv_heads = 1;
  one.lengths = {4};
  for (int head = 0; head < 4; ++head) {
    const Matrix<double> q = t[Whole::query].block(3, head * 4, 4, 4);
    const Matrix<double> kv = t[Whole::kv].block(3, head / 2 * 8, 4, 8);
    EXPECT_EQ(plain_attention(one, q, kv), t[Whole::attention_output].block(3, head * 4, 4, 4));
  }
}

TEST(Executor, LatentReferenceIsMultiQueryWithValuesInTheKeys) {
  Problem latent;
  latent.q_heads = 3;
  latent.cache = CacheRows::latent;
  latent.qk_dim = 5;
  latent.v_dim = 3;
  latent.lengths = {6};
  const Tensors<double> t = reference(latent);
  Problem multi_query = latent;
  multi_query.cache = CacheRows::heads;
  Matrix<double> kv(6, 8);
  kv << t[Whole::kv], t[Whole::kv].leftCols(3);
  EXPECT_EQ(plain_attention(multi_query, t[Whole::query], kv), t[Whole::attention_output]);
}

TEST(Executor, InputsAreNormalAndTheSameEverywhere) {
  Problem p;
  p.qk_dim = 64;
  p.lengths = {1000};
  const Tensors<double> t = reference(p);
  const Matrix<double>& q = t[Whole::query];
  EXPECT_NEAR(q.mean(), 0, 4 / std::sqrt(64000.0));
  EXPECT_NEAR(q.squaredNorm() / 64000, 1, 0.03);
  // Sums of 16-bit integers over 2^16: no rounding on the way.
  EXPECT_EQ(q(0, 0) * 65536, std::round(q(0, 0) * 65536));
}

// ---- merge

struct Partials {
  Matrix<double> memory;  // (output of 2, lse of 1) per partial result
  Action action;
  explicit Partials(Matrix<double> m) : memory(std::move(m)) {
    action.function = Function::merge;
    action.v_dim = 2;
  }
  Eigen::RowVector3d merged(const std::vector<int>& which) {
    Matrix<double> result(1, 3);
    std::vector<View<double>> views;
    for (const int i : which) {
      views.push_back(memory.block(0, 3 * i, 1, 2));
      views.push_back(memory.block(0, 3 * i + 2, 1, 1));
    }
    views.push_back(result.block(0, 0, 1, 2));
    views.push_back(result.block(0, 2, 1, 1));
    merge<double>(action, views);
    return result;
  }
};

TEST(Executor, MergeWeighsByExponentialsOfLse) {
  Matrix<double> m(1, 6);
  m << 1, 2, std::log(3.0), 5, 6, std::log(1.0);
  const Eigen::RowVector3d r = Partials(m).merged({0, 1});
  EXPECT_NEAR(r(0), (3 * 1 + 5) / 4.0, 1e-15);
  EXPECT_NEAR(r(1), (3 * 2 + 6) / 4.0, 1e-15);
  EXPECT_NEAR(r(2), std::log(4.0), 1e-15);
}

TEST(Executor, MergeIdentities) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  Matrix<double> m(1, 12);
  m << 1, 2, 700, -3, 4, 701, 9e30, 9e30, none, 0, 0, none;
  Partials p(m);
  EXPECT_EQ(p.merged({0}), m.leftCols(3)) << "one partial result is the result";
  EXPECT_EQ(p.merged({2, 0}), p.merged({0})) << "what saw nothing counts nothing";
  EXPECT_LT((p.merged({0, 1}) - p.merged({1, 0})).cwiseAbs().maxCoeff(), 1e-12);
  EXPECT_EQ(p.merged({2, 3}), (Eigen::RowVector3d(0, 0, none)));
  EXPECT_TRUE(p.merged({0, 1}).allFinite()) << "no overflow";
}

// A part of a sum: each rank weighs its own output against all log-sum-exps, and the weighed outputs of all
// ranks add up to the merge of them.
TEST(Executor, PartsThatAreOnlyWeighedAddUpToTheMerge) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  Matrix<double> m(1, 12);
  m << 1, 2, 0.5, -3, 4, 2.5, 7, 1, 1.25, 0, 0, none;
  const Eigen::RowVector3d whole = Partials(m).merged({0, 1, 2, 3});
  Eigen::RowVector2d sum(0, 0);
  for (int own = 0; own < 4; ++own) {
    Matrix<double> result(1, 3);
    std::vector<View<double>> views;
    for (int part = 0; part < 4; ++part) {
      views.push_back(m.block(0, 3 * part, 1, part == own ? 2 : 0));
      views.push_back(m.block(0, 3 * part + 2, 1, 1));
    }
    views.push_back(result.block(0, 0, 1, 2));
    views.push_back(result.block(0, 2, 1, 1));
    Action action;
    action.function = Function::merge;
    action.v_dim = 2;
    EXPECT_EQ(wrong_shape<double>(action, {}, {}, views), "");
    merge<double>(action, views);
    EXPECT_NEAR(result(2), whole(2), 1e-15) << own;
    EXPECT_NEAR(result(0), m(3 * own) * std::exp(m(3 * own + 2) - whole(2)), 1e-15) << own;
    sum += result.leftCols(2);
    std::vector<View<double>> unequal;
    for (std::size_t i = 0; i < views.size(); ++i)
      unequal.push_back(i == 2 * static_cast<std::size_t>(own) ? m.block(0, 3 * own, 1, 1) : views[i]);
    EXPECT_EQ(wrong_shape<double>(action, {}, {}, unequal), "merges partial results of unequal shapes");
  }
  EXPECT_LT((sum - whole.leftCols(2)).cwiseAbs().maxCoeff(), 1e-15);
}

TEST(Executor, AttendOfHalvesMergesToTheWhole) {
  std::mt19937_64 random(5);
  Matrix<double> m(10, 3 * 4 + 10 * 1);
  for (Eigen::Index i = 0; i < m.size(); ++i) m.data()[i] = static_cast<double>(random() % 1000) / 300;
  Matrix<double> q = m.leftCols(4), kv = m.middleCols(4, 6);
  Matrix<double> out(10, 6), lse(10, 3);
  const std::array halves{Interval{0, 0, 10}, Interval{0, 0, 3}, Interval{0, 3, 10}};
  Action a;
  a.qk_dim = 4;
  a.v_dim = 2;
  for (int i = 0; i < 3; ++i) {
    const auto& keys = halves[static_cast<std::size_t>(i)];
    std::vector<View<double>> v{q.block(0, 0, 10, 4), kv.block(keys.begin, 0, keys.size(), 6),
                                out.block(0, 2 * i, 10, 2), lse.block(0, i, 10, 1)};
    EXPECT_EQ(attend<double>(a, {halves.data(), 1}, {&keys, 1}, 0.5, v).pairs,
              causal_pairs({halves.data(), 1}, {&keys, 1}));
  }
  for (Eigen::Index row = 0; row < 10; ++row) {
    Matrix<double> pair(1, 6);
    pair << out.block(row, 2, 1, 2), lse(row, 1), out.block(row, 4, 1, 2), lse(row, 2);
    const Eigen::RowVector3d r = Partials(pair).merged({0, 1});
    EXPECT_NEAR(r(0), out(row, 0), 1e-14);
    EXPECT_NEAR(r(1), out(row, 1), 1e-14);
    EXPECT_NEAR(r(2), lse(row, 0), 1e-14);
  }
}

// ---- faults

TEST(Executor, FaultsNameOpRankAndRegion) {
  Made m = testing::one_rank();
  EXPECT_EQ(error_of(m.schedule, m.problem), "");
  Dataflow& f = *m.schedule.flow;
  const Dataflow good = f;
  f.regions[1].row = 1;
  EXPECT_EQ(error_of(m.schedule, m.problem),
            "op 0 'attend', rank 0: rows [1, 15) x columns [0, 28) lie outside slot 'kv' of 14 x 28");
  f = good;
  f.regions[1].columns = 14;
  EXPECT_EQ(error_of(m.schedule, m.problem), "op 0 'attend', rank 0: has a kv region of the wrong width");
  f = good;
  f.actions[0].kv_heads = 3;
  EXPECT_EQ(error_of(m.schedule, m.problem),
            "op 0 'attend', rank 0: has KV heads that do not divide its query heads");
  f.actions[0].kv_heads = 0;  // no sign of latents: an action names those
  EXPECT_EQ(error_of(m.schedule, m.problem), "op 0 'attend', rank 0: has a head count or width below 1");
  f = good;
  f.actions[0].cache = CacheRows::latent;
  EXPECT_EQ(error_of(m.schedule, m.problem), "op 0 'attend', rank 0: has a kv region of the wrong width");
  f = good;
  f.inputs[0].columns = f.range(0, 31);
  EXPECT_EQ(error_of(m.schedule, m.problem), "input 'query', rank 0: 14 x 31 elements for a slot of 14 x 32");
  f = good;
  f.inputs[0].rows = f.range(0, 14);
  EXPECT_EQ(error_of(m.schedule, m.problem), "input 'query', rank 0: rows [0, 14) lie outside 9");
  f = good;
  f.extents.push_back(f.extents.front());
  EXPECT_EQ(error_of(m.schedule, m.problem), "slot 'query' of rank 0 is declared twice");
  m.schedule.flow = nullptr;
  EXPECT_EQ(error_of(m.schedule, m.problem), "the schedule has no data flow");
}

TEST(Executor, ChargesAndCoverageAreLocated) {
  Made m = testing::one_rank();
  std::get<AttendDecodeShape>(m.schedule.ops[0].shape).pairs = 59;
  Check c = check(m.schedule, m.problem);
  EXPECT_EQ(lines(c.faults), "op 0 'attend', rank 0: 60 pairs executed, 59 charged\n");
  EXPECT_LE(c.max_error_double, 1e-12);
  EXPECT_FALSE(c.passed());

  m = testing::one_rank();
  m.schedule.flow->outputs[0].rows =
      m.schedule.flow->tokens(std::array{Interval{0, 0, 9}, Interval{kPadding, 0, 5}});
  c = check(m.schedule, m.problem);
  EXPECT_EQ(lines(c.faults),
            "120 output elements that no rank gives, the first: request 1, position 0, column 0\n");
  m.problem.expected_queries = {{0, 2, 9}};
  EXPECT_TRUE(check(m.schedule, m.problem).passed());

  m = testing::one_rank();
  m.schedule.flow->outputs.clear();
  EXPECT_EQ(lines(check(m.schedule, m.problem).faults), "no output is bound\n");
}

TEST(Executor, MessagesStayInTheirGroup) {
  Made m = all_made()[1];
  ASSERT_EQ(m.schedule.ops[0].kind, OpKind::send_recv);
  m.schedule.ranks_per_stage = 4;
  m.schedule.ops[0].group = {2, 2};
  const std::string faults = lines(check(m.schedule, m.problem).faults);
  EXPECT_NE(faults.find("op 0 'ring', rank 0: a message to rank 1 leaves its group\n"), std::string::npos)
      << faults;
}

TEST(Executor, WhatNobodyWroteIsSeen) {
  Made m = all_made()[1];
  Dataflow& f = *m.schedule.flow;
  for (Move& move : f.moves) move.source.rows = move.target.rows = 0;
  const Check c = check(m.schedule, m.problem, {.hazards = false, .charges = Charges::none});
  EXPECT_TRUE(std::isinf(c.max_error_double));
  EXPECT_NE(c.worst.find("nan"), std::string::npos) << c.worst;
}

TEST(Executor, SentBytesAreThoseOfTheDataFlow) {
  for (const Made& m : all_made()) {
    SCOPED_TRACE(m.name);
    const Tensors<float> t = reference(m.problem).cast<float>();
    const RunResult<float> run = Executor<float>(m.schedule, t).run();
    for (OpIndex op = 0; op < m.schedule.ops.size(); ++op) {
      for (int r = 0; r < run.ranks; ++r)
        EXPECT_EQ(run.count(op, r).bytes, m.schedule.flow->bytes_out(op, r));
    }
  }
}

// Two ops of different lanes on one number, and nothing between them.
TEST(Executor, OppositeOrdersAreRun) {
  Schedule s;
  s.flow = std::make_shared<Dataflow>();
  s.ranks_per_stage = 2;
  ScheduleBuilder b(s);
  Dataflow& f = *s.flow;
  b.begin_block("block");
  const SlotId x = f.slot("x", 2), y = f.slot("y", 2);
  for (int r = 0; r < 2; ++r) {
    f.size(x, r, 1, 1);
    f.size(y, r, 1, 1);
    f.inputs.push_back({x, r, Whole::hidden, f.range(r, r + 1), f.range(0, 1), 0});
    f.outputs.push_back({y, r, Whole::layer_output, f.range(0, 1), f.range(0, 1), 0});
  }
  const Region rx{x, 0, 1, 0, 1}, ry{y, 0, 1, 0, 1};
  const OpIndex send = b.exchange("send", Part::exchange, OpKind::send_recv, {2, 1}, Bytes(2));
  for (int r = 0; r < 2; ++r) f.move(send, {r, 1 - r, rx, rx, false});
  b.after({});
  const OpIndex add = b.elementwise("add", Part::ffn, OpKind::elementwise, {});
  for (int r = 0; r < 2; ++r) {
    Action a;
    a.rank = r;
    a.function = Function::add;
    f.act(add, a, std::array{rx, rx, ry});
  }
  const BlockIndex block = b.end_block();
  b.run({block});
  b.end_stage();
  Tensors<double> t;
  t.first_row = {0, 2};
  t[Whole::hidden].resize(2, 1);
  t[Whole::hidden] << 3, 5;
  Executor<double> executor(s, t);
  EXPECT_EQ(executor.run({Order::communication_first}).outputs[0].values(0, 0), 10);
  EXPECT_EQ(executor.run({Order::compute_first}).outputs[0].values(0, 0), 6);
  const std::vector<Hazard> found = hazards(s);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(to_string(s, found[0]),
            "op 0 'send' and op 1 'add', rank 0: nothing orders them, and both use slot 'x'");

  s.ops[add].dependency_count = 1;
  s.ops[add].first_dependency = 0;
  s.dependencies = {send};
  EXPECT_TRUE(hazards(s).empty());
  for (const Order o : {Order::by_index, Order::latest_ready_first, Order::communication_first,
                        Order::compute_first, Order::random})
    EXPECT_EQ(executor.run({o}).outputs[0].values(0, 0), 10) << to_string(o);
}

}  // namespace
}  // namespace shardline
