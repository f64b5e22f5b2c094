#include "planner/requests/window_tree.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

WindowTree::WindowTree(std::uint64_t window) : window_(window), children_(64) {
  SL_CHECK(window > 0, "a window has pages");
  nodes_[0].locks = nodes_[0].window_locks = 1;
}

// The root where there is none.
RadixNode WindowTree::child(RadixNode parent, std::span<const std::uint64_t> text) const {
  return children_.find(key(parent, text.front()));
}

std::size_t WindowTree::shared(RadixNode node, std::span<const std::uint64_t> text) const {
  const std::vector<std::uint64_t>& kept = nodes_[node].text;
  const auto most = static_cast<std::ptrdiff_t>(std::min(kept.size(), text.size()));
  return static_cast<std::size_t>(std::mismatch(kept.begin(), kept.begin() + most, text.begin()).first -
                                  kept.begin());
}

void WindowTree::take_out(List list, RadixNode node) {
  const Link at = link(list, node);
  link(list, at.newer).older = at.older;
  link(list, at.older).newer = at.newer;
}

void WindowTree::put_in(List list, RadixNode node, RadixNode newer) {
  const RadixNode older = link(list, newer).older;
  link(list, node) = {newer, older};
  link(list, newer).older = node;
  link(list, older).newer = node;
}

// It is the newest in both lists.
void WindowTree::ask(RadixNode node) {
  take_out(kFull, node);
  put_in(kFull, node, 0);
  if (nodes_[node].tombstone) return;
  take_out(kWindows, node);
  put_in(kWindows, node, 0);
}

// The newest, and each before its parent, so that beginnings lose their windows first.
void WindowTree::ask_path(List list, RadixNode node) {
  RadixNode before = 0;
  for (; node != 0; node = nodes_[node].parent) {
    if (list == kWindows && nodes_[node].tombstone) continue;
    take_out(list, node);
    put_in(list, node, before);
    before = node;
  }
}

WindowTree::Match WindowTree::match(std::span<const std::uint64_t> text) {
  constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max() / 2;
  Match best;
  std::uint64_t done = 0, behind = kAll;  // pages with windows behind the last tombstone
  RadixNode at = 0;
  while (done < text.size()) {
    RadixNode next = child(at, text.subspan(done));
    if (next == 0) break;
    if (nodes_[next].tombstone) {
      if (behind >= window_) best = {at, done};
      behind = 0;
    }
    const std::size_t length = shared(next, text.subspan(done));
    const bool whole = length == nodes_[next].text.size();
    if (!whole) next = split(next, length);
    if (!nodes_[next].tombstone) behind += length;
    done += length;
    at = next;
    if (!whole) break;
  }
  if (behind >= window_) best = {at, done};
  ask_path(kFull, best.node);
  ask_path(kWindows, best.node);
  return best;
}

WindowTree::Pages WindowTree::insert(std::span<const std::uint64_t> text, std::uint64_t kept,
                                     std::uint64_t gone) {
  Pages back;
  RadixNode at = 0;
  std::uint64_t done = 0;
  while (done < text.size()) {
    const RadixNode next = child(at, text.subspan(done));
    if (next == 0) break;
    at = next;
    ask(at);
    const std::size_t length = shared(at, text.subspan(done));
    if (length < nodes_[at].text.size()) at = split(at, length);
    if (kept < done + length) back += take_over(at, done, gone);
    done += length;
  }
  if (done == text.size()) return back;
  SL_CHECK(gone < text.size(), "the end of a text has its windows");
  if (gone > done) {
    at = add(at, text.subspan(done, gone - done), true);
    done = gone;
  }
  add(at, text.subspan(done), false);
  return back;
}

// Pages of a text whose segment is there, from its page `begin` on: where that one is a tombstone, their
// windows become its own.
WindowTree::Pages WindowTree::take_over(RadixNode node, std::uint64_t begin, std::uint64_t gone) {
  const std::uint64_t length = nodes_[node].text.size(), end = begin + length;
  const std::uint64_t windows = end - std::clamp(gone, begin, end);
  if (!nodes_[node].tombstone) return {length, windows};
  if (windows == 0) return {length, 0};
  if (windows < length) split(node, length - windows);  // it is the second part then
  Node& n = nodes_[node];
  n.tombstone = false;
  put_in(kWindows, node, 0);
  evictable_.windows += windows;
  tombstones_ -= windows;
  return {length, 0};
}

WindowTree::Boundary WindowTree::lock(RadixNode node) {
  std::uint64_t windows = 0;
  Boundary out = 0;
  for (; node != 0; node = nodes_[node].parent) {
    Node& n = nodes_[node];
    if (n.locks++ == 0) evictable_.full -= n.text.size();
    if (windows >= window_) continue;
    SL_CHECK(!n.tombstone, "what is found has a window's worth of windows");
    if (n.window_locks++ == 0) evictable_.windows -= n.text.size();
    windows += n.text.size();
    if (windows < window_) continue;
    if (n.boundary == 0) n.boundary = ++boundaries_;
    out = n.boundary;
  }
  return out;
}

