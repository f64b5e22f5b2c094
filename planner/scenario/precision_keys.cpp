#include "planner/scenario/precision_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/scenario/scenario_parts.hpp"

namespace shardline::scenario_parts {

namespace {

// Names of types: of arithmetic and activations, of what is stored or sent, of weights.
const std::vector<std::string> kComputed{"fp4", "fp8", "bf16", "fp32"};
const std::vector<std::string> kStored{"fp4", "fp8", "bf16", "fp32", "fp4_unscaled"};
const std::vector<std::string> kWeights{"fp4", "fp8", "bf16", "fp32", "fp8_block", "fp4_unscaled"};

struct Key {
  const char* name;
  std::optional<Dtype> PrecisionKeys::*member;
  const std::vector<std::string>& names;
};
const std::array kKeys{
    Key{"weights", &PrecisionKeys::weights, kWeights},
    Key{"kv", &PrecisionKeys::kv, kStored},
    Key{"math", &PrecisionKeys::math, kComputed},
    Key{"activations", &PrecisionKeys::activations, kComputed},
    Key{"dispatch", &PrecisionKeys::dispatch, kStored},
    Key{"ffn_weights", &PrecisionKeys::ffn_weights, kWeights},
    Key{"ffn_math", &PrecisionKeys::ffn_math, kComputed},
    Key{"attention_weights", &PrecisionKeys::attention_weights, kWeights},
    Key{"attention_math", &PrecisionKeys::attention_math, kComputed},
    Key{"expert_weights", &PrecisionKeys::expert_weights, kWeights},
    Key{"expert_math", &PrecisionKeys::expert_math, kComputed},
    Key{"shared_weights", &PrecisionKeys::shared_weights, kWeights},
    Key{"shared_math", &PrecisionKeys::shared_math, kComputed},
    Key{"router", &PrecisionKeys::router, kWeights},
    Key{"head", &PrecisionKeys::head, kWeights},
};

Dtype type_named(const std::string& name) {
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

}  // namespace

PrecisionKeys read_precision(const Reader& r) {
  PrecisionKeys out;
  out.faulty = !r.is_map();
  for (const Key& key : kKeys) {
    const auto v = r.find(key.name);
    if (!v) continue;
    const auto i = choice(*v, key.names);
    if (i) out.*key.member = type_named(key.names[*i]);
    out.faulty = out.faulty || !i;
  }
  r.no_other_keys();
  return out;
}

Precision PrecisionKeys::of(const Model& model) const {
  Precision p;
  if (activations) p.activations = *activations;
  p.ffn_weights = ffn_weights;
  p.ffn_math = ffn_math;
  p.attention_weights = attention_weights;
  p.attention_math = attention_math;
  p.expert_weights = expert_weights;
  p.expert_math = expert_math;
  p.shared_weights = shared_weights;
  p.shared_math = shared_math;
  if (!model.checkpoint) {
    p.weights = weights.value_or(p.weights);
    p.kv = kv.value_or(p.kv);
    p.math = math.value_or(p.math);
    p.dispatch = dispatch.value_or(p.dispatch);
    p.router = router.value_or(p.router);
    p.head = head.value_or(p.head);
    return p;
  }
  const Checkpoint& c = *model.checkpoint;
  const auto computed = [](Dtype t) { return arithmetic_of(t); };
  p.attention_weights = first({attention_weights, weights}, c.attention);
  p.ffn_weights = first({ffn_weights, weights}, c.dense_ffn);
  p.expert_weights = first({expert_weights, ffn_weights, weights}, c.experts);
  p.shared_weights = first({shared_weights, expert_weights, ffn_weights, weights}, c.shared);
  p.attention_math = first({attention_math, math}, computed(*p.attention_weights));
  p.ffn_math = first({ffn_math, math}, computed(*p.ffn_weights));
  p.expert_math = first({expert_math, ffn_math, math}, computed(*p.expert_weights));
  p.shared_math = first({shared_math, expert_math, ffn_math, math}, computed(*p.shared_weights));
  p.weights = weights.value_or(c.attention);
  p.math = math.value_or(*p.attention_math);
  // Where a checkpoint says nothing of its cache, engines keep it in the type of the residual stream.
  p.kv = kv.value_or(c.kv.value_or(p.activations));
  p.dispatch = dispatch.value_or(computed(*p.expert_weights));
  p.router = router.value_or(c.router);
  p.head = head.value_or(c.head);
  return p;
}

bool check_units(const PrecisionKeys& keys, const Model& model, const Device& device, const Reader& root) {
  if (keys.faulty) return false;
  std::string units;
  for (const Dtype t : {Dtype::fp4, Dtype::fp8, Dtype::bf16, Dtype::fp32}) {
    if (device.achieved(t) > FlopsPerSecond(0))
      units += fmt::format("{}{}", units.empty() ? "" : ", ", to_string(t));
  }
  const Precision p = keys.of(model);
  const auto at = root.find("precision");
  bool fine = true;
  const auto require = [&](const char* key, Dtype type) {
    if (device.achieved(type) > FlopsPerSecond(0)) return;
    fine = false;
    const auto given = at ? at->find(key) : std::nullopt;
    (given ? *given
     : at  ? *at
           : root)
        .fault(fmt::format("precision.{} is {}{}, which {} has no unit for", key, to_string(type),
                           given              ? ""
                           : model.checkpoint ? " in the checkpoint of " + model.name
                                              : " where it is not given",
                           device.name),
               {"expected one of: " + units});
  };
  require("math", p.math);
  if (!fine) return true;  // what follows from it is not said again
  if (p.of(Module::attention).math != p.math) require("attention_math", p.of(Module::attention).math);
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
  return !fine;
}

}  // namespace shardline::scenario_parts
