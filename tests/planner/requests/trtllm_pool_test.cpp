// Blocks of TensorRT-LLM's cache in runs, against a pool of single blocks.
#include "planner/requests/trtllm_pool.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "sim/base/random.hpp"

namespace shardline {
namespace {

// Both pools serve the same requests, which begin like others and store what they have bit by bit while
// others do. Blocks are of 4 tokens, ids of `parts` blocks.
class TwoPools {
 public:
  TwoPools(std::uint32_t blocks, std::uint32_t parts, std::uint64_t seed)
      : runs_(blocks), blocks_(blocks), parts_(parts), random_(seed, "trtllm") {}

  void act() {
    const std::uint64_t what = random_.below(12);
    if (what < 2 || held_.empty())
      begin();
    else if (what < 4 && held_.size() > 1)
      leave(random_.below(held_.size()));
    else if (what < 6)
      go_on(held_[random_.below(held_.size())]);
    else if (what < 11)
      store(held_[random_.below(held_.size())]);
    else if (random_.below(2) == 0)
      give_back(held_[random_.below(held_.size())]);
    else
      count_freed();
    ASSERT_EQ(runs_.available(), blocks_.available());
    ASSERT_EQ(runs_.filled(), blocks_.filled());
  }

  // Blocks that were found; blocks that were stored or not behind others' of the same text; texts that are
  // kept behind text that is lost; blocks that only counted requests hold.
  std::uint64_t hits = 0, behind = 0, gaps = 0, freed = 0;

 private:
  static constexpr std::uint32_t kBlock = 4;
  struct Held {
    TrtllmPool::Share share;
    std::vector<KvBlock> blocks;
    std::vector<BlockHash> chain;
    std::vector<bool> stored;
    std::vector<std::uint64_t> ids;  // those that stand for whole blocks of its prompt
    std::uint32_t prompt = 0;
  };

  void begin() {
    Held h;
    if (!lost_.empty() && random_.below(2) == 0) {
      h.share = std::move(lost_.front().share);
      h.chain = std::move(lost_.front().chain);
      h.ids = std::move(lost_.front().ids);
      h.prompt = lost_.front().prompt;
      lost_.pop_front();
    } else {
      std::vector<std::uint64_t> ids;
      for (std::uint64_t n = random_.below(5); n > 0; --n) ids.push_back(random_.below(4) / 3);
      const auto prompt = static_cast<std::uint32_t>(1 + random_.below(6 * parts_ * kBlock));
      const ChainText text{ids, parts_ * kBlock, kBlock, prompt, number_++};
      h.share.text = runs_.add_text(text);
      extend_chain(h.chain, 10 * parts_, text);
      h.ids = ids;
      h.prompt = prompt;
    }
    const auto most = static_cast<std::uint32_t>(random_.below(h.chain.size()));
    const TrtllmPool::Found found = runs_.find(h.share, most);
    blocks_.find(std::span(h.chain).first(most), h.blocks);
    ASSERT_EQ(found.blocks, h.blocks.size());
    ASSERT_EQ(found.idle, blocks_.idle(h.blocks));
    ASSERT_EQ(found.fresh.has_value(), found.blocks < most);
    if (found.fresh) {
      look_for_fresh(h.chain[found.blocks], *found.fresh);
      for (std::size_t i = found.blocks; i < h.chain.size(); ++i)
        gaps += blocks_.holds_text(h.chain[i]) ? 1 : 0;
    }
    for (std::uint32_t i = 0; i < h.chain.size(); ++i) {
      ASSERT_EQ(runs_.keeps(h.share, i), blocks_.holds_text(h.chain[i]));
      ASSERT_EQ(runs_.id_of(h.share, i), id_of(h, i));
    }
    hits += found.blocks;
    runs_.find(h.share, most);
    runs_.hold_found(h.share);
    blocks_.hold(h.blocks);
    h.stored.assign(h.blocks.size(), true);
    held_.push_back(std::move(h));
  }

  // Of all that wait now, the same block of text is the first that is not found by one number, and by no
  // other's.
  void look_for_fresh(BlockHash block, std::uint64_t fresh) {
    std::map<BlockHash, std::uint64_t> numbers{{block, fresh}};
    std::map<std::uint64_t, BlockHash> texts{{fresh, block}};
    for (Held& other : lost_) {
      const auto most = static_cast<std::uint32_t>(other.chain.size());
      const TrtllmPool::Found found = runs_.find(other.share, most);
      if (!found.fresh) continue;
      const BlockHash hash = other.chain[found.blocks];
      ASSERT_EQ(numbers.try_emplace(hash, *found.fresh).first->second, *found.fresh);
      ASSERT_EQ(texts.try_emplace(*found.fresh, hash).first->second, hash);
    }
  }

