#include "models/ir/tokens.hpp"

#include <algorithm>
#include <utility>

namespace shardline {

namespace {

// Pairs of queries [a, b) and keys [c, d) with key <= query, of one sequence.
std::int64_t interval_pairs(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  if (a >= b || c >= d || b <= c) return 0;
  // Queries from d-1 on see all keys; those between c and d-1 see a growing triangle.
  const std::int64_t full_from = std::max(a, d - 1);
  std::int64_t pairs = 0;
  if (full_from < b) pairs += (b - full_from) * (d - c);
  const std::int64_t low = std::max(a, c), high = std::min(b, full_from);
  if (low < high) {
    const std::int64_t first = low - c + 1, last = high - c;
    pairs += (first + last) * (high - low) / 2;
  }
  return pairs;
}

// floor(n / d), d > 0.
std::int64_t floor_div(std::int64_t n, std::int64_t d) { return n >= 0 ? n / d : -((-n + d - 1) / d); }

// Sum over 0 <= i < n of floor((b + a i) / d); a >= 0, b >= 0, d > 0. The lattice points under a line: whole
// steps are taken out, and what remains is counted along the other axis, as in Euclid's algorithm.
std::int64_t floor_sum(std::int64_t n, std::int64_t d, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  while (n > 0) {
    sum += n * (n - 1) / 2 * (a / d) + n * (b / d);
    a %= d;
    b %= d;
    const std::int64_t top = a * n + b;
    if (top < d) break;
    n = top / d;
    b = top % d;
    std::swap(a, d);
  }
  return sum;
}

// Pairs with key <= query, of one sequence.
std::int64_t causal(const Interval& q, const Interval& k) {
  if (q.stride == 1 && k.stride == 1) return interval_pairs(q.begin, q.end, k.begin, k.end);
  const std::int64_t queries = q.size(), keys = k.size(), ahead = q.begin - k.begin;
  if (queries <= 0 || keys <= 0) return 0;
  // Of two stripes of one stride query i sees key j where j <= i + floor(ahead / stride).
  if (q.stride == k.stride) {
    const std::int64_t shift = floor_div(ahead, q.stride);
    return interval_pairs(shift, shift + queries, 0, keys);
  }
  // Queries before `some` see no key, those from `full` on all, those between floor(distance / stride) + 1.
  const std::int64_t some = std::clamp(-floor_div(ahead, q.stride), std::int64_t{0}, queries);
  const std::int64_t full =
      std::clamp(-floor_div(ahead - (keys - 1) * k.stride, q.stride), std::int64_t{0}, queries);
  return (queries - full) * keys + (full - some) +
         floor_sum(full - some, k.stride, q.stride, ahead + some * q.stride);
}

// Those less than `window` apart: all but those that queries moved back by it would still see.
std::int64_t windowed(const Interval& q, const Interval& k, std::int64_t window) {
  const Interval back{q.request, q.begin - window, q.end - window, q.stride};
  return causal(q, k) - causal(back, k);
}

// Positions of an interval in [begin, end).
Interval within(const Interval& i, std::int64_t begin, std::int64_t end) {
  const std::int64_t skipped = begin > i.begin ? (begin - i.begin + i.stride - 1) / i.stride : 0;
  const std::int64_t first = i.position(skipped);
  return {i.request, first, std::max(first, std::min(i.end, end)), i.stride};
}

// Those of one chunk of positions. Between the first and the last chunk that both have tokens in, both have
// all of them; where the strides divide a chunk, these are alike.
std::int64_t chunked(const Interval& q, const Interval& k, std::int64_t chunk) {
  if (q.size() <= 0 || k.size() <= 0) return 0;
  const std::int64_t first = std::max(q.begin, k.begin) / chunk, last = std::min(q.last(), k.last()) / chunk;
  const auto of = [&](std::int64_t c) {
    return causal(within(q, c * chunk, (c + 1) * chunk), within(k, c * chunk, (c + 1) * chunk));
  };
  if (first > last) return 0;
  std::int64_t pairs = of(first);
  if (last > first) pairs += of(last);
  if (last - first < 2) return pairs;
  if (chunk % q.stride == 0 && chunk % k.stride == 0) return pairs + (last - first - 1) * of(first + 1);
  for (std::int64_t c = first + 1; c < last; ++c) pairs += of(c);
  return pairs;
}

bool requests_ascend(TokenView tokens) {
  std::int32_t last = 0;
  for (const Interval& i : tokens) {
    if (i.request == kPadding) continue;
    if (i.request < last) return false;
    last = i.request;
  }
  return true;
}

// Sum of one(query interval, key interval) over those of equal request, where requests ascend in both lists.
template <class One>
std::int64_t sum_of_ascending(TokenView queries, TokenView keys, One one) {
  std::int64_t pairs = 0;
  std::size_t first = 0;  // keys before it are of earlier requests, or padding
  for (const Interval& q : queries) {
    if (q.request == kPadding) continue;
    while (first < keys.size() && keys[first].request < q.request) ++first;
    for (std::size_t i = first; i < keys.size(); ++i) {
      const Interval& k = keys[i];
      if (k.request > q.request) break;
      if (k.request == q.request) pairs += one(q, k);
    }
  }
  return pairs;
}

// The list, or in `room` its intervals with their requests ascending: of many requests that several ranks
// hold every pair of intervals would take minutes to look at.
TokenView ascending(TokenView tokens, Tokens& room) {
  if (requests_ascend(tokens)) return tokens;
  room.clear();
  for (const Interval& i : tokens) {
    if (i.request != kPadding) room.push_back(i);
  }
  std::stable_sort(room.begin(), room.end(),
                   [](const Interval& a, const Interval& b) { return a.request < b.request; });
  return room;
}

// The same sum of any lists.
template <class One>
std::int64_t sum_of_requests(TokenView queries, TokenView keys, One one) {
  thread_local Tokens of_queries, of_keys;
  return sum_of_ascending(ascending(queries, of_queries), ascending(keys, of_keys), one);
}

// Keys of the requests that are asked about.
std::int64_t rows_asked_about(TokenView queries, TokenView keys) {
  thread_local std::vector<std::int32_t> asked;
  asked.clear();
  for (const Interval& q : queries) {
    if (q.request != kPadding && q.size() > 0) asked.push_back(q.request);
  }
  std::sort(asked.begin(), asked.end());
  std::int64_t n = 0;
  for (const Interval& k : keys) {
    if (std::binary_search(asked.begin(), asked.end(), k.request)) n += k.size();
  }
  return n;
}

}  // namespace

std::int64_t rows(TokenView tokens) {
  std::int64_t n = 0;
  for (const Interval& i : tokens) n += i.size();
  return n;
}

std::int64_t real_rows(TokenView tokens) {
  std::int64_t n = 0;
  for (const Interval& i : tokens) n += i.request == kPadding ? 0 : i.size();
  return n;
}

std::int64_t causal_pairs(TokenView queries, TokenView keys) {
  return sum_of_requests(queries, keys, [](const Interval& q, const Interval& k) { return causal(q, k); });
}

std::int64_t causal_pairs(TokenView queries, TokenView keys, const Reach& reach) {
  switch (reach.kind) {
    case ReachKind::full:
      break;
    case ReachKind::window:
      return sum_of_requests(
          queries, keys, [&](const Interval& q, const Interval& k) { return windowed(q, k, reach.tokens); });
    case ReachKind::chunk:
      return sum_of_requests(
          queries, keys, [&](const Interval& q, const Interval& k) { return chunked(q, k, reach.tokens); });
  }
  return causal_pairs(queries, keys);
}

std::int64_t rows_in_reach(TokenView queries, TokenView keys, const Reach& reach) {
  if (!reach.local()) return rows_asked_about(queries, keys);
  // Positions that the intervals of queries reach, joined where they meet: a key is read once.
  thread_local Tokens seen;
  seen.clear();
  for (const Interval& q : queries) {
    if (q.request != kPadding && q.size() > 0)
      seen.push_back({q.request, reach.first(q.begin), q.last() + 1});
  }
  std::sort(seen.begin(), seen.end(), [](const Interval& a, const Interval& b) {
    return std::pair(a.request, a.begin) < std::pair(b.request, b.begin);
  });
  std::size_t n = 0;
  for (const Interval& i : seen) {
    if (n > 0 && seen[n - 1].request == i.request && i.begin <= seen[n - 1].end)
      seen[n - 1].end = std::max(seen[n - 1].end, i.end);
    else
      seen[n++] = i;
  }
  seen.resize(n);
  std::int64_t count = 0;
  for (const Interval& k : keys) {
    if (k.request == kPadding) continue;
    const auto before = [&](const Interval& i) {
      return std::pair(i.request, i.end) <= std::pair(k.request, k.begin);
    };
    for (auto i = std::partition_point(seen.begin(), seen.end(), before);
         i != seen.end() && i->request == k.request && i->begin < k.end; ++i)
      count += within(k, i->begin, i->end).size();
  }
  return count;
}

std::int64_t all_pairs(TokenView queries, TokenView keys) {
  return sum_of_requests(queries, keys,
                         [](const Interval& q, const Interval& k) { return q.size() * k.size(); });
}

std::int64_t own_pairs(TokenView queries) {
  std::vector<std::int64_t> rows_of;
  for (const Interval& q : queries) {
    if (q.request == kPadding) continue;
    const auto request = static_cast<std::size_t>(q.request);
    if (request >= rows_of.size()) rows_of.resize(request + 1);
    rows_of[request] += q.size();
  }
  std::int64_t pairs = 0;
  for (const std::int64_t n : rows_of) pairs += n * (n + 1) / 2;
  return pairs;
}

std::int64_t query_tiles(TokenView queries) {
  std::int64_t n = 0;
  for (const Interval& q : queries) n += q.request == kPadding ? 0 : (q.size() + kTileRows - 1) / kTileRows;
  return n;
}

std::int64_t query_intervals(TokenView queries) {
  return std::count_if(queries.begin(), queries.end(),
                       [](const Interval& q) { return q.request != kPadding && q.size() > 0; });
}

bool same_tokens(TokenView a, TokenView b) {
  if (real_rows(a) != real_rows(b)) return false;
  const auto ordered = [](TokenView list, Tokens& out) {
    out.clear();
    for (const Interval& i : list) {
      if (i.request != kPadding) out.push_back(i);
    }
    std::sort(out.begin(), out.end(), [](const Interval& x, const Interval& y) {
      return std::pair(x.request, x.begin) < std::pair(y.request, y.begin);
    });
    compact(out);
  };
  thread_local Tokens first, second;
  ordered(a, first);
  ordered(b, second);
  return first == second;
}

void compact(Tokens& tokens) {
  std::size_t n = 0;
  for (const Interval& i : tokens) {
    if (i.size() == 0) continue;
    if (n > 0 && tokens[n - 1].request == i.request && tokens[n - 1].stride == i.stride &&
        tokens[n - 1].last() + i.stride == i.begin && i.request != kPadding) {
      tokens[n - 1].end = i.end;
    } else {
      tokens[n++] = i;
    }
  }
  tokens.resize(n);
}

}  // namespace shardline
