#include "cuda_probe/kernels/attend_plan.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <span>
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

/// What each row of the queries sees, and the code of each key row.
void list_rows(AttendPlan& plan, TokenView queries, TokenView keys) {
  const auto first = first_codes(queries, keys);
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
}

/// Lowest and highest code of each key tile; -1 where padding is among them.
std::vector<Visible> key_spans(const std::vector<std::int32_t>& codes) {
  std::vector<Visible> spans;
  for (auto begin = codes.begin(); begin != codes.end(); begin += kKeyTile) {
    const auto [low, high] = std::minmax_element(begin, begin + kKeyTile);
    spans.push_back({*low, *high});
  }
  return spans;
}

/// Adds the runs of keys that a query tile must look at; their rows, in whole tiles.
std::int64_t add_runs(std::vector<KeyRun>& runs, std::span<const Visible> queries,
                      std::span<const Visible> key_tiles, std::int64_t key_rows) {
  // What every query sees, and what any does.
  Visible all{0, std::numeric_limits<std::int32_t>::max()};
  Visible any{std::numeric_limits<std::int32_t>::max(), -1};
  bool some_see_nothing = false;
  for (const Visible& q : queries) {
    if (q.low > q.high) {  // a query without keys takes whatever the others do: see the kernel
      some_see_nothing = true;
      continue;
    }
    all = {std::max(all.low, q.low), std::min(all.high, q.high)};
    any = {std::min(any.low, q.low), std::max(any.high, q.high)};
  }
  const std::size_t first_run = runs.size();
  std::int64_t rows = 0;
  for (std::size_t k = 0; k < key_tiles.size(); ++k) {
    const Visible s = key_tiles[k];
    if (s.high < any.low || s.low > any.high) continue;
    const bool whole = !some_see_nothing && s.low >= all.low && s.high <= all.high;
    const std::int64_t row = static_cast<std::int64_t>(k) * kKeyTile;
    add_run(runs, first_run, row, std::min(row + kKeyTile, key_rows), !whole);
    rows += kKeyTile;
  }
  return rows;
}

/// Tiles by their work, the heaviest first.
std::vector<std::int32_t> heaviest_first(const std::vector<std::int64_t>& work) {
  std::vector<std::int32_t> order(work.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return work[static_cast<std::size_t>(a)] > work[static_cast<std::size_t>(b)];
  });
  return order;
}

}  // namespace

AttendPlan plan_attend(TokenView queries, TokenView keys) {
  AttendPlan plan;
  list_rows(plan, queries, keys);
  const auto key_rows = static_cast<std::int64_t>(plan.codes.size());
  const std::int64_t key_tiles = (key_rows + kKeyTile - 1) / kKeyTile;
  plan.codes.resize(static_cast<std::size_t>(key_tiles * kKeyTile), -1);
  const std::vector<Visible> spans = key_spans(plan.codes);

  const std::span<const Visible> visible = plan.visible;
  std::vector<std::int64_t> work;
  plan.run_begin.push_back(0);
  for (std::size_t q = 0; q < visible.size(); q += kQueryTile) {
    const auto tile = visible.subspan(q, std::min<std::size_t>(kQueryTile, visible.size() - q));
    work.push_back(add_runs(plan.runs, tile, spans, key_rows));
    plan.run_begin.push_back(static_cast<std::int32_t>(plan.runs.size()));
    plan.computed += static_cast<double>(work.back()) * kQueryTile;
  }
  plan.order = heaviest_first(work);
  return plan;
}

}  // namespace shardline
