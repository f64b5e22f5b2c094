#include "cuda_probe/execute/cpu/functions.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "cuda_probe/execute/cpu/choice.hpp"
#include "cuda_probe/execute/cpu/places.hpp"

namespace shardline {

namespace {

constexpr Eigen::Index kQueryTile = 64;

template <class Scalar>
Matrix<Scalar> gather(const View<Scalar>& from, std::span<const Place> rows_of, Eigen::Index column,
                      Eigen::Index columns) {
  Matrix<Scalar> out(static_cast<Eigen::Index>(rows_of.size()), columns);
  for (std::size_t i = 0; i < rows_of.size(); ++i)
    out.row(static_cast<Eigen::Index>(i)) = from.row(rows_of[i].row).segment(column, columns);
  return out;
}

template <class Scalar>
using Strided = Eigen::Ref<Matrix<Scalar>, 0, Eigen::OuterStride<>>;
template <class Scalar>
using ConstStrided = Eigen::Ref<const Matrix<Scalar>, 0, Eigen::OuterStride<>>;

/// The one product of matrices: each further form of it costs the compiler a second or two.
template <class Scalar>
void product(const ConstStrided<Scalar>& a, const ConstStrided<Scalar>& b, Strided<Scalar> out) {
  out.noalias() = a * b;
}

/// Keys that a kernel takes from the cache for these queries: all, or those from the first to the last that
/// the queries of one interval see.
std::vector<Place> taken(std::vector<Place> keys, TokenView queries, std::int32_t request,
                         const Action& action) {
  if (!action.reach.local() || action.rectangle) return keys;
  std::erase_if(keys, [&](const Place& key) {
    return std::none_of(queries.begin(), queries.end(), [&](const Interval& q) {
      return q.request == request && q.size() > 0 && action.reach.first(q.begin) <= key.position &&
             key.position <= q.last();
    });
  });
  return keys;
}

/// One tile of queries of one head; the mask is applied, and its pairs counted, here. sink: of this head, or
/// -infinity.
template <class Scalar>
double attend_tile(std::span<const Place> queries, std::span<const Place> keys, const Action& a,
                   const Choice<Scalar>& chosen, const Matrix<Scalar>& q, const Matrix<Scalar>& k,
                   const Matrix<Scalar>& v, Scalar scale, Scalar sink, Matrix<Scalar>& out,
                   Eigen::Matrix<Scalar, Eigen::Dynamic, 1>& lse) {
  constexpr Scalar none = -std::numeric_limits<Scalar>::infinity();
  const Matrix<Scalar> transposed = k.transpose();
  Matrix<Scalar> scores(q.rows(), k.rows());
  product<Scalar>(q, transposed, scores);
  scores *= scale;
  double pairs = 0;
  for (Eigen::Index i = 0; i < scores.rows(); ++i) {
    Scalar high = sink;
    const std::int64_t at = queries[static_cast<std::size_t>(i)].position, first = a.reach.first(at),
                       end = keys_upto(a, at);
    const auto row = queries[static_cast<std::size_t>(i)].row;
    for (Eigen::Index j = 0; j < scores.cols(); ++j) {
      const std::int64_t key = keys[static_cast<std::size_t>(j)].position;
      if (key >= end || key < first || chosen.leaves_out(row, key)) {
        scores(i, j) = none;
      } else {
        ++pairs;
        // Not std::max: it would drop a NaN.
        if (!(scores(i, j) <= high)) high = scores(i, j);
      }
    }
    if (high == none) {
      scores.row(i).setZero();
      lse(i) = none;
      continue;
    }
    scores.row(i) = (scores.row(i).array() - high).exp();
    const Scalar sum = scores.row(i).sum() + std::exp(sink - high);
    scores.row(i) /= sum;
    lse(i) = high + std::log(sum);
  }
  product<Scalar>(scores, v, out);
  return pairs;
}

template <class Scalar>
void multiply(const View<Scalar>& a, const View<Scalar>& b, View<Scalar> out) {
  Matrix<Scalar> result(a.rows(), b.cols());  // `out` may be a part of either
  product<Scalar>(a, b, result);
  out = result;
}

bool same(auto& a, auto& b) { return a.rows() == b.rows() && a.cols() == b.cols(); }

std::string wanted(std::size_t count, const char* what) {
  return "has " + std::to_string(count) + " regions, but it takes " + what;
}

template <class Scalar>
std::string wrong_attend(const Action& a, TokenView queries, TokenView keys,
                         std::span<const View<Scalar>> v) {
  if (v.size() != kSinks && v.size() != kSinks + 1)
    return wanted(v.size(), "query, kv, output, lse and, where it has them, sinks");
  if (a.chosen && (v.size() != kSinks + 1 || v[kSinks].rows() != v[0].rows()))
    return "has no choice of keys for each of its queries";
  if (a.chosen && (a.block < 1 || a.kv_heads < 1 || v[kSinks].cols() % a.kv_heads != 0))
    return "has no choice of keys for each of its KV heads";
  if (a.heads < 1 || a.kv_heads < 1 || a.qk_dim < 1 || a.v_dim < 1)
    return "has a head count or width below 1";
  if (a.heads % a.kv_heads != 0) return "has KV heads that do not divide its query heads";
  if (a.cache == CacheRows::latent && a.v_dim > a.qk_dim)
    return "has latent values wider than the keys they are part of";
  if (a.ratio < 1) return "has rows of no tokens";
  if (a.reach.sized() && a.reach.tokens < 1) return "has a window or chunk of no tokens";
  if (v[0].cols() != a.heads * a.qk_dim) return "has a query region of the wrong width";
  if (v[1].cols() != kv_columns(a)) return "has a kv region of the wrong width";
  if (v[2].cols() != a.heads * a.v_dim) return "has an output region of the wrong width";
  if (v[3].cols() != a.heads) return "has an lse region of the wrong width";
  if (v[0].rows() != rows(queries)) return "has a query region and a query list of unequal rows";
  if (v[1].rows() != rows(keys)) return "has a kv region and a key list of unequal rows";
  if (v[2].rows() != v[0].rows() || v[3].rows() != v[0].rows()) return "gives other rows than it has queries";
  if (a.chosen) return {};
  if (v.size() > kSinks && v[kSinks].cols() != a.heads) return "has a sinks region of the wrong width";
  if (v.size() > kSinks && v[kSinks].rows() != 1) return "has sinks of other rows than one";
  return {};
}

template <class Scalar>
std::string wrong_merge(const Action& a, std::span<const View<Scalar>> v) {
  if (v.size() < 4 || v.size() % 2 != 0)
    return wanted(v.size(), "pairs of output and lse, the last its result");
  const View<Scalar>&output = v[v.size() - 2], &lse = v.back();
  if (lse.cols() != a.heads || output.cols() != lse.cols() * a.v_dim)
    return "has an lse of other heads than its output";
  for (std::size_t i = 0; i < v.size(); i += 2) {
    const bool weighed_only = v[i].cols() == 0 && i + 2 < v.size();
    if ((!weighed_only && !same(v[i], output)) || !same(v[i + 1], lse) || v[i].rows() != v[i + 1].rows())
      return "merges partial results of unequal shapes";
  }
  return {};
}

}  // namespace

template <class Scalar>
std::string wrong_shape(const Action& a, TokenView queries, TokenView keys, std::span<const View<Scalar>> v) {
  switch (a.function) {
    case Function::attend:
      return wrong_attend(a, queries, keys, v);
    case Function::merge:
      return wrong_merge(a, v);
    case Function::gemm:
      if (v.size() != 3) return wanted(v.size(), "input, weight, output");
      if (v[0].cols() != v[1].rows() || v[2].rows() != v[0].rows() || v[2].cols() != v[1].cols())
        return "multiplies matrices that do not fit";
      return {};
    case Function::gemm_per_head:
      if (v.size() != 3) return wanted(v.size(), "input, weight, output");
      if (a.heads < 1 || v[0].cols() != v[1].rows() || v[1].rows() % a.heads != 0 ||
          v[2].rows() != v[0].rows() || v[2].cols() != a.heads * v[1].cols())
        return "multiplies matrices that do not fit";
      return {};
    case Function::expand: {
      if (v.size() != 3) return wanted(v.size(), "latents, weight, keys and values");
      const Eigen::Index rope = v[0].cols() - v[1].rows(), plain = a.qk_dim - rope;
      if (a.heads < 1 || rope < 0 || plain < 0 || v[1].cols() != a.heads * (plain + a.v_dim) ||
          v[2].rows() != v[0].rows() || v[2].cols() != a.heads * (a.qk_dim + a.v_dim))
        return "expands latents that do not fit its weight or its heads";
      return {};
    }
    case Function::swiglu:
      if (v.size() != 2) return wanted(v.size(), "[gate, up], output");
      if (v[0].rows() != v[1].rows() || v[0].cols() != 2 * v[1].cols()) return "needs twice as many columns";
      return {};
    case Function::rms_norm:
    case Function::silu:
      if (v.size() != 2) return wanted(v.size(), "input, output");
      return same(v[0], v[1]) ? std::string() : "needs equal shapes";
    case Function::add:
      if (v.size() != 3) return wanted(v.size(), "a, b, output");
      return same(v[0], v[1]) && same(v[0], v[2]) ? std::string() : "needs equal shapes";
    case Function::compress:
      if (v.size() != 3) return wanted(v.size(), "scores, kv, kept kv");
      if (a.kv_heads < 1 || v[0].cols() != a.kv_heads) return "has scores of other heads";
      if (v[1].cols() != a.kv_heads * (a.qk_dim + a.v_dim) || v[2].cols() != v[1].cols())
        return "has a kv region of the wrong width";
      if (v[0].rows() != v[1].rows()) return "has other scores than rows";
      return v[2].rows() <= v[1].rows() ? std::string() : "keeps more rows than there are";
    case Function::index_scores:
    case Function::block_scores:
    case Function::choose:
    case Function::choose_among:
    case Function::make_rows:
      return wrong_choice(a, queries, keys, v);
    case Function::convolve:
    case Function::delta_rule:
    case Function::state_space:
    case Function::gated_norm:
    case Function::gated_squares:
    case Function::norm_by_squares:
      return wrong_recurrence(a, v);
  }
  return "is of no known function";
}

template <class Scalar>
Attended attend(const Action& a, TokenView query_list, TokenView key_list, double scale,
                std::span<View<Scalar>> v) {
  Matrix<Scalar> output = Matrix<Scalar>::Zero(v[2].rows(), v[2].cols());
  Matrix<Scalar> lse =
      Matrix<Scalar>::Constant(v[3].rows(), v[3].cols(), -std::numeric_limits<Scalar>::infinity());
  const bool sinks = v.size() > kSinks && !a.chosen;
  const Eigen::Index kept = a.chosen ? v[kSinks].cols() / a.kv_heads : 0;
  Attended done;
  for (const std::int32_t request : requests_of(query_list)) {
    const std::vector<Place> queries = places(query_list, request),
                             keys = taken(places(key_list, request), query_list, request, a);
    done.key_rows += static_cast<double>(keys.size());
    for (int head = 0; head < a.heads && (sinks || !keys.empty()); ++head) {
      const Scalar sink = sinks ? v[kSinks](0, head) : -std::numeric_limits<Scalar>::infinity();
      const bool latent = a.cache == CacheRows::latent;
      const int kv_head = latent ? 0 : head / (a.heads / a.kv_heads);
      const Choice<Scalar> chosen{a.chosen ? &v[kSinks] : nullptr, kv_head * kept, kept, a.block};
      const Eigen::Index key_column = latent ? 0 : kv_head * (a.qk_dim + a.v_dim);
      const Matrix<Scalar> k = gather(v[1], std::span(keys), key_column, a.qk_dim);
      const Matrix<Scalar> values =
          gather(v[1], std::span(keys), latent ? 0 : key_column + a.qk_dim, a.v_dim);
      for (std::size_t from = 0; from < queries.size(); from += kQueryTile) {
        const auto tile =
            std::span(queries).subspan(from, std::min<std::size_t>(kQueryTile, queries.size() - from));
        const Matrix<Scalar> q = gather(v[0], tile, head * a.qk_dim, a.qk_dim);
        Matrix<Scalar> out(q.rows(), a.v_dim);
        Eigen::Matrix<Scalar, Eigen::Dynamic, 1> tile_lse(q.rows());
        const double seen = attend_tile(tile, std::span(keys), a, chosen, q, k, values,
                                        static_cast<Scalar>(scale), sink, out, tile_lse);
        if (head == 0) done.pairs += seen;
        for (std::size_t i = 0; i < tile.size(); ++i) {
          const auto at = static_cast<Eigen::Index>(i);
          output.row(tile[i].row).segment(head * a.v_dim, a.v_dim) = out.row(at);
          lse(tile[i].row, head) = tile_lse(at);
        }
      }
    }
  }
  v[2] = output;
  v[3] = lse;
  return done;
}

template <class Scalar>
void merge(const Action& a, std::span<View<Scalar>> v) {
  constexpr Scalar none = -std::numeric_limits<Scalar>::infinity();
  const std::size_t partials = v.size() - 2;
  Matrix<Scalar> output = Matrix<Scalar>::Zero(v[partials].rows(), v[partials].cols());
  Matrix<Scalar> lse = Matrix<Scalar>::Constant(v[1].rows(), v[1].cols(), none);
  for (Eigen::Index row = 0; row < output.rows(); ++row) {
    for (Eigen::Index head = 0; head < a.heads; ++head) {
      Scalar high = none;
      for (std::size_t s = 0; s < partials; s += 2) {
        const Scalar one = v[s + 1](row, head);
        if (!(one <= high)) high = one;
      }
      if (high == none) continue;
      Scalar sum = 0;
      auto target = output.row(row).segment(head * a.v_dim, a.v_dim);
      for (std::size_t s = 0; s < partials; s += 2) {
        const Scalar one = v[s + 1](row, head);
        if (one == none) continue;
        const Scalar weight = std::exp(one - high);
        sum += weight;
        if (v[s].cols() > 0) target += weight * v[s].row(row).segment(head * a.v_dim, a.v_dim);
      }
      target /= sum;
      lse(row, head) = high + std::log(sum);
    }
  }
  v[partials] = output;
  v[partials + 1] = lse;
}

namespace {

/// Rows with the `keep` highest scores, ascending.
template <class Scalar>
std::vector<Eigen::Index> highest(const View<Scalar>& scores, Eigen::Index head, Eigen::Index keep) {
  std::vector<Eigen::Index> order(static_cast<std::size_t>(scores.rows()));
  std::iota(order.begin(), order.end(), Eigen::Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Eigen::Index i, Eigen::Index j) {
    const Scalar x = scores(i, head), y = scores(j, head);
    return std::isnan(y) ? !std::isnan(x) : x > y;
  });
  order.resize(static_cast<std::size_t>(keep));
  std::sort(order.begin(), order.end());
  return order;
}

template <class Scalar>
void compress(const Action& a, std::span<View<Scalar>> v) {
  const Eigen::Index width = a.qk_dim + a.v_dim;
  Matrix<Scalar> out(v[2].rows(), v[2].cols());
  for (Eigen::Index head = 0; head < a.kv_heads; ++head) {
    const std::vector<Eigen::Index> kept = highest(v[0], head, out.rows());
    for (std::size_t i = 0; i < kept.size(); ++i)
      out.row(static_cast<Eigen::Index>(i)).segment(head * width, width) =
          v[1].row(kept[i]).segment(head * width, width);
  }
  v[2] = out;
}

/// Returns multiply-adds.
template <class Scalar>
double expand(const Action& a, std::span<View<Scalar>> v) {
  const Eigen::Index rank = v[1].rows(), rope = v[0].cols() - rank, plain = a.qk_dim - rope;
  Matrix<Scalar> up(v[0].rows(), v[1].cols());
  product<Scalar>(v[0].leftCols(rank), v[1], up);
  Matrix<Scalar> out(v[2].rows(), v[2].cols());
  for (Eigen::Index h = 0; h < a.heads; ++h) {
    const Eigen::Index from = h * (plain + a.v_dim), to = h * (a.qk_dim + a.v_dim);
    out.middleCols(to, plain) = up.middleCols(from, plain);
    out.middleCols(to + plain, rope) = v[0].rightCols(rope);
    out.middleCols(to + a.qk_dim, a.v_dim) = up.middleCols(from + plain, a.v_dim);
  }
  v[2] = out;
  return static_cast<double>(v[0].rows()) * static_cast<double>(rank) * static_cast<double>(v[1].cols());
}

}  // namespace

