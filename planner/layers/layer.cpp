#include "planner/layers/layer.hpp"

#include "planner/engines/profile.hpp"
#include "planner/layers/cache_attention.hpp"
#include "planner/layers/compressed.hpp"
#include "planner/layers/recurrent.hpp"
#include "planner/layers/sparse_attention.hpp"
#include "planner/layers/streams.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

Layer::Layer(ScheduleBuilder& b, const Case& c, const Plan& p, std::span<const Count> rows, LayerFlow& flow)
    : b_(b), c_(c), p_(p), ops_(b, c, rows), flow_(flow), h_(c.model.hidden), act_(activation_size(c)) {}

// The host has half a layer to launch in each block, and runs ahead of its GPU.
void Layer::begin(const char* name) {
  b_.drive(has_prompts(c_) ? Drive::eager : Drive::graph);
  b_.begin_block(name);
  if (!host_launches()) return;
  launch_ = b_.launch("launch kernels", 0.5);
  b_.after({});
}

void Layer::attention(const Attention& a, ContextStep* step) {
  begin("attention");
  add_residual_in(b_, c_, ops_, Part::qkv);
  if (separate_norm())
    ops_.elementwise("norm", Part::qkv, h_, 2 * static_cast<double>(h_) * act_ * passes().norm);
  flow_.act(Function::rms_norm, {flow_.x, flow_.normed});
  a.recurrent() ? add_recurrent(b_, c_, a, p_, ops_, step) : attend(a, step);
  if (a.compression)
    add_grouped_outputs(c_, a, p_, ops_);
  else
    ops_.gemm("out projection", Part::out_proj, Module::out_proj, out_proj_width(a, p_), h_);
  flow_.out_projection();
  ops_.all_reduce("attention all-reduce", Part::attention_sum, out_proj_ranks(p_));
  flow_.sum(flow_.projected);
  residual(Part::attention_sum, out_proj_ranks(p_) > 1);
  flow_.act(Function::add, {flow_.x, flow_.projected, flow_.middle});
  b_.end_block();
}

// Of layers with caches: projections, attention, and the gate of its outputs.
void Layer::attend(const Attention& a, ContextStep* step) {
  if (a.compression) {
    add_compressed_projections(b_, c_, a, p_, ops_);
    module_rest(a, step);
  } else {
    has_latents(a) ? project_latents(a, step) : project(a, step);
  }
  if (step && c_.persistent_kv) {
    b_.drive(Drive::persistent_kv);
    ops_.elementwise("join persistent KV", Part::attention, h_, 0);
    b_.drive(Drive::eager);
  }
  if (c_.batch.decodes()) add_decode_attention(b_, c_, a, p_);
  if (step) strategy(p_.strategy).prefill_attention(*step);
  gate_output(a);
}

void Layer::project(const Attention& a, const ContextStep* step) {
  const LocalHeads h = prefill_heads(a, p_);
  const Count q = static_cast<Count>(cache_share(c_, a, p_).projected) * h.qk;
  const Count kv = count_of(h.kv_width()), turned = q + static_cast<Count>(h.kv) * h.qk;
  ops_.gemm("qkv", Part::qkv, Module::attention, h_, q + kv + index_columns(a, p_) + gate_columns(a));
  flow_.project();
  if (a.index) return module_rest(a, step);
  // Values are not turned.
  ops_.elementwise("rope and KV append", Part::qkv, q + kv,
                   2 * static_cast<double>(turned) * act_ * passes().rotary, attention_kernel());
}

// The gate of the heads that the rank projects is made with their queries.
Count Layer::gate_columns(const Attention& a) const {
  return gate_width(a, static_cast<Count>(cache_share(c_, a, p_).projected));
}

// sigmoid(gate) times the heads' outputs, of the slice that enters the output projection: reads both, writes
// one (transformers models/qwen3_next/modeling_qwen3_next.py, Qwen3NextAttention.forward).
void Layer::gate_output(const Attention& a) {
  if (a.gate == OutputGate::none) return;
  const Count width = out_proj_width(a, p_);
  const Count gates = a.gate == OutputGate::head ? width / value_width(a) : width;
  ops_.elementwise("output gate", Part::out_proj, width, static_cast<double>(2 * width + gates) * act_);
}

