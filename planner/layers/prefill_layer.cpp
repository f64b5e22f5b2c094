// The layer around attention in a prefill: projections, norms, FFN, their all-reduces, and the data flow of a
// whole dense layer. planner/README.md [C4].
#include <array>
#include <cmath>

#include "planner/layers/context_step.hpp"
#include "planner/layers/decode_layer.hpp"

namespace shardline {

namespace {

double share(double whole, int parts) { return std::ceil(whole / parts); }
double matrices(const Model& m) { return m.ffn_kind == FfnKind::gated ? 2 : 1; }

// Slots of a whole layer; unused when only the attention path has a data flow.
struct LayerSlots {
  SlotId x, normed, w_qkv, w_out, projected, middle, w_up, gate_up, inner, w_down, down, result;
};

class Layer {
 public:
  Layer(ContextStep& step, void (*attention)(ContextStep&))
      : s_(step),
        attention_(attention),
        h_(s_.c.model.hidden),
        act_(s_.act_bytes()),
        inner_(share(s_.c.model.ffn_inner, s_.p.tpa)) {
    const Model& m = s_.c.model;
    cached_ = false;
    for (const long long count : s_.layout.cached_count) cached_ = cached_ || count > 0;
    whole_ = s_.flow() && !cached_ && s_.p[kPrefillChunk] == 0 && m.attention.kind == AttentionKind::gqa &&
             !has_experts(m) && m.ffn_kind == FfnKind::gated;
    if (s_.flow()) {
      s_.declare_slots();
      whole_ ? bind_layer() : s_.bind_attention();
    }
  }

  BlockIndex attention_block() {
    ScheduleBuilder& b = s_.b;
    begin("attention");
    elementwise("norm", Part::qkv, 2 * h_ * act_ * passes().norm);
    act(Function::rms_norm, {slots_.x, slots_.normed});
    project();
    if (s_.c.persistent_kv) {
      b.drive(Drive::persistent_kv);
      elementwise("join persistent KV", Part::attention, 0);
      b.drive(Drive::eager);
    }
    attention_(s_);
    const double width = s_.heads.q * s_.heads.v;
    const ModuleType t = s_.c.precision.of(Module::attention);
    gemm("out projection", Part::out_proj, width, h_, t.weights, t.math);
    act_rows(Function::gemm, s_.out, slots_.w_out, slots_.projected, width, h_);
    all_reduce("attention all-reduce", Part::attention_sum, slots_.projected);
    residual(Part::attention_sum);
    act(Function::add, {slots_.x, slots_.projected, slots_.middle});
    return b.end_block();
  }

  BlockIndex dense_block() {
    ScheduleBuilder& b = s_.b;
    const ModuleType t = s_.c.precision.of(Module::dense_ffn);
    const double up = matrices(s_.c.model) * inner_;
    begin("dense FFN");
    elementwise("norm", Part::ffn, 2 * h_ * act_ * passes().norm);
    act(Function::rms_norm, {slots_.middle, slots_.normed});
    quantize(t.math, h_);
    gemm("ffn up", Part::ffn, h_, up, t.weights, t.math);
    act_rows(Function::gemm, slots_.normed, slots_.w_up, slots_.gate_up, h_, up);
    elementwise("ffn activation", Part::ffn, (up + inner_) * act_ * passes().activation);
    act(Function::swiglu, {slots_.gate_up, slots_.inner});
    quantize(t.math, inner_);
    gemm("ffn down", Part::ffn, inner_, h_, t.weights, t.math);
    act_rows(Function::gemm, slots_.inner, slots_.w_down, slots_.down, inner_, h_);
    all_reduce("ffn all-reduce", Part::ffn_sum, slots_.down);
    residual(Part::ffn_sum);
    act(Function::add, {slots_.middle, slots_.down, slots_.result});
    return b.end_block();
  }

