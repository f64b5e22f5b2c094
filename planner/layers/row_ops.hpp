// Ops whose shapes follow from the rows of a rank: new tokens of the requests of a step, whatever each does.
#pragma once

#include <span>
#include <vector>

#include "planner/layers/share.hpp"

namespace shardline {

/// Emits ops with one shape per class of ranks. Of a step with prefills, what an elementwise kernel moves is
/// charged [C4]; one that only decodes is replayed from a graph, and its elementwise kernels cost their
/// launch alone [P6].
class RowOps {
 public:
  /// `rows` of a rank of each class; outlive this.
  RowOps(ScheduleBuilder& b, const Case& c, std::span<const Count> rows)
      : b_(b), c_(c), rows_(rows), charged_(has_prompts(c)) {}

  std::span<const Count> rows() const { return rows_; }
  /// Whether norms, residual additions and quantization are kernels of their own.
  bool separate() const { return charged_ || c_.kernels.separate_elementwise; }

  OpIndex gemm(const char* name, Part part, Module of, Count k, Count n, double launches = 1) const {
    const ModuleType t = c_.precision.of(of);
    return each(
        [&](Count rows) {
          return GemmShape{rows, k, n};
        },
        [&](const GemmShape& s) { return b_.gemm(name, part, t.weights, t.math, s, launches); });
  }
  /// `bytes` that one row makes the kernel read and write.
  OpIndex elementwise(const char* name, Part part, Count width, double bytes,
                      Within within = Within::own) const {
    return each(
        [&](Count rows) {
          return ElementwiseShape{rows, width, traffic(static_cast<double>(rows) * bytes)};
        },
        [&](const ElementwiseShape& s) {
          return b_.elementwise(name, part, OpKind::elementwise, s, 1, within);
        });
  }
  /// What is charged of the bytes that an elementwise kernel moves.
  Bytes traffic(double bytes) const { return charged_ ? Bytes(bytes) : Bytes(0); }

  /// A collective whose shape follows from the rows: nothing over one rank.
  template <class ShapeOfRows>
  void exchange(const char* name, Part part, OpKind kind, Group group, ShapeOfRows shape) const {
    if (group.size == 1) return;
    each(shape, [&](const ExchangeShape& s) {
      return b_.exchange(name, part, kind, group, s, c_.precision.activations);
    });
  }
  /// The same of the activations of all rows, by a library.
  void all_reduce(const char* name, Part part, int ranks) const {
    exchange(name, part, OpKind::all_reduce, {ranks, 1},
             [&](Count rows) { return ExchangeShape{activations(static_cast<double>(rows))}; });
  }
  /// Of `rows` tokens.
  Bytes activations(double rows) const {
    return Bytes(rows * static_cast<double>(c_.model.hidden) * activation_size(c_));
  }

  /// `add` adds an op with the shape of the first class and returns it; the others' follow.
  template <class ShapeOfRows, class Add>
  OpIndex each(ShapeOfRows shape, Add add) const {
    const OpIndex op = add(shape(rows_.front()));
    if (rows_.size() > 1) {
      thread_local std::vector<Shape> shapes;
      shapes.clear();
      for (const Count rows : rows_) shapes.emplace_back(shape(rows));
      b_.vary(shapes);
    }
    return op;
  }

 private:
  ScheduleBuilder& b_;
  const Case& c_;
  const std::span<const Count> rows_;
  const bool charged_;
};

}  // namespace shardline
