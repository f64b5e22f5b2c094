// Failures as people write them.
#include "planner/studies/replica_failures.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sim/base/error.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

TEST(ReplicaFailures, R13AreReadInTheOrderOfTime) {
  const auto all = parse_failures("--failure", {"1 at 2 min for 30 s", " 0  at 5s "}, 2);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].replica, 0U);
  EXPECT_EQ(all[0].down, Seconds(5));
  EXPECT_TRUE(std::isinf(all[0].up.value));
  EXPECT_EQ(all[1].up, Seconds(150));
  EXPECT_EQ(to_string(all[1]), "1 at 120 s for 30 s");
  EXPECT_TRUE(parse_failures("--failure", {}, 1).empty());
}

TEST(ReplicaFailures, R13EveryFaultIsSaid) {
  const std::pair<const char*, const char*> kBad[]{
      {"", "--failure:1:1: expected the number of a replica"},
      {"x at 5 s", "--failure:1:1: expected the number of a replica"},
      {"2 at 5 s", "--failure:1:1: there is no replica 2: they are 0 to 1"},
      {"-1 at 5 s", "--failure:1:1: expected the number of a replica"},
      {"1", "--failure:1:2: expected \"at\" and a time behind the replica"},
      {"1 for 5 s", "--failure:1:2: expected \"at\" and a time behind the replica"},
      {"1 at 5 kg", "--failure:1:6"},
      {"1 at 5 s for 0 s", "expected a positive time"},
      {"1 at 5 s for", "--failure:1:6"},
      {"1 at 1e9 s", "expected a time of 0 s to 10000000 s"},
      {"1 at -5 s", "--failure:1:6"}};
  for (const auto& [text, message] : kBad) {
    try {
      parse_failures("--failure", {text}, 2);
      ADD_FAILURE() << text;
    } catch (const UserError& e) {
      EXPECT_THAT(e.what(), HasSubstr(message)) << text;
    }
  }
  try {
    parse_failures("--failure", {"0 at 5 s", "0 at 9 s for 1 s"}, 2);
    ADD_FAILURE();
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("replica 0 is down already"));
  }
}

}  // namespace
}  // namespace shardline
