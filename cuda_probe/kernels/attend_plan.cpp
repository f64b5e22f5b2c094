#include "cuda_probe/kernels/attend_plan.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>

namespace shardline {

namespace {

/// First code of each request: positions of all requests in one number line.
std::map<std::int32_t, std::int64_t> first_codes(TokenView queries, TokenView keys) {
  std::map<std::int32_t, std::int64_t> length;
  for (const TokenView list : {queries, keys}) {
    for (const Interval& i : list) {
      if (i.request != kPadding) length[i.request] = std::max(length[i.request], i.end);
    }
  }
  std::int64_t next = 0;
  for (auto& [request, first] : length) {
    const std::int64_t size = first;
    first = next;
    next += size;
  }
  if (next > std::numeric_limits<std::int32_t>::max())
    throw std::length_error("positions of all requests together exceed 31 bits");
  return length;
}

/// Adds run [from, to) of key rows, in whole tiles, to those of the tile; touching runs of one kind join.
void add_run(std::vector<KeyRun>& runs, std::size_t begin, std::int64_t from, std::int64_t to, bool masked) {
  if (from >= to) return;
  const auto first = static_cast<std::int32_t>(from), last = static_cast<std::int32_t>(to);
  if (runs.size() > begin && runs.back().last == first && (runs.back().masked != 0) == masked) {
    runs.back().last = last;
    return;
  }
  runs.push_back({first, last, masked ? 1 : 0});
}

}  // namespace

AttendPlan plan_attend(TokenView queries, TokenView keys) {
  const auto first = first_codes(queries, keys);
  AttendPlan plan;
  for (const Interval& i : queries) {
    for (std::int64_t p = i.begin; p < i.end; p += i.stride) {
      if (i.request == kPadding) {
        plan.visible.push_back({0, -1});
      } else {
        const auto low = static_cast<std::int32_t>(first.at(i.request));
        plan.visible.push_back({low, low + static_cast<std::int32_t>(p)});
      }
    }
  }
  for (const Interval& i : keys) {
    for (std::int64_t p = i.begin; p < i.end; p += i.stride) {
      plan.codes.push_back(i.request == kPadding ? -1 : static_cast<std::int32_t>(first.at(i.request) + p));
    }
  }
  const auto key_rows = static_cast<std::int64_t>(plan.codes.size());
  const std::int64_t key_tiles = (key_rows + kKeyTile - 1) / kKeyTile;
  plan.codes.resize(static_cast<std::size_t>(key_tiles * kKeyTile), -1);

  // Lowest and highest code of each key tile; -1 where padding is among them.
  std::vector<Visible> span;
  for (std::int64_t t = 0; t < key_tiles; ++t) {
    const auto begin = plan.codes.begin() + t * kKeyTile;
    const auto [low, high] = std::minmax_element(begin, begin + kKeyTile);
    span.push_back({*low, *high});
  }
  const auto tiles = (plan.visible.size() + kQueryTile - 1) / kQueryTile;
  std::vector<std::int64_t> work;
  plan.run_begin.push_back(0);
  for (std::size_t t = 0; t < tiles; ++t) {
    const auto begin = plan.visible.begin() + static_cast<std::ptrdiff_t>(t * kQueryTile);
    const auto end = plan.visible.begin() +
                     static_cast<std::ptrdiff_t>(std::min((t + 1) * kQueryTile, plan.visible.size()));
    // What every query sees, and what any does.
    Visible all{0, std::numeric_limits<std::int32_t>::max()};
    Visible any{std::numeric_limits<std::int32_t>::max(), -1};
    for (auto q = begin; q != end; ++q) {
      if (q->low > q->high) continue;  // a query without keys takes whatever the others do: see the kernel
      all = {std::max(all.low, q->low), std::min(all.high, q->high)};
      any = {std::min(any.low, q->low), std::max(any.high, q->high)};
    }
    const bool some_see_nothing = std::any_of(begin, end, [](const Visible& v) { return v.low > v.high; });
    const std::size_t first_run = plan.runs.size();
    std::int64_t rows = 0;
    for (std::int64_t k = 0; k < key_tiles; ++k) {
      const Visible s = span[static_cast<std::size_t>(k)];
      if (s.high < any.low || s.low > any.high) continue;
      const bool whole = !some_see_nothing && s.low >= all.low && s.high <= all.high;
      const std::int64_t last = std::min((k + 1) * kKeyTile, key_rows);
      add_run(plan.runs, first_run, k * kKeyTile, last, !whole);
      rows += kKeyTile;
    }
    plan.run_begin.push_back(static_cast<std::int32_t>(plan.runs.size()));
    work.push_back(rows);
    plan.computed += static_cast<double>(rows) * kQueryTile;
  }
  plan.order.resize(tiles);
  std::iota(plan.order.begin(), plan.order.end(), 0);
  std::stable_sort(plan.order.begin(), plan.order.end(), [&](std::int32_t a, std::int32_t b) {
    return work[static_cast<std::size_t>(a)] > work[static_cast<std::size_t>(b)];
  });
  return plan;
}

}  // namespace shardline