  // Experts of a TP group, or of all context-parallel ranks together (dispatch and combine).
  BlockIndex expert_block() {
    const Model& m = s_.c.model;
    const ModuleType t = s_.c.precision.of(Module::experts), gate = s_.c.precision.of(Module::router);
    const double up = matrices(m), inner = share(m.expert_inner, s_.p.tpf);
    const double shared = share(static_cast<double>(m.shared_experts) * m.expert_inner, s_.p.tpa);
    begin("expert FFN");
    elementwise("norm", Part::ffn, 2 * h_ * act_ * passes().norm);
    gemm("router", Part::ffn, h_, m.experts, gate.weights, gate.math);
    elementwise("top-k", Part::ffn, m.experts * act_, Within::experts);
    of_pairs("permute", h_, 2 * h_ * act_);
    if (spread_experts()) send("dispatch", OpKind::dispatch, s_.c.precision.dispatch);
    quantize(t.math, h_);
    grouped("experts up", h_, up * inner);
    if (m.shared_experts > 0) gemm("shared experts up", Part::ffn, h_, up * shared, t.weights, t.math);
    of_pairs("expert activation", inner, (up + 1) * inner * act_ * passes().activation);
    grouped("experts down", inner, h_);
    if (m.shared_experts > 0) gemm("shared experts down", Part::ffn, shared, h_, t.weights, t.math);
    of_pairs("unpermute", h_, 2 * h_ * act_);
    if (spread_experts()) {
      send("combine", OpKind::combine, s_.c.precision.activations);
      const int ranks = s_.p.tpa;
      s_.b.exchange("gather tokens", Part::ffn_sum, OpKind::all_gather, {ranks, 1}, Bytes(0));
      if (ranks > 1) s_.vary([&](int k) { return Shape(ExchangeShape{Bytes(row(k) / ranks * h_ * act_)}); });
    } else {
      all_reduce("ffn all-reduce", Part::ffn_sum, 0);
    }
    residual(Part::ffn_sum);
    return s_.b.end_block();
  }

 private:
  // A host that launches kernel by kernel is half a layer in each block, and runs ahead of its GPU.
  void begin(const char* name) {
    s_.b.begin_block(name);
    if (s_.c.system.runtime.host_layer == Seconds(0)) return;
    launch_ = s_.b.launch("launch kernels", 0.5);
    s_.b.after({});
  }

  void residual(Part part) {
    const OpIndex both[2] = {s_.b.previous(), launch_};
    if (s_.c.system.runtime.host_layer > Seconds(0)) s_.b.after(both);
    elementwise("residual", part, 3 * h_ * act_ * passes().residual);
  }

  // Whether the context-parallel ranks share the experts.
  bool spread_experts() const { return s_.p.ep * s_.p.tpf > s_.p.tpa; }

  // Tokens whose experts are on rank k, and the pairs of token and expert there.
  long long routed_tokens(int k) const {
    if (!spread_experts()) return static_cast<long long>(row(k));
    double all = 0;
    for (const double n : s_.rows()) all += n;
    return static_cast<long long>(all);
  }
  double pairs(int k) const { return s_.c.routing->pairs(s_.p.ep, routed_tokens(k)); }

  // A kernel over all pairs, which experts' kernels may hold.
  void of_pairs(const char* name, double width, double bytes_per_pair) {
    s_.b.elementwise(name, Part::ffn, OpKind::elementwise, {}, 1, Within::experts);
    s_.vary([&](int k) {
      return Shape(ElementwiseShape{count_of(pairs(k)), count_of(width), Bytes(pairs(k) * bytes_per_pair)});
    });
  }

