// Families whose layers have one kind of attention, and per-layer NAS blocks. Fields and defaults:
// transformers models/{qwen2_moe,glm4_moe,seed_oss,phi3,ernie4_5,ernie4_5_moe}/configuration_*.py, and vLLM's
// mimo.py and nemotron_nas.py.
#include <fmt/format.h>

#include <cmath>

#include "models/model/hf_import.hpp"

namespace shardline::hf {
namespace {

void read_head(Import& in) {
  read_size(in);
  read_context(in);
  read_gqa(in);
}

void bias_on_request(Import& in, AttentionBias bias, bool when_missing = false) {
  if (in.flag("attention_bias", when_missing)) in.m.attention_bias = bias;
}

/// ffn_mult of a NAS block: two thirds of it times hidden, rounded up to 256 (nemotron_nas.py,
/// _ffn_mult_to_intermediate_size).
int width_of(double multiple, int hidden) {
  const int inner = static_cast<int>(2 * multiple * hidden / 3);
  return (inner + 255) / 256 * 256;
}

/// The switch of a NAS block that puts one matrix in place of the whole.
void refuse_linear(const Reader& block) {
  const auto linear = block.find("replace_with_linear");
  if (linear && !linear->is_null() && linear->boolean())
    linear->fault(linear->path() + ": layers that one matrix replaces are not modelled");
}

bool is_no_op(const Reader& block) {
  block.allow_other_keys();
  refuse_linear(block);
  const auto no_op = block.find("no_op");
  return no_op && !no_op->is_null() && no_op->boolean();
}

Attention nas_attention(const Reader& block, const Attention& whole) {
  Attention a;
  if (is_no_op(block)) {
    a.kind = AttentionKind::none;
    return a;
  }
  a = whole;
  const int group = static_cast<int>(block.at("n_heads_in_group").integer(1, limits::kHeads));
  a.kv_heads = std::max(1, whole.q_heads / group);
  if (whole.q_heads % group != 0)
    block.at("n_heads_in_group")
        .fault(fmt::format("{}: {} query heads do not divide into groups of {}", block.path(), whole.q_heads,
                           group));
  const auto window = block.find("window_length");
  if (window && !window->is_null()) a.reach = {ReachKind::window, window->integer(1, limits::kContext)};
  for (const char* key : {"num_sink_tokens", "sparsify"}) {
    const auto at = block.find(key);
    if (at && !at->is_null()) at->fault(at->path() + ": not modelled");
  }
  return a;
}

FeedForward nas_network(const Reader& block, int hidden) {
  FeedForward f;
  if (is_no_op(block)) {
    f.absent = true;
    return f;
  }
  const auto inner = block.find("intermediate_size");
  f.inner = inner && !inner->is_null() ? static_cast<int>(inner->integer(1, limits::kWidth))
                                       : width_of(block.at("ffn_mult").number(0.001, 64), hidden);
  return f;
}

}  // namespace

void read_qwen2_moe(Import& in) {
  read_head(in);
  read_switched_window(in, false);
  read_sparse_steps(in);
  read_dense_inner(in);
  read_experts(in, {});
  // A width of 0 is none (vllm-project/vllm, models/qwen3_next.py and qwen2_moe.py).
  const bool none = in.find_number("shared_expert_intermediate_size", limits::kWidth, 0) == 0;
  if (!none) read_shared(in, "shared_expert_intermediate_size", 1);
  in.experts.shared_gate = in.experts.shared_experts > 0;
  in.m.attention_bias = in.flag("qkv_bias", true) ? AttentionBias::qkv : AttentionBias::none;
  in.m.tied_embeddings = in.tied();
}

void read_mimo(Import& in) {
  read_head(in);
  read_switched_window(in, false);
  read_dense(in);
  bias_on_request(in, AttentionBias::qkv, true);
  in.ignore({"use_mrope"});
}

void read_glm4_moe(Import& in) {
  read_head(in);
  read_dense_first(in);
  read_dense_inner(in);
  read_experts(in, {.experts = "n_routed_experts", .older = "num_experts"});
  in.experts.shared_experts = in.find_number("n_shared_experts", limits::kExperts, 0).value_or(0);
  read_deepseek_routing(in);
  bias_on_request(in, AttentionBias::qkv);  // the output projection has none
  in.m.qk_norm = in.flag("use_qk_norm");
  in.ignore({"partial_rotary_factor"});
  in.m.tied_embeddings = in.tied();
}

void read_seed_oss(Import& in) {
  read_head(in);
  read_dense(in);
  const bool out = in.flag("attention_out_bias");
  if (in.flag("attention_bias", true)) in.m.attention_bias = out ? AttentionBias::all : AttentionBias::qkv;
  in.m.ffn_bias = in.flag("mlp_bias");
  in.ignore({"residual_dropout"});
}

void read_phi3(Import& in) {
  read_head(in);
  read_window_of_all(in);
  read_dense(in);
  in.refuse("attention_bias", "projections of this model_type have no biases", Nothing::flag);
  in.ignore({"original_max_position_embeddings", "partial_rotary_factor", "embd_pdrop", "resid_pdrop"});
}

void read_ernie(Import& in) {
  read_head(in);
  read_dense(in);
  in.m.tied_embeddings = in.tied(true);
  if (in.flag("use_bias")) {
    in.m.attention_bias = AttentionBias::all;
    in.m.ffn_bias = true;
  }
}

void read_ernie_moe(Import& in) {
  read_head(in);
  in.m.tied_embeddings = in.tied(true);
  const int first = in.find_number("moe_layer_start_index", limits::kLayers, 0).value_or(1);
  const auto end = in.find("moe_layer_end_index");  // -1: the last layer
  const auto last = end ? end->integer(-1, limits::kLayers) : -1;
  const int every = in.find_number("moe_layer_interval", limits::kLayers).value_or(1);
  for (int i = 0; i < in.layers; ++i)
    in.has_experts.push_back(i >= first && (last < 0 || i <= last) && (i + 1) % every == 0);
  read_dense_inner(in);
  read_experts(in,
               {"moe_num_experts", "num_experts", "moe_k", "num_experts_per_tok", "moe_intermediate_size"});
  in.experts.shared_experts = in.find_number("moe_num_shared_experts", limits::kExperts, 0).value_or(2);
  in.experts.router_bias = true;  // moe_statics, fixed in the model's code
  if (in.flag("use_bias")) {
    in.m.attention_bias = AttentionBias::all;
    in.m.ffn_bias = true;
  }
  in.ignore({"moe_use_aux_free", "moe_gate", "moe_capacity", "moe_group", "moe_norm_min"});
}

void read_nas(Import& in) {
  read_size(in);
  read_context(in);
  Attention whole = in.attention;
  whole.head_dim =
      in.find_number("head_dim", limits::kWidth).value_or(in.m.hidden / std::max(1, whole.q_heads));
  in.find_number("num_key_value_heads", limits::kHeads);  // null: blocks say it
  in.find_number("intermediate_size", limits::kWidth);
  const Reader blocks = in.need("block_configs");
  const std::vector<Reader> items = blocks.items();
  if (blocks.is_sequence() && static_cast<int>(items.size()) != in.layers)
    blocks.fault(fmt::format("{}: {} entries for {} layers", blocks.path(), items.size(), in.layers),
                 {fmt::format("expected {}, one of each layer", in.layers)});
  for (const Reader& block : items) {
    if (!block.is_map()) {
      block.fault(block.path() + ": expected a mapping");
      continue;
    }
    block.allow_other_keys();
    in.mixers.push_back(nas_attention(block.at("attention"), whole));
    in.networks.push_back(nas_network(block.at("ffn"), in.m.hidden));
  }
  if (in.flag("attention_bias")) in.m.attention_bias = AttentionBias::all;
  in.m.ffn_bias = in.flag("mlp_bias");
  in.m.tied_embeddings = in.tied();
}

}  // namespace shardline::hf
