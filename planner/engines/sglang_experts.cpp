#include "planner/engines/sglang_experts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/layers/share.hpp"

namespace shardline {

namespace {

// Classes without a branch for tokens that were dispatched, of python/sglang/srt/models@49e384ce9d: at these
// lines they sum outputs of experts over all ranks, each of which would have them whole already, or say that
// nothing of the kind is there.
constexpr std::array kGathersOnly{
    ReadArchitecture{"Ernie4_5_MoeForCausalLM", "models/ernie4.py:145"},
    ReadArchitecture{"GptOssForCausalLM", "models/gpt_oss.py:263"},
    ReadArchitecture{"KimiLinearForCausalLM", "models/kimi_linear.py:163"},
    ReadArchitecture{"Llama4ForCausalLM", "models/llama4.py:154"},
    ReadArchitecture{"Llama4ForConditionalGeneration", "models/llama4.py:154"},
    ReadArchitecture{"MixtralForCausalLM", "models/mixtral.py:117"},
    ReadArchitecture{"NemotronHForCausalLM", "models/nemotron_h.py:329"},
};

// DeepGEMM runs block FP8 behind both kinds of DeepEP's kernels, CUTLASS INT4 with activations in FP8.
// Whatever else reaches run_moe_core() of tokens of prompts ends there; of steps that decode NVFP4 and BF16
// would run, by kernels that no launch file here asks for.
bool dispatched(ModuleType t) {
  return t.weights == Dtype::fp8_block || (t.weights == Dtype::int4 && t.math == Dtype::fp8);
}

}  // namespace

Complaint sglang_undispatched(const Case& c, const Plan& p) {
  if (!groups_share_experts(c, p) || p[kExpertTokens] == ExpertTokens::gather) return std::nullopt;
  const auto at = std::find_if(kGathersOnly.begin(), kGathersOnly.end(),
                               [&](const ReadArchitecture& a) { return c.model.architecture == a.name; });
  if (at != kGathersOnly.end())
    return fmt::format("dispatch and combine of {}, whose class has none ({}): moe_a2a=gather", c.model.name,
                       at->place);
  const ModuleType t = c.precision.of(Module::experts);
  if (dispatched(t)) return std::nullopt;
  return fmt::format(
      "dispatch and combine of experts in {}{}: moe_a2a=gather, or experts in block FP8",
      to_string(t.weights),
      t.math == arithmetic_of(t.weights) ? "" : fmt::format(", computed in {}", to_string(t.math)));
}

Complaint sglang_widened_experts(const Case& c, const Plan& p) {
  if (!has_experts(c.model) || c.precision.of(Module::experts).weights != Dtype::mxfp4 || p.ep == 1 ||
      architecture_of(c.system.device) == Architecture::blackwell)
    return std::nullopt;
  return fmt::format("experts in mxfp4 over ep={} on {}, widened to bf16 when they are loaded: ep=1", p.ep,
                     c.system.device.name);
}

}  // namespace shardline
