// What is due first, against a look at all.
#include "planner/requests/first_due.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/random.hpp"

namespace shardline {
namespace {

TEST(FirstDue, IsTheLeastAndOfEqualOnesTheFirst) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{5}, std::size_t{64}}) {
    RandomStream random(count, "first due");
    FirstDue tree(count);
    std::vector<double> times(count, FirstDue::kNever);
    EXPECT_EQ(tree.time().value, FirstDue::kNever);
    for (int i = 0; i < 2000; ++i) {
      const auto which = static_cast<std::size_t>(random.below(count));
      times[which] = random.below(4) == 0 ? FirstDue::kNever : static_cast<double>(random.below(20));
      tree.set(which, Seconds(times[which]));
      const auto least = std::min_element(times.begin(), times.end());
      ASSERT_EQ(tree.time().value, *least);
      if (*least < FirstDue::kNever) {
        ASSERT_EQ(tree.which(), static_cast<std::size_t>(least - times.begin()));
      }
    }
  }
}

}  // namespace
}  // namespace shardline
