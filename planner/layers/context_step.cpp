#include "planner/layers/context_step.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/layers/places.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

ContextStep::ContextStep(ScheduleBuilder& builder, const Case& study, const Attention& attention,
                         const Plan& plan, ContextLayout l, Asked asked)
    : ContextStep(builder, study, attention, plan, std::move(l),
                  asked == Asked::prefill && !absorbs_prompts(study, attention, plan)
                      ? prefill_heads(attention, plan)
                      : decode_heads(attention, plan),
                  {plan.cp, 1}, asked, asked == Asked::decode || strategy(plan.strategy).pads_queries) {}

ContextStep::ContextStep(const ContextStep& outer, ContextLayout l, const LocalHeads& h, Ring r)
    : ContextStep(outer.b, outer.c, outer.a, outer.p, std::move(l), h, r,
                  outer.prefill ? Asked::prefill : Asked::decode, false) {
  sinks_ = outer.sinks_;
}

ContextStep::ContextStep(ScheduleBuilder& builder, const Case& study, const Attention& attention,
                         const Plan& plan, ContextLayout l, const LocalHeads& h, Ring r, Asked asked,
                         bool pad_queries)
    : b(builder),
      c(study),
      a(attention),
      p(plan),
      layout(std::move(l)),
      heads(h),
      ring(r),
      prefill(asked == Asked::prefill),
      pad_(pad_queries) {
  for (const Tokens& list : layout.fresh) rows_.push_back(real_rows(list));
  shapes_.resize(rows_.size());
}

Tokens ContextStep::of_group(const Tokens& tokens, int t) const {
  Tokens list = tokens;
  const int before = t / p.tpa * layout.requests;
  for (Interval& i : list) i.request += i.request == kPadding ? 0 : before;
  return list;
}

int ContextStep::first_kv(int t) const { return has_latents(a) ? first_q(t) : kv_head_of(a, first_q(t)); }

std::vector<RequestRows> ContextStep::request_rows(int k) const {
  std::vector<RequestRows> list;
  RequestRows at;
  for (int r = 0; r < layout.requests; ++r) {
    const auto i = static_cast<std::size_t>(k * layout.requests + r);
    at.count = layout.fresh_count[i];
    list.push_back(at);
    list.back().key = layout.first_key.empty() ? at.key + layout.cached_count[i] : layout.first_key[i];
    at.token += at.count;
    at.query += pad_ ? layout.query_rows[static_cast<std::size_t>(r)] : at.count;
    at.key += layout.key_rows[static_cast<std::size_t>(r)];
  }
  return list;
}

void ContextStep::declare_slots() {
  declare_queries();
  kv = uneven(
      "kv", [&](int k) { return shardline::rows(keys(k)); }, heads.kv_width(), kv_bytes());
  held = kv;
  if (heads.latent > 0) {
    held = uneven(
        "latents", [&](int k) { return shardline::rows(keys(k)); }, heads.latent, kv_bytes());
    kv_up_ = message("W kv up", a.kv_lora_rank, static_cast<double>(heads.q) * (a.nope_dim + a.v_dim),
                     bytes_per_element(c.precision.of(Module::attention).weights));
  }
}

void ContextStep::declare_queries() {
  q = per_query("q", heads.q * heads.qk, act_bytes());
  out = per_query("out", heads.q * heads.v, act_bytes());
  out_lse = per_query("lse", heads.q, 4);
  if (heads.sinks) sinks_ = message("sinks", 1, heads.q, act_bytes());
}

void ContextStep::bind_sinks() {
  if (!heads.sinks) return;
  Dataflow& f = *flow();
  for (int k = 0; k < p.cp; ++k) {
    for (int t = 0; t < lanes(); ++t) {
      const int h = first_q(t);
      f.inputs.push_back({sinks_, rank(k, t), Whole::sinks, f.range(0, 1), f.range(h, h + heads.q), kind()});
    }
  }
}