void WindowTree::unlock(RadixNode node, Boundary boundary) {
  bool windows = true;
  for (; node != 0; node = nodes_[node].parent) {
    Node& n = nodes_[node];
    SL_CHECK(n.locks > 0 && (!windows || n.window_locks > 0), "what is unlocked was locked");
    if (--n.locks == 0) evictable_.full += n.text.size();
    if (!windows) continue;
    if (--n.window_locks == 0) evictable_.windows += n.text.size();
    windows = boundary == 0 || n.boundary != boundary;
  }
}

RadixNode WindowTree::next_leaf(RadixNode newer_than) {
  RadixNode x = link(kFull, newer_than).newer;
  while (x != 0 && (nodes_[x].locks > 0 || nodes_[x].children > 0)) x = link(kFull, x).newer;
  return x;
}

RadixNode WindowTree::next_window(RadixNode newer_than) {
  RadixNode x = link(kWindows, newer_than).newer;
  while (x != 0 && nodes_[x].window_locks > 0) x = link(kWindows, x).newer;
  return x;
}

WindowTree::Pages WindowTree::evict(std::uint64_t full, std::uint64_t windows) {
  Pages lost;
  for (RadixNode x = full > 0 ? next_leaf(0) : RadixNode(0); x != 0 && lost.full < full;) {
    RadixNode next = next_leaf(x);
    const RadixNode before = nodes_[x].parent;
    lose_leaf(x, lost);
    // What stands behind nothing else now may be older than the next leaf.
    if (const RadixNode parent = lose_tombstones(before, lost); nodes_[parent].children == 0)
      next = next_leaf(0);
    x = next;
  }
  for (RadixNode x = lost.windows < windows ? next_window(0) : RadixNode(0);
       x != 0 && lost.windows < windows;) {
    const RadixNode next = next_window(x);
    if (nodes_[x].children > 0 || nodes_[x].locks > 0) {
      lose_windows(x, lost);
    } else {
      const RadixNode parent = nodes_[x].parent;
      lose_leaf(x, lost);
      lose_tombstones(parent, lost);
    }
    x = next;
  }
  return lost;
}

void WindowTree::lose_windows(RadixNode node, Pages& lost) {
  Node& n = nodes_[node];
  lost.windows += n.text.size();
  evictable_.windows -= n.text.size();
  tombstones_ += n.text.size();
  take_out(kWindows, node);
  n.tombstone = true;
}

void WindowTree::lose_leaf(RadixNode node, Pages& lost) {
  const std::uint64_t length = nodes_[node].text.size();
  lost.full += length;
  evictable_.full -= length;
  if (nodes_[node].tombstone) {
    tombstones_ -= length;
  } else {
    lost.windows += length;
    evictable_.windows -= length;
    take_out(kWindows, node);
  }
  drop(node);
}

// Those behind which nothing stands any more; where they end.
RadixNode WindowTree::lose_tombstones(RadixNode parent, Pages& lost) {
  while (parent != 0 && nodes_[parent].tombstone && nodes_[parent].children == 0 &&
         nodes_[parent].locks == 0) {
    const RadixNode node = std::exchange(parent, nodes_[parent].parent);
    lose_leaf(node, lost);
  }
  return parent;
}

void WindowTree::drop(RadixNode node) {
  take_out(kFull, node);
  const Node& n = nodes_[node];
  children_.erase(key(n.parent, n.text.front()));
  --nodes_[n.parent].children;
  nodes_.drop(node);
}

RadixNode WindowTree::make(RadixNode parent, std::vector<std::uint64_t> text, bool tombstone) {
  const RadixNode node = nodes_.add({});
  Node& n = nodes_[node];
  n.parent = parent;
  n.text = std::move(text);
  n.tombstone = tombstone;
  put_in(kFull, node, 0);
  if (!tombstone) put_in(kWindows, node, 0);
  return node;
}

RadixNode WindowTree::add(RadixNode parent, std::span<const std::uint64_t> text, bool tombstone) {
  const RadixNode node = make(parent, {text.begin(), text.end()}, tombstone);
  children_.try_insert(key(parent, text.front()), node);
  ++nodes_[parent].children;
  evictable_.full += text.size();
  (tombstone ? tombstones_ : evictable_.windows) += text.size();
  return node;
}

// The first pages of a segment become one of their own, before it and as much in use; locks of windows that
// end in it end there. Both are the newest, the second part before the first.
RadixNode WindowTree::split(RadixNode child, std::size_t length) {
  const RadixNode parent = nodes_[child].parent;
  const auto cut = nodes_[child].text.begin() + static_cast<std::ptrdiff_t>(length);
  std::vector<std::uint64_t> first(nodes_[child].text.begin(), cut);
  nodes_[child].text.erase(nodes_[child].text.begin(), cut);
  const std::uint64_t named = first.front();
  const RadixNode node = make(parent, std::move(first), nodes_[child].tombstone);
  children_.replace(key(parent, named), node);
  children_.try_insert(key(node, nodes_[child].text.front()), child);
  Node &n = nodes_[node], &rest = nodes_[child];
  n.children = 1;
  n.locks = rest.locks;
  n.window_locks = rest.window_locks;
  n.boundary = std::exchange(rest.boundary, 0);
  rest.parent = node;
  ask(child);
  return node;
}

}  // namespace shardline
