// Where the cache of one request lies in a replica of a plan: boxes of (layers, units, tokens) on ranks.
// README.md [D1], [D2].
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/layers/places.hpp"

namespace shardline {

/// What of a layer is kept, and what its units are. heads: keys and values, a unit per KV head. latent: MLA's
/// rows, or the one key of all heads in the window of compressed attention, one unit. index_key: of layers
/// with an index of their own, one unit. compressed: rows that several tokens were compressed to, one unit.
/// uncompressed: values and gates of the tokens that rows to come are made of, one unit. state: recurrent
/// layers, one unit per value head. conv_keys, conv_values: last rows of their convolution, the queries and
/// keys of a key head and the values of a value head.
enum class CachePart : unsigned char {
  heads,
  latent,
  index_key,
  compressed,
  uncompressed,
  state,
  conv_keys,
  conv_values
};
std::string_view to_string(CachePart part);
/// Whether it grows with the tokens; of the others a request has one row.
constexpr bool of_tokens(CachePart part) { return part <= CachePart::uncompressed; }

/// [first, end).
struct Span32 {
  int first = 0, end = 0;
  int size() const { return end > first ? end - first : 0; }
  bool has(int i) const { return i >= first && i < end; }
  bool operator==(const Span32&) const = default;
};
inline Span32 common(Span32 a, Span32 b) { return {std::max(a.first, b.first), std::min(a.end, b.end)}; }

/// All that one rank has of one part of the layers with one kind of attention.
struct CacheBox {
  int rank = 0;  // of the replica: those of the first pipeline stage come first
  CachePart part = CachePart::heads;
  int kind = 0;   // of attention, in the model
  Span32 layers;  // of the model and its modules: those of the rank's stage; of them the ones of this kind
  Span32 units;
  HeldList tokens;  // or rows of several each, by their numbers; empty of parts that are not of tokens
  /// Beside them tokens that it has received from the ranks that computed them, and need not send (a chain's
  /// prefix).
  HeldList received = {};
};

/// One part of one kind of attention.
struct PartShape {
  CachePart part = CachePart::heads;
  int kind = 0;
  int units = 1;         // of the model
  double row_bytes = 0;  // of a unit: of one token, or of all it keeps
  int planes = 1;        // that memory keeps apart: keys and values
  int ratio = 1;         // tokens that a row is made of
  int own_page = 0;      // rows of its pages, whatever the engine's are; 0: as many tokens as a page has

  int page(int block) const { return own_page > 0 ? own_page : std::max(1, block / ratio); }
};

/// Before the first step of decoding a layer needs what the first query sees; behind a prefill it has what
/// the last one saw.
enum class CacheSide : unsigned char { prefilled, to_decode };

struct CacheLayout {
  int ranks = 1;
  std::vector<PartShape> parts;
  std::vector<CacheBox> boxes;  // by parts, then by ranks
  std::vector<int> kind_of;  // of attention, of each layer, and of modules behind them where the plan drafts

  /// Layers of a kind among those.
  int layers(int kind, Span32 among) const;
};

/// What the model keeps of a request, part by part.
std::vector<PartShape> part_shapes(const Case& c);

/// First row of a part that a request of `tokens` tokens still needs, and behind its last one: tokens, or
/// rows that several of them were compressed to. One row of parts that are not of tokens.
std::pair<std::int64_t, std::int64_t> part_rows(const Attention& a, CachePart part, CacheSide side,
                                                long long tokens);

/// Of a request of `tokens` tokens, all computed by this plan from an empty cache (or to be), in attention
/// group `group`. The plan passes check_plan(); of the case the model, its types and blocks count.
CacheLayout cache_layout(const Case& c, const Plan& plan, CacheSide side, long long tokens, int group = 0);

/// Why the plan's cache cannot be handed over or taken over; nothing where it can.
std::optional<std::string> no_handoff(const Plan& plan, CacheSide side);

/// [D2] Bytes of a box, of all its layers.
Bytes box_bytes(const CacheLayout& layout, const CacheBox& box);
const PartShape& shape_of(const CacheLayout& layout, const CacheBox& box);

}  // namespace shardline
