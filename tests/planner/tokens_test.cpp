// Lists of token intervals: pairs under the causal mask, tiles, equality.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/plan/sharding.hpp"
#include "tests/planner/tokens.hpp"

namespace shardline {
namespace {

TEST(Tokens, T1CausalPairsAgreeWithCounting) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    Tokens queries, keys;
    for (Tokens* list : {&queries, &keys}) {
      for (int i = 0; i < 3; ++i) {
        const long long begin = draw(random, 0, 20);
        const auto request = static_cast<std::int32_t>(draw(random, kPadding, 1));
        list->push_back({request, begin, begin + draw(random, 0, 12)});
      }
    }
    if (round % 2 == 0) {  // as schedules have them
      const auto by_request = [](const Interval& a, const Interval& b) { return a.request < b.request; };
      std::stable_sort(queries.begin(), queries.end(), by_request);
      std::stable_sort(keys.begin(), keys.end(), by_request);
    }
    double count = 0;
    for (const Interval& q : queries) {
      for (const Interval& k : keys) {
        if (q.request == kPadding || q.request != k.request) continue;
        for (auto a = q.begin; a < q.end; ++a) {
          for (auto b = k.begin; b < k.end; ++b) count += b <= a ? 1 : 0;
        }
      }
    }
    EXPECT_EQ(causal_pairs(queries, keys), count);
  }
}

TEST(Tokens, T1PairsOfStridesAgreeWithCounting) {
  std::mt19937_64 random(5);
  long long strided = 0;
  for (int round = 0; round < 3000; ++round) {
    Tokens lists[2];
    const long long widest = draw(random, 1, 9), far = draw(random, 1, 200);
    for (Tokens& list : lists) {
      for (long long i = draw(random, 0, 3); i > 0; --i) {
        const long long begin = draw(random, 0, far);
        const auto request = static_cast<std::int32_t>(draw(random, kPadding, 1));
        const long long stride = request == kPadding ? 1 : draw(random, 1, widest);
        strided += stride > 1;
        list.push_back({request, begin, begin + draw(random, 0, far), stride});
      }
    }
    const auto queries = one_by_one(lists[0]), keys = one_by_one(lists[1]);
    long long pairs = 0, all = 0, real = 0;
    for (const auto& [request, position] : queries) {
      if (request == kPadding) continue;
      ++real;
      for (const auto& [of, key] : keys) {
        all += of == request;
        pairs += of == request && key <= position;
      }
    }
    EXPECT_EQ(rows(lists[0]), static_cast<long long>(queries.size()));
    EXPECT_EQ(real_rows(lists[0]), real);
    EXPECT_EQ(causal_pairs(lists[0], lists[1]), pairs);
    EXPECT_EQ(all_pairs(lists[0], lists[1]), all);
    for (const Interval& i : lists[0]) {
      if (i.size() > 0) {
        EXPECT_EQ(i.last(), one_by_one({i}).back().second);
      }
    }
    compact(lists[0]);
    EXPECT_EQ(one_by_one(lists[0]), queries);
  }
  EXPECT_GT(strided, 3000);
}

// Far beyond what can be counted: the stripes of a sequence see of all stripes of it, also of another number,
// the whole mask to the last pair.
TEST(Tokens, T1StripesOfABillionTokensAddUpExactly) {
  const long long n = 1'000'000'000;
  for (const long long queries_over : {1LL, 3LL, 7LL, 64LL}) {
    for (const long long keys_over : {1LL, 5LL, 64LL}) {
      Tokens queries, keys;
      for (long long r = 0; r < queries_over; ++r) queries.push_back({0, r, n, queries_over});
      for (long long r = 0; r < keys_over; ++r) keys.push_back({0, r, n, keys_over});
      EXPECT_EQ(causal_pairs(queries, keys), n * (n + 1) / 2) << queries_over << " " << keys_over;
    }
  }
}

TEST(Tokens, StripesThatContinueEachOtherJoin) {
  Tokens tokens{{0, 1, 10, 4}, {0, 13, 18, 4}, {0, 21, 22}, {0, 25, 26, 4}, {1, 29, 30, 4}};
  compact(tokens);
  EXPECT_EQ(tokens, (Tokens{{0, 1, 18, 4}, {0, 21, 22}, {0, 25, 26, 4}, {1, 29, 30, 4}}));
}

TEST(Tokens, OwnPairsAreThoseOfWholeSequences) {
  EXPECT_EQ(own_pairs(Tokens{{0, 0, 10}, {1, 0, 3}}), 55 + 6);
  EXPECT_EQ(own_pairs(Tokens{{1, 7, 10}, {kPadding, 0, 5}, {0, 4, 6}, {1, 20, 21}}), 10 + 3);
  // The shards of a zigzag see of their own keys what a sequence of their rows does.
  const ContextLayout l = context_layout({{0, 80}}, 4, nullptr);
  for (const Tokens& own : l.fresh) EXPECT_EQ(own_pairs(own), causal_pairs(own, own));
}

TEST(Tokens, SameTokensInAnyOrderAndCut) {
  EXPECT_TRUE(
      same_tokens(Tokens{{0, 0, 10}, {1, 5, 9}}, Tokens{{1, 5, 9}, {0, 4, 10}, {kPadding, 0, 3}, {0, 0, 4}}));
  EXPECT_TRUE(same_tokens(Tokens{{0, 1, 14, 4}}, Tokens{{0, 1, 6, 4}, {0, 9, 14, 4}}));
  EXPECT_FALSE(same_tokens(Tokens{{0, 1, 14, 4}}, Tokens{{0, 0, 13, 4}}));
  EXPECT_FALSE(same_tokens(Tokens{{0, 0, 10}}, Tokens{{1, 0, 10}}));
  EXPECT_FALSE(same_tokens(Tokens{{0, 0, 10}}, Tokens{{0, 0, 11}}));
}

TEST(Tokens, T2TilesRoundUpIntervalByInterval) {
  EXPECT_EQ(query_tiles(Tokens{{0, 0, 128}, {0, 500, 629}, {kPadding, 0, 1000}, {1, 3, 4}}), 1 + 2 + 1);
  EXPECT_EQ(query_intervals(Tokens{{0, 0, 128}, {0, 500, 500}, {kPadding, 0, 1000}, {1, 3, 4}}), 2);
  // 128 and 129 rows: a stripe is one matrix, whatever lies between its tokens.
  EXPECT_EQ(query_tiles(Tokens{{0, 3, 1020, 8}, {0, 5, 1030, 8}}), 1 + 2);
}

}  // namespace
}  // namespace shardline