  // As in a decode step: for the rank with most to send or to receive.
  void send(const char* name, OpKind kind, Dtype type) {
    const ExpertRouting& routing = *s_.c.routing;
    const Plan& p = s_.p;
    const double as_even = routing.as_even(p.ep, routed_tokens(0)) / p.tpa;
    const double per_token =
        h_ * routing.groups_hit(p.ep) * routing.imbalance(p.ep, routed_tokens(0)) / p.tpa;
    const bool uneven = routing.uneven(p.ep, routed_tokens(0));
    const double element =
        kind == OpKind::dispatch ? bytes_per_dispatched_element(type) : bytes_per_element(type);
    s_.b.route(name, kind, {p.cp * p.tpa, 1}, RoutedShape{}, type);
    s_.vary([&](int k) {
      return Shape(RoutedShape{Bytes(row(k) * per_token * element), row(k) * as_even, count_of(h_),
                               s_.c.model.experts_per_token, s_.c.model.experts, s_.c.precision.dispatch,
                               uneven});
    });
  }

  void grouped(const char* name, double k_dim, double n) {
    const Model& m = s_.c.model;
    const ModuleType t = s_.c.precision.of(Module::experts);
    s_.b.gemm(name, Part::ffn, t.weights, t.math, GroupedGemmShape{});
    s_.vary([&](int k) {
      GroupedGemmShape g;
      g.pairs = pairs(k);
      g.active = s_.c.routing->distinct_experts(s_.p.ep, routed_tokens(k));
      g.k = count_of(k_dim);
      g.n = count_of(n);
      g.held = count_of(share(m.experts, s_.p.ep));
      g.tokens = routed_tokens(k);
      g.hidden = count_of(h_);
      g.inner = count_of(share(m.expert_inner, s_.p.tpf));
      g.gated = m.ffn_kind == FfnKind::gated;
      return Shape(g);
    });
  }

  const Passes& passes() const { return s_.c.system.runtime.passes; }

  double row(int k) const { return s_.rows()[static_cast<std::size_t>(k)]; }

  void elementwise(const char* name, Part part, double bytes_per_row, Within within = Within::own) {
    s_.b.elementwise(name, part, OpKind::elementwise, {}, 1, within);
    s_.vary([&](int k) {
      return Shape(ElementwiseShape{count_of(row(k)), count_of(h_), Bytes(row(k) * bytes_per_row)});
    });
  }

  void gemm(const char* name, Part part, double k_dim, double n, Dtype weights, Dtype math) {
    s_.b.gemm(name, part, weights, math, GemmShape{});
    s_.vary([&](int k) { return Shape(GemmShape{count_of(row(k)), count_of(k_dim), count_of(n)}); });
  }

  // Arithmetic narrower than the residual stream needs a kernel that scales and rounds its input.
  void quantize(Dtype math, double width) {
    const double to = bytes_per_element(math);
    if (to < act_) elementwise("quantize", Part::ffn, width * (act_ + to), Within::gemm);
  }

  void all_reduce(const char* name, Part part, SlotId slot) {
    const int n = s_.p.tpa;
    if (n == 1) return;
    const OpIndex op = s_.b.exchange(name, part, OpKind::all_reduce, {n, 1}, Bytes(0));
    s_.vary([&](int k) { return Shape(ExchangeShape{Bytes(row(k) * h_ * act_)}); });
    if (!whole_) return;
    for (int k = 0; k < s_.p.cp; ++k) {
      const Region all = s_.whole(slot, static_cast<long long>(row(k)), h_);
      for (int from = 0; from < n; ++from) {
        for (int to = 0; to < n; ++to) {
          if (from != to) s_.flow()->move(op, {s_.rank(k, from), s_.rank(k, to), all, all, true});
        }
      }
    }
  }

