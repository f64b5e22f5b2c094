// SGLang's two pools and the tree of both in the engine's own terms, slot by slot: slow, and what WindowTree
// must be equal to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"

namespace shardline {

using Slots = std::vector<std::int64_t>;
using Tokens = std::vector<std::uint64_t>;

template <class T>
std::vector<T> part_of(const std::vector<T>& of, std::size_t begin, std::size_t end) {
  return {of.begin() + static_cast<std::ptrdiff_t>(begin), of.begin() + static_cast<std::ptrdiff_t>(end)};
}

// allocator/swa.py, SWATokenToKVPoolAllocator: slots of tokens in pages, and which slot of a window belongs
// to a slot of a layer that sees all; 0: none.
class PlainPools {
 public:
  PlainPools(std::int64_t full, std::int64_t windows, std::int64_t page)
      : page_(page), mapping_(static_cast<std::size_t>(full + page), 0) {
    for (std::int64_t p = 1; p <= full / page; ++p) full_.push_back(p);
    for (std::int64_t p = 1; p <= windows / page; ++p) windows_.push_back(p);
  }
  std::int64_t full_available() const { return std::int64_t(full_.size()) * page_; }
  std::int64_t window_available() const { return std::int64_t(windows_.size()) * page_; }
  std::int64_t available() const { return std::min(full_available(), window_available()); }

  // The slot of the token behind those.
  void extend(Slots& slots) {
    if (static_cast<std::int64_t>(slots.size()) % page_ != 0) {
      const std::int64_t last = slots.back();
      slots.push_back(last + 1);
      map(last + 1) = map(last) + 1;
      return;
    }
    if (full_.empty() || windows_.empty()) throw UserError("out of memory");
    slots.push_back(full_.back() * page_);
    map(slots.back()) = windows_.back() * page_;
    full_.pop_back();
    windows_.pop_back();
  }
  void free(const Slots& slots) {
    if (slots.empty()) return;
    free_windows(slots);
    free_full(slots);
  }
  void free_full(const Slots& slots) {
    for (const std::int64_t p : pages(slots)) full_.push_back(p);
  }
  void free_windows(const Slots& slots) {
    std::set<std::int64_t> free;
    for (const std::int64_t p : pages(slots)) {
      for (std::int64_t s = p * page_; s < (p + 1) * page_; ++s) {
        if (map(s) > 0) free.insert(map(s) / page_);
        map(s) = 0;
      }
    }
    for (const std::int64_t p : free) windows_.push_back(p);
  }
  std::int64_t& map(std::int64_t slot) { return mapping_[static_cast<std::size_t>(slot)]; }

 private:
  std::set<std::int64_t> pages(const Slots& slots) const {
    std::set<std::int64_t> out;
    for (const std::int64_t s : slots) out.insert(s / page_);
    return out;
  }
  const std::int64_t page_;
  Slots full_, windows_, mapping_;
};

// swa_radix_cache.py, SWARadixCache.
class PlainWindowTree {
 public:
  struct Node {
    Node* parent = nullptr;
    std::map<Tokens, std::unique_ptr<Node>> children;
    Tokens key;
    Slots value;
    bool swa_tombstone = false;
    int full_lock_ref = 0, swa_lock_ref = 0, swa_uuid = 0;
  };
  struct Counts {
    std::uint64_t tombstoned = 0, recovered = 0, locked = 0, halves = 0, kept_tombstones = 0, full = 0,
                  leaves = 0;
  };

  PlainWindowTree(PlainPools& pools, std::int64_t window, std::int64_t page)
      : pools_(pools), window_(window), page_(static_cast<std::size_t>(page)) {}

  Node* root() { return &root_; }
  const Counts& counts() const { return counts_; }
  std::int64_t full_evictable() const { return evictable(full_lru_, &Node::full_lock_ref); }
  std::int64_t swa_evictable() const { return evictable(swa_lru_, &Node::swa_lock_ref); }

