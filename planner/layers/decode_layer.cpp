#include "planner/layers/decode_layer.hpp"

#include <algorithm>
#include <cmath>

#include "planner/layers/context_step.hpp"
#include "planner/layers/decode_flow.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

Count share(Count whole, int parts) { return (whole + parts - 1) / parts; }
bool mla(const Case& c) { return c.model.attention.kind == AttentionKind::mla; }
int matrices(const Model& m) { return m.ffn_kind == FfnKind::gated ? 2 : 1; }  // up-projections
double activation(const Case& c) { return bytes_per_element(c.precision.activations); }

// Width of a rank's slice of the concatenated heads that enters the output projection.
Count out_proj_width(const Case& c, const Plan& p) {
  const Attention& a = c.model.attention;
  const Count width = static_cast<Count>(local_q_heads(c, p)) * (mla(c) ? a.v_dim : a.head_dim);
  return share(width, out_proj_ranks(p) / p.tpa);
}

// Heads whose W_UV the rank with most of them applies.
Count value_up_heads(const DecodeShare& s) {
  return s.value_up == ValueUp::after ? share(s.attended, s.sharers.size) : s.attended;
}

// New tokens of one rank: context-parallel ranks deal out the batch.
Count rows_of(const Plan& p) { return share(p.batch, p.cp); }

// Whether each rank of an attention group takes a part of the group's tokens through a dense FFN of its own.
bool deals_tokens(const Plan& p) {
  return strategy(p.strategy).weights == WeightSharing::stage && dense_ffn_ranks(p) < p.group();
}

// Rows of a dense FFN on one rank.
Count tokens_of_ffn(const Plan& p) {
  if (deals_tokens(p)) return share(rows_of(p), p.group());
  return rows_of(p) * (dense_ffn_ranks(p) > p.group() ? p.dp : 1);
}

// Kernels of their own where the engine does not fuse them into their neighbours.
void separate(ScheduleBuilder& b, const Case& c, const char* name, Part part, Count rows, Count width,
              Within within = Within::own) {
  if (c.kernels.separate_elementwise)
    b.elementwise(name, part, OpKind::elementwise, {rows, width, Bytes(0)}, 1, within);
}
// The residual addition and the norm behind half a layer ride on the all-reduce that ends it, as engines fuse
// them. Where none does (attention data parallelism, one rank), they are a kernel: two rows read, two
// written.
void add_norm(ScheduleBuilder& b, const Case& c, Part part, Count rows, bool rides) {
  if (rides || c.kernels.separate_elementwise) return;
  const Count h = c.model.hidden;
  b.elementwise("residual and norm", part, OpKind::elementwise,
                {rows, h, Bytes(static_cast<double>(4 * rows * h) * activation(c))});
}
void quantize(ScheduleBuilder& b, const Case& c, Module of, Count rows, Count width) {
  if (bytes_per_element(c.precision.of(of).math) < activation(c))
    separate(b, c, "quantize", Part::ffn, rows, width, Within::gemm);
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
  return {heads, heads, {p.cp > 1 ? p.cp : p.kvp, p.tpa}, p.cp > 1 ? 1 : c.kv_block, ValueUp::before};
}

long long kv_tokens_on_fullest(const Case& c, const Plan& p) {
  const DecodeShare share = decode_share(c, p);
  return kv_tokens_on_shard(c.context, share.sharers.size, share.block, 0);
}

AttendDecodeShape decode_attend_shape(const Case& c, const Plan& p, Count requests) {
  const Attention& a = c.model.attention;
  AttendDecodeShape shape;
  shape.cache = mla(c) ? CacheRows::latent : CacheRows::heads;
  shape.q_heads = decode_share(c, p).attended;
  shape.kv_heads = mla(c) ? 1 : local_kv_heads(c, p);
  shape.qk_dim = mla(c) ? a.kv_lora_rank + a.rope_dim : a.head_dim;
  shape.v_dim = mla(c) ? a.kv_lora_rank : a.head_dim;
  shape.q_rows = requests;
  shape.pairs = shape.kv_rows = requests * kv_tokens_on_fullest(c, p);
  return shape;
}

