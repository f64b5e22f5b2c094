// Families whose layers see a window or a chunk of the context: gpt-oss, Gemma 3 and 4, Llama 4, MiMo-V2.
// Fields and defaults: transformers models/{gpt_oss,gemma3,gemma4,llama4}/configuration_*.py, vLLM
// mimo_v2.py.
#include <fmt/format.h>

#include "models/model/hf_import.hpp"

namespace shardline::hf {
namespace {

void bias_on_request(Import& in, bool when_missing) {
  if (in.flag("attention_bias", when_missing)) in.m.attention_bias = AttentionBias::all;
}

/// The key's tokens; where it is null all layers have full attention, as in engines (vllm-project/vllm
/// 833483f3578a, model_executor/models/llama4.py, gpt_oss.py).
Reach reach_of(Import& in, const char* key, ReachKind kind, std::int64_t when_missing) {
  const auto at = in.find(key);
  if (!at && in.root.has(key)) {
    in.note(std::string(key) + " is null: all layers have full attention");
    return {};
  }
  return {kind, at ? at->integer(1, limits::kContext) : when_missing};
}

Reach window(Import& in, std::int64_t when_missing) {
  return reach_of(in, "sliding_window", ReachKind::window, when_missing);
}

/// The language model of a wrapper; where the text itself is that model, there is nothing to leave out.
void note_vision(Import& in) {
  if (in.wrapped) in.note("not modelled: the vision tower and its projector");
}

/// Layers with experts, of Llama 4.
std::vector<bool> llama4_experts(Import& in) {
  std::vector<bool> experts(in.layers, false);
  const int step = in.find_number("interleave_moe_layer_step", limits::kLayers).value_or(1);
  if (const auto listed = in.find("moe_layers")) {
    for (const Reader& item : listed->items()) {
      const auto layer = item.integer(0, in.layers - 1);
      if (layer < in.layers) experts[layer] = true;
    }
    return experts;
  }
  for (int i = step - 1; i < in.layers; i += step) experts[i] = true;
  return experts;
}

/// Layers with chunks, of Llama 4: those with rotary embedding.
std::vector<bool> llama4_chunked(Import& in) {
  const int interval = in.find_number("no_rope_layer_interval", limits::kLayers).value_or(4);
  // Despite its name, 1 means that the layer has rotary embedding. An empty list says nothing.
  const auto listed = in.find("no_rope_layers");
  const bool empty = listed && listed->is_sequence() && listed->items().empty();
  const auto rope = empty ? std::nullopt : in.find_switches("no_rope_layers");
  const auto types = in.find_names("layer_types", {"full_attention", "chunked_attention"});
  std::vector<bool> chunked;
  for (int i = 0; i < in.layers; ++i) {
    const bool by_default = (i + 1) % interval != 0;
    chunked.push_back(types ? (*types)[i] == 1 : rope ? (*rope)[i] == 1 : by_default);
  }
  return chunked;
}

}  // namespace

void read_gpt_oss(Import& in) {
  Model& m = in.m;
  read_size(in);
  read_context(in);
  in.attention.kv_heads = in.need_number("num_key_value_heads", limits::kHeads);
  in.attention.head_dim = in.need_number("head_dim", limits::kWidth);
  in.attention.sinks = true;
  bias_on_request(in, true);
  set_local(in, sliding_layers(in, [](int i) { return i % 2 == 0; }), window(in, 128));
  in.has_experts.assign(in.layers, true);
  in.experts.experts = in.need_number("num_local_experts", "num_experts", limits::kExperts);
  in.experts.experts_per_token = in.need_number("num_experts_per_tok", "experts_per_token", limits::kExperts);
  in.experts.inner = in.need_number("intermediate_size", limits::kWidth);
  in.experts.router_bias = true;  // as those of the experts, fixed in the model's code
  m.ffn_bias = true;
  for (const char* key : {"swiglu_limit", "swiglu_alpha", "initial_context_length"}) in.find(key);
  in.note("not modelled: gate and up projections are clamped (swiglu_limit)");
  m.tied_embeddings = in.flag("tie_word_embeddings");
}

void read_gemma3(Import& in) {
  Model& m = in.m;
  in.layers = in.need_number("num_hidden_layers", limits::kLayers);
  m.hidden = in.need_number("hidden_size", limits::kWidth);
  in.dense.inner = in.need_number("intermediate_size", limits::kWidth);
  m.vocab = in.find_number("vocab_size", limits::kVocab).value_or(262208);
  in.attention.q_heads = in.find_number("num_attention_heads", limits::kHeads).value_or(8);
  in.attention.kv_heads = in.find_number("num_key_value_heads", limits::kHeads).value_or(4);
  in.attention.head_dim = in.find_number("head_dim", limits::kWidth).value_or(256);
  const auto context = in.find("max_position_embeddings");
  m.max_context = context ? context->integer(1, limits::kContext) : 131072;
  in.refuse("use_bidirectional_attention", "only causal attention is modelled");
  bias_on_request(in, false);
  m.qk_norm = true;
  m.sandwich_norms = true;
  const auto saved = in.find_number("_sliding_window_pattern", limits::kLayers);
  const int pattern = in.find_number("sliding_window_pattern", limits::kLayers).value_or(saved.value_or(6));
  set_local(in, sliding_layers(in, [pattern](int i) { return (i + 1) % pattern != 0; }), window(in, 4096));
  for (const char* key : {"query_pre_attn_scalar", "rope_local_base_freq", "cache_implementation",
                          "hidden_activation", "attn_logit_softcapping", "final_logit_softcapping"})
    in.find(key);  // elementwise, or of positions
  note_vision(in);
  m.tied_embeddings = in.flag("tie_word_embeddings", true);
}

void read_gemma4(Import& in) {
  Model& m = in.m;
  read_size(in);
  read_context(in);
  read_dense(in);
  m.tied_embeddings = in.flag("tie_word_embeddings", true);
  Attention local = in.attention;
  local.kv_heads = in.need_number("num_key_value_heads", limits::kHeads);
  local.head_dim = in.need_number("head_dim", limits::kWidth);
  Attention full = local;
  full.head_dim = in.need_number("global_head_dim", limits::kWidth);
  const auto kv_heads = in.find_number("num_global_key_value_heads", limits::kHeads);
  if (in.flag("attention_k_eq_v")) {
    full.kv_heads = kv_heads.value_or(local.kv_heads);
    // They are normed apart, so that both are cached; vLLM loads the matrix twice.
    in.note("not modelled: one matrix makes keys and values of full layers; it is counted twice");
  }
  // The last layer is full, whatever the list or the default says.
  in.is_local = sliding_layers(in, [](int i) { return (i + 1) % 6 != 0; });
  in.is_local.back() = false;
  local.reach = window(in, 512);
  in.attention = full;
  in.local = local;
  m.qk_norm = true;
  m.sandwich_norms = true;
  bias_on_request(in, false);
  in.refuse("hidden_size_per_layer_input", "embeddings of each layer are not modelled");
  in.refuse("enable_moe_block", "experts beside a dense network are not modelled");
  in.refuse("per_layer_config", "widths of single layers are not modelled");
  const auto both_ways = in.find("use_bidirectional_attention");
  if (both_ways && both_ways->text() != "vision" && both_ways->text() != "false")
    both_ways->fault("use_bidirectional_attention: only causal attention is modelled");
  for (const char* key :
       {"vocab_size_per_layer_input", "use_double_wide_mlp", "top_k_experts", "expert_intermediate_size",
        "moe_intermediate_size", "hidden_activation", "final_logit_softcapping"})
    in.find(key);  // of what is refused above, or elementwise
  note_vision(in);
}

void read_llama4(Import& in) {
  Model& m = in.m;
  read_size(in);
  read_context(in);
  read_gqa(in);
  bias_on_request(in, false);
  set_local(in, llama4_chunked(in), reach_of(in, "attention_chunk_size", ReachKind::chunk, 8192));
  in.has_experts = llama4_experts(in);
  const int dense = in.find_number("intermediate_size_mlp", limits::kWidth).value_or(16384);
  if (std::ranges::find(in.has_experts, false) != in.has_experts.end()) in.dense.inner = dense;
  in.experts.experts = in.need_number("num_local_experts", limits::kExperts);
  in.experts.experts_per_token = in.need_number("num_experts_per_tok", limits::kExperts);
  in.experts.shared_experts = 1;  // fixed in the model's code
  in.experts.inner = in.need_number("intermediate_size", limits::kWidth);
  if (in.flag("use_qk_norm", true))
    in.note("not modelled: queries and keys of chunked layers are normalised, without weights");
  for (const char* key : {"attn_temperature_tuning", "floor_scale", "attn_scale", "for_llm_compressor"})
    in.find(key);  // of positions, or of tools
  note_vision(in);
  m.tied_embeddings = in.flag("tie_word_embeddings");
}

void read_mimo_v2(Import& in) {
  Model& m = in.m;
  read_size(in);
  read_context(in);
  Attention full = in.attention;
  full.kv_heads = in.need_number("num_key_value_heads", limits::kHeads);
  full.head_dim = in.need_number("head_dim", limits::kWidth);
  full.v_dim = in.find_number("v_head_dim", limits::kWidth).value_or(full.head_dim);
  full.sinks = in.flag("add_full_attention_sink_bias");
  Attention local = full;
  local.q_heads = in.find_number("swa_num_attention_heads", limits::kHeads).value_or(full.q_heads);
  local.kv_heads = in.find_number("swa_num_key_value_heads", limits::kHeads).value_or(full.kv_heads);
  local.head_dim = in.find_number("swa_head_dim", limits::kWidth).value_or(full.head_dim);
  local.v_dim = in.find_number("swa_v_head_dim", limits::kWidth).value_or(full.v_dim);
  local.sinks = in.flag("add_swa_attention_sink_bias");
  local.reach = window(in, 128);
  if (const auto size = in.find("sliding_window_size"))
    local.reach = {ReachKind::window, size->integer(1, limits::kContext)};
  for (Attention* a : {&full, &local}) {
    if (a->v_dim == a->head_dim) a->v_dim = 0;
  }
  in.attention = full;
  in.local = local;
  in.is_local = in.need_switches("hybrid_layer_pattern");
  in.has_experts = in.need_switches("moe_layer_freq");
  read_dense_inner(in);
  in.experts.experts = in.need_number("n_routed_experts", limits::kExperts);
  in.experts.experts_per_token = in.need_number("num_experts_per_tok", limits::kExperts);
  in.experts.shared_experts = in.find_number("n_shared_experts", limits::kExperts, 0).value_or(0);
  in.experts.inner = in.need_number("moe_intermediate_size", limits::kWidth);
  read_deepseek_routing(in);
  bias_on_request(in, false);
  // The file's chunk is no mask (vLLM mimo_v2.py reads windows alone); the others scale, or are of positions.
  for (const char* key : {"attention_chunk_size", "attention_value_scale", "layernorm_epsilon",
                          "partial_rotary_factor", "swa_rope_theta", "hybrid_block_size"})
    in.find(key);
  m.tied_embeddings = in.flag("tie_word_embeddings");
}

}  // namespace shardline::hf