  // The slots of the longest beginning, and its node.
  std::pair<Slots, Node*> match_prefix(Tokens key) {
    key.resize(key.size() / page_ * page_);
    Node *node = &root_, *best = node;
    Slots value;
    std::size_t best_len = 0;
    std::int64_t since = std::numeric_limits<std::int64_t>::max() / 2;
    while (Node* child = child_of(node, key)) {
      if (child->swa_tombstone) {
        if (since >= window_) best_len = value.size(), best = node;
        since = 0;
      }
      const std::size_t length = common(child->key, key);
      const bool whole = length == child->key.size();
      if (!whole) child = split(child, length);
      value.insert(value.end(), child->value.begin(), child->value.end());
      if (!child->swa_tombstone) since += static_cast<std::int64_t>(length);
      node = child;
      if (!whole) break;
      key = part_of(key, length, key.size());
    }
    if (since >= window_) best_len = value.size(), best = node;
    for (auto* lru : {&full_lru_, &swa_lru_}) {
      auto place = lru->begin();  // each behind the one before
      for (Node* n = best; n != &root_; n = n->parent) {
        if (lru == &swa_lru_ && n->swa_tombstone) continue;
        if (place != lru->end() && *place == n) {
          ++place;
          continue;
        }
        lru->remove(n);
        lru->insert(place, n);
      }
    }
    value.resize(best_len);
    return {value, best};
  }

  void insert(Tokens key, Slots value, std::int64_t prev_prefix_len, std::int64_t swa_evicted_seqlen) {
    Node* node = &root_;
    std::int64_t total = 0;
    while (Node* child = child_of(node, key)) {
      node = child;
      newest(node);
      const std::size_t length = common(node->key, key);
      if (length < node->key.size()) node = split(node, length);
      const auto n = static_cast<std::int64_t>(length);
      if (prev_prefix_len < total + n)
        node = update(node, part_of(value, 0, length), total, swa_evicted_seqlen);
      total += n;
      key = part_of(key, length, key.size());
      value = part_of(value, length, value.size());
    }
    if (key.empty()) return;
    if (swa_evicted_seqlen > total) {
      const auto gone = static_cast<std::size_t>(swa_evicted_seqlen - total);
      node = add(node, part_of(key, 0, gone), part_of(value, 0, gone), true);
      key = part_of(key, gone, key.size());
      value = part_of(value, gone, value.size());
    }
    add(node, key, value, false);
  }

  int inc_lock_ref(Node* node) {
    std::int64_t locked = 0;
    int uuid = 0;
    for (; node != &root_; node = node->parent) {
      ++node->full_lock_ref;
      if (locked >= window_) continue;
      if (node->swa_tombstone) throw std::logic_error("a tombstone is locked");
      ++node->swa_lock_ref;
      locked += static_cast<std::int64_t>(node->value.size());
      if (locked < window_) continue;
      if (node->swa_uuid == 0) node->swa_uuid = ++uuids_;
      uuid = node->swa_uuid;
    }
    return uuid;
  }
  void dec_lock_ref(Node* node, int uuid) {
    bool swa = true;
    for (; node != &root_; node = node->parent) {
      --node->full_lock_ref;
      if (!swa) continue;
      if (--node->swa_lock_ref < 0) throw std::logic_error("windows were not locked");
      if (uuid != 0 && node->swa_uuid == uuid) swa = false;
    }
  }

  // common.py, evict_from_tree_cache.
  void evict_from_tree_cache(std::int64_t tokens) {
    const std::int64_t full = tokens - pools_.full_available(), swa = tokens - pools_.window_available();
    std::int64_t full_evicted = 0, swa_evicted = 0;
    while (full_evicted < full) {  // the leaf that was asked for longest ago
      const auto leaf = std::find_if(full_lru_.rbegin(), full_lru_.rend(), [](const Node* n) {
        return n->full_lock_ref == 0 && n->children.empty();
      });
      if (leaf == full_lru_.rend()) break;
      if (!(*leaf)->swa_tombstone) swa_evicted += std::int64_t((*leaf)->value.size());
      ++counts_.full;
      full_evicted += delete_leaf(*leaf);
    }
    while (swa_evicted < swa) {
      const auto at = std::find_if(swa_lru_.rbegin(), swa_lru_.rend(),
                                   [](const Node* n) { return n->swa_lock_ref == 0; });
      if (at == swa_lru_.rend()) break;
      Node* n = *at;
      swa_evicted += static_cast<std::int64_t>(n->value.size());
      if (n->children.empty()) {
        ++counts_.leaves;
        delete_leaf(n);
        continue;
      }
      pools_.free_windows(n->value);
      swa_lru_.remove(n);
      n->swa_tombstone = true;
      ++counts_.tombstoned;
    }
  }

