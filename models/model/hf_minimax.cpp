// MiniMax-M2 and MiniMax-M3, whose layers choose blocks of what they see (MSA). Fields and defaults:
// transformers models/minimax_m2/configuration_minimax_m2.py, vLLM's models/minimax_m3.
#include <fmt/format.h>

#include <algorithm>

#include "models/model/hf_import.hpp"

namespace shardline::hf {
namespace {

/// sparse_attention_freq: 0 or 1 by layer; without it every layer is sparse.
std::vector<bool> sparse_layers(Import& in, const Reader& config) {
  std::vector<bool> sparse(in.layers, true);
  const auto list = config.find("sparse_attention_freq");
  if (!list || list->is_null()) return sparse;
  const auto switches = in.switches_at(*list);
  for (int i = 0; switches && i < in.layers; ++i) sparse[i] = (*switches)[i] == 1;
  return sparse;
}

SparseIndex read_blocks(Import& in, const Reader& config) {
  SparseIndex x;
  const Reader heads = config.at("sparse_num_index_heads");
  x.heads = in.number(heads, limits::kHeads);
  if (x.heads != in.attention.kv_heads && heads.text() == std::to_string(x.heads))
    heads.fault(fmt::format("{} heads of an index for {} key/value heads: only one for each is modelled",
                            x.heads, in.attention.kv_heads));
  x.dim = in.number(config.at("sparse_index_dim"), limits::kWidth);
  x.top_k = in.number(config.at("sparse_topk_blocks"), limits::kWidth);
  x.block = in.number(config.at("sparse_block_size"), limits::kWidth);
  if (const auto at = config.find("sparse_init_block")) x.init_blocks = in.number(*at, limits::kWidth, 0);
  if (const auto at = config.find("sparse_local_block")) {
    x.local_blocks = in.number(*at, limits::kWidth, 0);
    if (x.local_blocks == 0 && at->text() == "0")
      at->fault("sparse_local_block 0: a query whose own block may be left out is not modelled");
  }
  if (const auto at = config.find("sparse_score_type")) at->one_of({"max"});
  return x;
}

/// Values that an index would add have matrices that no published checkpoint has.
void refuse_index_values(Import& in, const Reader& config, const std::vector<bool>& sparse) {
  const auto list = config.find("sparse_disable_index_value");
  if (!list || list->is_null()) return;
  const auto off = in.switches_at(*list);
  for (int i = 0; off && i < in.layers; ++i) {
    if (!sparse[i] || (*off)[i] == 1) continue;
    list->items()[i].fault(fmt::format("{}[{}]: values of an index are not modelled", list->path(), i));
    return;
  }
}

/// MiniMax-M3 names its modules of multi-token prediction twice. vLLM builds num_mtp_modules of them
/// (models/minimax_m3/nvidia/mtp.py at 0fddb0a24549, MiniMaxM3MultiTokenPredictor: step i runs module
/// i % num_mtp_modules); transformers ignores them all (configuration_minimax_m3_vl.py at 01a05aad6d83). The
/// published 428B have none of them in it, so it cannot say how many a checkpoint holds.
void note_mtp_modules(Import& in) {
  const auto modules = in.find_number("num_mtp_modules", 64, 0);
  if (!modules || *modules == in.drafts) return;
  in.note(fmt::format(
      "num_mtp_modules {} beside num_nextn_predict_layers {}: {} counted, in weights and cache, and run pass "
      "after pass, as engines do with DeepSeek's; vLLM builds num_mtp_modules of them, each with weights and "
      "a cache of its own, and runs one per draft",
      *modules, in.drafts, in.drafts == 1 ? "1 is" : fmt::format("{} are", in.drafts)));
}

}  // namespace

void read_minimax_m2(Import& in) {
  read_size(in);
  read_context(in);
  read_gqa(in);
  in.has_experts.assign(in.layers, true);
  read_experts(in, {.experts = "num_local_experts", .inner = "intermediate_size"});
  if (in.find_number("shared_intermediate_size", limits::kWidth, 0).value_or(0) > 0)
    read_shared(in, "shared_intermediate_size", 1);
  in.experts.router_bias = in.flag("use_routing_bias", true);
  in.m.qk_norm = in.flag("use_qk_norm", true);
  const auto norm = in.find("qk_norm_type");
  const bool whole = !norm || norm->one_of({"per_layer", "per_head"}) == 0;
  in.m.qk_norm_whole = in.m.qk_norm && whole;
  in.refuse("sliding_window", "this model_type has no windows", Nothing::number);
  const int modules = in.find_number("num_mtp_modules", limits::kLayers, 0).value_or(0);
  if (in.flag("use_mtp"))
    in.note(
        fmt::format("not modelled: {} multi-token-prediction module(s), which use_mtp speaks of", modules));
  in.ignore({"mtp_transformer_layers", "rotary_dim"});
  in.m.tied_embeddings = in.tied();
}

void read_minimax_m3(Import& in) {
  read_size(in);
  read_context(in);
  read_gqa(in);
  read_dense_first(in);
  if (std::ranges::find(in.has_experts, false) != in.has_experts.end())
    in.dense.inner = in.need_number("dense_intermediate_size", limits::kWidth);
  const auto own = in.find_number("moe_intermediate_size", limits::kWidth);
  read_experts(
      in, {.experts = "num_local_experts", .inner = own ? "moe_intermediate_size" : "intermediate_size"});
  in.find_number("intermediate_size", limits::kWidth);
  const int shared = in.find_number("n_shared_experts", limits::kExperts, 0).value_or(0);
  in.find_number("shared_intermediate_size", limits::kWidth, 0);
  if (shared > 0) read_shared(in, "shared_intermediate_size", shared);
  in.experts.router_bias = in.flag("use_routing_bias", true);
  in.m.qk_norm = in.flag("use_qk_norm", true);
  const auto norm = in.find("qk_norm_type");
  const bool whole = norm && norm->one_of({"per_layer", "per_head"}) == 0;
  in.m.qk_norm_whole = in.m.qk_norm && whole;
  if (in.flag("attention_output_gate")) in.attention.gate = OutputGate::full;
  const auto config = in.find("sparse_attention_config");
  if (!config && in.root.has("sparse_attention_config"))
    in.note("sparse_attention_config is null: all layers have full attention");
  if (config) {
    in.only(*config, {"use_sparse_attention", "sparse_attention_freq", "sparse_disable_index_value",
                      "sparse_num_index_heads", "sparse_index_dim", "sparse_topk_blocks", "sparse_block_size",
                      "sparse_init_block", "sparse_local_block", "sparse_score_type"});
    const auto used = config->find("use_sparse_attention");
    if (!used || used->is_null() || used->boolean()) {
      const std::vector<bool> sparse = sparse_layers(in, *config);
      refuse_index_values(in, *config, sparse);
      const SparseIndex index = read_blocks(in, *config);
      for (int i = 0; i < in.layers; ++i) {
        in.mixers.push_back(in.attention);
        if (sparse[i]) in.mixers.back().index = index;
      }
    }
  }
  note_mtp_modules(in);
  in.ignore({"swiglu_alpha", "swiglu_limit", "use_gemma_norm", "rotary_dim", "partial_rotary_factor"});
  in.m.tied_embeddings = in.tied();
}

}  // namespace shardline::hf
