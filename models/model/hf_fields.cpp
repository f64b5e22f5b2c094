// Fields that families of config.json share.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "models/model/hf_import.hpp"

namespace shardline::hf {
namespace {

bool is_set(const Reader& at, Nothing nothing) {
  switch (nothing) {
    case Nothing::flag:
      return at.boolean();
    case Nothing::number:
      return at.integer(0, std::numeric_limits<std::int64_t>::max()) > 0;
    case Nothing::text:
      return !json_name(at).empty();
    case Nothing::list:
      return !at.items().empty();
    case Nothing::map:
      return !at.keys().empty();
  }
  return false;
}

template <class Read>
std::optional<std::vector<int>> per_layer(const Import& in, const Reader& list, Read&& read) {
  const std::vector<Reader> items = list.items();
  const int given = static_cast<int>(items.size());
  if (!list.is_sequence()) return std::nullopt;
  // Modules that draft are in the list, or none of them is: of some alone the others' entries are not known.
  if (given != in.layers && given != in.layers + in.drafts) {
    list.fault(fmt::format("{}: {} entries for {} layers{}", list.path(), given, in.layers,
                           in.drafts > 0 ? fmt::format(" and {} of multi-token prediction", in.drafts) : ""),
               {fmt::format("expected {}{}, one of each layer", in.layers,
                            in.drafts > 0 ? fmt::format(" or {}", in.layers + in.drafts) : "")});
    return std::nullopt;
  }
  std::vector<int> values;
  bool sound = true;
  for (const Reader& item : items) {
    const std::optional<int> value = read(item);
    sound = sound && value;
    values.push_back(value.value_or(0));
  }
  values.resize(static_cast<std::size_t>(in.layers));
  return sound ? std::optional(values) : std::nullopt;
}

}  // namespace

int Import::need_number(std::string_view key, std::string_view older, std::int64_t highest) {
  const auto now = find_number(key, highest);
  const auto old = find_number(older, highest);
  if (now && old && *now != *old) {
    root.at(older).fault(fmt::format("{} {} contradicts {} {}", older, *old, key, *now));
  }
  return now ? *now : old ? *old : need_number(key, highest);
}

void Import::refuse(std::string_view key, std::string_view why, Nothing nothing) {
  const auto given = root.find(key);
  // Read as another family it is one more key that is not understood.
  if (forced && given && !given->is_null() && is_set(*given, nothing)) return;
  const auto at = find(key);
  if (at && is_set(*at, nothing)) at->fault(fmt::format("{}: {}", at->path(), why));
}

std::optional<std::vector<int>> Import::names_at(const Reader& list, const std::vector<std::string>& names) {
  return per_layer(*this, list, [&](const Reader& at) -> std::optional<int> {
    const std::size_t place = at.one_of(names);  // 0 where it is none of them
    if (!at.is_scalar() || at.text() != names[place]) return std::nullopt;
    return static_cast<int>(place);
  });
}

std::optional<std::vector<int>> Import::switches_at(const Reader& list) { return numbers_at(list, 0, 1); }

std::optional<std::vector<int>> Import::numbers_at(const Reader& list, std::int64_t lowest,
                                                   std::int64_t highest) {
  return per_layer(*this, list, [&](const Reader& at) { return sound_number(at, lowest, highest); });
}

std::optional<std::vector<int>> Import::find_names(std::string_view key,
                                                   const std::vector<std::string>& names) {
  const auto at = find(key);
  return at ? names_at(*at, names) : std::nullopt;
}

std::optional<std::vector<int>> Import::find_switches(std::string_view key) {
  const auto at = find(key);
  return at ? switches_at(*at) : std::nullopt;
}

std::vector<bool> Import::need_switches(std::string_view key) {
  std::vector<bool> switches;
  if (const auto values = find_switches(key)) {
    for (const int value : *values) switches.push_back(value == 1);
  } else if (const Reader at = need(key); at.is_null()) {
    at.items();  // a fault: expected a sequence
  }
  return switches;
}

void Import::only(const Reader& map, std::initializer_list<std::string_view> known) {
  map.allow_other_keys();
  for (const std::string& key : map.keys()) {
    if (std::ranges::find(known, std::string_view(key)) == known.end())
      other.push_back(fmt::format("{}.{}", map.path(), key));
  }
}

// A getter's answer to a wrong value is a harmless one, which is not what the text says.
std::optional<int> sound_number(const Reader& item, std::int64_t lowest, std::int64_t highest) {
  const std::int64_t number = item.integer(lowest, highest);
  if (!item.is_scalar() || item.text() != std::to_string(number)) return std::nullopt;
  return static_cast<int>(number);
}

void read_size(Import& in) {
  Model& m = in.m;
  in.layers = in.need_number("num_hidden_layers", "n_layer", limits::kLayers);
  m.hidden = in.need_number("hidden_size", limits::kWidth);
  m.vocab = in.need_number("vocab_size", limits::kVocab);
  in.attention.q_heads = in.need_number("num_attention_heads", "n_head", limits::kHeads);
}

void read_context(Import& in) {
  in.m.max_context = in.need("max_position_embeddings").integer(1, limits::kContext);
}

void divide_hidden_by_heads(Import& in) {
  // At once, as layers may copy it; a number of heads out of range is said to be so by itself.
  in.attention.head_dim = in.m.hidden / std::max(1, in.attention.q_heads);
  in.rules.emplace_back([&in] {
    const Attention& a = in.attention;
    if (in.m.hidden % a.q_heads == 0) return;
    in.root.at("hidden_size")
        .fault(fmt::format("hidden_size {} does not divide into {} heads, and head_dim is not given",
                           in.m.hidden, a.q_heads));
  });
}

void read_gqa(Import& in) {
  Attention& a = in.attention;
  a.kv_heads = in.find_number("num_key_value_heads", limits::kHeads).value_or(a.q_heads);
  if (const auto dim = in.find_number("head_dim", limits::kWidth)) {
    a.head_dim = *dim;
  } else {
    divide_hidden_by_heads(in);
  }
}

void read_dense_inner(Import& in) {
  if (std::ranges::find(in.has_experts, false) != in.has_experts.end()) {
    in.dense.inner = in.need_number("intermediate_size", limits::kWidth);
  } else {
    in.find_number("intermediate_size", limits::kWidth, 0);  // of no layer
  }
}

void read_dense(Import& in) {
  for (const char* key : {"n_routed_experts", "num_experts", "num_local_experts"}) {
    in.refuse(key, "experts contradict this model_type, which is dense", Nothing::number);
  }
  in.dense.inner = in.need_number("intermediate_size", limits::kWidth);
  in.m.tied_embeddings = in.tied();
}

void read_experts(Import& in, const ExpertKeys& keys) {
  in.experts.experts = in.need_number(keys.experts, keys.older, limits::kExperts);
  in.experts.experts_per_token = in.need_number(keys.per_token, keys.older_per_token, limits::kExperts);
  in.experts.inner = in.need_number(keys.inner, limits::kWidth);
}

void read_shared(Import& in, const char* key, int count) {
  const int width = in.find_number(key, limits::kWidth, 0).value_or(0);
  set_shared(in.experts, count, width > 0 ? width : in.experts.inner);
}

void read_sparse_steps(Import& in) {
  const int step = in.find_number("decoder_sparse_step", limits::kLayers).value_or(1);
  for (int i = 0; i < in.layers; ++i) in.has_experts.push_back((i + 1) % step == 0);
  const auto dense = in.find("mlp_only_layers");
  if (!dense) return;
  for (const Reader& item : dense->items()) {
    const auto layer = item.integer(0, in.layers - 1);
    if (layer < in.layers) in.has_experts[layer] = false;
  }
}

void check_dense_first(Import& in, std::string_view list) {
  const auto first = in.find("first_k_dense_replace");
  if (!first) return;
  const int dense = in.number(*first, limits::kLayers, 0);
  const auto experts = std::ranges::find(in.has_experts, true);
  const int listed = static_cast<int>(experts - in.has_experts.begin());
  if (dense == listed) return;
  first->fault(fmt::format("first_k_dense_replace {} contradicts {}: layer {} {}", dense, list,
                           std::min(dense, listed), dense > listed ? "has experts" : "is dense"),
               {fmt::format("expected {}, the dense layers that {} begins with", listed, list)});
}

// A list says it of each layer, and is all that those read who read lists (vllm-project/vllm,
// models/minimax_m3/nvidia/model.py at 902158949803; sglang, srt/models/minimax_m3.py); a number counts
// behind the first dense ones (vLLM, models/deepseek_v2.py, DeepseekV2DecoderLayer).
void read_dense_first(Import& in) {
  const auto first = in.find("first_k_dense_replace");
  const int dense = first ? in.number(*first, limits::kLayers, 0) : 0;
  const auto frequency = in.find("moe_layer_freq");
  const bool list = frequency && frequency->is_sequence();
  const auto switches = list ? in.switches_at(*frequency) : std::nullopt;
  const int every = frequency && !list ? in.number(*frequency, limits::kLayers) : 1;
  for (int i = 0; i < in.layers; ++i)
    in.has_experts.push_back(switches ? (*switches)[i] == 1 : i >= dense && i % every == 0);
  if (switches) check_dense_first(in, "moe_layer_freq");
  const auto types = in.find_names("mlp_layer_types", {"dense", "sparse"});
  if (!types) return;
  for (int i = 0; i < in.layers; ++i) {
    const bool sparse = (*types)[i] == 1;
    if ((first || frequency) && in.has_experts[i] != sparse) {
      in.root.at("mlp_layer_types")
          .items()[i]
          .fault(fmt::format(
              "mlp_layer_types: layer {} is {}, but by first_k_dense_replace and moe_layer_freq it {}", i,
              sparse ? "sparse" : "dense", sparse ? "has no experts" : "has experts"));
      return;
    }
    in.has_experts[i] = sparse;
  }
}

void read_deepseek_routing(Import& in) {
  if (const auto method = in.find("topk_method")) {
    in.experts.router_bias = method->one_of({"greedy", "group_limited_greedy", "noaux_tc"}) == 2;
  } else {
    in.experts.router_bias = in.root.at("model_type").text() != "deepseek_v2";
  }
  const int groups = in.find_number("n_group", limits::kExperts).value_or(1);
  const int chosen = in.find_number("topk_group", limits::kExperts).value_or(groups);
  if (chosen < groups)
    in.note(fmt::format("not modelled: a token's experts lie in {} of {} groups", chosen, groups));
}

void set_local(Import& in, std::vector<bool> chosen, Reach reach) {
  in.is_local = std::move(chosen);
  // After the rules that find the widths of heads.
  in.rules.emplace_back([&in, reach] {
    in.local = in.attention;
    in.local->reach = reach;
  });
}

std::vector<bool> sliding_layers(Import& in, const std::function<bool(int)>& otherwise) {
  const auto types = in.find_names("layer_types", {"full_attention", "sliding_attention"});
  std::vector<bool> sliding;
  for (int i = 0; i < in.layers; ++i) sliding.push_back(types ? (*types)[i] == 1 : otherwise(i));
  return sliding;
}

int drafts_of(const Reader& root) {
  std::int64_t most = 0;
  std::string said;  // by the first of them
  for (const char* key : {"num_nextn_predict_layers", "mtp_num_hidden_layers"}) {
    const auto at = root.is_map() ? root.find(key) : std::nullopt;
    if (!at || at->is_null()) continue;
    const std::int64_t count = at->integer(0, 64);
    if (!said.empty() && count != most)
      at->fault(fmt::format("{} {} contradicts {}", at->path(), count, said),
                {"expected one number of multi-token-prediction layers, under either key"});
    said = fmt::format("{} {}", at->path(), count);
    most = std::max(most, count);
  }
  return static_cast<int>(most);
}

}  // namespace shardline::hf
