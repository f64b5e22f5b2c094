// Blocks in the free queue, and a slow pool that is a list.
#include "planner/requests/block_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "sim/base/cancel.hpp"
#include "sim/base/random.hpp"

namespace shardline {
namespace {

std::vector<BlockHash> chain_of(std::span<const std::uint64_t> text) {
  std::vector<BlockHash> out;
  for (const std::uint64_t word : text) out.push_back(chain_hash(out.empty() ? 0 : out.back(), word));
  return out;
}

// Blocks as texts, whole and not hashed, in lists that are searched from one end to the other.
class SlowPool {
 public:
  using Text = std::vector<std::uint64_t>;
  struct Block {
    std::optional<Text> text;
    int holders = 0;
    std::uint64_t filled = 0;  // when
  };

  explicit SlowPool(std::size_t blocks) : blocks_(blocks) {
    for (std::size_t b = 0; b < blocks; ++b) queue_.push_back(b);
  }
  std::size_t available() const { return queue_.size(); }

  std::vector<std::size_t> find(const Text& text) const {
    std::vector<std::size_t> out;
    for (std::size_t n = 1; n <= text.size(); ++n) {
      const Text beginning(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n));
      std::optional<std::size_t> first;
      for (std::size_t b = 0; b < blocks_.size(); ++b) {
        if (blocks_[b].text != beginning) continue;
        if (!first || blocks_[b].filled < blocks_[*first].filled) first = b;
      }
      if (!first) break;
      out.push_back(*first);
    }
    return out;
  }
  void hold(const std::vector<std::size_t>& found) {
    for (const std::size_t b : found) {
      if (blocks_[b].holders++ == 0) queue_.remove(b);
    }
  }
  std::vector<std::size_t> take(std::size_t count) {
    std::vector<std::size_t> out;
    for (; count > 0; --count) {
      out.push_back(queue_.front());
      queue_.pop_front();
      blocks_[out.back()] = {std::nullopt, 1, 0};
    }
    return out;
  }
  void fill(std::size_t block, Text text) {
    blocks_[block].text = std::move(text);
    blocks_[block].filled = ++clock_;
  }
  void release(const std::vector<std::size_t>& blocks) {
    std::vector<std::size_t> full, other;
    for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) {
      if (--blocks_[*b].holders > 0) continue;
      (blocks_[*b].text ? full : other).push_back(*b);
    }
    queue_.insert(queue_.begin(), other.begin(), other.end());
    queue_.insert(queue_.end(), full.begin(), full.end());
  }

 private:
  std::vector<Block> blocks_;
  std::list<std::size_t> queue_;
  std::uint64_t clock_ = 0;
};

// Both pools serve the same requests: some begin like others, some blocks are never full, and each is held
// for a while. A request that finds all it has takes its last block again, as an engine must compute a token.
class Pair {
 public:
  Pair(std::uint32_t blocks, std::uint64_t seed)
      : fast_(blocks), slow_(blocks), random_(seed, "block pool") {}

  void step() {
    if (!held_.empty() && random_.below(3) == 0) leave(random_.below(held_.size()));
    SlowPool::Text text;
    for (std::uint64_t n = 1 + random_.below(8); n > 0; --n) text.push_back(random_.below(3));
    const bool tail = random_.below(2) == 0;  // a block behind the text that is not full
    const std::vector<BlockHash> chain = chain_of(text);
    Held h;
    fast_.find(std::span(chain).first(chain.size() - 1), h.fast);
    h.slow = slow_.find({text.begin(), text.end() - 1});
    ASSERT_EQ(h.fast.size(), h.slow.size());
    hits += h.fast.size();
    const std::size_t more = text.size() - h.fast.size() + (tail ? 1 : 0);
    while (fast_.available() - fast_.idle(h.fast) < more && !held_.empty()) {
      leave(0);
      ASSERT_EQ(fast_.available(), slow_.available());
    }
    const std::size_t found = h.fast.size();
    fast_.hold(h.fast);
    slow_.hold(h.slow);
    if (fast_.available() < more) return give_up(h);
    fast_.take(static_cast<std::uint32_t>(more), h.fast);
    for (const std::size_t b : slow_.take(more)) h.slow.push_back(b);
    for (std::size_t i = found; i < text.size(); ++i) {
      fast_.fill(h.fast[i], chain[i]);
      slow_.fill(h.slow[i], {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i) + 1});
    }
    held_.push_back(std::move(h));
    ASSERT_EQ(fast_.available(), slow_.available());
  }

  std::size_t hits = 0, given_up = 0;

 private:
  struct Held {
    std::vector<KvBlock> fast;
    std::vector<std::size_t> slow;
  };
  void leave(std::size_t i) {
    fast_.release(held_[i].fast);
    slow_.release(held_[i].slow);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void give_up(const Held& h) {
    fast_.release(h.fast);
    slow_.release(h.slow);
    ++given_up;
  }

  BlockPool fast_;
  SlowPool slow_;
  RandomStream random_;
  std::deque<Held> held_;
};