// The queries of decoding requests are absorbed: W_UK makes them as wide as latent rows. Prefills attend to
// heads that strategies expand from the latents where they need them.
void Layer::project_latents(const Attention& a, const ContextStep* step) {
  const Count q = cache_share(c_, a, p_).projected, q_width = q * (a.nope_dim + a.rope_dim);
  const Count latent = a.kv_lora_rank + a.rope_dim, turned = q * a.rope_dim;
  const auto both = [&](Count width) { return 2 * static_cast<double>(width) * act_; };
  if (a.q_lora_rank > 0) {
    const Count down = a.q_lora_rank + latent;
    ops_.gemm("q and kv down", Part::qkv, Module::attention, h_, down + gate_columns(a));
    if (!a.index) ops_.elementwise("q and kv norm", Part::qkv, down, both(down));
    ops_.gemm("q up", Part::qkv, Module::attention, a.q_lora_rank, q_width);
  } else {
    ops_.gemm("q and kv down", Part::qkv, Module::attention, h_, q_width + latent + gate_columns(a));
    if (!a.index) ops_.elementwise("kv norm", Part::qkv, latent, both(latent));
  }
  if (a.index) return project_index(a, step);
  if (prefills())
    ops_.elementwise("rope and KV append", Part::qkv, turned + latent,
                     both(turned + latent) * passes().rotary, attention_kernel());
  else
    ops_.elementwise("rope", Part::qkv, turned, 0, attention_kernel());
  if (step && absorbs_prompts(c_, a, p_)) {
    absorb_queries(a);
  } else if (c_.batch.decodes()) {
    const ModuleType t = c_.precision.of(Module::attention);
    b_.gemm(
        "q absorb", Part::qkv, t.weights, t.math,
        BatchedGemmShape{LatentProduct::absorb_query, decode_rows(c_, p_), a.nope_dim, a.kv_lora_rank, q, 1});
  }
  if (!prefills()) ops_.elementwise("KV append", Part::qkv, latent, 0, attention_kernel());
}

// Behind the products of MLA those of the index. All its queries attend absorbed, those of prompts too.
void Layer::project_index(const Attention& a, const ContextStep* step) {
  add_index_projections(ops_, c_, a);
  module_rest(a, step);
  absorb_queries(a);
}

// Of all new tokens.
void Layer::absorb_queries(const Attention& a) {
  const Count q = cache_share(c_, a, p_).projected;
  const ModuleType t = c_.precision.of(Module::attention);
  ops_.each(
      [&](Count rows) {
        return BatchedGemmShape{LatentProduct::absorb_query, rows, a.nope_dim, a.kv_lora_rank, q, 1};
      },
      [&](const BatchedGemmShape& s) { return b_.gemm("q absorb", Part::qkv, t.weights, t.math, s); });
}

// Norms, rotation and cache writes of a block of sparse attention.
void Layer::module_rest(const Attention& a, const ContextStep* step) {
  if (step && p_.cp > 1) {
    std::vector<RankQueries> ranks;
    for (int k = 0; k < p_.cp; ++k) ranks.push_back(rank_queries(step->queries(k)));
    return add_module_rest(b_, c_, a, p_, ranks);
  }
  std::vector<Segment> chunk;  // of a prompt that passes in chunks, this round's one
  if (step && p_[kPrefillChunk] > 0) {
    for (const Interval& i : step->queries(0)) {
      if (i.request != kPadding) chunk.push_back({i.begin, i.end - i.begin});
    }
  }
  add_module_rest(b_, c_, a, p_, ops_.rows().front(), chunk);
}

// Arithmetic narrower than the residual stream needs a kernel that scales and rounds its input.
void Layer::quantize(const RowOps& ops, Module of, Count width) const {
  const double to = bytes_per_element(c_.precision.of(of).math);
  if (to >= act_ || !ops.separate()) return;
  ops.elementwise("quantize", Part::ffn, width, static_cast<double>(width) * (act_ + to), Within::gemm);
}

// The residual addition and the norm behind half a layer ride on the all-reduce that ends it, as engines fuse
// them. Where none does (attention data parallelism, one rank, SGLang's dense models), they are a kernel: two
// rows read, two written.
void Layer::residual(Part part, bool rides) {
  const double row = static_cast<double>(h_) * act_;
  if (add_residual_out(b_, c_, ops_, part)) return;
  if (c_.model.sandwich_norms) {  // between the sum and the residual addition, which then no sum takes along
    ops_.elementwise("norm behind", part, h_, 2 * row * passes().norm);
    rides = false;
  }
  if (c_.engine && !c_.engine->takes_norms(c_.model.architecture, c_.model.hidden)) rides = false;
  if (ops_.separate()) {
    const OpIndex both[2] = {b_.previous(), launch_};
    if (host_launches()) b_.after(both);
    ops_.elementwise("residual", part, h_, 3 * row * passes().residual);
  } else if (!rides) {
    const Count rows = ops_.rows().front();
    b_.elementwise("residual and norm", part, OpKind::elementwise,
                   {rows, h_, Bytes(static_cast<double>(4 * rows * h_) * act_)});
  }
}

