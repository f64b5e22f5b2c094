// Linear attention by the delta rule: the short convolution, the state in chunks of tokens, the gated norm.
#include <algorithm>
#include <cmath>
#include <string>

#include "cuda_probe/execute/cpu/functions.hpp"

namespace shardline {

namespace {

constexpr std::size_t kConvolveRegions = 4, kDeltaRegions = 8, kGateRegions = 3, kSquareRegions = 4;
constexpr double kSmall = 1e-6;   // added to a mean of squares
constexpr std::size_t kSkip = 6;  // of state_space, which has one region more

std::string wanted(std::size_t count, const char* what) {
  return "has " + std::to_string(count) + " regions, but it takes " + what;
}

template <class Scalar>
std::string wrong_convolution(std::span<const View<Scalar>> v) {
  if (v.size() != kConvolveRegions && v.size() != kConvolveRegions + 1)
    return wanted(v.size(), "kept rows, rows, weight, convolved rows, or rows that it keeps, too");
  for (const View<Scalar>& one : v) {
    if (one.cols() != v[1].cols()) return "convolves rows and weights of unequal channels";
  }
  if (v[3].rows() != v[1].rows()) return "gives other rows than it convolves";
  if (v.size() > kConvolveRegions && v.back().rows() > v[0].rows() + v[1].rows())
    return "keeps more rows than there are";
  return v[0].rows() < v[2].rows() ? std::string() : "keeps as many rows as it has taps";
}

template <class Scalar>
std::string wrong_delta(const Action& a, std::span<const View<Scalar>> v) {
  const bool space = a.function == Function::state_space;
  if (v.size() != kDeltaRegions + (space ? 1 : 0))
    return wanted(v.size(),
                  space ? "C, B, inputs, decays, steps, state before, skip, state behind, outputs"
                        : "queries, keys, values, decays, betas, state before, state behind, outputs");
  if (a.heads < 1 || a.qk_dim < 1 || a.v_dim < 1 || a.chunk < 1)
    return "has a head count, width or chunk below 1";
  const Eigen::Index n = v[0].rows(), heads = a.heads, matrix = heads * a.qk_dim * a.v_dim;
  if (v[0].cols() != a.qk_dim || v[1].cols() != a.qk_dim || v[1].rows() != n)
    return "has queries and keys of other widths than one head's";
  const View<Scalar>&after = v[v.size() - 2], &outputs = v.back();
  if (v[2].rows() != n || v[2].cols() != heads * a.v_dim || outputs.rows() != n ||
      outputs.cols() != v[2].cols())
    return "has values or outputs that do not fit its heads";
  if (v[3].rows() != n || (v[3].cols() != heads && (space || v[3].cols() != heads * a.qk_dim)))
    return "has decays of neither heads nor channels";
  if (v[4].rows() != n || v[4].cols() != heads) return "has betas of other heads";
  if (v[5].cols() != matrix || after.cols() != matrix || v[5].rows() > 1)
    return "has states that do not fit its heads";
  if (after.rows() != 1 && (after.rows() != n || a.chunk != 1))
    return "leaves states of other tokens than the last, or of each, one by one";
  if (space && (v[kSkip].rows() != 1 || v[kSkip].cols() != heads)) return "has a skip of other heads";
  return {};
}

template <class Scalar>
std::string wrong_squares(const Action& a, std::span<const View<Scalar>> v) {
  const bool gates = a.function == Function::gated_squares;
  if (v.size() != (gates ? kSquareRegions : kGateRegions))
    return wanted(v.size(), gates ? "outputs, gates, gated outputs, sums of squares"
                                  : "rows, sums of squares, normed rows");
  const View<Scalar>&sums = gates ? v[3] : v[1], &result = v[2];
  if (sums.rows() != v[0].rows() || sums.cols() != 1) return "has sums of squares of other rows";
  if (result.rows() != v[0].rows() || result.cols() != v[0].cols() ||
      (gates && (v[1].rows() != v[0].rows() || v[1].cols() != v[0].cols())))
    return "needs equal shapes";
  return gates || a.v_dim >= v[0].cols() ? std::string() : "norms rows that are wider than the whole";
}

template <class Scalar>
using Vector = Eigen::Matrix<Scalar, Eigen::Dynamic, 1>;

/// Rows over their lengths, as flash-linear-attention has it (l2norm, eps 1e-6), times `scale`.
template <class Scalar>
Matrix<Scalar> directions(const View<Scalar>& x, Scalar scale) {
  Matrix<Scalar> out = x;
  for (Eigen::Index i = 0; i < out.rows(); ++i)
    out.row(i) *= scale / std::sqrt(out.row(i).squaredNorm() + Scalar(1e-6));
  return out;
}

/// One head's tokens of one chunk.
template <class Scalar>
struct Chunk {
  Matrix<Scalar> queries, keys, values;
  Matrix<Scalar> decayed;  // logarithm of what is left of a number of channel c behind token i: [i, c]
  Vector<Scalar> betas;
};

/// Product of row i of `a` and row j of the keys, each channel weighed with what is left of j behind i.
template <class Scalar>
Scalar left_of(const Chunk<Scalar>& c, const Matrix<Scalar>& a, Eigen::Index i, Eigen::Index j) {
  Scalar sum = 0;
  for (Eigen::Index x = 0; x < a.cols(); ++x)
    sum += a(i, x) * c.keys(j, x) * std::exp(c.decayed(i, x) - c.decayed(j, x));
  return sum;
}

/// What token i of the chunk reads of the state before it by row i of `a`.
template <class Scalar>
Matrix<Scalar> reads(const Chunk<Scalar>& c, const Matrix<Scalar>& a, Eigen::Index i,
                     const Matrix<Scalar>& state) {
  const Matrix<Scalar> row = a.row(i).array() * c.decayed.row(i).array().exp();
  return row.lazyProduct(state);
}

/// Outputs of the chunk; the state becomes that behind it.
template <class Scalar>
Matrix<Scalar> pass(const Chunk<Scalar>& c, Matrix<Scalar>& state) {
  const Eigen::Index n = c.keys.rows();
  // What token i writes at its key: what is left of its value where earlier ones have written.
  Matrix<Scalar> written(n, c.values.cols()), out(n, c.values.cols());
  for (Eigen::Index i = 0; i < n; ++i) {
    Matrix<Scalar> rest = c.values.row(i) - reads(c, c.keys, i, state);
    for (Eigen::Index j = 0; j < i; ++j) rest -= left_of(c, c.keys, i, j) * written.row(j);
    written.row(i) = c.betas(i) * rest;
    Matrix<Scalar> row = reads(c, c.queries, i, state);
    for (Eigen::Index j = 0; j <= i; ++j) row += left_of(c, c.queries, i, j) * written.row(j);
    out.row(i) = row;
  }
  for (Eigen::Index x = 0; x < state.rows(); ++x) {
    state.row(x) *= std::exp(c.decayed(n - 1, x));
    for (Eigen::Index j = 0; j < n; ++j)
      state.row(x) += c.keys(j, x) * std::exp(c.decayed(n - 1, x) - c.decayed(j, x)) * written.row(j);
  }
  return out;
}

/// The state of head `h` behind token `token`, which the next one's overwrites unless each has a row.
template <class Scalar>
void put_state(Matrix<Scalar>& states, Eigen::Index token, Eigen::Index h, const Matrix<Scalar>& state) {
  auto row = states.row(states.rows() == 1 ? 0 : token);
  for (Eigen::Index x = 0; x < state.rows(); ++x)
    row.segment((h * state.rows() + x) * state.cols(), state.cols()) = state.row(x);
}

}  // namespace

template <class Scalar>
std::string wrong_recurrence(const Action& a, std::span<const View<Scalar>> v) {
  if (a.function == Function::convolve) return wrong_convolution<Scalar>(v);
  if (is_recurrent(a.function)) return wrong_delta<Scalar>(a, v);
  if (a.function == Function::gated_squares || a.function == Function::norm_by_squares)
    return wrong_squares<Scalar>(a, v);
  if (v.size() != kGateRegions) return wanted(v.size(), "outputs, gates, gated outputs");
  for (const View<Scalar>& one : v) {
    if (one.rows() != v[0].rows() || one.cols() != v[0].cols()) return "needs equal shapes";
  }
  return a.v_dim > 0 && v[0].cols() % a.v_dim == 0 ? std::string() : "has a width that heads do not divide";
}

template <class Scalar>
void convolve(std::span<View<Scalar>> v) {
  const Eigen::Index kept = v[0].rows(), taps = v[2].rows();
  Matrix<Scalar> out = Matrix<Scalar>::Zero(v[3].rows(), v[3].cols());
  for (Eigen::Index i = 0; i < out.rows(); ++i) {
    for (Eigen::Index tap = 0; tap < taps; ++tap) {
      const Eigen::Index at = i - (taps - 1 - tap);  // before the new rows, where it is negative
      if (at >= 0)
        out.row(i).array() += v[2].row(tap).array() * v[1].row(at).array();
      else if (at + kept >= 0)
        out.row(i).array() += v[2].row(tap).array() * v[0].row(at + kept).array();
    }
  }
  v[3] = (out.array() / (Scalar(1) + (-out.array()).exp())).matrix();
  if (v.size() == kConvolveRegions) return;
  for (Eigen::Index i = 1; i <= v[4].rows(); ++i) {  // from the last one back
    const Eigen::Index at = v[1].rows() - i;
    v[4].row(v[4].rows() - i) = at >= 0 ? v[1].row(at) : v[0].row(at + kept);
  }
}

template <class Scalar>
void delta_rule(const Action& a, std::span<View<Scalar>> v) {
  const Eigen::Index n = v[0].rows(), k = a.qk_dim, w = a.v_dim;
  const bool by_channel = v[3].cols() != a.heads;
  const Matrix<Scalar> queries = directions<Scalar>(v[0], Scalar(1) / std::sqrt(static_cast<Scalar>(k))),
                       keys = directions<Scalar>(v[1], Scalar(1));
  Matrix<Scalar> states(v[6].rows(), v[6].cols()), out(n, v[7].cols());
  for (Eigen::Index h = 0; h < a.heads; ++h) {
    Matrix<Scalar> state = Matrix<Scalar>::Zero(k, w);
    for (Eigen::Index x = 0; x < k && v[5].rows() > 0; ++x)
      state.row(x) = v[5].row(0).segment((h * k + x) * w, w);
    for (Eigen::Index first = 0; first < n; first += a.chunk) {
      const Eigen::Index count = std::min<Eigen::Index>(a.chunk, n - first);
      Chunk<Scalar> c;
      c.queries = queries.middleRows(first, count);
      c.keys = keys.middleRows(first, count);
      c.values = v[2].block(first, h * w, count, w);
      c.betas = v[4].block(first, h, count, 1);
      c.decayed.resize(count, k);
      for (Eigen::Index i = 0; i < count; ++i) {
        for (Eigen::Index x = 0; x < k; ++x) {
          const Scalar one = v[3](first + i, by_channel ? h * k + x : h);
          c.decayed(i, x) = i == 0 ? one : c.decayed(i - 1, x) + one;
        }
      }
      out.block(first, h * w, count, w) = pass(c, state);
      put_state(states, first, h, state);
    }
  }
  v[6] = states;
  v[7] = out;
}

template <class Scalar>
void state_space(const Action& a, std::span<View<Scalar>> v) {
  const Eigen::Index n = v[0].rows(), k = a.qk_dim, w = a.v_dim;
  View<Scalar>&after = v[v.size() - 2], &outputs = v.back();
  Matrix<Scalar> states(after.rows(), after.cols()), out(n, outputs.cols());
  for (Eigen::Index h = 0; h < a.heads; ++h) {
    Matrix<Scalar> state = Matrix<Scalar>::Zero(k, w);
    for (Eigen::Index x = 0; x < k && v[5].rows() > 0; ++x)
      state.row(x) = v[5].row(0).segment((h * k + x) * w, w);
    for (Eigen::Index first = 0; first < n; first += a.chunk) {
      const Eigen::Index count = std::min<Eigen::Index>(a.chunk, n - first);
      const Matrix<Scalar> q = v[0].middleRows(first, count), keys = v[1].middleRows(first, count),
                           values = v[2].block(first, h * w, count, w);
      Vector<Scalar> left(count);  // logarithm of what is left of the state before the chunk
      for (Eigen::Index i = 0; i < count; ++i)
        left(i) = v[3](first + i, h) + (i > 0 ? left(i - 1) : Scalar(0));
      for (Eigen::Index i = 0; i < count; ++i) {
        Matrix<Scalar> row = std::exp(left(i)) * q.row(i).lazyProduct(state);
        for (Eigen::Index j = 0; j <= i; ++j)
          row += q.row(i).dot(keys.row(j)) * std::exp(left(i) - left(j)) * v[4](first + j, h) * values.row(j);
        out.row(first + i).segment(h * w, w) = row + v[kSkip](0, h) * values.row(i);
      }
      state *= std::exp(left(count - 1));
      for (Eigen::Index j = 0; j < count; ++j) {
        const Scalar weight = std::exp(left(count - 1) - left(j)) * v[4](first + j, h);
        for (Eigen::Index x = 0; x < k; ++x) state.row(x) += weight * keys(j, x) * values.row(j);
      }
      put_state(states, first, h, state);
    }
  }
  after = states;
  outputs = out;
}

template <class Scalar>
void gated_norm(const Action& a, std::span<View<Scalar>> v) {
  Matrix<Scalar> out = v[0];
  const Matrix<Scalar> logistic = Scalar(1) / (Scalar(1) + (-v[1].array()).exp());
  if (a.gate_first) out.array() *= v[1].array() * logistic.array();
  for (Eigen::Index i = 0; i < out.rows(); ++i) {
    for (Eigen::Index at = 0; at < out.cols(); at += a.v_dim) {
      auto head = out.row(i).segment(at, a.v_dim);
      head /= std::sqrt(head.squaredNorm() / static_cast<Scalar>(a.v_dim) + Scalar(kSmall));
    }
  }
  if (a.gate_first) {
    v[2] = out;
    return;
  }
  if (!a.logistic) out.array() *= v[1].array();
  v[2] = (out.array() * logistic.array()).matrix();
}

template <class Scalar>
void gated_squares(std::span<View<Scalar>> v) {
  const Matrix<Scalar> gated = (v[0].array() * v[1].array() / (Scalar(1) + (-v[1].array()).exp())).matrix();
  for (Eigen::Index i = 0; i < gated.rows(); ++i) v[3](i, 0) = gated.row(i).squaredNorm();
  v[2] = gated;
}

template <class Scalar>
void norm_by_squares(const Action& a, std::span<View<Scalar>> v) {
  for (Eigen::Index i = 0; i < v[0].rows(); ++i)
    v[2].row(i) = v[0].row(i) / std::sqrt(v[1](i, 0) / static_cast<Scalar>(a.v_dim) + Scalar(kSmall));
}

template std::string wrong_recurrence<double>(const Action&, std::span<const View<double>>);
template void convolve<double>(std::span<View<double>>);
template void delta_rule<double>(const Action&, std::span<View<double>>);
template void state_space<double>(const Action&, std::span<View<double>>);
template void gated_norm<double>(const Action&, std::span<View<double>>);
template void gated_squares<double>(std::span<View<double>>);
template void norm_by_squares<double>(const Action&, std::span<View<double>>);
template std::string wrong_recurrence<float>(const Action&, std::span<const View<float>>);
template void convolve<float>(std::span<View<float>>);
template void delta_rule<float>(const Action&, std::span<View<float>>);
template void state_space<float>(const Action&, std::span<View<float>>);
template void gated_norm<float>(const Action&, std::span<View<float>>);
template void gated_squares<float>(std::span<View<float>>);
template void norm_by_squares<float>(const Action&, std::span<View<float>>);

}  // namespace shardline
