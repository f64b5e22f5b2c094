#include "tests/cuda_probe/schedules.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace shardline::testing {

namespace {

constexpr double kBytes = 2, kLseBytes = 4;

Made start(const std::string& name, Problem problem) {
  Made m{name, {}, std::move(problem)};
  m.schedule.flow = std::make_shared<Dataflow>();
  return m;
}

/// Grouped queries: four query heads, two KV heads.
Problem grouped(std::vector<std::int64_t> lengths) {
  Problem p;
  p.q_heads = 4;
  p.kv_heads = 2;
  p.qk_dim = 8;
  p.v_dim = 6;
  p.lengths = std::move(lengths);
  return p;
}

std::int64_t pad(Shards& shards) {
  std::int64_t most = 0;
  for (const Tokens& t : shards) most = std::max(most, rows(t));
  for (Tokens& t : shards) {
    if (rows(t) < most) t.push_back({kPadding, 0, most - rows(t)});
  }
  return most;
}

/// Widths of a problem and the slots that all attention schedules have.
struct Attention {
  Attention(ScheduleBuilder& builder, const Problem& p, Shards& shards)
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
      f.inputs.push_back({query, r, Whole::query, lists.back(), q_columns});
      f.inputs.push_back({own, r, Whole::kv, lists.back(), kv_columns});
    }
    output = slot("output", o, kBytes);
    lse = slot("lse", p.q_heads, kLseBytes);
    for (int r = 0; r < n; ++r)
      f.outputs.push_back(
          {output, r, Whole::attention_output, lists[static_cast<std::size_t>(r)], o_columns});
  }

  SlotId slot(const char* name, std::int64_t columns, double bytes) {
    const SlotId s = f.slot(name, bytes);
    for (int r = 0; r < n; ++r) f.size(s, r, row_count, columns);
    return s;
  }
  Region all(SlotId s, std::int64_t columns) const { return {s, 0, row_count, 0, columns}; }

  /// Rank r: queries of rank from_q(r), keys of rank from_k(r).
  template <class Q, class K>
  OpIndex attend(SlotId q_slot, SlotId kv_slot, SlotId out, SlotId out_lse, Q from_q, K from_k) {
    std::vector<Shape> shapes;
    for (int r = 0; r < n; ++r) {
      const Tokens& qs = tokens[static_cast<std::size_t>(from_q(r))];
      const Tokens& ks = tokens[static_cast<std::size_t>(from_k(r))];
      AttendDecodeShape a;
      a.q_heads = problem.q_heads;
      a.kv_heads = problem.kv_heads;
      a.qk_dim = problem.qk_dim;
      a.v_dim = problem.v_dim;
      a.pairs = causal_pairs(qs, ks);
      a.kv_rows = real_rows(ks);
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
      f.act(op, a, std::array{all(q_slot, q), all(kv_slot, kv), all(out, o), all(out_lse, problem.q_heads)});
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
  SlotId query, own, output, lse;
  std::vector<TokensId> lists;
};

void finish(ScheduleBuilder& b) {
  const BlockIndex block = b.end_block();
  b.run({block});
  b.end_stage();
  b.fold_classes();
}

void begin(ScheduleBuilder& b, Schedule& s, int ranks) {
  s.ranks_per_stage = ranks;
  b.set_classes(ranks, 1);
  b.begin_block("block");
}

}  // namespace

Made one_rank() {
  Made m = start("one_rank", grouped({9, 5}));
  ScheduleBuilder b(m.schedule);
  begin(b, m.schedule, 1);
  Shards shards{{{0, 0, 9}, {1, 0, 5}}};
  Attention a(b, m.problem, shards);
  const auto self = [](int r) { return r; };
  a.attend(a.query, a.own, a.output, a.lse, self, self);
  finish(b);
  return m;
}

Made ring_pass_kv(const std::string& name, Shards shards, std::vector<std::int64_t> lengths) {
  Made m = start(name, grouped(std::move(lengths)));
  ScheduleBuilder b(m.schedule);
  const int n = static_cast<int>(shards.size());
  begin(b, m.schedule, n);
  Attention a(b, m.problem, shards);
  const SlotId buffers[] = {a.slot("kv_a", a.kv, kBytes), a.slot("kv_b", a.kv, kBytes)};
  std::vector<std::pair<SlotId, SlotId>> partials;
  std::vector<OpIndex> attends;
  OpIndex sent;
  for (int step = 0; step < n; ++step) {
    const SlotId here = step == 0 ? a.own : buffers[(step - 1) % 2];
    // The next block is on its way while this one is attended to.
    std::vector<OpIndex> after;
    if (step > 0) after.push_back(sent);
    const OpIndex arrived = sent;
    if (step + 1 < n) {
      // The buffer that this message lands in was read in the step before.
      if (step > 1) after.push_back(attends[static_cast<std::size_t>(step) - 1]);
      b.after(after);
      sent = a.ring(here, buffers[step % 2], a.kv);
    }
    partials.emplace_back(a.slot("partial", a.o, kBytes),
                          a.slot("partial_lse", m.problem.q_heads, kLseBytes));
    b.after(step == 0 ? std::vector<OpIndex>{} : std::vector<OpIndex>{arrived});
    attends.push_back(a.attend(
        a.query, here, partials.back().first, partials.back().second, [](int r) { return r; },
        [=](int r) { return (r - step + n) % n; }));
  }
  b.after(attends);
  a.merge(partials);
  finish(b);
  return m;
}

