#include "planner/engines/file_methods.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "models/model/hf_config.hpp"

namespace shardline {

namespace {

// "channel" of "compressed-tensors/channel"; empty: the method has none.
std::string_view scale_sharing(const Checkpoint& files) {
  const auto slash = files.method.find('/');
  return slash == std::string::npos ? std::string_view{} : std::string_view(files.method).substr(slash + 1);
}

bool of_int4(Dtype t) { return t == Dtype::int4 || t == Dtype::int4_group32; }

// ModelOpt's INT4, which vLLM (quantization/modelopt.py:104-119) and SGLang (configs/model_config.py:1145)
// have no algorithm for.
bool no_int4(const Checkpoint&, Module, MatrixType t) { return !of_int4(t.weights); }

// FP8 with a scale per block alone: without weight_block_size no branch of ModelConfig.load_hf_quant_config
// (_torch/model_config.py) takes the method before pull request 15123 of 27 July 2026, so that its weights
// are cast as they are and their scales left.
bool blocks_alone(const Checkpoint& files, Module of, MatrixType t) {
  return no_int4(files, of, t) && t.weights != Dtype::fp8 && t.weights != Dtype::fp8_dynamic;
}

bool no_unread(std::string_view) { return false; }

bool has(std::string_view reason, std::string_view word) { return reason.find(word) != reason.npos; }

constexpr std::string_view kZeroPoints =
    " and zero points";  // of a reason, as checkpoint_rules.cpp writes it

// AutoGPTQConfig.TYPE_MAP: symmetric ones of 4 or 8 bits.
bool symmetric(const Checkpoint& files, Module, MatrixType) { return !files.zero_points; }
bool eight_bits(std::string_view reason) { return has(reason, " with 8 bits") && !has(reason, kZeroPoints); }

// What GPTQMarlinConfig does not take is left to GPTQConfig, whose get_quant_method has nothing for experts
// (layers/quantization/gptq.py, "GPTQ Method does not support MoE").
bool symmetric_experts(const Checkpoint& files, Module of, MatrixType) {
  return of != Module::experts || !files.zero_points;
}

// GPTQConfig.__init__.
bool any_of_gptq(std::string_view reason) {
  return has(reason, " with 2 bits") || has(reason, " with 3 bits") || has(reason, " with 8 bits");
}

// method_to_config of quantization/__init__.py, and auto-round, which INCConfig takes over.
constexpr std::array kVllm{
    FileMethod{"auto-round"},
    FileMethod{"auto_awq", nullptr, no_unread},
    FileMethod{"auto_gptq", symmetric, eight_bits},
    FileMethod{"awq", nullptr, no_unread},
    FileMethod{"bitsandbytes"},
    FileMethod{"compressed-tensors"},
    FileMethod{"deepseek_v4_fp8"},
    FileMethod{"experts_int8"},
    FileMethod{"fbgemm_fp8"},
    FileMethod{"fp8"},
    FileMethod{"fp_quant"},
    FileMethod{"gpt_oss_mxfp4"},
    FileMethod{"gptq", symmetric, eight_bits},
    FileMethod{"humming"},
    FileMethod{"inc"},
    FileMethod{"modelopt", no_int4},
    FileMethod{"modelopt_fp4"},
    FileMethod{"modelopt_mixed"},
    FileMethod{"modelopt_mxfp8"},
    FileMethod{"moe_wna16"},
    FileMethod{"mxfp4"},
    FileMethod{"mxfp8"},
    FileMethod{"quark"},
    FileMethod{"torchao"},
};

// BASE_QUANTIZATION_METHODS of layers/quantization/__init__.py, and mxfp4, which it adds on CUDA.
constexpr std::array kSglang{
    FileMethod{"auto-round"},
    FileMethod{"awq", nullptr, no_unread},
    FileMethod{"bitsandbytes"},
    FileMethod{"blockwise_int8"},
    FileMethod{"compressed-tensors"},
    FileMethod{"fbgemm_fp8"},
    FileMethod{"fp8"},
    FileMethod{"gptq", symmetric_experts, any_of_gptq},
    FileMethod{"modelopt", no_int4},
    FileMethod{"modelopt_fp4"},
    FileMethod{"modelopt_fp8"},
    FileMethod{"modelopt_mixed"},
    FileMethod{"moe_wna16"},
    FileMethod{"mxfp4"},
    FileMethod{"mxfp8"},
    FileMethod{"petit_nvfp4"},
    FileMethod{"qoq"},
    FileMethod{"quark"},
    FileMethod{"w4afp8"},
    FileMethod{"w8a8_fp8"},
    FileMethod{"w8a8_int8"},
};

// The branches of ModelConfig.load_hf_quant_config (_torch/model_config.py), which builds the layers;
// ModelOpt's own files go before them. Of INT8 its PyTorch backend has no recipe
// (docs/source/features/quantization.md).
constexpr std::array kTrtllm{
    FileMethod{"compressed-tensors", trtllm_reads_groups, no_unread},
    FileMethod{"fp8", blocks_alone},
    FileMethod{"modelopt"},
    FileMethod{"mxfp4", no_int4},
    FileMethod{"mxfp8"},
    FileMethod{"nvfp4"},
};

const FileMethod* reader_of(std::span<const FileMethod> table, std::string_view method) {
  const auto at =
      std::find_if(table.begin(), table.end(), [&](const FileMethod& m) { return m.method == method; });
  return at == table.end() ? nullptr : &*at;
}

MatrixType stored_in(const Checkpoint& files, Module m) {
  return m == Module::attention   ? files.attention
         : m == Module::dense_ffn ? files.dense_ffn
         : m == Module::experts   ? files.experts
                                  : files.shared;
}

// "the method gptq with 3 bits" of "types of m not read: the method gptq with 3 bits at m.json:3:1".
std::string_view unread_reason(std::string_view unread) {
  constexpr std::string_view kBefore = "not read: ";
  const auto begin = unread.find(kBefore);
  if (begin != unread.npos) unread.remove_prefix(begin + kBefore.size());
  return unread.substr(0, unread.rfind(" at "));
}

// What of a checkpoint a table's engine does not read; empty: nothing.
std::string unread_of(const Case& c, std::span<const FileMethod> table) {
  if (!c.model.checkpoint || c.model.checkpoint->method.empty()) return "";
  const Checkpoint& files = *c.model.checkpoint;
  const std::string_view method = std::string_view(files.method).substr(0, files.method.find('/'));
  const FileMethod* const own = reader_of(table, method);
  if (!files.unread.empty()) {
    const bool reads =
        own != nullptr && (own->reads_unread == nullptr || own->reads_unread(unread_reason(files.unread)));
    return reads ? "" : fmt::format("files of {} with {}", c.model.name, unread_reason(files.unread));
  }
  const std::string_view strategy = scale_sharing(files);
  for (const KeptModule& k : kept_modules(c.model)) {
    const MatrixType t = stored_in(files, k.module);
    if (t.weights == Dtype::bf16 || t.weights == Dtype::fp32) continue;
    if (own != nullptr && (own->reads == nullptr || own->reads(files, k.module, t))) continue;
    const bool of_gptq = files.zero_points && method == "gptq";
    return fmt::format("{} of {} in {}{}, as files of {} have them{}", k.name, c.model.name,
                       to_string(t.weights),
                       of_gptq                                        ? " with zero points"
                       : t.math == Dtype::bf16 && !of_int4(t.weights) ? " (weights alone)"
                                                                      : "",
                       method, strategy.empty() ? "" : fmt::format(", of strategy {}", strategy));
  }
  return "";
}

}  // namespace

// update_quant_config_from_compressed_tensors of tensorrt_llm/models/quant_config_utils.py: it reads the
// first group alone, and asks it for activations, which files of weights alone do not have.
bool trtllm_reads_groups(const Checkpoint& files, Module, MatrixType t) {
  switch (t.weights) {
    case Dtype::fp8_dynamic:
      return t.math == Dtype::fp8 && scale_sharing(files) == "channel";
    case Dtype::fp8_block:
      return t.math == Dtype::fp8 && scale_sharing(files) == "block";
    case Dtype::fp4:
      return t.math == Dtype::fp4;
    default:
      return false;
  }
}

const std::span<const FileMethod> kVllmFiles{kVllm}, kSglangFiles{kSglang}, kTrtllmFiles{kTrtllm};

std::optional<CaseComplaint> int8_device(const Case& c) {
  if (!c.model.checkpoint || architecture_of(c.system.device) != Architecture::blackwell) return std::nullopt;
  const std::string_view reason = unread_reason(c.model.checkpoint->unread);
  if (!has(reason, "activations of int8") && !has(reason, "the method w8a8_int8")) return std::nullopt;
  return CaseComplaint{
      "models",
      fmt::format("files of {} with {} on {}", c.model.name,
                  has(reason, "w8a8") ? "activations of int8" : reason, c.system.device.name),
      "another checkpoint of it, or a system of Hopper or Ampere"};
}

std::optional<CaseComplaint> gptq_kernels(const Case& c) {
  if (!c.model.checkpoint || !c.model.checkpoint->zero_points || c.model.checkpoint->method != "gptq")
    return std::nullopt;
  return CaseComplaint{
      "models",
      fmt::format("files of {} in int4 with zero points (sym: false), which run in float16 by ExLlama's "
                  "kernels; no measurement here has them",
                  c.model.name),
      "a checkpoint of it with sym: true, or in bf16"};
}

std::optional<CaseComplaint> unread_files(const Case& c, std::span<const FileMethod> table) {
  std::string text = unread_of(c, table);
  if (text.empty()) return std::nullopt;
  std::string others;
  int count = 0;
  for (const LaunchRules* rules : launch_rules()) {
    if (!unread_of(c, *rules->files).empty()) continue;
    others += fmt::format("{}{} ({})", others.empty() ? "" : " or ", rules->engine, title_of(*rules));
    ++count;
  }
  return CaseComplaint{"models", std::move(text),
                       count == 0
                           ? "another checkpoint of it: no engine here reads these files"
                           : fmt::format("another checkpoint of it, or engine {}, which {} these files",
                                         others, count == 1 ? "reads" : "read")};
}

}  // namespace shardline
