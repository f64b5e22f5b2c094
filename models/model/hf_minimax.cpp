// MiniMax-M2 and MiniMax-M3, whose layers choose blocks of what they see (MSA). Fields and defaults:
// transformers models/minimax_m2/configuration_minimax_m2.py, vLLM's models/minimax_m3. What transformers
// saves of M3 has other names than what MiniMax published
// (models/minimax_m3_vl/configuration_minimax_m3_vl.py: layer_types since 01a05aad6d83; index_*, which take
// the place of sparse_attention_config, in later versions, which have one shared expert whatever the file
// says): both are read.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/model/hf_import.hpp"

namespace shardline::hf {
namespace {

/// Which layers choose blocks: those of sparse_attention_freq (0 or 1 by layer; without it all, where the
/// index is `used`), which layer_types repeats or takes the place of.
std::vector<bool> sparse_layers(Import& in, const std::optional<Reader>& config, bool used) {
  const auto types = in.find_names("layer_types", {"full_attention", "minimax_m3_sparse"});
  const auto list = config ? config->find("sparse_attention_freq") : std::nullopt;
  const auto switches = list && !list->is_null() ? in.switches_at(*list) : std::nullopt;
  std::vector<bool> sparse;
  bool agrees = true;  // up to the first that does not, which is said
  for (int i = 0; i < in.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool switched = used && (!switches || (*switches)[at] == 1);
    sparse.push_back(types ? (*types)[at] == 1 : switched);
    const bool said_twice = types && config && (switches || !used);
    if (!agrees || !said_twice || sparse[at] == switched) continue;
    agrees = false;
    const Reader item = in.root.at("layer_types").items()[at];
    item.fault(
        fmt::format("{} {} contradicts sparse_attention_config, whose {}", item.path(), item.text(),
                    used ? fmt::format("sparse_attention_freq[{}] is {}", i, switched ? 1 : 0)
                         : "use_sparse_attention is false"),
        {"expected minimax_m3_sparse where the layer chooses blocks, full_attention where it does not"});
  }
  return sparse;
}

void check_index_heads(const Import& in, const Reader& at, int heads) {
  if (heads != in.attention.kv_heads && at.text() == std::to_string(heads))
    at.fault(fmt::format("{} heads of an index for {} key/value heads: only one for each is modelled", heads,
                         in.attention.kv_heads));
}

void refuse_no_local_block(const Reader& at) {
  if (at.text() == "0") at.fault(at.path() + " 0: a query whose own block may be left out is not modelled");
}

/// The index where transformers wrote the file, which leaves its defaults out.
SparseIndex read_flat_index(Import& in) {
  SparseIndex x;
  x.heads = in.find_number("index_n_heads", limits::kHeads).value_or(4);
  if (const auto at = in.find("index_n_heads")) check_index_heads(in, *at, x.heads);
  x.dim = in.find_number("index_head_dim", limits::kWidth).value_or(128);
  x.top_k = in.find_number("index_topk_blocks", limits::kWidth).value_or(16);
  x.block = in.find_number("index_block_size", limits::kWidth).value_or(128);
  x.local_blocks = in.find_number("index_local_blocks", limits::kWidth, 0).value_or(1);
  if (const auto at = in.find("index_local_blocks")) refuse_no_local_block(*at);
  return x;
}

SparseIndex read_blocks(Import& in, const Reader& config) {
  SparseIndex x;
  const Reader heads = config.at("sparse_num_index_heads");
  x.heads = in.number(heads, limits::kHeads);
  check_index_heads(in, heads, x.heads);
  x.dim = in.number(config.at("sparse_index_dim"), limits::kWidth);
  x.top_k = in.number(config.at("sparse_topk_blocks"), limits::kWidth);
  x.block = in.number(config.at("sparse_block_size"), limits::kWidth);
  if (const auto at = config.find("sparse_init_block")) x.init_blocks = in.number(*at, limits::kWidth, 0);
  if (const auto at = config.find("sparse_local_block")) {
    x.local_blocks = in.number(*at, limits::kWidth, 0);
    refuse_no_local_block(*at);
  }
  if (const auto at = config.find("sparse_score_type")) at->one_of({"max"});
  return x;
}

/// Names of the same number, transformers' and MiniMax's; the file may have both.
void check_flat_index(Import& in, const Reader& config) {
  constexpr std::pair<const char*, const char*> kNames[] = {{"index_n_heads", "sparse_num_index_heads"},
                                                            {"index_head_dim", "sparse_index_dim"},
                                                            {"index_topk_blocks", "sparse_topk_blocks"},
                                                            {"index_block_size", "sparse_block_size"},
                                                            {"index_local_blocks", "sparse_local_block"}};
  for (const auto& [flat, own] : kNames) {
    const auto at = in.find(flat), inside = config.find(own);
    if (at && inside && !inside->is_null() &&
        at->integer(0, limits::kWidth) != inside->integer(0, limits::kWidth))
      at->fault(fmt::format("{} {} contradicts {} {}", flat, at->text(), inside->path(), inside->text()));
  }
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

/// Layers that choose blocks, where the file says that there are any.
void read_sparse(Import& in) {
  const auto config = in.find("sparse_attention_config");
  bool used = config.has_value();
  if (config) {
    in.only(*config, {"use_sparse_attention", "sparse_attention_freq", "sparse_disable_index_value",
                      "sparse_num_index_heads", "sparse_index_dim", "sparse_topk_blocks", "sparse_block_size",
                      "sparse_init_block", "sparse_local_block", "sparse_score_type"});
    const auto flag = config->find("use_sparse_attention");
    used = !flag || flag->is_null() || flag->boolean();
  }
  const std::vector<bool> sparse = sparse_layers(in, config, used);
  const SparseIndex flat = read_flat_index(in);
  if (std::ranges::find(sparse, true) == sparse.end()) {
    if (!config) in.note("neither sparse_attention_config nor layer_types: all layers have full attention");
    return;
  }
  if (config) {
    refuse_index_values(in, *config, sparse);
    check_flat_index(in, *config);
  }
  const SparseIndex index = config && used ? read_blocks(in, *config) : flat;
  for (int i = 0; i < in.layers; ++i) {
    in.mixers.push_back(in.attention);
    if (sparse[i]) in.mixers.back().index = index;
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
  const int shared = in.find_number("n_shared_experts", limits::kExperts, 0).value_or(1);
  in.find_number("shared_intermediate_size", limits::kWidth, 0);
  if (shared > 0) read_shared(in, "shared_intermediate_size", shared);
  in.experts.router_bias = in.flag("use_routing_bias", true);
  in.m.qk_norm = in.flag("use_qk_norm", true);
  const auto norm = in.find("qk_norm_type");
  const bool whole = norm && norm->one_of({"per_layer", "per_head"}) == 0;
  in.m.qk_norm_whole = in.m.qk_norm && whole;
  if (in.flag("attention_output_gate")) in.attention.gate = OutputGate::full;
  read_sparse(in);
  note_mtp_modules(in);
  in.ignore({"swiglu_alpha", "swiglu_limit", "use_gemma_norm", "rotary_dim", "partial_rotary_factor"});
  in.m.tied_embeddings = in.tied();
}

}  // namespace shardline::hf