void ContextStep::bind_attention() {
  Dataflow& f = *flow();
  bind_sinks();
  const bool latent = heads.cache == CacheRows::latent;
  for (int k = 0; k < p.cp; ++k) {
    for (int t = 0; t < lanes(); ++t) {
      const TokensId query_list = f.tokens(of_group(queries(k), t)),
                     key_list = f.tokens(of_group(keys(k), t)),
                     result_list = f.tokens(of_group(results(k), t));
      const int r = rank(k, t);
      const std::int64_t h = first_q(t);
      f.inputs.push_back({q, r, latent ? Whole::absorbed_query : Whole::query, query_list,
                          f.range(h * heads.qk, (h + heads.q) * heads.qk), kind()});
      f.inputs.push_back({held, r, held_matrix(), key_list, held_columns(t), kind()});
      if (heads.latent > 0) {
        const std::int64_t up = a.nope_dim + a.v_dim;
        f.inputs.push_back({kv_up_, r, Whole::kv_up_weight, f.range(0, a.kv_lora_rank),
                            f.range(h * up, (h + heads.q) * up), kind()});
      }
      if (latent) continue;  // the step ends in value_up()
      f.outputs.push_back({out, r, Whole::attention_output, result_list,
                           f.range(h * heads.v, (h + heads.q) * heads.v), kind()});
    }
  }
}

Whole ContextStep::held_matrix() const {
  return heads.latent > 0 || heads.cache == CacheRows::latent ? Whole::latent : Whole::kv;
}

TokensId ContextStep::held_columns(int t) const {
  if (held_matrix() == Whole::latent) return flow()->range(0, heads.latent > 0 ? heads.latent : heads.qk);
  const std::int64_t g = first_kv(t), width = heads.qk + heads.v;
  return flow()->range(g * width, (g + heads.kv) * width);
}

SlotId ContextStep::uneven(const char* name, const std::function<long long(int)>& row_count, double columns,
                           double bytes) const {
  if (!flow()) return 0;
  const SlotId slot = flow()->slot(name, bytes);
  for (int k = 0; k < p.cp; ++k) {
    for (int t = 0; t < lanes(); ++t)
      flow()->size(slot, rank(k, t), row_count(k), static_cast<std::int64_t>(columns));
  }
  return slot;
}

SlotId ContextStep::message(const char* name, long long row_count, double columns, double bytes) const {
  return uneven(
      name, [&](int) { return row_count; }, columns, bytes);
}

SlotId ContextStep::per_query(const char* name, double columns, double bytes) const {
  return uneven(
      name, [&](int k) { return shardline::rows(queries(k)); }, columns, bytes);
}

Region ContextStep::all_queries(SlotId slot, int k, double columns) const {
  return whole(slot, shardline::rows(queries(k)), columns);
}

void ContextStep::vary(const std::function<Shape(int)>& shape) {
  for (int k = 0; k < p.cp; ++k) shapes_[index(k)] = shape(k);
  b.vary(shapes_);
}

namespace {

AttendPrefillShape prefill_shape(const LocalHeads& h, const Tokens& queries, const Tokens& keys,
                                 bool rectangle) {
  auto s = shape_of_heads<AttendPrefillShape>(h, h.q);
  s.all_pairs = rectangle;
  s.pairs = rectangle ? all_pairs(queries, keys) : causal_pairs(queries, keys, h.reach);
  s.kv_rows = rows_in_reach(queries, keys, rectangle ? Reach{} : h.reach);
  s.q_rows = real_rows(queries);
  s.tiles = query_tiles(queries);
  s.intervals = query_intervals(queries);
  // Stripes of two ranks have as many pairs as one rank's own, by another mask.
  s.whole = s.kv_rows == s.q_rows && s.pairs == own_pairs(queries) && same_tokens(queries, keys);
  return s;
}

AttendDecodeShape decode_shape(const LocalHeads& h, const Tokens& queries, const Tokens& keys) {
  auto s = shape_of_heads<AttendDecodeShape>(h, h.q);
  s.pairs = causal_pairs(queries, keys, h.reach);
  s.kv_rows = rows_in_reach(queries, keys, h.reach);
  s.q_rows = real_rows(queries);
  for (const Interval& q : queries) s.longest = std::max(s.longest, rows_in_reach({&q, 1}, keys, h.reach));
  return s;
}

}  // namespace

