// Families whose layers choose what they see by an index, or see rows of several tokens. Fields and defaults:
// transformers models/{deepseek_v32,glm_moe_dsa,deepseek_v4}/configuration_*.py. models/README.md, "Hugging
// Face's config.json".
#include <fmt/format.h>

#include <utility>

#include "models/model/hf_import.hpp"

namespace shardline::hf {
namespace {

/// qk_head_dim is the sum of both parts, as transformers sets it whatever the file says
/// (configuration_glm_moe_dsa.py at 008e57439125).
void read_rope(Import& in) {
  in.ignore({"indexer_rope_interleave", "rope_interleave", "head_dim"});
  const auto width = in.find("qk_head_dim");
  if (!width) return;
  in.rules.emplace_back([&in, at = *width, given = width->integer(1, limits::kWidth)] {
    const Attention& a = in.attention;
    if (given == a.nope_dim + a.rope_dim) return;
    at.fault(fmt::format("qk_head_dim {} contradicts qk_nope_head_dim {} and qk_rope_head_dim {}", given,
                         a.nope_dim, a.rope_dim),
             {fmt::format("expected their sum, {}", a.nope_dim + a.rope_dim)});
  });
}

// A part of an indexer's keys is turned as those of the heads are, of the same width.
SparseIndex read_index(Import& in, int rope_dim) {
  SparseIndex x;
  x.heads = in.need_number("index_n_heads", limits::kHeads);
  x.dim = in.need_number("index_head_dim", limits::kWidth);
  if (const auto at = in.find("index_head_dim"); at && x.dim < rope_dim)
    in.rules.emplace_back([at = *at, dim = x.dim, rope_dim] {
      at.fault(fmt::format("index_head_dim {} is narrower than qk_rope_head_dim {}, which is a part of it",
                           dim, rope_dim));
    });
  x.top_k = in.need_number("index_topk", limits::kWidth);
  return x;
}

/// Beside indexer_types a frequency or a pattern says the same, or the file is none of any model.
void check_choices(Import& in, const std::vector<bool>& shared, int every,
                   const std::function<bool(int)>& by_step) {
  const auto pattern = in.find("index_topk_pattern");
  auto frequency = in.find("index_topk_freq");
  // A number out of range was said to be so, and contradicts nothing.
  if (frequency && frequency->text() != std::to_string(every)) frequency.reset();
  const std::string text = pattern ? json_name(*pattern) : "";
  for (int i = 0; i < in.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (pattern && (at >= text.size() || (text[at] == 'S') != shared[at]))
      return pattern->fault(fmt::format("index_topk_pattern contradicts indexer_types[{}]", i));
    if (frequency && by_step(i) != shared[at])
      return frequency->fault(fmt::format(
          "index_topk_freq and index_skip_topk_offset: this contradicts indexer_types[{}], which is {}", i,
          shared[at] ? "shared" : "full"));
  }
}

/// A pattern beside a frequency says the same.
void check_pattern(Import& in, const std::string& pattern, int every,
                   const std::function<bool(int)>& by_step) {
  const Reader frequency = in.root.at("index_topk_freq");
  if (frequency.text() != std::to_string(every)) return;  // out of range, which was said
  for (int i = 0; i < in.layers; ++i) {
    const bool shared = pattern[static_cast<std::size_t>(i)] == 'S';
    if (by_step(i) == shared) continue;
    return frequency.fault(fmt::format(
        "index_topk_freq {} and index_skip_topk_offset contradict index_topk_pattern, whose letter "
        "{} is {}",
        every, i, shared ? 'S' : 'F'));
  }
}

/// Which layers take an earlier one's choice: indexer_types, else index_topk_pattern of F and S, else every
/// layer but each index_topk_freq-th one from index_skip_topk_offset on (configuration_glm_moe_dsa.py).
std::vector<bool> shared_choices(Import& in) {
  std::vector<bool> shared;
  const int every = in.find_number("index_topk_freq", limits::kLayers).value_or(1);
  const auto skip = in.find("index_skip_topk_offset");
  const int offset = skip ? in.number(*skip, in.layers, 0) : 2;
  const auto by_step = [&](int layer) { return std::max(layer - offset + 1, 0) % every != 0; };
  const auto pattern = in.find("index_topk_pattern");
  if (const auto types = in.find_names("indexer_types", {"full", "shared"})) {
    for (const int type : *types) shared.push_back(type == 1);
    check_choices(in, shared, every, by_step);
    return shared;
  }
  if (pattern) {
    const std::string text = json_name(*pattern);
    if (static_cast<int>(text.size()) != in.layers || text.find_first_not_of("FS") != std::string::npos)
      pattern->fault(fmt::format("index_topk_pattern: expected {} letters, F or S", in.layers));
    else if (in.find("index_topk_freq"))
      check_pattern(in, text, every, by_step);
    for (int i = 0; i < in.layers; ++i)
      shared.push_back(static_cast<std::size_t>(i) < text.size() && text[i] == 'S');
    return shared;
  }
  for (int i = 0; i < in.layers; ++i) shared.push_back(by_step(i) && !in.root.has("indexer_types"));
  if (!shared.empty() && shared.front() && skip)
    skip->fault(fmt::format("index_skip_topk_offset {}: of index_topk_freq {} the first layer would take a "
                            "choice, and no layer before it makes one",
                            offset, every),
                {fmt::format("expected 1 to {}", in.layers)});
  return shared;
}

/// The ratio of each layer: compress_ratios, whose entry behind the layers is of multi-token prediction, or
/// layer_types with compress_rates.
std::vector<int> compress_ratios(Import& in) {
  int of_type[] = {0, 4, 128};
  if (const auto rates = in.find("compress_rates")) {
    const char* names[] = {"", "compressed_sparse_attention", "heavily_compressed_attention"};
    in.only(*rates, {names[1], names[2]});
    const bool listed = in.find("compress_ratios").has_value();
    for (const int i : {1, 2}) {
      const auto at = rates->find(names[i]);
      const int rate = at ? in.number(*at, limits::kWidth) : of_type[i];
      if (rate != of_type[i] && listed)
        at->fault(fmt::format("{} {} contradicts compress_ratios, whose layers of that kind have {}",
                              at->path(), rate, of_type[i]),
                  {fmt::format("expected {}", of_type[i])});
      of_type[i] = rate;
    }
  }
  std::vector<int> ratios;
  if (const auto types = in.find_names("layer_types", {"sliding_attention", "compressed_sparse_attention",
                                                       "heavily_compressed_attention"}))
    for (const int type : *types) ratios.push_back(of_type[type]);
  const auto list = in.find("compress_ratios");
  if (!list) {
    // Missing, or null where a list is needed: without compression all layers would see a short window alone.
    if (ratios.empty() && !in.find("layer_types")) {
      if (const Reader at = in.need("compress_ratios"); in.root.has("compress_ratios"))
        at.fault("compress_ratios: expected 0, 4 or 128 for each layer, found null");
    }
    ratios.resize(in.layers, 0);
    return ratios;
  }
  const auto given = in.numbers_at(*list, 0, limits::kWidth);
  if (!given) return std::vector<int>(in.layers, 0);
  const std::vector<Reader> items = list->items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::int64_t ratio = items[i].integer(0, limits::kWidth);
    if (ratio != 0 && ratio != 4 && ratio != 128)
      items[i].fault(fmt::format("{}: expected 0, 4 or 128, found {}", items[i].path(), ratio));
    // Its modules have a window alone ([P29] of planner/README.md).
    if (std::cmp_greater_equal(i, in.layers) && (ratio == 4 || ratio == 128))
      items[i].fault(
          fmt::format("{}: compressed attention of multi-token prediction is not modelled: "
                      "expected 0, found {}",
                      items[i].path(), ratio));
    if (i < ratios.size() && ratios[i] != ratio)
      items[i].fault(fmt::format("{} {} contradicts layer_types", items[i].path(), ratio));
  }
  return *given;
}

/// The first num_hash_layers layers, or those that mlp_layer_types calls hash_moe.
std::vector<bool> hashed_layers(Import& in) {
  const auto count = in.find("num_hash_layers");
  const int first = count ? in.number(*count, in.layers, 0) : 3;
  const auto types = in.find_names("mlp_layer_types", {"moe", "hash_moe"});
  std::vector<bool> hashed;
  for (int i = 0; i < in.layers; ++i) hashed.push_back(types ? (*types)[i] == 1 : i < first);
  if (types && count) {
    for (int i = 0; i < in.layers; ++i) {
      if (hashed[i] == (i < first)) continue;
      in.root.at("mlp_layer_types")
          .items()[i]
          .fault(fmt::format("mlp_layer_types[{}] contradicts num_hash_layers {}", i, first));
      break;
    }
  }
  return hashed;
}

Attention v4_window(Import& in) {
  Attention a;
  a.kind = AttentionKind::compressed;
  a.q_heads = in.attention.q_heads;
  a.kv_heads = 1;
  if (const auto kv = in.find("num_key_value_heads");
      kv && sound_number(*kv, 1, limits::kHeads).value_or(1) != 1)
    kv->fault(
        fmt::format("num_key_value_heads {}: compressed attention has one key for all heads", kv->text()),
        {"expected 1"});
  a.head_dim = in.find_number("head_dim", limits::kWidth).value_or(512);
  a.rope_dim = in.find_number("qk_rope_head_dim", limits::kWidth).value_or(64);
  a.q_lora_rank = in.need_number("q_lora_rank", limits::kWidth);
  const auto window = in.find("sliding_window");
  if (!window && in.root.has("sliding_window"))
    in.root.at("sliding_window").fault("sliding_window: expected tokens, found null");
  a.reach = {ReachKind::window, window ? window->integer(1, limits::kContext) : 128};
  a.sinks = true;
  a.compression = {0, in.need_number("o_groups", limits::kHeads),
                   in.need_number("o_lora_rank", limits::kWidth)};
  return a;
}

}  // namespace

