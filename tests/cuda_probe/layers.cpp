// Whole layers among the schedules written by hand.
#include <array>
#include <memory>

#include "tests/cuda_probe/schedules.hpp"

namespace shardline::testing {

namespace {

constexpr int kRanks = 2;
constexpr double kBytes = 2, kLseBytes = 4;

/// A layer of two ranks whose actions are the same on both.
struct Layer {
  Layer(Schedule& s, std::int64_t token_rows) : b(s), f(*b.flow()), m(token_rows) {
    s.ranks_per_stage = kRanks;
    b.set_classes(kRanks, 1);
    b.begin_block("layer");
  }

  SlotId slot(const char* name, std::int64_t row_count, std::int64_t columns, double bytes = kBytes) {
    const SlotId s = f.slot(name, bytes);
    for (int r = 0; r < kRanks; ++r) f.size(s, r, row_count, columns);
    return s;
  }
  Region all(SlotId s) const { return part(s, 0); }
  /// Columns from `column` on.
  Region part(SlotId s, std::int64_t column, std::int64_t columns = -1) const {
    const Extent* e = nullptr;
    for (const Extent& extent : f.extents) {
      if (extent.slot == s) e = &extent;
    }
    return {s, 0, e->rows, column, columns < 0 ? e->columns - column : columns};
  }
  void bind(SlotId s, int rank, Whole whole, TokenView row_list, TokenView columns) {
    f.inputs.push_back({s, rank, whole, f.tokens(row_list), f.tokens(columns), 0});
  }

  void act(OpIndex op, Function function, std::initializer_list<Region> regions, int heads = 1) {
    for (int r = 0; r < kRanks; ++r) {
      Action a;
      a.rank = r;
      a.function = function;
      a.heads = heads;
      f.act(op, a, std::vector<Region>(regions));
    }
  }
  void elementwise(const char* name, Function function, std::initializer_list<Region> regions) {
    act(b.elementwise(name, Part::ffn, OpKind::elementwise, {}), function, regions);
  }
  void gemm(const char* name, Region input, SlotId weight, SlotId output) {
    const Region w = all(weight);
    act(b.gemm(name, Part::ffn, Dtype::bf16, Dtype::bf16, GemmShape{input.rows, w.rows, w.columns}),
        Function::gemm, {input, w, all(output)});
  }
  void all_reduce(SlotId s) {
    const Region r = all(s);
    const OpIndex op = b.exchange("all_reduce", Part::ffn_sum, OpKind::all_reduce, {kRanks, 1},
                                  Bytes(static_cast<double>(r.rows * r.columns) * kBytes));
    for (int rank = 0; rank < kRanks; ++rank) f.move(op, {rank, 1 - rank, r, r, true});
  }
  /// Each rank ends with the sum of its half of the columns, then both with all of it.
  void scatter_and_gather(SlotId s) {
    const Region r = all(s);
    const std::int64_t half = r.columns / 2;
    const double bytes = static_cast<double>(r.rows * r.columns) * kBytes;
    const OpIndex sum =
        b.exchange("reduce_scatter", Part::attention_sum, OpKind::reduce_scatter, {kRanks, 1}, Bytes(bytes));
    for (int rank = 0; rank < kRanks; ++rank) {
      const Region theirs = part(s, (1 - rank) * half, half);
      f.move(sum, {rank, 1 - rank, theirs, theirs, true});
    }
    const OpIndex gather =
        b.exchange("all_gather", Part::attention_sum, OpKind::all_gather, {kRanks, 1}, Bytes(bytes / 2));
    for (int rank = 0; rank < kRanks; ++rank) {
      const Region mine = part(s, rank * half, half);
      f.move(gather, {rank, 1 - rank, mine, mine, false});
    }
  }
  /// residual + (up, swiglu, down), half of the inner columns on each rank.
  SlotId feed_forward(SlotId residual, const Problem& p) {
    const std::int64_t half = p.ffn_inner / kRanks;
    const SlotId up = slot("up_weight", p.hidden, 2 * half), down = slot("down_weight", half, p.hidden);
    for (int r = 0; r < kRanks; ++r) {
      const std::int64_t from = r * half;
      const std::array gate_up{Interval{0, from, from + half},
                               Interval{0, p.ffn_inner + from, p.ffn_inner + from + half}};
      bind(up, r, Whole::up_weight, std::array{Interval{0, 0, p.hidden}}, gate_up);
      bind(down, r, Whole::down_weight, std::array{Interval{0, from, from + half}},
           std::array{Interval{0, 0, p.hidden}});
    }
    const SlotId normed = slot("ffn_in", m, p.hidden), inner = slot("inner", m, 2 * half);
    const SlotId active = slot("active", m, half), sum = slot("ffn_out", m, p.hidden);
    elementwise("ffn_norm", Function::rms_norm, {all(residual), all(normed)});
    gemm("up", all(normed), up, inner);
    elementwise("swiglu", Function::swiglu, {all(inner), all(active)});
    gemm("down", all(active), down, sum);
    all_reduce(sum);
    const SlotId out = slot("layer_out", m, p.hidden);
    elementwise("add", Function::add, {all(residual), all(sum), all(out)});
    return out;
  }
  void finish(SlotId out, const Tokens& tokens, int hidden) {
    for (int r = 0; r < kRanks; ++r)
      f.outputs.push_back({out, r, Whole::layer_output, f.tokens(tokens), f.range(0, hidden), 0});
    const BlockIndex block = b.end_block();
    b.run({block});
    b.end_stage();
    b.fold_classes();
  }

