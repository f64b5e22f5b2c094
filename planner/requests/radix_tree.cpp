#include "planner/requests/radix_tree.hpp"

#include <algorithm>
#include <functional>

#include "sim/base/error.hpp"

namespace shardline {

RadixTree::RadixTree() : children_(64) { nodes_[0].locks = 1; }

// The root where there is none.
RadixNode RadixTree::child(RadixNode parent, std::span<const std::uint64_t> text) const {
  return children_.find(key(parent, text.front()));
}

// Most texts are alike for long, and such are compared by the piece.
std::size_t RadixTree::shared(const Node& node, std::span<const std::uint64_t> text) {
  constexpr std::size_t kPiece = 16;
  const std::size_t most = std::min(node.text.size(), text.size());
  const std::uint64_t* const kept = node.text.data();
  if (std::equal(kept, kept + most, text.data())) return most;
  std::size_t same = 0;
  while (same + kPiece <= most && std::equal(kept + same, kept + same + kPiece, text.data() + same))
    same += kPiece;
  while (same < most && kept[same] == text[same]) ++same;
  return same;
}

RadixTree::Match RadixTree::match(std::span<const std::uint64_t> text) {
  const std::uint64_t now = ++clock_;
  Match out;
  touch(0, now);
  while (out.pages < text.size()) {
    const RadixNode next = child(out.node, text.subspan(out.pages));
    if (next == 0) break;
    touch(next, now);
    const std::size_t length = shared(nodes_[next], text.subspan(out.pages));
    out.pages += length;
    if (length < nodes_[next].text.size()) {
      out.node = split(next, length);
      break;
    }
    out.node = next;
  }
  return out;
}

RadixTree::Match RadixTree::insert(Match known, std::span<const std::uint64_t> text) {
  ask(known.node);
  const std::uint64_t now = clock_;
  RadixNode at = known.node;
  std::uint64_t done = known.pages;
  while (done < text.size()) {
    const RadixNode next = child(at, text.subspan(done));
    if (next == 0) break;
    at = next;
    touch(at, now);
    const std::size_t length = shared(nodes_[at], text.subspan(done));
    done += length;
    if (length < nodes_[at].text.size()) at = split(at, length);
  }
  if (done < text.size()) {
    const auto rest = text.subspan(done);
    at = add(at, {rest.begin(), rest.end()});
    evictable_ += rest.size();
  }
  return {at, done};
}

void RadixTree::ask(RadixNode node) {
  const std::uint64_t now = ++clock_;
  for (; node != 0; node = nodes_[node].parent) touch(node, now);
  touch(0, now);
}

void RadixTree::lock(RadixNode node) {
  for (; node != 0; node = nodes_[node].parent) {
    Node& n = nodes_[node];
    if (n.locks++ == 0) {
      evictable_ -= n.text.size();
      locked_ += n.text.size();
    }
  }
}

void RadixTree::unlock(RadixNode node) {
  for (; node != 0; node = nodes_[node].parent) {
    Node& n = nodes_[node];
    SL_CHECK(n.locks > 0, "what is unlocked was locked");
    if (--n.locks == 0) {
      evictable_ += n.text.size();
      locked_ -= n.text.size();
    }
    queue(node);
  }
}

std::uint64_t RadixTree::evict(std::uint64_t pages) {
  std::uint64_t lost = 0;
  while (lost < pages && !leaves_.empty()) {
    const Leaf leaf = leaves_.front();
    std::pop_heap(leaves_.begin(), leaves_.end(), std::greater<>());
    leaves_.pop_back();
    if (!can_be_lost(leaf)) continue;
    Node& n = nodes_[leaf.node];
    const RadixNode parent = n.parent;
    lost += n.text.size();
    evictable_ -= n.text.size();
    children_.erase(key(parent, n.text.front()));
    --nodes_[parent].children;
    nodes_.drop(leaf.node);
    if (parent != 0) queue(parent);
  }
  return lost;
}

// If not it is out of line: it comes in again when it can be. Those that are lost were never asked for.
bool RadixTree::can_be_lost(const Leaf& leaf) {
  Node& n = nodes_[leaf.node];
  if (n.asked != leaf.asked) return false;
  if (is_leaf(n)) return true;
  n.queued = 0;
  return false;
}

// What stands in line in vain is left there until it is as much as all the rest could be.
void RadixTree::queue(RadixNode node) {
  Node& n = nodes_[node];
  if (!is_leaf(n) || n.queued == n.asked) return;
  n.queued = n.asked;
  leaves_.push_back({n.asked, node});
  std::push_heap(leaves_.begin(), leaves_.end(), std::greater<>());
  if (leaves_.size() <= 2 * nodes_.size() + 64) return;
  std::erase_if(leaves_, [&](const Leaf& leaf) { return !can_be_lost(leaf); });
  std::make_heap(leaves_.begin(), leaves_.end(), std::greater<>());
}

RadixNode RadixTree::add(RadixNode parent, std::vector<std::uint64_t> text) {
  const RadixNode node = nodes_.add({});
  if (children_.try_insert(key(parent, text.front()), node) == 0) ++nodes_[parent].children;
  Node& n = nodes_[node];
  n.parent = parent;
  n.text = std::move(text);
  n.asked = ++clock_;
  queue(node);
  return node;
}

// The first pages of a segment become one of their own, before it and as much in use.
RadixNode RadixTree::split(RadixNode child, std::size_t length) {
  const RadixNode parent = nodes_[child].parent;
  const auto cut = nodes_[child].text.begin() + static_cast<std::ptrdiff_t>(length);
  std::vector<std::uint64_t> first(nodes_[child].text.begin(), cut);
  nodes_[child].text.erase(nodes_[child].text.begin(), cut);
  const std::uint64_t named = first.front();
  const RadixNode node = add(parent, std::move(first));
  children_.replace(key(parent, named), node);
  children_.try_insert(key(node, nodes_[child].text.front()), child);
  Node& n = nodes_[node];
  n.children = 1;
  n.locks = nodes_[child].locks;
  nodes_[child].parent = node;
  return node;
}

void RadixTree::touch(RadixNode node, std::uint64_t now) {
  nodes_[node].asked = now;
  queue(node);
}

}  // namespace shardline
