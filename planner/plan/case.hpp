// What is to be served, on what: everything about a step but the plan.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "hardware/machine/frameworks.hpp"
#include "hardware/machine/system.hpp"
#include "models/ir/batch.hpp"
#include "models/ir/schedule.hpp"
#include "models/model/model.hpp"
#include "models/model/routing.hpp"
#include "planner/engines/profile.hpp"
#include "planner/plan/plan.hpp"
#include "planner/plan/precision.hpp"
#include "planner/plan/sharding.hpp"

namespace shardline {

/// flash: exactly the pairs of the causal mask, scores stay on chip. eager: a matrix product of all queries
/// with all keys of their request; scores are written to memory and rewritten there by mask and softmax.
enum class AttentionKernel : unsigned char { flash, eager };

/// Which kernels the engine has, and which it fuses.
struct Kernels {
  bool separate_elementwise = false;  // norms, residual additions and quantization are kernels of their own
  bool fused_split_merge = false;     // the decode kernel merges its KV splits itself
  bool separate_shard_merge = false;  // partial outputs of KV shards are merged by a kernel of its own
  AttentionKernel attention = AttentionKernel::flash;  // of prefills
  Bytes score_traffic{0};  // eager: HBM bytes that the kernels between both products move per score
};

/// Tokens of a request that an engine serves, and of its answer; 0: the case is of a step alone.
struct ServedRequest {
  long long input = 0, output = 0;
  long long total() const { return input + output; }
};

/// What a step computes in all attention groups of a plan together, where each has a batch of its own. A case
/// then is of the one whose `batch` it has.
struct GroupRows {
  Count rows = 0;     // new tokens
  Count most = 0;     // of them in the group with most
  Count decodes = 0;  // requests that decode
  Count prompts = 0;  // parts of prompts
  Count busiest = 0;  // requests of both in the group with most of them
  bool operator==(const GroupRows&) const = default;
};

class AcceptanceCurve;  // planner/serving/acceptance.hpp

struct Case {
  Model model;
  System system;
  Precision precision;
  Batch batch;                      // of one batch entry: a plan repeats it
  std::optional<GroupRows> groups;  // nothing: all attention groups have that batch
  int kv_block = 16;      // tokens that round-robin KV concatenation keeps together (Helix, section 2.3)
  Bytes memory_limit{0};  // per GPU, all kinds together; 0: the device's capacity
  // Of each kind of feed-forward network of the model: null for dense ones.
  std::vector<std::shared_ptr<const ExpertRouting>> routing;
  std::shared_ptr<const Placement> placement;  // of the cached tokens; null: each prefilled in one turn
  bool persistent_kv = false;                  // prefill: new tokens join a cache kept from earlier turns
  Kernels kernels;
  std::shared_ptr<const EngineProfile> engine;  // null: bare kernels
  // [P16] Whose kernels may run in place of the system's, where nobody says whose; null: none.
  std::shared_ptr<const MeasuredFrameworks> frameworks;
  ServedRequest served;
  bool disaggregated = false;                         // a server that does not both prefill and decode
  std::shared_ptr<const AcceptanceCurve> acceptance;  // of drafts [P29]; null: no plan has any
  int graph_parts = 1;  // of a batch that one CUDA graph holds, the case being one of them
  // Under an engine [P21]: also plans of part of a tray or node, and lengths beyond the model's maximum.
  bool any_gpus = false, any_context = false;

  long long fresh_tokens() const;  // of the prefills of one batch entry
  long long longest() const;       // tokens of the longest sequence, cached and new
};

/// Whether a step computes prompts in some attention group: kernels of all then are those of such steps.
inline bool has_prompts(const Case& c) { return c.batch.prefills() || (c.groups && c.groups->prompts > 0); }

/// Whether one server computes prompts and decodes.
inline bool serves_both(const Case& c) {
  return c.batch.kind() == StepKind::mixed || (c.served.total() > 0 && !c.disaggregated);
}

/// Whether the cache of a layer, or of some layer, holds MLA's latents.
inline bool has_latents(const Attention& a) {
  switch (a.kind) {
    case AttentionKind::gqa:
    case AttentionKind::compressed:
    case AttentionKind::delta:
    case AttentionKind::mamba:
    case AttentionKind::none:
      break;
    case AttentionKind::mla:
      return true;
  }
  return false;
}
inline bool has_latents(const Model& m) {
  return std::any_of(m.attentions.begin(), m.attentions.end(),
                     [](const Attention& a) { return has_latents(a); });
}

/// Whether a layer's attention has an index with matrices of its own (DSA, CSA). One over blocks (MSA) is
/// part of the product that makes Q, K and V.
inline bool has_own_index(const Attention& a) {
  return a.index && !a.index->shared && (has_latents(a) || a.compression.has_value());
}

/// Whether an index chooses the keys of some layer (DSA, MSA, CSA), or some layer compresses them (CSA, HCA).
inline bool has_sparse(const Model& m) {
  return std::any_of(m.attentions.begin(), m.attentions.end(), [](const Attention& a) { return a.sparse(); });
}
/// Whether some layer takes the choice of an earlier one's index (IndexShare).
inline bool shares_index(const Model& m) {
  return std::any_of(m.attentions.begin(), m.attentions.end(),
                     [](const Attention& a) { return a.index && a.index->shared; });
}
inline bool has_compression(const Model& m) {
  return std::any_of(m.attentions.begin(), m.attentions.end(),
                     [](const Attention& a) { return a.compression.has_value(); });
}

/// The routing tables of a model, one where kinds of layers have as many experts of each.
std::vector<std::shared_ptr<const ExpertRouting>> routing_of(const Model& model, Routing routing);

/// A case of decode steps over `context` tokens. Builds the routing tables of `model`. UserError where the
/// model has what no plan can time (planner/plan/timed.hpp).
Case make_case(Model model, System system, Precision precision, long long context, int kv_block,
               Routing routing);

/// All of a case but its system, to which `to` keeps its own: prices take longer to copy than all the rest.
void copy_but_system(const Case& from, Case& to);

/// Tokens on rank `shard` of `shards` after `tokens` tokens were appended round robin in blocks [P1]:
/// block*(T div (block*shards)) + clamp(T mod (block*shards) - block*shard, 0, block).
long long kv_tokens_on_shard(long long tokens, int shards, int block, int shard);

}  // namespace shardline
