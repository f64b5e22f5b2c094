// Which earlier tokens a query sees: what models call a layer's attention type. models/README.md [T4].
#pragma once

#include <algorithm>
#include <cstdint>

namespace shardline {

/// full: all of them. window: the last ones, the query's own among them (transformers masking_utils.py,
/// sliding_window_overlay: 0 <= q - k < window). chunk: those of the query's own chunk of positions (the same
/// file, chunked_overlay: k / chunk == q / chunk). All causal.
enum class ReachKind : std::uint8_t { full, window, chunk };

/// The number of kinds from one on, in their order: a switch that falls through, so that the compiler names a
/// kind that it does not count.
constexpr int kinds_from(ReachKind kind) {
  int kinds = 0;
  switch (kind) {
    case ReachKind::full:
      ++kinds;
      [[fallthrough]];
    case ReachKind::window:
      ++kinds;
      [[fallthrough]];
    case ReachKind::chunk:
      ++kinds;
  }
  return kinds;
}
/// Of all kinds, numbered from 0: for what tries each of them.
inline constexpr int kReachKinds = kinds_from(ReachKind::full);

struct Reach {
  ReachKind kind = ReachKind::full;
  std::int64_t tokens = 0;  // of the window or of a chunk; full: 0

  bool local() const { return kind != ReachKind::full; }
  /// Whether `tokens` is a length, at least 1; otherwise it is 0.
  bool sized() const {
    switch (kind) {
      case ReachKind::full:
        return false;
      case ReachKind::window:
      case ReachKind::chunk:
        return true;
    }
    return false;
  }
  /// Whether the first position moves along with every query, so that tiles of queries have an edge there.
  bool slides() const {
    switch (kind) {
      case ReachKind::full:
      case ReachKind::chunk:
        return false;
      case ReachKind::window:
        return true;
    }
    return false;
  }
  /// First position that the query at `position` sees; it sees all up to itself.
  std::int64_t first(std::int64_t position) const {
    switch (kind) {
      case ReachKind::full:
        return 0;
      case ReachKind::window:
        return std::max<std::int64_t>(0, position - tokens + 1);
      case ReachKind::chunk:
        return position / tokens * tokens;
    }
    return 0;
  }
  bool operator==(const Reach&) const = default;
};

}  // namespace shardline
