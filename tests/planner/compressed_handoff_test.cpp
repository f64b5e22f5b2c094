// What a request of DeepSeek-V4 hands over, by hand.
#include <gtest/gtest.h>

#include <vector>

#include "models/model/catalog.hpp"
#include "planner/handoff/pieces.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

Case case_of(const char* model) {
  Precision precision;
  precision.weights = Dtype::fp8_block;
  precision.math = precision.dispatch = precision.kv = Dtype::fp8;
  return make_case(load_model(model, source_path("models/catalog")), catalog_system("h200-hgx"), precision,
                   1000, 128, Routing{});
}

Plan tensor(int ranks) {
  Plan p;
  p.strategy = strategy_id("tensor");
  p.tpa = p.tpf = ranks;
  return p;
}

// A request of 1,000 tokens before its next one, which sees 127 of them in its window. CSA: 250 rows of 584
// bytes, each with an index key of 132; the next row is made of the last 4 tokens and of those to come, each
// with values and gates of 2 x (512 + 128) numbers in float32. HCA: 7 rows; 1,000 - 7 x 128 tokens of 512
// numbers each are of the eighth.
TEST(CompressedHandoff, P34ARequestIsHandedOverWithWhatRowsToComeAreMadeOf) {
  const Case c = case_of("deepseek-v4-flash");
  const Plan p = tensor(8);
  const CacheLayout layout = cache_layout(c, p, CacheSide::to_decode, 1000, 0);
  double want = 0;
  for (const LayerRun& run : c.model.runs) {
    const int ratio = c.model.attentions[static_cast<std::size_t>(run.attention)].compression->ratio;
    const double csa = 250 * (584 + 132) + 4 * 2 * 2 * (512 + 128) * 4, hca = 7 * 584 + 104 * 2 * 512 * 4;
    want += run.count * (127 * 584 + (ratio == 4 ? csa : ratio == 128 ? hca : 0));
  }
  std::vector<double> got(8);
  for (const CacheBox& b : layout.boxes) got[static_cast<std::size_t>(b.rank)] += box_bytes(layout, b).value;
  for (const double bytes : got) EXPECT_DOUBLE_EQ(bytes, want);
}

// The same from one rank to one, in vLLM's pages. A window's tokens 873 to 999 lie in three pages of 64. CSA:
// 250 rows in pages of 64, and as many index keys, four each; tokens 996 to 999 fill a page of 4, of the rows
// and of the index. HCA: 7 rows in pages of two, four; tokens 896 to 999 in 13 pages of 8.
TEST(CompressedHandoff, P34PagesOfVllmAreItsDescriptors) {
  const Case c = case_of("deepseek-v4-flash");
  const Plan p = tensor(1);
  const CachePages pages{256, PageOrder::heads_first};
  const Handoff h = hand_over(cache_layout(c, p, CacheSide::prefilled, 1000),
                              cache_layout(c, p, CacheSide::to_decode, 1000), {pages, pages});
  long long want = 0;
  for (const LayerRun& run : c.model.runs) {
    const int ratio = c.model.attentions[static_cast<std::size_t>(run.attention)].compression->ratio;
    want += run.count * (3 + (ratio == 4 ? 4 + 4 + 2 : ratio == 128 ? 4 + 13 : 0));
  }
  ASSERT_EQ(rank_pairs(h).size(), 1U);
  EXPECT_EQ(rank_pairs(h).front().descriptors, want);
}

}  // namespace
}  // namespace shardline