template <class Scalar>
double simple_function(const Action& a, std::span<View<Scalar>> v) {
  switch (a.function) {
    case Function::gemm:
      multiply(v[0], v[1], v[2]);
      return static_cast<double>(v[0].rows()) * static_cast<double>(v[0].cols()) *
             static_cast<double>(v[1].cols());
    case Function::gemm_per_head: {
      const Eigen::Index k = v[1].rows() / a.heads, n = v[1].cols();
      Matrix<Scalar> out(v[2].rows(), v[2].cols());
      for (Eigen::Index h = 0; h < a.heads; ++h)
        product<Scalar>(v[0].middleCols(h * k, k), v[1].middleRows(h * k, k), out.middleCols(h * n, n));
      v[2] = out;
      return static_cast<double>(v[0].rows()) * static_cast<double>(v[0].cols()) * static_cast<double>(n);
    }
    case Function::expand:
      return expand<Scalar>(a, v);
    case Function::swiglu: {
      const Eigen::Index n = v[1].cols();
      const Matrix<Scalar> gate = v[0].leftCols(n);
      const Matrix<Scalar> out =
          gate.array() / (Scalar(1) + (-gate.array()).exp()) * v[0].rightCols(n).array();
      v[1] = out;
      return 0;
    }
    case Function::rms_norm: {
      Matrix<Scalar> out = v[0];
      for (Eigen::Index i = 0; i < out.rows(); ++i)
        out.row(i) /= std::sqrt(out.row(i).squaredNorm() / static_cast<Scalar>(out.cols()) + Scalar(1e-6));
      v[1] = out;
      return 0;
    }
    case Function::add: {
      const Matrix<Scalar> out = v[0] + v[1];
      v[2] = out;
      return 0;
    }
    case Function::silu: {
      const Matrix<Scalar> out = v[0].array() / (Scalar(1) + (-v[0].array()).exp());
      v[1] = out;
      return 0;
    }
    case Function::compress:
      compress<Scalar>(a, v);
      return 0;
    case Function::choose_among:
      choose_among<Scalar>(v);
      return 0;
    default:
      return 0;
  }
}

template std::string wrong_shape<double>(const Action&, TokenView, TokenView, std::span<const View<double>>);
template Attended attend<double>(const Action&, TokenView, TokenView, double, std::span<View<double>>);
template void merge<double>(const Action&, std::span<View<double>>);
template double simple_function<double>(const Action&, std::span<View<double>>);
template std::string wrong_shape<float>(const Action&, TokenView, TokenView, std::span<const View<float>>);
template Attended attend<float>(const Action&, TokenView, TokenView, double, std::span<View<float>>);
template void merge<float>(const Action&, std::span<View<float>>);
template double simple_function<float>(const Action&, std::span<View<float>>);

}  // namespace shardline