  ScheduleBuilder b;
  Dataflow& f;
  std::int64_t m;
};

Made start(const char* name) {
  Made made{name, {}, {}};
  made.schedule.flow = std::make_shared<Dataflow>();
  return made;
}

/// Rank r gets heads 2r and 2r + 1 of both partial results, and merges them.
SlotId exchange_and_merge(Layer& l, SlotId partial, SlotId partial_lse) {
  const OpIndex op = l.b.exchange("heads", Part::exchange, OpKind::all_to_all, {kRanks, 1},
                                  Bytes(2 * (10 * kBytes + 2 * kLseBytes)));
  const SlotId pieces[] = {l.slot("piece_0", 2, 10), l.slot("piece_1", 2, 10)};
  const SlotId lses[] = {l.slot("piece_lse_0", 2, 2, kLseBytes), l.slot("piece_lse_1", 2, 2, kLseBytes)};
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      l.f.move(op, {from, to, l.part(partial, to * 10, 10), l.all(pieces[from]), false});
      l.f.move(op, {from, to, l.part(partial_lse, to * 2, 2), l.all(lses[from]), false});
    }
  }
  const SlotId merged = l.slot("merged", 2, 10), merged_lse = l.slot("merged_lse", 2, 2, kLseBytes);
  const OpIndex merge = l.b.elementwise("merge", Part::attention, OpKind::merge, {});
  for (int r = 0; r < kRanks; ++r) {
    Action a;
    a.rank = r;
    a.function = Function::merge;
    a.heads = 2;
    a.v_dim = 5;
    l.f.act(merge, a,
            std::array{l.all(pieces[0]), l.all(lses[0]), l.all(pieces[1]), l.all(lses[1]), l.all(merged),
                       l.all(merged_lse)});
  }
  return merged;
}

}  // namespace

Made tensor_layer() {
  Made made = start("tensor_layer");
  Problem& p = made.problem;
  p.q_heads = 4;
  p.kv_heads = 2;
  p.qk_dim = p.v_dim = 4;
  p.hidden = 12;
  p.ffn_inner = 10;
  p.lengths = {6, 3};
  const Tokens tokens{{0, 0, 6}, {1, 0, 3}};
  Layer l(made.schedule, 9);
  const SlotId x = l.slot("x", 9, 12), qkv_weight = l.slot("qkv_weight", 12, 16);
  const SlotId out_weight = l.slot("out_weight", 8, 12);
  for (int r = 0; r < kRanks; ++r) {
    const std::array all_hidden{Interval{0, 0, 12}};
    l.bind(x, r, Whole::hidden, tokens, all_hidden);
    // Two query heads and one KV head: keys and values of a head stand together.
    l.bind(qkv_weight, r, Whole::qkv_weight, all_hidden,
           std::array{Interval{0, r * 8, r * 8 + 8}, Interval{0, 16 + r * 8, 24 + r * 8}});
    l.bind(out_weight, r, Whole::out_weight, std::array{Interval{0, r * 8, r * 8 + 8}}, all_hidden);
  }
  const SlotId normed = l.slot("normed", 9, 12), qkv = l.slot("qkv", 9, 16), heads = l.slot("heads", 9, 8);
  const SlotId lse = l.slot("lse", 9, 2, kLseBytes), sum = l.slot("attention_sum", 9, 12);
  l.elementwise("norm", Function::rms_norm, {l.all(x), l.all(normed)});
  l.gemm("qkv", l.all(normed), qkv_weight, qkv);
  const AttendDecodeShape shape{CacheRows::heads, 2, 1, 4, 4, causal_pairs(tokens, tokens), 9, 9};
  const OpIndex op = l.b.attend("attend", Dtype::bf16, Dtype::bf16, shape);
  const TokensId list = l.f.tokens(tokens);
  for (int r = 0; r < kRanks; ++r) {
    const Action a{r, Function::attend, 0, 0, list, list, 2, 4, 4, 1};
    l.f.act(op, a, std::array{l.part(qkv, 0, 8), l.part(qkv, 8, 8), l.all(heads), l.all(lse)});
  }
  l.gemm("out", l.all(heads), out_weight, sum);
  l.all_reduce(sum);
  const SlotId middle = l.slot("middle", 9, 12);
  l.elementwise("add", Function::add, {l.all(x), l.all(sum), l.all(middle)});
  l.finish(l.feed_forward(middle, p), tokens, p.hidden);
  return made;
}

