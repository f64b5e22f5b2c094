// Texts whose KV is kept, as a tree of what they share: SGLang's prefix cache.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/numbered.hpp"
#include "sim/base/index.hpp"

namespace shardline {

using RadixNode = Index<struct RadixNodeTag>;

/// Pages of texts in a tree of segments [R2]: no page is kept twice. A segment is lost as a whole, the one
/// that was not asked for longest among those that nobody uses and that nothing stands behind. Whoever owns
/// the pages counts those that are free; the tree says which of its own can become so.
///
/// Rules: sgl-project/sglang, python/sglang/srt/mem_cache/radix_cache.py at 006b0e3d317f (match_prefix,
/// _match_prefix_helper, _split_node, _insert_helper, evict, inc_lock_ref, dec_lock_ref), policy "lru". Every
/// time.monotonic() there is later than the one before here.
class RadixTree {
 public:
  struct Match {
    RadixNode node;           // where it ends
    std::uint64_t pages = 0;  // of the text, from its beginning
  };

  RadixTree();

  /// The longest beginning of a text that is kept. A segment of which only a part fits is split.
  Match match(std::span<const std::uint64_t> text);
  /// Keeps a text: where it ends now, and how many of its pages were kept already, so that the owner has them
  /// twice. Of one that is kept up to a node that somebody uses what stands before it is not compared.
  Match insert(std::span<const std::uint64_t> text) { return insert({}, text); }
  Match insert(Match known, std::span<const std::uint64_t> text);
  /// The text up to a node was asked for, as by match() of it.
  void ask(RadixNode node);
  /// Somebody uses, or does not use any more, all from the root to this node.
  void lock(RadixNode node);
  void unlock(RadixNode node);
  /// Loses segments until at least so many pages are lost or none can be; says how many.
  std::uint64_t evict(std::uint64_t pages);

  /// Pages of segments that nobody uses, and of those that somebody does.
  std::uint64_t evictable() const { return evictable_; }
  std::uint64_t locked() const { return locked_; }

 private:
  struct Node {
    RadixNode parent;
    std::vector<std::uint64_t> text;
    std::uint32_t children = 0, locks = 0;
    std::uint64_t asked = 0;   // when last
    std::uint64_t queued = 0;  // when it was asked for last before it was put in line
  };
  // A node that can be lost, unless it was asked for since, is in use, or not the end of a text any more.
  struct Leaf {
    std::uint64_t asked;
    RadixNode node;
    bool operator>(const Leaf& b) const { return asked != b.asked ? asked > b.asked : node > b.node; }
  };

  RadixNode add(RadixNode parent, std::vector<std::uint64_t> text);
  RadixNode split(RadixNode child, std::size_t length);
  void touch(RadixNode node, std::uint64_t now);
  static std::size_t shared(const Node& node, std::span<const std::uint64_t> text);
  static bool is_leaf(const Node& n) { return n.children == 0 && n.locks == 0; }
  static BlockHash key(RadixNode parent, std::uint64_t page) { return chain_hash(parent, page); }
  RadixNode child(RadixNode parent, std::span<const std::uint64_t> text) const;
  bool can_be_lost(const Leaf& leaf);
  void queue(RadixNode node);

  Numbered<Node, RadixNode> nodes_;  // [0] is the root
  BlockTable children_;              // by parent and first page
  std::vector<Leaf> leaves_;         // a heap, the one that was asked for longest ago on top
  std::uint64_t clock_ = 0, evictable_ = 0, locked_ = 0;
};

}  // namespace shardline
