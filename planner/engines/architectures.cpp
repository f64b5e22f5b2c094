// Read for every architecture that models are imported of (models/model/hf_families.cpp). An engine takes the
// first name under `architectures` and looks it up in its own registry.
#include "planner/engines/architectures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/engines/launch_rules.hpp"

namespace shardline {

namespace {

// The keys of _TEXT_GENERATION_MODELS and _MULTIMODAL_MODELS in models/registry.py, with the module of each.
// Read between 0.21 and 0.24; _PREVIOUSLY_SUPPORTED_MODELS, where vLLM keeps what it has dropped and when,
// names none of them up to 0.26.0.
constexpr std::array kVllmHas{
    ReadArchitecture{"DeepseekV2ForCausalLM", "deepseek_v2.py"},
    ReadArchitecture{"DeepseekV3ForCausalLM", "deepseek_v2.py"},
    ReadArchitecture{"FalconForCausalLM", "falcon.py"},
    ReadArchitecture{"Gemma3ForCausalLM", "gemma3.py"},
    ReadArchitecture{"Gemma3ForConditionalGeneration", "gemma3_mm.py"},
    ReadArchitecture{"Gemma4ForCausalLM", "gemma4.py"},
    ReadArchitecture{"Gemma4ForConditionalGeneration", "gemma4_mm.py"},
    ReadArchitecture{"GptOssForCausalLM", "gpt_oss.py"},
    ReadArchitecture{"LLaMAForCausalLM", "llama.py"},
    ReadArchitecture{"Llama4ForCausalLM", "llama4.py"},
    ReadArchitecture{"Llama4ForConditionalGeneration", "mllama4.py"},
    ReadArchitecture{"LlamaForCausalLM", "llama.py"},
    ReadArchitecture{"MiMoV2FlashForCausalLM", "mimo_v2.py"},
    ReadArchitecture{"MistralForCausalLM", "mistral.py"},
    ReadArchitecture{"MixtralForCausalLM", "mixtral.py"},
    ReadArchitecture{"Qwen2ForCausalLM", "qwen2.py"},
    ReadArchitecture{"Qwen3ForCausalLM", "qwen3.py"},
    ReadArchitecture{"Qwen3MoeForCausalLM", "qwen3_moe.py"},
    ReadArchitecture{"RWForCausalLM", "falcon.py"},
};
constexpr std::array kVllmLacks{
    ReadArchitecture{"KimiK2ForCausalLM", "in neither table of registry.py"},
};

// EntryClass of each module, which models/registry.py gathers.
constexpr std::array kSglangHas{
    ReadArchitecture{"DeepseekV2ForCausalLM", "deepseek_v2.py"},
    ReadArchitecture{"DeepseekV3ForCausalLM", "deepseek_v2.py"},
    ReadArchitecture{"Gemma3ForCausalLM", "gemma3_causal.py"},
    ReadArchitecture{"Gemma3ForConditionalGeneration", "gemma3_mm.py"},
    ReadArchitecture{"Gemma4ForCausalLM", "gemma4_causal.py"},
    ReadArchitecture{"Gemma4ForConditionalGeneration", "gemma4_mm.py"},
    ReadArchitecture{"GptOssForCausalLM", "gpt_oss.py"},
    ReadArchitecture{"Llama4ForCausalLM", "llama4.py"},
    ReadArchitecture{"Llama4ForConditionalGeneration", "mllama4.py"},
    ReadArchitecture{"LlamaForCausalLM", "llama.py"},
    ReadArchitecture{"MiMoV2FlashForCausalLM", "mimo_v2.py"},
    ReadArchitecture{"MistralForCausalLM", "mistral.py"},
    ReadArchitecture{"MixtralForCausalLM", "mixtral.py"},
    ReadArchitecture{"Qwen2ForCausalLM", "qwen2.py"},
    ReadArchitecture{"Qwen3ForCausalLM", "qwen3.py"},
    ReadArchitecture{"Qwen3MoeForCausalLM", "qwen3_moe.py"},
};
// Without a module of its own a model runs by the Transformers library's, if that leaves attention to others
// (_supports_attention_backend): Falcon's (modeling_falcon.py) does not, and the other names are no classes
// of that library.
constexpr std::array kSglangLacks{
    ReadArchitecture{"FalconForCausalLM", "falcon.py came with pull request 37227"},
    ReadArchitecture{"KimiK2ForCausalLM", "no EntryClass"},
    ReadArchitecture{"LLaMAForCausalLM", "no EntryClass"},
    ReadArchitecture{"RWForCausalLM", "no EntryClass"},
};

// Lines are of MODEL_ARCH_TO_MODULE in _arch_index.py@065ff9e93780, which is later than the tag and held to
// the modules' own @register_auto_model by a test. Of Gemma 4 1.3.0rc17 loads weights already
// (issue 14942); the others are in the table of supported models of 1.0.0 or in modules of that time.
constexpr std::array kTrtllmHas{
    ReadArchitecture{"DeepseekV3ForCausalLM", "modeling_deepseekv3.py, _arch_index.py:45"},
    ReadArchitecture{"Gemma3ForCausalLM", "modeling_gemma3.py, _arch_index.py:52"},
    ReadArchitecture{"Gemma3ForConditionalGeneration", "modeling_gemma3vl.py, _arch_index.py:53"},
    ReadArchitecture{"Gemma4ForCausalLM", "modeling_gemma4.py, _arch_index.py:55"},
    ReadArchitecture{"Gemma4ForConditionalGeneration", "modeling_gemma4mm.py, _arch_index.py:56"},
    ReadArchitecture{"GptOssForCausalLM", "modeling_gpt_oss.py, _arch_index.py:60"},
    ReadArchitecture{"Llama4ForConditionalGeneration", "modeling_llama.py, _arch_index.py:69"},
    ReadArchitecture{"LlamaForCausalLM", "modeling_llama.py, _arch_index.py:70"},
    ReadArchitecture{"MistralForCausalLM", "modeling_mistral.py, _arch_index.py:80"},
    ReadArchitecture{"MixtralForCausalLM", "modeling_mixtral.py, _arch_index.py:83"},
    ReadArchitecture{"Qwen2ForCausalLM", "modeling_qwen.py, _arch_index.py:94"},
    ReadArchitecture{"Qwen3ForCausalLM", "modeling_qwen3.py, _arch_index.py:100"},
    ReadArchitecture{"Qwen3MoeForCausalLM", "modeling_qwen3_moe.py, _arch_index.py:102"},
};
// AutoDeploy, another backend, has DeepSeek-V2 (footnote 5 of the table of supported models of 1.3.0rc20).
constexpr std::array kTrtllmLacks{
    ReadArchitecture{"DeepseekV2ForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"FalconForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"KimiK2ForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"LLaMAForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"Llama4ForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"MiMoV2FlashForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"RWForCausalLM", "not in _arch_index.py"},
};

bool names(std::span<const ReadArchitecture> list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const ReadArchitecture& a) { return name == a.name; });
}

