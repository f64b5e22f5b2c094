// Runs the data flow of a Schedule on real numbers: every rank has its own slots, and what one rank needs of
// another is sent in a message. Knows ops, slots and messages, but no strategy.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "cuda_probe/execute/core/tensors.hpp"
#include "models/ir/schedule.hpp"

namespace shardline {

/// A data flow that cannot be run; the text names op, rank and region.
class ExecutionError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Which of the ops that may run next does. Results must not depend on it. If two ops of different lanes
/// touch the same numbers and nothing orders them, communication_first and compute_first run them in opposite
/// orders.
enum class Order : std::uint8_t { by_index, latest_ready_first, communication_first, compute_first, random };
inline constexpr int kOrders = 5;
std::string_view to_string(Order order);

struct RunOptions {
  Order order = Order::by_index;
  std::uint64_t seed = 1;  // of Order::random
  double scale = 0;        // of the scores; 0: 1/sqrt(qk_dim) of the action
};

/// What one rank did in one op.
struct Done {
  double pairs = 0;  // visible (query, key) pairs, or all where a product takes them all; summed over heads
  double query_rows = 0;     // without padding, summed over query heads
  double kv_elements = 0;    // of the rows that attends took from their slots, for all heads of an action
  double multiply_adds = 0;  // of gemms; padding rows count
  double bytes = 0;          // that left for other ranks
  std::int64_t messages = 0;
};

template <class Scalar>
struct Output {
  Binding binding;
  Matrix<Scalar> values;
};

template <class Scalar>
struct RunResult {
  std::vector<Output<Scalar>> outputs;  // parallel to Dataflow::outputs
  int ranks = 0;
  std::vector<Done> counts;  // [op][rank]
  const Done& count(OpIndex op, int rank) const {
    return counts[static_cast<std::size_t>(op) * static_cast<std::size_t>(ranks) +
                  static_cast<std::size_t>(rank)];
  }
};

/// Ranks of the data flow: those of a stage, or more if slots live on more.
int ranks_of(const Schedule& schedule);
/// Blocks in the order in which the stages first run them; blocks that no stage runs are left out.
std::vector<BlockIndex> block_order(const Schedule& schedule);
/// Ops that `op` waits for on each rank: its dependencies and the op before it on its lane, each once.
std::vector<OpIndex> predecessors(const Schedule& schedule, const Block& block, OpIndex op);
/// Whether a rank's part of `op` waits for its predecessor `before` there: ops of one member have no part on
/// other ranks, and the message of one member binds its receiver alone.
bool waits_for(const Schedule& schedule, OpIndex op, OpIndex before, int rank);

/// What an input's slot holds at first; padding rows are 1e30. Throws ExecutionError if the binding names
/// rows or columns that the matrix does not have.
template <class Scalar>
Matrix<Scalar> input_part(const Dataflow& flow, const Tensors<Scalar>& tensors, const Binding& binding);

/// Runs each block once, one after the other. Inside a block an op of a rank starts when the ops it depends
/// on and the op before it on its lane have ended there; a communication op is one event of all ranks, which
/// reads all sources before it writes any target. Ops without data flow do nothing, but keep their place in
/// the order. Slots begin as NaN and padding rows of inputs as 1e30, so that neither can pass unseen.
template <class Scalar>
class Executor {
 public:
  /// The inputs of each kind of attention (Binding::kind), in order. Both are kept by reference. Throws
  /// ExecutionError if the schedule has no data flow.
  Executor(const Schedule& schedule, std::span<const Tensors<Scalar>> kinds);
  /// Of one kind.
  Executor(const Schedule& schedule, const Tensors<Scalar>& tensors)
      : Executor(schedule, std::span(&tensors, 1)) {}

  /// Throws ExecutionError.
  RunResult<Scalar> run(const RunOptions& options = {});

 private:
  Matrix<Scalar>& slot(SlotId id, int rank);
  View<Scalar> view(OpIndex op, int rank, const Region& region);
  void allocate();
  void run_block(const Block& block, const RunOptions& options);
  void compute(OpIndex op, int rank, const RunOptions& options);
  void act(OpIndex op, const Action& action, const RunOptions& options);
  void communicate(OpIndex op);
  Done& count(OpIndex op, int rank);
  [[noreturn]] void fail(OpIndex op, int rank, const std::string& what) const;

  const Schedule& schedule_;
  const Dataflow& flow_;
  std::span<const Tensors<Scalar>> kinds_;
  int ranks_;
  std::vector<Matrix<Scalar>> slots_;  // [slot][rank]
  std::vector<Done> counts_;
};

extern template Matrix<double> input_part(const Dataflow&, const Tensors<double>&, const Binding&);
extern template Matrix<float> input_part(const Dataflow&, const Tensors<float>&, const Binding&);
extern template class Executor<double>;
extern template class Executor<float>;

}  // namespace shardline
