// What each model_type of a config.json means. Defaults of missing keys are those of the Transformers
// library.
#include <fmt/format.h>

#include "models/model/hf_import.hpp"

namespace shardline::hf {
namespace {

void read_size(Import& in) {
  Model& m = in.m;
  m.layers = in.need_number("num_hidden_layers", "n_layer", limits::kLayers);
  m.hidden = in.need_number("hidden_size", limits::kWidth);
  m.vocab = in.need_number("vocab_size", limits::kVocab);
  m.attention.q_heads = in.need_number("num_attention_heads", "n_head", limits::kHeads);
}

void read_context(Import& in) {
  in.m.max_context = in.need("max_position_embeddings").integer(1, limits::kContext);
}

void divide_hidden_by_heads(Import& in) {
  in.rules.emplace_back([&in] {
    Attention& a = in.m.attention;
    a.head_dim = in.m.hidden / a.q_heads;
    if (in.m.hidden % a.q_heads == 0) return;
    in.root.at("hidden_size")
        .fault(fmt::format("hidden_size {} does not divide into {} heads, and head_dim is not given",
                           in.m.hidden, a.q_heads));
  });
}

/// intermediate_size, which models with experts may give without having a dense layer.
void read_dense_inner(Import& in) {
  if (in.m.dense_layers > 0) {
    in.m.ffn_inner = in.need_number("intermediate_size", limits::kWidth);
  } else {
    in.find("intermediate_size");
  }
}

void read_gqa(Import& in) {
  Attention& a = in.m.attention;
  a.kv_heads = in.find_number("num_key_value_heads", limits::kHeads).value_or(a.q_heads);
  if (const auto dim = in.find_number("head_dim", limits::kWidth)) {
    a.head_dim = *dim;
  } else {
    divide_hidden_by_heads(in);
  }
}

void read_window(Import& in, bool has_switch) {
  if (has_switch) {
    in.refuse("use_sliding_window", "sliding-window attention is not modelled");
    if (!in.flag("use_sliding_window")) in.find("sliding_window");
    in.find("max_window_layers");
  } else {
    in.refuse("sliding_window", "sliding-window attention is not modelled");
  }
}

void read_dense(Import& in) {
  Model& m = in.m;
  for (const char* key : {"n_routed_experts", "num_experts", "num_local_experts"}) {
    in.refuse(key, "experts contradict this model_type, which is dense");
  }
  m.dense_layers = m.layers;
  m.ffn_inner = in.need_number("intermediate_size", limits::kWidth);
  m.tied_embeddings = in.flag("tie_word_embeddings");
}

void read_llama(Import& in) {
  read_size(in);
  read_context(in);
  read_gqa(in);
  read_window(in, false);
  read_dense(in);
  if (in.flag("attention_bias")) in.m.attention_bias = AttentionBias::all;
  in.m.ffn_bias = in.flag("mlp_bias");
}

void read_mixtral(Import& in) {
  Model& m = in.m;
  read_size(in);
  read_context(in);
  read_gqa(in);
  read_window(in, false);
  m.experts = in.need_number("num_local_experts", limits::kExperts);
  m.experts_per_token = in.need_number("num_experts_per_tok", limits::kExperts);
  m.expert_inner = in.need_number("intermediate_size", limits::kWidth);
  m.tied_embeddings = in.flag("tie_word_embeddings");
}

void read_qwen2(Import& in) {
  read_size(in);
  read_context(in);
  read_gqa(in);
  read_window(in, true);
  read_dense(in);
  in.m.attention_bias = AttentionBias::qkv;  // fixed in the model's code
}

void read_qwen3_attention(Import& in) {
  Model& m = in.m;
  m.attention.kv_heads = in.need_number("num_key_value_heads", limits::kHeads);
  m.attention.head_dim = in.need_number("head_dim", limits::kWidth);
  m.qk_norm = true;
  if (in.flag("attention_bias")) m.attention_bias = AttentionBias::all;
  read_window(in, true);
}

void read_qwen3(Import& in) {
  read_size(in);
  read_context(in);
  read_qwen3_attention(in);
  read_dense(in);
}

void read_qwen3_moe(Import& in) {
  Model& m = in.m;
  read_size(in);
  read_context(in);
  read_qwen3_attention(in);
  if (const auto step = in.find("decoder_sparse_step"); step && step->integer(1, limits::kLayers) != 1) {
    step->fault("decoder_sparse_step: experts in only some layers are not modelled");
  }
  if (const auto dense = in.find("mlp_only_layers")) {
    for (const Reader& item : dense->items()) {
      if (item.integer(0, limits::kLayers) != m.dense_layers++) {
        item.fault("mlp_only_layers: dense layers that are not the first ones are not modelled");
        break;
      }
    }
  }
  read_dense_inner(in);
  m.experts = in.need_number("num_experts", limits::kExperts);
  m.experts_per_token = in.need_number("num_experts_per_tok", limits::kExperts);
  m.expert_inner = in.need_number("moe_intermediate_size", limits::kWidth);
  m.tied_embeddings = in.flag("tie_word_embeddings");
}

void read_mla(Import& in) {
  Model& m = in.m;
  Attention& a = m.attention;
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
      const int heads = in.m.attention.q_heads;
      if (*kv == heads) return;
      in.root.at("num_key_value_heads")
          .fault(fmt::format(
              "num_key_value_heads {} contradicts num_attention_heads {}: mla has no groups of heads", *kv,
              heads));
    });
  }
}

