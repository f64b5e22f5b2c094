// WindowTree [R22]: cases by hand, and the engine's own tree of slots on random users of few words.
#include "planner/requests/window_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/base/random.hpp"
#include "tests/planner/requests/plain_window_tree.hpp"

namespace shardline {
namespace {

using Text = std::vector<std::uint64_t>;

void expect_pages(const WindowTree::Pages& pages, std::uint64_t full, std::uint64_t windows) {
  EXPECT_EQ(pages.full, full);
  EXPECT_EQ(pages.windows, windows);
}

// Two segments, of which the first loses its windows, as it was asked for longest ago (_insert_helper asks
// for each on its way), and stays, as the other stands behind it. A window is two pages.
class WindowTreeOfTwo : public ::testing::Test {
 protected:
  WindowTreeOfTwo() : tree(2) {
    expect_pages(tree.insert(Text{1, 2, 3, 4}, 0, 0), 0, 0);
    expect_pages(tree.insert(Text{1, 2, 3, 4, 5, 6}, 4, 0), 0, 0);
    expect_pages(tree.evictable(), 6, 6);
    expect_pages(tree.evict(0, 1), 0, 4);
    expect_pages(tree.evictable(), 6, 2);
    EXPECT_EQ(tree.tombstones(), 4U);
  }
  WindowTree tree;
};

// _match_prefix_helper: two pages behind the tombstone are a window, one is not, nor is the tombstone.
TEST_F(WindowTreeOfTwo, R22FoundIsWhatAWindowStandsBehind) {
  EXPECT_EQ(tree.match(Text{1, 2, 3, 4}).pages, 0U);
  EXPECT_EQ(tree.match(Text{1, 2}).pages, 0U);
  EXPECT_EQ(tree.match(Text{1, 2, 3, 4, 5}).pages, 0U);  // [5] and [6] are two from here on
  EXPECT_EQ(tree.match(Text{1, 2, 3, 4, 5, 6, 7}).pages, 6U);
}

// inc_lock_ref locks all for layers that see all, windows only until they are one: [5, 6]. dec_lock_ref gives
// back the same.
TEST_F(WindowTreeOfTwo, R22LocksOfWindowsEndWithAWindow) {
  const auto match = tree.match(Text{1, 2, 3, 4, 5, 6});
  const auto boundary = tree.lock(match.node);
  expect_pages(tree.evictable(), 0, 0);
  expect_pages(tree.evict(6, 6), 0, 0);
  expect_pages(tree.insert(Text{1, 2, 3, 4, 5, 6, 7, 8}, 6, 0), 0, 0);
  const auto longer = tree.match(Text{1, 2, 3, 4, 5, 6, 7, 8});
  tree.unlock(match.node, boundary);
  const auto behind = tree.lock(longer.node);
  expect_pages(tree.evictable(), 0, 2);  // those of [5, 6]
  tree.unlock(longer.node, behind);
  expect_pages(tree.evictable(), 8, 4);
}

// A split segment hands the end of locks on to its first part.
TEST_F(WindowTreeOfTwo, R22LocksEndInTheFirstPartOfWhatWasSplit) {
  const auto match = tree.match(Text{1, 2, 3, 4, 5, 6});
  const auto boundary = tree.lock(match.node);
  EXPECT_EQ(tree.match(Text{1, 2, 3, 4, 5, 9}).pages, 0U);  // [5], then [6]
  tree.unlock(match.node, boundary);
  expect_pages(tree.evictable(), 6, 2);
}

// evict, for full tokens: the leaf with its windows, and the tombstone before it, which would be a leaf.
TEST_F(WindowTreeOfTwo, R22ATombstoneIsNoLeaf) {
  expect_pages(tree.evict(1, 0), 6, 2);
  expect_pages(tree.evictable(), 0, 0);
  EXPECT_EQ(tree.tombstones(), 0U);
}

// For window tokens a leaf is lost whole, too, with the tombstone.
TEST_F(WindowTreeOfTwo, R22WindowsOfALeafAreLostWithIt) { expect_pages(tree.evict(0, 1), 6, 2); }

// _insert_helper, branch 1: who computed [1 .. 4] anew leaves its windows to the tombstone and has the pages
// of the other layers twice. Branch 3: who has dropped these windows leaves it as it is. Branch 2: of the
// pages 2 and 3 there are windows, so that the tombstone is split before them.
TEST_F(WindowTreeOfTwo, R22TombstonesTakeWindowsOver) {
  expect_pages(tree.insert(Text{1, 2, 3, 4, 5, 6}, 0, 4), 6, 2);
  EXPECT_EQ(tree.tombstones(), 4U);
  expect_pages(tree.insert(Text{1, 2, 3, 4, 5, 6}, 0, 2), 6, 2);
  EXPECT_EQ(tree.tombstones(), 2U);
  EXPECT_EQ(tree.match(Text{1, 2, 3, 4}).pages, 4U);
  expect_pages(tree.insert(Text{1, 2, 3, 4}, 0, 0), 4, 2);  // [3, 4] twice
  EXPECT_EQ(tree.tombstones(), 0U);
  expect_pages(tree.evictable(), 6, 6);
}

// Windows that were dropped before the text was kept: a tombstone and the rest.
TEST(WindowTree, R22NewTextMayBeginWithoutWindows) {
  WindowTree tree(2);
  expect_pages(tree.insert(Text{1, 2, 3, 4, 5}, 0, 3), 0, 0);
  expect_pages(tree.evictable(), 5, 2);
  EXPECT_EQ(tree.tombstones(), 3U);
  EXPECT_EQ(tree.match(Text{1, 2, 3, 4, 5}).pages, 5U);
  EXPECT_EQ(tree.match(Text{1, 2, 3, 4}).pages, 0U);
}

// One page is a token here. Users have found a part of their text, hold slots for the rest, may have dropped
// windows of it, and leave all to the tree.
class Users {
 public:
  explicit Users(RandomStream& random)
      : random_(random),
        window_(1 + static_cast<std::int64_t>(random.below(5))),
        full_(30 + random.below(60)),
        windows_(10 + random.below(full_ - 9)),
        pools_(static_cast<std::int64_t>(full_), static_cast<std::int64_t>(windows_), 1),
        plain_(pools_, window_, 1),
        tree_(static_cast<std::uint64_t>(window_)) {}

