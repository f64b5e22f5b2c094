// Layers of several kinds among the schedules written by hand.
#include <tuple>

#include "tests/cuda_probe/attention.hpp"

namespace shardline::testing {

namespace {

// Every rank corrects its own partial output by the log-sum-exps of all.
void weigh_parts(ScheduleBuilder& b, const Problem& p, const Region& partial, const std::vector<Region>& lses,
                 const Region& sum, const Region& merged_lse) {
  const auto n = static_cast<int>(lses.size());
  const OpIndex weigh = b.elementwise("weigh", Part::attention, OpKind::merge, {});
  for (int r = 0; r < n; ++r) {
    std::vector<Region> regions;
    for (int part = 0; part < n; ++part) {
      regions.push_back(part == r ? partial : Region{partial.slot, 0, partial.rows, 0, 0});
      regions.push_back(lses[static_cast<std::size_t>(part)]);
    }
    regions.push_back(sum);
    regions.push_back(merged_lse);
    Action a{r, Function::merge, 0, 0, {}, {}, p.q_heads, 0, p.v_dim};
    b.flow()->act(weigh, a, regions);
  }
}

/// Queries that all ranks ask of a cache they share: each corrects its own output by the log-sum-exps of all,
/// and a sum adds these up. The first rank counts the sinks.
Made shared_cache(const std::string& name, Problem problem, const Shards& shards) {
  Made m = start(name, std::move(problem));
  const Problem& p = m.problem;
  const int n = static_cast<int>(shards.size()), width = p.kv_heads * (p.qk_dim + p.v_dim);
  ScheduleBuilder b(m.schedule);
  begin(b, m.schedule, n);
  Dataflow& f = *b.flow();
  const std::int64_t count = rows(p.expected_queries), o = p.q_heads * p.v_dim;
  const auto slot = [&](const char* what, std::int64_t columns, double bytes) {
    const SlotId made = f.slot(what, bytes);
    for (int r = 0; r < n; ++r) f.size(made, r, count, columns);
    return Region{made, 0, count, 0, columns};
  };
  const Region query = slot("query", p.q_heads * p.qk_dim, kBytes), partial = slot("partial", o, kBytes);
  const Region sum = slot("sum", o, kBytes), lse = slot("lse", p.q_heads, kLseBytes);
  const Region merged_lse = slot("merged_lse", p.q_heads, kLseBytes);
  const SlotId kv = f.slot("kv", kBytes), sinks = f.slot("sinks", kBytes);
  const TokensId queries = f.tokens(p.expected_queries);
  std::vector<Shape> shapes;
  for (const Tokens& keys : shards)
    shapes.emplace_back(AttendDecodeShape{CacheRows::heads, p.q_heads, p.kv_heads, p.qk_dim, p.v_dim,
                                          causal_pairs(p.expected_queries, keys, p.reach),
                                          rows_in_reach(p.expected_queries, keys, p.reach), count});
  const OpIndex attend = b.attend("attend", Dtype::bf16, Dtype::bf16, std::get<AttendDecodeShape>(shapes[0]));
  b.vary(shapes);
  std::vector<Region> lses;
  for (int r = 0; r < n; ++r) {
    const Tokens& shard = shards[static_cast<std::size_t>(r)];
    const TokensId keys = f.tokens(shard);
    f.size(kv, r, rows(shard), width);
    f.inputs.push_back({query.slot, r, Whole::query, queries, f.range(0, query.columns), 0});
    f.inputs.push_back({kv, r, Whole::kv, keys, f.range(0, width), 0});
    f.outputs.push_back({sum.slot, r, Whole::attention_output, queries, f.range(0, o), 0});
    std::vector<Region> regions{query, {kv, 0, rows(shard), 0, width}, partial, lse};
    if (p.sinks && r == 0) {
      f.size(sinks, r, 1, p.q_heads);
      f.inputs.push_back({sinks, r, Whole::sinks, f.range(0, 1), f.range(0, p.q_heads), 0});
      regions.push_back({sinks, 0, 1, 0, p.q_heads});
    }
    Action a{r, Function::attend, 0, 0, queries, keys, p.q_heads, p.qk_dim, p.v_dim, p.kv_heads};
    a.reach = p.reach;
    f.act(attend, a, regions);
    lses.push_back(slot("lse_of_rank", p.q_heads, kLseBytes));
  }
  const double bytes = static_cast<double>(count), lse_bytes = bytes * p.q_heads * kLseBytes;
  const OpIndex gather = b.exchange("lse", Part::exchange, OpKind::all_gather, {n, 1}, Bytes(lse_bytes));
  for (int r = 0; r < n; ++r) {
    for (int to = 0; to < n; ++to) f.move(gather, {r, to, lse, lses[static_cast<std::size_t>(r)], false});
  }
  weigh_parts(b, p, partial, lses, sum, merged_lse);
  const OpIndex add = b.exchange("sum", Part::attention_sum, OpKind::all_reduce, {n, 1},
                                 Bytes(bytes * static_cast<double>(o) * kBytes));
  for (int r = 0; r < n; ++r) {
    for (int to = 0; to < n; ++to) {
      if (to != r) f.move(add, {r, to, sum, sum, true});
    }
  }
  finish(b);
  return m;
}

}  // namespace

// Windows, chunks and sinks, among queries that see nothing of some ranks, or their sink alone.
void add_kinds(std::vector<Made>& all) {
  const auto problem = [](std::vector<std::int64_t> lengths, Reach reach, bool sinks) {
    Problem p = grouped(std::move(lengths));
    p.reach = reach;
    p.sinks = sinks;
    return p;
  };
  const Reach window{ReachKind::window, 5}, chunk{ReachKind::chunk, 6};
  const Shards halves{{{0, 0, 8}}, {{0, 8, 16}}}, zigzag{{{0, 0, 4}, {0, 12, 16}}, {{0, 4, 12}}},
      striped{{{0, 0, 17, 3}, {1, 0, 5, 2}}, {{0, 1, 17, 3}, {1, 1, 5, 2}}, {{0, 2, 17, 3}}};
  all.push_back(ring_pass_kv_of("window_ring2", zigzag, problem({16}, window, false)));
  all.push_back(ring_pass_kv_of("chunk_ring2", zigzag, problem({16}, chunk, false)));
  all.push_back(ring_pass_kv_of("sinks_ring2", halves, problem({16}, {}, true)));
  all.push_back(ring_pass_kv_of("sinks_of_another_ring2", halves, problem({16}, {}, true), 1));
  all.push_back(ring_pass_kv_of("window_sinks_stripes3", striped, problem({17, 5}, window, true)));
  // Of three sharers of a cache, one or two see something; the first has the sinks.
  const Shards thirds{{{0, 0, 6}, {1, 0, 3}}, {{0, 6, 12}, {1, 3, 5}}, {{0, 12, 17}, {1, 5, 9}}};
  for (const auto& [name, reach, sinks] :
       {std::tuple{"shared_sinks3", Reach{}, true}, std::tuple{"shared_window3", window, false},
        std::tuple{"shared_chunk3", chunk, false}, std::tuple{"shared_window_sinks3", window, true}}) {
    Problem p = problem({17, 9}, reach, sinks);
    p.expected_queries = {{0, 16, 17}, {1, 8, 9}};
    all.push_back(shared_cache(name, std::move(p), thirds));
  }
  all.push_back(ring_pass_q_of("chunk_sinks_pass_q3", striped, problem({17, 5}, chunk, true)));
}

MadeOfKinds layers_of_kinds() {
  MadeOfKinds m{"layers_of_kinds", {}, {}};
  m.schedule.flow = std::make_shared<Dataflow>();
  ScheduleBuilder b(m.schedule);
  Problem full = grouped({9, 5}), local = full;
  local.q_heads = 6;
  local.reach = {ReachKind::window, 3};
  local.sinks = true;
  local.seed = 2;
  m.problems = {full, local};
  m.schedule.ranks_per_stage = 1;
  b.set_classes(1, 1);
  std::vector<BlockIndex> blocks;
  const auto self = [](int r) { return r; };
  for (int kind = 0; kind < 2; ++kind) {
    b.begin_block("layer");
    Shards shards{{{0, 0, 9}, {1, 0, 5}}};
    Attention a(b, m.problems[static_cast<std::size_t>(kind)], shards, kind);
    a.attend(a.query, a.own, a.output, a.lse, self, self);
    blocks.push_back(b.end_block());
  }
  b.run({blocks[0], blocks[1]});
  b.end_stage();
  b.fold_classes();
  return m;
}

}  // namespace shardline::testing
