// Token shards of context parallelism: every pair once, balance, padding.
#include "planner/plan/sharding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/planner/tokens.hpp"

namespace shardline {
namespace {

ContextLayout striped_layout(const std::vector<Segment>& requests, int ranks, const Placement* before) {
  return dealt_layout(requests, ranks, before,
                      [](Placement& p, int request, long long fresh) { p.stripe(request, fresh); });
}

TEST(Sharding, C1ChunksOfARankAreIAnd2NMinus1MinusI) {
  const ContextLayout l = context_layout({{0, 80}}, 4, nullptr);
  EXPECT_EQ(l.fresh[0], (Tokens{{0, 0, 10}, {0, 70, 80}}));
  EXPECT_EQ(l.fresh[1], (Tokens{{0, 10, 20}, {0, 60, 70}}));
  EXPECT_EQ(l.fresh[3], (Tokens{{0, 30, 40}, {0, 40, 50}}));
}

// A conversation of random turns, in chunks or stripes, then a step: what each rank computes of it.
struct History {
  Placement placement;
  std::vector<Segment> requests;
};

History random_history(std::mt19937_64& random, int ranks) {
  const auto count = static_cast<int>(draw(random, 1, 3));
  History h{Placement(ranks, count), {}};
  for (int b = 0; b < count; ++b) {
    for (long long turns = draw(random, 0, 4); turns > 0; --turns) {
      const long long fresh = draw(random, 0, 37);
      if (draw(random, 0, 1) == 0)
        h.placement.prefill(b, fresh);
      else
        h.placement.stripe(b, fresh);
      h.placement.decode(b, draw(random, 0, 9));
    }
    h.requests.push_back({h.placement.length(b), draw(random, 1, 45)});
  }
  return h;
}

TEST(Sharding, C1C2C3C20EveryPairOfTheCausalMaskIsComputedOnceAfterAnyHistory) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 400; ++round) {
    const auto ranks = static_cast<int>(draw(random, 1, 6));
    const History h = random_history(random, ranks);
    const ContextLayout l = round % 2 == 0 ? context_layout(h.requests, ranks, &h.placement)
                                           : striped_layout(h.requests, ranks, &h.placement);
    for (std::size_t b = 0; b < h.requests.size(); ++b) {
      const auto total = static_cast<std::size_t>(h.requests[b].cached + h.requests[b].fresh);
      std::vector<int> seen(total * total, 0);
      for (const Tokens& queries : l.queries) {
        for (const Tokens& keys : l.keys) {
          for (const Interval& q : queries) {
            for (const Interval& k : keys) {
              if (q.request != static_cast<int>(b) || k.request != q.request) continue;
              for (auto x = q.begin; x < q.end; x += q.stride) {
                for (auto y = k.begin; y < k.end && y <= x; y += k.stride)
                  ++seen[static_cast<std::size_t>(x) * total + static_cast<std::size_t>(y)];
              }
            }
          }
        }
      }
      for (std::size_t x = 0; x < total; ++x) {
        for (std::size_t y = 0; y < total; ++y) {
          const bool wanted = static_cast<long long>(x) >= h.requests[b].cached && y <= x;
          ASSERT_EQ(seen[x * total + y], wanted ? 1 : 0);
        }
      }
    }
  }
}

Tokens of_request(const Tokens& list, int request) {
  Tokens out;
  for (const Interval& i : list) {
    if (i.request == request) out.push_back(i);
  }
  return out;
}

// As one rank of a smaller zigzag would have them.
TEST(Sharding, GroupsOfAZigzagAreTheRanksOfAShorterOne) {
  const ContextLayout l = grouped_layout(context_layout({{0, 80}}, 4, nullptr), 2);
  EXPECT_EQ(l.fresh[0], (Tokens{{0, 0, 10}, {0, 70, 80}, {0, 10, 20}, {0, 60, 70}}));
  EXPECT_EQ(l.fresh[1], l.fresh[0]);
  EXPECT_EQ(l.fresh[3], (Tokens{{0, 20, 30}, {0, 50, 60}, {0, 30, 40}, {0, 40, 50}}));
  EXPECT_EQ(l.key_message, 40);
}

