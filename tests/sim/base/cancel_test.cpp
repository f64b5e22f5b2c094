#include "sim/base/cancel.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "sim/base/parallel.hpp"

namespace shardline {
namespace {

TEST(Cancel, OnlyWithinAScopeThatIsAsked) {
  check_cancelled();
  const CancelQuestion yes = [] { return true; }, no = [] { return false; };
  {
    const CancelScope outer(&yes);
    EXPECT_THROW(check_cancelled(), Cancelled);
    const CancelScope inner(&no);
    check_cancelled();
  }
  check_cancelled();
}

TEST(Cancel, EndsALoopOnAnyNumberOfThreads) {
  for (const std::size_t threads : {1, 2, 4}) {
    std::atomic<int> bodies = 0;
    const CancelQuestion enough = [&] { return bodies >= 3; };
    const CancelScope scope(&enough);
    EXPECT_THROW(parallel_for(0, 100'000, threads, [&](std::size_t, std::size_t) { ++bodies; }), Cancelled);
    EXPECT_LT(bodies, 100) << threads;
  }
}

TEST(Cancel, ThreadsOfOneLoopAskWhatItsThreadAsks) {
  const CancelQuestion yes = [] { return true; }, no = [] { return false; };
  const CancelScope outer(&no);
  parallel_for(0, 1000, 4, [&](std::size_t, std::size_t) { EXPECT_EQ(cancel_question(), &no); });
  EXPECT_EQ(cancel_question(), &no);
}

TEST(Cancel, ShortTurnsAskSoon) {
  const CancelQuestion yes = [] { return true; };
  const CancelScope scope(&yes);
  CancelCheck check;
  int turns = 0;
  EXPECT_THROW(for (; turns < 100'000; ++turns) check(), Cancelled);
  EXPECT_LT(turns, 1024);
}

}  // namespace
}  // namespace shardline
