// The functions of a data flow (enum Function) on views of slots. Targets may be sources too.
#pragma once

#include <span>
#include <string>

#include "cuda_probe/execute/core/tensors.hpp"

namespace shardline {

/// Regions that a function writes: its last ones.
constexpr std::size_t results(Function f) { return f == Function::attend || f == Function::merge ? 2 : 1; }

/// What is wrong with the shapes of these views (in the order of Function), or empty.
template <class Scalar>
std::string wrong_shape(const Action& action, TokenView queries, TokenView keys,
                        std::span<const View<Scalar>> views);

/// What an attention did for one head: visible pairs, and rows of keys that it took from its slot.
struct Attended {
  double pairs = 0, key_rows = 0;
};

/// Softmax attention of each head over the keys that it may see: same request, position not above the
/// query's. A query that sees nothing, and padding, gives 0 and lse -infinity.
template <class Scalar>
Attended attend(const Action& action, TokenView queries, TokenView keys, double scale,
                std::span<View<Scalar>> views);

/// arXiv 2411.01783, Equation 4.
template <class Scalar>
void merge(const Action& action, std::span<View<Scalar>> views);

/// All functions but attend and merge. Returns multiply-adds of gemms.
template <class Scalar>
double simple_function(const Action& action, std::span<View<Scalar>> views);

}  // namespace shardline