  void go_on(Held& h) {
    const auto room = static_cast<std::uint32_t>(h.chain.size() - h.blocks.size());
    const auto more = static_cast<std::uint32_t>(random_.below(std::min(room, runs_.available()) + 1));
    runs_.take(h.share, more);
    blocks_.take(more, h.blocks);
    h.stored.resize(h.blocks.size(), false);
  }

  std::optional<std::uint64_t> id_of(const Held& h, std::uint32_t block) const {
    const bool said = block < h.prompt / kBlock && block / parts_ < h.ids.size();
    return said ? std::optional(h.ids[block / parts_]) : std::nullopt;
  }

  void store(Held& h) {
    const auto full = static_cast<std::uint32_t>(random_.below(h.blocks.size() + 1));
    std::vector<std::uint64_t> ids;
    runs_.store(h.share, full, ids);
    std::set<std::uint64_t> new_ids;
    for (std::uint32_t i = 0; i < full; ++i) {
      if (h.stored[i]) continue;
      if (blocks_.holds_text(h.chain[i])) {
        ++behind;
        continue;
      }
      blocks_.fill(h.blocks[i], h.chain[i]);
      h.stored[i] = true;
      if (const auto id = id_of(h, i)) new_ids.insert(*id);
    }
    ASSERT_EQ(std::set(ids.begin(), ids.end()), new_ids);
    look_again(h);
  }

  // Whoever holds blocks finds its text from its beginning on, too.
  void look_again(const Held& h) {
    const auto most = static_cast<std::uint32_t>(random_.below(h.chain.size() + 1));
    std::vector<KvBlock> found;
    blocks_.find(std::span(h.chain).first(most), found);
    ASSERT_EQ(runs_.find(h.share, most).blocks, found.size());
  }

  void give_back(Held& h) {
    std::size_t kept = h.blocks.size();
    while (kept > 0 && !h.stored[kept - 1] && random_.below(4) > 0) --kept;
    runs_.give_back(h.share, static_cast<std::uint32_t>(kept));
    blocks_.release(std::span(h.blocks).subspan(kept));
    h.blocks.resize(kept);
    h.stored.resize(kept);
  }

  void count_freed() {
    TrtllmPool::Left left;
    std::map<KvBlock, std::uint32_t> once;
    for (const Held& h : held_) {
      if (random_.below(2) == 0) continue;
      std::uint32_t free = 0;
      for (const KvBlock b : h.blocks) free += ++once[b] == blocks_.holders(b) ? 1 : 0;
      ASSERT_EQ(runs_.freed(h.share, left), free);
      freed += free;
    }
  }

