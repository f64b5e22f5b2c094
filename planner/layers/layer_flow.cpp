#include "planner/layers/layer_flow.hpp"

#include <array>

#include "planner/strategies/strategy.hpp"

namespace shardline {

bool describes_layer(const Case& c, const Plan& p) {
  const Attention* const attention = one_attention(c.model);
  const FeedForward* const ffn = one_ffn(c.model);
  if (c.batch.kind() != StepKind::prefill || p[kPrefillChunk] > 0) return false;
  for (const Segment& s : c.batch.prefill) {
    if (s.cached > 0) return false;
  }
  return attention && !has_latents(*attention) && !attention->recurrent() && !attention->sparse() &&
         c.model.residual.plain() && attention->gate == OutputGate::none && !attention->k_eq_v && ffn &&
         ffn->dense() && c.model.ffn_kind == FfnKind::gated && !c.model.sandwich_norms &&
         !strategy(p.strategy).binds_prefill;
}

LayerFlow::LayerFlow(ContextStep& step) {
  // An index's attention and a state's update declare what they work on by themselves.
  if (!step.flow() || strategy(step.p.strategy).binds_prefill || step.a.sparse() || step.a.recurrent())
    return;
  step.declare_slots();
  if (!describes_layer(step.c, step.p)) {
    step.bind_attention();
    return;
  }
  s_ = &step;
  hidden_ = step.c.model.hidden;
  inner_ = rank_share(one_ffn(step.c.model)->inner, step.p.tpa);
  bind();
}

std::int64_t LayerFlow::columns(SlotId slot) const {
  return slot == gate_up ? 2 * inner_ : slot == inner ? inner_ : hidden_;
}

void LayerFlow::act(Function function, std::initializer_list<SlotId> slots) {
  if (!s_) return;
  Action action;
  action.function = function;
  std::vector<Region> regions;
  for (int k = 0; k < s_->p.cp; ++k) {
    regions.clear();
    for (const SlotId slot : slots) regions.push_back({slot, 0, s_->rows(k), 0, columns(slot)});
    for (int t = 0; t < s_->p.tpa; ++t) {
      action.rank = s_->rank(k, t);
      flow().act(s_->b.previous(), action, regions);
    }
  }
}

void LayerFlow::project() {
  if (!s_) return;
  const auto op = s_->b.previous();
  const auto q_width = static_cast<std::int64_t>(s_->heads.q) * s_->heads.qk;
  const std::int64_t kv_width = count_of(s_->heads.kv_width());
  Action action;
  action.function = Function::gemm;
  for (int k = 0; k < s_->p.cp; ++k) {
    for (const RequestRows& r : s_->request_rows(k)) {
      if (r.count == 0) continue;
      const Region in{normed, r.token, r.count, 0, hidden_};
      for (int t = 0; t < s_->p.tpa; ++t) {
        action.rank = s_->rank(k, t);
        flow().act(op, action,
                   std::array{in, Region{w_qkv, 0, hidden_, 0, q_width},
                              Region{s_->q, r.query, r.count, 0, q_width}});
        flow().act(op, action,
                   std::array{in, Region{w_qkv, 0, hidden_, q_width, kv_width},
                              Region{s_->kv, r.key, r.count, 0, kv_width}});
      }
    }
  }
}

void LayerFlow::out_projection() {
  if (s_) act_rows(s_->out, w_out, projected);
}

void LayerFlow::act_rows(SlotId in, SlotId weight, SlotId out) {
  if (!s_) return;
  Action action;
  action.function = Function::gemm;
  const bool attention = in == s_->out;
  const std::int64_t kd = attention ? static_cast<std::int64_t>(s_->heads.q) * s_->heads.v : columns(in);
  const std::int64_t nd = columns(out);
  for (int k = 0; k < s_->p.cp; ++k) {
    for (const RequestRows& r : s_->request_rows(k)) {
      if (r.count == 0) continue;
      for (int t = 0; t < s_->p.tpa; ++t) {
        action.rank = s_->rank(k, t);
        flow().act(s_->b.previous(), action,
                   std::array{Region{in, attention ? r.query : r.token, r.count, 0, kd},
                              Region{weight, 0, kd, 0, nd}, Region{out, r.token, r.count, 0, nd}});
      }
    }
  }
}

void LayerFlow::sum(SlotId slot) {
  const int n = s_ ? s_->p.tpa : 1;
  if (n == 1) return;
  for (int k = 0; k < s_->p.cp; ++k) {
    const Region all{slot, 0, s_->rows(k), 0, hidden_};
    for (int from = 0; from < n; ++from) {
      for (int to = 0; to < n; ++to) {
        if (from != to) flow().move(s_->b.previous(), {s_->rank(k, from), s_->rank(k, to), all, all, true});
      }
    }
  }
}

SlotId LayerFlow::token_slot(const char* name, std::int64_t width) {
  const SlotId slot = flow().slot(name, s_->act_bytes());
  for (int k = 0; k < s_->p.cp; ++k) {
    for (int t = 0; t < s_->p.tpa; ++t) flow().size(slot, s_->rank(k, t), s_->rows(k), width);
  }
  return slot;
}

SlotId LayerFlow::weight_slot(const char* name, std::int64_t k_dim, std::int64_t n) {
  const SlotId slot = flow().slot(name, s_->act_bytes());
  for (int r = 0; r < s_->p.cp * s_->p.tpa; ++r) flow().size(slot, r, k_dim, n);
  return slot;
}

void LayerFlow::bind() {
  ContextStep& s = *s_;
  Dataflow& f = flow();
  const LocalHeads& h = s.heads;
  const std::int64_t d = hidden_, i = inner_;
  const std::int64_t q_all = static_cast<std::int64_t>(s.a.q_heads) * h.qk;
  const std::int64_t inner_all = one_ffn(s.c.model)->inner;
  x = token_slot("x", d);
  normed = token_slot("normed", d);
  projected = token_slot("projected", d);
  middle = token_slot("middle", d);
  gate_up = token_slot("gate and up", 2 * i);
  inner = token_slot("inner", i);
  down = token_slot("down", d);
  result = token_slot("result", d);
  w_qkv = weight_slot("W qkv", d, h.q * h.qk + count_of(h.kv_width()));
  w_out = weight_slot("W out", h.q * h.v, d);
  w_up = weight_slot("W up", d, 2 * i);
  w_down = weight_slot("W down", i, d);
  s.bind_sinks();
  const TokensId all = f.range(0, d);
  for (int k = 0; k < s.p.cp; ++k) {
    const TokensId tokens = f.tokens(s.layout.fresh[static_cast<std::size_t>(k)]);
    const TokensId results = s.layout.results.empty() ? tokens : f.tokens(s.results(k));
    for (int t = 0; t < s.p.tpa; ++t) {
      const int r = s.rank(k, t);
      const std::int64_t q = s.first_q(t) * h.qk, kv = q_all + s.first_kv(t) * (h.qk + h.v);
      const Interval qkv[2] = {{0, q, q + h.q * h.qk}, {0, kv, kv + h.kv * (h.qk + h.v)}};
      const Interval up[2] = {{0, t * i, (t + 1) * i}, {0, inner_all + t * i, inner_all + (t + 1) * i}};
      f.inputs.push_back({x, r, Whole::hidden, tokens, all, s.kind()});
      f.inputs.push_back({w_qkv, r, Whole::qkv_weight, all, f.tokens(qkv), s.kind()});
      const std::int64_t v = std::int64_t{s.first_q(t)} * h.v;
      f.inputs.push_back({w_out, r, Whole::out_weight, f.range(v, v + h.q * h.v), all, s.kind()});
      f.inputs.push_back({w_up, r, Whole::up_weight, all, f.tokens(up), s.kind()});
      f.inputs.push_back({w_down, r, Whole::down_weight, f.range(t * i, (t + 1) * i), all, s.kind()});
      f.outputs.push_back({result, r, Whole::layer_output, results, all, s.kind()});
    }
  }
}

}  // namespace shardline