TEST(Sharding, GroupsHoldWhatTheirRanksHoldAfterAnyHistory) {
  std::mt19937_64 random(5);
  const auto ascending = [](Tokens list) {
    std::sort(list.begin(), list.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    compact(list);
    return list;
  };
  for (int round = 0; round < 200; ++round) {
    const auto size = static_cast<int>(draw(random, 1, 4)), groups = static_cast<int>(draw(random, 1, 4));
    const History h = random_history(random, size * groups);
    const ContextLayout l = context_layout(h.requests, size * groups, &h.placement);
    const ContextLayout g = grouped_layout(l, size);
    for (int b = 0; b < g.requests; ++b) {
      for (int k = 0; k < g.ranks; ++k) {
        Tokens cached, keys;
        for (int member = k - k % size; member < k - k % size + size; ++member) {
          const Tokens& held = h.placement.held(member, b);
          cached.insert(cached.end(), held.begin(), held.end());
          const Tokens all = of_request(l.keys[static_cast<std::size_t>(member)], b);
          keys.insert(keys.end(), all.begin(), all.end());
        }
        EXPECT_EQ(ascending(cached_tokens(g, k, b)), ascending(cached));
        EXPECT_EQ(ascending(of_request(g.keys[static_cast<std::size_t>(k)], b)), ascending(keys));
        EXPECT_EQ(rows(of_request(g.fresh[static_cast<std::size_t>(k)], b)),
                  g.fresh_count[static_cast<std::size_t>(k * g.requests + b)]);
      }
    }
    for (const Tokens& keys : g.keys) EXPECT_EQ(rows(keys), g.key_message);
  }
}

// A stripe of a million tokens is one interval, and what [C2] gives token by token.
TEST(Sharding, C20StripesAreWhatDealingOneByOneGives) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 300; ++round) {
    const auto ranks = static_cast<int>(draw(random, 1, 7));
    const History h = random_history(random, ranks);
    Placement striped = h.placement, dealt = h.placement;
    const long long fresh = draw(random, 0, 50);
    striped.stripe(0, fresh);
    dealt.decode(0, fresh);
    EXPECT_EQ(striped.length(0), dealt.length(0));
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(one_by_one(striped.held(r, 0)), one_by_one(dealt.held(r, 0)));
      EXPECT_EQ(striped.count(r, 0), dealt.count(r, 0));
      EXPECT_LE(striped.held(r, 0).size(), h.placement.held(r, 0).size() + 1);
    }
  }
}

// [C2] as it is written: one token after another. `counts`: of each rank, before them.
std::vector<std::vector<long long>> dealt_one_by_one(std::vector<long long> counts, long long at,
                                                     long long tokens) {
  std::vector<std::vector<long long>> positions(counts.size());
  for (const long long end = at + tokens; at < end; ++at) {
    const auto least = std::min_element(counts.begin(), counts.end());
    ++*least;
    positions[static_cast<std::size_t>(least - counts.begin())].push_back(at);
  }
  return positions;
}

// Also where one turn left the ranks far apart, as intervals of a partition do.
TEST(Sharding, C2DecodedTokensGoWhereTheLoopPutsThem) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    const auto ranks = static_cast<int>(draw(random, 1, 7));
    History h = random_history(random, ranks);
    Placement& cache = h.placement;
    if (round % 2 == 0) {
      std::vector<long long> uneven;
      for (int r = 0; r < ranks; ++r) uneven.push_back(draw(random, 0, 1) == 0 ? 0 : draw(random, 0, 30));
      cache.append(0, uneven);
    }
    std::vector<long long> counts;
    for (int r = 0; r < ranks; ++r) counts.push_back(cache.count(r, 0));
    const Placement before = cache;
    const long long tokens = draw(random, 0, 120);
    const auto expected = dealt_one_by_one(counts, cache.length(0), tokens);
    cache.decode(0, tokens);
    EXPECT_EQ(cache.length(0), before.length(0) + tokens);
    for (int r = 0; r < ranks; ++r) {
      std::vector<std::pair<std::int32_t, long long>> all = one_by_one(before.held(r, 0));
      for (const long long position : expected[static_cast<std::size_t>(r)]) all.emplace_back(0, position);
      ASSERT_EQ(one_by_one(cache.held(r, 0)), all) << "rank " << r << ", round " << round;
      EXPECT_EQ(cache.count(r, 0), static_cast<long long>(all.size()));
      EXPECT_LE(cache.held(r, 0).size(), before.held(r, 0).size() + static_cast<std::size_t>(ranks));
    }
  }
}