  void project() {
    const Case& c = s_.c;
    const Attention& a = c.model.attention;
    const double q = s_.heads.q, width = s_.heads.kv_width();
    const auto [w, m] = c.precision.of(Module::attention);
    if (a.kind == AttentionKind::gqa) {
      gemm("qkv", Part::qkv, h_, q * a.head_dim + width, w, m);
      project_flow();
      elementwise("rope and KV append", Part::qkv, 2 * (q * a.head_dim + width / 2) * act_ * passes().rotary,
                  Within::prefill_attention);
      return;
    }
    const double latent = a.kv_lora_rank + a.rope_dim, q_width = q * s_.heads.qk;
    if (a.q_lora_rank > 0) {
      gemm("q and kv down", Part::qkv, h_, a.q_lora_rank + latent, w, m);
      elementwise("q and kv norm", Part::qkv, 2 * (a.q_lora_rank + latent) * act_);
      gemm("q up", Part::qkv, a.q_lora_rank, q_width, w, m);
    } else {
      gemm("q and kv down", Part::qkv, h_, q_width + latent, w, m);
      elementwise("kv norm", Part::qkv, 2 * latent * act_);
    }
    elementwise("rope and KV append", Part::qkv, 2 * (q * a.rope_dim + latent) * act_ * passes().rotary,
                Within::prefill_attention);
    // The cache now holds latents, which the attention of a strategy expands where it needs them.
  }

  void project_flow() {
    if (!whole_) return;
    const auto op = s_.b.previous();
    const auto q_width = static_cast<std::int64_t>(s_.heads.q * s_.heads.qk);
    const auto kv_width = static_cast<std::int64_t>(s_.heads.kv_width());
    const auto h = static_cast<std::int64_t>(h_);
    Action action;
    action.function = Function::gemm;
    for (int k = 0; k < s_.p.cp; ++k) {
      for (const RequestRows& r : s_.request_rows(k)) {
        if (r.count == 0) continue;
        const Region in{slots_.normed, r.token, r.count, 0, h};
        for (int t = 0; t < s_.p.tpa; ++t) {
          action.rank = s_.rank(k, t);
          s_.flow()->act(op, action,
                         std::array{in, Region{slots_.w_qkv, 0, h, 0, q_width},
                                    Region{s_.q, r.query, r.count, 0, q_width}});
          s_.flow()->act(op, action,
                         std::array{in, Region{slots_.w_qkv, 0, h, q_width, kv_width},
                                    Region{s_.kv, r.key, r.count, 0, kv_width}});
        }
      }
    }
  }

  std::int64_t columns(SlotId slot) const {
    return slot == slots_.gate_up ? static_cast<std::int64_t>(2 * inner_)
           : slot == slots_.inner ? static_cast<std::int64_t>(inner_)
                                  : static_cast<std::int64_t>(h_);
  }

  // An op on all rows of slots of a rank's new tokens.
  void act(Function function, std::initializer_list<SlotId> slots) {
    if (!whole_) return;
    Action action;
    action.function = function;
    std::vector<Region> regions;
    for (int k = 0; k < s_.p.cp; ++k) {
      regions.clear();
      for (const SlotId slot : slots)
        regions.push_back({slot, 0, static_cast<std::int64_t>(row(k)), 0, columns(slot)});
      for (int t = 0; t < s_.p.tpa; ++t) {
        action.rank = s_.rank(k, t);
        s_.flow()->act(s_.b.previous(), action, regions);
      }
    }
  }

  // A GEMM on all rows; the attention output may be padded, so request by request.
  void act_rows(Function function, SlotId in, SlotId weight, SlotId out, double k_dim, double n) {
    if (!whole_) return;
    Action action;
    action.function = function;
    const auto kd = static_cast<std::int64_t>(k_dim), nd = static_cast<std::int64_t>(n);
    for (int k = 0; k < s_.p.cp; ++k) {
      for (const RequestRows& r : s_.request_rows(k)) {
        if (r.count == 0) continue;
        for (int t = 0; t < s_.p.tpa; ++t) {
          action.rank = s_.rank(k, t);
          s_.flow()->act(s_.b.previous(), action,
                         std::array{Region{in, in == s_.out ? r.query : r.token, r.count, 0, kd},
                                    Region{weight, 0, kd, 0, nd}, Region{out, r.token, r.count, 0, nd}});
        }
      }
    }
  }

