// Internal to hf_*.cpp: one import, its fields, and the families of models.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/model/json_name.hpp"
#include "models/model/model.hpp"
#include "sim/base/reader.hpp"

namespace shardline::hf {

/// What a key that is refused where it is set holds where it is not, beside null: false, 0, "", [] or {}. A
/// value of another type is a fault, too.
enum class Nothing : std::uint8_t { flag, number, text, list, map };

/// One import: where the language model is described (the whole text, or its text_config), the model in the
/// making, and which keys were understood.
struct Import {
  Reader root;
  Reader file;  // of which root is the whole or the text_config
  Model m;
  bool wrapped = false;     // root is a text_config
  bool forced = false;      // read as a family that the file does not name
  int drafts = 0;           // multi-token-prediction layers, of which per-layer lists may have entries
  bool one_choice = false;  // DraftModules::one_choice

  int layers = 0;
  Attention attention = {};             // of all layers, or of those that are not local
  std::optional<Attention> local = {};  // of those that are
  FeedForward dense = {}, experts = {};
  std::vector<bool> is_local = {}, has_experts = {};  // of each layer; empty: none
  // Of each layer, in place of what is above, where a family has more kinds than two.
  std::vector<Attention> mixers = {};
  std::vector<FeedForward> networks = {};
  std::optional<Attention> draft_attention = {};  // else that of the last layer
  std::optional<FeedForward> draft_ffn = {};

  std::set<std::string, std::less<>> understood = {};  // keys whose values are read
  std::set<std::string, std::less<>> ignored = {};     // and those that may be anything
  std::vector<std::string> other = {};  // keys inside of values that nothing reads, "linear_attn_config.x"
  std::vector<std::function<void()>> rules = {};  // between fields; run when every field is sound

