#include "models/ir/tokens.hpp"

#include <algorithm>

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

bool requests_ascend(TokenView tokens) {
  std::int32_t last = 0;
  for (const Interval& i : tokens) {
    if (i.request == kPadding) continue;
    if (i.request < last) return false;
    last = i.request;
  }
  return true;
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
  std::int64_t pairs = 0;
  const bool grouped = requests_ascend(queries) && requests_ascend(keys);
  std::size_t first = 0;  // keys before it are of earlier requests, or padding
  for (const Interval& q : queries) {
    if (q.request == kPadding) continue;
    if (grouped) {
      while (first < keys.size() && keys[first].request < q.request) ++first;
    }
    for (std::size_t i = first; i < keys.size(); ++i) {
      const Interval& k = keys[i];
      if (grouped && k.request > q.request) break;
      if (k.request == q.request) pairs += causal(q, k);
    }
  }
  return pairs;
}

std::int64_t all_pairs(TokenView queries, TokenView keys) {
  std::int64_t pairs = 0;
  for (const Interval& q : queries) {
    if (q.request == kPadding) continue;
    for (const Interval& k : keys) {
      if (k.request == q.request) pairs += q.size() * k.size();
    }
  }
  return pairs;
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

bool same_tokens(TokenView a, TokenView b) {
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
