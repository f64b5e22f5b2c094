#include "planner/layers/streams.hpp"

namespace shardline {

namespace {

Dtype mixing_math(const Case& c) {
  const auto has = [&](Dtype t) {
    return c.system.device.peak[static_cast<std::size_t>(t)] > FlopsPerSecond(0);
  };
  return has(Dtype::bf16) ? Dtype::bf16 : c.precision.math;
}

// Sums of layers that a sublayer weighs, the mean over all sublayers: the embedding, the sums of whole blocks
// before, and of its own block what there is, which the first attention of a block lacks. arXiv 2607.24653,
// section 2.2, Equations 8 to 10.
double weighed_sums(const Model& m) {
  const int layers = m.layers(), block = m.residual.block;
  double sum = 0;
  for (int layer = 0; layer < layers; ++layer)
    sum += 2 * (1.0 + layer / block) + (layer % block == 0 ? 1 : 2);
  return sum / (2.0 * layers);
}

}  // namespace

Count residual_rows(const Model& m) {
  if (m.residual.block > 0) return 1 + rank_share(m.layers(), m.residual.block);
  return m.residual.streams;
}

// transformers models/deepseek_v4/modular_deepseek_v4.py, DeepseekV4HyperConnection: `fn` in float32.
Bytes residual_weights(const Case& c) {
  const double n = c.model.residual.streams, h = c.model.hidden;
  if (c.model.residual.block > 0) return Bytes(2 * h * activation_size(c));
  return n > 1 ? Bytes(bytes_per_element(Dtype::fp32) * n * (n + 2) * n * h) : Bytes(0);
}

void add_residual_in(ScheduleBuilder& b, const Case& c, const RowOps& ops, Part part) {
  const Residual& r = c.model.residual;
  if (r.plain()) return;
  const Count h = c.model.hidden;
  const double row = static_cast<double>(h) * activation_size(c);
  if (r.streams > 1) {
    ops.each(
        [&](Count rows) {
          return MixShape{rows, h, r.streams, true};
        },
        [&](const MixShape& s) { return b.mix("mix streams", part, mixing_math(c), s); });
    ops.elementwise("norm", part, h, 2 * row * c.system.runtime.passes.norm);
    return;
  }
  // Their norms, products with the query, and weighed mean, in one kernel that reads them once.
  const double bytes = (weighed_sums(c.model) + 1) * row;
  ops.each(
      [&](Count rows) {
        return ElementwiseShape{rows, h, Bytes(static_cast<double>(rows) * bytes)};
      },
      [&](const ElementwiseShape& s) { return b.elementwise("weigh sums", part, OpKind::elementwise, s); });
}

bool add_residual_out(ScheduleBuilder& b, const Case& c, const RowOps& ops, Part part) {
  const Residual& r = c.model.residual;
  if (r.plain()) return false;
  const Count h = c.model.hidden;
  if (r.streams > 1) {
    ops.each(
        [&](Count rows) {
          return MixShape{rows, h, r.streams, false};
        },
        [&](const MixShape& s) { return b.mix("join streams", part, mixing_math(c), s); });
    return true;
  }
  const double bytes = 3 * static_cast<double>(h) * activation_size(c);  // output and sum, and the sum again
  ops.each(
      [&](Count rows) {
        return ElementwiseShape{rows, h, Bytes(static_cast<double>(rows) * bytes)};
      },
      [&](const ElementwiseShape& s) { return b.elementwise("add to sum", part, OpKind::elementwise, s); });
  return true;
}

// Streams are weighed by a narrower matrix than before a layer, and not mixed: charged as if they were.
void add_residual_end(ScheduleBuilder& b, const Case& c, Count rows) {
  const Residual& r = c.model.residual;
  if (r.streams > 1)
    b.mix("mix streams", Part::head, mixing_math(c), MixShape{rows, c.model.hidden, r.streams, true});
  else if (r.block > 0)
    b.elementwise("weigh sums", Part::head, OpKind::elementwise,
                  {rows, c.model.hidden,
                   Bytes(static_cast<double>(rows * (residual_rows(c.model) + 1) * c.model.hidden) *
                         activation_size(c))});
}

}  // namespace shardline
