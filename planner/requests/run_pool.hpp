// Blocks of a KV cache as runs: what block_pool.hpp does block by block, at a cost that grows with the runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/numbered.hpp"
#include "planner/requests/run_texts.hpp"

namespace shardline {

/// The blocks of one engine by vLLM's rules [R1], found, held, taken, filled and left exactly as those of
/// BlockPool, but in runs: blocks of one text that stand behind each other, have the same holders and were
/// left together. Which number a block without text has makes no difference to anybody, so such blocks are
/// only counted; those that nobody holds are taken first.
///
/// Runs are a tree: a run's parent is the text before it, as far as other texts share it. A text whose block
/// is kept is kept from its beginning on, for whoever holds a block holds all before it and leaves them
/// later; so a run that is lost is a leaf, and loses its end first.
class RunPool {
 public:
  /// What a request has of the pool. Its text is added to the pool first; 0 blocks otherwise.
  struct Share {
    std::uint32_t text = 0;
    std::uint32_t blocks = 0;  // held, with and without text
    std::uint32_t found = 0;   // blocks at its beginning that it found when it was begun last
    std::uint32_t filled = 0;  // blocks at its beginning with text, those that it found among them
    std::uint32_t last = 0;    // the run that ends with them
  };
  struct Found {
    std::uint32_t blocks = 0, idle = 0;  // all of them, and those that nobody holds
  };

  /// `blocks` may be taken in all; with `prefixes` false nothing is ever found.
  explicit RunPool(std::uint32_t blocks, bool prefixes = true);

  std::uint32_t available() const { return available_; }
  std::uint32_t size() const { return size_; }
  /// Blocks that hold text to be found.
  std::uint32_t filled() const { return filled_; }

  /// A text that a request is about to compute; it is kept until it is dropped and no run is of it.
  /// `of.text` is copied; blocks are the same for all texts (checked) and no two have one number.
  std::uint32_t add_text(const ChainText& of) { return texts_.add(of); }
  void drop_text(std::uint32_t text) { texts_.drop(text); }

  /// How much of the first `most` blocks of a request's text is in the pool, from its beginning.
  Found find(const Share& share, std::uint32_t most);
  /// A request without blocks (checked) holds what was found for it last; nothing happened since then.
  void hold_found(Share& share);
  /// Takes so many blocks without text, from the front of the free queue. There are as many (checked).
  void take(Share& share, std::uint32_t count);
  /// The share holds so many blocks or more, if that many are there: false, and nothing is taken.
  bool grow(Share& share, std::uint32_t blocks) {
    const std::uint32_t more = blocks > share.blocks ? blocks - share.blocks : 0;
    if (more > available_) return false;
    take(share, more);
    return true;
  }
  /// Likewise for several requests, whose shares count them themselves.
  void take(std::uint32_t count);
  /// The blocks of a share up to `filled` are full; it holds as many (checked).
  void fill(Share& share, std::uint32_t filled);
  /// A request leaves its blocks: text goes to the end of the free queue, its end first; blocks without text
  /// are the next to be taken.
  void release(Share& share);

 private:
  // Blocks [low, high) of a text, behind its parent's. Others that were filled with the same later are its
  // twins, in a list and cut wherever it is; they have no children, and it is their parent.
  struct Run {
    std::uint32_t parent = 0, low = 0, high = 0, text = 0;
    std::uint32_t children = 0, twin = 0;
    std::uint32_t holders = 0;
    std::uint32_t before = 0, after = 0;  // in the free queue, a ring through run 0
    bool filling = false;                 // held by the request that filled it
    bool is_twin = false;
    std::uint32_t blocks() const { return high - low; }
  };

  std::uint32_t new_run(const Run& run);
  void forget_run(std::uint32_t run);
  std::uint32_t split(std::uint32_t head, std::uint32_t at);
  std::uint32_t part_below(std::uint32_t run, std::uint32_t head, std::uint32_t at);
  void add_twin(std::uint32_t head, std::uint32_t text);
  void lose(std::uint32_t count);
  void lose_run(std::uint32_t run);
  std::uint32_t own(std::uint32_t head, std::uint32_t text) const;

  Numbered<Run> runs_;  // [0] is the root, and joins the ends of the queue
  RunTexts texts_;
  BlockTable children_;              // by parent and the first block's text
  std::vector<std::uint32_t> path_;  // of what was found last; its end may be a part of a run
  std::uint32_t path_blocks_ = 0;
  std::uint32_t size_, available_, blank_, filled_ = 0;
  bool prefixes_;
};

}  // namespace shardline
