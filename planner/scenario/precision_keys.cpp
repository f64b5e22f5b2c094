#include "planner/scenario/precision_keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "models/model/hf_config.hpp"
#include "planner/engines/launch_rules.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/plan/case.hpp"
#include "planner/scenario/everyday.hpp"
#include "planner/scenario/scenario_parts.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline::scenario_parts {

namespace {

// Names of types: of arithmetic and activations, of what is stored or sent, of weights.
const std::vector<std::string> kComputed{"fp4", "fp8", "bf16", "fp32"};
const std::vector<std::string> kStored{"fp4", "fp8", "bf16", "fp32", "fp4_unscaled", "nvfp4"};
const std::vector<std::string> kWeights{"fp4",        "fp8",          "bf16",         "fp32",
                                        "fp8_static", "fp8_dynamic",  "fp8_block",    "mxfp4",
                                        "int4",       "int4_group32", "fp4_unscaled", "nvfp4"};
constexpr std::string_view kStatic = "fp8_static";  // what fp8 of weights means, said in full
constexpr std::string_view kNvidia = "nvfp4";       // likewise fp4

bool has_shared_experts(const Model& m) {
  return std::any_of(m.ffns.begin(), m.ffns.end(), [](const FeedForward& f) { return f.shared_experts > 0; });
}
bool has_drafts(const Model& m) { return m.drafts.has_value(); }
bool has_index(const Model& m) {
  return std::any_of(m.attentions.begin(), m.attentions.end(), has_own_index);
}
/// What only some models have.
struct ModelPart {
  bool (*in)(const Model&);
  const char* name;
};
constexpr ModelPart kExperts{has_experts, "experts"}, kShared{has_shared_experts, "shared experts"},
    kIndex{has_index, "an index over keys with matrices of its own"},
    kDrafts{has_drafts, "modules that draft"};

struct Key {
  const char* name;
  std::optional<Dtype> PrecisionKeys::*member;
  const std::vector<std::string>& names;
  const ModelPart* part = nullptr;  // that the key is of; none: of a part that every model has
};
const std::array kKeys{
    Key{"weights", &PrecisionKeys::weights, kWeights},
    Key{"kv", &PrecisionKeys::kv, kStored},
    Key{"math", &PrecisionKeys::math, kComputed},
    Key{"activations", &PrecisionKeys::activations, kComputed},
    Key{"dispatch", &PrecisionKeys::dispatch, kStored, &kExperts},
    Key{"ffn_weights", &PrecisionKeys::ffn_weights, kWeights},
    Key{"ffn_math", &PrecisionKeys::ffn_math, kComputed},
    Key{"attention_weights", &PrecisionKeys::attention_weights, kWeights},
    Key{"attention_math", &PrecisionKeys::attention_math, kComputed},
    Key{"out_proj_weights", &PrecisionKeys::out_proj_weights, kWeights},
    Key{"out_proj_math", &PrecisionKeys::out_proj_math, kComputed},
    Key{"index_weights", &PrecisionKeys::index_weights, kWeights, &kIndex},
    Key{"index_math", &PrecisionKeys::index_math, kComputed, &kIndex},
    Key{"expert_weights", &PrecisionKeys::expert_weights, kWeights, &kExperts},
    Key{"expert_math", &PrecisionKeys::expert_math, kComputed, &kExperts},
    Key{"shared_weights", &PrecisionKeys::shared_weights, kWeights, &kShared},
    Key{"shared_math", &PrecisionKeys::shared_math, kComputed, &kShared},
    Key{"router", &PrecisionKeys::router, kWeights, &kExperts},
    Key{"head", &PrecisionKeys::head, kWeights},
    Key{"draft_weights", &PrecisionKeys::draft_weights, kWeights, &kDrafts},
    Key{"draft_math", &PrecisionKeys::draft_math, kComputed, &kDrafts},
};

Dtype type_named(const std::string& name) {
  if (name == kStatic) return Dtype::fp8;
  if (name == kNvidia) return Dtype::fp4;
  std::size_t t = 0;
  while (to_string(static_cast<Dtype>(t)) != name) ++t;
  return static_cast<Dtype>(t);
}

// A class's own key, then the keys for several classes, then the checkpoint.
std::optional<Dtype> first(std::initializer_list<std::optional<Dtype>> given, Dtype checkpoint) {
  for (const std::optional<Dtype>& v : given) {
    if (v) return v;
  }
  return checkpoint;
}

bool computes(const Device& device, Dtype type) { return device.achieved(type) > FlopsPerSecond(0); }

/// The narrowest arithmetic of a device, which stands for what nobody has said: FP4 on Blackwell, FP8 on
/// Hopper, BF16 before.
Dtype narrowest(const Device& device) {
  for (const Dtype t : {Dtype::fp4, Dtype::fp8}) {
    if (computes(device, t)) return t;
  }
  return Dtype::bf16;
}

// Their own keys, then those of the classes, then the checkpoint.
std::optional<DraftTypes> draft_types(const PrecisionKeys& k, const std::optional<DraftMatrices>& stored,
                                      const Precision& p) {
  if (!k.draft_weights && !k.draft_math && !stored) return std::nullopt;
  const auto type = [&](Module m, bool weights_said, bool math_said, MatrixType DraftMatrices::*of) {
    ModuleType out = p.of(m);
    if (stored && !weights_said) out.weights = ((*stored).*of).weights;
    if (stored && !math_said)
      out.math = out.weights == ((*stored).*of).weights ? ((*stored).*of).math : arithmetic_of(out.weights);
    if (k.draft_weights) out = {*k.draft_weights, arithmetic_of(*k.draft_weights)};
    if (k.draft_math) out.math = *k.draft_math;
    return out;
  };
  const bool weights = k.weights.has_value(), math = k.math.has_value();
  const bool ffn = weights || k.ffn_weights, ffn_math = math || k.ffn_math;
  const bool attention = weights || k.attention_weights, attention_math = math || k.attention_math;
  return DraftTypes{
      type(Module::attention, attention, attention_math, &DraftMatrices::attention),
      type(Module::out_proj, attention || k.out_proj_weights, attention_math || k.out_proj_math,
           &DraftMatrices::out_proj),
      type(Module::dense_ffn, ffn, ffn_math, &DraftMatrices::dense_ffn),
      type(Module::experts, ffn || k.expert_weights, ffn_math || k.expert_math, &DraftMatrices::experts),
      type(Module::shared_experts, ffn || k.expert_weights || k.shared_weights,
           ffn_math || k.expert_math || k.shared_math, &DraftMatrices::shared)};
}

// Where a checkpoint says nothing of its cache, engines keep it in the type of the residual stream, but for
// what their profiles say (memory.sparse_latents, in precision_of()); rows of compressed attention
// (DeepSeek-V4) in FP8, the only type that SGLang and vLLM have kernels for by default (rule compressed_cache
// of planner/engines/rules_sglang.cpp and rules_vllm.cpp).
Dtype cache_by_default(const Model& m, const Precision& p) {
  return has_compression(m) ? Dtype::fp8 : p.activations;
}

Precision of_checkpoint(const PrecisionKeys& k, const Model& m, Precision p) {
  const Checkpoint& c = *m.checkpoint;
  p.attention_weights = first({k.attention_weights, k.weights}, c.attention.weights);
  p.out_proj_weights = first({k.out_proj_weights, k.attention_weights, k.weights}, c.out_proj.weights);
  p.ffn_weights = first({k.ffn_weights, k.weights}, c.dense_ffn.weights);
  p.expert_weights = first({k.expert_weights, k.ffn_weights, k.weights}, c.experts.weights);
  p.shared_weights = first({k.shared_weights, k.expert_weights, k.ffn_weights, k.weights}, c.shared.weights);
  // The arithmetic of a checkpoint is that of its own weights: of others it is theirs.
  const auto computed = [](Dtype weights, MatrixType own) {
    return weights == own.weights ? own.math : arithmetic_of(weights);
  };
  p.attention_math = first({k.attention_math, k.math}, computed(*p.attention_weights, c.attention));
  p.out_proj_math =
      first({k.out_proj_math, k.attention_math, k.math}, computed(*p.out_proj_weights, c.out_proj));
  p.ffn_math = first({k.ffn_math, k.math}, computed(*p.ffn_weights, c.dense_ffn));
  p.expert_math = first({k.expert_math, k.ffn_math, k.math}, computed(*p.expert_weights, c.experts));
  p.shared_math =
      first({k.shared_math, k.expert_math, k.ffn_math, k.math}, computed(*p.shared_weights, c.shared));
  p.weights = k.weights.value_or(c.attention.weights);
  p.math = k.math.value_or(*p.attention_math);
  p.kv = k.kv.value_or(c.kv.value_or(cache_by_default(m, p)));
  p.assumed.kv = !k.kv && !c.kv;
  p.assumed.weights = !c.assumed.empty() && !k.weights;
  p.dispatch = k.dispatch.value_or(*p.expert_math);
  p.router = k.router.value_or(c.router);
  p.head = k.head.value_or(c.head.weights);
  p.head_math = computed(p.head, c.head);
  // The tools that quantise heads leave tables of embeddings, which nothing multiplies.
  if (!k.head && !m.tied_embeddings) p.embedding = Dtype::bf16;
  const MatrixType index = c.index.value_or(c.attention);
  p.index_weights = first({k.index_weights, k.attention_weights, k.weights}, index.weights);
  p.index_math = first({k.index_math, k.attention_math, k.math}, computed(*p.index_weights, index));
  p.drafts = draft_types(k, c.drafts, p);
  return p;
}

}  // namespace