  void leave(std::size_t i) {
    Held& h = held_[i];
    runs_.release(h.share);
    blocks_.release(h.blocks, false);
    h.blocks.clear();
    h.stored.clear();
    if (random_.below(3) == 0)
      lost_.push_back(std::move(h));
    else
      runs_.drop_text(h.share.text);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  TrtllmPool runs_;
  BlockPool blocks_;
  std::uint32_t parts_;
  RandomStream random_;
  std::vector<Held> held_;
  std::deque<Held> lost_;
  std::uint64_t number_ = 0;
};

TEST(TrtllmPool, R9RunsAreBlocks) {
  std::uint64_t hits = 0, behind = 0, gaps = 0, freed = 0;
  for (std::uint64_t seed = 0; seed < 400 && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    TwoPools two(static_cast<std::uint32_t>(5 + seed), static_cast<std::uint32_t>(1 + seed % 7), seed);
    for (int i = 0; i < 1500 && !::testing::Test::HasFatalFailure(); ++i) two.act();
    hits += two.hits;
    behind += two.behind;
    gaps += two.gaps;
    freed += two.freed;
  }
  EXPECT_GT(hits, 100'000U);
  EXPECT_GT(behind, 20'000U);
  EXPECT_GT(gaps, 400U);
  EXPECT_GT(freed, 100'000U);
}

// Two with the same text of three blocks: the second computes it, too. It stores the third one behind the
// first's two, whose loss leaves that one without what stands before it; a fourth block is stored behind.
TEST(TrtllmPool, R9TextBehindTextThatIsLostIsNotFoundAndNotStoredAgain) {
  TrtllmPool pool(7);
  const std::vector<std::uint64_t> text{1, 2, 3};
  std::vector<std::uint64_t> ids;
  TrtllmPool::Share a, b, c;
  a.text = pool.add_text({text, 4, 4, 12, 0});
  b.text = pool.add_text({text, 4, 4, 12, 1});
  c.text = pool.add_text({text, 4, 4, 12, 2});
  pool.take(a, 2);
  pool.take(b, 3);
  pool.store(a, 2, ids);
  pool.store(b, 3, ids);
  EXPECT_EQ(pool.filled(), 3U);
  EXPECT_EQ(pool.find(c, 3).blocks, 3U);
  pool.release(a);
  pool.take(c, 3);  // two free ones and a's second
  EXPECT_EQ(pool.find(c, 3).blocks, 1U);
  pool.take(c, 1);  // and its first
  EXPECT_EQ(pool.find(c, 3).blocks, 0U);
  EXPECT_EQ(pool.filled(), 1U);
  pool.store(c, 3, ids);
  EXPECT_EQ(pool.filled(), 3U);  // b's third is not stored again
  EXPECT_EQ(ids, (std::vector<std::uint64_t>{1, 2, 3, 1, 2}));
  EXPECT_EQ(pool.find(b, 3).blocks, 3U);
}

// Of three blocks one share finds all and one two: both weigh on one run, whose parts weigh as much as the
// whole when it is cut. Two and a third that is lost, then one of the two; none since a restart.
TEST(TrtllmPool, R9WhatWasFoundWeighsWhenItIsLost) {
  TrtllmPool pool(8);
  const std::vector<std::uint64_t> text{1, 2, 3}, other{1, 2, 4};
  std::vector<std::uint64_t> ids;
  TrtllmPool::Share a, b, c;
  a.text = pool.add_text({text, 4, 4, 12, 0});
  b.text = pool.add_text({text, 4, 4, 12, 1});
  c.text = pool.add_text({other, 4, 4, 12, 2});
  pool.take(a, 3);
  pool.store(a, 3, ids);
  EXPECT_FALSE(pool.is_followed(a));
  pool.release(a);
  EXPECT_EQ(pool.find(b, 3).blocks, 3U);
  pool.weigh_found(5);
  EXPECT_EQ(pool.find(c, 3).blocks, 2U);
  pool.weigh_found(7);
  pool.hold_found(c);
  EXPECT_TRUE(pool.is_followed(c));
  pool.take(5);
  EXPECT_EQ(pool.lost_weight(), 0U);
  pool.take(1);
  EXPECT_EQ(pool.lost_weight(), 12U);
  pool.release(c);
  pool.take(1);
  EXPECT_EQ(pool.lost_weight(), 24U);
  pool.restart_weights();
  pool.take(1);
  EXPECT_EQ(pool.lost_weight(), 0U);
}

TEST(TrtllmPool, WithoutPrefixesNothingIsFound) {
  TrtllmPool pool(4, false);
  const std::vector<std::uint64_t> text{1};
  std::vector<std::uint64_t> ids;
  TrtllmPool::Share a, b;
  a.text = pool.add_text({text, 4, 4, 4, 0});
  b.text = pool.add_text({text, 4, 4, 4, 1});
  pool.take(a, 2);
  pool.store(a, 1, ids);
  EXPECT_EQ(pool.filled(), 0U);
  EXPECT_EQ(pool.find(b, 1).blocks, 0U);
  pool.release(a);
  EXPECT_EQ(pool.available(), 4U);
}

TEST(TrtllmPool, WrongUseIsNoticed) {
  TrtllmPool pool(2);
  TrtllmPool::Share share;
  std::vector<std::uint64_t> ids;
  share.text = pool.add_text({{}, 4, 4, 4, 0});
  EXPECT_THROW(pool.take(share, 3), std::logic_error);
  EXPECT_THROW(pool.store(share, 1, ids), std::logic_error);
  pool.take(share, 2);
  pool.find(share, 1);
  EXPECT_THROW(pool.hold_found(share), std::logic_error);
  pool.store(share, 1, ids);
  EXPECT_THROW(pool.give_back(share, 0), std::logic_error);
}

}  // namespace
}  // namespace shardline