  void play(int operations) {
    for (int i = 0; i < operations && !::testing::Test::HasFailure(); ++i) {
      const std::uint64_t kind = random_.below(10);
      if (kind < 4 || users_.empty())
        begin();
      else if (kind < 6)
        drop(one());
      else if (kind < 7)
        keep(one());
      else if (kind < 9)
        finish();
      else
        evict(1 + random_.below(40));
      check();
    }
    while (!users_.empty()) finish();
    check();
    EXPECT_EQ(full_ + tree_.evictable().full, all_);
  }
  const PlainWindowTree::Counts& counts() const { return plain_.counts(); }
  std::uint64_t found = 0;

 private:
  struct User {
    Text text;
    RadixNode node;
    WindowTree::Boundary boundary = 0;
    std::uint64_t kept = 0, gone = 0;
    Slots slots;
    PlainWindowTree::Node* plain = nullptr;
    int uuid = 0;
  };

  User& one() { return users_[random_.below(users_.size())]; }
  void back(const WindowTree::Pages& pages) {
    full_ += pages.full;
    windows_ += pages.windows;
  }
  void evict(std::uint64_t tokens) {
    plain_.evict_from_tree_cache(static_cast<std::int64_t>(tokens));
    back(tree_.evict(tokens - std::min(tokens, full_), tokens - std::min(tokens, windows_)));
  }
  void begin() {
    User u;
    for (std::uint64_t n = 1 + random_.below(14); n > 0; --n) u.text.push_back(random_.below(6) / 5);
    const auto match = tree_.match(u.text);
    const auto [slots, node] = plain_.match_prefix(u.text);
    ASSERT_EQ(match.pages, slots.size());
    found += match.pages;
    u.node = match.node;
    u.kept = match.pages;
    u.slots = slots;
    u.plain = node;
    u.boundary = tree_.lock(u.node);
    u.uuid = plain_.inc_lock_ref(u.plain);
    const std::uint64_t rest = u.text.size() - match.pages;
    evict(rest);
    if (std::min(full_, windows_) < rest) {
      tree_.unlock(u.node, u.boundary);
      plain_.dec_lock_ref(u.plain, u.uuid);
      return;
    }
    full_ -= rest;
    windows_ -= rest;
    while (u.slots.size() < u.text.size()) pools_.extend(u.slots);
    users_.push_back(std::move(u));
  }
  void drop(User& u) {
    const std::uint64_t from = std::max(u.gone, u.kept),
                        to = std::min(from + 1 + random_.below(4), u.text.size() - 1);
    if (to <= from) return;
    pools_.free_windows(part_of(u.slots, from, to));
    windows_ += to - from;
    u.gone = to;
  }
  // cache_unfinished_req, of who has dropped nothing.
  void keep(User& u) {
    if (u.gone > 0) return;
    back(tree_.insert(u.text, u.kept, 0));
    plain_.insert(u.text, u.slots, static_cast<std::int64_t>(u.kept), 0);
    const auto match = tree_.match(u.text);
    const auto [slots, node] = plain_.match_prefix(u.text);
    ASSERT_EQ(match.pages, u.text.size());
    ASSERT_EQ(slots.size(), u.text.size());
    tree_.unlock(u.node, u.boundary);
    plain_.dec_lock_ref(u.plain, u.uuid);
    u.node = match.node;
    u.plain = node;
    u.slots = slots;
    u.kept = u.text.size();
    u.boundary = tree_.lock(u.node);
    u.uuid = plain_.inc_lock_ref(u.plain);
  }
  // cache_finished_req.
  void finish() {
    const std::size_t which = random_.below(users_.size());
    User u = std::move(users_[which]);
    users_.erase(users_.begin() + static_cast<std::ptrdiff_t>(which));
    back(tree_.insert(u.text, u.kept, u.gone));
    plain_.insert(u.text, u.slots, static_cast<std::int64_t>(u.kept), static_cast<std::int64_t>(u.gone));
    tree_.unlock(u.node, u.boundary);
    plain_.dec_lock_ref(u.plain, u.uuid);
  }
  void check() {
    EXPECT_EQ(static_cast<std::int64_t>(tree_.evictable().full), plain_.full_evictable());
    EXPECT_EQ(static_cast<std::int64_t>(tree_.evictable().windows), plain_.swa_evictable());
    EXPECT_EQ(static_cast<std::int64_t>(full_), pools_.full_available());
    EXPECT_EQ(static_cast<std::int64_t>(windows_), pools_.window_available());
  }

