#include "planner/layers/places.hpp"

#include <algorithm>

namespace shardline {

namespace {

// Of positions [0, n) behind the phase of a cycle; n may be negative.
std::int64_t in_cycle(const HeldTokens& h, std::int64_t n) {
  const std::int64_t rounds = n >= 0 ? n / h.period : -((-n + h.period - 1) / h.period);
  return rounds * h.block + std::min(h.block, n - rounds * h.period);
}

std::int64_t place_in_cycle(const HeldTokens& h, std::int64_t t) {
  return ((t - h.phase) % h.period + h.period) % h.period;
}

}  // namespace

bool HeldTokens::holds(std::int64_t t) const {
  return t >= begin && t < end && place_in_cycle(*this, t) < block;
}

std::int64_t HeldTokens::before(std::int64_t t) const {
  const std::int64_t last = std::clamp(t, begin, std::max(begin, end));
  return in_cycle(*this, last - phase) - in_cycle(*this, begin - phase);
}

std::int64_t HeldTokens::next(std::int64_t t) const {
  const std::int64_t at = std::max(t, begin), place = place_in_cycle(*this, at);
  return place < block ? at : at + period - place;
}

std::int64_t HeldTokens::run_end(std::int64_t t) const {
  if (block >= period) return end;
  return std::min(end, t + block - place_in_cycle(*this, t));
}

HeldTokens HeldTokens::from(std::int64_t first) const {
  HeldTokens out = *this;
  if (first <= begin) return out;
  out.row = row_of(first);
  out.begin = std::min(first, end);
  return out;
}

HeldTokens sharer_tokens(const CacheShare& s, int member, std::int64_t first, std::int64_t end) {
  const std::int64_t block = s.block, n = s.sharers.size;
  const HeldTokens whole = n == 1 ? HeldTokens{0, end} : HeldTokens{0, end, block, block * n, block * member};
  return whole.from(first);
}

void append_tokens(Tokens& list, std::int32_t request, const HeldTokens& held) {
  for (std::int64_t at = held.next(held.begin); at < held.end; at = held.next(held.run_end(at)))
    list.push_back({request, at, held.run_end(at)});
}

HeldList held_list(Tokens tokens) {
  std::sort(tokens.begin(), tokens.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  compact(tokens);
  HeldList list;
  std::int64_t row = 0;
  for (const Interval& i : tokens) {
    SL_CHECK(list.empty() || list.back().end <= i.begin, "a rank has a token once, turns follow one another");
    list.push_back({i.begin, i.last() + 1, 1, i.stride, i.begin, row});
    row += i.size();
  }
  return list;
}

HeldList from(const HeldList& list, std::int64_t first) {
  HeldList out;
  for (const HeldTokens& h : list) {
    const HeldTokens part = h.from(first);
    if (part.size() > 0) out.push_back(part);
  }
  return out;
}

std::int64_t size(const HeldList& list) {
  std::int64_t sum = 0;
  for (const HeldTokens& h : list) sum += h.size();
  return sum;
}

}  // namespace shardline