  /// The value of `key` unless it is missing or null.
  std::optional<Reader> find(std::string_view key) {
    understood.emplace(key);
    auto at = root.find(key);
    if (at && at->is_null()) at.reset();
    return at;
  }
  Reader need(std::string_view key) {
    understood.emplace(key);
    return root.at(key);
  }
  int number(const Reader& at, std::int64_t highest, std::int64_t lowest = 1) {
    return static_cast<int>(at.integer(lowest, highest));
  }
  int need_number(std::string_view key, std::int64_t highest, std::int64_t lowest = 1) {
    return number(need(key), highest, lowest);
  }
  std::optional<int> find_number(std::string_view key, std::int64_t highest, std::int64_t lowest = 1) {
    const auto at = find(key);
    return at ? std::optional(number(*at, highest, lowest)) : std::nullopt;
  }
  /// The same field under its current and its older name.
  int need_number(std::string_view key, std::string_view older, std::int64_t highest);
  /// One value per layer: the place in `names` of each text of a list, or each 0 or 1 of one. Entries behind
  /// those of all layers are of multi-token prediction, as many as there are such layers, and left out.
  /// Nothing where `key` is missing or null, or where an entry is wrong: what else the file says of layers is
  /// not held against an entry that had to be made up.
  std::optional<std::vector<int>> find_names(std::string_view key, const std::vector<std::string>& names);
  std::optional<std::vector<int>> find_switches(std::string_view key);
  /// The same of a list that stands elsewhere than in root.
  std::optional<std::vector<int>> names_at(const Reader& list, const std::vector<std::string>& names);
  std::optional<std::vector<int>> switches_at(const Reader& list);
  std::optional<std::vector<int>> numbers_at(const Reader& list, std::int64_t lowest, std::int64_t highest);
  /// As find_switches; a fault if `key` is missing or null.
  std::vector<bool> need_switches(std::string_view key);
  void note(std::string text) { m.notes.push_back(std::move(text)); }
  /// `map` is read by the keys of `known` alone: any other is noted with those of the file itself.
  void only(const Reader& map, std::initializer_list<std::string_view> known);
  /// Whether embedding and head are one table: a wrapper may say so for its language model.
  bool tied(bool when_missing = false) {
    const auto outer = wrapped ? file.find("tie_word_embeddings") : std::nullopt;
    const bool otherwise = outer && !outer->is_null() ? outer->boolean() : when_missing;
    return flag("tie_word_embeddings", otherwise);
  }
  /// Keys that change neither a shape nor a count in this family.
  void ignore(std::initializer_list<std::string_view> keys) { ignored.insert(keys.begin(), keys.end()); }
  bool knows(std::string_view key) const { return understood.contains(key) || ignored.contains(key); }
  bool flag(std::string_view key, bool when_missing = false) {
    const auto at = find(key);
    return at ? at->boolean() : when_missing;
  }
  /// A fault if `key` is set to anything but null and the nothing of its type.
  void refuse(std::string_view key, std::string_view why, Nothing nothing);
};

/// num_hidden_layers, hidden_size, vocab_size and num_attention_heads.
void read_size(Import& in);
void read_context(Import& in);
/// num_key_value_heads (all heads if missing) and head_dim (hidden / heads if missing).
void read_gqa(Import& in);
void divide_hidden_by_heads(Import& in);
/// intermediate_size, which models with experts may give without having a dense layer.
void read_dense_inner(Import& in);
/// Multi-token-prediction layers, under each family's name for them. A fault where two of these differ.
int drafts_of(const Reader& root);
/// A model without experts.
void read_dense(Import& in);
/// Latent attention of all layers.
void read_mla(Import& in);
/// num_experts, num_experts_per_tok and moe_intermediate_size under the first of the given names.
struct ExpertKeys {
  const char* experts = "num_experts";
  const char* older = "n_routed_experts";  // another name of the same
  const char* per_token = "num_experts_per_tok";
  const char* older_per_token = "num_experts_per_token";
  const char* inner = "moe_intermediate_size";
};
void read_experts(Import& in, const ExpertKeys& keys);
/// The shared experts' width under `key`, where it is given and not 0; otherwise `count` of the routed ones'
/// width.
void read_shared(Import& in, const char* key, int count);
/// decoder_sparse_step and mlp_only_layers.
void read_sparse_steps(Import& in);
/// first_k_dense_replace, and moe_layer_freq: every so many layers have experts, or a 0 or 1 for each; or
/// mlp_layer_types, dense or sparse.
void read_dense_first(Import& in);
/// A fault unless first_k_dense_replace, where it is given, is the number of dense layers that in.has_experts
/// begins with, which `list` says ("moe_layer_freq"): engines that read lists read the list alone.
void check_dense_first(Import& in, std::string_view list);
/// The number that `item` is, from `lowest` to `highest`; nothing where it is none, which is a fault.
std::optional<int> sound_number(const Reader& item, std::int64_t lowest, std::int64_t highest);
/// topk_method's correction bias; notes on limits of routing and on multi-token prediction.
void read_deepseek_routing(Import& in);
/// The layers of `chosen` see as `reach` says and have the other layers' widths.
void set_local(Import& in, std::vector<bool> chosen, Reach reach);
/// The layers that `layer_types` calls sliding_attention, or those of `otherwise` without it.
std::vector<bool> sliding_layers(Import& in, const std::function<bool(int)>& otherwise);

/// Where a language model is described: in the file itself, in its text_config, or in either.
enum class Text : std::uint8_t { here, inside, either };

/// One model_type, the architectures that go with it, and its reader.
struct Family {
  const char* model_type;
  std::array<std::string_view, 2> architectures;  // empty: none
  void (*read)(Import&);
  Text text = Text::here;
  void (*vision)(Import&, const Reader& vision) = nullptr;  // counts the tower of a vision_config
};

std::span<const Family> families();

/// Whether `key` changes neither a shape nor a count in any family.
bool neutral(std::string_view key);
/// Whether a wrapper's `key` is of images and sound alone, or read elsewhere.
bool of_media(std::string_view key);

/// Keys whose values are objects wherever they stand, read or not.
std::span<const std::string_view> objects();

/// Refused when set to anything but null and the nothing of its type, unless the family reads it.
struct Refusal {
  const char* key;
  Nothing nothing;
  const char* why;
};
std::span<const Refusal> refusals();

// hf_local.cpp: windows and chunks.
void read_gpt_oss(Import& in);
void read_gemma3(Import& in);
void read_gemma4(Import& in);
void read_llama4(Import& in);
void read_mimo_v2(Import& in);
void read_step(Import& in);

// hf_families.cpp and hf_dense.cpp: attention alike in all layers.
void read_deepseek(Import& in);
void read_qwen3(Import& in);
void read_qwen3_moe(Import& in);
void read_qwen3_attention(Import& in);
void read_switched_window(Import& in, bool all_layers);
void read_window_of_all(Import& in);
void read_qwen2_moe(Import& in);
void read_mimo(Import& in);
void read_glm4_moe(Import& in);
void read_seed_oss(Import& in);
void read_phi3(Import& in);
void read_ernie(Import& in);
void read_ernie_moe(Import& in);
void read_nas(Import& in);

// hf_sparse.cpp: indices and compression.
void read_deepseek_v32(Import& in);
void read_glm_dsa(Import& in);
void read_deepseek_v4(Import& in);

// hf_minimax.cpp: blocks chosen by an index.
void read_minimax_m2(Import& in);
void read_minimax_m3(Import& in);

// hf_hybrid.cpp: recurrences.
void read_qwen3_next(Import& in);
void read_qwen3_5(Import& in);
void read_kimi_linear(Import& in);
void read_nemotron_h(Import& in);

// hf_vision.cpp: parameters of towers.
void count_siglip(Import& in, const Reader& vision);
void count_gemma4_vision(Import& in, const Reader& vision);
void count_llama4_vision(Import& in, const Reader& vision);
void count_qwen_vision(Import& in, const Reader& vision);
void count_moonvit(Import& in, const Reader& vision);

}  // namespace shardline::hf