 private:
  static std::int64_t evictable(const std::list<Node*>& lru, int Node::*locks) {
    std::int64_t out = 0;
    for (const Node* n : lru) out += n->*locks == 0 ? static_cast<std::int64_t>(n->value.size()) : 0;
    return out;
  }
  Node* child_of(Node* node, const Tokens& key) const {
    if (key.empty()) return nullptr;
    const auto at = node->children.find(part_of(key, 0, page_));
    return at == node->children.end() ? nullptr : at->second.get();
  }
  std::size_t common(const Tokens& a, const Tokens& b) const {
    std::size_t n = 0;
    while (n < a.size() && n < b.size() && std::equal(&a[n], &a[n] + page_, &b[n])) n += page_;
    return n;
  }
  void newest(Node* n) {
    full_lru_.remove(n);
    full_lru_.push_front(n);
    if (n->swa_tombstone) return;
    swa_lru_.remove(n);
    swa_lru_.push_front(n);
  }
  Node* add(Node* parent, const Tokens& key, const Slots& value, bool tombstone) {
    auto made = std::make_unique<Node>();
    Node* n = made.get();
    n->parent = parent;
    n->key = key;
    n->value = value;
    n->swa_tombstone = tombstone;
    parent->children[part_of(key, 0, page_)] = std::move(made);
    newest(n);
    return n;
  }
  // new_node -> child; the new one.
  Node* split(Node* child, std::size_t length) {
    const Tokens name = part_of(child->key, 0, page_);
    auto old = std::move(child->parent->children[name]);
    Node* n = add(child->parent, part_of(child->key, 0, length), part_of(child->value, 0, length),
                  child->swa_tombstone);
    n->full_lock_ref = child->full_lock_ref;
    n->swa_lock_ref = child->swa_lock_ref;
    n->swa_uuid = std::exchange(child->swa_uuid, 0);
    child->key = part_of(child->key, length, child->key.size());
    child->value = part_of(child->value, length, child->value.size());
    child->parent = n;
    n->children[part_of(child->key, 0, page_)] = std::move(old);
    newest(child);
    return n;
  }
  // Branches 1 to 3 of _insert_helper.
  Node* update(Node* node, const Slots& value, std::int64_t total, std::int64_t evicted) {
    const auto length = static_cast<std::int64_t>(value.size());
    if (!node->swa_tombstone || evicted >= total + length) {
      counts_.kept_tombstones += node->swa_tombstone ? 1 : 0;
      pools_.free(value);
      return node;
    }
    const auto start = static_cast<std::size_t>(std::max<std::int64_t>(0, evicted - total));
    if (start > 0) {
      split(node, start);  // it is the second part then
      pools_.free(part_of(value, 0, start));
      ++counts_.halves;
    }
    const Slots rest = part_of(value, start, value.size());
    if (node->full_lock_ref > 0) {
      ++counts_.locked;
      for (std::size_t i = 0; i < rest.size(); ++i)
        pools_.map(node->value[i]) = std::exchange(pools_.map(rest[i]), 0);
      pools_.free_full(rest);
    } else {
      pools_.free(node->value);
      node->value = rest;
    }
    node->swa_tombstone = false;
    swa_lru_.push_front(node);
    ++counts_.recovered;
    return node;
  }
  // And tombstones that are leaves then; tokens.
  std::int64_t delete_leaf(Node* n) {
    std::int64_t out = 0;
    while (true) {
      out += static_cast<std::int64_t>(n->value.size());
      pools_.free(n->value);
      full_lru_.remove(n);
      swa_lru_.remove(n);
      Node* parent = n->parent;
      parent->children.erase(part_of(n->key, 0, page_));
      n = parent;
      if (n == &root_ || !n->swa_tombstone || !n->children.empty() || n->full_lock_ref > 0) return out;
    }
  }

  PlainPools& pools_;
  const std::int64_t window_;
  const std::size_t page_;
  Node root_;
  std::list<Node*> full_lru_, swa_lru_;  // the newest first
  int uuids_ = 0;
  Counts counts_;
};

}  // namespace shardline
