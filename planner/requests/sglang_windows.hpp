// The second pool of SGLang's KV cache, of layers that see a window alone.
#pragma once

#include <cstdint>

#include "planner/requests/window_tree.hpp"

namespace shardline {

/// Each page of a text is one of the pool of layers that see all tokens, which the scheduler counts, and one
/// of this pool [R22], which is short. A request drops those behind its window, every swa_eviction_interval
/// batches; the tree of both pools drops windows of texts that nobody goes on from.
struct SglangWindows {
  /// Why whoever waits first did not begin when a step was last decided, if it is known to last.
  struct Refusal {
    bool known = false;
    bool place = false;        // for want of one; else of room for:
    double needed = 0;         // tokens of layers that see all, what it would lock included
    std::int64_t windows = 0;  // tokens of the others, likewise
  };

  SglangWindows(std::uint64_t window_pages, std::uint64_t pool)
      : tree(window_pages), pages(pool), free(pool) {}

  WindowTree tree;
  std::uint64_t pages, free;  // of the pool
  // Batches are counted as they run (forward_ct); that of the running batch's last one, and of the last one
  // with prompts, which becomes the running batch where there is none (forward_iter of both).
  std::uint64_t batches = 0, of_running = 0, of_prompts = 0;
  bool cut_is_kept = false;  // what was computed of the prompt that is cut is in the tree
  Refusal refusal;

  std::uint64_t available() const { return free + tree.evictable().windows; }
};

}  // namespace shardline
