#include "planner/engines/checkpoints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

/// Of a model the first is its maker's own.
struct Published {
  std::string_view model;
  Dtype stored;
  std::string_view repository;
};

// Of the models' own makers as models/catalog names them, and of NVIDIA's Model Optimizer: NVFP4 of
// Llama-3.1-405B, DeepSeek-R1 and Qwen3-235B-A22B and FP8 of Llama-3.1 are named in the READMEs of
// NVIDIA/TensorRT-Model-Optimizer and NVIDIA/TensorRT-LLM and (nvidia/DeepSeek-R1-FP4) in sgl-project/sglang
// docs/advanced_features/attention_backend.md:139@49e384ce9d.
constexpr std::array kPublished{
    Published{"deepseek-r1", Dtype::fp8_block, "deepseek-ai/DeepSeek-R1"},
    Published{"deepseek-r1", Dtype::fp4, "nvidia/DeepSeek-R1-FP4"},
    Published{"kimi-k2", Dtype::fp8_block, "moonshotai/Kimi-K2-Instruct"},
    Published{"mimo-v2-flash", Dtype::fp8_block, "XiaomiMiMo/MiMo-V2-Flash"},
    Published{"gpt-oss-120b", Dtype::mxfp4, "openai/gpt-oss-120b"},
    Published{"gpt-oss-20b", Dtype::mxfp4, "openai/gpt-oss-20b"},
    Published{"llama-3.1-405b", Dtype::bf16, "meta-llama/Llama-3.1-405B-Instruct"},
    Published{"llama-3.1-405b", Dtype::fp8, "nvidia/Llama-3.1-405B-Instruct-FP8"},
    Published{"llama-3.1-405b", Dtype::fp4, "nvidia/Llama-3.1-405B-Instruct-FP4"},
    Published{"llama-3.1-70b", Dtype::bf16, "meta-llama/Llama-3.1-70B-Instruct"},
    Published{"llama-3.1-70b", Dtype::fp8, "nvidia/Llama-3.1-70B-Instruct-FP8"},
    Published{"llama-3.1-8b", Dtype::bf16, "meta-llama/Llama-3.1-8B-Instruct"},
    Published{"llama-3.1-8b", Dtype::fp8, "nvidia/Llama-3.1-8B-Instruct-FP8"},
    Published{"qwen3-235b-a22b", Dtype::bf16, "Qwen/Qwen3-235B-A22B"},
    Published{"qwen3-235b-a22b", Dtype::fp8_block, "Qwen/Qwen3-235B-A22B-FP8"},
    Published{"qwen3-235b-a22b", Dtype::fp4, "nvidia/Qwen3-235B-A22B-FP4"},
};

// "Hugging Face tiiuae/falcon-7b config.json", as the sources of the catalogue are written.
std::string named_in(const std::string& source) {
  constexpr std::string_view before = "Hugging Face ", after = " config.json";
  const auto begin = source.find(before);
  if (begin == std::string::npos) return "";
  const auto from = begin + before.size(), to = source.find(after, from);
  if (to == std::string::npos) return "";
  const std::string name = source.substr(from, to - from);
  return name.find(' ') == std::string::npos ? name : "";
}

Dtype main_type(const Case& c) {
  return kernel_type(c.precision.of(has_experts(c.model) ? Module::experts : Module::dense_ffn).weights);
}

}  // namespace

Checkpoint checkpoint_by_default(const Model& model) {
  Checkpoint out;
  const auto* const own = std::find_if(kPublished.begin(), kPublished.end(),
                                       [&](const Published& p) { return p.model == model.name; });
  const Dtype stored = own != kPublished.end() ? own->stored : Dtype::bf16;
  SL_CHECK(stored == Dtype::bf16 || stored == Dtype::fp8_block || stored == Dtype::mxfp4,
           "of other types a checkpoint leaves out matrices of its own choice");
  // FP8 in blocks: all but the router and the head (modules_to_not_convert of DeepSeek, Kimi and Qwen's
  // files). MXFP4: the routed experts alone (gpt-oss: vLLM quantization/mxfp4.py).
  if (stored == Dtype::fp8_block)
    out.attention = out.out_proj = out.dense_ffn = out.experts = out.shared = stored;
  if (stored == Dtype::mxfp4) out.experts = stored;
  out.assumed = own != kPublished.end() ? std::string(own->repository) : named_in(model.source);
  if (out.assumed.empty()) out.assumed = "one in bf16";
  return out;
}

std::string checkpoint_of(const Case& c) {
  bool known = false;
  for (const Published& p : kPublished) {
    if (p.model != c.model.name) continue;
    if (p.stored == main_type(c)) return std::string(p.repository);
    known = true;
  }
  // Of models that are not listed the source's own checkpoint is in BF16.
  return !known && main_type(c) == Dtype::bf16 ? named_in(c.model.source) : "";
}

std::string stored_types(const Case& c) {
  const auto type = [&](Module m) { return to_string(kernel_type(c.precision.of(m).weights)); };
  std::string out = fmt::format("attention {}", type(Module::attention));
  if (has_dense(c.model)) out += fmt::format(", dense FFN {}", type(Module::dense_ffn));
  if (has_experts(c.model)) out += fmt::format(", experts {}", type(Module::experts));
  return out + fmt::format(", LM head {}", type(Module::head));
}

}  // namespace shardline