Count kv_elements_per_token(const Case& c, const Plan& p) {
  const Attention& a = c.model.attention;
  if (mla(c)) return a.kv_lora_rank + a.rope_dim;
  return Count{2} * local_kv_heads(c, p) * a.head_dim;
}

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
  if (mla(c)) {
    const double q_dim = a.nope_dim + a.rope_dim;
    const double query = a.q_lora_rank > 0 ? h * a.q_lora_rank + a.q_lora_rank * q * q_dim : h * q * q_dim;
    w.attention = query + h * (a.kv_lora_rank + a.rope_dim) + q * a.nope_dim * a.kv_lora_rank +
                  static_cast<double>(value_up_heads(heads) * a.v_dim * a.kv_lora_rank);
  } else {
    w.attention = h * (q * a.head_dim + static_cast<double>(kv_elements_per_token(c, p)));
  }
  w.attention += static_cast<double>(out_proj_width(c, p)) * h;
  const double up = matrices(m);
  w.dense_ffn = (up + 1) * h * static_cast<double>(share(m.ffn_inner, dense_ffn_ranks(p)));
  if (has_experts(m)) {
    const int shared_ranks = p.dp > 1 ? p.group() : p.cp > 1 ? p.tpa : p.ep * p.tpf;
    w.expert_ffn =
        (up + 1) * h *
        static_cast<double>(share(m.experts, p.ep) * share(m.expert_inner, p.tpf) +
                            share(static_cast<Count>(m.shared_experts) * m.expert_inner, shared_ranks));
    w.router = h * m.experts;
  }
  return w;
}

double partial_output_bytes(const Case& c, const Plan& p) {
  const Attention& a = c.model.attention;
  const bool latents = decode_share(c, p).value_up == ValueUp::after;
  const int width = !mla(c) ? a.head_dim : latents ? a.kv_lora_rank : a.v_dim;
  return width * activation(c) + 8;
}

Bytes activation_bytes(const Case& c, const Plan& p) {
  const Model& m = c.model;
  const double b = p.batch, all = b * p.dp;
  const double q = decode_share(c, p).attended;
  const double attend_width =
      mla(c) ? q * (2.0 * m.attention.kv_lora_rank + m.attention.rope_dim) : 2.0 * q * m.attention.head_dim;
  const auto dense_width = static_cast<double>(2 * share(m.ffn_inner, dense_ffn_ranks(p)));
  double widest = std::max(b * attend_width, static_cast<double>(tokens_of_ffn(p)) * dense_width);
  if (has_experts(m)) {
    widest = std::max(widest, c.routing->pairs(p.ep, static_cast<long long>(all)) * 2 *
                                  static_cast<double>(share(m.expert_inner, p.tpf) + m.hidden));
  }
  const double head = all * static_cast<double>(share(m.vocab, p.ranks_per_stage()));
  return Bytes(activation(c) * (2 * all * m.hidden + std::max(widest, head)));
}

Bytes buffer_bytes(const Case& c, const Plan& p) {
  const double b = p.batch, all = b * p.dp;
  double largest = 0;
  if (p.ranks_per_stage() > 1 || p.pp > 1) largest = b * c.model.hidden * activation(c);
  if (p.kvp > 1) {
    const double partial = b * local_q_heads(c, p) * partial_output_bytes(c, p);
    const bool gathered = strategy(p.strategy).partials == PartialOutputs::all_gather;
    largest = std::max(largest, gathered ? partial * p.kvp : partial);
  }
  if (const auto own = strategy(p.strategy).decode_buffers) largest = std::max(largest, own(c, p).value);
  if (p.dp > 1) largest = std::max(largest, all * c.model.hidden * activation(c));
  if (p.cp > 1) {
    // Queries of the next iteration, and the partial outputs of all.
    const LocalHeads h = decode_heads(c, p);
    const double partials = p.cp * (h.v * activation(c) + 4.0);
    largest = std::max(largest, static_cast<double>(rows_of(p) * h.q) * (h.qk * activation(c) + partials));
  }
  return Bytes(2 * largest);  // send and receive
}

