// Single ops, as schedules hold them, for the tests of what they cost.
#pragma once

#include <cmath>
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

inline Op gemm_op(GemmShape shape, Dtype weights, Dtype math, double launches = 1, Part part = Part::ffn) {
  return only_op([&](ScheduleBuilder& b) { b.gemm("gemm", part, weights, math, shape, launches); });
}

/// One new token for each of `batch` sequences of `length` cached ones.
inline Op decode_op(double batch, double length, double heads_q, double heads_kv, double dim, Dtype kv,
                    double launches = 1) {
  AttendShape a{heads_q, dim, dim, batch * length, batch * length, 2 * heads_kv * dim, batch, 0};
  return only_op([&](ScheduleBuilder& b) { b.attend("attend", kv, Dtype::bf16, a, launches); });
}
inline Op mla_decode_op(double batch, double length, double heads, Dtype kv) {
  const AttendShape a{heads, 576, 512, batch * length, batch * length, 576, batch, 0};
  return only_op([&](ScheduleBuilder& b) { b.attend("attend", kv, Dtype::bf16, a); });
}

/// Whole sequences of `rows` tokens.
inline AttendShape whole_sequences(double batch, double rows, double heads_q, double heads_kv, double qk,
                                   double v) {
  AttendShape a;
  a.q_heads = heads_q;
  a.qk_dim = qk;
  a.v_dim = v;
  a.pairs = batch * rows * (rows + 1) / 2;
  a.q_rows = a.kv_rows = batch * rows;
  a.kv_elements = heads_kv * (qk + v);
  a.tiles = batch * std::ceil(rows / kTileRows);
  a.whole = true;
  return a;
}
inline Op prefill_op(const AttendShape& shape, Dtype kv, Dtype math) {
  return only_op([&](ScheduleBuilder& b) { b.attend("attend", kv, math, shape); });
}

/// Up- or down-projection of `held` experts; `pairs` rows of (token, expert) that visit `distinct` of them.
inline Op experts_op(bool up, ExpertShape e, double pairs, double distinct, Dtype weights, Dtype math) {
  const double wide = (e.matrices - 1) * e.inner;
  const GemmShape s =
      up ? GemmShape{pairs, e.hidden, wide, distinct, e} : GemmShape{pairs, e.inner, e.hidden, distinct, e};
  return gemm_op(s, weights, math);
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
  ExchangeShape s;
  s.bytes = bytes;
  return exchange_op(kind, group, s);
}
/// Tokens to the ranks of their experts, or back.
inline Op routed_op(Group group, double rows, double width, double topk, double experts, bool back,
                    Dtype dispatched) {
  const double bytes = rows * width * topk * bytes_per_element(back ? Dtype::bf16 : dispatched);
  return exchange_op(OpKind::all_to_all, group, {bytes, rows, width, topk, experts, back, dispatched},
                     back ? Dtype::bf16 : dispatched);
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