  RandomStream& random_;
  const std::int64_t window_;
  std::uint64_t full_, windows_;  // free
  const std::uint64_t all_ = full_;
  PlainPools pools_;
  PlainWindowTree plain_;
  WindowTree tree_;
  std::vector<User> users_;
};

TEST(WindowTree, R22EqualsTheEnginesTreeOfSlots) {
  PlainWindowTree::Counts sums;
  std::uint64_t found = 0;
  for (std::uint64_t seed = 0; seed < 1000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "window tree");
    Users users(random);
    users.play(300);
    found += users.found;
    const PlainWindowTree::Counts& c = users.counts();
    sums.tombstoned += c.tombstoned;
    sums.recovered += c.recovered;
    sums.locked += c.locked;
    sums.halves += c.halves;
    sums.kept_tombstones += c.kept_tombstones;
    sums.full += c.full;
    sums.leaves += c.leaves;
  }
  EXPECT_GT(found, 100'000U);
  EXPECT_GT(sums.tombstoned, 1'000U);
  EXPECT_GT(sums.recovered, 1'000U);
  EXPECT_GT(sums.locked, 100U);
  EXPECT_GT(sums.halves, 100U);
  EXPECT_GT(sums.kept_tombstones, 100U);
  EXPECT_GT(sums.full, 1'000U);
  EXPECT_GT(sums.leaves, 1'000U);
}

}  // namespace
}  // namespace shardline
