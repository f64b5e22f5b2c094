#include "planner/layers/decode_layer.hpp"

#include <algorithm>
#include <cmath>

#include "planner/layers/context_step.hpp"
#include "planner/layers/decode_flow.hpp"
#include "planner/layers/decode_parts.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Width of a rank's slice of the concatenated heads that enters the output projection.
Count out_proj_width(const Case& c, const Plan& p) {
  const Attention& a = c.model.attention;
  const Count width = static_cast<Count>(local_q_heads(c, p)) * (has_latents(c) ? a.v_dim : a.head_dim);
  return rank_share(width, out_proj_ranks(p) / p.tpa);
}

// Heads whose W_UV the rank with most of them applies.
Count value_up_heads(const DecodeShare& s) {
  return s.value_up == ValueUp::after ? rank_share(s.attended, s.sharers.size) : s.attended;
}

}  // namespace

int local_q_heads(const Case& c, const Plan& p) { return (c.model.attention.q_heads + p.tpa - 1) / p.tpa; }

int local_kv_heads(const Case& c, const Plan& p) { return (c.model.attention.kv_heads + p.tpa - 1) / p.tpa; }

DecodeShare decode_share(const Case& c, const Plan& p) {
  const auto own = strategy(p.strategy).decode_share;
  return own ? own(c, p) : kvp_share(c, p);
}

DecodeShare kvp_share(const Case& c, const Plan& p) {
  const int heads = local_q_heads(c, p);
  return {heads, heads, {p.kvp, p.tpa}, c.kv_block, ValueUp::before};
}

long long kv_tokens_on_fullest(const Case& c, const Plan& p) {
  const DecodeShare share = decode_share(c, p);
  return kv_tokens_on_shard(c.context, share.sharers.size, share.block, 0);
}

AttendDecodeShape decode_attend_shape(const Case& c, const Plan& p, Count requests) {
  const LocalHeads h = decode_heads(c, p);
  AttendDecodeShape shape;
  shape.cache = h.cache;
  shape.q_heads = decode_share(c, p).attended;
  shape.kv_heads = h.kv;
  shape.qk_dim = h.qk;
  shape.v_dim = h.v;
  shape.q_rows = requests;
  shape.pairs = shape.kv_rows = requests * kv_tokens_on_fullest(c, p);
  return shape;
}

Count kv_elements_per_token(const Case& c, const Plan& p) { return count_of(decode_heads(c, p).kv_width()); }

int out_proj_ranks(const Plan& p) {
  return strategy(p.strategy).weights == WeightSharing::attention_tp ? p.tpa : p.group();
}

int dense_ffn_ranks(const Plan& p) {
  if (p.dense_tp > 0) return p.dense_tp;
  return strategy(p.strategy).weights == WeightSharing::attention_tp ? p.tpa : p.group();
}

LayerWeights layer_weights(const Case& c, const Plan& p) {
  const Model& m = c.model;
  const Attention& a = m.attention;
  const double h = m.hidden;
  const DecodeShare heads = decode_share(c, p);
  const double q = heads.projected;
  LayerWeights w;
  if (has_latents(c)) {
    const double q_dim = a.nope_dim + a.rope_dim;
    const double query = a.q_lora_rank > 0 ? h * a.q_lora_rank + a.q_lora_rank * q * q_dim : h * q * q_dim;
    w.attention = query + h * (a.kv_lora_rank + a.rope_dim) + q * a.nope_dim * a.kv_lora_rank +
                  static_cast<double>(value_up_heads(heads) * a.v_dim * a.kv_lora_rank);
  } else {
    w.attention = h * (q * a.head_dim + static_cast<double>(kv_elements_per_token(c, p)));
  }
  w.attention += static_cast<double>(out_proj_width(c, p)) * h;
  const double up = up_projections(m);
  w.dense_ffn = (up + 1) * h * static_cast<double>(rank_share(m.ffn_inner, dense_ffn_ranks(p)));
  if (has_experts(m)) {
    const int shared_ranks = p.dp > 1 ? p.group() : p.cp > 1 ? p.tpa : p.ep * p.tpf;
    w.expert_ffn =
        (up + 1) * h *
        static_cast<double>(rank_share(m.experts, p.ep) * rank_share(m.expert_inner, p.tpf) +
                            rank_share(static_cast<Count>(m.shared_experts) * m.expert_inner, shared_ranks));
    w.router = h * m.experts;
  }
  return w;
}

double partial_output_bytes(const Case& c, const Plan& p) {
  const Attention& a = c.model.attention;
  const bool latents = decode_share(c, p).value_up == ValueUp::after;
  const int width = !has_latents(c) ? a.head_dim : latents ? a.kv_lora_rank : a.v_dim;
  return width * activation_size(c) + 8;
}