Precision precision_of(const PrecisionKeys& k, const Model& model, const System& system,
                       const EngineProfile* engine) {
  Precision p = k.of(model, system.device);
  if (p.assumed.kv && engine != nullptr && has_sparse_latents(model)) {
    const auto own = engine->pools.sparse_latents.find(architecture_of(system.device));
    if (own != engine->pools.sparse_latents.end()) p.kv = own->second;
  }
  const bool said = k.expert_math || k.ffn_math || k.math;
  if (said || !has_experts(model) || p.of(Module::experts).weights != Dtype::mxfp4) return p;
  // DeepSeek-V4's own code multiplies them in FP8; engines have such kernels on Blackwell alone, and widen
  // them to 16 bits elsewhere (rule weight_math of all three). So tokens are not narrowed before, either.
  if (engine != nullptr && p.of(Module::experts).math == Dtype::fp8 &&
      architecture_of(system.device) != Architecture::blackwell) {
    p.expert_math = Dtype::bf16;
    p.assumed.expert_math = true;
    if (!k.dispatch) p.dispatch = Dtype::bf16;
    return p;
  }
  if (system.calibration.empty() || !computes(system.device, Dtype::fp8) ||
      !is_one_of(architecture_of(system.calibration, system.device), system.kernels.mxfp4_in_fp8))
    return p;
  p.expert_math = Dtype::fp8;
  p.assumed.expert_math = true;
  if (!k.dispatch) p.dispatch = Dtype::fp8;
  return p;
}

