#include "models/model/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <regex>

#include "models/model/model.hpp"

namespace shardline {

namespace {

// '*' stands for any text.
bool glob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

// A name or part of one ("lm_head", "model.layers.3.mlp"), with '*', or "re:" and a regular expression that
// matches from the start. A module stands for all that it contains.
class Pattern {
 public:
  explicit Pattern(const Reader& at) : Pattern(at, at.text()) {}
  Pattern(const Reader& at, std::string text) : text_(std::move(text)) {
    if (!text_.starts_with("re:")) return;
    try {
      expression_.emplace(text_.substr(3));
    } catch (const std::regex_error&) {
      at.fault(fmt::format("\"{}\" is no regular expression", text_.substr(3)));
    }
  }

  bool matches(const std::string& name) const {
    if (text_.starts_with("re:"))
      return expression_ && std::regex_search(name, *expression_, std::regex_constants::match_continuous);
    const bool part = text_.find_first_of(".*") == std::string::npos;
    for (std::size_t begin = 0, end = 0; end < name.size(); begin = end + 1) {
      end = std::min(name.find('.', begin), name.size());
      if (part ? std::string_view(name).substr(begin, end - begin) == text_
               : glob(text_, std::string_view(name).substr(0, end)))
        return true;
    }
    return false;
  }

 private:
  std::string text_;
  std::optional<std::regex> expression_;
};

// The same matrix under the names that families give it, below "model." or "model.language_model.".
using Names = std::vector<std::string>;

struct Rules {
  std::optional<Dtype> all;                       // of linear layers that no rule names
  std::vector<Pattern> excluded;                  // stay as they are
  std::vector<std::pair<Pattern, Dtype>> listed;  // have a type of their own
  bool head = false;                              // the LM head is a linear layer like others
  bool only_routed = false;                       // no linear layer at all, but routed experts
  std::optional<Dtype> kv;

  Dtype of(const Names& names) const {
    const auto any = [&](const Pattern& p) {
      return std::any_of(names.begin(), names.end(), [&](const std::string& n) { return p.matches(n); });
    };
    for (const auto& [pattern, type] : listed) {
      if (any(pattern)) return type;
    }
    if (std::any_of(excluded.begin(), excluded.end(), any)) return Dtype::bf16;
    return all.value_or(Dtype::bf16);
  }
};

void exclude(const std::optional<Reader>& list, Rules& rules) {
  if (!list || list->is_null()) return;
  for (const Reader& item : list->items()) rules.excluded.emplace_back(item);
}

std::optional<Reader> set(const Reader& map, std::string_view key) {
  auto at = map.find(key);
  if (at && at->is_null()) at.reset();
  return at;
}

// Types as modelopt names its algorithms.
std::optional<Dtype> type_of_algorithm(const std::string& name) {
  if (name.find("NVFP4") != std::string::npos) return Dtype::fp4;
  if (name == "FP8_PB_WO" || name == "FP8_PB_REAL") return Dtype::fp8_block;
  if (name == "FP8" || name == "FP8_PER_CHANNEL_PER_TOKEN") return Dtype::fp8;
  return std::nullopt;
}

// Types as compressed-tensors describes weights: floats of 4 or 8 bits.
std::optional<Dtype> type_of_weights(const Reader& weights) {
  const auto bits = set(weights, "num_bits");
  const auto kind = set(weights, "type"), strategy = set(weights, "strategy");
  if (!bits || (kind && kind->text() != "float")) return std::nullopt;
  const std::int64_t n = bits->integer(1, 64);
  if (n == 4) return Dtype::fp4;
  if (n != 8) return std::nullopt;
  return strategy && strategy->text() == "block" ? Dtype::fp8_block : Dtype::fp8;
}

void read_kv(const Reader& r, Rules& rules) {
  if (const auto name = set(r, "kv_cache_quant_algo")) rules.kv = type_of_algorithm(name->text());
  const auto scheme = set(r, "kv_cache_scheme");
  if (!scheme) return;
  rules.kv = scheme->is_map() ? type_of_weights(*scheme) : type_of_algorithm(scheme->text());
}

// Groups of compressed-tensors, which modelopt writes into config.json too. False: a type that is not read.
bool read_groups(const Reader& groups, Rules& rules) {
  for (const std::string& name : groups.keys()) {
    const Reader group = groups.at(name);
    const auto weights = set(group, "weights");
    const std::optional<Dtype> type = weights ? type_of_weights(*weights) : std::nullopt;
    if (!type) return false;
    const auto targets = set(group, "targets");
    if (!targets) {
      rules.all = type;
      continue;
    }
    for (const Reader& target : targets->items()) {
      if (target.text() == "Linear") {
        rules.all = type;
      } else {
        rules.listed.emplace_back(Pattern(target), *type);
      }
    }
  }
  return true;
}

// modelopt's own description, of hf_quant_config.json or in config.json. False: an algorithm that is not
// read.
bool read_modelopt(const Reader& r, Rules& rules) {
  const std::string algorithm = r.at("quant_algo").text();
  rules.all = type_of_algorithm(algorithm);
  if (!rules.all && algorithm != "MIXED_PRECISION") return false;
  // Left out of every recipe, whether the file says so or not.
  exclude(set(r, "exclude_modules"), rules);
  exclude(set(r, "ignore"), rules);
  rules.head = !rules.excluded.empty();
  if (const auto layers = set(r, "quantized_layers")) {
    for (const std::string& name : layers->keys()) {
      const Reader layer = layers->at(name);
      const auto type = type_of_algorithm(layer.at("quant_algo").text());
      if (!type) return false;
      rules.listed.emplace_back(Pattern(layer, name), *type);
    }
  }
  return true;
}

// False: a method that is not read.
bool read_rules(const Reader& r, Rules& rules) {
  read_kv(r, rules);
  const auto method = set(r, "quant_method");
  const std::string name = method ? method->text() : "";
  if (set(r, "quant_algo")) return read_modelopt(r, rules);
  if (name == "fp8") {
    rules.all = set(r, "weight_block_size") ? Dtype::fp8_block : Dtype::fp8;
    exclude(set(r, "modules_to_not_convert"), rules);
    return true;
  }
  if (name == "mxfp4") {
    rules.all = Dtype::fp4;
    rules.only_routed = true;  // vLLM quantization/mxfp4.py: every linear layer is left as it is
    exclude(set(r, "modules_to_not_convert"), rules);
    return true;
  }
  if (const auto groups = set(r, "config_groups")) {
    exclude(set(r, "ignore"), rules);
    rules.head = true;
    return read_groups(*groups, rules);
  }
  return false;
}

void add_names(int layer, std::string_view matrix, Names& names) {
  for (const char* model : {"model", "model.language_model", "language_model.model"})
    names.push_back(fmt::format("{}.layers.{}.{}", model, layer, matrix));
}
/// Llama 4 calls a layer's mlp feed_forward.
Names names_of(int layer, std::string_view matrix) {
  Names names;
  add_names(layer, matrix, names);
  if (matrix.starts_with("mlp.")) add_names(layer, fmt::format("feed_forward.{}", matrix.substr(4)), names);
  return names;
}

// Counts the matrices of a class by type.
using Votes = std::map<Dtype, int>;

Dtype most(const Votes& votes, const char* what, std::vector<std::string>& notes) {
  Dtype best = Dtype::bf16;
  int count = 0;
  std::string text;
  for (const auto& [type, n] : votes) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, to_string(type));
    // Of equally many the wider one: what is counted then fits.
    if (n > count || (n == count && bytes_per_element(type) > bytes_per_element(best)))
      best = type, count = n;
  }
  if (votes.size() > 1)
    notes.push_back(
        fmt::format("matrices of {} differ in type ({}): {} is taken for all", what, text, to_string(best)));
  return best;
}

