// Shared by the tests of tokens and of their shards.
#pragma once

#include <random>
#include <utility>
#include <vector>

#include "models/ir/tokens.hpp"

namespace shardline {

inline long long draw(std::mt19937_64& random, long long low, long long high) {
  return low + static_cast<long long>(random() % static_cast<std::uint64_t>(high - low + 1));
}

/// As transformers' masking_utils.py writes them: sliding_window_overlay, chunked_overlay, causal.
inline bool sees(const Reach& reach, std::int64_t query, std::int64_t key) {
  if (key > query) return false;
  switch (reach.kind) {
    case ReachKind::full:
      return true;
    case ReachKind::window:
      return key > query - reach.tokens;
    case ReachKind::chunk:
      return key / reach.tokens == query / reach.tokens;
  }
  return false;
}

// Segment and position of every row.
inline std::vector<std::pair<std::int32_t, long long>> one_by_one(const Tokens& tokens) {
  std::vector<std::pair<std::int32_t, long long>> out;
  for (const Interval& i : tokens) {
    for (auto p = i.begin; p < i.end; p += i.stride) out.emplace_back(i.request, p);
  }
  return out;
}

}  // namespace shardline