TEST(BlockPool, R1HitsAreThoseOfANaivePool) {
  std::size_t hits = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair(static_cast<std::uint32_t>(4 + seed), seed);
    for (int i = 0; i < 300 && !::testing::Test::HasFatalFailure(); ++i) pair.step();
    hits += pair.hits;
  }
  EXPECT_GT(hits, 10'000U);
}

// Caches of large machines in small blocks take seconds to be made.
TEST(BlockPool, R1AsksWhileItIsMade) {
  int asked = 0;
  const CancelQuestion third = [&] { return ++asked == 3; };
  const CancelScope scope(&third);
  EXPECT_THROW(BlockPool(8'000'000, false), Cancelled);
  EXPECT_EQ(asked, 3);
}

TEST(BlockPool, R1TheEndOfATextIsLostFirst) {
  BlockPool pool(4);
  const std::vector<BlockHash> chain = chain_of(std::vector<std::uint64_t>{7, 8, 9});
  std::vector<KvBlock> blocks, found, other;
  pool.take(3, blocks);
  for (std::size_t i = 0; i < 3; ++i) pool.fill(blocks[i], chain[i]);
  pool.release(blocks);
  EXPECT_EQ(pool.available(), 4U);
  pool.take(2, other);  // the one that was never used, and the third
  pool.find(chain, found);
  EXPECT_EQ(found.size(), 2U);
  EXPECT_EQ(pool.filled(), 2U);
}

// vLLM c59cb794 puts blocks without text to the front; appended they would wait behind all texts.
TEST(BlockPool, R1BlocksWithoutTextAreTakenBeforeAnyTextIsLost) {
  BlockPool pool(2);
  const std::vector<BlockHash> chain = chain_of(std::vector<std::uint64_t>{7});
  std::vector<KvBlock> blocks, found, other;
  pool.take(2, blocks);
  pool.fill(blocks[0], chain[0]);
  pool.release(std::span(blocks).first(1));
  pool.release(std::span(blocks).last(1));
  pool.take(1, other);
  EXPECT_EQ(other[0], blocks[1]);
  pool.find(chain, found);
  EXPECT_EQ(found.size(), 1U);
}

TEST(BlockPool, R1AChainIsItsWholeBeginning) {
  EXPECT_NE(chain_of(std::vector<std::uint64_t>{1, 3})[1], chain_of(std::vector<std::uint64_t>{2, 3})[1]);
  BlockPool off(3, false);
  std::vector<KvBlock> blocks, found;
  off.take(1, blocks);
  off.fill(blocks[0], 5);
  off.find(std::vector<BlockHash>{5}, found);
  EXPECT_TRUE(found.empty());
}

TEST(BlockPool, WrongUseIsNoticed) {
  BlockPool pool(1);
  std::vector<KvBlock> blocks;
  EXPECT_THROW(pool.take(2, blocks), std::logic_error);
  pool.take(1, blocks);
  pool.fill(blocks[0], 1);
  EXPECT_THROW(pool.fill(blocks[0], 1), std::logic_error);
  pool.release(blocks);
  EXPECT_THROW(pool.release(blocks), std::logic_error);
}

// Hashes whose low bits collide, put in, moved and taken out, against a map.
TEST(BlockTable, R1AsAMap) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random(seed, "table");
    constexpr std::uint32_t kBlocks = 60;
    BlockTable table(kBlocks);
    std::map<BlockHash, std::uint32_t> map;
    for (int i = 0; i < 2000; ++i) {
      const BlockHash text = random.below(20);
      const BlockHash hash = (text << 32) + random.below(8);
      const auto known = map.find(hash);
      ASSERT_EQ(table.find(hash), known == map.end() ? 0 : known->second);
      const auto block = static_cast<std::uint32_t>(1 + random.below(1000));
      if (known != map.end() && random.below(2) == 0) {
        table.erase(hash);
        map.erase(known);
      } else if (known != map.end()) {
        ASSERT_EQ(table.try_insert(hash, block), known->second);
        table.replace(hash, block);
        known->second = block;
      } else if (map.size() < kBlocks) {
        ASSERT_EQ(table.try_insert(hash, block), 0U);
        map.emplace(hash, block);
      }
    }
    EXPECT_GT(map.size(), 30U);
  }
}

}  // namespace
}  // namespace shardline
