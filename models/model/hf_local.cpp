// Families whose layers see a window or a chunk of the context: gpt-oss, Gemma 3 and 4, Llama 4, MiMo-V2,
// Step. Fields and defaults: transformers models/{gpt_oss,gemma3,gemma4,llama4}/configuration_*.py, vLLM
// mimo_v2.py.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

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

/// Layers with experts, of Llama 4.
std::vector<bool> llama4_experts(Import& in) {
  const auto step = in.find_number("interleave_moe_layer_step", limits::kLayers);
  const auto by_step = [&](int layer) { return (layer + 1) % step.value_or(1) == 0; };
  std::vector<bool> experts(in.layers, false);
  const auto listed = in.find("moe_layers");
  bool sound = listed && listed->is_sequence();
  if (listed) {
    for (const Reader& item : listed->items()) {
      const auto layer = sound_number(item, 0, in.layers - 1);
      sound = sound && layer;
      if (layer && *layer < in.layers) experts[static_cast<std::size_t>(*layer)] = true;
    }
  }
  for (int i = 0; i < in.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (!listed) experts[at] = by_step(i);
    if (!sound || !step || experts[at] == by_step(i)) continue;
    // transformers has moe_layers go first (configuration_llama4.py at 008e57439125), vLLM reads the step
    // alone (833483f3578a, models/llama4.py, Llama4DecoderLayer).
    listed->fault(fmt::format("moe_layers contradicts interleave_moe_layer_step {}: layer {} {} listed",
                              *step, i, experts[at] ? "is" : "is not"),
                  {fmt::format("expected layers {}, {}, ... or no interleave_moe_layer_step", *step - 1,
                               2 * *step - 1)});
    break;
  }
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
  // transformers has chunks by layer_types, vLLM (models/llama4.py, Llama4Attention) where there is rotary
  // embedding.
  for (int i = 0; i < in.layers && types && rope; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if ((*types)[at] == (*rope)[at]) continue;
    const Reader item = in.root.at("layer_types").items()[at];
    item.fault(fmt::format("{} {} contradicts no_rope_layers[{}], which is {}", item.path(), item.text(), i,
                           (*rope)[at]),
               {"expected chunked_attention where it is 1, full_attention where it is 0"});
    break;
  }
  return chunked;
}

/// Experts beside the dense network of every layer, which every token visits: a shared expert of its width.
void read_gemma4_experts(Import& in) {
  read_experts(in, {.per_token = "top_k_experts"});
  set_shared(in.experts, 1, in.dense.inner);
  in.has_experts.assign(in.layers, true);
  in.note("not counted: norms and scales of its own around the experts of each layer");
}

/// Counts of the layers that Step calls sliding, where they differ (attention_other_setting).
Attention step_window(Import& in, const Attention& full) {
  Attention local = full;
  if (const auto other = in.find("attention_other_setting")) {
    in.only(*other, {"attention_type", "num_attention_heads", "num_attention_groups", "head_dim"});
    if (const auto at = other->find("num_attention_heads")) local.q_heads = in.number(*at, limits::kHeads);
    if (const auto at = other->find("num_attention_groups")) local.kv_heads = in.number(*at, limits::kHeads);
    if (const auto at = other->find("head_dim")) local.head_dim = in.number(*at, limits::kWidth);
  }
  local.reach = window(in, 512);
  return local;
}

/// The text of moe_layers_enum, which may be one number: in quotes, as only its place in the file tells.
std::string layers_text(const Reader& at) {
  const std::string text = at.text();
  if (!at.is_scalar() || !literal(text)) return text;
  const Location where = at.location();
  std::size_t byte = 0;
  for (int i = where.source_column; i < where.column; ++i) {
    const auto continues = [&] {
      return (static_cast<unsigned char>(where.source_line[byte]) & 0xc0) == 0x80;
    };
    do ++byte;
    while (byte < where.source_line.size() && continues());
  }
  if (byte < where.source_line.size() && where.source_line[byte] == '"') return text;
  at.fault(at.path() + ": expected a text in quotes or a sequence, found " + text.substr(0, 40));
  return {};
}

/// moe_layers_enum, "3,4,5" or a list; else all layers behind first_k_dense_replace. Whether drafts have
/// experts: those of the list beyond all layers.
bool read_step_experts(Import& in) {
  const auto listed = in.find("moe_layers_enum");
  if (!listed) {
    read_dense_first(in);
    return false;
  }
  in.has_experts.assign(in.layers, false);
  std::vector<int> layers;
  if (listed->is_sequence()) {
    for (const Reader& item : listed->items())
      layers.push_back(static_cast<int>(item.integer(0, in.layers + in.drafts - 1)));
  } else {
    std::istringstream text(layers_text(*listed));
    for (std::string one; std::getline(text, one, ',');) {
      const bool number =
          !one.empty() && one.size() < 6 && one.find_first_not_of("0123456789") == std::string::npos;
      if (!number || std::stoi(one) >= in.layers + in.drafts) {
        listed->fault(fmt::format("moe_layers_enum: {} is none of layers 0 to {}", one, in.layers - 1));
        return false;
      }
      layers.push_back(std::stoi(one));
    }
  }
  for (const int layer : layers) {
    if (layer >= 0 && layer < in.layers) in.has_experts[layer] = true;
  }
  check_dense_first(in, "moe_layers_enum");
  return std::ranges::find_if(layers, [&](int layer) { return layer >= in.layers; }) != layers.end();
}