Bytes activation_bytes(const Case& c, const Plan& p) {
  const Model& m = c.model;
  const double b = p.batch, all = b * p.dp;
  const double q = decode_share(c, p).attended;
  const double attend_width = has_latents(c) ? q * (2.0 * m.attention.kv_lora_rank + m.attention.rope_dim)
                                             : 2.0 * q * m.attention.head_dim;
  const auto dense_width = static_cast<double>(2 * rank_share(m.ffn_inner, dense_ffn_ranks(p)));
  double widest = std::max(b * attend_width, static_cast<double>(ffn_rows(p)) * dense_width);
  if (has_experts(m)) {
    widest = std::max(widest, c.routing->pairs(p.ep, static_cast<long long>(all)) * 2 *
                                  static_cast<double>(rank_share(m.expert_inner, p.tpf) + m.hidden));
  }
  const double head = all * static_cast<double>(rank_share(m.vocab, p.ranks_per_stage()));
  return Bytes(activation_size(c) * (2 * all * m.hidden + std::max(widest, head)));
}

Bytes buffer_bytes(const Case& c, const Plan& p) {
  const double b = p.batch, all = b * p.dp;
  double largest = 0;
  if (p.ranks_per_stage() > 1 || p.pp > 1) largest = b * c.model.hidden * activation_size(c);
  if (p.kvp > 1) {
    const double partial = b * local_q_heads(c, p) * partial_output_bytes(c, p);
    const bool gathered = strategy(p.strategy).partials == PartialOutputs::all_gather;
    largest = std::max(largest, gathered ? partial * p.kvp : partial);
  }
  if (const auto own = strategy(p.strategy).decode_buffers) largest = std::max(largest, own(c, p).value);
  if (p.dp > 1) largest = std::max(largest, all * c.model.hidden * activation_size(c));
  return Bytes(2 * largest);  // send and receive
}

void add_qkv(ScheduleBuilder& b, const Case& c, const Plan& p) {
  const Attention& a = c.model.attention;
  const ModuleType t = c.precision.of(Module::attention);
  const Count rows = token_rows(p), h = c.model.hidden, q = decode_share(c, p).projected;
  add_separate(b, c, "norm", Part::qkv, rows, h);
  if (!has_latents(c)) {
    const Count kv = kv_elements_per_token(c, p);
    b.gemm("qkv", Part::qkv, t.weights, t.math, GemmShape{rows, h, q * a.head_dim + kv});
    b.elementwise("rope and KV append", Part::qkv, OpKind::elementwise, {rows, q * a.head_dim + kv, Bytes(0)},
                  1, Within::decode_attention);
    return;
  }
  const Count q_dim = a.nope_dim + a.rope_dim, latent = a.kv_lora_rank + a.rope_dim;
  if (a.q_lora_rank > 0) {
    b.gemm("q and kv down", Part::qkv, t.weights, t.math, GemmShape{rows, h, a.q_lora_rank + latent});
    b.elementwise("q and kv norm", Part::qkv, OpKind::elementwise, {rows, a.q_lora_rank + latent, Bytes(0)});
    b.gemm("q up", Part::qkv, t.weights, t.math, GemmShape{rows, a.q_lora_rank, q * q_dim});
  } else {
    b.gemm("q and kv down", Part::qkv, t.weights, t.math, GemmShape{rows, h, q * q_dim + latent});
    b.elementwise("kv norm", Part::qkv, OpKind::elementwise, {rows, latent, Bytes(0)});
  }
  b.elementwise("rope", Part::qkv, OpKind::elementwise, {rows, q * a.rope_dim, Bytes(0)}, 1,
                Within::decode_attention);
  b.gemm("q absorb", Part::qkv, t.weights, t.math,
         BatchedGemmShape{LatentProduct::absorb_query, rows, a.nope_dim, a.kv_lora_rank, q, 1});
  b.elementwise("KV append", Part::qkv, OpKind::elementwise, {rows, latent, Bytes(0)}, 1,
                Within::decode_attention);
}

void add_attention(ScheduleBuilder& b, const Case& c, const Plan& p) {
  const Strategy& s = strategy(p.strategy);
  if (s.decode_attention) return s.decode_attention(b, c, p);
  add_kvp_attention(b, c, p,
                    s.partials == PartialOutputs::all_gather ? OpKind::all_gather : OpKind::all_to_all, 1);
}