void vote(const Rules& rules, int layer, std::initializer_list<const char*> matrices, Votes& votes) {
  for (const char* matrix : matrices) ++votes[rules.of(names_of(layer, matrix))];
}

void vote_attention(const Rules& rules, const Attention& a, int layer, Votes& votes) {
  switch (a.kind) {
    case AttentionKind::gqa:
      vote(rules, layer, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"},
           votes);
      break;
    case AttentionKind::mla:
      vote(rules, layer,
           {"self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj",
            "self_attn.o_proj"},
           votes);
      break;
  }
}

/// The names that DeepSeek and others give them; a list that excludes either excludes both.
void vote_shared(const Rules& rules, int layer, Votes& votes) {
  for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
    Names names = names_of(layer, fmt::format("mlp.shared_experts.{}", matrix));
    for (std::string& name : names_of(layer, fmt::format("mlp.shared_expert.{}", matrix)))
      names.push_back(std::move(name));
    ++votes[rules.of(names)];
  }
}

Checkpoint classes(const Rules& rules, const Model& m, std::vector<std::string>& notes) {
  Votes attention, dense, experts, shared;
  int layer = 0;
  for (const LayerRun& run : m.runs) {
    const FeedForward& ffn = m.ffns[run.ffn];
    for (const int end = layer + run.count; layer < end; ++layer) {
      vote_attention(rules, m.attentions[run.attention], layer, attention);
      if (ffn.dense()) {
        vote(rules, layer, {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}, dense);
        continue;
      }
      vote(rules, layer, {"mlp.experts.0.gate_proj", "mlp.experts.0.up_proj", "mlp.experts.0.down_proj"},
           experts);
      if (ffn.shared_experts > 0) vote_shared(rules, layer, shared);
    }
  }
  Checkpoint c;
  c.kv = rules.kv;
  if (!experts.empty()) c.experts = most(experts, "experts", notes);
  if (rules.only_routed) return c;
  if (!attention.empty()) c.attention = most(attention, "attention", notes);
  if (!dense.empty()) c.dense_ffn = most(dense, "dense layers", notes);
  if (!shared.empty()) c.shared = most(shared, "shared experts", notes);
  if (rules.head) c.head = rules.of({"lm_head"});
  return c;
}

}  // namespace

std::optional<Checkpoint> read_checkpoint(const Reader& reader, const Model& m,
                                          std::vector<std::string>& notes) {
  if (!reader.is_map()) {
    reader.fault(reader.path() + ": expected a mapping");
    return std::nullopt;
  }
  // hf_quant_config.json has its content one level deeper.
  const auto inner = set(reader, "quantization");
  Rules rules;
  if (read_rules(inner ? *inner : reader, rules)) return classes(rules, m, notes);
  notes.emplace_back("the checkpoint's quantisation is not read: say in the scenario's precision what it is");
  return std::nullopt;
}

}  // namespace shardline
