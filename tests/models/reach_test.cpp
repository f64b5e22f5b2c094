// Windows and chunks: pairs within reach and the keys that are read for them, against counting.
#include "models/ir/reach.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <utility>

#include "tests/planner/tokens.hpp"

namespace shardline {
namespace {

Tokens some_tokens(std::mt19937_64& random, long long far, long long widest) {
  Tokens list;
  for (long long i = draw(random, 0, 3); i > 0; --i) {
    const long long begin = draw(random, 0, far);
    const auto request = static_cast<std::int32_t>(draw(random, kPadding, 1));
    const long long stride = request == kPadding ? 1 : draw(random, 1, widest);
    list.push_back({request, begin, begin + draw(random, 0, far), stride});
  }
  return list;
}

Reach some_reach(std::mt19937_64& random, long long far) {
  Reach reach{static_cast<ReachKind>(draw(random, 0, kReachKinds - 1)), 0};
  if (reach.sized()) reach.tokens = draw(random, 1, far + 5);
  return reach;
}

TEST(Tokens, T4PairsInReachAgreeWithCounting) {
  std::mt19937_64 random(14);
  long long local = 0, fewer = 0;
  for (int round = 0; round < 6000; ++round) {
    const long long far = draw(random, 1, 150), widest = draw(random, 1, 7);
    const Tokens queries = some_tokens(random, far, widest), keys = some_tokens(random, far, widest);
    const Reach reach = some_reach(random, far);
    std::int64_t pairs = 0;
    for (const auto& [request, query] : one_by_one(queries)) {
      for (const auto& [of, key] : one_by_one(keys))
        pairs += request != kPadding && of == request && sees(reach, query, key);
    }
    ASSERT_EQ(causal_pairs(queries, keys, reach), pairs) << round;
    local += reach.local();
    fewer += pairs > 0 && pairs < causal_pairs(queries, keys);
  }
  EXPECT_GT(local, 3000);
  EXPECT_GT(fewer, 500);
}

// To hold every interval against every other would take minutes.
TEST(Tokens, T4ManyRequestsOnManyRanksAreTakenByRequest) {
  constexpr int kRanks = 64, kRequests = 4096, kRows = 8;
  constexpr std::int64_t kTokens = kRanks * kRows;
  Tokens held;  // rank by rank, as they are gathered
  for (int rank = 0; rank < kRanks; ++rank) {
    for (std::int32_t request = 0; request < kRequests; ++request)
      held.push_back({request, rank * kRows, (rank + 1) * kRows});
  }
  EXPECT_EQ(causal_pairs(held, held), kRequests * (kTokens * (kTokens + 1) / 2));
  EXPECT_EQ(all_pairs(held, held), kRequests * kTokens * kTokens);
}

TEST(Tokens, T4RowsInReachAgreeWithCounting) {
  std::mt19937_64 random(15);
  long long fewer = 0;
  for (int round = 0; round < 6000; ++round) {
    const long long far = draw(random, 1, 150), widest = draw(random, 1, 7);
    const Tokens queries = some_tokens(random, far, widest), keys = some_tokens(random, far, widest);
    const Reach reach = some_reach(random, far);
    std::int64_t rows_read = 0, all = 0;
    for (const auto& [of, key] : one_by_one(keys)) {
      bool asked = false, reached = false;
      for (const Interval& q : queries) {
        if (q.request == kPadding || q.request != of || q.size() == 0) continue;
        asked = true;
        reached = reached || (reach.first(q.begin) <= key && key <= q.last());
      }
      rows_read += reach.local() ? reached : asked;
      all += asked;
    }
    ASSERT_EQ(rows_in_reach(queries, keys, reach), rows_read) << round;
    fewer += rows_read > 0 && rows_read < all;
  }
  EXPECT_GT(fewer, 500);
}

TEST(Tokens, T4AReachOfTheWholeSequenceIsFull) {
  const Tokens queries{{0, 5, 40}, {1, 3, 90, 4}}, keys{{0, 0, 40}, {1, 0, 90, 7}};
  const std::int64_t full = causal_pairs(queries, keys);
  EXPECT_EQ(causal_pairs(queries, keys, Reach{}), full);
  EXPECT_EQ(causal_pairs(queries, keys, {ReachKind::window, 90}), full);
  EXPECT_EQ(causal_pairs(queries, keys, {ReachKind::chunk, 90}), full);
  EXPECT_EQ(rows_in_reach(queries, keys, Reach{}), 40 + 13);
}

// Far beyond what can be counted, for stripes of any number: all queries but the first see a whole window;
// every chunk is a triangle.
TEST(Tokens, T4StripesOfABillionTokensAddUpExactly) {
  const long long n = 1'000'000'000, w = 4'096, c = 8'192;
  const long long window = w * (w + 1) / 2 + (n - w) * w;
  const long long chunk = n / c * (c * (c + 1) / 2) + n % c * (n % c + 1) / 2;
  for (const long long over : {1LL, 3LL, 64LL}) {
    Tokens queries, keys;
    for (long long r = 0; r < over; ++r) queries.push_back({0, r, n, over});
    for (long long r = 0; r < 4; ++r) keys.push_back({0, r, n, 4});
    EXPECT_EQ(causal_pairs(queries, keys, {ReachKind::window, w}), window) << over;
    EXPECT_EQ(causal_pairs(queries, keys, {ReachKind::chunk, c}), chunk) << over;
  }
}

TEST(Tokens, T4FirstIsTheFirstKeyThatIsSeen) {
  std::mt19937_64 random(16);
  for (int round = 0; round < 300; ++round) {
    const Reach reach = some_reach(random, 60);
    const long long query = draw(random, 0, 100);
    std::int64_t first = 0;
    while (!sees(reach, query, first)) ++first;
    EXPECT_EQ(reach.first(query), first);
  }
}

}  // namespace
}  // namespace shardline