void Layer::dense_ffn(const FeedForward& f) {
  const int ranks = dense_ffn_ranks(p_), group = p_.group();
  const bool gather = ranks > group;   // spans attention groups: tokens of all of them are needed
  const bool deal = deals_tokens(p_);  // every rank has all tokens of its group, and takes its part
  const Count inner = rank_share(f.inner, ranks), up = up_projections(c_.model) * inner;
  const Count one = ffn_rows(c_, p_, ops_.rows().front());
  std::vector<Count> many;
  if (ops_.rows().size() > 1)
    for (const Count rows : ops_.rows()) many.push_back(ffn_rows(c_, p_, rows));
  const RowOps ffn(b_, c_, many.empty() ? std::span(&one, 1) : std::span<const Count>(many));
  // Tokens are rows: an engine's own kernels handle them one by one.
  const auto sent = [&](double rows) { return ExchangeShape{ffn.activations(rows), Carrier::engine, rows}; };
  begin("dense FFN");
  add_residual_in(b_, c_, ops_, Part::ffn);
  if (separate_norm())
    ffn.elementwise("norm", Part::ffn, h_, 2 * static_cast<double>(h_) * act_ * passes().norm);
  flow_.act(Function::rms_norm, {flow_.middle, flow_.normed});
  quantize(ffn, Module::dense_ffn, h_);
  if (gather) {
    ops_.exchange("gather tokens", Part::ffn_sum, OpKind::all_gather, {p_.dp, group}, [&](Count rows) {
      // Unequal shares take as long as equal ones of as many tokens.
      return sent(static_cast<double>(rows_of_groups(c_, p_, rows)) / p_.dp);
    });
  }
  ffn.gemm("ffn up", Part::ffn, Module::dense_ffn, h_, up);
  flow_.ffn_up();
  ffn.elementwise("ffn activation", Part::ffn, inner,
                  static_cast<double>(up + inner) * act_ * passes().activation);
  flow_.act(Function::swiglu, {flow_.gate_up, flow_.inner});
  quantize(ffn, Module::dense_ffn, inner);
  ffn.gemm("ffn down", Part::ffn, Module::dense_ffn, inner, h_);
  flow_.ffn_down();
  if (gather) {
    ffn.exchange("ffn reduce-scatter", Part::ffn_sum, OpKind::reduce_scatter, {ranks, 1}, [&](Count rows) {
      ExchangeShape s = sent(static_cast<double>(rows));
      s.rows /= ranks;
      return s;
    });
    ops_.exchange("gather group", Part::ffn_sum, OpKind::all_gather, {group, 1},
                  [&](Count rows) { return sent(static_cast<double>(rows) / group); });
  } else if (deal) {
    ffn.exchange("gather group", Part::ffn_sum, OpKind::all_gather, {group, 1},
                 [&](Count rows) { return sent(static_cast<double>(rows)); });
  } else {
    ffn.all_reduce("ffn all-reduce", Part::ffn_sum, ranks);
  }
  flow_.sum(flow_.down);
  residual(Part::ffn_sum, !gather && !deal && ranks > 1);
  flow_.act(Function::add, {flow_.middle, flow_.down, flow_.result});
  b_.end_block();
}

void Layer::expert_ffn(const FeedForward& f) {
  begin("expert FFN");
  add_residual_in(b_, c_, ops_, Part::ffn);
  if (separate_norm())
    ops_.elementwise("norm", Part::ffn, h_, 2 * static_cast<double>(h_) * act_ * passes().norm);
  quantize(ops_, Module::experts, h_);
  const bool other = c_.precision.of(Module::shared_experts).math != c_.precision.of(Module::experts).math;
  if (f.shared_experts > 0 && other) quantize(ops_, Module::shared_experts, h_);
  add_experts(b_, c_, f, p_, ops_);
  residual(Part::ffn_sum, p_.dp == 1 && !spreads_experts(p_) && p_.ep * p_.tpf > 1);
  b_.end_block();
}

}  // namespace shardline