// "vllm (vLLM 0.24.0)", as --engine takes them.
std::string engines_that_have(const std::string& architecture) {
  std::string out;
  for (const LaunchRules* rules : launch_rules()) {
    if (has_architecture(*rules->architectures, architecture) == HasArchitecture::yes)
      out += fmt::format("{}{} ({})", out.empty() ? "" : " or ", rules->engine, title_of(*rules));
  }
  return out;
}

}  // namespace

const ArchitectureTable kVllmArchitectures{"vllm/model_executor/models", kVllmHas, kVllmLacks};
const ArchitectureTable kSglangArchitectures{"python/sglang/srt/models", kSglangHas, kSglangLacks};
const ArchitectureTable kTrtllmArchitectures{"tensorrt_llm/_torch/models", kTrtllmHas, kTrtllmLacks};

HasArchitecture has_architecture(const ArchitectureTable& table, const std::string& name) {
  return names(table.has, name)     ? HasArchitecture::yes
         : names(table.lacks, name) ? HasArchitecture::no
                                    : HasArchitecture::not_read;
}

std::optional<CaseComplaint> missing_model(const Case& c, const LaunchRules& rules) {
  const std::string& name = c.model.architecture;
  if (has_architecture(*rules.architectures, name) != HasArchitecture::no) return std::nullopt;
  const std::string others = engines_that_have(name);
  return CaseComplaint{
      "models", fmt::format("{} is of architecture {}, for which it has no class", c.model.name, name),
      others.empty() ? "engine ideal, which prices any model: no engine here has a class of that name"
                     : fmt::format("engine {}, which {} a class for it", others,
                                   others.find(" or ") == std::string::npos ? "has" : "have")};
}

std::optional<std::string> unchecked_model(const Case& c) {
  if (c.engine == nullptr) return std::nullopt;
  const std::string& name = c.model.architecture;
  if (has_architecture(*rules_of(*c.engine).architectures, name) != HasArchitecture::not_read)
    return std::nullopt;
  return fmt::format(
      "whether {} has a class for {} was not checked, because {}", title_of(*c.engine), c.model.name,
      name.empty()
          ? std::string("no architecture of it is given (architecture: in a .yaml, architectures in a "
                        "config.json)")
          : fmt::format("nobody has looked for architecture {} in it", name));
}

}  // namespace shardline