PrecisionKeys read_precision(const Reader& r) {
  PrecisionKeys out;
  out.faulty = !r.is_map();
  if (is_one_type(r)) return out;
  for (const Key& key : kKeys) {
    const auto v = r.find(key.name);
    if (!v) continue;
    const auto i = choice(*v, key.names);
    if (i) out.*key.member = type_named(key.names[*i]);
    out.faulty = out.faulty || !i;
  }
  r.no_other_keys(instead_in_precision);
  return out;
}

void check_parts(const Reader& precision, const std::vector<Model>& models) {
  if (!precision.is_map()) return;
  const auto applies = [&](const Key& key) {
    return key.part == nullptr || std::any_of(models.begin(), models.end(), key.part->in);
  };
  std::vector<std::string> names;
  for (const Key& key : kKeys) {
    if (applies(key)) names.emplace_back(key.name);
  }
  for (const Key& key : kKeys) {
    const auto v = applies(key) ? std::nullopt : precision.find(key.name);
    if (v)
      v->fault(fmt::format("precision.{} is the type of nothing: no listed model has {}", key.name,
                           key.part->name),
               expected_one_of(key.name, names));
  }
}

Precision PrecisionKeys::of(const Model& model, const Device& device) const {
  Precision p;
  if (activations) p.activations = *activations;
  p.ffn_weights = ffn_weights;
  p.ffn_math = ffn_math;
  p.attention_weights = attention_weights;
  p.attention_math = attention_math;
  p.out_proj_weights = out_proj_weights;
  p.out_proj_math = out_proj_math;
  p.expert_weights = expert_weights;
  p.expert_math = expert_math;
  p.shared_weights = shared_weights;
  p.shared_math = shared_math;
  p.index_weights = index_weights;
  p.index_math = index_math;
  if (model.checkpoint) return of_checkpoint(*this, model, p);
  const Dtype otherwise = narrowest(device);
  p.weights = weights.value_or(otherwise);
  p.kv = kv.value_or(otherwise);
  p.math = math.value_or(weights ? arithmetic_of(*weights) : otherwise);
  // Experts cannot be fed what they do not compute in.
  p.dispatch = dispatch.value_or(p.of(Module::experts).math);
  p.router = router.value_or(p.router);
  p.head = head.value_or(p.head);
  p.drafts = draft_types(*this, std::nullopt, p);
  p.assumed = {!weights, !math && !weights, !kv, !dispatch && has_experts(model)};
  return p;
}

