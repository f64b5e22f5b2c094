// What schedules of attention alone are written by hand with.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda_probe/schedules.hpp"

namespace shardline::testing {

inline constexpr double kBytes = 2, kLseBytes = 4;

inline Made start(const std::string& name, Problem problem) {
  Made m{name, {}, std::move(problem)};
  m.schedule.flow = std::make_shared<Dataflow>();
  return m;
}

/// Grouped queries: four query heads, two KV heads.
inline Problem grouped(std::vector<std::int64_t> lengths) {
  Problem p;
  p.q_heads = 4;
  p.kv_heads = 2;
  p.qk_dim = 8;
  p.v_dim = 6;
  p.lengths = std::move(lengths);
  return p;
}

inline std::int64_t pad(Shards& shards) {
  std::int64_t most = 0;
  for (const Tokens& t : shards) most = std::max(most, rows(t));
  for (Tokens& t : shards) {
    if (rows(t) < most) t.push_back({kPadding, 0, most - rows(t)});
  }
  return most;
}

/// Widths of a problem and the slots that all attention schedules have.
struct Attention {
  Attention(ScheduleBuilder& builder, const Problem& p, Shards& shards, int kind = 0)
      : b(builder), f(*builder.flow()), problem(p), tokens(shards), n(static_cast<int>(shards.size())) {
    row_count = pad(shards);
    q = p.q_heads * p.qk_dim;
    kv = p.kv_heads * (p.qk_dim + p.v_dim);
    o = p.q_heads * p.v_dim;
    query = slot("query", q, kBytes);
    own = slot("kv", kv, kBytes);
    const TokensId q_columns = f.range(0, q), kv_columns = f.range(0, kv), o_columns = f.range(0, o);
    for (int r = 0; r < n; ++r) {
      lists.push_back(f.tokens(shards[static_cast<std::size_t>(r)]));
      f.inputs.push_back({query, r, Whole::query, lists.back(), q_columns, kind});
      f.inputs.push_back({own, r, Whole::kv, lists.back(), kv_columns, kind});
    }
    if (p.sinks) {
      sinks = f.slot("sinks", kBytes);
      for (int r = 0; r < n; ++r) {
        f.size(sinks, r, 1, p.q_heads);
        f.inputs.push_back({sinks, r, Whole::sinks, f.range(0, 1), f.range(0, p.q_heads), kind});
      }
    }
    output = slot("output", o, kBytes);
    lse = slot("lse", p.q_heads, kLseBytes);
    for (int r = 0; r < n; ++r)
      f.outputs.push_back(
          {output, r, Whole::attention_output, lists[static_cast<std::size_t>(r)], o_columns, kind});
  }

  SlotId slot(const char* name, std::int64_t columns, double bytes) {
    const SlotId s = f.slot(name, bytes);
    for (int r = 0; r < n; ++r) f.size(s, r, row_count, columns);
    return s;
  }
  Region all(SlotId s, std::int64_t columns) const { return {s, 0, row_count, 0, columns}; }

  /// Rank r: queries of rank from_q(r), keys of rank from_k(r). One of the attends that a query has counts
  /// its sinks, if there are any.
  template <class Q, class K>
  OpIndex attend(SlotId q_slot, SlotId kv_slot, SlotId out, SlotId out_lse, Q from_q, K from_k,
                 bool counts_sinks = true) {
    std::vector<Shape> shapes;
    for (int r = 0; r < n; ++r) {
      const Tokens& qs = tokens[static_cast<std::size_t>(from_q(r))];
      const Tokens& ks = tokens[static_cast<std::size_t>(from_k(r))];
      AttendDecodeShape a;
      a.q_heads = problem.q_heads;
      a.kv_heads = problem.kv_heads;
      a.qk_dim = problem.qk_dim;
      a.v_dim = problem.v_dim;
      a.pairs = causal_pairs(qs, ks, problem.reach);
      a.kv_rows = rows_in_reach(qs, ks, problem.reach);
      a.q_rows = real_rows(qs);
      shapes.emplace_back(a);
    }
    const OpIndex op =
        b.attend("attend", Dtype::bf16, Dtype::bf16, std::get<AttendDecodeShape>(shapes.front()));
    b.vary(shapes);
    for (int r = 0; r < n; ++r) {
      Action a;
      a.rank = r;
      a.queries = lists[static_cast<std::size_t>(from_q(r))];
      a.keys = lists[static_cast<std::size_t>(from_k(r))];
      a.heads = problem.q_heads;
      a.kv_heads = problem.kv_heads;
      a.qk_dim = problem.qk_dim;
      a.v_dim = problem.v_dim;
      a.reach = problem.reach;
      std::vector<Region> regions{all(q_slot, q), all(kv_slot, kv), all(out, o),
                                  all(out_lse, problem.q_heads)};
      if (problem.sinks && counts_sinks) regions.push_back({sinks, 0, 1, 0, problem.q_heads});
      f.act(op, a, regions);
    }
    return op;
  }

  OpIndex merge(std::span<const std::pair<SlotId, SlotId>> partials) {
    const OpIndex op = b.elementwise("merge", Part::attention, OpKind::merge, {});
    std::vector<Region> regions;
    for (const auto& [out, out_lse] : partials) {
      regions.push_back(all(out, o));
      regions.push_back(all(out_lse, problem.q_heads));
    }
    regions.push_back(all(output, o));
    regions.push_back(all(lse, problem.q_heads));
    for (int r = 0; r < n; ++r) {
      Action a;
      a.rank = r;
      a.function = Function::merge;
      a.heads = problem.q_heads;
      a.v_dim = problem.v_dim;
      f.act(op, a, regions);
    }
    return op;
  }

  OpIndex ring(SlotId from, SlotId to, std::int64_t columns) {
    const OpIndex op = b.exchange("ring", Part::exchange, OpKind::send_recv, {n, 1},
                                  Bytes(static_cast<double>(row_count * columns) * kBytes));
    // Two messages each: the first rows, the others.
    const std::int64_t half = row_count / 2;
    for (int r = 0; r < n; ++r) {
      for (const auto& [row, size] : {std::pair{std::int64_t{0}, half}, std::pair{half, row_count - half}})
        f.move(op, {r, (r + 1) % n, {from, row, size, 0, columns}, {to, row, size, 0, columns}, false});
    }
    return op;
  }

  ScheduleBuilder& b;
  Dataflow& f;
  const Problem& problem;
  Shards& tokens;
  int n;
  std::int64_t row_count = 0, q = 0, kv = 0, o = 0;
  SlotId query, own, output, lse, sinks;
  std::vector<TokensId> lists;
};

inline void finish(ScheduleBuilder& b) {
  const BlockIndex block = b.end_block();
  b.run({block});
  b.end_stage();
  b.fold_classes();
}

inline void begin(ScheduleBuilder& b, Schedule& s, int ranks) {
  s.ranks_per_stage = ranks;
  b.set_classes(ranks, 1);
  b.begin_block("block");
}

}  // namespace shardline::testing
