#include "tests/cuda_probe/schedules.hpp"

#include <array>
#include <utility>

#include "tests/cuda_probe/attention.hpp"

namespace shardline::testing {

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
  return ring_pass_kv_of(name, std::move(shards), grouped(std::move(lengths)));
}

Made ring_pass_kv_of(const std::string& name, Shards shards, Problem problem, int sinks_at) {
  Made m = start(name, std::move(problem));
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
        [=](int r) { return (r - step + n) % n; }, step == sinks_at));
  }
  b.after(attends);
  a.merge(partials);
  finish(b);
  return m;
}

Made ring_pass_q(const std::string& name, Shards shards, std::vector<std::int64_t> lengths) {
  return ring_pass_q_of(name, std::move(shards), grouped(std::move(lengths)));
}

Made ring_pass_q_of(const std::string& name, Shards shards, Problem problem) {
  Made m = start(name, std::move(problem));
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
        [](int r) { return r; }, step == 0);
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
  add_kinds(all);
  return all;
}

}  // namespace shardline::testing
