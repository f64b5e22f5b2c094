#include "models/model/routing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

namespace shardline {
namespace {

constexpr Routing kUniformBusiest{RoutingKind::uniform, 0, ExpertLoad::busiest};

Routing zipf(double skew, ExpertLoad load = ExpertLoad::mean) { return {RoutingKind::zipf, skew, load}; }

/// Successive sampling by exponential clocks: an independent way to draw what the library draws by rejection.
std::vector<int> draw_experts(const std::vector<double>& weights, int draws, std::mt19937_64& rng) {
  std::vector<std::pair<double, int>> clocks;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double u = (static_cast<double>(rng() >> 11) + 0.5) * 0x1p-53;
    clocks.emplace_back(-std::log(u) / weights[i], static_cast<int>(i));
  }
  std::partial_sort(clocks.begin(), clocks.begin() + draws, clocks.end());
  std::vector<int> drawn;
  for (int i = 0; i < draws; ++i) drawn.push_back(clocks[static_cast<std::size_t>(i)].second);
  return drawn;
}

std::vector<double> zipf_weights(int experts, double skew) {
  std::vector<double> weights;
  for (int rank = 1; rank <= experts; ++rank) weights.push_back(std::pow(rank, -skew));
  return weights;
}

struct Observed {
  double distinct_zero = 0;  // of group 0
  double distinct_largest = 0;
  double pairs_largest = 0;
  double groups_hit = 0;  // per token
  double received_zero = 0, received_largest = 0;
};

Observed observe(int experts, int draws, double skew, int groups, int tokens, int trials) {
  const auto weights = zipf_weights(experts, skew);
  std::mt19937_64 rng(7);
  Observed sum;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<int> pairs(static_cast<std::size_t>(groups));
    std::vector<int> distinct(static_cast<std::size_t>(groups));
    std::vector<int> received(static_cast<std::size_t>(groups));
    std::vector<bool> seen(weights.size());
    for (int token = 0; token < tokens; ++token) {
      std::vector<bool> hit(static_cast<std::size_t>(groups));
      for (const int expert : draw_experts(weights, draws, rng)) {
        const auto group = static_cast<std::size_t>(expert % groups);
        ++pairs[group];
        hit[group] = true;
        if (!seen[static_cast<std::size_t>(expert)]) ++distinct[group];
        seen[static_cast<std::size_t>(expert)] = true;
      }
      for (std::size_t g = 0; g < hit.size(); ++g) received[g] += hit[g];
      sum.groups_hit += static_cast<double>(std::count(hit.begin(), hit.end(), true)) / tokens;
    }
    sum.distinct_zero += distinct[0];
    sum.distinct_largest += *std::max_element(distinct.begin(), distinct.end());
    sum.pairs_largest += *std::max_element(pairs.begin(), pairs.end());
    sum.received_zero += received[0];
    sum.received_largest += *std::max_element(received.begin(), received.end());
  }
  return {sum.distinct_zero / trials, sum.distinct_largest / trials, sum.pairs_largest / trials,
          sum.groups_hit / trials,    sum.received_zero / trials,    sum.received_largest / trials};
}

TEST(Routing, M8InclusionOfTwoDrawsByHand) {
  // Weights 3, 2, 1, two draws: P(first is in) = 3/6 + 2/6 * 3/4 + 1/6 * 3/5, and so on.
  const auto q = inclusion_probabilities({3, 2, 1}, 2);
  EXPECT_NEAR(q[0], 3.0 / 6 + 2.0 / 6 * 3 / 4 + 1.0 / 6 * 3 / 5, 1e-12);
  EXPECT_NEAR(q[1], 2.0 / 6 + 3.0 / 6 * 2 / 3 + 1.0 / 6 * 2 / 5, 1e-12);
  EXPECT_NEAR(q[2], 1.0 / 6 + 3.0 / 6 * 1 / 3 + 2.0 / 6 * 1 / 4, 1e-12);
}

TEST(Routing, M8InclusionSumsToDraws) {
  for (const double skew : {0.0, 0.5, 1.0, 2.0}) {
    for (const int draws : {1, 6, 8, 63, 64}) {
      SCOPED_TRACE(::testing::Message() << "skew " << skew << " draws " << draws);
      const auto q = inclusion_probabilities(zipf_weights(64, skew), draws);
      EXPECT_NEAR(std::accumulate(q.begin(), q.end(), 0.0), draws, 1e-9);
      for (std::size_t i = 1; i < q.size(); ++i) EXPECT_LE(q[i], q[i - 1] + 1e-12);
      EXPECT_LE(q[0], 1 + 1e-12);
    }
  }
  for (const double q : inclusion_probabilities(zipf_weights(256, 0), 8)) EXPECT_NEAR(q, 8.0 / 256, 1e-12);
}