TEST(Sharding, C2ATrillionDecodedTokensAreAFewIntervals) {
  Placement cache(3, 1);
  cache.append(0, {5, 0, 2});
  cache.decode(0, 1'000'000'000'000);
  EXPECT_EQ(cache.length(0), 1'000'000'000'007);
  EXPECT_EQ(cache.count(0, 0), 333'333'333'336);
  EXPECT_EQ(cache.held(1, 0), (Tokens{{0, 7, 9}, {0, 9, 14, 2}, {0, 16, 1'000'000'000'007, 3}}));
}

// What attention costs of a cache, whose tokens stand before all new ones, follows from their numbers.
TEST(Sharding, C2ForgottenPositionsCostTheSame) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 300; ++round) {
    const auto ranks = static_cast<int>(draw(random, 1, 6));
    const History h = random_history(random, ranks);
    Placement forgotten = h.placement;
    forgotten.forget_positions();
    const auto layout = [&](const Placement& cache) {
      return round % 2 == 0 ? context_layout(h.requests, ranks, &cache)
                            : striped_layout(h.requests, ranks, &cache);
    };
    const ContextLayout a = layout(h.placement), b = layout(forgotten);
    EXPECT_EQ(a.queries, b.queries);
    EXPECT_EQ(a.query_message, b.query_message);
    EXPECT_EQ(a.key_message, b.key_message);
    EXPECT_EQ(a.cached_count, b.cached_count);
    for (std::size_t r = 0; r < a.keys.size(); ++r) {
      EXPECT_EQ(real_rows(a.keys[r]), real_rows(b.keys[r]));
      for (const Tokens& queries : a.queries) {
        EXPECT_EQ(causal_pairs(queries, a.keys[r]), causal_pairs(queries, b.keys[r]));
        EXPECT_EQ(all_pairs(queries, a.keys[r]), all_pairs(queries, b.keys[r]));
        EXPECT_EQ(same_tokens(queries, a.keys[r]), same_tokens(queries, b.keys[r]));
      }
    }
    for (int request = 0; request < forgotten.requests(); ++request) {
      for (int r = 0; r < ranks; ++r) EXPECT_LE(forgotten.held(r, request).size(), 1u);
    }
  }
}

// Turn after turn, as long as nothing but stripes goes before.
TEST(Sharding, C20TokenPOfASequenceComesToRankPModN) {
  Placement placement(3, 1);
  for (const long long fresh : {5, 1, 2, 100, 7}) placement.stripe(0, fresh);
  for (int r = 0; r < 3; ++r) {
    for (const auto& [request, position] : one_by_one(placement.held(r, 0))) EXPECT_EQ(position % 3, r);
  }
  const ContextLayout l = striped_layout({{14, 9}}, 4, nullptr);
  EXPECT_EQ(l.keys[0], (Tokens{{0, 0, 13, 4}, {0, 16, 21, 4}, {kPadding, 0, 1}}));
  EXPECT_EQ(l.keys[2], (Tokens{{0, 2, 11, 4}, {0, 14, 23, 4}, {kPadding, 0, 1}}));
  EXPECT_EQ(l.fresh[1], (Tokens{{0, 17, 22, 4}}));
}

TEST(Sharding, KvStaysBalancedWithinOneTokenAfterAnyHistory) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const auto ranks = static_cast<int>(draw(random, 1, 9));
    const History h = random_history(random, ranks);
    for (int b = 0; b < h.placement.requests(); ++b) {
      long long least = h.placement.count(0, b), most = least, sum = 0;
      for (int r = 0; r < ranks; ++r) {
        EXPECT_EQ(rows(h.placement.held(r, b)), h.placement.count(r, b));
        least = std::min(least, h.placement.count(r, b));
        most = std::max(most, h.placement.count(r, b));
        sum += h.placement.count(r, b);
      }
      EXPECT_LE(most - least, 1);
      EXPECT_EQ(sum, h.placement.length(b));
    }
  }
}

