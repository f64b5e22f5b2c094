#include "planner/requests/radix_tree.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

RadixTree::RadixTree() : nodes_(1) { nodes_[0].locks = 1; }

std::size_t RadixTree::shared(const Node& node, std::span<const std::uint64_t> text) {
  const std::size_t most = std::min(node.text.size(), text.size());
  const auto end = node.text.begin() + static_cast<std::ptrdiff_t>(most);
  return static_cast<std::size_t>(std::mismatch(node.text.begin(), end, text.begin()).first -
                                  node.text.begin());
}

RadixTree::Match RadixTree::match(std::span<const std::uint64_t> text) {
  const std::uint64_t now = ++clock_;
  Match out;
  touch(0, now);
  while (out.pages < text.size()) {
    const auto found = nodes_[out.node].children.find(text[out.pages]);
    if (found == nodes_[out.node].children.end()) break;
    const RadixNode child = found->second;
    touch(child, now);
    const std::size_t length = shared(nodes_[child], text.subspan(out.pages));
    out.pages += length;
    if (length < nodes_[child].text.size()) {
      out.node = split(child, length);
      break;
    }
    out.node = child;
  }
  return out;
}

std::uint64_t RadixTree::insert(std::span<const std::uint64_t> text) {
  const std::uint64_t now = ++clock_;
  RadixNode at = 0;
  touch(at, now);
  std::uint64_t done = 0;
  while (done < text.size()) {
    const auto found = nodes_[at].children.find(text[done]);
    if (found == nodes_[at].children.end()) break;
    at = found->second;
    touch(at, now);
    const std::size_t length = shared(nodes_[at], text.subspan(done));
    done += length;
    if (length < nodes_[at].text.size()) at = split(at, length);
  }
  if (done < text.size()) {
    const auto rest = text.subspan(done);
    add(at, {rest.begin(), rest.end()});
    evictable_ += rest.size();
  }
  return done;
}

void RadixTree::lock(RadixNode node) {
  for (; node != 0; node = nodes_[node].parent) {
    Node& n = nodes_[node];
    if (n.locks++ == 0) {
      evictable_ -= n.text.size();
      locked_ += n.text.size();
    }
    set_leaf(node);
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
    set_leaf(node);
  }
}

std::uint64_t RadixTree::evict(std::uint64_t pages) {
  std::uint64_t lost = 0;
  while (lost < pages && !leaves_.empty()) {
    const RadixNode node = leaves_.begin()->second;
    leaves_.erase(leaves_.begin());
    Node& n = nodes_[node];
    const RadixNode parent = n.parent;
    lost += n.text.size();
    evictable_ -= n.text.size();
    nodes_[parent].children.erase(n.text.front());
    n = {};
    unused_.push_back(node);
    if (parent != 0) set_leaf(parent);
  }
  return lost;
}

RadixNode RadixTree::add(RadixNode parent, std::vector<std::uint64_t> text) {
  RadixNode node = static_cast<std::uint32_t>(nodes_.size());
  if (unused_.empty()) {
    nodes_.emplace_back();
  } else {
    node = unused_.back();
    unused_.pop_back();
  }
  nodes_[parent].children[text.front()] = node;
  Node& n = nodes_[node];
  n.parent = parent;
  n.text = std::move(text);
  n.asked = ++clock_;
  if (parent != 0) set_leaf(parent);
  set_leaf(node);
  return node;
}

// The first pages of a segment become one of their own, before it and as much in use.
RadixNode RadixTree::split(RadixNode child, std::size_t length) {
  const auto cut = nodes_[child].text.begin() + static_cast<std::ptrdiff_t>(length);
  std::vector<std::uint64_t> first(nodes_[child].text.begin(), cut), rest(cut, nodes_[child].text.end());
  const RadixNode node = add(nodes_[child].parent, std::move(first));
  Node& n = nodes_[node];
  n.children[rest.front()] = child;
  n.locks = nodes_[child].locks;
  nodes_[child].parent = node;
  nodes_[child].text = std::move(rest);
  set_leaf(node);
  return node;
}

void RadixTree::touch(RadixNode node, std::uint64_t now) {
  Node& n = nodes_[node];
  const bool leaf = leaves_.erase({n.asked, node}) > 0;
  n.asked = now;
  if (leaf) leaves_.emplace(n.asked, node);
}

void RadixTree::set_leaf(RadixNode node) {
  const Node& n = nodes_[node];
  if (is_leaf(n)) {
    leaves_.emplace(n.asked, node);
  } else {
    leaves_.erase({n.asked, node});
  }
}

}  // namespace shardline
