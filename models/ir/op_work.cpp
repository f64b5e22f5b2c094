// What an op computes and moves, by the geometry of its shape. models/README.md [G1]-[G5], [G8], [G9].
#include "models/ir/schedule.hpp"

namespace shardline {

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;  // which clang before 17 does not deduce itself

double product(Count a, Count b, Count c) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}
// Decay, correction (two products with the key) and reading; a scan has the products of its chunks beside it.
double state_flops(const RecurrentShape& s) {
  if (s.decay == StateDecay::added) {
    // Decay, what is added, and reading; products C B are those of a group, what they weigh of each head.
    const double chunk = s.prompts ? product(2 * kMambaChunk, s.key_heads, s.key_dim) +
                                         product(2 * kMambaChunk, s.value_heads, s.value_dim)
                                   : 0;
    return static_cast<double>(s.rows) * (6 * static_cast<double>(s.state()) + chunk);
  }
  const double chunk = s.prompts ? product(2 * kScanChunk, s.value_heads, s.key_dim + s.value_dim) : 0;
  return static_cast<double>(s.rows) * (8 * static_cast<double>(s.state()) + chunk);
}
// Numbers of a row's mixture before a sublayer: a weight of each stream, one of its output, a square matrix.
Count mixtures(const MixShape& m) { return m.streams * (m.streams + 2); }
double mix_flops(const MixShape& m) {
  // Their product and the mean of the streams; behind a sublayer the square matrix and the output's weights.
  return product(2 * m.rows, m.streams * m.hidden, m.before ? mixtures(m) + 1 : m.streams + 1);
}
double attention_flops(const auto& a) { return product(2 * a.pairs, a.q_heads, a.qk_dim + a.v_dim); }

}  // namespace

Flops flops(const PricedOp& op) {
  if (op.kind == OpKind::recur) return Flops(state_flops(std::get<RecurrentShape>(op.shape)));
  return Flops(std::visit(
      Overloaded{[](const GemmShape& g) { return 2 * product(g.rows, g.k, g.n); },
                 [](const BatchedGemmShape& g) { return 2 * product(g.rows * g.matrices, g.k, g.n); },
                 [](const GroupedGemmShape& g) { return 2 * g.pairs * product(1, g.k, g.n); },
                 [](const AttendPrefillShape& a) { return attention_flops(a); },
                 [](const AttendDecodeShape& a) { return attention_flops(a); },
                 [](const AttendSparseShape& a) { return attention_flops(a); },
                 [](const IndexLogitsShape& i) { return 2 * product(i.pairs, i.heads, i.dim); },
                 [](const MixShape& m) { return mix_flops(m); }, [](const auto&) { return 0.0; }},
      op.shape));
}

Flops exponentials(const PricedOp& op) {
  return Flops(
      std::visit(Overloaded{[](const AttendPrefillShape& a) { return product(a.pairs, a.q_heads, 1); },
                            [](const AttendDecodeShape& a) { return product(a.pairs, a.q_heads, 1); },
                            [](const AttendSparseShape& a) { return product(a.pairs, a.q_heads, 1); },
                            [](const auto&) { return 0.0; }},
                 op.shape));
}

Bytes weight_bytes(const PricedOp& op) {
  return bytes_per_element(op.dtype) *
         Bytes(std::visit(
             Overloaded{
                 [](const GemmShape& g) { return product(1, g.k, g.n); },
                 [](const BatchedGemmShape& g) {
                   return product(g.matrices, g.k, g.n) / static_cast<double>(g.parts);
                 },
                 [](const GroupedGemmShape& g) { return g.active * product(1, g.k, g.n); },
                 [](const MixShape& m) { return m.before ? product(mixtures(m), m.streams, m.hidden) : 0.0; },
                 [](const auto&) { return 0.0; }},
             op.shape));
}

Bytes score_bytes(const PricedOp& op) {
  return 4 * Bytes(std::visit(Overloaded{[](const IndexLogitsShape& i) {
                                           // Of blocks the highest score of each head.
                                           return static_cast<double>(i.pairs) *
                                                  (i.block > 1 ? static_cast<double>(i.heads) /
                                                                     static_cast<double>(i.block)
                                                               : 1);
                                         },
                                         [](const TopKShape& k) { return static_cast<double>(k.scores); },
                                         [](const auto&) { return 0.0; }},
                              op.shape));
}

Bytes token_bytes(const PricedOp& op) {
  constexpr Count kNumber = 2;
  if (op.kind == OpKind::mix_streams) {  // all streams are read; one is written, or read and all are written
    const auto& m = std::get<MixShape>(op.shape);
    return Bytes(product(kNumber * m.rows, m.hidden, (m.before ? m.streams : 2 * m.streams) + 1));
  }
  if (!is_recurrent(op.kind)) return Bytes(0);
  const auto& s = std::get<RecurrentShape>(op.shape);
  const Count out = op.kind == OpKind::convolve ? s.channels() : s.value_heads * s.value_dim;
  return Bytes(product(kNumber, s.rows, s.channels() + out));
}

Bytes kv_bytes(const PricedOp& op) {
  if (is_recurrent(op.kind)) {
    constexpr Count kConvolved = 2;  // BF16, whatever the state's type
    const auto& s = std::get<RecurrentShape>(op.shape);
    // The last taps - 1 rows behind every state that is written; those of several overlap.
    const Count kept = 2 * (s.taps - 1) + s.states - 1;
    return Bytes(op.kind == OpKind::convolve
                     ? product(kConvolved * s.requests, s.channels(), kept)
                     : product((1 + s.states) * s.requests, s.state(), s.number_bytes));
  }
  // Rows of sparse attention and index keys have scales among them: their bytes are not elements times a
  // type.
  if (op.kind == OpKind::index_logits) {
    const auto& i = std::get<IndexLogitsShape>(op.shape);
    return Bytes(product(i.keys, i.key_bytes, 1));
  }
  if (op.kind == OpKind::attend_sparse) {
    const auto& a = std::get<AttendSparseShape>(op.shape);
    return Bytes(product(a.kv_rows, a.row_bytes, 1));
  }
  return bytes_per_element(op.dtype) *
         Bytes(std::visit(
             Overloaded{[](const AttendPrefillShape& a) { return product(a.kv_rows, kv_elements(a), 1); },
                        [](const AttendDecodeShape& a) { return product(a.kv_rows, kv_elements(a), 1); },
                        [](const auto&) { return 0.0; }},
             op.shape));
}

Bytes message_bytes(const PricedOp& op) {
  return std::visit(
      Overloaded{[](const ExchangeShape& e) { return e.bytes; }, [](const RoutedShape& r) { return r.bytes; },
                 [](const auto&) { return Bytes(0); }},
      op.shape);
}

}  // namespace shardline