void read_deepseek(Import& in) {
  Model& m = in.m;
  read_size(in);
  read_context(in);
  read_mla(in);
  m.dense_layers = in.find_number("first_k_dense_replace", limits::kLayers, 0).value_or(0);
  read_dense_inner(in);
  m.experts = in.need_number("n_routed_experts", limits::kExperts);
  m.experts_per_token = in.need_number("num_experts_per_tok", limits::kExperts);
  m.shared_experts = in.find_number("n_shared_experts", limits::kExperts, 0).value_or(0);
  m.expert_inner = in.need_number("moe_intermediate_size", limits::kWidth);
  if (const auto every = in.find("moe_layer_freq"); every && every->integer(1, limits::kLayers) != 1) {
    every->fault("moe_layer_freq: experts in only some layers are not modelled");
  }
  if (const auto method = in.find("topk_method")) {
    m.router_bias = method->one_of({"greedy", "group_limited_greedy", "noaux_tc"}) == 2;
  } else {
    m.router_bias = in.root.at("model_type").text() != "deepseek_v2";
  }
  const int groups = in.find_number("n_group", limits::kExperts).value_or(1);
  const int chosen = in.find_number("topk_group", limits::kExperts).value_or(groups);
  if (chosen < groups) {
    m.notes.push_back(fmt::format("not modelled: a token's experts lie in {} of {} groups", chosen, groups));
  }
  if (const int extra = in.find_number("num_nextn_predict_layers", limits::kLayers, 0).value_or(0)) {
    m.notes.push_back(fmt::format("not modelled: {} multi-token-prediction layer(s)", extra));
  }
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
  m.attention.kv_heads = in.flag("multi_query", true) ? 1 : m.attention.q_heads;
  in.find("num_kv_heads");  // read by new_decoder_architecture only
  in.find("n_head_kv");
  m.dense_layers = m.layers;
  m.ffn_kind = FfnKind::plain;
  m.ffn_inner = in.find_number("ffn_hidden_size", limits::kWidth).value_or(4 * m.hidden);
  m.norm = NormKind::layer;
  m.parallel_attention_ffn = in.flag("parallel_attn", true);
  m.ffn_bias = in.flag("bias");
  if (m.ffn_bias) m.attention_bias = AttentionBias::all;
  m.tied_embeddings = in.flag("tie_word_embeddings", true);
}

constexpr std::array kFamilies = {
    Family{"llama", {"LlamaForCausalLM", "LLaMAForCausalLM"}, read_llama},
    Family{"mistral", {"MistralForCausalLM"}, read_llama},
    Family{"mixtral", {"MixtralForCausalLM"}, read_mixtral},
    Family{"qwen2", {"Qwen2ForCausalLM"}, read_qwen2},
    Family{"qwen3", {"Qwen3ForCausalLM"}, read_qwen3},
    Family{"qwen3_moe", {"Qwen3MoeForCausalLM"}, read_qwen3_moe},
    Family{"deepseek_v2", {"DeepseekV2ForCausalLM"}, read_deepseek},
    Family{"deepseek_v3", {"DeepseekV3ForCausalLM"}, read_deepseek},
    Family{"kimi_k2", {"DeepseekV3ForCausalLM", "KimiK2ForCausalLM"}, read_deepseek},
    Family{"falcon", {"FalconForCausalLM", "RWForCausalLM"}, read_falcon},
    Family{"RefinedWebModel", {"RWForCausalLM"}, read_falcon},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace shardline::hf
