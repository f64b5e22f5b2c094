// What an index of sparse attention does: scores, and the choice of the best.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/execute/cpu/places.hpp"

namespace shardline {

namespace {

bool same(const auto& a, const auto& b) { return a.rows() == b.rows() && a.cols() == b.cols(); }

std::string wanted(std::size_t count, const char* what) {
  return "has " + std::to_string(count) + " regions, but it takes " + what;
}

struct Block {
  std::int32_t request = 0;
  std::int64_t number = 0;
};

/// Those that the tokens of a list lie in, one interval after the other.
std::vector<Block> blocks_of(TokenView keys, std::int64_t block) {
  std::vector<Block> out;
  for (const Interval& i : keys) {
    if (i.begin >= i.end) continue;
    for (std::int64_t n = i.begin / block; n <= (i.end - 1) / block; ++n) out.push_back({i.request, n});
  }
  return out;
}

/// Tokens that a row of this number is made of: those that it stands for, of `parts` parts those before, too.
std::pair<std::int64_t, std::int64_t> tokens_of(std::int64_t number, int ratio, Eigen::Index parts) {
  return {std::max<std::int64_t>(0, (number + 1 - parts) * ratio), (number + 1) * ratio};
}

template <class Scalar>
std::string wrong_rows(const Action& a, TokenView tokens, TokenView numbers,
                       std::span<const View<Scalar>> v) {
  if (v.size() != 5) return wanted(v.size(), "rows before, values, gates, what is added to these, rows");
  const Eigen::Index width = v[4].cols();
  if (a.ratio < 1 || width < 1 || v[0].cols() != width || v[1].cols() % width != 0 ||
      v[2].cols() != v[1].cols() || v[3].cols() != v[1].cols() || v[3].rows() != a.ratio)
    return "makes rows of values and gates that do not fit";
  if (v[1].rows() != rows(tokens) || v[2].rows() != v[1].rows()) return "has other values than tokens";
  if (v[4].rows() != rows(numbers) || v[0].rows() > v[4].rows()) return "makes other rows than it lists";
  const std::vector<std::int32_t> requests = requests_of(numbers);
  if (requests.size() != 1) return "makes rows of other requests than one";
  const std::vector<Place> made = places(numbers, requests.front()), of = places(tokens, requests.front());
  for (std::size_t i = static_cast<std::size_t>(v[0].rows()); i < made.size(); ++i) {
    const auto [first, end] = tokens_of(made[i].position, a.ratio, v[1].cols() / width);
    for (std::int64_t t = first; t < end; ++t) {
      if (std::none_of(of.begin(), of.end(), [&](const Place& p) { return p.position == t; }))
        return "makes a row of tokens that it lacks";
    }
  }
  return {};
}

}  // namespace

template <class Scalar>
std::string wrong_choice(const Action& a, TokenView queries, TokenView keys,
                         std::span<const View<Scalar>> v) {
  if (a.function == Function::index_scores) {
    if (v.size() != 4) return wanted(v.size(), "index queries, weights, keys, scores");
    if (a.heads < 1 || v[0].cols() != a.heads * a.qk_dim || v[1].cols() != a.heads || v[2].cols() != a.qk_dim)
      return "has index queries, weights and keys of unequal heads or widths";
    if (v[0].rows() != rows(queries) || v[1].rows() != v[0].rows() || v[2].rows() != rows(keys) ||
        v[3].rows() != v[0].rows() || v[3].cols() != v[2].rows())
      return "scores other rows than it has tokens";
    return {};
  }
  if (a.function == Function::block_scores) {
    if (v.size() != 3) return wanted(v.size(), "index queries, keys, scores");
    if (a.block < 1 || a.init_blocks < 0 || a.local_blocks < 0) return "has blocks of no tokens";
    if (v[0].cols() != a.qk_dim || v[1].cols() != a.qk_dim)
      return "has index queries and keys of unequal widths";
    if (v[0].rows() != rows(queries) || v[1].rows() != rows(keys) || v[2].rows() != v[0].rows() ||
        v[2].cols() != static_cast<Eigen::Index>(blocks_of(keys, a.block).size()))
      return "scores other rows or blocks than it has tokens of";
    return {};
  }
  if (a.function == Function::make_rows) return wrong_rows(a, queries, keys, v);
  const bool among = a.function == Function::choose_among;
  if (among ? v.size() < 4 || v.size() % 2 != 0 : v.size() != 3)
    return wanted(v.size(), among ? "pairs of scores and positions" : "scores, best ones, positions");
  if (!same(v[v.size() - 2], v.back())) return "keeps other scores than positions";
  for (const View<Scalar>& one : v) {
    if (one.rows() != v.back().rows()) return "chooses for other rows than it has scores of";
  }
  if (!among && v[0].cols() != rows(keys)) return "has scores of other keys than it lists";
  return {};
}

namespace {

/// A score with the position of its key.
template <class Scalar>
struct Candidate {
  Scalar score, position;
};

/// Of each row the best candidates, in that order: of equal scores the one of lower position. A NaN comes
/// first, so that what was never written is seen.
template <class Scalar>
void keep_best(std::vector<Candidate<Scalar>>& all, Eigen::Index row, View<Scalar> best,
               View<Scalar> positions) {
  std::stable_sort(all.begin(), all.end(), [](const auto& x, const auto& y) {
    if (std::isnan(x.score) || std::isnan(y.score)) return std::isnan(x.score) && !std::isnan(y.score);
    return x.score != y.score ? x.score > y.score : x.position < y.position;
  });
  for (Eigen::Index i = 0; i < best.cols(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool there = at < all.size();
    best(row, i) = there ? all[at].score : -std::numeric_limits<Scalar>::infinity();
    positions(row, i) = there ? all[at].position : Scalar{-1};
  }
}

}  // namespace

template <class Scalar>
void choose_among(std::span<View<Scalar>> v) {
  std::vector<Candidate<Scalar>> all;
  for (Eigen::Index row = 0; row < v.back().rows(); ++row) {
    all.clear();
    for (std::size_t s = 0; s + 2 < v.size(); s += 2) {
      for (Eigen::Index i = 0; i < v[s].cols(); ++i) {
        // Without a key: a rank had fewer than it could have sent.
        if (v[s + 1](row, i) == Scalar{-1}) continue;
        all.push_back({v[s](row, i), v[s + 1](row, i)});
      }
    }
    keep_best(all, row, v[v.size() - 2], v.back());
  }
}

template <class Scalar>
double index_scores(const Action& a, TokenView query_list, TokenView key_list, std::span<View<Scalar>> v) {
  Matrix<Scalar> scores =
      Matrix<Scalar>::Constant(v[3].rows(), v[3].cols(), -std::numeric_limits<Scalar>::infinity());
  double pairs = 0;
  for (const std::int32_t request : requests_of(query_list)) {
    for (const Place& query : places(query_list, request)) {
      for (const Place& key : places(key_list, request)) {
        if (key.position >= keys_upto(a, query.position)) continue;
        ++pairs;
        Scalar sum = 0;
        for (Eigen::Index h = 0; h < a.heads; ++h) {
          const Scalar dot = v[0].row(query.row).segment(h * a.qk_dim, a.qk_dim).dot(v[2].row(key.row));
          sum += v[1](query.row, h) * (dot < Scalar{0} ? Scalar{0} : dot);
        }
        scores(query.row, key.row) = sum;
      }
    }
  }
  v[3] = scores;
  return pairs * a.heads * a.qk_dim;
}

template <class Scalar>
double block_scores(const Action& a, TokenView query_list, TokenView key_list, std::span<View<Scalar>> v) {
  constexpr Scalar none = -std::numeric_limits<Scalar>::infinity();
  const std::vector<Block> blocks = blocks_of(key_list, a.block);
  Matrix<Scalar> scores = Matrix<Scalar>::Constant(v[2].rows(), v[2].cols(), none);
  double pairs = 0;
  for (const std::int32_t request : requests_of(query_list)) {
    const std::vector<Place> keys = places(key_list, request);
    for (const Place& query : places(query_list, request)) {
      const std::int64_t own = query.position / a.block;
      std::size_t next = 0;
      for (std::size_t column = 0; column < blocks.size(); ++column) {
        if (blocks[column].request != request) continue;
        const std::int64_t number = blocks[column].number;
        Scalar& score = scores(query.row, static_cast<Eigen::Index>(column));
        for (; next < keys.size() && keys[next].position / a.block == number; ++next) {
          if (keys[next].position > query.position) continue;
          ++pairs;
          const Scalar dot = v[0].row(query.row).dot(v[1].row(keys[next].row));
          if (!(dot <= score)) score = dot;  // not std::max: it would drop a NaN
        }
        const bool always = number < a.init_blocks || number > own - a.local_blocks;
        if (always && number <= own) score = std::numeric_limits<Scalar>::infinity();
      }
    }
  }
  v[2] = scores;
  return pairs * a.qk_dim;
}

template <class Scalar>
void make_rows(const Action& a, TokenView tokens, TokenView numbers, std::span<View<Scalar>> v) {
  const Eigen::Index width = v[4].cols(), parts = v[1].cols() / width, before = v[0].rows();
  Matrix<Scalar> out(v[4].rows(), width);
  out.topRows(before) = v[0];
  const std::int32_t request = requests_of(numbers).front();
  const std::vector<Place> made = places(numbers, request), of = places(tokens, request);
  for (std::size_t i = static_cast<std::size_t>(before); i < made.size(); ++i) {
    const std::int64_t number = made[i].position;
    const auto seen = tokens_of(number, a.ratio, parts);  // clang 14 captures no part of a pair
    Matrix<Scalar> weights = Matrix<Scalar>::Zero(1, width), sum = weights;
    const auto each = [&](auto f) {
      for (const Place& token : of) {
        if (token.position < seen.first || token.position >= seen.second) continue;
        // Tokens of the row itself have its last part, those before it the first.
        const Eigen::Index part = token.position / a.ratio == number ? parts - 1 : 0;
        f(token.row, part * width, static_cast<Eigen::Index>(token.position % a.ratio));
      }
    };
    Matrix<Scalar> most = Matrix<Scalar>::Constant(1, width, -std::numeric_limits<Scalar>::infinity());
    each([&](Eigen::Index row, Eigen::Index column, Eigen::Index place) {
      most = most.cwiseMax(v[2].row(row).segment(column, width) + v[3].row(place).segment(column, width));
    });
    each([&](Eigen::Index row, Eigen::Index column, Eigen::Index place) {
      const Matrix<Scalar> gate =
          v[2].row(row).segment(column, width) + v[3].row(place).segment(column, width) - most;
      const Matrix<Scalar> weight = gate.array().exp();
      weights += weight;
      sum += weight.cwiseProduct(v[1].row(row).segment(column, width));
    });
    sum = sum.cwiseQuotient(weights);
    out.row(made[i].row) =
        sum / std::sqrt(sum.squaredNorm() / static_cast<Scalar>(width) + static_cast<Scalar>(1e-6));
  }
  v[4] = out;
}

template <class Scalar>
void choose(TokenView key_list, std::span<View<Scalar>> v) {
  std::vector<std::int64_t> positions;
  for (const Interval& i : key_list) {
    for (std::int64_t p = i.begin; p < i.end; p += i.stride) positions.push_back(p);
  }
  std::vector<Candidate<Scalar>> all;
  for (Eigen::Index row = 0; row < v[0].rows(); ++row) {
    all.clear();
    for (Eigen::Index key = 0; key < v[0].cols(); ++key) {
      if (v[0](row, key) == -std::numeric_limits<Scalar>::infinity()) continue;
      all.push_back({v[0](row, key), static_cast<Scalar>(positions[static_cast<std::size_t>(key)])});
    }
    keep_best(all, row, v[1], v[2]);
  }
}

template std::string wrong_choice<double>(const Action&, TokenView, TokenView, std::span<const View<double>>);
template double index_scores<double>(const Action&, TokenView, TokenView, std::span<View<double>>);
template double block_scores<double>(const Action&, TokenView, TokenView, std::span<View<double>>);
template void choose<double>(TokenView, std::span<View<double>>);
template void make_rows<double>(const Action&, TokenView, TokenView, std::span<View<double>>);
template void choose_among<double>(std::span<View<double>>);
template std::string wrong_choice<float>(const Action&, TokenView, TokenView, std::span<const View<float>>);
template double index_scores<float>(const Action&, TokenView, TokenView, std::span<View<float>>);
template double block_scores<float>(const Action&, TokenView, TokenView, std::span<View<float>>);
template void choose<float>(TokenView, std::span<View<float>>);
template void make_rows<float>(const Action&, TokenView, TokenView, std::span<View<float>>);
template void choose_among<float>(std::span<View<float>>);

}  // namespace shardline