OpIndex ContextStep::add_attend(const char* name) {
  // Eager attention is two matrix products; Flash-Decoding merges the splits of its KV in a kernel of its own
  // unless the engine fuses it.
  const bool one = prefill ? c.kernels.attention != AttentionKernel::eager : c.kernels.fused_split_merge;
  const int launches = one ? 1 : 2;
  if (prefill) return b.attend(name, c.precision.kv, c.precision.math, AttendPrefillShape{}, launches);
  return b.attend(name, c.precision.kv, c.precision.math, AttendDecodeShape{}, launches);
}

void ContextStep::attend_flow(OpIndex op, int k, const Tokens& query_list, const Tokens& key_list,
                              const LocalHeads& h, std::vector<Region> regions, bool sinks) {
  if (heads.sinks && sinks) {
    // Ranks that have taken heads for tokens each have their part of those of their TP rank.
    Region own = whole(sinks_, 1, h.q);
    own.column = std::int64_t{k % ring.stride} * h.q;
    regions.push_back(own);
  }
  Action action = attend_action(h, h.q);
  action.rectangle = prefill && c.kernels.attention == AttentionKernel::eager;
  for (int t = 0; t < lanes(); ++t) {
    if (t % p.tpa == 0) {  // of one attention group
      action.queries = flow()->tokens(of_group(query_list, t));
      action.keys = flow()->tokens(of_group(key_list, t));
    }
    action.rank = rank(k, t);
    flow()->act(op, action, regions);
  }
}

OpIndex ContextStep::attend_parts(const char* name,
                                  const std::function<std::vector<AttendPart>(int)>& parts) {
  const OpIndex op = add_attend(name);
  vary([&](int k) {
    AttendPrefillShape sum = prefill_shape(heads, {}, {}, false);
    sum.whole = false;
    for (const AttendPart& part : parts(k)) {
      const AttendPrefillShape s = prefill_shape(heads, part.queries, part.keys, false);
      sum.pairs += s.pairs;
      sum.kv_rows += s.kv_rows;
      sum.q_rows += s.q_rows;
      sum.tiles += s.tiles;
      sum.intervals += s.intervals;
    }
    return Shape(sum);
  });
  for (int k = 0; flow() && k < p.cp; ++k) {
    for (const AttendPart& part : parts(k)) attend_flow(op, k, part.queries, part.keys, heads, part.regions);
  }
  return op;
}

bool ContextStep::reaches(const Tokens& query_list, const Tokens& key_list) const {
  return !heads.reach.local() || causal_pairs(query_list, key_list, heads.reach) > 0;
}

std::vector<bool> ContextStep::iterations(const std::function<bool(int, int)>& seen) const {
  std::vector<bool> attends(1, true);  // of a rank's own tokens, which see themselves
  for (int j = 1; j < ring.size; ++j) {
    bool any = false;
    for (int k = 0; k < p.cp && !any; ++k) any = seen(k, j);
    attends.push_back(any);
  }
  while (!attends.back()) attends.pop_back();
  return attends;
}

OpIndex ContextStep::attend_lists(const char* name, const std::function<const Tokens&(int)>& query_list,
                                  const std::function<const Tokens&(int)>& key_list, const LocalHeads& h,
                                  const std::function<std::vector<Region>(int)>& regions, bool sinks) {
  const bool eager = prefill && c.kernels.attention == AttentionKernel::eager;
  const OpIndex op = add_attend(name);
  const auto works = [&](int k) { return reaches(query_list(k), key_list(k)); };
  vary([&](int k) {
    static const Tokens none;
    const bool on = works(k);
    const Tokens &queries = on ? query_list(k) : none, &keys = on ? key_list(k) : none;
    return prefill ? Shape(prefill_shape(h, queries, keys, eager)) : Shape(decode_shape(h, queries, keys));
  });
  for (int k = 0; flow() && k < p.cp; ++k) {
    if (works(k)) attend_flow(op, k, query_list(k), key_list(k), h, regions(k), sinks);
  }
  if (!eager) return op;
  // Scale, mask, softmax in float32, back to the type of the values: one kernel each.
  const OpIndex passes = b.elementwise("mask and softmax", Part::attention, OpKind::elementwise, {}, 4);
  vary([&](int k) {
    if (!works(k)) return Shape(ElementwiseShape{});
    const auto scores = static_cast<double>(all_pairs(query_list(k), key_list(k)) * h.q);
    return Shape(ElementwiseShape{real_rows(query_list(k)), h.q, scores * c.kernels.score_traffic});
  });
  return passes;
}