Made latent_decode() {
  Made made = start("latent_decode");
  Problem& p = made.problem;
  p.q_heads = 4;
  p.cache = CacheRows::latent;
  p.qk_dim = 7;
  p.v_dim = 5;
  p.value_up = 3;
  p.hidden = 12;
  p.ffn_inner = 10;
  p.lengths = {11, 6};
  p.scale = 0.5;
  const Tokens tokens{{0, 10, 11}, {1, 5, 6}};
  p.expected_queries = tokens;
  // The new tokens' KV is on the second rank.
  const Tokens shards[] = {{{0, 0, 5}, {1, 0, 3}}, {{0, 5, 11}, {1, 3, 6}}};
  Layer l(made.schedule, 2);
  const SlotId x = l.slot("x", 2, 12), query = l.slot("query", 2, 28), kv = l.f.slot("kv", kBytes);
  const SlotId value_up = l.slot("value_up", 10, 3), out_weight = l.slot("out_weight", 6, 12);
  const std::array all_hidden{Interval{0, 0, 12}};
  for (int r = 0; r < kRanks; ++r) {
    l.f.size(kv, r, rows(shards[r]), 7);
    l.bind(kv, r, Whole::kv, shards[r], std::array{Interval{0, 0, 7}});
    l.bind(x, r, Whole::hidden, tokens, all_hidden);
    l.bind(query, r, Whole::query, tokens, std::array{Interval{0, 0, 28}});
    l.bind(value_up, r, Whole::value_up_weight, std::array{Interval{0, r * 10, r * 10 + 10}},
           std::array{Interval{0, 0, 3}});
    l.bind(out_weight, r, Whole::out_weight, std::array{Interval{0, r * 6, r * 6 + 6}}, all_hidden);
  }
  const SlotId partial = l.slot("partial", 2, 20), partial_lse = l.slot("partial_lse", 2, 4, kLseBytes);
  std::vector<Shape> shapes;
  for (const Tokens& keys : shards)
    shapes.emplace_back(
        AttendDecodeShape{CacheRows::latent, 4, 1, 7, 5, causal_pairs(tokens, keys), rows(keys), 2});
  const OpIndex attend =
      l.b.attend("attend", Dtype::bf16, Dtype::bf16, std::get<AttendDecodeShape>(shapes[0]));
  l.b.vary(shapes);
  for (int r = 0; r < kRanks; ++r) {
    const TokensId queries = l.f.tokens(tokens), keys = l.f.tokens(shards[r]);
    const Action a{r, Function::attend, 0, 0, queries, keys, 4, 7, 5, 1, CacheRows::latent};
    l.f.act(
        attend, a,
        std::array{l.all(query), Region{kv, 0, rows(shards[r]), 0, 7}, l.all(partial), l.all(partial_lse)});
  }
  const SlotId merged = exchange_and_merge(l, partial, partial_lse);
  const SlotId values = l.slot("values", 2, 6), sum = l.slot("attention_sum", 2, 12);
  const OpIndex up = l.b.gemm("value_up", Part::out_proj, Dtype::bf16, Dtype::bf16,
                              BatchedGemmShape{LatentProduct::expand_values, 2, 5, 3, 2, 1});
  l.act(up, Function::gemm_per_head, {l.all(merged), l.all(value_up), l.all(values)}, 2);
  l.gemm("out", l.all(values), out_weight, sum);
  l.scatter_and_gather(sum);
  const SlotId middle = l.slot("middle", 2, 12);
  l.elementwise("add", Function::add, {l.all(x), l.all(sum), l.all(middle)});
  l.finish(l.feed_forward(middle, p), tokens, p.hidden);
  return made;
}

}  // namespace shardline::testing
