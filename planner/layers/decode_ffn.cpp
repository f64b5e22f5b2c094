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
  const auto sent = [&](Bytes bytes, double tokens) { return ExchangeShape{bytes, Carrier::engine, tokens}; };
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

namespace {

// Routed and shared experts of one rank.
class ExpertFfn {
 public:
  ExpertFfn(ScheduleBuilder& b, const Case& c, const Plan& p)
      : b_(b),
        c_(c),
        p_(p),
        type_(c.precision.of(Module::experts)),
        h_(c.model.hidden),
        own_(token_rows(p)),
        all_(own_ * p.dp),
        up_(up_projections(c.model)),
        inner_(rank_share(c.model.expert_inner, p.tpf)),
        pairs_(c.routing->pairs(p.ep, all_)),
        per_rank_(static_cast<double>(own_) / p.group()) {}

  void run() {
    add_separate(b_, c_, "norm", Part::ffn, own_, h_);
    add_quantize(b_, c_, Module::experts, own_, h_);
    route();
    if (p_.dp > 1) send("dispatch", OpKind::dispatch, c_.precision.dispatch);
    compute();
    join();
    add_norm(b_, c_, Part::ffn_sum, own_, p_.dp == 1 && p_.ep * p_.tpf > 1);
  }

 private:
  void route() {
    const ModuleType gate = c_.precision.of(Module::router);
    b_.gemm("router", Part::ffn, gate.weights, gate.math, GemmShape{own_, h_, c_.model.experts});
    fused("top-k", own_, c_.model.experts);
    fused("permute", std::llround(pairs_), h_);
  }

  // Tokens per rank times expert groups that a token visits; a rank's own group counts as sent, at most 1/EP
  // too much. What the busiest group receives lasts longer than what a rank sends: a step waits for the
  // longer.
  void send(const char* name, OpKind kind, Dtype type) {
    const ExpertRouting& routing = *c_.routing;
    const double sent =
        per_rank_ * routing.imbalance(p_.ep, all_) * static_cast<double>(h_) * routing.groups_hit(p_.ep);
    RoutedShape routed;
    routed.bytes = Bytes(
        sent * (kind == OpKind::dispatch ? bytes_per_dispatched_element(type) : bytes_per_element(type)));
    routed.rows = per_rank_ * routing.as_even(p_.ep, all_);
    routed.width = h_;
    routed.topk = c_.model.experts_per_token;
    routed.experts = c_.model.experts;
    routed.dispatched = c_.precision.dispatch;
    routed.uneven = routing.uneven(p_.ep, all_);
    b_.route(name, kind, {p_.ranks_per_stage(), 1}, routed, type);
  }

  // Shared experts run as further groups of the same grouped GEMM: no launch of their own.
  void compute() {
    const Model& m = c_.model;
    const int sharers = p_.dp > 1 ? p_.group() : p_.ep * p_.tpf;
    const Count shared = rank_share(static_cast<Count>(m.shared_experts) * m.expert_inner, sharers);
    grouped("experts up", h_, up_ * inner_);
    if (m.shared_experts > 0) dense("shared experts up", h_, up_ * shared);
    fused("expert activation", std::llround(pairs_), inner_);
    grouped("experts down", inner_, h_);
    if (m.shared_experts > 0) dense("shared experts down", shared, h_);
    fused("unpermute", std::llround(pairs_), h_);
  }

  void join() {
    const double activation = activation_size(c_);
    if (p_.dp > 1) {
      send("combine", OpKind::combine, c_.precision.activations);
      b_.exchange(
          "gather group", Part::ffn_sum, OpKind::all_gather, {p_.group(), 1},
          ExchangeShape{Bytes(per_rank_ * static_cast<double>(h_) * activation), Carrier::engine, per_rank_},
          c_.precision.activations);
    } else {
      b_.exchange("ffn all-reduce", Part::ffn_sum, OpKind::all_reduce, {p_.ep * p_.tpf, 1},
                  Bytes(static_cast<double>(own_ * h_) * activation));
    }
  }

  void fused(const char* name, Count rows, Count width) {
    b_.elementwise(name, Part::ffn, OpKind::elementwise, {rows, width, Bytes(0)}, 1, Within::experts);
  }

  void dense(const char* name, Count k, Count n) {
    b_.gemm(name, Part::ffn, type_.weights, type_.math, GemmShape{own_, k, n}, 0);
  }

  void grouped(const char* name, Count k, Count n) {
    GroupedGemmShape experts;
    experts.pairs = pairs_;
    experts.active = c_.routing->distinct_experts(p_.ep, all_);
    experts.held = rank_share(c_.model.experts, p_.ep);
    experts.tokens = all_;
    experts.hidden = h_;
    experts.inner = inner_;
    experts.gated = c_.model.ffn_kind == FfnKind::gated;
    experts.k = k;
    experts.n = n;
    b_.gemm(name, Part::ffn, type_.weights, type_.math, experts);
  }

  ScheduleBuilder& b_;
  const Case& c_;
  const Plan& p_;
  const ModuleType type_;
  const Count h_, own_, all_;  // hidden size; tokens of a rank, and of all groups
  const Count up_, inner_;
  const double pairs_, per_rank_;  // (token, expert) pairs, and tokens that a rank sends
};

}  // namespace

void add_expert_ffn(ScheduleBuilder& b, const Case& c, const Plan& p) { ExpertFfn(b, c, p).run(); }

}  // namespace shardline
