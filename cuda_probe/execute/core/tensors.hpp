// Matrices of the executor: the whole ones a problem is made of, and views of parts of a rank's slots.
#pragma once

#include <Eigen/Core>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/ir/dataflow.hpp"

namespace shardline {

template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
/// Some rows and columns of a slot.
template <class Scalar>
using View = Eigen::Block<Matrix<Scalar>>;

/// The whole matrices (enum Whole). Row first_row[r] + p of a token matrix is position p of request r, whose
/// length is first_row[r + 1] - first_row[r].
template <class Scalar>
struct Tensors {
  std::array<Matrix<Scalar>, static_cast<std::size_t>(Whole::count)> whole;
  std::vector<std::int64_t> first_row;

  Matrix<Scalar>& operator[](Whole w) { return whole[static_cast<std::size_t>(w)]; }
  const Matrix<Scalar>& operator[](Whole w) const { return whole[static_cast<std::size_t>(w)]; }
  template <class Other>
  Tensors<Other> cast() const {
    Tensors<Other> other;
    for (std::size_t i = 0; i < whole.size(); ++i) other.whole[i] = whole[i].template cast<Other>();
    other.first_row = first_row;
    return other;
  }
};

/// Whether rows of this matrix are tokens (and not rows of a weight).
constexpr bool rows_are_tokens(Whole w) {
  if (w == Whole::row_bias || w == Whole::index_row_bias) return false;
  return w <= Whole::layer_output || w >= Whole::index_query;
}

}  // namespace shardline
