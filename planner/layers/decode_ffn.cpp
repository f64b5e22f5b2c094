// The feed-forward half of a decode layer: dense, or of experts.
#include <cmath>

#include "planner/layers/decode_parts.hpp"

namespace shardline {

void add_dense_ffn(ScheduleBuilder& b, const Case& c, const Plan& p) {
  const ModuleType t = c.precision.of(Module::dense_ffn);
  const int ranks = dense_ffn_ranks(p);
  const bool gather = ranks > p.group();  // spans attention groups: tokens of all of them are needed
  const bool deal = deals_tokens(p);      // every rank has all tokens of its group, and takes its part
  const Count rows = ffn_rows(p), h = c.model.hidden, inner = rank_share(c.model.ffn_inner, ranks);
  const Bytes all_tokens(static_cast<double>(rows * h) * activation_size(c));
  const Bytes group_tokens(static_cast<double>(p.batch * h) * activation_size(c));
  add_separate(b, c, "norm", Part::ffn, rows, h);
  add_quantize(b, c, Module::dense_ffn, rows, h);
  // Tokens are rows: an engine's own kernels handle them one by one.
  const auto sent = [&](Bytes bytes, double tokens) { return ExchangeShape{bytes, tokens}; };
  const Dtype type = c.precision.activations;
  if (gather) {
    b.exchange("gather tokens", Part::ffn_sum, OpKind::all_gather, {p.dp, p.group()},
               sent(group_tokens, p.batch), type);
  }
  b.gemm("ffn up", Part::ffn, t.weights, t.math, GemmShape{rows, h, up_projections(c.model) * inner});
  b.elementwise("ffn activation", Part::ffn, OpKind::elementwise, {rows, inner, Bytes(0)});
  add_quantize(b, c, Module::dense_ffn, rows, inner);
  b.gemm("ffn down", Part::ffn, t.weights, t.math, GemmShape{rows, inner, h});
  if (gather) {
    b.exchange("ffn reduce-scatter", Part::ffn_sum, OpKind::reduce_scatter, {ranks, 1},
               sent(all_tokens, static_cast<double>(rows) / ranks), type);
    b.exchange("gather group", Part::ffn_sum, OpKind::all_gather, {p.group(), 1},
               sent(group_tokens / p.group(), double(p.batch) / p.group()), type);
  } else if (deal) {
    b.exchange("gather group", Part::ffn_sum, OpKind::all_gather, {p.group(), 1},
               sent(all_tokens, static_cast<double>(rows)), type);
  } else {
    b.exchange("ffn all-reduce", Part::ffn_sum, OpKind::all_reduce, {ranks, 1}, all_tokens);
  }
  add_separate(b, c, "residual", Part::ffn_sum, rows, h);
  add_norm(b, c, Part::ffn_sum, token_rows(p), !gather && !deal && ranks > 1);
}

void add_expert_ffn(ScheduleBuilder& b, const Case& c, const Plan& p) {
  const Model& m = c.model;
  const ModuleType t = c.precision.of(Module::experts), gate = c.precision.of(Module::router);
  const Dtype dispatched = c.precision.dispatch;
  const Count h = m.hidden, own = token_rows(p), up = up_projections(m);
  const Count all = own * p.dp;
  const double distinct = c.routing->distinct_experts(p.ep, all), pairs = c.routing->pairs(p.ep, all);
  const Count inner = rank_share(m.expert_inner, p.tpf);
  const int shared_ranks = p.dp > 1 ? p.group() : p.ep * p.tpf;
  const Count shared = rank_share(static_cast<Count>(m.shared_experts) * m.expert_inner, shared_ranks);
  add_separate(b, c, "norm", Part::ffn, own, h);
  add_quantize(b, c, Module::experts, own, h);
  b.gemm("router", Part::ffn, gate.weights, gate.math, GemmShape{own, h, m.experts});
  const Count routed_rows = std::llround(pairs);
  const auto fused = [&](const char* name, Count rows, Count width) {
    b.elementwise(name, Part::ffn, OpKind::elementwise, {rows, width, Bytes(0)}, 1, Within::experts);
  };
  fused("top-k", own, m.experts);
  fused("permute", routed_rows, h);
  // Tokens per rank times expert groups that a token visits; a rank's own group counts as sent, at most 1/EP
  // too much. What the busiest group receives lasts longer than what a rank sends: a step waits for the
  // longer.
  const double per_rank = static_cast<double>(own) / p.group();
  const double sent =
      per_rank * c.routing->imbalance(p.ep, all) * static_cast<double>(h) * c.routing->groups_hit(p.ep);
  RoutedShape routed;
  routed.rows = per_rank * c.routing->as_even(p.ep, all);
  routed.width = h;
  routed.topk = m.experts_per_token;
  routed.experts = m.experts;
  routed.dispatched = dispatched;
  if (p.dp > 1) {
    routed.bytes = Bytes(sent * bytes_per_dispatched_element(dispatched));
    b.route("dispatch", OpKind::dispatch, {p.ranks_per_stage(), 1}, routed, dispatched);
  }
  GroupedGemmShape experts;
  experts.pairs = pairs;
  experts.active = distinct;
  experts.held = rank_share(m.experts, p.ep);
  experts.tokens = all;
  experts.hidden = h;
  experts.inner = inner;
  experts.matrices = up + 1;
  const auto grouped = [&](const char* name, Count k, Count n) {
    experts.k = k;
    experts.n = n;
    b.gemm(name, Part::ffn, t.weights, t.math, experts);
  };
  grouped("experts up", h, up * inner);
  // Shared experts run as further groups of the same grouped GEMM: no launch of their own.
  if (m.shared_experts > 0)
    b.gemm("shared experts up", Part::ffn, t.weights, t.math, GemmShape{own, h, up * shared}, 0);
  fused("expert activation", routed_rows, inner);
  grouped("experts down", inner, h);
  if (m.shared_experts > 0)
    b.gemm("shared experts down", Part::ffn, t.weights, t.math, GemmShape{own, shared, h}, 0);
  fused("unpermute", routed_rows, h);
  if (p.dp > 1) {
    routed.bytes = Bytes(sent * activation_size(c));
    b.route("combine", OpKind::combine, {p.ranks_per_stage(), 1}, routed, c.precision.activations);
    b.exchange("gather group", Part::ffn_sum, OpKind::all_gather, {p.group(), 1},
               ExchangeShape{Bytes(per_rank * static_cast<double>(h) * activation_size(c)), per_rank},
               c.precision.activations);
  } else {
    b.exchange("ffn all-reduce", Part::ffn_sum, OpKind::all_reduce, {p.ep * p.tpf, 1},
               Bytes(static_cast<double>(own * h) * activation_size(c)));
  }
  add_norm(b, c, Part::ffn_sum, own, p.dp == 1 && p.ep * p.tpf > 1);
}

}  // namespace shardline