/// Layers that draft are numbered behind the others, and are what the lists say of these numbers: dense where
/// moe_layers_enum does not have them, with a window where layer_types says so (vllm-project/vllm
/// 01b50b9e8fbe, models/step3p5.py, Step3p5DecoderLayer and Step3p5Attention, of which step3p5_mtp.py makes
/// its blocks). Where layer_types ends before them they go on as the layers do without a list.
void set_step_drafts(Import& in, bool routed) {
  if (in.drafts == 0) return;
  const auto types = in.find("layer_types");
  const std::vector<Reader> listed = types && types->is_sequence() ? types->items() : std::vector<Reader>{};
  bool sliding = in.layers % 4 != 0;
  for (int i = 0; i < in.drafts; ++i) {
    const auto at = static_cast<std::size_t>(in.layers + i);
    if (at >= listed.size()) break;
    const bool slides = listed[at].one_of({"full_attention", "sliding_attention"}) == 1;
    if (i > 0 && slides != sliding) {
      in.note("layers that draft differ in layer_types: the first one's is taken for all");
      break;
    }
    sliding = slides;
  }
  in.draft_attention = sliding ? *in.local : in.attention;
  if (!routed) in.dense.inner = in.need_number("intermediate_size", limits::kWidth);
  in.draft_ffn = routed ? in.experts : in.dense;
}

/// sliding_window_size, which vLLM reads (models/mimo_v2.py at 055e47c28003, MiMoV2FlashDecoderLayer), or
/// sliding_window, which transformers' caches do.
Reach mimo_window(Import& in) {
  const Reach usual = window(in, 128);
  const auto own = in.find("sliding_window_size");
  if (!own) return usual;
  const std::int64_t size = own->integer(1, limits::kContext);
  const auto other = in.find("sliding_window");
  if (other && usual.tokens != size)
    own->fault(fmt::format("sliding_window_size {} contradicts sliding_window {}", size, usual.tokens),
               {"expected one number of tokens, under either key"});
  return {ReachKind::window, size};
}

