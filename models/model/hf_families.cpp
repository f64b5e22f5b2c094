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

void read_llama(Import& in) {
  read_size(in);
  read_context(in);
  read_gqa(in);
  in.refuse("sliding_window", "this model_type has no windows");
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
  m.tied_embeddings = in.flag("tie_word_embeddings");
}

void read_qwen2(Import& in) {
  read_size(in);
  read_context(in);
  read_gqa(in);
  read_switched_window(in, false);
  read_dense(in);
  in.m.attention_bias = AttentionBias::qkv;  // fixed in the model's code
}

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
  const int step = in.find_number("decoder_sparse_step", limits::kLayers).value_or(1);
  for (int i = 0; i < in.layers; ++i) in.has_experts.push_back((i + 1) % step == 0);
  if (const auto dense = in.find("mlp_only_layers")) {
    for (const Reader& item : dense->items()) {
      const auto layer = item.integer(0, in.layers - 1);
      if (layer < in.layers) in.has_experts[layer] = false;
    }
  }
  read_dense_inner(in);
  in.experts.experts = in.need_number("num_experts", limits::kExperts);
  in.experts.experts_per_token = in.need_number("num_experts_per_tok", limits::kExperts);
  in.experts.inner = in.need_number("moe_intermediate_size", limits::kWidth);
  m.tied_embeddings = in.flag("tie_word_embeddings");
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
  in.refuse("attention_bias", "biases on mla projections are not modelled");
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

/// first_k_dense_replace, and moe_layer_freq: every so many layers have experts, or a 0 or 1 for each.
void read_deepseek_layers(Import& in) {
  const int dense = in.find_number("first_k_dense_replace", limits::kLayers, 0).value_or(0);
  const auto frequency = in.find("moe_layer_freq");
  const bool list = frequency && frequency->is_sequence();
  const auto switches = list ? in.find_switches("moe_layer_freq") : std::nullopt;
  const int every = frequency && !list ? in.number(*frequency, limits::kLayers) : 1;
  for (int i = 0; i < in.layers; ++i)
    in.has_experts.push_back(i >= dense && (switches ? (*switches)[i] == 1 : i % every == 0));
}

void read_deepseek(Import& in) {
  Model& m = in.m;
  read_size(in);
  read_context(in);
  read_mla(in);
  read_deepseek_layers(in);
  read_dense_inner(in);
  in.experts.experts = in.need_number("n_routed_experts", limits::kExperts);
  in.experts.experts_per_token = in.need_number("num_experts_per_tok", limits::kExperts);
  in.experts.shared_experts = in.find_number("n_shared_experts", limits::kExperts, 0).value_or(0);
  in.experts.inner = in.need_number("moe_intermediate_size", limits::kWidth);
  read_deepseek_routing(in);
  m.tied_embeddings = in.flag("tie_word_embeddings");
}

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
            "Falcon-40B's grouped heads and second parallel norm are not modelled");
  divide_hidden_by_heads(in);
  in.attention.kv_heads = in.flag("multi_query", true) ? 1 : in.attention.q_heads;
  in.find("num_kv_heads");  // read by new_decoder_architecture only
  in.find("n_head_kv");
  m.ffn_kind = FfnKind::plain;
  in.dense.inner = in.find_number("ffn_hidden_size", limits::kWidth).value_or(4 * m.hidden);
  m.norm = NormKind::layer;
  m.parallel_attention_ffn = in.flag("parallel_attn", true);
  m.ffn_bias = in.flag("bias");
  if (m.ffn_bias) m.attention_bias = AttentionBias::all;
  m.tied_embeddings = in.flag("tie_word_embeddings", true);
}

constexpr std::array kFamilies = {
    Family{"llama", {"LlamaForCausalLM", "LLaMAForCausalLM"}, read_llama},
    Family{"mistral", {"MistralForCausalLM"}, read_mistral},
    Family{"mixtral", {"MixtralForCausalLM"}, read_mixtral},
    Family{"qwen2", {"Qwen2ForCausalLM"}, read_qwen2},
    Family{"qwen3", {"Qwen3ForCausalLM"}, read_qwen3},
    Family{"qwen3_moe", {"Qwen3MoeForCausalLM"}, read_qwen3_moe},
    Family{"deepseek_v2", {"DeepseekV2ForCausalLM"}, read_deepseek},
    Family{"deepseek_v3", {"DeepseekV3ForCausalLM"}, read_deepseek},
    Family{"kimi_k2", {"DeepseekV3ForCausalLM", "KimiK2ForCausalLM"}, read_deepseek},
    Family{"falcon", {"FalconForCausalLM", "RWForCausalLM"}, read_falcon},
    Family{"RefinedWebModel", {"RWForCausalLM"}, read_falcon},
    Family{"gpt_oss", {"GptOssForCausalLM"}, read_gpt_oss},
    Family{"gemma3_text", {"Gemma3ForCausalLM"}, read_gemma3},
    Family{"gemma3", {"Gemma3ForConditionalGeneration"}, read_gemma3, "gemma3_text"},
    Family{"gemma4_text", {"Gemma4ForCausalLM"}, read_gemma4},
    Family{"gemma4", {"Gemma4ForConditionalGeneration"}, read_gemma4, "gemma4_text"},
    Family{"llama4_text", {"Llama4ForCausalLM"}, read_llama4},
    Family{"llama4", {"Llama4ForConditionalGeneration"}, read_llama4, "llama4_text"},
    Family{"mimo_v2_flash", {"MiMoV2FlashForCausalLM"}, read_mimo_v2},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace shardline::hf
