// Blocks of TensorRT-LLM's KV cache as runs: what block_pool.hpp does block by block, by that engine's rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/requests/numbered.hpp"
#include "planner/requests/run_texts.hpp"

namespace shardline {

/// The blocks of one engine [R9]: those that nobody holds are in one queue, with text or without, taken from
/// its front. A request stores its text when it is known; a block whose text another one has stays without.
/// Found, held, taken, stored and left are exactly those of BlockPool, but in runs: blocks of one text that
/// stand behind each other, have the same holders and were left together, or blocks without text that are
/// neighbours in the queue. Which number a block has makes no difference to anybody.
///
/// Runs are a tree: a run's parent is the text before it, as far as other texts share it. Text may be kept
/// where the text before it is lost: of one who stored it behind blocks of its own for which others' were
/// found. Then it is not found, and nobody stores it again; runs that are lost stay in the tree as long as
/// others are behind them.
class TrtllmPool {
 public:
  /// What a request has of the pool. Its text is added to the pool first; 0 blocks otherwise.
  struct Share {
    // Stored by it behind blocks that it could not store: blocks of its text, and the run that ends with
    // them.
    struct Piece {
      std::uint32_t low, high, last;
    };
    std::uint32_t text = 0;
    std::uint32_t blocks = 0;  // held, with and without text
    std::uint32_t stored = 0;  // blocks at its beginning that it found or stored
    std::uint32_t last = 0;    // the run that ends with them
    std::vector<Piece> more;   // in the order of the text
  };
  struct Found {
    std::uint32_t blocks = 0, idle = 0;  // all of them, and those that nobody holds
    std::optional<std::uint64_t> fresh;  // the first block of text that is not; of equal text before it equal
  };

  /// `blocks` may be taken in all; with `prefixes` false nothing is ever found.
  explicit TrtllmPool(std::uint32_t blocks, bool prefixes = true);

  std::uint32_t available() const { return available_; }
  std::uint32_t size() const { return size_; }
  /// Blocks that hold text.
  std::uint32_t filled() const { return filled_; }

  /// A text that a request is about to compute; it is kept until it is dropped and no run is of it.
  /// `of.text` is copied; blocks are the same for all texts (checked) and no two have one number.
  std::uint32_t add_text(const ChainText& of) { return texts_.add(of); }
  void drop_text(std::uint32_t text) { texts_.drop(text); }

  /// How much of the first `most` blocks of a request's text is in the pool, from its beginning. What a share
  /// holds is there, so that nobody looks for it again.
  Found find(const Share& share, std::uint32_t most);
  /// What was found last weighs so much more, of what was weighed since the last restart. lost_weight(): what
  /// text has weighed that is lost since then. It may be more than that, and is never less.
  void weigh_found(std::uint32_t weight);
  void restart_weights() {
    ++weights_;
    lost_weight_ = 0;
  }
  std::uint64_t lost_weight() const { return lost_weight_; }
  /// A request without blocks (checked) holds what was found for it last; nothing happened since then.
  void hold_found(Share& share);
  /// Takes so many blocks without text, from the front of the queue. There are as many (checked).
  void take(Share& share, std::uint32_t count) {
    take(count);
    share.blocks += count;
  }
  /// Likewise for several requests, whose shares count them themselves.
  void take(std::uint32_t count);
  /// The first so many blocks of a share, which holds as many (checked), can be found, but for those whose
  /// text another one has. Appends the ids of those that could not be before to `ids`.
  void store(Share& share, std::uint32_t full, std::vector<std::uint64_t>& ids);
  /// The id that stands for a block of a text, if one does; and whether the block is in the pool, though it
  /// may not be found.
  std::optional<std::uint64_t> id_of(const Share& share, std::uint32_t block) const;
  bool keeps(const Share& share, std::uint32_t block) const;
  /// Whether text may be in the pool behind the text that a share has stored.
  bool is_followed(const Share& share) const { return !share.more.empty() || runs_[share.last].children > 0; }
  /// A request leaves its blocks, which go to the end of the queue, its end first.
  void release(Share& share);
  /// It leaves those behind the first so many, which have no text (checked): they are the next to be taken.
  void give_back(Share& share, std::uint32_t kept);

  /// How often a run was left, in a count of what would be free if somebody left.
  using Left = std::unordered_map<std::uint32_t, std::uint32_t>;
  /// How many more blocks nobody would hold if a share left beside those that are counted already.
  std::uint32_t freed(const Share& share, Left& left) const;

 private:
  // Blocks [low, high) of a text, behind its parent's; of text 0 blocks without text in the queue.
  struct Run {
    std::uint32_t parent = 0, low = 0, high = 0, text = 0;
    std::uint32_t children = 0;
    std::uint32_t holders = 0;
    std::uint32_t before = 0, after = 0;  // in the queue, a ring through run 0
    bool kept = true;                     // not lost
    std::uint32_t weights = 0;            // the restart since which it weighs
    std::uint64_t weight = 0;
    std::uint32_t blocks() const { return high - low; }
  };

  std::uint32_t new_run(const Run& run);
  std::uint32_t split(std::uint32_t run, std::uint32_t at);
  void forget_lost(std::uint32_t run);
  void queue_blank(bool at_front, std::uint32_t count);
  void lose(std::uint32_t run, std::uint32_t count);
  std::uint32_t blank(const Share& share) const;
  static void own(Share& share, std::uint32_t low, std::uint32_t high, std::uint32_t run);
  void leave_runs(std::uint32_t last, std::uint32_t low);

  Numbered<Run> runs_;  // [0] is the root, and joins the ends of the queue
  RunTexts texts_;
  BlockTable children_;              // by parent and the first block's text
  std::vector<std::uint32_t> path_;  // of what was found last; its end may be a part of a run
  std::uint32_t path_blocks_ = 0;
  std::uint32_t size_, available_ = 0, filled_ = 0;
  bool prefixes_;
  std::uint32_t weights_ = 1;
  std::uint64_t lost_weight_ = 0;
};

}  // namespace shardline