TEST(Sharding, ComputeOfAFullPrefillIsBalanced) {
  for (const int ranks : {2, 3, 8, 16}) {
    for (const long long tokens :
         {32LL * ranks, 1000LL * ranks, 1000LL * ranks + 1, 999LL * ranks + 7, 5LL}) {
      const ContextLayout l = context_layout({{0, tokens}}, ranks, nullptr);
      double least = 1e300, most = 0, sum = 0;
      for (int r = 0; r < ranks; ++r) {
        double pairs = 0;
        for (const Tokens& keys : l.keys) pairs += causal_pairs(l.fresh[static_cast<std::size_t>(r)], keys);
        least = std::min(least, pairs);
        most = std::max(most, pairs);
        sum += pairs;
      }
      const auto t = static_cast<double>(tokens);
      EXPECT_EQ(sum, t * (t + 1) / 2);
      if (tokens % (2 * ranks) == 0) {
        EXPECT_EQ(least, most) << ranks << " " << tokens;
      } else {
        // A rank has at most two tokens more than another, and each chunk starts at most 2N tokens later.
        EXPECT_LE(most - least, 2 * t + 2 * ranks * (t / ranks + 2)) << ranks << " " << tokens;
      }
    }
  }
}

TEST(Sharding, PairsOfTwoRanksAreTwoSquaresOfAChunk) {
  const int ranks = 6;
  for (const double chunk : {1.0, 7.0, 128.0}) {
    const ContextLayout l = context_layout({{0, static_cast<long long>(chunk) * 2 * ranks}}, ranks, nullptr);
    for (std::size_t i = 0; i < ranks; ++i) {
      for (std::size_t j = 0; j < ranks; ++j) {
        EXPECT_EQ(causal_pairs(l.fresh[i], l.keys[j]), 2 * chunk * chunk + (i == j ? chunk : 0));
      }
    }
  }
}

TEST(Sharding, MessagesArePaddedToTheLongestCacheAndTheShareOfNewTokens) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 400; ++round) {
    const auto ranks = static_cast<int>(draw(random, 1, 7));
    const History h = random_history(random, ranks);
    const ContextLayout l = round % 2 == 0 ? context_layout(h.requests, ranks, &h.placement)
                                           : striped_layout(h.requests, ranks, &h.placement);
    long long message = 0, queries = 0;
    for (std::size_t b = 0; b < h.requests.size(); ++b) {
      long long cached = 0;
      for (int r = 0; r < ranks; ++r) cached = std::max(cached, h.placement.count(r, static_cast<int>(b)));
      const long long share = (h.requests[b].fresh + ranks - 1) / ranks;
      EXPECT_EQ(l.query_rows[b], share);
      message += cached + share;
      queries += share;
    }
    EXPECT_EQ(l.key_message, message);
    EXPECT_EQ(l.query_message, queries);
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(rows(l.keys[static_cast<std::size_t>(r)]), message);
      EXPECT_EQ(rows(l.queries[static_cast<std::size_t>(r)]), queries);
    }
  }
}

TEST(Sharding, DecodeDealsOutItsBatchAndPadsToAMultiple) {
  const ContextLayout l = decode_layout({1000, 1000, 1000, 1000, 1000}, 4, 3);
  EXPECT_EQ(l.query_message, 2);
  EXPECT_EQ(l.key_message, 5 * 250);
  std::vector<int> asked(5, 0);
  for (int r = 0; r < 4; ++r) {
    const Tokens& queries = l.queries[static_cast<std::size_t>(r)];
    ASSERT_EQ(rows(queries), 2);
    for (const Interval& i : queries) EXPECT_EQ(i, (Interval{i.request, 999, 1000}));
    for (const Interval& i : l.fresh[static_cast<std::size_t>(r)]) {
      EXPECT_EQ((i.request + 3) % 4, r);
      ++asked[static_cast<std::size_t>(i.request)];
    }
    // Ranks without a query of their own in the second round attend to one that another rank has.
    EXPECT_EQ(queries[0], l.fresh[static_cast<std::size_t>(r)][0]);
    EXPECT_EQ(queries[1].request, 4);
  }
  EXPECT_EQ(asked, std::vector<int>(5, 1));
}

}  // namespace
}  // namespace shardline
