// Single ops, as schedules hold them, for the tests of what they cost.
#pragma once

#include <string>
#include <vector>

#include "hardware/cost/kernel_cost.hpp"
#include "tests/hardware/support.hpp"

namespace shardline::testing {

/// The only op of a schedule that `add` builds.
template <class Add>
Op only_op(Add add) {
  Schedule s;
  ScheduleBuilder b(s);
  b.begin_block("block");
  add(b);
  b.run({b.end_block()});
  b.end_stage();
  return s.ops.front();
}

inline Op gemm_op(GemmShape shape, Dtype weights, Dtype math, double launches = 1) {
  return only_op([&](ScheduleBuilder& b) { b.gemm("gemm", Part::ffn, weights, math, shape, launches); });
}
inline Op batched_op(BatchedGemmShape shape, Dtype weights, Dtype math, double launches = 1) {
  return only_op([&](ScheduleBuilder& b) { b.gemm("gemm", Part::qkv, weights, math, shape, launches); });
}

/// One new token for each of `batch` sequences of `length` cached ones.
inline AttendDecodeShape decode_shape(Count batch, Count length) {
  AttendDecodeShape a;
  a.pairs = a.kv_rows = batch * length;
  a.q_rows = batch;
  return a;
}
inline Op decode_op(Count batch, Count length, Count heads_q, Count heads_kv, Count dim, Dtype kv,
                    double launches = 1) {
  AttendDecodeShape a = decode_shape(batch, length);
  a.q_heads = heads_q;
  a.kv_heads = heads_kv;
  a.qk_dim = a.v_dim = dim;
  return only_op([&](ScheduleBuilder& b) { b.attend("attend", kv, Dtype::bf16, a, launches); });
}
inline Op mla_decode_op(Count batch, Count length, Count heads, Dtype kv, Count rank = 512,
                        Count rotary = 64) {
  AttendDecodeShape a = decode_shape(batch, length);
  a.cache = CacheRows::latent;
  a.q_heads = heads;
  a.kv_heads = 1;
  a.qk_dim = rank + rotary;
  a.v_dim = rank;
  return only_op([&](ScheduleBuilder& b) { b.attend("attend", kv, Dtype::bf16, a); });
}

/// Whole sequences of `rows` tokens.
inline AttendPrefillShape whole_sequences(Count batch, Count rows, Count heads_q, Count heads_kv, Count qk,
                                          Count v) {
  AttendPrefillShape a;
  a.q_heads = heads_q;
  a.kv_heads = heads_kv;
  a.qk_dim = qk;
  a.v_dim = v;
  a.pairs = batch * (rows * (rows + 1) / 2);
  a.q_rows = a.kv_rows = batch * rows;
  a.tiles = batch * ((rows + kTileRows - 1) / kTileRows);
  a.intervals = batch;
  a.whole = true;
  return a;
}
inline AttendPrefillShape mla_sequences(Count batch, Count rows, Count heads, Count qk = 192, Count v = 128) {
  AttendPrefillShape a = whole_sequences(batch, rows, heads, heads, qk, v);
  a.family = AttentionFamily::mla;
  return a;
}
inline Op prefill_op(const AttendPrefillShape& shape, Dtype kv, Dtype math) {
  return only_op([&](ScheduleBuilder& b) { b.attend("attend", kv, math, shape); });
}

/// Experts of a rank, `tokens` of the group before they are routed.
struct Experts {
  Count held = 0, tokens = 0, hidden = 0, inner = 0;
  bool gated = true;
  Count topk = 1;
};
/// Their up- or down-projection; `pairs` rows of (token, expert) that visit `active` of them.
inline Op experts_op(bool up, Experts e, double pairs, double active, Dtype weights, Dtype math) {
  const Count wide = (e.gated ? 2 : 1) * e.inner;
  const GroupedGemmShape s{pairs,
                           active,
                           up ? e.hidden : e.inner,
                           up ? wide : e.hidden,
                           e.held,
                           e.tokens,
                           e.hidden,
                           e.inner,
                           e.gated,
                           static_cast<double>(e.tokens * e.topk)};
  return only_op([&](ScheduleBuilder& b) { b.gemm("experts", Part::ffn, weights, math, s); });
}

inline Op elementwise_op(ElementwiseShape shape, double launches = 1, Within within = Within::own,
                         OpKind kind = OpKind::elementwise) {
  return only_op(
      [&](ScheduleBuilder& b) { b.elementwise("elementwise", Part::ffn, kind, shape, launches, within); });
}

inline Op exchange_op(OpKind kind, Group group, ExchangeShape shape, Dtype type = Dtype::bf16) {
  return only_op(
      [&](ScheduleBuilder& b) { b.exchange("exchange", Part::exchange, kind, group, shape, type); });
}
inline Op exchange_op(OpKind kind, Group group, double bytes) {
  return exchange_op(kind, group, ExchangeShape{Bytes(bytes)});
}
/// Tokens to the ranks of their experts, or back.
inline Op routed_op(Group group, double rows, Count width, Count topk, Count experts, bool back,
                    Dtype dispatched) {
  const Dtype type = back ? Dtype::bf16 : dispatched;
  const Bytes bytes(rows * static_cast<double>(width * topk) *
                    (back ? bytes_per_element(type) : bytes_per_dispatched_element(type)));
  return only_op([&](ScheduleBuilder& b) {
    b.route("exchange", back ? OpKind::combine : OpKind::dispatch, group,
            {bytes, rows, width, topk, experts, dispatched}, type);
  });
}

/// Systems of the catalogue with a calibration, their own or another's.
inline const std::vector<System>& calibrated_systems() {
  static const std::vector<System> all = [] {
    std::vector<System> found;
    for (const std::string& name : system_names(system_catalog())) {
      System s = catalog_system(name);
      if (!s.calibration.empty()) found.push_back(std::move(s));
    }
    return found;
  }();
  return all;
}

/// Without its calibration.
inline System by_parameters(System s) {
  s.calibration = {};
  return s;
}

}  // namespace shardline::testing
