// Which type each class of matrices has. Checkpoints that people serve are not of one type: routers, LM heads
// and embeddings stay in BF16 beside experts in FP4 (models/README.md, "Hugging Face's config.json").
#pragma once

#include <optional>

#include "models/ir/dtype.hpp"

namespace shardline {

/// Classes of matrices whose type may differ. attention: its projections but the output projection, which is
/// out_proj, and those of the index that chooses keys (DSA, CSA; an index over blocks, MSA's, is part of
/// QKV). experts: routed ones. embedding: where it is not the LM head itself.
enum class Module : std::uint8_t {
  attention,
  out_proj,
  index,
  dense_ffn,
  experts,
  shared_experts,
  router,
  head,
  embedding
};

/// How a class is stored, and the tensor-core arithmetic of its products.
struct ModuleType {
  Dtype weights, math;
};

/// Of the modules that draft (multi-token prediction), which many quantised checkpoints leave in BF16.
struct DraftTypes {
  ModuleType attention, out_proj, dense_ffn, experts, shared;
};

/// What nobody has said of a precision, so that a default of this project stands for it.
struct AssumedTypes {
  bool weights = false, math = false, kv = false, dispatch = false;
  bool expert_math = false;  // by what the framework does with such weights
  constexpr bool any() const { return weights || math || kv || dispatch || expert_math; }
};

/// Types of all that is stored, computed and sent. Norms are BF16 and are not counted.
struct Precision {
  Dtype weights = Dtype::fp4;       // of attention projections, dense FFN and experts
  Dtype kv = Dtype::fp4;            // cache
  Dtype math = Dtype::fp4;          // arithmetic of those matrices, and of attention itself
  Dtype activations = Dtype::bf16;  // residual stream and messages
  Dtype dispatch = Dtype::fp4;      // tokens sent to experts
  // Of the feed-forward part, dense or of experts, where they differ from `weights` and `math`.
  std::optional<Dtype> ffn_weights = {}, ffn_math = {};
  std::optional<Dtype> attention_weights = {}, attention_math = {};
  std::optional<Dtype> out_proj_weights = {}, out_proj_math = {};  // where they differ from the attention's
  std::optional<Dtype> expert_weights = {}, expert_math = {};  // where they differ from the feed-forward part
  std::optional<Dtype> shared_weights = {}, shared_math = {};  // of shared experts: from the routed ones
  std::optional<Dtype> index_weights = {}, index_math = {};    // where they differ from the attention's
  Dtype router = Dtype::bf16, head = Dtype::bf16;              // stored and computed
  std::optional<Dtype> embedding = {};                         // where it differs from the head
  std::optional<DraftTypes> drafts = {};                       // where they differ from the model's
  std::optional<Dtype> head_math = {};  // of the head, where only its weights are narrow
  AssumedTypes assumed = {};

  /// FP4 throughout, router, LM head and embedding too.
  static Precision all_fp4() {
    Precision p;
    p.router = p.head = Dtype::fp4;
    return p;
  }
  /// The same, its scales not counted: the accounting of arXiv 2507.07120.
  static Precision of_helix_paper() {
    Precision p;
    p.weights = p.kv = p.dispatch = p.router = p.head = Dtype::fp4_unscaled;
    return p;
  }

  /// What the modules that draft have; router, head and all else are the model's. Experts cannot be fed what
  /// they do not compute in.
  Precision of_drafts() const {
    Precision p = *this;
    if (!drafts) return p;
    const auto set = [](ModuleType t, std::optional<Dtype>& own_weights, std::optional<Dtype>& own_math) {
      own_weights = t.weights;
      own_math = t.math;
    };
    set(drafts->attention, p.attention_weights, p.attention_math);
    set(drafts->attention, p.index_weights, p.index_math);
    set(drafts->out_proj, p.out_proj_weights, p.out_proj_math);
    set(drafts->dense_ffn, p.ffn_weights, p.ffn_math);
    set(drafts->experts, p.expert_weights, p.expert_math);
    set(drafts->shared, p.shared_weights, p.shared_math);
    if (bytes_per_element(p.dispatch) < bytes_per_element(drafts->experts.math))
      p.dispatch = drafts->experts.math;
    p.drafts.reset();
    return p;
  }

  ModuleType of(Module m) const {
    switch (m) {
      case Module::attention:
        return {attention_weights.value_or(weights), attention_math.value_or(math)};
      case Module::out_proj: {
        const ModuleType others = of(Module::attention);
        return {out_proj_weights.value_or(others.weights), out_proj_math.value_or(others.math)};
      }
      case Module::index: {
        const ModuleType others = of(Module::attention);
        return {index_weights.value_or(others.weights), index_math.value_or(others.math)};
      }
      case Module::dense_ffn:
        return {ffn_weights.value_or(weights), ffn_math.value_or(math)};
      case Module::experts:
        return {expert_weights.value_or(ffn_weights.value_or(weights)),
                expert_math.value_or(ffn_math.value_or(math))};
      case Module::shared_experts: {
        const ModuleType routed = of(Module::experts);
        return {shared_weights.value_or(routed.weights), shared_math.value_or(routed.math)};
      }
      case Module::router:
        return {router, arithmetic_of(router)};
      case Module::head:
        return {head, head_math.value_or(arithmetic_of(head))};
      case Module::embedding:  // rows are read, not multiplied
        return {embedding.value_or(head), embedding.value_or(head)};
    }
    return {weights, math};
  }
};

}  // namespace shardline
