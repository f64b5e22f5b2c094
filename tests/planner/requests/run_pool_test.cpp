// Blocks in runs, against a pool of single blocks.
#include "planner/requests/run_pool.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "sim/base/random.hpp"

namespace shardline {
namespace {

// Both pools serve the same requests, which begin like others, are filled bit by bit while others are, and
// are given up at any time. Blocks are of 4 tokens, ids of `parts` blocks.
class Two {
 public:
  Two(std::uint32_t blocks, std::uint32_t parts, std::uint64_t seed)
      : runs_(blocks), blocks_(blocks), parts_(parts), random_(seed, "runs") {}

  void act() {
    const std::uint64_t what = random_.below(4);
    if (what == 0 || held_.empty())
      begin();
    else if (what == 1 && held_.size() > 1)
      leave(random_.below(held_.size()));
    else
      go_on(held_[random_.below(held_.size())]);
    ASSERT_EQ(runs_.available(), blocks_.available());
    ASSERT_EQ(runs_.filled(), blocks_.filled());
  }

  std::uint64_t hits = 0, idle = 0;

 private:
  static constexpr std::uint32_t kBlock = 4;
  struct Held {
    RunPool::Share share;
    std::vector<KvBlock> blocks;
    std::vector<BlockHash> chain;
    std::uint32_t filled = 0;
  };

  void begin() {
    Held h;
    if (!lost_.empty() && random_.below(2) == 0) {
      // One that gave up its blocks begins anew, with its own text.
      h.share = lost_.front().share;
      h.chain = std::move(lost_.front().chain);
      lost_.pop_front();
    } else {
      std::vector<std::uint64_t> ids;
      for (std::uint64_t n = random_.below(5); n > 0; --n) ids.push_back(random_.below(2));
      const auto prompt = static_cast<std::uint32_t>(1 + random_.below(6 * parts_ * kBlock));
      const ChainText text{ids, parts_ * kBlock, kBlock, prompt, number_++};
      h.share.text = runs_.add_text(text);
      extend_chain(h.chain, 10 * parts_, text);
    }
    const auto most = static_cast<std::uint32_t>(random_.below(h.chain.size()));
    const RunPool::Found found = runs_.find(h.share, most);
    blocks_.find(std::span(h.chain).first(most), h.blocks);
    ASSERT_EQ(found.blocks, h.blocks.size());
    ASSERT_EQ(found.idle, blocks_.idle(h.blocks));
    hits += found.blocks;
    idle += found.idle;
    runs_.hold_found(h.share);
    blocks_.hold(h.blocks);
    h.filled = found.blocks;
    held_.push_back(std::move(h));
  }

  // Takes some blocks, and fills some of those that it has.
  void go_on(Held& h) {
    const auto room = static_cast<std::uint32_t>(h.chain.size() - h.blocks.size());
    const auto more = static_cast<std::uint32_t>(random_.below(std::min(room, runs_.available()) + 1));
    runs_.take(h.share, more);
    blocks_.take(more, h.blocks);
    const auto to =
        h.filled + static_cast<std::uint32_t>(random_.below(h.blocks.size() - h.filled + std::size_t{1}));
    runs_.fill(h.share, to);
    for (; h.filled < to; ++h.filled) blocks_.fill(h.blocks[h.filled], h.chain[h.filled]);
  }

  void leave(std::size_t i) {
    Held& h = held_[i];
    runs_.release(h.share);
    blocks_.release(h.blocks);
    if (random_.below(3) == 0)
      lost_.push_back(std::move(h));
    else
      runs_.drop_text(h.share.text);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  RunPool runs_;
  BlockPool blocks_;
  std::uint32_t parts_;
  RandomStream random_;
  std::vector<Held> held_;
  std::deque<Held> lost_;
  std::uint64_t number_ = 0;
};

TEST(RunPool, R1RunsAreBlocks) {
  std::uint64_t hits = 0, idle = 0;
  for (std::uint64_t seed = 0; seed < 400 && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Two two(static_cast<std::uint32_t>(5 + seed), static_cast<std::uint32_t>(1 + seed % 7), seed);
    for (int i = 0; i < 1500 && !::testing::Test::HasFatalFailure(); ++i) two.act();
    hits += two.hits;
    idle += two.idle;
  }
  EXPECT_GT(hits, 200'000U);
  EXPECT_GT(idle, 50'000U);
}

TEST(RunPool, WithoutPrefixesNothingIsFound) {
  RunPool pool(4, false);
  const std::vector<std::uint64_t> ids{1};
  RunPool::Share a, b;
  a.text = pool.add_text({ids, 4, 4, 4, 0});
  b.text = pool.add_text({ids, 4, 4, 4, 1});
  pool.take(a, 2);
  pool.fill(a, 1);
  EXPECT_EQ(pool.filled(), 0U);
  EXPECT_EQ(pool.find(b, 1).blocks, 0U);
  pool.release(a);
  EXPECT_EQ(pool.available(), 4U);
}

TEST(RunPool, WrongUseIsNoticed) {
  RunPool pool(1);
  RunPool::Share share;
  share.text = pool.add_text({{}, 4, 4, 4, 0});
  EXPECT_THROW(pool.take(share, 2), std::logic_error);
  EXPECT_THROW(pool.fill(share, 1), std::logic_error);
  pool.take(share, 1);
  pool.find(share, 1);
  EXPECT_THROW(pool.hold_found(share), std::logic_error);
}

}  // namespace
}  // namespace shardline
