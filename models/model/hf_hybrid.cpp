// Families whose layers mostly keep a state of fixed size. Fields and defaults: transformers
// models/{qwen3_next,qwen3_5,qwen3_5_moe,nemotron_h}/configuration_*.py; of Kimi-Linear and Kimi-K3, vLLM's
// kimi_linear.py and SGLang's kimi_k3.py.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/model/hf_import.hpp"

namespace shardline::hf {
namespace {

/// The type of a state under `key`; float32 where it is missing or left to the engine.
Dtype state_type(Import& in, const char* key) {
  const auto at = in.find(key);
  if (!at) return Dtype::fp32;
  return at->one_of({"float32", "bfloat16", "auto"}) == 1 ? Dtype::bf16 : Dtype::fp32;
}

/// Gated DeltaNet of Qwen3-Next and Qwen3.5.
Attention read_delta_net(Import& in) {
  Attention a;
  a.kind = AttentionKind::delta;
  a.gate = OutputGate::full;
  DeltaRule d;
  d.key_heads = in.find_number("linear_num_key_heads", limits::kHeads).value_or(16);
  d.value_heads = in.find_number("linear_num_value_heads", limits::kHeads).value_or(32);
  d.key_dim = in.find_number("linear_key_head_dim", limits::kWidth).value_or(128);
  d.value_dim = in.find_number("linear_value_head_dim", limits::kWidth).value_or(128);
  d.conv = in.find_number("linear_conv_kernel_dim", 64).value_or(4);
  d.state = state_type(in, "mamba_ssm_dtype");
  a.delta = d;
  return a;
}

/// Layers with linear attention: those that layer_types says, else all but every full_attention_interval-th.
void read_linear_layers(Import& in, const Attention& linear) {
  const int every = in.find_number("full_attention_interval", limits::kLayers).value_or(4);
  const auto types = in.find_names("layer_types", {"full_attention", "linear_attention"});
  const auto interval = in.find("full_attention_interval");
  // A number out of range was said to be so, and contradicts nothing.
  const bool said = types && interval && interval->text() == std::to_string(every);
  for (int i = 0; i < in.layers && said; ++i) {
    if (((*types)[i] == 1) == ((i + 1) % every != 0)) continue;
    interval->fault(fmt::format("full_attention_interval {} contradicts layer_types[{}]", every, i));
    break;
  }
  for (int i = 0; i < in.layers; ++i) {
    const bool is_linear = types ? (*types)[i] == 1 : (i + 1) % every != 0;
    in.mixers.push_back(is_linear ? linear : in.attention);
  }
}

void read_gated_layers(Import& in) {
  read_size(in);
  read_context(in);
  in.attention.kv_heads = in.need_number("num_key_value_heads", limits::kHeads);
  in.attention.head_dim = in.find_number("head_dim", limits::kWidth).value_or(256);
  in.attention.gate = in.flag("attn_output_gate", true) ? OutputGate::full : OutputGate::none;
  in.draft_attention = in.attention;
  in.m.qk_norm = true;
  if (in.flag("attention_bias")) in.m.attention_bias = AttentionBias::all;
  read_linear_layers(in, read_delta_net(in));
  in.ignore(
      {"partial_rotary_factor", "output_gate_type", "mtp_use_dedicated_embeddings", "mtp_num_hidden_layers"});
}

/// Layers, counted from 1, that both lists of linear_attn_config share out among themselves.
std::vector<bool> kda_layers(const Import& in, const Reader& config) {
  std::vector<int> kind(in.layers, -1);
  const char* keys[] = {"full_attn_layers", "kda_layers"};
  bool sound = true;
  for (const int k : {0, 1}) {
    const Reader list = config.at(keys[k]);
    sound = sound && list.is_sequence();
    for (const Reader& item : list.items()) {
      const std::optional<int> number = sound_number(item, 1, in.layers);
      sound = sound && number;
      if (!number) continue;
      int& known = kind[static_cast<std::size_t>(*number - 1)];
      if (known >= 0)
        item.fault(fmt::format("{}: layer {} is in {}, too", item.path(), *number, keys[known]));
      known = k;
    }
  }
  std::vector<bool> kda;
  // A layer may be missing for the entry that was wrong.
  for (int i = 0; i < in.layers && sound; ++i) {
    if (kind[i] < 0)
      config.fault(fmt::format("{}: layer {} of {} is in neither kda_layers nor full_attn_layers",
                               config.path(), i + 1, in.layers));
    if (kind[i] < 0) break;
    kda.push_back(kind[i] == 1);
  }
  kda.resize(in.layers, false);
  return kda;
}

Attention read_kda(Import& in, const Reader& config) {
  Attention a;
  a.kind = AttentionKind::delta;
  DeltaRule d;
  d.key_heads = d.value_heads = in.number(config.at("num_heads"), limits::kHeads);
  d.key_dim = d.value_dim = in.number(config.at("head_dim"), limits::kWidth);
  const auto taps = config.find("short_conv_kernel_size");
  d.conv = taps ? in.number(*taps, 64) : 4;
  d.channel_decay = true;
  a.delta = d;
  const auto full = config.find("use_full_rank_gate");
  a.gate = full && full->boolean() ? OutputGate::full : OutputGate::narrow;
  return a;
}

constexpr std::array kBlockTypes = {"mamba", "linear_attention", "moe", "attention", "full_attention", "mlp"};
constexpr std::string_view kBlockLetters = "MME**-";

/// layers_block_type as letters; '?' for an entry that is none.
std::string block_letters(const Reader& list) {
  const std::vector<std::string> names(kBlockTypes.begin(), kBlockTypes.end());
  std::string letters;
  for (const Reader& item : list.items()) {
    const std::size_t place = item.one_of(names);
    letters += item.is_scalar() && item.text() == names[place] ? kBlockLetters[place] : '?';
  }
  return letters;
}

/// Both say what each layer is. transformers reads layers_block_type first (configuration_nemotron_h.py at
/// 13923c63d59f), vLLM hybrid_override_pattern (a59ddf748721, transformers_utils/configs/nemotron_h.py):
/// where they differ, the file is of two models.
void check_blocks(const Reader& list, const std::string& listed, const std::string& pattern) {
  if (listed.size() != pattern.size())
    return list.fault(fmt::format("layers_block_type has {} layers, but hybrid_override_pattern {}",
                                  listed.size(), pattern.size()));
  for (std::size_t i = 0; i < listed.size(); ++i) {
    if (listed[i] == pattern[i] || listed[i] == '?') continue;
    const Reader item = list.items()[i];
    return item.fault(fmt::format("{} {} contradicts hybrid_override_pattern, whose letter {} is {}",
                                  item.path(), item.text(), i, pattern.substr(i, 1)),
                      {"M is mamba, E moe, * attention, - mlp"});
  }
}

/// What layers Nemotron-H has, one letter each: M(amba), E(xperts), * (attention), - (dense network).
std::string nemotron_pattern(Import& in) {
  const auto letters = in.find("hybrid_override_pattern");
  const auto list = in.find("layers_block_type");
  const Reader at = letters ? *letters : list ? *list : in.need("hybrid_override_pattern");
  const std::string listed = list ? block_letters(*list) : "";
  std::string pattern;
  if (letters) {
    pattern = json_name(*letters);
    const auto wrong = pattern.find_first_not_of("ME*-");
    if (wrong != std::string::npos)
      letters->fault(fmt::format("hybrid_override_pattern: letter {} is {}", wrong, pattern.substr(wrong, 1)),
                     {"expected M (Mamba), E (experts), * (attention) or - (dense network)"});
    else if (list && list->is_sequence())
      check_blocks(*list, listed, pattern);
  } else {
    pattern = listed;
    std::ranges::replace(pattern, '?', '-');  // faults are known
  }
  const auto count = in.find("num_hidden_layers");
  const auto layers = static_cast<std::int64_t>(pattern.size());
  if (count && count->integer(1, limits::kLayers) != layers && !pattern.empty())
    at.fault(fmt::format("{}: {} layers, but num_hidden_layers is {}", at.path(), layers,
                         count->integer(1, limits::kLayers)));
  if (pattern.empty() || layers > limits::kLayers)
    at.fault(fmt::format("{}: {} layers; expected 1 to {}", at.path(), layers, limits::kLayers));
  return pattern.substr(0, limits::kLayers);
}

Attention read_mamba(Import& in) {
  Attention a;
  a.kind = AttentionKind::mamba;
  Mamba s;
  s.heads = in.need_number("mamba_num_heads", limits::kHeads);
  s.head_dim = in.need_number("mamba_head_dim", limits::kWidth);
  s.state = in.need_number("ssm_state_size", limits::kWidth);
  s.groups = in.find_number("n_groups", limits::kHeads).value_or(8);
  s.conv = in.find_number("conv_kernel", 64).value_or(4);
  s.conv_bias = in.flag("use_conv_bias", true);
  s.bias = in.flag("mamba_proj_bias") || in.flag("use_bias");
  s.state_type = state_type(in, "mamba_ssm_cache_dtype");
  a.mamba = s;
  return a;
}

Attention read_nemotron_attention(Import& in) {
  Attention a;
  a.q_heads = in.need_number("num_attention_heads", limits::kHeads);
  a.kv_heads = in.find_number("num_key_value_heads", limits::kHeads).value_or(a.q_heads);
  a.head_dim = in.need_number("head_dim", "attention_head_dim", limits::kWidth);
  if (const auto window = in.find("sliding_window"))
    a.reach = {ReachKind::window, window->integer(1, limits::kContext)};
  return a;
}

void read_nemotron_experts(Import& in) {
  read_experts(in, {.experts = "n_routed_experts", .older = "num_experts"});
  const int shared = in.find_number("n_shared_experts", limits::kExperts, 0).value_or(1);
  in.find_number("moe_shared_expert_intermediate_size", limits::kWidth, 0);
  if (shared > 0) read_shared(in, "moe_shared_expert_intermediate_size", shared);
  in.experts.latent = in.find_number("moe_latent_size", limits::kWidth).value_or(0);
  in.experts.router_bias = true;  // e_score_correction_bias, fixed in the model's code
}

/// Kimi-Linear-48B's own file and class (configuration_kimi.py, KimiLinearConfig) have no
/// max_position_embeddings: model_max_length is the context, and what engines take it from wherever it is
/// given (vllm-project/vllm 00bb6f59a0c7, transformers_utils/model_arch_config_convertor.py,
/// derive_max_model_len_and_key).
void read_kimi_context(Import& in) {
  const auto own = in.find("model_max_length");
  if (!own) return read_context(in);
  in.m.max_context = own->integer(1, limits::kContext);
  const auto usual = in.find("max_position_embeddings");
  if (!usual) return;
  const std::int64_t other = usual->integer(1, limits::kContext);
  if (other != in.m.max_context)
    own->fault(
        fmt::format("model_max_length {} contradicts max_position_embeddings {}", in.m.max_context, other),
        {"expected one number of tokens, under either key"});
}

}  // namespace

void read_qwen3_next(Import& in) {
  read_gated_layers(in);
  read_sparse_steps(in);
  read_dense_inner(in);
  read_experts(in, {});
  // A width of 0 is none (vllm-project/vllm, models/qwen3_next.py and qwen2_moe.py).
  const bool none = in.find_number("shared_expert_intermediate_size", limits::kWidth, 0) == 0;
  if (!none) read_shared(in, "shared_expert_intermediate_size", 1);
  in.experts.shared_gate = !none;
  in.m.tied_embeddings = in.tied();
}

void read_qwen3_5(Import& in) {
  read_gated_layers(in);
  read_dense(in);
}

void read_kimi_linear(Import& in) {
  read_size(in);
  read_kimi_context(in);
  read_mla(in);
  if (in.flag("mla_use_output_gate")) in.attention.gate = OutputGate::full;
  const Reader config = in.need("linear_attn_config");
  if (config.is_map()) {
    in.only(config, {"kda_layers", "full_attn_layers", "num_heads", "head_dim", "short_conv_kernel_size",
                     "use_full_rank_gate", "gate_lower_bound"});
    const Attention kda = read_kda(in, config);
    for (const bool linear : kda_layers(in, config)) in.mixers.push_back(linear ? kda : in.attention);
  } else {
    config.keys();  // a fault: expected a mapping
  }
  read_dense_first(in);
  read_dense_inner(in);
  read_experts(in, {.older_per_token = "num_experts_per_token"});
  in.experts.shared_experts = in.find_number("num_shared_experts", limits::kExperts, 0).value_or(0);
  in.experts.latent = in.find_number("routed_expert_hidden_size", limits::kWidth).value_or(0);
  in.experts.latent_norm = in.flag("latent_moe_use_norm") && in.experts.latent > 0;
  in.experts.router_bias = true;  // e_score_correction_bias, fixed in the model's code
  in.m.residual.block = in.find_number("attn_res_block_size", in.layers).value_or(0);
  in.ignore({"head_dim", "mla_use_nope", "moe_renormalize", "moe_router_activation_func", "num_expert_group",
             "topk_group", "topk_method", "use_grouped_topk", "activation_situ_beta",
             "activation_situ_linear_beta"});
  in.m.tied_embeddings = in.tied();
}

void read_nemotron_h(Import& in) {
  const std::string pattern = nemotron_pattern(in);
  in.layers = static_cast<int>(pattern.size());
  in.m.hidden = in.need_number("hidden_size", limits::kWidth);
  in.m.vocab = in.need_number("vocab_size", limits::kVocab);
  read_context(in);
  in.m.ffn_kind = FfnKind::plain;
  Attention nothing;
  nothing.kind = AttentionKind::none;
  const auto has = [&](char letter) { return pattern.find(letter) != std::string::npos; };
  const Attention mamba = has('M') ? read_mamba(in) : nothing;
  const Attention attention = has('*') ? read_nemotron_attention(in) : nothing;
  if (has('-')) in.dense.inner = in.need_number("intermediate_size", limits::kWidth);
  if (has('E')) read_nemotron_experts(in);
  for (const char letter : pattern) {
    in.mixers.push_back(letter == 'M' ? mamba : letter == '*' ? attention : nothing);
    in.networks.push_back(letter == '-'   ? in.dense
                          : letter == 'E' ? in.experts
                                          : FeedForward{.absent = true});
  }
  in.draft_attention = attention;
  in.draft_ffn = in.experts;
  if (in.flag("attention_bias")) in.m.attention_bias = AttentionBias::all;
  in.m.ffn_bias = in.flag("mlp_bias");
  if (const auto act = in.find("mlp_hidden_act"); act && json_name(*act) == "silu")
    act->fault("mlp_hidden_act: gated networks of Nemotron-H are not modelled");
  if (const auto drafts = in.find("mtp_hybrid_override_pattern");
      drafts && json_name(*drafts) != "*E" && in.drafts > 0)
    drafts->fault("mtp_hybrid_override_pattern: only *E (attention, then experts) is modelled");
  // Tokens of a prompt that the scan takes at once: [G9] takes 128, as the published models say.
  if (const auto chunk = in.find_number("chunk_size", limits::kContext); chunk && *chunk != 128)
    in.note(fmt::format("chunk_size {}: scans of prompts are priced in chunks of 128 tokens", *chunk));
  in.ignore({"attention_head_dim",
             "conv_kernel",
             "expand",
             "intermediate_size",
             "mamba_hidden_act",
             "mamba_ssm_cache_dtype",
             "moe_shared_expert_overlap",
             "mtp_layers_block_type",
             "n_group",
             "norm_eps",
             "num_attention_heads",
             "num_key_value_heads",
             "num_logits_to_keep",
             "partial_rotary_factor",
             "rescale_prenorm_residual",
             "residual_in_fp32",
             "sliding_window",
             "time_step_floor",
             "time_step_limit",
             "time_step_max",
             "time_step_min",
             "time_step_rank",
             "topk_group",
             "use_mamba_kernels"});
  in.m.tied_embeddings = in.tied();
}

}  // namespace shardline::hf
