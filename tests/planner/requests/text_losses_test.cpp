#include "planner/requests/text_losses.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "sim/base/random.hpp"

namespace shardline {
namespace {

// Blocks 1, 2, 3 of a text and 1, 2, 7 of another. Of the first the last two are lost from the end on: one
// entry, which tells the other one of its second block, too.
TEST(TextLosses, R9OfATextThatIsLostFromItsEndTheBeginningIsKept) {
  const BlockHash one = chain_hash(0, 1), two = chain_hash(one, 2);
  const std::vector<BlockHash> text{one, two, chain_hash(two, 3)}, other{one, two, chain_hash(two, 7)};
  TextLosses losses;
  EXPECT_EQ(losses.left(text, 3, 0), 3U);
  losses.add(text[2], two, 2);
  losses.add(two, one, 1);
  EXPECT_EQ(losses.left(text, 3, 0), 1U);
  EXPECT_EQ(losses.left(other, 3, 0), 1U);
  const std::uint64_t mark = losses.mark();
  EXPECT_EQ(mark, 1U);
  EXPECT_EQ(losses.left(text, 3, mark), 3U);
  // Who looked up after the mark learns of the first block by an entry of its own.
  losses.add(one, 0, 0);
  EXPECT_EQ(losses.left(text, 3, mark), 0U);
  EXPECT_EQ(losses.mark(), 2U);
}

// After more losses than are kept nothing is known of what was there before them.
TEST(TextLosses, R9TooManyLossesAreForgotten) {
  TextLosses losses;
  const std::vector<BlockHash> text{chain_hash(0, 1)};
  const std::uint64_t early = losses.mark();
  for (std::uint64_t i = 0; i < 4096; ++i) losses.add(chain_hash(0, 100 + i), 0, 0);
  EXPECT_EQ(losses.left(text, 1, early), 1U);
  losses.add(chain_hash(0, 5), 0, 0);
  EXPECT_EQ(losses.left(text, 1, early), 0U);
  EXPECT_EQ(losses.left(text, 1, losses.mark()), 1U);
}

// Random texts in a small pool, looked up now and then by several who remember: always as by looking at each
// block anew.
TEST(TextLosses, R9WhatIsLeftIsWhatIsFound) {
  struct Reader {
    std::vector<BlockHash> text;
    std::uint32_t found = 0;
    std::uint64_t since = 0;
  };
  std::uint64_t lost = 0, looked = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    RandomStream random(seed, "text losses");
    BlockPool pool(20);
    const auto text = [&] {
      std::vector<BlockHash> out;
      while (out.size() < 8) out.push_back(chain_hash(out.empty() ? 0 : out.back(), random.below(2)));
      return out;
    };
    std::vector<Reader> readers(4);
    for (Reader& r : readers) r.text = text();
    for (int step = 0; step < 100; ++step) {
      // Somebody computes a text; blocks that are found are not always shared, so that some have twins.
      const std::vector<BlockHash> chain = text();
      const auto size = static_cast<std::uint32_t>(1 + random.below(8));
      std::vector<KvBlock> blocks;
      if (random.below(2) == 0) pool.find(std::span(chain).first(size), blocks);
      pool.hold(blocks);
      const std::size_t shared = blocks.size();
      if (size > shared) pool.take(size - static_cast<std::uint32_t>(shared), blocks);
      for (std::size_t i = shared; i < size; ++i)
        pool.fill(blocks[i], chain[i], i == 0 ? 0 : chain[i - 1], static_cast<std::uint32_t>(i));
      pool.release(blocks);
      Reader& r = readers[random.below(readers.size())];
      const std::uint32_t left = pool.losses().left(r.text, r.found, r.since);
      lost += r.found - left;
      r.found = left;
      r.since = pool.losses().mark();
      while (r.found < r.text.size() && pool.holds_text(r.text[r.found])) ++r.found;
      std::vector<KvBlock> anew;
      pool.find(r.text, anew);
      ASSERT_EQ(r.found, anew.size()) << seed;
      ++looked;
    }
  }
  EXPECT_GT(lost, looked / 4);
}

}  // namespace
}  // namespace shardline
