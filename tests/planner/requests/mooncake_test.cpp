// What prefix caches find in a recorded conversation trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/radix_tree.hpp"
#include "planner/serving/trace.hpp"
#include "tests/planner/requests/traces.hpp"
#include "tests/support/files.hpp"

namespace shardline {
namespace {

using testing::read_all;

struct Hits {
  std::uint64_t found = 0, asked = 0;
};
bool operator==(const Hits& a, const Hits& b) { return a.found == b.found && a.asked == b.asked; }

// One request after another, each gone before the next comes; a block of the trace is a block of the pool.
Hits by_blocks(const std::vector<TraceRequest>& requests, std::uint32_t blocks) {
  BlockPool pool(blocks);
  Hits out;
  for (const TraceRequest& r : requests) {
    std::vector<BlockHash> chain;
    for (const std::uint64_t id : r.blocks) chain.push_back(chain_hash(chain.empty() ? 0 : chain.back(), id));
    std::vector<KvBlock> held;
    pool.find(chain, held);
    const std::size_t found = held.size();
    out.found += found;
    out.asked += chain.size();
    pool.hold(held);
    pool.take(static_cast<std::uint32_t>(chain.size() - found), held);
    for (std::size_t i = found; i < chain.size(); ++i) pool.fill(held[i], chain[i]);
    pool.release(held);
  }
  return out;
}

Hits by_tree(const std::vector<TraceRequest>& requests, std::uint64_t pages) {
  RadixTree tree;
  Hits out;
  for (const TraceRequest& r : requests) {
    const RadixTree::Match found = tree.match(r.blocks);
    out.found += found.pages;
    out.asked += r.blocks.size();
    tree.lock(found.node);
    const std::uint64_t more = r.blocks.size() - found.pages, kept = tree.evictable() + tree.locked();
    if (kept + more > pages) tree.evict(kept + more - pages);
    tree.insert(r.blocks);
    tree.unlock(found.node);
  }
  return out;
}

// Ids that came before, wherever they stood.
Hits by_ids(const std::vector<TraceRequest>& requests) {
  std::set<std::uint64_t> seen;
  Hits out;
  for (const TraceRequest& r : requests) {
    for (const std::uint64_t id : r.blocks) out.found += seen.insert(id).second ? 0 : 1;
    out.asked += r.blocks.size();
  }
  return out;
}

TEST(MooncakeHits, AnExtractWithoutLimit) {
  const auto requests = read_all(
      "mooncake.jsonl", testing::read_file(testing::source_dir() / "tests/planner/traces/mooncake.jsonl"));
  const Hits want = by_ids(requests);
  EXPECT_GT(want.found, 0U);
  EXPECT_EQ(by_blocks(requests, 1 << 16), want);
  EXPECT_EQ(by_tree(requests, 1 << 16), want);
  // All of the extract begin with the same block, which is lost last: room for one request is enough.
  std::size_t longest = 0;
  for (const TraceRequest& r : requests) longest = std::max(longest, r.blocks.size());
  EXPECT_EQ(by_blocks(requests, static_cast<std::uint32_t>(longest)), want);
}

// The whole trace is not the project's: its folder is named by the environment.
TEST(MooncakeHits, TheWholeTraceWithoutLimitIs366PerMille) {
  std::optional<std::string> text = testing::recorded("mooncake_conversation.csv");
  if (!text) GTEST_SKIP() << "SHARDLINE_TRACES names no folder with mooncake_conversation.csv.gz";
  text->replace(0, text->find('\n'), "arrival_ms,input_tokens,output_tokens,block_ids");
  const auto requests = read_all("mooncake_conversation.csv", *text);
  ASSERT_EQ(requests.size(), 12'031U);
  const Hits want{105'710, 288'500};  // 36.6 %
  EXPECT_EQ(by_ids(requests), want);
  EXPECT_EQ(by_blocks(requests, 1 << 20), want);
  EXPECT_EQ(by_tree(requests, 1 << 20), want);
  for (const std::uint32_t blocks : {1000U, 10'000U, 50'000U}) {
    const Hits pool = by_blocks(requests, blocks), tree = by_tree(requests, blocks);
    RecordProperty("blocks_" + std::to_string(blocks),
                   std::to_string(pool.found) + " " + std::to_string(tree.found));
    EXPECT_LT(pool.found, want.found);
    EXPECT_LT(tree.found, want.found);
  }
}

}  // namespace
}  // namespace shardline
