// Internal to hf_*.cpp: one import, its fields, and the families of models.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/model/model.hpp"
#include "sim/base/reader.hpp"

namespace shardline::hf {

/// One import: where the language model is described (the whole text, or its text_config), the model in the
/// making, and which keys were understood.
struct Import {
  Reader root;
  Model m;
  bool wrapped = false;  // root is a text_config

  int layers = 0;
  Attention attention = {};             // of all layers, or of those that are not local
  std::optional<Attention> local = {};  // of those that are
  FeedForward dense = {}, experts = {};
  std::vector<bool> is_local = {}, has_experts = {};  // of each layer; empty: none

  std::set<std::string, std::less<>> understood = {};
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
  /// One value per layer: the place in `names` of each text of a list, or each 0 or 1 of one. More entries
  /// than layers are of multi-token prediction, and left out. Nothing where `key` is missing or null.
  std::optional<std::vector<int>> find_names(std::string_view key, const std::vector<std::string>& names);
  std::optional<std::vector<int>> find_switches(std::string_view key);
  /// As find_switches; a fault if `key` is missing or null.
  std::vector<bool> need_switches(std::string_view key);
  void note(std::string text) { m.notes.push_back(std::move(text)); }
  bool flag(std::string_view key, bool when_missing = false) {
    const auto at = find(key);
    return at ? at->boolean() : when_missing;
  }
  /// A fault if `key` is set to anything but null, false, 0 or an empty list.
  void refuse(std::string_view key, std::string_view why);
};

/// num_hidden_layers, hidden_size, vocab_size and num_attention_heads.
void read_size(Import& in);
void read_context(Import& in);
/// num_key_value_heads (all heads if missing) and head_dim (hidden / heads if missing).
void read_gqa(Import& in);
void divide_hidden_by_heads(Import& in);
/// intermediate_size, which models with experts may give without having a dense layer.
void read_dense_inner(Import& in);
/// A model without experts.
void read_dense(Import& in);
/// topk_method's correction bias; notes on limits of routing and on multi-token prediction.
void read_deepseek_routing(Import& in);
/// The layers of `chosen` see as `reach` says and have the other layers' widths.
void set_local(Import& in, std::vector<bool> chosen, Reach reach);
/// The layers that `layer_types` calls sliding_attention, or those of `otherwise` without it.
std::vector<bool> sliding_layers(Import& in, const std::function<bool(int)>& otherwise);

/// One model_type, the architectures that go with it, and its reader.
struct Family {
  const char* model_type;
  std::array<std::string_view, 2> architectures;  // empty: none
  void (*read)(Import&);
  const char* inner_type = "";  // model_type of its text_config, where the model is described there
};

std::span<const Family> families();

// Families with windows or chunks: hf_local.cpp.
void read_gpt_oss(Import& in);
void read_gemma3(Import& in);
void read_gemma4(Import& in);
void read_llama4(Import& in);
void read_mimo_v2(Import& in);

}  // namespace shardline::hf
