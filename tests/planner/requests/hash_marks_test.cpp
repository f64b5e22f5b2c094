// Which hashes were met since a start.
#include "planner/requests/hash_marks.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "sim/base/random.hpp"

namespace shardline {
namespace {

// Rounds of up to 100 of 64 hashes, which collide in any table of fewer places, against a set.
TEST(HashMarks, AreASetThatIsEmptiedAtOnce) {
  RandomStream random(1, "marks");
  HashMarks marks;
  std::uint64_t again = 0;
  for (int round = 0; round < 2000; ++round) {
    std::set<std::uint64_t> met;
    marks.restart();
    for (std::uint64_t n = random.below(100); n > 0; --n) {
      const std::uint64_t hash = 16 * random.below(64);
      const bool is_new = met.insert(hash).second;
      ASSERT_EQ(marks.meet(hash), is_new);
      again += is_new ? 0 : 1;
    }
  }
  EXPECT_GT(again, 10'000U);
}

}  // namespace
}  // namespace shardline