TEST(Routing, M8InclusionMatchesSampling) {
  const auto weights = zipf_weights(64, 1.0);
  const auto q = inclusion_probabilities(weights, 6);
  constexpr int kTrials = 40000;
  std::vector<double> seen(weights.size());
  std::mt19937_64 rng(1);
  for (int trial = 0; trial < kTrials; ++trial) {
    for (const int expert : draw_experts(weights, 6, rng))
      seen[static_cast<std::size_t>(expert)] += 1.0 / kTrials;
  }
  for (std::size_t i = 0; i < q.size(); ++i) {
    EXPECT_NEAR(seen[i], q[i], 4.5 * std::sqrt(q[i] * (1 - q[i]) / kTrials)) << i;
  }
}

TEST(Routing, M9UniformMeanIsTheClosedForm) {
  const ExpertRouting r(256, 8, {});
  for (const int groups : {1, 2, 8, 64, 256}) {
    for (const long long tokens : {0LL, 1LL, 37LL, 1000LL, 1'000'000LL}) {
      const double expected = 256.0 / groups * (1 - std::pow(1 - 8.0 / 256, static_cast<double>(tokens)));
      EXPECT_NEAR(r.distinct_experts(groups, tokens), expected, 1e-9);
      EXPECT_NEAR(r.pairs(groups, tokens), 8.0 * static_cast<double>(tokens) / groups, 1e-6);
    }
  }
  EXPECT_NEAR(r.distinct_experts(1, 1), 8, 1e-12);
}

TEST(Routing, UnevenGroupsCountTheLargerOne) {
  const ExpertRouting r(256, 8, {});
  EXPECT_NEAR(r.distinct_experts(72, 1'000'000), 4, 1e-9);  // ceil(256 / 72)
  EXPECT_NEAR(r.pairs(72, 100), 100 * 8.0 * 4 / 256, 1e-9);
}

TEST(Routing, AllExpertsPerToken) {
  const ExpertRouting r(16, 16, kUniformBusiest);
  EXPECT_EQ(r.distinct_experts(4, 1), 4);
  EXPECT_EQ(r.pairs(4, 10), 40);
  EXPECT_EQ(r.groups_hit(4), 4);
}

TEST(Routing, M12GroupsHitByOneToken) {
  const ExpertRouting r(256, 8, {});
  EXPECT_NEAR(r.groups_hit(64), 7.675750, 5e-7);
  EXPECT_NEAR(r.groups_hit(1), 1, 1e-12);
  EXPECT_NEAR(r.groups_hit(256), 8, 1e-12);
  const ExpertRouting z(256, 8, zipf(1.0));
  EXPECT_NEAR(z.groups_hit(256), 8, 1e-12);
  EXPECT_NEAR(z.groups_hit(8), observe(256, 8, 1.0, 8, 100, 200).groups_hit, 0.03);
}

