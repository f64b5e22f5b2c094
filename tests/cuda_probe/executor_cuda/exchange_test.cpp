// Messages on the stand-in device against the CPU executor, bit by bit.
#include <gtest/gtest.h>

#include <random>

#include "tests/cuda_probe/executor_cuda/messages.hpp"

namespace shardline::testing {
namespace {

constexpr int kRanks = 3;
constexpr std::int64_t kRows = 12, kColumns = 24;

void expect_as_on_cpu(const Messages& m, bool collectives = true) {
  const RunResult<float> want = m.inputs.on_cpu(m.schedule);
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    DeviceOptions options;
    options.collectives = collectives;
    const DeviceResult got = on_emulated(m.schedule, m.inputs, {seed}, options);
    ASSERT_EQ(got.outputs.size(), want.outputs.size());
    for (std::size_t o = 0; o < want.outputs.size(); ++o)
      EXPECT_EQ(got.outputs[o].values, want.outputs[o].values) << "output " << o << ", seed " << seed;
  }
}

TEST(DeviceExchange, RanksExchangeWhatTheyHoldInPlace) {
  Messages m(kRanks, 1, kRows, kColumns);
  m.begin(OpKind::send_recv);
  const Region all{0, 0, kRows, 0, kColumns};
  for (int r = 0; r < kRanks; ++r) m.move({r, (r + 1) % kRanks, all, all});
  m.finish();
  expect_as_on_cpu(m);
}

TEST(DeviceExchange, OverlappingCopyInsideARankReadsFirst) {
  Messages m(1, 1, kRows, kColumns);
  m.begin(OpKind::all_to_all);
  m.move({0, 0, {0, 0, kRows - 1, 0, kColumns}, {0, 1, kRows - 1, 0, kColumns}});
  m.move({0, 0, {0, kRows - 1, 1, 0, kColumns}, {0, 0, 1, 0, kColumns}});
  m.finish();
  expect_as_on_cpu(m);
}

// Widths that fill no row unit: a message must not touch its neighbours.
TEST(DeviceExchange, NarrowColumnsArriveAlone) {
  Messages m(2, 2, kRows, 13);
  m.begin(OpKind::all_to_all);
  m.move({0, 1, {0, 2, 5, 3, 7}, {1, 4, 5, 6, 7}});
  m.move({1, 0, {1, 0, 1, 1, 5}, {0, 11, 1, 0, 5}});
  m.move({1, 0, {1, 0, 5, 0, 5}, {0, 3, 5, 2, 5}});
  m.finish();
  expect_as_on_cpu(m);
}

// Regions at random: sources under targets, targets under targets, sums, copies inside ranks, several ops.
TEST(DeviceExchange, RandomMessagesMoveAsOnTheCpu) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    Messages m(kRanks, 2, kRows, kColumns);
    for (int op = 0; op < 3; ++op) {
      m.begin(OpKind::all_to_all);
      for (std::int64_t count = 1 + below(6); count > 0; --count) {
        const bool add = below(3) == 0;
        const std::int64_t unit = add ? 8 : 1;
        const std::int64_t rows = 1 + below(kRows), columns = unit * (1 + below(kColumns / unit));
        const auto region = [&] {
          return Region{static_cast<SlotId>(below(2)), below(kRows - rows + 1), rows,
                        unit * below((kColumns - columns) / unit + 1), columns};
        };
        const Region source = region(), target = region();
        m.move({static_cast<int>(below(kRanks)), static_cast<int>(below(kRanks)), source, target, add});
      }
    }
    m.finish();
    expect_as_on_cpu(m);
  }
}

}  // namespace
}  // namespace shardline::testing
