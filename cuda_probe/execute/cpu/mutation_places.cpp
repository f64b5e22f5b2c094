#include "cuda_probe/execute/cpu/mutation_places.hpp"

#include <algorithm>

#include "cuda_probe/execute/cpu/functions.hpp"

namespace shardline::mutation {

namespace {

/// What two regions share, empty where they do not touch.
Region shared(const Region& a, const Region& b) {
  Region r = a;
  r.row = std::max(a.row, b.row);
  r.rows = a.slot == b.slot ? std::min(a.row + a.rows, b.row + b.rows) - r.row : 0;
  r.column = std::max(a.column, b.column);
  r.columns = std::min(a.column + a.columns, b.column + b.columns) - r.column;
  return r;
}
bool empty(const Region& r) { return r.rows <= 0 || r.columns <= 0; }

}  // namespace

Tokens slice(TokenView tokens, std::int64_t begin, std::int64_t end) {
  Tokens out;
  std::int64_t row = 0;
  for (const Interval& i : tokens) {
    const std::int64_t from = std::max(begin, row), to = std::min(end, row + i.size());
    if (from < to) out.push_back({i.request, i.position(from - row), i.position(to - row - 1) + 1, i.stride});
    row += i.size();
  }
  return out;
}

std::vector<bool> mask(TokenView queries, TokenView keys, const Reach& reach, int ratio) {
  std::vector<bool> out;
  for (const Interval& q : queries) {
    for (std::int64_t i = q.begin; i < q.end; i += q.stride) {
      for (const Interval& k : keys) {
        for (std::int64_t j = k.begin; j < k.end; j += k.stride)
          out.push_back(q.request != kPadding && q.request == k.request && j < (i + 1) / ratio &&
                        j >= reach.first(i));
      }
    }
  }
  return out;
}

bool sees_nothing(TokenView queries, TokenView keys, const Reach& reach, int ratio) {
  const std::vector<bool> seen = mask(queries, keys, reach, ratio);
  return std::find(seen.begin(), seen.end(), true) == seen.end();
}

std::vector<bool> mask(const Dataflow& flow, const Action& a) {
  return mask(flow.token_list(a.queries), flow.token_list(a.keys), a.reach, a.ratio);
}

bool sees_nothing(const Dataflow& flow, const Action& a) {
  return sees_nothing(flow.token_list(a.queries), flow.token_list(a.keys), a.reach, a.ratio);
}

OpIndex op_of_action(const Dataflow& flow, std::size_t action) {
  for (OpIndex op = 0; op < flow.ops.size(); ++op) {
    if (action >= flow.ops[op].first_action && action < flow.ops[op].first_action + flow.ops[op].actions)
      return op;
  }
  return 0;
}

OpIndex op_of_move(const Dataflow& flow, std::size_t move) {
  for (OpIndex op = 0; op < flow.ops.size(); ++op) {
    if (move >= flow.ops[op].first_move && move < flow.ops[op].first_move + flow.ops[op].moves) return op;
  }
  return 0;
}

const Extent* extent_of(const Dataflow& flow, SlotId slot, int rank) {
  for (const Extent& e : flow.extents) {
    if (e.slot == slot && e.rank == rank) return &e;
  }
  return nullptr;
}

bool fits(const Dataflow& flow, int rank, const Region& r) {
  const Extent* e = extent_of(flow, r.slot, rank);
  return e != nullptr && r.row >= 0 && r.column >= 0 && r.row + r.rows <= e->rows &&
         r.column + r.columns <= e->columns;
}

bool sees_some(const Dataflow& flow, OpIndex op, const Action& a, std::size_t r, std::int64_t row,
               std::int64_t row_count) {
  if (a.chosen) return false;
  if (a.function == Function::attend)
    return !sees_nothing(slice(flow.token_list(a.queries), row, row + row_count), flow.token_list(a.keys),
                         a.reach, a.ratio);
  if (a.function != Function::merge) return true;
  const auto regions = flow.regions_of(a);
  for (std::size_t i = 0; i + 2 < regions.size(); i += 2) {
    // Of an output that others add to, this is one part: zeros where its own keys are out of reach.
    if (r + 2 == regions.size() && regions[i].columns == 0) continue;
    const Region& lse = regions[i + 1];
    if (contributes(flow, op, a.rank, {lse.slot, lse.row + row, row_count, lse.column, lse.columns}))
      return true;
  }
  return false;
}

bool contributes(const Dataflow& flow, OpIndex before, int rank, const Region& wanted) {
  for (std::uint32_t op = std::min(before, OpIndex(flow.ops.size())); op-- > 0;) {
    const OpFlow& part = flow.ops[op];
    bool written = false, some = false;
    for (std::uint32_t i = 0; i < part.actions; ++i) {
      const Action& a = flow.actions[part.first_action + i];
      if (a.rank != rank) continue;
      const auto regions = flow.regions_of(a);
      for (std::size_t r = 0; r < regions.size(); ++r) {
        const Region& result = regions[r];
        const Region common = shared(wanted, result);
        if (!is_result(a.function, r, regions.size()) || empty(common)) continue;
        written = true;
        some = some || sees_some(flow, op, a, r, common.row - result.row, common.rows);
      }
    }
    for (std::uint32_t i = 0; i < part.moves; ++i) {
      const Move& m = flow.moves[part.first_move + i];
      Region common = shared(wanted, m.target);
      if (m.to != rank || empty(common)) continue;
      common.slot = m.source.slot;
      common.row += m.source.row - m.target.row;
      common.column += m.source.column - m.target.column;
      written = true;
      some = some || contributes(flow, op, m.from, common);
    }
    if (written) return some;
  }
  return true;
}

}  // namespace shardline::mutation
