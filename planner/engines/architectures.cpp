// Read for every architecture that models are imported of (models/model/hf_families.cpp). An engine takes the
// first name under `architectures` and looks it up in its own registry.
#include "planner/engines/architectures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/engines/launch_rules.hpp"

namespace shardline {

namespace {

// The keys of _TEXT_GENERATION_MODELS and _MULTIMODAL_MODELS in models/registry.py, with the module of each,
// at 80e511772f3e, main of 23 June 2026, from which the branch of the release was cut: its option table has
// the lines of tag v0.24.0 (engine/arg_utils.py:817, 1153). All of these classes run in stages (SupportsPP,
// by their bases), but for MiniMax-M3's (minimax_stages), which the release notes of v0.24.0 have (pull
// request 45381 of 15 June). AIConfigurator's copy of its file names MiniMaxM3ForCausalLM.
constexpr std::array kVllmHas{
    ReadArchitecture{"DeciLMForCausalLM", "nemotron_nas.py"},
    ReadArchitecture{"DeepseekV2ForCausalLM", "deepseek_v2.py"},
    ReadArchitecture{"DeepseekV32ForCausalLM", "deepseek_v2.py"},
    ReadArchitecture{"DeepseekV3ForCausalLM", "deepseek_v2.py"},
    ReadArchitecture{"DeepseekV4ForCausalLM", "vllm.models.deepseek_v4"},
    ReadArchitecture{"Ernie4_5ForCausalLM", "ernie45.py"},
    ReadArchitecture{"Ernie4_5_MoeForCausalLM", "ernie45_moe.py"},
    ReadArchitecture{"FalconForCausalLM", "falcon.py"},
    ReadArchitecture{"Gemma3ForCausalLM", "gemma3.py"},
    ReadArchitecture{"Gemma3ForConditionalGeneration", "gemma3_mm.py"},
    ReadArchitecture{"Gemma4ForCausalLM", "gemma4.py"},
    ReadArchitecture{"Gemma4ForConditionalGeneration", "gemma4_mm.py"},
    ReadArchitecture{"Glm4MoeForCausalLM", "glm4_moe.py"},
    ReadArchitecture{"Glm4MoeLiteForCausalLM", "glm4_moe_lite.py"},
    ReadArchitecture{"GlmMoeDsaForCausalLM", "deepseek_v2.py"},
    ReadArchitecture{"GptOssForCausalLM", "gpt_oss.py"},
    ReadArchitecture{"KimiK25ForConditionalGeneration", "kimi_k25.py"},
    ReadArchitecture{"KimiLinearForCausalLM", "kimi_linear.py"},
    ReadArchitecture{"LLaMAForCausalLM", "llama.py"},
    ReadArchitecture{"Llama4ForCausalLM", "llama4.py"},
    ReadArchitecture{"Llama4ForConditionalGeneration", "mllama4.py"},
    ReadArchitecture{"LlamaForCausalLM", "llama.py"},
    ReadArchitecture{"MiMoForCausalLM", "mimo.py"},
    ReadArchitecture{"MiMoV2FlashForCausalLM", "mimo_v2.py"},
    ReadArchitecture{"MiMoV2ForCausalLM", "mimo_v2.py"},
    ReadArchitecture{"MiniMaxM2ForCausalLM", "minimax_m2.py"},
    ReadArchitecture{"MiniMaxM3ForCausalLM", "vllm.models.minimax_m3, model.py:671-679@v0.24.0"},
    ReadArchitecture{"MiniMaxM3SparseForCausalLM", "vllm.models.minimax_m3, model.py:671-679@v0.24.0"},
    ReadArchitecture{"MiniMaxM3SparseForConditionalGeneration",
                     "vllm.models.minimax_m3, model.py:671-679@v0.24.0"},
    ReadArchitecture{"MistralForCausalLM", "mistral.py"},
    ReadArchitecture{"MixtralForCausalLM", "mixtral.py"},
    ReadArchitecture{"NemotronHForCausalLM", "nemotron_h.py"},
    ReadArchitecture{"Phi3ForCausalLM", "phi3.py"},
    ReadArchitecture{"Qwen2ForCausalLM", "qwen2.py"},
    ReadArchitecture{"Qwen2MoeForCausalLM", "qwen2_moe.py"},
    ReadArchitecture{"Qwen3ForCausalLM", "qwen3.py"},
    ReadArchitecture{"Qwen3MoeForCausalLM", "qwen3_moe.py"},
    ReadArchitecture{"Qwen3NextForCausalLM", "qwen3_next.py"},
    ReadArchitecture{"Qwen3VLForConditionalGeneration", "qwen3_vl.py"},
    ReadArchitecture{"Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe.py"},
    ReadArchitecture{"Qwen3_5ForConditionalGeneration", "qwen3_5.py"},
    ReadArchitecture{"Qwen3_5MoeForConditionalGeneration", "qwen3_5.py"},
    ReadArchitecture{"RWForCausalLM", "falcon.py"},
    ReadArchitecture{"SeedOssForCausalLM", "seed_oss.py"},
    ReadArchitecture{"Step3p5ForCausalLM", "step3p5.py"},
};
// Kimi-K3 is of 27 July 2026, a month behind the release, which people had started by 30 June (issue 47174).
constexpr std::array kVllmLacks{
    ReadArchitecture{"KimiK2ForCausalLM", "in neither table of registry.py"},
    ReadArchitecture{"KimiK3ForConditionalGeneration", "came with pull request 50000 of 27 July 2026"},
};

// EntryClass of each module, which models/registry.py gathers, with its line at the tag, 49e384ce9d. What the
// modules refuse is in rules_sglang.cpp: stages (`stages`), dispatch of tokens (`expert_exchange`), heads
// that attention TP does not divide, which all of them assert alike (uneven_heads, uneven_kv_heads); and what
// server_args.py asks of a model before it is loaded (_handle_model_specific_adjustments, 3479-4336).
constexpr std::array kSglangHas{
    ReadArchitecture{"DeciLMForCausalLM", "nemotron_nas.py:438"},
    ReadArchitecture{"DeepseekV2ForCausalLM", "deepseek_v2.py:2855"},
    ReadArchitecture{"DeepseekV32ForCausalLM", "deepseek_v2.py:2855"},
    ReadArchitecture{"DeepseekV3ForCausalLM", "deepseek_v2.py:2855"},
    ReadArchitecture{"DeepseekV4ForCausalLM", "deepseek_v4.py:2446"},
    ReadArchitecture{"Ernie4_5_MoeForCausalLM", "ernie4.py:433"},
    ReadArchitecture{"Gemma3ForCausalLM", "gemma3_causal.py:937"},
    ReadArchitecture{"Gemma3ForConditionalGeneration", "gemma3_mm.py:503"},
    ReadArchitecture{"Gemma4ForCausalLM", "gemma4_causal.py:1421"},
    ReadArchitecture{"Gemma4ForConditionalGeneration", "gemma4_mm.py:1117"},
    ReadArchitecture{"Glm4MoeForCausalLM", "glm4_moe.py:1482"},
    ReadArchitecture{"Glm4MoeLiteForCausalLM", "glm4_moe_lite.py:1302"},
    ReadArchitecture{"GlmMoeDsaForCausalLM", "glm4_moe.py:1482"},
    ReadArchitecture{"GptOssForCausalLM", "gpt_oss.py:1366"},
    ReadArchitecture{"KimiK25ForConditionalGeneration", "kimi_k25.py:894"},
    ReadArchitecture{"KimiLinearForCausalLM", "kimi_linear.py:797"},
    ReadArchitecture{"Llama4ForCausalLM", "llama4.py:588"},
    ReadArchitecture{"Llama4ForConditionalGeneration", "mllama4.py:1008"},
    ReadArchitecture{"LlamaForCausalLM", "llama.py:851"},
    ReadArchitecture{"MiMoForCausalLM", "mimo.py:160"},
    ReadArchitecture{"MiMoV2FlashForCausalLM", "mimo_v2.py:1481"},
    ReadArchitecture{"MiMoV2ForCausalLM", "mimo_v2.py:1481"},
    ReadArchitecture{"MiniMaxM2ForCausalLM", "minimax_m2.py:1438"},
    ReadArchitecture{"MistralForCausalLM", "mistral.py:195"},
    ReadArchitecture{"MixtralForCausalLM", "mixtral.py:480"},
    ReadArchitecture{"NemotronHForCausalLM", "nemotron_h.py:1162"},
    ReadArchitecture{"Phi3ForCausalLM", "llama.py:851"},
    ReadArchitecture{"Qwen2ForCausalLM", "qwen2.py:668"},
    ReadArchitecture{"Qwen2MoeForCausalLM", "qwen2_moe.py:1201"},
    ReadArchitecture{"Qwen3ForCausalLM", "qwen3.py:722"},
    ReadArchitecture{"Qwen3MoeForCausalLM", "qwen3_moe.py:1246"},
    ReadArchitecture{"Qwen3NextForCausalLM", "qwen3_next.py:1294"},
    ReadArchitecture{"Qwen3VLForConditionalGeneration", "qwen3_vl.py:1413"},
    ReadArchitecture{"Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe.py:388"},
    ReadArchitecture{"Qwen3_5ForConditionalGeneration", "qwen3_5.py:2120"},
    ReadArchitecture{"Qwen3_5MoeForConditionalGeneration", "qwen3_5.py:2120"},
    ReadArchitecture{"Step3p5ForCausalLM", "step3p5.py:1049"},
};
// Kimi-K3's files are of 27 July 2026; SGLang's images have it from 0.5.17 on (aws/deep-learning-containers
// pull request 6573). Without a module of its own a model runs by the Transformers library's, if that leaves
// attention to others
// (_supports_attention_backend): Falcon's (modeling_falcon.py) does not, and the other names are no classes
// of that library.
constexpr std::array kSglangLacks{
    ReadArchitecture{"FalconForCausalLM", "falcon.py came with pull request 37227"},
    ReadArchitecture{"KimiK2ForCausalLM", "no EntryClass"},
    ReadArchitecture{"KimiK3ForConditionalGeneration", "no EntryClass; kimi_k3.py@e44a41c1c413 is later"},
    ReadArchitecture{"LLaMAForCausalLM", "no EntryClass"},
    ReadArchitecture{"MiniMaxM3ForCausalLM", "came with pull request 28715 of 11 July 2026"},
    ReadArchitecture{"MiniMaxM3SparseForCausalLM", "came with pull request 28715 of 11 July 2026"},
    ReadArchitecture{"MiniMaxM3SparseForConditionalGeneration",
                     "came with pull request 28715 of 11 July 2026"},
    ReadArchitecture{"RWForCausalLM", "no EntryClass"},
    ReadArchitecture{"SeedOssForCausalLM", "seed_oss.py comes with pull request 34854 of August 2026"},
};

// Lines are of MODEL_ARCH_TO_MODULE in _arch_index.py@065ff9e93780, which is later than the tag and held to
// the modules' own @register_auto_model by a test. Of Gemma 4 1.3.0rc17 loads weights already
// (issue 14942); the others are in the table of supported models of 1.0.0 or in modules of that time. DeciLM,
// DeepSeek-V3.2, GLM-4.x and GLM-5 are in that of 1.3.0rc20 itself, Kimi-K2.5 in that of 1.3.0rc13;
// MiniMax-M2, Nemotron-H and Phi-4 in one without a version that is older than Gemma 4's entry. The tag is
// c25c23f71786 of 27 June 2026. Qwen3.5 came with pull requests 12242 and 12302 of March, as text: of
// composite files pyexecutor/config_utils.py takes text_config under its own names
// (_Qwen35ConfigCompat.normalize). MiniMax-M3 with 15292 of 19 June, for the release its deployment guide
// asks for. What the later index has and no table up to the tag was seen to list stays unread.
constexpr std::array kTrtllmHas{
    ReadArchitecture{"DeciLMForCausalLM", "modeling_nemotron_nas.py, _arch_index.py:43"},
    ReadArchitecture{"DeepseekV32ForCausalLM", "modeling_deepseekv3.py, _arch_index.py:44"},
    ReadArchitecture{"DeepseekV3ForCausalLM", "modeling_deepseekv3.py, _arch_index.py:45"},
    ReadArchitecture{"Gemma3ForCausalLM", "modeling_gemma3.py, _arch_index.py:52"},
    ReadArchitecture{"Gemma3ForConditionalGeneration", "modeling_gemma3vl.py, _arch_index.py:53"},
    ReadArchitecture{"Gemma4ForCausalLM", "modeling_gemma4.py, _arch_index.py:55"},
    ReadArchitecture{"Gemma4ForConditionalGeneration", "modeling_gemma4mm.py, _arch_index.py:56"},
    ReadArchitecture{"Glm4MoeForCausalLM", "modeling_glm.py, _arch_index.py:58"},
    ReadArchitecture{"GlmMoeDsaForCausalLM", "modeling_deepseekv3.py, _arch_index.py:59"},
    ReadArchitecture{"GptOssForCausalLM", "modeling_gpt_oss.py, _arch_index.py:60"},
    ReadArchitecture{"KimiK25ForConditionalGeneration", "modeling_kimi_k25.py, _arch_index.py:65"},
    ReadArchitecture{"Llama4ForConditionalGeneration", "modeling_llama.py, _arch_index.py:69"},
    ReadArchitecture{"LlamaForCausalLM", "modeling_llama.py, _arch_index.py:70"},
    ReadArchitecture{"MiniMaxM2ForCausalLM", "modeling_minimaxm2.py, _arch_index.py:76"},
    ReadArchitecture{"MiniMaxM3ForCausalLM", "modeling_minimaxm3.py, pull request 15292"},
    ReadArchitecture{"MiniMaxM3SparseForCausalLM", "modeling_minimaxm3.py, pull request 15292"},
    ReadArchitecture{"MiniMaxM3SparseForConditionalGeneration", "modeling_minimaxm3.py, pull request 15292"},
    ReadArchitecture{"MistralForCausalLM", "modeling_mistral.py, _arch_index.py:80"},
    ReadArchitecture{"MixtralForCausalLM", "modeling_mixtral.py, _arch_index.py:83"},
    ReadArchitecture{"NemotronHForCausalLM", "modeling_nemotron_h.py, _arch_index.py:86"},
    ReadArchitecture{"Phi3ForCausalLM", "modeling_phi3.py, _arch_index.py:90"},
    ReadArchitecture{"Qwen2ForCausalLM", "modeling_qwen.py, _arch_index.py:94"},
    ReadArchitecture{"Qwen3ForCausalLM", "modeling_qwen3.py, _arch_index.py:100"},
    ReadArchitecture{"Qwen3MoeForCausalLM", "modeling_qwen3_moe.py, _arch_index.py:102"},
    ReadArchitecture{"Qwen3_5ForCausalLM", "modeling_qwen3_5.py, pull request 12302"},
    ReadArchitecture{"Qwen3_5ForConditionalGeneration", "modeling_qwen3_5.py, pull request 12302, as text"},
    ReadArchitecture{"Qwen3_5MoeForCausalLM", "modeling_qwen3_5.py, pull request 12242"},
    ReadArchitecture{"Qwen3_5MoeForConditionalGeneration",
                     "modeling_qwen3_5.py, pull request 12242, as text"},
};
// The index is later than the tag: what it lacks, the tag lacks, too; Kimi-K3, which it has, came after the
// tag. AutoDeploy, another backend, has
// DeepSeek-V2 and GLM-4.7-Flash (Glm4MoeLite; footnote 5 of the table of supported models of 1.3.0rc20).
constexpr std::array kTrtllmLacks{
    ReadArchitecture{"DeepseekV2ForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"DeepseekV4ForCausalLM",
                     "came with pull request 15414 of 28 June 2026; not in the tag's table of models"},
    ReadArchitecture{"Ernie4_5ForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"Ernie4_5_MoeForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"FalconForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"Glm4MoeLiteForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"KimiK2ForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"KimiK3ForConditionalGeneration", "came with pull request 17269 of August 2026"},
    ReadArchitecture{"KimiLinearForCausalLM", "came with pull request 17269 of August 2026"},
    ReadArchitecture{"LLaMAForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"Llama4ForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"MiMoForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"MiMoV2FlashForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"MiMoV2ForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"Qwen3VLForCausalLM", "not in _arch_index.py"},
    ReadArchitecture{"Qwen3VLMoeForCausalLM", "not in _arch_index.py"},
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
