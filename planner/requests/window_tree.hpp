// Texts whose KV is kept where some layers see a window alone: SGLang's prefix cache of two pools.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/numbered.hpp"
#include "planner/requests/radix_tree.hpp"

namespace shardline {

/// Pages of texts in a tree of segments [R22], of each of which layers that see all tokens hold a page and,
/// unless the segment is a tombstone, layers with windows another one, of another pool. Whoever owns the
/// pages counts those that are free.
///
/// A text is found up to a segment behind which a window's worth of pages has windows, or all from the
/// beginning. Somebody who uses it locks all segments up to the root, and the windows of the last ones until
/// these are a window long. Lost are the leaf that was asked for longest ago, with its windows, or the
/// windows of any segment, which becomes a tombstone; a tombstone is no leaf for long.
///
/// Rules: sgl-project/sglang, python/sglang/srt/mem_cache/swa_radix_cache.py at 019cfc0f9617 (LRUList,
/// _match_prefix_helper, _match_post_processor, _insert_helper, _split_node, evict, inc_lock_ref,
/// dec_lock_ref, _iteratively_delete_tombstone_leaf), with the SGLANG_OPT_SWA_* of environ.py off, as they
/// are by default: a leaf that is in use has its windows.
class WindowTree {
 public:
  using Match = RadixTree::Match;
  /// Where the locks of windows end that lock() has taken; 0: at the root.
  using Boundary = std::uint32_t;
  /// Pages of both pools that are nobody's any more.
  struct Pages {
    std::uint64_t full = 0, windows = 0;
    Pages& operator+=(const Pages& more) {
      full += more.full;
      windows += more.windows;
      return *this;
    }
  };

  /// So many pages are a window, at least one.
  explicit WindowTree(std::uint64_t window);

  /// The longest beginning of a text that can be gone on from. A segment of which only a part fits is split.
  Match match(std::span<const std::uint64_t> text);
  /// Takes the pages of a text over that are not its own already: those from `kept` on, which have no windows
  /// up to `gone`. What it had is given back: tombstones take over windows, not pages of other layers.
  Pages insert(std::span<const std::uint64_t> text, std::uint64_t kept, std::uint64_t gone);
  Boundary lock(RadixNode node);
  void unlock(RadixNode node, Boundary boundary);
  /// Loses segments until at least so many pages of layers that see all are lost, and then windows until so
  /// many are, or none can be.
  Pages evict(std::uint64_t full, std::uint64_t windows);

  /// Pages that nobody uses.
  const Pages& evictable() const { return evictable_; }
  /// Of the text up to a node: segments without windows, and with windows that somebody uses.
  std::uint64_t tombstones() const { return tombstones_; }

 private:
  enum List : std::uint8_t { kFull, kWindows };  // of segments, in the order in which they were asked for
  struct Link {
    RadixNode newer, older;  // the root: none
  };
  struct Node {
    RadixNode parent;
    std::vector<std::uint64_t> text;
    std::uint32_t children = 0, locks = 0, window_locks = 0;
    Boundary boundary = 0;  // its name, where somebody's locks of windows end here
    bool tombstone = false;
    std::array<Link, 2> links{};
  };

  static BlockHash key(RadixNode parent, std::uint64_t page) { return chain_hash(parent, page); }
  RadixNode child(RadixNode parent, std::span<const std::uint64_t> text) const;
  std::size_t shared(RadixNode node, std::span<const std::uint64_t> text) const;
  RadixNode make(RadixNode parent, std::vector<std::uint64_t> text, bool tombstone);
  RadixNode add(RadixNode parent, std::span<const std::uint64_t> text, bool tombstone);
  RadixNode split(RadixNode child, std::size_t length);
  void drop(RadixNode node);

  Link& link(List list, RadixNode node) { return nodes_[node].links[list]; }
  void take_out(List list, RadixNode node);
  void put_in(List list, RadixNode node, RadixNode newer);  // behind one that is newer; 0: as the newest
  void ask(RadixNode node);
  void ask_path(List list, RadixNode node);
  RadixNode next_leaf(RadixNode newer_than);
  RadixNode next_window(RadixNode newer_than);
  void lose_leaf(RadixNode node, Pages& lost);
  RadixNode lose_tombstones(RadixNode parent, Pages& lost);
  void lose_windows(RadixNode node, Pages& lost);
  Pages take_over(RadixNode node, std::uint64_t begin, std::uint64_t gone);

  const std::uint64_t window_;
  Numbered<Node, RadixNode> nodes_;  // [0] is the root, and the end of both lists
  BlockTable children_;              // by parent and first page
  Boundary boundaries_ = 0;
  Pages evictable_;
  std::uint64_t tombstones_ = 0;
};

}  // namespace shardline