bool check_unread(const PrecisionKeys& k, const Model& model, const EngineProfile* engine,
                  const Reader& root) {
  const std::string unread = unread_types(model);
  if (unread.empty() || k.faulty || k.weights) return false;
  const bool ffn =
      (!has_dense(model) || k.ffn_weights) && (!has_experts(model) || k.ffn_weights || k.expert_weights);
  if (k.attention_weights && ffn) return false;
  std::vector<std::string> details{"its matrices have no type here: say which they have, for instance " +
                                       argument_given("set", "precision.weights=fp8") +
                                       ", or in a scenario precision: {weights: fp8}",
                                   fmt::format("types of weights: {}", fmt::join(kWeights, ", "))};
  if (const std::string own = started_unpriced(model, engine); !own.empty())
    details.push_back(own + ": with other types it is another checkpoint that is priced");
  root.at("models").fault(unread, std::move(details));
  return true;
}

namespace {

// Of the matrices that the modules that draft have, where their types are their own.
std::vector<Dtype> draft_arithmetic(const Model& m, const Precision& p) {
  if (!m.drafts || !p.drafts) return {};
  std::vector<Dtype> out{p.drafts->attention.math, p.drafts->out_proj.math};
  const FeedForward& f = m.drafts->ffn;
  if (f.dense()) out.push_back(p.drafts->dense_ffn.math);
  if (f.routed()) out.push_back(p.drafts->experts.math);
  if (f.shared_experts > 0) out.push_back(p.drafts->shared.math);
  return out;
}

}  // namespace

bool check_units(const PrecisionKeys& keys, const Model& model, const Device& device, const Reader& root) {
  if (keys.faulty) return false;
  std::string units;
  for (const Dtype t : {Dtype::fp4, Dtype::fp8, Dtype::bf16, Dtype::fp32}) {
    if (computes(device, t)) units += fmt::format("{}{}", units.empty() ? "" : ", ", to_string(t));
  }
  const Precision p = keys.of(model, device);
  const auto at = root.find("precision");
  bool fine = true;
  const auto require = [&](const char* key, Dtype type) {
    if (computes(device, type)) return;
    fine = false;
    const auto given = at ? at->find(key) : std::nullopt;
    std::vector<std::string> details{"expected one of: " + units};
    if (!given)
      details.push_back(fmt::format(
          "weights may be narrower than what they are computed in: precision: {{{}: bf16}}", key));
    (given ? *given
     : at  ? *at
           : root)
        .fault(fmt::format("precision.{} is {}{}, which {} has no unit for", key, to_string(type),
                           given              ? ""
                           : model.checkpoint ? " in the checkpoint of " + model.name
                                              : " where it is not given",
                           device.name),
               std::move(details));
  };
  require("math", p.math);
  if (!fine) return true;  // what follows from it is not said again
  const Dtype attention = p.of(Module::attention).math, out_proj = p.of(Module::out_proj).math;
  if (attention != p.math) require("attention_math", attention);
  if (out_proj != attention) require("out_proj_math", out_proj);
  if (has_index(model) && p.of(Module::index).math != attention)
    require("index_math", p.of(Module::index).math);
  if (p.of(Module::dense_ffn).math != p.math && has_dense(model))
    require("ffn_math", p.of(Module::dense_ffn).math);
  if (has_experts(model)) {
    const Dtype experts = p.of(Module::experts).math;
    if (experts != p.math) require(keys.ffn_math && !keys.expert_math ? "ffn_math" : "expert_math", experts);
    const Dtype shared = p.of(Module::shared_experts).math;
    if (shared != experts) require("shared_math", shared);
    require("router", p.of(Module::router).math);
  }
  require("head", p.of(Module::head).math);
  for (const Dtype math : draft_arithmetic(model, p)) {
    if (fine) require("draft_math", math);  // said once
  }
  return !fine;
}

}  // namespace shardline::scenario_parts
