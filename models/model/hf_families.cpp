// What each model_type of a config.json means. Defaults of missing keys are those of the Transformers
// library.
#include <fmt/format.h>

#include "models/model/hf_import.hpp"

namespace shardline::hf {

namespace {

/// An integer or null.
std::optional<std::int64_t> find_window(Import& in) {
  const auto at = in.find("sliding_window");
  return at ? std::optional(at->integer(1, limits::kContext)) : std::nullopt;
}

}  // namespace

/// All layers see a window where there is one.
void read_window_of_all(Import& in) {
  if (const auto window = find_window(in)) in.attention.reach = {ReachKind::window, *window};
}

/// use_sliding_window: the layers from max_window_layers on see a window (transformers
/// configuration_qwen2.py), or all of them (modular_qwen3_moe.py).
void read_switched_window(Import& in, bool all_layers) {
  const auto first = in.find_number("max_window_layers", limits::kLayers, 0);
  const auto window = find_window(in);
  if (!in.flag("use_sliding_window")) return;
  if (all_layers) {
    in.attention.reach = {ReachKind::window, window.value_or(4096)};
  } else {
    set_local(in, sliding_layers(in, [n = first.value_or(28)](int i) { return i >= n; }),
              {ReachKind::window, window.value_or(4096)});
  }
}

namespace {

void read_llama(Import& in) {
  read_size(in);
  read_context(in);
  read_gqa(in);
  in.refuse("sliding_window", "this model_type has no windows", Nothing::number);
  read_dense(in);
  if (in.flag("attention_bias")) in.m.attention_bias = AttentionBias::all;
  in.m.ffn_bias = in.flag("mlp_bias");
}

void read_mistral(Import& in) {
  read_size(in);
  read_context(in);
  read_gqa(in);
  read_window_of_all(in);
  read_dense(in);
  if (in.flag("attention_bias")) in.m.attention_bias = AttentionBias::all;
  in.m.ffn_bias = in.flag("mlp_bias");
}

void read_mixtral(Import& in) {
  Model& m = in.m;
  read_size(in);
  read_context(in);
  read_gqa(in);
  read_window_of_all(in);
  in.has_experts.assign(in.layers, true);
  in.experts.experts = in.need_number("num_local_experts", limits::kExperts);
  in.experts.experts_per_token = in.need_number("num_experts_per_tok", limits::kExperts);
  in.experts.inner = in.need_number("intermediate_size", limits::kWidth);
  m.tied_embeddings = in.tied();
}

void read_qwen2(Import& in) {
  read_size(in);
  read_context(in);
  read_gqa(in);
  read_switched_window(in, false);
  read_dense(in);
  in.m.attention_bias = AttentionBias::qkv;  // fixed in the model's code
}

}  // namespace

void read_qwen3_attention(Import& in) {
  Model& m = in.m;
  in.attention.kv_heads = in.need_number("num_key_value_heads", limits::kHeads);
  in.attention.head_dim = in.need_number("head_dim", limits::kWidth);
  m.qk_norm = true;
  if (in.flag("attention_bias")) m.attention_bias = AttentionBias::all;
}

void read_qwen3(Import& in) {
  read_size(in);
  read_context(in);
  read_qwen3_attention(in);
  read_switched_window(in, false);
  read_dense(in);
}

void read_qwen3_moe(Import& in) {
  Model& m = in.m;
  read_size(in);
  read_context(in);
  read_qwen3_attention(in);
  read_switched_window(in, true);
  read_sparse_steps(in);
  read_dense_inner(in);
  read_experts(in, {});
  m.tied_embeddings = in.tied();
}

void read_mla(Import& in) {
  Attention& a = in.attention;
  a.kind = AttentionKind::mla;
  a.kv_heads = 1;
  a.q_lora_rank = in.find_number("q_lora_rank", limits::kWidth).value_or(0);
  a.kv_lora_rank = in.need_number("kv_lora_rank", limits::kWidth);
  a.rope_dim = in.need_number("qk_rope_head_dim", limits::kWidth);
  a.nope_dim = in.need_number("qk_nope_head_dim", limits::kWidth);
  a.v_dim = in.need_number("v_head_dim", limits::kWidth);
  in.refuse("attention_bias", "biases on mla projections are not modelled", Nothing::flag);
  if (const auto kv = in.find_number("num_key_value_heads", limits::kHeads)) {
    in.rules.emplace_back([&in, kv] {
      const int heads = in.attention.q_heads;
      if (*kv == heads) return;
      in.root.at("num_key_value_heads")
          .fault(fmt::format(
              "num_key_value_heads {} contradicts num_attention_heads {}: mla has no groups of heads", *kv,
              heads));
    });
  }
}

void read_deepseek(Import& in) {
  read_size(in);
  read_context(in);
  read_mla(in);
  read_dense_first(in);
  read_dense_inner(in);
  read_experts(in, {.experts = "n_routed_experts", .older = "num_experts"});
  in.experts.shared_experts = in.find_number("n_shared_experts", limits::kExperts, 0).value_or(0);
  read_deepseek_routing(in);
  in.m.tied_embeddings = in.tied();
}

namespace {

void read_falcon(Import& in) {
  Model& m = in.m;
  read_size(in);
  if (in.find("max_position_embeddings")) {
    read_context(in);
  } else {
    m.max_context = 2048;
    m.notes.emplace_back("max_position_embeddings is missing; 2048 is the default of this model_type");
  }
  in.refuse("new_decoder_architecture",
            "Falcon-40B's grouped heads and second parallel norm are not modelled", Nothing::flag);
  divide_hidden_by_heads(in);
  in.attention.kv_heads = in.flag("multi_query", true) ? 1 : in.attention.q_heads;
  for (const char* key : {"num_kv_heads", "n_head_kv"})
    in.find_number(key, limits::kHeads);  // of new_decoder_architecture only
  m.ffn_kind = FfnKind::plain;
  in.dense.inner = in.find_number("ffn_hidden_size", limits::kWidth).value_or(4 * m.hidden);
  m.norm = NormKind::layer;
  m.parallel_attention_ffn = in.flag("parallel_attn", true);
  m.ffn_bias = in.flag("bias");
  if (m.ffn_bias) m.attention_bias = AttentionBias::all;
  m.tied_embeddings = in.tied(true);
}

constexpr std::array kFamilies = {
    Family{"llama", {"LlamaForCausalLM", "LLaMAForCausalLM"}, read_llama},
    Family{"mistral", {"MistralForCausalLM"}, read_mistral},
    Family{"mixtral", {"MixtralForCausalLM"}, read_mixtral},
    Family{"qwen2", {"Qwen2ForCausalLM"}, read_qwen2},
    Family{"qwen2_moe", {"Qwen2MoeForCausalLM"}, read_qwen2_moe},
    Family{"qwen3", {"Qwen3ForCausalLM"}, read_qwen3},
    Family{"qwen3_moe", {"Qwen3MoeForCausalLM"}, read_qwen3_moe},
    Family{"qwen3_vl_text", {"Qwen3VLForCausalLM"}, read_qwen3},
    Family{"qwen3_vl", {"Qwen3VLForConditionalGeneration"}, read_qwen3, Text::inside, count_qwen_vision},
    Family{"qwen3_vl_moe_text", {"Qwen3VLMoeForCausalLM"}, read_qwen3_moe},
    Family{"qwen3_vl_moe",
           {"Qwen3VLMoeForConditionalGeneration"},
           read_qwen3_moe,
           Text::inside,
           count_qwen_vision},
    Family{"qwen3_next", {"Qwen3NextForCausalLM"}, read_qwen3_next},
    Family{"qwen3_5_text", {"Qwen3_5ForCausalLM"}, read_qwen3_5},
    Family{"qwen3_5", {"Qwen3_5ForConditionalGeneration"}, read_qwen3_5, Text::inside, count_qwen_vision},
    Family{"qwen3_5_moe_text", {"Qwen3_5MoeForCausalLM"}, read_qwen3_next},
    Family{"qwen3_5_moe",
           {"Qwen3_5MoeForConditionalGeneration"},
           read_qwen3_next,
           Text::inside,
           count_qwen_vision},
    Family{"deepseek_v2", {"DeepseekV2ForCausalLM"}, read_deepseek},
    Family{"deepseek_v3", {"DeepseekV3ForCausalLM"}, read_deepseek},
    Family{"deepseek_v32", {"DeepseekV32ForCausalLM"}, read_deepseek_v32},
    Family{"deepseek_v4", {"DeepseekV4ForCausalLM"}, read_deepseek_v4},
    Family{"deepseek_ref", {"DeepseekV4ForCausalLM"}, read_deepseek_v4},  // SGLang's conversions of V4
    Family{"kimi_k2", {"DeepseekV3ForCausalLM", "KimiK2ForCausalLM"}, read_deepseek},
    Family{"kimi_k25", {"KimiK25ForConditionalGeneration"}, read_deepseek, Text::inside, count_moonvit},
    Family{"kimi_linear", {"KimiLinearForCausalLM"}, read_kimi_linear},
    Family{"kimi_k3", {"KimiK3ForConditionalGeneration"}, read_kimi_linear, Text::inside, count_moonvit},
    Family{"glm4_moe", {"Glm4MoeForCausalLM"}, read_glm4_moe},
    Family{"glm4_moe_lite", {"Glm4MoeLiteForCausalLM"}, read_deepseek},
    Family{"glm_moe_dsa", {"GlmMoeDsaForCausalLM"}, read_glm_dsa},
    Family{"falcon", {"FalconForCausalLM", "RWForCausalLM"}, read_falcon},
    Family{"RefinedWebModel", {"RWForCausalLM"}, read_falcon},
    Family{"gpt_oss", {"GptOssForCausalLM"}, read_gpt_oss},
    Family{"gemma3_text", {"Gemma3ForCausalLM"}, read_gemma3},
    Family{"gemma3", {"Gemma3ForConditionalGeneration"}, read_gemma3, Text::inside, count_siglip},
    Family{"gemma4_text", {"Gemma4ForCausalLM"}, read_gemma4},
    Family{"gemma4", {"Gemma4ForConditionalGeneration"}, read_gemma4, Text::inside, count_gemma4_vision},
    Family{"llama4_text", {"Llama4ForCausalLM"}, read_llama4},
    Family{"llama4", {"Llama4ForConditionalGeneration"}, read_llama4, Text::inside, count_llama4_vision},
    Family{"mimo", {"MiMoForCausalLM"}, read_mimo},
    Family{"mimo_v2_flash", {"MiMoV2FlashForCausalLM"}, read_mimo_v2},
    Family{"mimo_v2", {"MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM"}, read_mimo_v2},
    Family{"minimax_m2", {"MiniMaxM2ForCausalLM"}, read_minimax_m2},
    Family{
        "minimax_m3", {"MiniMaxM3ForCausalLM", "MiniMaxM3SparseForCausalLM"}, read_minimax_m3, Text::either},
    Family{"minimax_m3_vl_text", {}, read_minimax_m3},
    Family{"minimax_m3_vl", {"MiniMaxM3SparseForConditionalGeneration"}, read_minimax_m3, Text::either},
    Family{"step3p5", {"Step3p5ForCausalLM"}, read_step},
    Family{"step3p7", {"Step3p7FlashForCausalLM"}, read_step, Text::either},
    Family{"nemotron_h", {"NemotronHForCausalLM"}, read_nemotron_h},
    Family{"nemotron-nas", {"DeciLMForCausalLM"}, read_nas},
    Family{"deci", {"DeciLMForCausalLM"}, read_nas},
    Family{"seed_oss", {"SeedOssForCausalLM"}, read_seed_oss},
    Family{"phi3", {"Phi3ForCausalLM"}, read_phi3},
    Family{"ernie4_5", {"Ernie4_5ForCausalLM"}, read_ernie},
    Family{"ernie4_5_moe", {"Ernie4_5_MoeForCausalLM"}, read_ernie_moe},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace shardline::hf
