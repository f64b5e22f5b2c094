// The functions of a data flow (enum Function) on views of slots. Targets may be sources too.
#pragma once

#include <span>
#include <string>

#include "cuda_probe/execute/core/tensors.hpp"

namespace shardline {

/// How many regions a function writes.
constexpr std::size_t results(Function f) {
  return f == Function::attend || f == Function::merge || f == Function::choose ||
                 f == Function::choose_among || f == Function::delta_rule || f == Function::state_space ||
                 f == Function::gated_squares
             ? 2
             : 1;
}
/// The region of a convolution that it writes first; another may stand behind it, rows that it keeps.
inline constexpr std::size_t kConvolvedRows = 3;
/// Whether region `i` of `regions` is one that the function writes: its last ones, but an attend's sinks
/// or chosen keys, which it reads, stand behind them.
constexpr bool is_result(Function f, std::size_t i, std::size_t regions) {
  if (f == Function::convolve) return i >= kConvolvedRows && i < regions;
  return f == Function::attend ? i == 2 || i == 3 : i < regions && i + results(f) >= regions;
}
/// Of layers that keep a state: rows of a request follow from one another.
constexpr bool is_recurrent(Function f) {
  return f == Function::convolve || f == Function::delta_rule || f == Function::state_space;
}
/// The region of an attend that holds its sinks, where it has one.
inline constexpr std::size_t kSinks = 4;
inline bool has_sinks(const Action& a) {
  return a.function == Function::attend && !a.chosen && a.regions > kSinks;
}

/// What is wrong with the shapes of these views (in the order of Function), or empty.
template <class Scalar>
std::string wrong_shape(const Action& action, TokenView queries, TokenView keys,
                        std::span<const View<Scalar>> views);

/// What an attention did for one head: visible pairs, and rows of keys that it took from its slot (those that
/// rows_in_reach() counts; of a rectangle all). A sink is neither.
struct Attended {
  double pairs = 0, key_rows = 0;
};

/// Softmax attention of each head over the keys that it may see: same request, position not above the
/// query's, within the action's reach. A query that sees nothing, and padding, gives 0 and lse -infinity. The
/// sink of a head is one more score that brings no value; a query that sees nothing else gives 0 and lse
/// sink.
template <class Scalar>
Attended attend(const Action& action, TokenView queries, TokenView keys, double scale,
                std::span<View<Scalar>> views);

/// arXiv 2411.01783, Equation 4.
template <class Scalar>
void merge(const Action& action, std::span<View<Scalar>> views);

/// Scores of an index, [queries, keys], by the same mask
/// as attention's: returns multiply-adds of the pairs that it leaves. The best scores of each row with the
/// positions of their keys.
template <class Scalar>
double index_scores(const Action& action, TokenView queries, TokenView keys, std::span<View<Scalar>> views);
/// [queries, blocks] of one head, of which a query's own may be there in part.
template <class Scalar>
double block_scores(const Action& action, TokenView queries, TokenView keys, std::span<View<Scalar>> views);
template <class Scalar>
void choose(TokenView keys, std::span<View<Scalar>> views);
/// The same of pairs of scores and positions that were chosen before.
template <class Scalar>
void choose_among(std::span<View<Scalar>> views);
/// Of one request: rows of compressed attention.
template <class Scalar>
void make_rows(const Action& action, TokenView tokens, TokenView numbers, std::span<View<Scalar>> views);
/// wrong_shape() of these five.
template <class Scalar>
std::string wrong_choice(const Action& action, TokenView queries, TokenView keys,
                         std::span<const View<Scalar>> views);

/// Of one request: the short convolution of linear attention.
template <class Scalar>
void convolve(std::span<View<Scalar>> views);
/// The heads of one key head. In chunks: what the tokens of a chunk write follows from one another by a
/// triangular system, so that the state is read and written once a chunk (arXiv 2412.06464, section 3.3; with
/// decays by channel arXiv 2510.26692). Equal to token by token up to rounding.
template <class Scalar>
void delta_rule(const Action& action, std::span<View<Scalar>> views);
/// The heads of one group of Mamba-2. In chunks: products of C and B weighed with what is left between their
/// tokens, and the state read and written once a chunk (arXiv 2405.21060, section 6).
template <class Scalar>
void state_space(const Action& action, std::span<View<Scalar>> views);
template <class Scalar>
void gated_norm(const Action& action, std::span<View<Scalar>> views);
/// The same of rows that ranks have in parts, before and behind the sum of their squares.
template <class Scalar>
void gated_squares(std::span<View<Scalar>> views);
template <class Scalar>
void norm_by_squares(const Action& action, std::span<View<Scalar>> views);
/// wrong_shape() of these six.
template <class Scalar>
std::string wrong_recurrence(const Action& action, std::span<const View<Scalar>> views);

/// All functions but attend, merge, index_scores, block_scores, choose and those of states. Returns
/// multiply-adds of gemms.
template <class Scalar>
double simple_function(const Action& action, std::span<View<Scalar>> views);

}  // namespace shardline