void add_qkv(ScheduleBuilder& b, const Case& c, const Plan& p) {
  const Attention& a = c.model.attention;
  const ModuleType t = c.precision.of(Module::attention);
  const Count rows = rows_of(p), h = c.model.hidden, q = decode_share(c, p).projected;
  separate(b, c, "norm", Part::qkv, rows, h);
  if (!mla(c)) {
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
  b.gemm("q absorb", Part::qkv, t.weights, t.math, BatchedGemmShape{rows, a.nope_dim, a.kv_lora_rank, q, 1});
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
    if (mla(c_) && share_.value_up == ValueUp::after) {
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
    if (!mla(c_)) {
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
    return b_.gemm("value up", Part::attention, t.weights, t.math,
                   BatchedGemmShape{requests, a.kv_lora_rank, a.v_dim, heads, chunks}, launches);
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
  const Count rows = rows_of(p), h = c.model.hidden;
  const ModuleType t = c.precision.of(Module::attention);
  b.gemm("out projection", Part::out_proj, t.weights, t.math, GemmShape{rows, out_proj_width(c, p), h});
  b.exchange("attention all-reduce", Part::attention_sum, OpKind::all_reduce, {out_proj_ranks(p), 1},
             Bytes(static_cast<double>(rows * h) * activation(c)));
  separate(b, c, "residual", Part::attention_sum, rows, h);
  add_norm(b, c, Part::attention_sum, rows, out_proj_ranks(p) > 1);
}

void add_dense_ffn(ScheduleBuilder& b, const Case& c, const Plan& p) {
  const ModuleType t = c.precision.of(Module::dense_ffn);
  const int ranks = dense_ffn_ranks(p);
  const bool gather = ranks > p.group();  // spans attention groups: tokens of all of them are needed
  const bool deal = deals_tokens(p);      // every rank has all tokens of its group, and takes its part
  const Count rows = tokens_of_ffn(p), h = c.model.hidden, inner = share(c.model.ffn_inner, ranks);
  const Bytes all_tokens(static_cast<double>(rows * h) * activation(c));
  const Bytes group_tokens(static_cast<double>(p.batch * h) * activation(c));
  separate(b, c, "norm", Part::ffn, rows, h);
  quantize(b, c, Module::dense_ffn, rows, h);
  // Tokens are rows: an engine's own kernels handle them one by one.
  const auto sent = [&](Bytes bytes, double tokens) { return ExchangeShape{bytes, tokens}; };
  const Dtype type = c.precision.activations;
  if (gather) {
    b.exchange("gather tokens", Part::ffn_sum, OpKind::all_gather, {p.dp, p.group()},
               sent(group_tokens, p.batch), type);
  }
  b.gemm("ffn up", Part::ffn, t.weights, t.math, GemmShape{rows, h, matrices(c.model) * inner});
  b.elementwise("ffn activation", Part::ffn, OpKind::elementwise, {rows, inner, Bytes(0)});
  quantize(b, c, Module::dense_ffn, rows, inner);
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
  separate(b, c, "residual", Part::ffn_sum, rows, h);
  add_norm(b, c, Part::ffn_sum, rows_of(p), !gather && !deal && ranks > 1);
}

void add_expert_ffn(ScheduleBuilder& b, const Case& c, const Plan& p) {
  const Model& m = c.model;
  const ModuleType t = c.precision.of(Module::experts), gate = c.precision.of(Module::router);
  const Dtype dispatched = c.precision.dispatch;
  const Count h = m.hidden, own = rows_of(p), up = matrices(m);
  const Count all = own * p.dp;
  const double distinct = c.routing->distinct_experts(p.ep, all), pairs = c.routing->pairs(p.ep, all);
  const Count inner = share(m.expert_inner, p.tpf);
  const int shared_ranks = p.dp > 1 ? p.group() : p.ep * p.tpf;
  const Count shared = share(static_cast<Count>(m.shared_experts) * m.expert_inner, shared_ranks);
  separate(b, c, "norm", Part::ffn, own, h);
  quantize(b, c, Module::experts, own, h);
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
  experts.held = share(m.experts, p.ep);
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
    routed.bytes = Bytes(sent * activation(c));
    b.route("combine", OpKind::combine, {p.ranks_per_stage(), 1}, routed, c.precision.activations);
    b.exchange("gather group", Part::ffn_sum, OpKind::all_gather, {p.group(), 1},
               ExchangeShape{Bytes(per_rank * static_cast<double>(h) * activation(c)), per_rank},
               c.precision.activations);
  } else {
    b.exchange("ffn all-reduce", Part::ffn_sum, OpKind::all_reduce, {p.ep * p.tpf, 1},
               Bytes(static_cast<double>(own * h) * activation(c)));
  }
  add_norm(b, c, Part::ffn_sum, own, p.dp == 1 && p.ep * p.tpf > 1);
}

}  // namespace shardline
