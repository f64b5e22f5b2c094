#include "planner/engines/trtllm_caches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "planner/layers/share.hpp"

namespace shardline {

namespace {

// What a case asks of its cache, and what would start in its place.
CaseComplaint other_cache(std::string text, const std::string& types) {
  return {"precision.kv", std::move(text),
          fmt::format("{}, as --set precision.kv={} on the command line", types,
                      types.substr(0, types.find(' ')))};
}

// hf_quant_config.json may name the type of the cache: "auto" is that type, and another one an error.
std::optional<CaseComplaint> checkpoints_cache(const Case& c) {
  if (!c.model.checkpoint || !c.model.checkpoint->kv || *c.model.checkpoint->kv == Dtype::bf16)
    return std::nullopt;
  const Dtype own = kernel_type(*c.model.checkpoint->kv);
  if (kernel_type(c.precision.kv) == own) return std::nullopt;
  return other_cache(fmt::format("a cache in {} of a checkpoint of {} whose files say {}",
                                 to_string(c.precision.kv), c.model.name, to_string(own)),
                     own == Dtype::fp4 ? "fp4" : "fp8");
}

// Scales of a cache in NVFP4 are those of the product that makes queries, keys and values, which has them in
// static FP8 and in NVFP4 alone (FP8QDQLinearMethod and NVFP4LinearMethod of _torch/modules/linear.py;
// Attention.forward of modules/attention.py reads qkv_proj.kv_scales of any).
bool has_kv_scales(const Case& c) {
  const Dtype t = c.precision.of(Module::attention).weights;
  return t == Dtype::fp8 || kernel_type(t) == Dtype::fp4;
}

}  // namespace

// After 1.3.0rc20 it takes NVFP4 under MLA, too, with a residual in FP8 (dsv3RopeOp.cpp@09d521c522f2).
std::optional<CaseComplaint> trtllm_cache_type(const Case& c) {
  if (auto out = fp32_cache(c)) return out;
  if (kernel_type(c.precision.kv) == Dtype::fp4) {
    if (architecture_of(c.system.device) != Architecture::blackwell)
      return other_cache(fmt::format("{} is no Blackwell, where caches in NVFP4 run", c.system.device.name),
                         "fp8 or bf16");
    if (has_latents(c.model))
      return other_cache(fmt::format("{} has MLA, whose cache it does not keep in NVFP4", c.model.name),
                         "fp8 or bf16");
    if (!has_kv_scales(c))
      return other_cache(
          fmt::format("a cache in fp4 of {} beside attention projections in {}, which bring no scales for it",
                      c.model.name, to_string(c.precision.of(Module::attention).weights)),
          "fp8 or bf16");
  }
  return checkpoints_cache(c);
}

// Prompts of GQA over a cache in FP8 leave attention in FP8 on Hopper, by a scale that the output projection
// brings (has_quant_scale in modules/attention.py: of FP8 and FP4). MLA has kernels of its own.
std::optional<CaseComplaint> trtllm_cache_scale(const Case& c) {
  const Dtype out = kernel_type(c.precision.of(Module::out_proj).weights);
  const bool scaled = out == Dtype::fp8 || out == Dtype::fp8_block || out == Dtype::fp8_dynamic;
  const bool plain = std::any_of(
      c.model.attentions.begin(), c.model.attentions.end(),
      [](const Attention& a) { return !a.none() && !a.recurrent() && !has_latents(a) && !a.compression; });
  if (kernel_type(c.precision.kv) != Dtype::fp8 || scaled || !plain ||
      architecture_of(c.system.device) != Architecture::hopper)
    return std::nullopt;
  CaseComplaint no = other_cache(fmt::format("a cache in fp8 of {} beside output projections in {} on {}",
                                             c.model.name, to_string(out), c.system.device.name),
                                 "bf16");
  no.instead += "; or a checkpoint in fp8";
  return no;
}

}  // namespace shardline
