// The `precision` mapping of a scenario: a key per class of matrices. scenarios/README.md, "Keys".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hardware/machine/system.hpp"
#include "models/model/model.hpp"
#include "planner/plan/precision.hpp"

namespace shardline {
struct EngineProfile;
}

namespace shardline::scenario_parts {

/// What a scenario says of precision; nothing where a key is not given.
struct PrecisionKeys {
  std::optional<Dtype> weights, kv, math, activations, dispatch, ffn_weights, ffn_math, attention_weights,
      attention_math, out_proj_weights, out_proj_math, index_weights, index_math, expert_weights, expert_math,
      shared_weights, shared_math, router, head, draft_weights, draft_math;
  bool faulty = false;  // some value is none of the names

  /// Whether any key says in which arithmetic matrices are multiplied.
  bool says_math() const {
    return math || ffn_math || attention_math || out_proj_math || index_math || expert_math || shared_math ||
           draft_math;
  }

  /// The types of one model: those of the keys, else of the checkpoint of the model, else the narrowest that
  /// the device computes in; Precision::assumed says which are of the last kind.
  Precision of(const Model& model, const Device& device) const;
};

PrecisionKeys read_precision(const Reader& r);

/// Faults at every key of `precision` that concerns parts which none of the models has: experts, shared
/// experts, the router, an index, modules that draft.
void check_parts(const Reader& precision, const std::vector<Model>& models);

/// PrecisionKeys::of(), and in which arithmetic experts with MXFP4 weights compute, unless the scenario says
/// it: under an engine before Blackwell in BF16, whatever the checkpoint says, since it has no other kernels
/// there (vllm-project/vllm layers/fused_moe/oracle/mxfp4.py, select_mxfp4_moe_backend: those of BF16
/// activations alone unless a variable asks for others; sgl-project/sglang layers/quantization/mxfp4.py:
/// 336-345@49e384ce9d); else as the framework of the system's kernels does where the checkpoint does not say
/// it.
Precision precision_of(const PrecisionKeys& keys, const Model& model, const System& system,
                       const EngineProfile* engine = nullptr);

/// A fault where the file of `model` describes types that are not read and the keys do not say those of all
/// its matrices. Returns whether there was one. `engine`, which may be none, has nothing against the files.
bool check_unread(const PrecisionKeys& keys, const Model& model, const EngineProfile* engine,
                  const Reader& root);

/// Faults, at the key or else at `mapping` (or `root` without one), for every arithmetic of `model` that the
/// device has no unit for. Returns whether there were any.
bool check_units(const PrecisionKeys& keys, const Model& model, const Device& device, const Reader& root);

}  // namespace shardline::scenario_parts
