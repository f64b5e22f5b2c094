// Which messages are a library's collective, and that both ways give the same numbers.
#include <gtest/gtest.h>

#include <functional>

#include "cuda_probe/execute/cuda/collective.hpp"
#include "tests/cuda_probe/executor_cuda/messages.hpp"

namespace shardline::testing {
namespace {

constexpr std::int64_t kRows = 12, kColumns = 16;
const Region kAll{0, 0, kRows, 0, kColumns};

Region piece(int i, int of) { return {0, kRows / of * i, kRows / of, 0, kColumns}; }

/// All messages of a collective of each group; `change` may spoil one or drop it (false).
Messages collective(
    OpKind kind, int ranks, Group group,
    const std::function<bool(Move&)>& change = [](Move&) { return true; }) {
  Messages m(ranks, 2, kRows, kColumns);
  m.begin(kind, group);
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      const int span = group.size * group.stride;
      if (from == to || from / span != to / span || from % group.stride != to % group.stride) continue;
      const int source = from % span / group.stride, target = to % span / group.stride;
      Move move{from, to, kAll, kAll, kind != OpKind::all_gather};
      if (kind == OpKind::reduce_scatter) move.source = move.target = piece(target, group.size);
      if (kind == OpKind::all_gather) move.source = move.target = piece(source, group.size);
      if (change(move)) m.move(move);
    }
  }
  m.finish();
  return m;
}

std::optional<std::vector<Collective>> recognised(const Messages& m) {
  return as_collectives(m.schedule, Layout(*m.schedule.flow, ranks_of(m.schedule)), m.op);
}

class EveryCollective : public ::testing::TestWithParam<OpKind> {};

TEST_P(EveryCollective, IsRecognisedGroupByGroup) {
  for (const Group group : {Group{4, 1}, Group{2, 1}, Group{2, 2}}) {
    const Messages m = collective(GetParam(), 4, group);
    const auto found = recognised(m);
    ASSERT_TRUE(found);
    ASSERT_EQ(found->size(), static_cast<std::size_t>(4 / group.size));
    EXPECT_EQ(found->front().members.back(), (group.size - 1) * group.stride);
    const bool whole = GetParam() == OpKind::all_reduce;
    EXPECT_EQ(found->front().count, static_cast<std::size_t>(kRows * kColumns / (whole ? 1 : group.size)));
  }
}

TEST_P(EveryCollective, GivesWhatMessagesGive) {
  for (const Group group : {Group{4, 1}, Group{2, 2}}) {
    const Messages m = collective(GetParam(), 4, group);
    const RunResult<float> want = m.inputs.on_cpu(m.schedule);
    for (const bool collectives : {true, false}) {
      DeviceOptions options;
      options.collectives = collectives;
      const DeviceResult got = on_emulated(m.schedule, m.inputs, {5}, options);
      for (std::size_t o = 0; o < want.outputs.size(); ++o)
        EXPECT_EQ(got.outputs[o].values, want.outputs[o].values) << "output " << o << " " << collectives;
    }
  }
}

// Each of these would give other numbers as a collective, or is of no kind that has one.
TEST_P(EveryCollective, OtherMessagesAreNot) {
  const auto spoiled = [](const std::function<bool(Move&)>& change) {
    return recognised(collective(GetParam(), 3, {3, 1}, change)).has_value();
  };
  EXPECT_TRUE(spoiled([](Move&) { return true; }));
  const auto is = [](const Move& m) { return m.from == 1 && m.to == 2; };
  EXPECT_FALSE(spoiled([&](Move& m) { return !is(m); })) << "one is missing";
  EXPECT_FALSE(spoiled([&](Move& m) { return m.add = m.add != is(m), true; })) << "one adds otherwise";
  EXPECT_FALSE(spoiled([&](Move& m) { return m.source.slot = is(m), true; })) << "from elsewhere";
  EXPECT_FALSE(spoiled([&](Move& m) { return m.target.slot = is(m), true; })) << "to elsewhere";
  EXPECT_FALSE(spoiled([&](Move& m) {
    return m.target.row -= is(m) && m.target.row > 0, m.source.rows -= is(m), m.target.rows -= is(m), true;
  })) << "one is shorter";
  EXPECT_FALSE(spoiled([&](Move& m) { return m.source.columns = m.target.columns = 8, true; })) << "columns";
  EXPECT_FALSE(spoiled([&](Move& m) { return m.to = is(m) ? 0 : m.to, true; })) << "twice to one rank";
  EXPECT_FALSE(spoiled([&](Move& m) { return m.to = is(m) ? 1 : m.to, true; })) << "to itself";
  const auto misplaced = [&](Move& m) {
    std::swap(m.source.row, m.target.row);
    if (is(m)) m.source.row = m.target.row = kRows / 3 * (m.target.row == 0);
    return true;
  };
  if (GetParam() != OpKind::all_reduce) {
    EXPECT_FALSE(spoiled(misplaced)) << "pieces out of order";
  }
  Messages other = collective(GetParam(), 3, {3, 1});
  other.schedule.ops[other.op].kind = OpKind::all_to_all;
  EXPECT_FALSE(recognised(other));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryCollective,
                         ::testing::Values(OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather),
                         [](const auto& param) { return std::string(to_string(param.param)); });

// As strategies gather keys and values: into another slot, with a copy of the own piece.
TEST(Collective, GatherIntoAnotherSlotNeedsTheOwnPieceThere) {
  for (const bool own : {true, false}) {
    Messages m(3, 2, kRows, kColumns);
    m.begin(OpKind::all_gather);
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        Region target = piece(from, 3);
        target.slot = 1;
        if (own || from != to) m.move({from, to, piece(0, 3), target});
      }
    }
    m.finish();
    EXPECT_EQ(recognised(m).has_value(), own);
    const RunResult<float> want = m.inputs.on_cpu(m.schedule);
    const DeviceResult got = on_emulated(m.schedule, m.inputs, {5});
    for (std::size_t o = 0; o < want.outputs.size(); ++o)
      EXPECT_EQ(got.outputs[o].values, want.outputs[o].values);
  }
}

}  // namespace
}  // namespace shardline::testing
