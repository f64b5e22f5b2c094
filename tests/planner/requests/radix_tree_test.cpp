// Segments of texts, and a slow tree that is a list of whole texts.
#include "planner/requests/radix_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "sim/base/random.hpp"

namespace shardline {
namespace {

using Text = std::vector<std::uint64_t>;

Text first(const Text& text, std::size_t n) {
  return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n)};
}

// Each segment is the whole text up to its end, and where it begins; nothing points to anything.
class SlowTree {
 public:
  struct Segment {
    Text end;
    std::size_t begin;
    std::uint64_t asked;
  };

  std::size_t match(const Text& text) {
    const std::uint64_t now = ++clock_;
    return walk(text, now);
  }
  std::size_t insert(const Text& text) {
    const std::uint64_t now = ++clock_;
    const std::size_t done = walk(text, now);
    if (done < text.size()) segments_.push_back({text, done, ++clock_});
    return done;
  }
  void lock(const Text& text) { users_.push_back(text); }
  void unlock(const Text& text) { users_.erase(std::find(users_.begin(), users_.end(), text)); }
  bool used(const Segment& s) const {
    return std::any_of(users_.begin(), users_.end(), [&](const Text& u) {
      return u.size() >= s.end.size() && first(u, s.end.size()) == s.end;
    });
  }
  std::size_t evict(std::size_t pages) {
    std::size_t lost = 0;
    while (lost < pages) {
      auto oldest = segments_.end();
      for (auto s = segments_.begin(); s != segments_.end(); ++s) {
        const bool behind = std::any_of(segments_.begin(), segments_.end(), [&](const Segment& o) {
          return o.begin == s->end.size() && first(o.end, o.begin) == s->end;
        });
        if (behind || used(*s)) continue;
        if (oldest == segments_.end() || s->asked < oldest->asked) oldest = s;
      }
      if (oldest == segments_.end()) break;
      lost += oldest->end.size() - oldest->begin;
      segments_.erase(oldest);
    }
    return lost;
  }
  std::pair<std::uint64_t, std::uint64_t> sizes() const {
    std::uint64_t free = 0, locked = 0;
    for (const Segment& s : segments_) (used(s) ? locked : free) += s.end.size() - s.begin;
    return {free, locked};
  }

 private:
  std::size_t walk(const Text& text, std::uint64_t now) {
    std::size_t done = 0;
    for (std::size_t i = 0; i < segments_.size();) {
      Segment& s = segments_[i++];
      if (done == text.size() || s.begin != done || s.end[done] != text[done] ||
          first(s.end, done) != first(text, done)) {
        continue;
      }
      s.asked = now;
      const auto same = std::mismatch(s.end.begin(), s.end.end(), text.begin(), text.end()).first;
      done = static_cast<std::size_t>(same - s.end.begin());
      if (done < s.end.size()) {
        Segment before{first(s.end, done), s.begin, ++clock_};
        s.begin = done;
        segments_.push_back(std::move(before));
        return done;
      }
      i = 0;
    }
    return done;
  }

  std::vector<Segment> segments_;
  std::vector<Text> users_;
  std::uint64_t clock_ = 0;
};

TEST(RadixTree, R2FiniteTreesAreThoseOfANaiveOne) {
  std::uint64_t hits = 0, lost = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "radix tree");
    RadixTree tree;
    SlowTree slow;
    std::vector<std::pair<RadixNode, Text>> users;
    for (int step = 0; step < 300; ++step) {
      const std::size_t repeats = seed % 3 == 0 ? 7 : 1;  // long texts, which are alike for pages
      Text text(1 + random.below(9));
      for (auto& page : text) page = random.below(3);
      Text whole;
      for (const auto page : text) whole.insert(whole.end(), repeats, page);
      text = random.below(2) == 0 ? whole : first(whole, whole.size() - random.below(repeats));
      const RadixTree::Match found = tree.match(text);
      ASSERT_EQ(found.pages, slow.match(text));
      hits += found.pages;
      const bool used = random.below(2) == 0;
      if (used) {
        tree.lock(found.node);
        users.emplace_back(found.node, first(text, found.pages));
        slow.lock(users.back().second);
      }
      if (random.below(3) > 0) {
        // Whoever uses what was found need not compare it again.
        const RadixTree::Match kept =
            used && random.below(2) == 0 ? tree.insert(found, text) : tree.insert(text);
        ASSERT_EQ(kept.pages, slow.insert(text));
        if (random.below(2) == 0) {
          tree.ask(kept.node);
          ASSERT_EQ(slow.match(text), text.size());
        }
      }
      if (users.size() > 4) {
        const std::size_t i = random.below(users.size());
        tree.unlock(users[i].first);
        slow.unlock(users[i].second);
        users.erase(users.begin() + static_cast<std::ptrdiff_t>(i));
      }
      const std::uint64_t pages = tree.evictable() + tree.locked();
      if (pages > 20 + seed) {
        const std::uint64_t gone = tree.evict(pages - 20 - seed);
        ASSERT_EQ(gone, slow.evict(pages - 20 - seed));
        lost += gone;
      }
      ASSERT_EQ(std::make_pair(tree.evictable(), tree.locked()), slow.sizes());
    }
  }
  EXPECT_GT(hits, 20'000U);
  EXPECT_GT(lost, 10'000U);
}

// The source's own example (radix_cache.py, __main__).
TEST(RadixTree, R2TheExampleOfTheSource) {
  RadixTree tree;
  EXPECT_EQ(tree.insert(Text{1, 2, 3}).pages, 0U);
  EXPECT_EQ(tree.insert(Text{1, 2, 3}).pages, 3U);
  EXPECT_EQ(tree.insert(Text{1, 2, 4, 5}).pages, 2U);
  EXPECT_EQ(tree.insert(Text{1, 2, 4, 5, 6, 7}).pages, 4U);
  EXPECT_EQ(tree.insert(Text{8, 9, 10, 11, 12}).pages, 0U);
  EXPECT_EQ(tree.match(Text{1, 2, 3, 13, 14}).pages, 3U);
  EXPECT_EQ(tree.evictable(), 12U);
}

// A segment is lost whole: more than was asked for; what is used stays, with all before it.
TEST(RadixTree, R2SegmentsAreLostWholeAndUsedOnesStay) {
  RadixTree tree;
  tree.insert(Text{1, 2, 3});
  tree.insert(Text{1, 2, 4, 5});
  const RadixTree::Match used = tree.match(Text{1, 2, 3});
  tree.lock(used.node);
  EXPECT_EQ(tree.locked(), 3U);
  EXPECT_EQ(tree.evict(1), 2U);
  EXPECT_EQ(tree.evict(1), 0U);
  tree.unlock(used.node);
  EXPECT_EQ(tree.evict(9), 3U);
  EXPECT_EQ(tree.evictable() + tree.locked(), 0U);
}

}  // namespace
}  // namespace shardline
