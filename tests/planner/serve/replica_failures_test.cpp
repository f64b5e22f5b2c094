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
  const auto all = parse_failures("--failure", {"1 at 2 min for 30 s", " 0  at 5s "}, {2, 0});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].replica, 0U);
  EXPECT_EQ(all[0].down, Seconds(5));
  EXPECT_TRUE(std::isinf(all[0].up.value));
  EXPECT_EQ(all[1].up, Seconds(150));
  EXPECT_EQ(to_string(all[1]), "1 at 120 s for 30 s");
  EXPECT_TRUE(parse_failures("--failure", {}, {1, 0}).empty());
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
      {"1 at 5 s for 0 s", "--failure:1:14: expected at least 1 us"},
      {"1 at 60 s for 1e-15 s", "--failure:1:15: expected at least 1 us"},
      {"1 at 5 s for", "--failure:1:6"},
      {"1 at 1e9 s", "expected a time of 0 s to 10000000 s"},
      {"1 at -5 s", "--failure:1:6"},
      {"prefill 1 at 5 s", "--failure:1:1: there is one pool: expected the number of a replica"}};
  for (const auto& [text, message] : kBad) {
    try {
      parse_failures("--failure", {text}, {2, 0});
      ADD_FAILURE() << text;
    } catch (const UserError& e) {
      EXPECT_THAT(e.what(), HasSubstr(message)) << text;
    }
  }
  try {
    parse_failures("--failure", {"0 at 5 s", "0 at 9 s for 1 s"}, {2, 0});
    ADD_FAILURE();
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("replica 0 is down already"));
  }
}

TEST(ReplicaFailures, R15OfAPairSayTheirPool) {
  const auto all = parse_failures(
      "--failure", {"decode 1 at 2 min for 30 s", " prefill  0 at 5s", "decode 0 at 5 s for 1 s"}, {2, 1});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(to_string(all[0]), "prefill 0 at 5 s");
  EXPECT_EQ(to_string(all[1]), "decode 0 at 5 s for 1 s");
  EXPECT_EQ(all[2].pool, ReplicaPool::decode);
  EXPECT_EQ(all[2].replica, 1U);
  const std::pair<std::vector<std::string>, const char*> kBad[]{
      {{"0 at 5 s"},
       "--failure:1:1: of which pool is the replica: expected \"prefill\" or \"decode\" before its number"},
      {{"prefill at 5 s"}, "--failure:1:9: expected the number of a replica"},
      {{"prefill 1 at 5 s"}, "--failure:1:9: there is no replica 1: those that prefill are 0 to 0"},
      {{"decode 2 at 5 s"}, "--failure:1:8: there is no replica 2: those that decode are 0 to 1"},
      {{"decode 1 at 5 s", "decode 1 at 9 s"}, "replica decode 1 is down already"}};
  for (const auto& [texts, message] : kBad) {
    try {
      parse_failures("--failure", texts, {2, 1});
      ADD_FAILURE() << message;
    } catch (const UserError& e) {
      EXPECT_THAT(e.what(), HasSubstr(message));
    }
  }
}

}  // namespace
}  // namespace shardline