OpIndex ContextStep::attend(const char* name, const Attend& of) {
  return attend_lists(
      name, [&](int k) -> const Tokens& { return queries(of.queries_of(k)); },
      [&](int k) -> const Tokens& { return keys(of.keys_of(k)); }, heads,
      [&](int k) {
        const long long n = shardline::rows(queries(of.queries_of(k)));
        return std::vector<Region>{whole(of.query, n, heads.q * heads.qk),
                                   whole(of.key, layout.key_message, heads.kv_width()),
                                   whole(of.out, n, heads.q * heads.v), whole(of.lse, n, heads.q)};
      },
      of.sinks);
}

OpIndex ContextStep::pass_on(const char* name, SlotId source, SlotId target, long long row_count,
                             double columns, double element_bytes) {
  const OpIndex op = b.exchange(name, Part::exchange, OpKind::send_recv, ring_group(),
                                Bytes(static_cast<double>(row_count) * columns * element_bytes));
  if (Dataflow* f = flow()) {
    for (int k = 0; k < p.cp; ++k) {
      for (int t = 0; t < p.tpa; ++t) {
        f->move(op, {rank(k, t), rank(behind(k, -1), t), whole(source, row_count, columns),
                     whole(target, row_count, columns)});
      }
    }
  }
  return op;
}

OpIndex ContextStep::end_iteration(std::span<const OpIndex> after) {
  b.drive(prefill ? Drive::ring_step : Drive::graph);
  b.after(after);
  const OpIndex op = b.elementwise("end of iteration", Part::exchange, OpKind::elementwise, {}, 0);
  b.drive(prefill ? Drive::eager : Drive::graph);
  return op;
}

OpIndex ContextStep::merge(const char* name, const std::vector<std::pair<SlotId, SlotId>>& partials,
                           const std::function<bool(int, std::size_t)>& has) {
  const double width = heads.q * heads.v;
  const OpIndex op = b.elementwise(name, Part::exchange, OpKind::merge, {}, 1);
  const auto held_by = [&](int k) {
    std::vector<std::pair<SlotId, SlotId>> list;
    for (std::size_t i = 0; i < partials.size(); ++i)
      if (!has || has(k, i)) list.push_back(partials[i]);
    if (list.size() == 1 && list.front().first == out) list.clear();
    return list;
  };
  vary([&](int k) {
    const std::size_t parts = held_by(k).size();
    if (parts == 0) return Shape(ElementwiseShape{});
    const auto n = static_cast<double>(rows(k));
    // Reads every partial output, writes one.
    const double bytes =
        prefill ? n * width * act_bytes() * static_cast<double>(parts + 1) * c.system.runtime.passes.merge
                : 0;
    return Shape(ElementwiseShape{rows(k), count_of(width), Bytes(bytes)});
  });
  if (Dataflow* f = flow()) {
    std::vector<Region> regions;
    for (int k = 0; k < p.cp; ++k) {
      regions.clear();
      for (const auto& [o, lse] : held_by(k)) {
        regions.push_back(all_queries(o, k, width));
        regions.push_back(all_queries(lse, k, heads.q));
      }
      if (regions.empty()) continue;
      regions.push_back(all_queries(out, k, width));
      regions.push_back(all_queries(out_lse, k, heads.q));
      Action action;
      action.function = Function::merge;
      action.heads = heads.q;
      action.v_dim = heads.v;
      for (int t = 0; t < p.tpa; ++t) {
        action.rank = rank(k, t);
        f->act(op, action, regions);
      }
    }
  }
  return op;
}

}  // namespace shardline
