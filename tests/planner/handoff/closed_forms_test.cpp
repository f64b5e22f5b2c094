// Pieces, descriptors and bytes of a hand-off against an enumeration of every number of every cache.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "cuda_probe/execute/verify/verify_models.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/handoff/enumerated_pairs.hpp"
#include "tests/planner/handoff/random_pairs.hpp"

namespace shardline {
namespace {

using testing::enumerated;
using testing::handoff_of;
using testing::random_pair;
using testing::RandomPair;

TEST(Handoff, D4ClosedFormsAreTheEnumerationOfTenThousandPairs) {
  std::mt19937 random(38);
  std::map<std::string, int> strategies_seen;
  int drafting = 0;
  for (int i = 0; i < 10000; ++i) {
    const RandomPair pair = random_pair(random, 40);
    drafting += pair.decode[kDrafts] > 0 ? 1 : 0;
    ++strategies_seen[strategy(pair.prefill.strategy).name];
    ++strategies_seen[strategy(pair.decode.strategy).name];
    std::map<std::pair<int, int>, RankPair> want = enumerated(pair);
    const Handoff h = handoff_of(pair);
    const std::vector<RankPair> got = rank_pairs(h);
    ASSERT_EQ(got.size(), want.size()) << pair.what;
    for (const RankPair& g : got) {
      ASSERT_TRUE(want.count({g.from, g.to})) << pair.what;
      const RankPair& w = want[{g.from, g.to}];
      ASSERT_EQ(g.descriptors, w.descriptors) << pair.what << ": " << g.from << " to " << g.to;
      ASSERT_NEAR(g.bytes.value, w.bytes.value, 1e-9 * w.bytes.value) << pair.what;
    }
  }
  for (const Strategy* s : strategies()) {
    if (s->exact) {
      EXPECT_GT(strategies_seen[s->name], 100) << s->name;
    }
  }
  EXPECT_GT(drafting, 1000);
}

Plan tensor(int ranks, int groups = 1) {
  Plan p;
  p.strategy = strategy_id(groups > 1 ? "dp_ep" : "tensor");
  p.tpa = ranks;
  p.dp = groups;
  return p;
}

Case of_layers(const char* name) {
  for (const cli::Layers& layers : cli::verify_layers()) {
    if (std::string_view(layers.name) == name) return cli::small_case(layers, {});
  }
  return {};
}

// Llama-3.1-70B, TP 8 to TP 8: 80 layers x keys and values x 118 pages, as ai-dynamo/nixl#1514 counts the
// descriptors of a transfer.
TEST(Handoff, D4PublishedDescriptorsOfATransfer) {
  Case c = of_layers("MHA 8/8 heads");
  c.model.runs.front().count = 80;
  const Handoff h = hand_over(cache_layout(c, tensor(8), CacheSide::prefilled, 118 * 16),
                              cache_layout(c, tensor(8), CacheSide::to_decode, 118 * 16), {});
  const std::vector<RankPair> pairs = rank_pairs(h);
  ASSERT_EQ(pairs.size(), 8U);
  for (const RankPair& p : pairs) EXPECT_EQ(p.descriptors, 18880);
}

// What copies send: as many receivers each as any other, up to one; and those of n / m copies that requests
// of different groups take.
TEST(Handoff, D3CopiesShareTheReceivers) {
  const Case latents = of_layers("MLA 8 heads");
  for (const int n : {1, 2, 4, 8}) {
    for (const int m : {1, 2, 4, 8}) {
      std::map<int, int> senders;
      for (int group = 0; group < 4; ++group) {
        const Handoff h =
            hand_over(cache_layout(latents, tensor(n), CacheSide::prefilled, 40),
                      cache_layout(latents, tensor(m, 4), CacheSide::to_decode, 40, group), {}, group);
        std::map<int, int> of_group;
        for (const RankPair& p : rank_pairs(h)) {
          ++of_group[p.from];
          ++senders[p.from];
          EXPECT_EQ(p.to / m, group);
        }
        EXPECT_EQ(static_cast<int>(of_group.size()), std::min(n, m));
        for (const auto& [rank, receivers] : of_group) EXPECT_EQ(receivers, std::max(1, m / n));
      }
      EXPECT_EQ(static_cast<int>(senders.size()), std::min(n, 4 * m)) << n << " to " << m;
    }
  }
}

// A rank of a chain has the prefix before its own tokens too, which it need not send.
TEST(Handoff, D3ChainsSendWhatTheyComputed) {
  Case c = of_layers("MHA 8/8 heads");
  c.batch = prefill_batch({{0, 40}});
  Plan chain;
  chain.strategy = strategy_id("kv_runahead");
  chain.cp = 4;
  list_parts(chain, {16, 12, 8, 4});
  const CacheLayout source = cache_layout(c, chain, CacheSide::prefilled, 40);
  const Handoff h = hand_over(source, cache_layout(c, tensor(1), CacheSide::to_decode, 40), {});
  const std::vector<RankPair> pairs = rank_pairs(h);
  ASSERT_EQ(pairs.size(), 4U);
  const Bytes token = h.bytes() / 40;
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    EXPECT_DOUBLE_EQ(pairs[k].bytes / token, 16.0 - 4 * static_cast<double>(k));
    // Its cache holds the prefix beside that.
    const double held[] = {16, 28, 36, 40};
    EXPECT_DOUBLE_EQ(box_bytes(source, source.boxes[k]) / token, held[k]);
  }
}

HeldTokens draw_held(std::mt19937& random, std::int64_t end) {
  const auto number = [&](int most) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  HeldTokens h{0, end};
  if (number(3) > 0) {
    h.block = 1 + number(6);
    h.period = h.block * (1 + number(5));
    h.phase = number(static_cast<int>(h.period));
  }
  return h.from(number(static_cast<int>(end)));
}

// Lists of cycles over hundreds of periods, against tokens one by one.
TEST(Handoff, D4RunsOfLongListsAreThoseOfTheirTokens) {
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    const HeldList a{draw_held(random, 3000)}, b{draw_held(random, 2000 + static_cast<int>(random() % 1500))};
    const int page_a = 1 + static_cast<int>(random() % 9), page_b = 1 + static_cast<int>(random() % 9);
    RunCount want;
    std::int64_t length = 0, row_a = -1, row_b = -1;
    // Of each pair of pages whether it has both first rows as one token, and both last ones.
    std::map<std::pair<std::int64_t, std::int64_t>, std::pair<bool, bool>> pages;
    const auto close = [&] {
      want.whole += length > 0 && length == page_a && length == page_b ? 1 : 0;
      length = 0;
    };
    for (std::int64_t t = 0; t < 3500; ++t) {
      if (!a[0].holds(t) || !b[0].holds(t)) continue;
      const std::int64_t x = a[0].row_of(t), y = b[0].row_of(t);
      if (x != row_a + 1 || y != row_b + 1 || x % page_a == 0 || y % page_b == 0 || want.runs == 0) {
        close();
        ++want.runs;
      }
      ++want.tokens;
      ++length;
      std::pair<bool, bool>& ends = pages[{x / page_a, y / page_b}];
      ends.first = ends.first || (x % page_a == 0 && y % page_b == 0);
      ends.second = ends.second || (x % page_a == page_a - 1 && y % page_b == page_b - 1);
      row_a = x;
      row_b = y;
    }
    close();
    for (const auto& [page, ends] : pages) want.around += ends.first && ends.second ? 1 : 0;
    want.around -= want.whole;
    ASSERT_EQ(count_runs(a, b, page_a, page_b), want) << i;
    std::int64_t listed = 0;
    for (const PageRun& r : list_runs(a, b, page_a, page_b)) listed += r.rows;
    ASSERT_EQ(listed, want.tokens);
  }
}

}  // namespace
}  // namespace shardline