namespace {

// One persistent kernel attends to all chunks and signals each: its launch is paid before the first, and
// W_UV, kept in L2, is read once.
class KvpAttention {
 public:
  KvpAttention(ScheduleBuilder& b, const Case& c, const Plan& p, OpKind exchange, int chunks)
      : b_(b),
        c_(c),
        p_(p),
        share_(decode_share(c, p)),
        heads_(share_.attended),
        exchange_(exchange),
        chunks_(chunks),
        shape_(decode_attend_shape(c, p, 1)),
        kv_tokens_(shape_.kv_rows),
        last_compute_(b.previous()),
        flow_(b, c, p, share_, 8) {
    shape_.kernel_rows = chunks > 1 ? p.batch : 0;
    shape_.kernel_parts = chunks;
  }

  void run() {
    for (int i = 0, first = 0, count = 0; i < chunks_; ++i, first += count) {
      count = p_.batch / chunks_ + (i < p_.batch % chunks_ ? 1 : 0);
      attend(i == 0, first, count);
      if (p_.kvp > 1) exchange(i == 0, first, count);
    }
    if (p_.kvp > 1) {
      // Fused with the receiving side of the exchange: no launch of its own.
      b_.elementwise("merge shards", Part::exchange, OpKind::merge,
                     {p_.batch, heads_ * shape_.v_dim, Bytes(0)}, 0);
      flow_.merge();
    }
    if (has_latents(c_) && share_.value_up == ValueUp::after) {
      value_up(p_.batch, value_up_heads(share_), 1, 1);
      flow_.value_up_after();
    }
    flow_.finish();
  }

 private:
  void attend(bool is_first, int first, int count) {
    const Count requests = count;
    const double launches = is_first ? 1 : 0;
    shape_.q_rows = requests;
    shape_.pairs = shape_.kv_rows = requests * kv_tokens_;
    if (!is_first) b_.after(std::span(&last_compute_, 1));
    last_compute_ = b_.attend("attend", c_.precision.kv, c_.precision.math, shape_, launches);
    flow_.attend(first, count);
    if (!has_latents(c_)) {
      last_compute_ = b_.elementwise("merge splits", Part::attention, OpKind::merge,
                                     {requests, heads_ * c_.model.attention.head_dim, Bytes(0)},
                                     c_.kernels.fused_split_merge ? 0 : launches, Within::decode_merge);
    } else if (share_.value_up == ValueUp::before) {
      last_compute_ = value_up(requests, heads_, chunks_, launches);
      flow_.value_up_before(first, count);
    }
  }

  OpIndex value_up(Count requests, Count heads, int chunks, double launches) {
    const Attention& a = c_.model.attention;
    const ModuleType t = c_.precision.of(Module::attention);
    return b_.gemm(
        "value up", Part::attention, t.weights, t.math,
        BatchedGemmShape{LatentProduct::expand_values, requests, a.kv_lora_rank, a.v_dim, heads, chunks},
        launches);
  }

  void exchange(bool is_first, int first, int count) {
    if (chunks_ > 1) {
      const OpIndex both[2] = {last_compute_, last_exchange_};
      b_.after(std::span(both, is_first ? 1 : 2));
    }
    const double per_request = static_cast<double>(heads_) * partial_output_bytes(c_, p_);
    const double wire = exchange_ == OpKind::all_to_all ? per_request * (p_.kvp - 1) / p_.kvp : per_request;
    ExchangeShape partials;
    partials.bytes = Bytes(static_cast<double>(count) * wire);
    partials.carrier = Carrier::engine;
    partials.rows = static_cast<double>(count);
    last_exchange_ = b_.exchange("exchange partial outputs", Part::exchange, exchange_, {p_.kvp, p_.tpa},
                                 partials, c_.precision.activations);
    flow_.exchange(exchange_, first, count);
  }

  ScheduleBuilder& b_;
  const Case& c_;
  const Plan& p_;
  const DecodeShare share_;
  const Count heads_;
  const OpKind exchange_;
  const int chunks_;
  AttendDecodeShape shape_;
  const Count kv_tokens_;  // of one request
  OpIndex last_compute_, last_exchange_ = 0;
  DecodeFlow flow_;
};

}  // namespace

void add_kvp_attention(ScheduleBuilder& b, const Case& c, const Plan& p, OpKind exchange, int chunks) {
  KvpAttention(b, c, p, exchange, chunks).run();
}

void add_out_proj(ScheduleBuilder& b, const Case& c, const Plan& p) {
  const Count rows = token_rows(p), h = c.model.hidden;
  const ModuleType t = c.precision.of(Module::attention);
  b.gemm("out projection", Part::out_proj, t.weights, t.math, GemmShape{rows, out_proj_width(c, p), h});
  b.exchange("attention all-reduce", Part::attention_sum, OpKind::all_reduce, {out_proj_ranks(p), 1},
             Bytes(static_cast<double>(rows * h) * activation_size(c)));
  add_separate(b, c, "residual", Part::attention_sum, rows, h);
  add_norm(b, c, Part::attention_sum, rows, out_proj_ranks(p) > 1);
}

}  // namespace shardline
