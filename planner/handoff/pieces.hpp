// What ranks send to one another when a request's cache goes from one layout to another. README.md [D3],
// [D4].
#pragma once

#include "planner/handoff/cache_layout.hpp"
#include "planner/handoff/runs.hpp"

namespace shardline {

/// Order of the numbers of a page: token after token, each with the rank's heads (SGLang), or head after
/// head, each with the page's tokens (vLLM's HND, TensorRT-LLM).
enum class PageOrder : unsigned char { tokens_first, heads_first };

/// How an engine keeps and sends pages.
struct CachePages {
  int block = 16;  // rows of a page
  PageOrder order = PageOrder::heads_first;
};
struct HandoffPages {
  CachePages source, target;
  /// Pieces are copied into a buffer for each pair of ranks, sent as one message, and copied out of it.
  bool gathered = false;
};

/// One part of one kind of attention that a rank sends to another.
struct CachePiece {
  int from = 0, to = 0;  // ranks of either replica
  CachePart part = CachePart::heads;
  int kind = 0;
  Span32 layers;  // of the model; of them those of the kind
  int layer_count = 0;
  Span32 units;
  std::size_t source = 0, target = 0;  // boxes
  RunCount runs;                       // of one layer, plane and unit; of states one row
  long long descriptors = 0;           // of all its layers, before any gathering
  Bytes bytes;
};

struct Handoff {
  CacheLayout source, target;
  HandoffPages pages;
  std::vector<CachePiece> pieces;  // by part, then by receiver

  Bytes bytes() const;
};

/// What goes from one rank to another.
struct RankPair {
  int from = 0, to = 0;
  long long pieces = 0, descriptors = 0;  // of descriptors one, where pieces are gathered
  Bytes bytes;
};

/// [D3] Every unit and token that a rank of `target` needs comes from one rank of `source` that computed it.
/// Of n ranks that have the same tokens of it and m that need the same ones, the i-th of the m is sent it by
/// the (floor(i n / m) + g mod max(1, n / m))-th of the n, g the attention group of the receiver.
/// SL_CHECKs that nothing is missing.
Handoff hand_over(CacheLayout source, CacheLayout target, const HandoffPages& pages, int target_group = 0);

/// In the order of senders, then of receivers.
std::vector<RankPair> rank_pairs(const Handoff& handoff);

/// [D4] Descriptors of a piece of `units` units, of all layers and planes.
long long descriptors_of(const CachePiece& piece, const CacheBox& source, const CacheBox& target, int planes,
                         const HandoffPages& pages);

}  // namespace shardline
