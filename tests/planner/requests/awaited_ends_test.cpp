// Requests whose text may be in a cache up to its end.
#include "planner/requests/awaited_ends.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace shardline {
namespace {

using Ids = std::vector<std::uint32_t>;

TEST(AwaitedEnds, R9WhoseLastBlockIsStoredMayBeFound) {
  AwaitedEnds ends;
  ends.add(1, 70);
  ends.add(2, 70);
  ends.add(3, 80);
  ends.add_found(4);
  EXPECT_EQ(ends.found(), Ids{4});
  ends.store(std::vector<std::uint64_t>{60, 70});
  EXPECT_EQ(ends.found(), (Ids{4, 1, 2}));
  ends.store(std::vector<std::uint64_t>{70});  // nobody waits for it any more
  EXPECT_EQ(ends.found(), (Ids{4, 1, 2}));
}

TEST(AwaitedEnds, R9WhoWaitsNoMoreIsNotFound) {
  AwaitedEnds ends;
  ends.add(1, 70);
  ends.add(2, 70);
  ends.add_found(3);
  ends.remove(1, 70);
  ends.remove(3, {});
  ends.remove(9, {});  // one that no id stands for
  ends.store(std::vector<std::uint64_t>{70});
  EXPECT_EQ(ends.found(), Ids{2});
  ends.remove(2, 70);
  EXPECT_EQ(ends.found(), Ids{});
  EXPECT_EQ(ends.waiting(), 0U);
}

TEST(AwaitedEnds, R9OfWhoWaitsNoMoreNothingIsKept) {
  AwaitedEnds ends;
  ends.add(1, 70);
  ends.add(2, 80);
  EXPECT_EQ(ends.waiting(), 2U);
  ends.remove(1, 70);
  EXPECT_EQ(ends.waiting(), 1U);
}

}  // namespace
}  // namespace shardline
