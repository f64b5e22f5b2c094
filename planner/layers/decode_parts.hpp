// What the pieces of a decode layer have in common: rows and shares of one rank, and kernels that engines
// fuse or not. For decode_layer.cpp and decode_ffn.cpp.
#pragma once

#include "planner/layers/decode_layer.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

inline Count rank_share(Count whole, int parts) { return (whole + parts - 1) / parts; }
inline int up_projections(const Model& m) { return m.ffn_kind == FfnKind::gated ? 2 : 1; }  // up-projections
inline double activation_size(const Case& c) { return bytes_per_element(c.precision.activations); }

// New tokens of one rank: context-parallel ranks deal out the batch.
inline Count token_rows(const Plan& p) { return rank_share(p.batch, p.cp); }

// Whether each rank of an attention group takes a part of the group's tokens through a dense FFN of its own.
inline bool deals_tokens(const Plan& p) {
  return strategy(p.strategy).weights == WeightSharing::stage && dense_ffn_ranks(p) < p.group();
}

// Rows of a dense FFN on one rank.
inline Count ffn_rows(const Plan& p) {
  if (deals_tokens(p)) return rank_share(token_rows(p), p.group());
  return token_rows(p) * (dense_ffn_ranks(p) > p.group() ? p.dp : 1);
}

// Kernels of their own where the engine does not fuse them into their neighbours.
inline void add_separate(ScheduleBuilder& b, const Case& c, const char* name, Part part, Count rows,
                         Count width, Within within = Within::own) {
  if (c.kernels.separate_elementwise)
    b.elementwise(name, part, OpKind::elementwise, {rows, width, Bytes(0)}, 1, within);
}
// The residual addition and the norm behind half a layer ride on the all-reduce that ends it, as engines fuse
// them. Where none does (attention data parallelism, one rank), they are a kernel: two rows read, two
// written.
inline void add_norm(ScheduleBuilder& b, const Case& c, Part part, Count rows, bool rides) {
  if (rides || c.kernels.separate_elementwise) return;
  const Count h = c.model.hidden;
  b.elementwise("residual and norm", part, OpKind::elementwise,
                {rows, h, Bytes(static_cast<double>(4 * rows * h) * activation_size(c))});
}
inline void add_quantize(ScheduleBuilder& b, const Case& c, Module of, Count rows, Count width) {
  if (bytes_per_element(c.precision.of(of).math) < activation_size(c))
    add_separate(b, c, "quantize", Part::ffn, rows, width, Within::gemm);
}

}  // namespace shardline
