// One layer of a step on the ranks of a stage, whatever its requests do. What a token needs outside attention
// does not depend on whether its request decodes or is being prefilled: decoding tokens and those of prefills
// are rows of the same GEMMs and messages. planner/README.md [P6], [C4].
#pragma once

#include "planner/layers/layer_flow.hpp"
#include "planner/layers/row_ops.hpp"

namespace shardline {

class Layer {
 public:
  /// `rows`: new tokens on a rank of each class. `rows` and `flow` outlive the layer.
  Layer(ScheduleBuilder& b, const Case& c, const Plan& p, std::span<const Count> rows, LayerFlow& flow);

  // Each is a block.
  /// `prefills` of the step, for this kind of attention; or null.
  void attention(const Attention& a, ContextStep* prefills);
  void dense_ffn(const FeedForward& f);
  /// Routed and shared experts.
  void expert_ffn(const FeedForward& f);

 private:
  void begin(const char* name);
  void attend(const Attention& a, ContextStep* step);
  void project(const Attention& a, const ContextStep* step);
  void project_latents(const Attention& a, const ContextStep* step);
  void project_index(const Attention& a, const ContextStep* step);
  void absorb_queries(const Attention& a);
  void module_rest(const Attention& a, const ContextStep* step);
  Count gate_columns(const Attention& a) const;
  void gate_output(const Attention& a);
  void quantize(const RowOps& ops, Module of, Count width) const;
  void residual(Part part, bool rides);

  bool prefills() const { return c_.batch.prefills(); }
  // A host that launches kernel by kernel.
  bool host_launches() const { return prefills() && c_.system.runtime.host_layer > Seconds(0); }
  // A norm of its own before a sublayer; of several streams it is what mixes them that has one.
  bool separate_norm() const { return ops_.separate() && c_.model.residual.plain(); }
  const Passes& passes() const { return c_.system.runtime.passes; }
  Within attention_kernel() const {
    return prefills() ? Within::prefill_attention : Within::decode_attention;
  }

  ScheduleBuilder& b_;
  const Case& c_;
  const Plan& p_;
  const RowOps ops_;
  LayerFlow& flow_;
  const Count h_;
  const double act_;    // bytes of an activation
  OpIndex launch_ = 0;  // of the block's kernels, by the host
};

/// What stands between the norm before the experts and the residual addition behind them: routing, dispatch,
/// the products of routed and shared experts, and combine or all-reduce.
void add_experts(ScheduleBuilder& b, const Case& c, const FeedForward& f, const Plan& p, const RowOps& ops);

}  // namespace shardline