void read_deepseek_v32(Import& in) {
  read_deepseek(in);
  in.attention.index = read_index(in, in.attention.rope_dim);
  in.find_names("layer_types", {"deepseek_sparse_attention"});
  read_rope(in);
}

void read_glm_dsa(Import& in) {
  read_deepseek_v32(in);
  in.m.ffn_bias = in.flag("mlp_bias");
  const std::vector<bool> shared = shared_choices(in);
  in.draft_attention = in.attention;
  for (int i = 0; i < in.layers; ++i) {
    in.mixers.push_back(in.attention);
    in.mixers.back().index->shared = shared[i];
  }
  in.one_choice = in.flag("index_share_for_mtp_iteration") && in.drafts > 0;
}

constexpr std::int64_t kMostIterations = 100'000;
constexpr double kMostTheta = 1e15;  // a base of angles

void read_deepseek_v4(Import& in) {
  read_size(in);
  read_context(in);
  const Attention window = v4_window(in);
  const SparseIndex index = read_index(in, window.rope_dim);
  in.draft_attention = window;
  for (const int ratio : compress_ratios(in)) {
    Attention a = window;
    a.compression->ratio = ratio;
    if (ratio == 4) a.index = index;
    in.mixers.push_back(a);
  }
  read_experts(in, {.experts = "n_routed_experts", .older = "num_local_experts"});
  in.experts.shared_experts = in.find_number("n_shared_experts", limits::kExperts, 0).value_or(1);
  read_deepseek_routing(in);
  in.draft_ffn = in.experts;
  for (const bool hashed : hashed_layers(in)) {
    in.networks.push_back(in.experts);
    in.networks.back().hashed = hashed;
    if (hashed) in.networks.back().router_bias = false;
  }
  in.m.residual.streams = in.find_number("hc_mult", 1024).value_or(4);
  in.m.tied_embeddings = in.tied();
  in.refuse("attention_bias", "biases of compressed attention are not modelled", Nothing::flag);
  in.refuse("mlp_bias", "biases of DeepSeek-V4's experts are not modelled", Nothing::flag);
  in.find_number("intermediate_size", limits::kWidth);  // another name of moe_intermediate_size
  in.find_number("hc_sinkhorn_iters", kMostIterations, 0);
  if (const auto theta = in.find("compress_rope_theta")) theta->number(0, kMostTheta);
  // What vLLM knows (models/deepseek_v4/quant_config.py, _DEEPSEEK_V4_EXPERT_DTYPES); where it says fp4,
  // hf_config.cpp takes the experts out of the blocks of FP8.
  if (const auto type = in.find("expert_dtype")) type->one_of({"fp4", "fp8"});
  in.ignore({"hc_eps", "swiglu_limit", "partial_rotary_factor"});
}

}  // namespace shardline::hf