Made ring_pass_q(const std::string& name, Shards shards, std::vector<std::int64_t> lengths) {
  Made m = start(name, grouped(std::move(lengths)));
  ScheduleBuilder b(m.schedule);
  const int n = static_cast<int>(shards.size());
  begin(b, m.schedule, n);
  Attention a(b, m.problem, shards);
  std::vector<std::pair<SlotId, SlotId>> there, back;
  SlotId here = a.query;
  for (int step = 0; step < n; ++step) {
    if (step > 0) {
      const SlotId next = a.slot("query_in", a.q, kBytes);
      a.ring(here, next, a.q);
      here = next;
    }
    there.emplace_back(a.slot("partial", a.o, kBytes), a.slot("partial_lse", m.problem.q_heads, kLseBytes));
    back.emplace_back(a.slot("returned", a.o, kBytes), a.slot("returned_lse", m.problem.q_heads, kLseBytes));
    a.attend(
        here, a.own, there.back().first, there.back().second, [=](int r) { return (r - step + n) % n; },
        [](int r) { return r; });
  }
  const double piece =
      static_cast<double>(a.row_count) * (static_cast<double>(a.o) * kBytes + m.problem.q_heads * kLseBytes);
  const OpIndex op = b.exchange("return", Part::exchange, OpKind::all_to_all, {n, 1}, Bytes((n - 1) * piece));
  for (int r = 0; r < n; ++r) {
    for (int step = 0; step < n; ++step) {
      const auto i = static_cast<std::size_t>(step);
      const int to = (r - step + n) % n;
      a.f.move(op, {r, to, a.all(there[i].first, a.o), a.all(back[i].first, a.o), false});
      a.f.move(op, {r, to, a.all(there[i].second, m.problem.q_heads),
                    a.all(back[i].second, m.problem.q_heads), false});
    }
  }
  a.merge(back);
  finish(b);
  return m;
}

Made gather_kv() {
  Made m = start("gather_kv", grouped({13}));
  ScheduleBuilder b(m.schedule);
  begin(b, m.schedule, 2);
  Shards shards{{{0, 0, 4}, {0, 10, 13}}, {{0, 4, 10}}};
  Attention a(b, m.problem, shards);
  const SlotId gathered = a.f.slot("gathered", kBytes);
  const OpIndex op = b.exchange("gather", Part::exchange, OpKind::all_gather, {2, 1},
                                Bytes(static_cast<double>(a.row_count * a.kv) * kBytes));
  for (int r = 0; r < 2; ++r) {
    a.f.size(gathered, r, 2 * a.row_count, a.kv);
    for (int to = 0; to < 2; ++to)
      a.f.move(op, {r, to, a.all(a.own, a.kv), {gathered, r * a.row_count, a.row_count, 0, a.kv}, false});
  }
  Tokens keys = shards[0];
  keys.insert(keys.end(), shards[1].begin(), shards[1].end());
  const TokensId all_keys = a.f.tokens(keys);
  std::vector<Shape> shapes;
  for (const Tokens& own : shards)
    shapes.emplace_back(
        AttendDecodeShape{CacheRows::heads, 4, 2, 8, 6, causal_pairs(own, keys), 13, real_rows(own)});
  const OpIndex attend = b.attend("attend", Dtype::bf16, Dtype::bf16, std::get<AttendDecodeShape>(shapes[0]));
  b.vary(shapes);
  for (int r = 0; r < 2; ++r) {
    Action act{r, Function::attend, 0, 0, a.lists[static_cast<std::size_t>(r)], all_keys, 4, 8, 6, 2};
    a.f.act(attend, act,
            std::array{a.all(a.query, a.q), Region{gathered, 0, 2 * a.row_count, 0, a.kv},
                       a.all(a.output, a.o), a.all(a.lse, 4)});
  }
  finish(b);
  return m;
}

std::vector<Made> all_made() {
  std::vector<Made> all;
  all.push_back(one_rank());
  // Zigzag: each rank has an early and a late piece.
  all.push_back(ring_pass_kv("ring2", {{{0, 0, 4}, {0, 12, 16}}, {{0, 4, 12}}}, {16}));
  all.push_back(ring_pass_kv(
      "ring3_uneven",
      {{{0, 0, 3}, {0, 14, 17}, {1, 0, 2}}, {{0, 3, 6}, {0, 11, 14}, {1, 2, 3}}, {{0, 6, 11}, {1, 3, 5}}},
      {17, 5}));
  all.push_back(
      ring_pass_kv("ring4_contiguous", {{{0, 0, 5}}, {{0, 5, 9}}, {{0, 9, 13}}, {{0, 13, 16}}}, {16}));
  all.push_back(ring_pass_q(
      "pass_q3",
      {{{0, 0, 3}, {0, 14, 17}, {1, 0, 2}}, {{0, 3, 6}, {0, 11, 14}, {1, 2, 3}}, {{0, 6, 11}, {1, 3, 5}}},
      {17, 5}));
  all.push_back(ring_pass_q("pass_q3_contiguous", {{{0, 0, 5}}, {{0, 5, 9}}, {{0, 9, 13}}}, {13}));
  all.push_back(gather_kv());
  all.push_back(tensor_layer());
  all.push_back(latent_decode());
  return all;
}

}  // namespace shardline::testing