TEST(Routing, M13TokensThatAGroupReceives) {
  const ExpertRouting even(256, 8, {});
  // Even groups of uniform routing receive alike; of 72, some hold four experts and some three.
  for (const int groups : {1, 8, 64, 256}) {
    EXPECT_NEAR(even.tokens_received(groups, 1000), 1000 * even.groups_hit(groups) / groups, 1e-9);
    EXPECT_NEAR(even.imbalance(groups, 1000), 1, 1e-12);
  }
  double missed = 1;
  for (int i = 0; i < 8; ++i) missed *= (252.0 - i) / (256 - i);
  EXPECT_NEAR(even.tokens_received(72, 1000), 1000 * (1 - missed), 1e-9);
  EXPECT_GT(even.imbalance(72, 1000), 1.1);
  EXPECT_EQ(even.imbalance(8, 0), 1);

  const ExpertRouting mean(64, 6, zipf(1.0));
  for (const int groups : {4, 16}) {
    SCOPED_TRACE(groups);
    EXPECT_NEAR(mean.tokens_received(groups, 100) / observe(64, 6, 1.0, groups, 100, 400).received_zero, 1,
                0.02);
    EXPECT_GT(mean.imbalance(groups, 100), 1);
    EXPECT_EQ(mean.imbalance(groups, 100), mean.imbalance(groups, 100'000));
  }
  for (const double skew : {0.0, 0.8}) {
    const ExpertRouting busiest(64, 6, zipf(skew, ExpertLoad::busiest));
    for (const int tokens : {3, 40, 200}) {
      SCOPED_TRACE(::testing::Message() << "skew " << skew << " tokens " << tokens);
      const Observed seen = observe(64, 6, skew, 8, tokens, 8000 / (tokens + 10));
      EXPECT_NEAR(busiest.tokens_received(8, tokens) / seen.received_largest, 1, 0.02);
      EXPECT_LE(busiest.tokens_received(8, tokens), busiest.pairs(8, tokens));
      EXPECT_LE(busiest.tokens_received(8, tokens), tokens);
    }
  }
}

// What a fitted exchange is asked for: so many tokens under even uniform routing send a group as much.
TEST(Routing, M13TokensOfEvenRoutingThatSendAsMuch) {
  const ExpertRouting even(64, 6, {});
  for (const double skew : {0.0, 1.0}) {
    for (const ExpertLoad load : {ExpertLoad::mean, ExpertLoad::busiest}) {
      const ExpertRouting r(64, 6, zipf(skew, load));
      for (const int groups : {1, 8, 16}) {
        const double as_even = 100 * r.as_even(groups, 100);
        EXPECT_NEAR(as_even * even.groups_hit(groups) / groups, r.tokens_received(groups, 100), 1e-9);
      }
    }
  }
  EXPECT_EQ(even.as_even(8, 100), 1);
}

// Groups of 256 experts are alike where their number divides 256; a chance or popular excess never is even.
TEST(Routing, M13UnevenWhereverOtherTokensStandForIt) {
  const ExpertRouting even(256, 8, {});
  for (const int groups : {1, 2, 8, 64, 256}) EXPECT_FALSE(even.uneven(groups, 100)) << groups;
  EXPECT_TRUE(even.uneven(48, 100));
  const Routing chance{RoutingKind::uniform, 0, ExpertLoad::busiest};
  EXPECT_TRUE(ExpertRouting(256, 8, chance).uneven(64, 100));
  EXPECT_TRUE(ExpertRouting(256, 8, zipf(1, ExpertLoad::mean)).uneven(64, 100));
  EXPECT_FALSE(ExpertRouting(256, 8, zipf(0, ExpertLoad::mean)).uneven(64, 100));
}

// Numbers of groups are counted when they are asked for: in which order and by whom makes no difference.
TEST(Routing, LookupsDoNotDependOnTheirOrderOrThread) {
  for (const double skew : {0.0, 0.7}) {
    const ExpertRouting a(32, 4, zipf(skew, ExpertLoad::busiest)), b(32, 4, zipf(skew, ExpertLoad::busiest));
    const ExpertRouting copy = b;
    const auto all = [](const ExpertRouting& r, bool down) {
      std::vector<double> values(33 * 4);
      for (int i = 1; i <= 32; ++i) {
        const int groups = down ? 33 - i : i;
        double* at = &values[static_cast<std::size_t>(4 * groups)];
        at[0] = r.pairs(groups, 77);
        at[1] = r.distinct_experts(groups, 77);
        at[2] = r.tokens_received(groups, 700);
        at[3] = r.groups_hit(groups);
      }
      return values;
    };
    const std::vector<double> expected = all(a, false);
    std::vector<std::vector<double>> seen(4);
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < seen.size(); ++t)
      threads.emplace_back([&, t] { seen[t] = all(t < 2 ? b : copy, t % 2 == 0); });
    threads.clear();
    for (const auto& values : seen) EXPECT_EQ(values, expected);
  }
}

TEST(Routing, M13ImbalanceGrowsWithSkewAndShrinksWithTokens) {
  double before = 0;
  for (const double skew : {0.0, 0.5, 1.0}) {
    const ExpertRouting r(64, 6, zipf(skew, ExpertLoad::busiest));
    EXPECT_GT(r.imbalance(16, 200), before);
    before = r.imbalance(16, 200);
    EXPECT_GT(r.imbalance(16, 10), r.imbalance(16, 400));
    EXPECT_GE(r.imbalance(16, 400), r.imbalance(16, 100'000));
  }
}

TEST(Routing, M9ZipfMeanMatchesSampling) {
  const ExpertRouting r(64, 6, zipf(1.0));
  for (const int tokens : {1, 10, 60}) {
    SCOPED_TRACE(tokens);
    EXPECT_NEAR(r.distinct_experts(8, tokens), observe(64, 6, 1.0, 8, tokens, 4000).distinct_zero, 0.08);
  }
}

TEST(Routing, ZeroSkewIsUniform) {
  const ExpertRouting u(64, 6, kUniformBusiest);
  const ExpertRouting z(64, 6, zipf(0, ExpertLoad::busiest));
  for (const long long tokens : {1LL, 20LL, 500LL}) {
    EXPECT_EQ(u.distinct_experts(8, tokens), z.distinct_experts(8, tokens));
    EXPECT_EQ(u.pairs(8, tokens), z.pairs(8, tokens));
  }
  EXPECT_EQ(u.groups_hit(8), z.groups_hit(8));
}

TEST(Routing, M10M11BusiestGroupMatchesSampling) {
  for (const double skew : {0.0, 0.8}) {
    const ExpertRouting r(64, 6, zipf(skew, ExpertLoad::busiest));
    for (const int groups : {4, 24}) {
      for (const int tokens : {1, 8, 64}) {
        SCOPED_TRACE(::testing::Message() << skew << " " << groups << " " << tokens);
        const Observed o = observe(64, 6, skew, groups, tokens, tokens < 64 ? 20000 : 2000);
        EXPECT_NEAR(r.distinct_experts(groups, tokens) / o.distinct_largest, 1, 0.02);
        EXPECT_NEAR(r.pairs(groups, tokens) / o.pairs_largest, 1, 0.03);
      }
    }
  }
}

TEST(Routing, M11PairsBeyondTheTableKeepGrowingAsTheSquareRoot) {
  const ExpertRouting r(64, 6, kUniformBusiest);
  EXPECT_NEAR(r.pairs(8, 4096) / observe(64, 6, 0, 8, 4096, 60).pairs_largest, 1, 0.005);
  EXPECT_NEAR(r.pairs(8, 513) / r.pairs(8, 512), 1, 0.003);
}

TEST(Routing, Orderings) {
  for (const Routing& routing :
       {kUniformBusiest, zipf(1, ExpertLoad::busiest), zipf(2, ExpertLoad::busiest)}) {
    Routing mean_routing = routing;
    mean_routing.load = ExpertLoad::mean;
    const ExpertRouting busiest(96, 8, routing);
    const ExpertRouting mean(96, 8, mean_routing);
    for (const int groups : {1, 2, 5, 12, 48, 96}) {
      double last = 0;
      for (const long long tokens :
           {0LL, 1LL, 2LL, 100LL, 511LL, 512LL, 513LL, 530LL, 5000LL, 4'000'000'000LL}) {
        SCOPED_TRACE(::testing::Message() << routing.skew << " " << groups << " " << tokens);
        const double now = busiest.distinct_experts(groups, tokens);
        EXPECT_GE(now, last);
        EXPECT_GE(now, mean.distinct_experts(groups, tokens) - 1e-12);
        EXPECT_GE(busiest.pairs(groups, tokens), mean.pairs(groups, tokens));
        EXPECT_LE(now, (96 + groups - 1) / groups + 1e-12);
        last = now;
      }
    }
  }
}

TEST(Routing, InterpolationBetweenGridPointsIsFine) {
  // The table of the mean against the sum it interpolates.
  const ExpertRouting r(64, 6, zipf(1.5));
  for (const long long tokens : {513LL, 777LL, 1999LL, 12345LL}) {
    double sum = 0;
    for (int rank = 0; rank < 64; rank += 8) {
      sum += 1 - std::pow(1 - r.inclusion(rank), static_cast<double>(tokens));
    }
    EXPECT_NEAR(r.distinct_experts(8, tokens), sum, 1e-4);
  }
}

TEST(Routing, ConstructionIsDeterministic) {
  const ExpertRouting a(32, 4, zipf(1, ExpertLoad::busiest));
  const ExpertRouting b(32, 4, zipf(1, ExpertLoad::busiest));
  for (int groups = 1; groups <= 32; ++groups) {
    EXPECT_EQ(a.distinct_experts(groups, 9), b.distinct_experts(groups, 9));
    EXPECT_EQ(a.pairs(groups, 900), b.pairs(groups, 900));
  }
}

TEST(Routing, WrongUseFails) {
  EXPECT_THROW(ExpertRouting(8, 9, {}), std::logic_error);
  EXPECT_THROW(ExpertRouting(8, 2, zipf(2.5)), std::logic_error);
  const ExpertRouting r(8, 2, {});
  EXPECT_THROW(r.distinct_experts(9, 1), std::logic_error);
  EXPECT_THROW(r.pairs(2, -1), std::logic_error);
}

}  // namespace
}  // namespace shardline
