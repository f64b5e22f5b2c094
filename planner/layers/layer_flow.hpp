// The data flow of a whole layer around attention, from the hidden state of the new tokens to that behind the
// FFN: for prefills without cached tokens of models whose layers are dense and gated, with GQA.
#pragma once

#include "planner/layers/context_step.hpp"

namespace shardline {

/// Whether a schedule with a data flow describes the whole layer, and not its attention alone.
bool describes_layer(const Case& c, const Plan& p);

/// Every method describes the op that was added last; none does anything unless the layer is described.
class LayerFlow {
 public:
  LayerFlow() = default;
  /// Declares and binds what a prefill works on: the layer, or its attention. The step outlives it.
  explicit LayerFlow(ContextStep& step);

  // Of the tokens of a rank, one row each; weights with the rank's columns or rows.
  SlotId x = 0, normed = 0, projected = 0, middle = 0, gate_up = 0, inner = 0, down = 0, result = 0;
  SlotId w_qkv = 0, w_out = 0, w_up = 0, w_down = 0;

  /// An op on all rows of slots.
  void act(Function function, std::initializer_list<SlotId> slots);
  /// Queries, keys and values of the new tokens.
  void project();
  void out_projection();
  void ffn_up() { act_rows(normed, w_up, gate_up); }
  void ffn_down() { act_rows(inner, w_down, down); }
  /// All-reduce of a slot over the ranks of a TP group.
  void sum(SlotId slot);

 private:
  void bind();
  std::int64_t columns(SlotId slot) const;
  // A GEMM on all rows; the attention output may be padded, so request by request.
  void act_rows(SlotId in, SlotId weight, SlotId out);
  SlotId token_slot(const char* name, std::int64_t width);
  SlotId weight_slot(const char* name, std::int64_t k_dim, std::int64_t n);
  Dataflow& flow() const { return *s_->flow(); }

  ContextStep* s_ = nullptr;  // null: nothing is described
  std::int64_t hidden_ = 0, inner_ = 0;
};

}  // namespace shardline