/// layer_types beside hybrid_layer_pattern, which is what vLLM reads.
void check_mimo_types(Import& in) {
  const auto types = in.find_names("layer_types", {"full_attention", "sliding_attention"});
  for (int i = 0; types && i < in.layers && !in.is_local.empty(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (((*types)[at] == 1) == in.is_local[at]) continue;
    const Reader item = in.root.at("layer_types").items()[at];
    item.fault(fmt::format("{} {} contradicts hybrid_layer_pattern[{}], which is {}", item.path(),
                           item.text(), i, in.is_local[at] ? 1 : 0),
               {"expected sliding_attention where it is 1, full_attention where it is 0"});
    return;
  }
}

/// "vision" (tokens of an image see each other), or a flag.
void check_directions(Import& in) {
  const auto at = in.find("use_bidirectional_attention");
  if (!at || (at->is_scalar() && at->text() == "vision")) return;
  if (at->boolean()) at->fault("use_bidirectional_attention: only causal attention is modelled");
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
  in.ignore({"swiglu_limit", "swiglu_alpha", "initial_context_length"});
  in.note("not modelled: gate and up projections are clamped (swiglu_limit)");
  m.tied_embeddings = in.tied();
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
  in.refuse("use_bidirectional_attention", "only causal attention is modelled", Nothing::flag);
  bias_on_request(in, false);
  m.qk_norm = true;
  m.sandwich_norms = true;
  const auto saved = in.find_number("_sliding_window_pattern", limits::kLayers);
  const int pattern = in.find_number("sliding_window_pattern", limits::kLayers).value_or(saved.value_or(6));
  set_local(in, sliding_layers(in, [pattern](int i) { return (i + 1) % pattern != 0; }), window(in, 4096));
  in.ignore({"query_pre_attn_scalar", "rope_local_base_freq", "cache_implementation", "hidden_activation",
             "attn_logit_softcapping", "final_logit_softcapping"});  // elementwise, or of positions
  m.tied_embeddings = in.tied(true);
}

void read_gemma4(Import& in) {
  Model& m = in.m;
  read_size(in);
  read_context(in);
  in.dense.inner = in.need_number("intermediate_size", limits::kWidth);
  m.tied_embeddings = in.tied(true);
  Attention local = in.attention;
  local.kv_heads = in.need_number("num_key_value_heads", limits::kHeads);
  local.head_dim = in.need_number("head_dim", limits::kWidth);
  Attention full = local;
  full.head_dim = in.need_number("global_head_dim", limits::kWidth);
  const auto kv_heads = in.find_number("num_global_key_value_heads", limits::kHeads);
  if (in.flag("attention_k_eq_v")) {
    full.kv_heads = kv_heads.value_or(local.kv_heads);
    if (kv_heads && local.q_heads % *kv_heads != 0)
      in.root.at("num_global_key_value_heads")
          .fault(fmt::format("{} query heads do not divide into {} of keys and values of full layers",
                             local.q_heads, *kv_heads));
    full.k_eq_v = true;
    in.note(
        "one matrix makes keys and values of full layers; engines load it twice, and so does what is timed");
  }
  // The last layer is full, whatever the list or the default says.
  in.is_local = sliding_layers(in, [](int i) { return (i + 1) % 6 != 0; });
  if (in.is_local.back() && in.find("layer_types"))
    in.note("the last layer has full attention, as the model's code has it whatever layer_types says");
  in.is_local.back() = false;
  local.reach = window(in, 512);
  in.attention = full;
  in.local = local;
  m.qk_norm = true;
  m.sandwich_norms = true;
  bias_on_request(in, false);
  in.refuse("hidden_size_per_layer_input", "embeddings of each layer are not modelled", Nothing::number);
  if (in.flag("enable_moe_block")) read_gemma4_experts(in);
  in.refuse("per_layer_config", "widths of single layers are not modelled", Nothing::map);
  check_directions(in);
  for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"})
    in.find_number(key, limits::kWidth, 0);  // of no layer without enable_moe_block
  in.ignore({"vocab_size_per_layer_input", "use_double_wide_mlp", "expert_intermediate_size",
             "hidden_activation", "final_logit_softcapping"});  // of what is refused above, or elementwise
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
  in.ignore({"attn_temperature_tuning", "floor_scale", "attn_scale",
             "for_llm_compressor"});  // of positions, or of tools
  m.tied_embeddings = in.tied();
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
  local.reach = mimo_window(in);
  for (Attention* a : {&full, &local}) {
    if (a->v_dim == a->head_dim) a->v_dim = 0;
  }
  in.attention = full;
  in.local = local;
  in.is_local = in.need_switches("hybrid_layer_pattern");
  check_mimo_types(in);
  in.has_experts = in.need_switches("moe_layer_freq");
  if (!in.has_experts.empty()) check_dense_first(in, "moe_layer_freq");
  read_dense_inner(in);
  in.experts.experts = in.need_number("n_routed_experts", limits::kExperts);
  in.experts.experts_per_token = in.need_number("num_experts_per_tok", limits::kExperts);
  in.experts.shared_experts = in.find_number("n_shared_experts", limits::kExperts, 0).value_or(0);
  in.experts.inner = in.need_number("moe_intermediate_size", limits::kWidth);
  read_deepseek_routing(in);
  bias_on_request(in, false);
  // The file's chunk is no mask (vLLM mimo_v2.py reads windows alone); the others scale, or are of positions.
  in.find_number("attention_chunk_size", limits::kContext, 0);
  in.ignore({"attention_value_scale", "layernorm_epsilon", "partial_rotary_factor", "swa_rope_theta",
             "hybrid_block_size"});
  m.tied_embeddings = in.tied();
}

void read_step(Import& in) {
  read_size(in);
  read_context(in);
  Attention full = in.attention;
  full.kv_heads = in.need_number("num_key_value_heads", "num_attention_groups", limits::kHeads);
  full.head_dim = in.need_number("head_dim", limits::kWidth);
  if (in.flag("use_head_wise_attn_gate")) full.gate = OutputGate::head;
  in.attention = full;
  in.local = step_window(in, full);
  in.is_local = sliding_layers(in, [](int i) { return i % 4 != 0; });
  const bool routed_drafts = read_step_experts(in);
  read_dense_inner(in);
  read_experts(in, {.older = "moe_num_experts", .older_per_token = "moe_top_k"});
  for (const char* key : {"share_expert_dim", "share_expert_dims"}) in.find_number(key, limits::kWidth, 0);
  read_shared(in, in.root.has("share_expert_dims") ? "share_expert_dims" : "share_expert_dim", 1);
  in.find_number("n_shared_experts", limits::kExperts, 0);
  in.experts.router_bias = in.flag("use_moe_router_bias");
  set_step_drafts(in, routed_drafts);
  in.m.qk_norm = in.flag("use_qk_norm", true);
  in.ignore({"moe_router_scaling_factor", "partial_rotary_factors", "swiglu_limits", "swiglu_limits_shared",
             "need_fp32_gate", "norm_expert_weight", "use_moe", "moe_every_n_layer", "moe_router_activation",
             "max_seq_len", "sink", "use_rope_layers", "yarn_only_types"});
  in.m.tied_embeddings = in.tied();
}

}  // namespace shardline::hf