  SlotId token_slot(const char* name, double width) {
    const SlotId slot = s_.flow()->slot(name, act_);
    for (int k = 0; k < s_.p.cp; ++k) {
      for (int t = 0; t < s_.p.tpa; ++t)
        s_.flow()->size(slot, s_.rank(k, t), static_cast<std::int64_t>(row(k)),
                        static_cast<std::int64_t>(width));
    }
    return slot;
  }

  SlotId weight_slot(const char* name, double k_dim, double n) {
    const SlotId slot = s_.flow()->slot(name, act_);
    for (int r = 0; r < s_.p.cp * s_.p.tpa; ++r)
      s_.flow()->size(slot, r, static_cast<std::int64_t>(k_dim), static_cast<std::int64_t>(n));
    return slot;
  }

  void bind_layer() {
    Dataflow& f = *s_.flow();
    const LocalHeads& h = s_.heads;
    const auto d = static_cast<std::int64_t>(h_), i = static_cast<std::int64_t>(inner_);
    const std::int64_t q_all = static_cast<std::int64_t>(s_.c.model.attention.q_heads) * h.qk;
    const std::int64_t inner_all = s_.c.model.ffn_inner;
    slots_.x = token_slot("x", h_);
    slots_.normed = token_slot("normed", h_);
    slots_.projected = token_slot("projected", h_);
    slots_.middle = token_slot("middle", h_);
    slots_.gate_up = token_slot("gate and up", 2 * inner_);
    slots_.inner = token_slot("inner", inner_);
    slots_.down = token_slot("down", h_);
    slots_.result = token_slot("result", h_);
    slots_.w_qkv = weight_slot("W qkv", h_, h.q * h.qk + h.kv_width());
    slots_.w_out = weight_slot("W out", h.q * h.v, h_);
    slots_.w_up = weight_slot("W up", h_, 2 * inner_);
    slots_.w_down = weight_slot("W down", inner_, h_);
    const TokensId all = f.range(0, d);
    for (int k = 0; k < s_.p.cp; ++k) {
      const TokensId tokens = f.tokens(s_.layout.fresh[static_cast<std::size_t>(k)]);
      const TokensId results = s_.layout.results.empty() ? tokens : f.tokens(s_.results(k));
      for (int t = 0; t < s_.p.tpa; ++t) {
        const int r = s_.rank(k, t);
        const std::int64_t q = s_.first_q(t) * h.qk, kv = q_all + s_.first_kv(t) * (h.qk + h.v);
        const Interval qkv[2] = {{0, q, q + h.q * h.qk}, {0, kv, kv + h.kv * (h.qk + h.v)}};
        const Interval up[2] = {{0, t * i, (t + 1) * i}, {0, inner_all + t * i, inner_all + (t + 1) * i}};
        f.inputs.push_back({slots_.x, r, Whole::hidden, tokens, all});
        f.inputs.push_back({slots_.w_qkv, r, Whole::qkv_weight, all, f.tokens(qkv)});
        f.inputs.push_back({slots_.w_out, r, Whole::out_weight, f.range(q, q + h.q * h.v), all});
        f.inputs.push_back({slots_.w_up, r, Whole::up_weight, all, f.tokens(up)});
        f.inputs.push_back({slots_.w_down, r, Whole::down_weight, f.range(t * i, (t + 1) * i), all});
        f.outputs.push_back({slots_.result, r, Whole::layer_output, results, all});
      }
    }
  }

  ContextStep& s_;
  void (*attention_)(ContextStep&);
  double h_, act_, inner_;
  bool cached_ = false, whole_ = false;
  OpIndex launch_ = 0;  // of the block's kernels, by the host
  LayerSlots slots_{};
};

}  // namespace

PrefillBlocks add_prefill_blocks(ContextStep& step, void (*attention)(ContextStep&)) {
  Layer layer(step, attention);
  PrefillBlocks blocks;
  blocks.attend = layer.attention_block();
  if (step.c.model.dense_layers > 0) blocks.dense = layer.dense_block();
  if (step.c.model.dense_layers < step.c.model.layers) blocks.experts = layer.expert_block();
  return blocks;
}

}  // namespace shardline
