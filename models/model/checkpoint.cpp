#include "models/model/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/model/checkpoint_patterns.hpp"
#include "models/model/checkpoint_types.hpp"
#include "models/model/model.hpp"

namespace shardline {

using checkpoint::Pattern;
using checkpoint::Patterns;
using checkpoint::set;
using checkpoint::TypeFound;

namespace {

// The same matrix under the names that families give it, below "model." or "model.language_model.".
using Names = std::vector<std::string>;

struct Rules {
  std::optional<MatrixType> all;  // of linear layers that no rule names
  Patterns excluded;              // stay as they are
  Patterns listed;                // have a type of their own, in
  std::vector<MatrixType> listed_types;
  MatrixType unquantised;    // what stays as it is
  bool head = false;         // the LM head is a linear layer like others
  bool only_routed = false;  // no linear layer at all, but routed experts
  std::optional<Dtype> kv;
  std::string why;                 // it is not read
  std::vector<std::string> notes;  // what was read leaves out

  MatrixType of(const Names& names) const {
    if (const auto at = listed.first(names)) return listed_types[*at];
    if (excluded.first(names)) return unquantised;
    return all.value_or(unquantised);
  }

  void list(Pattern pattern, MatrixType type) {
    listed.add(std::move(pattern));
    listed_types.push_back(type);
  }

  /// The type that was found; without one `why` says so.
  std::optional<MatrixType> take(const TypeFound& found) {
    if (!found.type) why = found.why;
    if (!found.note.empty() && std::find(notes.begin(), notes.end(), found.note) == notes.end())
      notes.push_back(found.note);
    return found.type;
  }
};

void exclude(const std::optional<Reader>& list, Rules& rules) {
  if (!list) return;
  for (const Reader& item : list->items()) rules.excluded.add(Pattern(item));
}

void read_kv(const Reader& r, Rules& rules) {
  const TypeFound found = checkpoint::type_of_cache(r);
  if (found.type) rules.kv = found.type->weights;
  if (!found.why.empty())
    rules.notes.push_back(found.why + " is not read: say in the scenario's precision what it is");
}

// Groups of compressed-tensors. Without targets a group is of all linear layers.
bool read_groups(const Reader& groups, Rules& rules) {
  for (const std::string& name : groups.keys()) {
    const Reader group = groups.at(name);
    const auto type = rules.take(checkpoint::type_of_group(group));
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
        rules.list(Pattern(target), *type);
      }
    }
  }
  return true;
}

bool read_listed(const Reader& r, Rules& rules) {
  const auto layers = set(r, "quantized_layers");
  if (!layers) return true;
  for (const std::string& name : layers->keys()) {
    const Reader layer = layers->at(name);
    const auto type = rules.take(checkpoint::type_of_algorithm(layer.at("quant_algo").text()));
    if (!type) return false;
    rules.list(Pattern(layer, name), *type);
  }
  return true;
}

// ModelOpt's own description, of hf_quant_config.json or in config.json, whose groups say the same again. An
// experts-only file over a checkpoint in blocks of FP8 (quant_method fp8) leaves all else in those blocks.
bool read_modelopt(const Reader& r, Rules& rules) {
  const std::string algorithm = r.at("quant_algo").text();
  const bool mixed = algorithm == "MIXED_PRECISION" || algorithm == "mixed_precision";
  const auto method = set(r, "quant_method");
  if (mixed && method && method->text() == "fp8" && set(r, "weight_block_size")) {
    rules.all = Dtype::fp8_block;
    return read_listed(r, rules);
  }
  if (!mixed) {
    rules.all = rules.take(checkpoint::type_of_algorithm(algorithm));
    if (!rules.all) return false;
  }
  exclude(set(r, "exclude_modules"), rules);
  exclude(set(r, "ignore"), rules);
  // Every recipe leaves the head out, whether the file says so or not.
  rules.head = !rules.excluded.empty();
  return read_listed(r, rules);
}

// DeepSeek's blocks, and one scale per tensor: vllm-project/vllm 00155cdecca7 quantization/fp8.py, whose
// scales of activations are dynamic unless activation_scheme is static, and always so with blocks.
bool read_fp8(const Reader& r, Rules& rules) {
  const auto scheme = set(r, "activation_scheme");
  const std::string named = scheme ? scheme->text() : "dynamic";
  if (named != "static" && named != "dynamic") {
    rules.why = "the activation_scheme " + named;
    return false;
  }
  rules.all = set(r, "weight_block_size") ? Dtype::fp8_block
              : named == "static"         ? Dtype::fp8
                                          : Dtype::fp8_dynamic;
  exclude(set(r, "modules_to_not_convert"), rules);
  exclude(set(r, "ignored_layers"), rules);
  return true;
}

// GPTQ and AWQ: integers of 4 bits under BF16 arithmetic (auto_gptq.py, auto_awq.py of vllm-project/vllm
// 00155cdecca7). The head stays as it is unless GPTQ's lm_head says otherwise.
bool read_int4(const Reader& r, const std::string& method, Rules& rules) {
  auto bits = set(r, "bits");
  if (!bits) bits = set(r, "w_bit");
  auto group = set(r, "group_size");
  if (!group) group = set(r, "q_group_size");
  const std::int64_t n = bits ? bits->integer(1, 64) : 4;
  if (n != 4) {
    rules.why = fmt::format("the method {} with {} bits", method, n);
    return false;
  }
  rules.all = rules.take(checkpoint::int4_weights(group ? group->integer(-1, 1 << 20) : 128, Dtype::bf16));
  exclude(set(r, "modules_to_not_convert"), rules);
  const auto head = set(r, "lm_head");
  rules.head = head && head->is_scalar() && head->text() == "true";
  return true;
}

// ModelOpt's own file has its algorithm and no method.
std::string method_of(const Reader& r) {
  if (const auto method = set(r, "quant_method")) return method->text();
  if (set(r, "quant_algo")) return "modelopt";
  return set(r, "config_groups") ? "compressed-tensors" : "";
}

// False: not read, and Rules::why says what.
bool read_rules(const Reader& r, Rules& rules) {
  read_kv(r, rules);
  const auto method = set(r, "quant_method");
  const std::string name = method ? method->text() : "";
  if (set(r, "quant_algo")) return read_modelopt(r, rules);
  if (name == "fp8") return read_fp8(r, rules);
  if (name == "fbgemm_fp8") {  // a scale per row of the weights and per token
    rules.all = Dtype::fp8_dynamic;
    exclude(set(r, "modules_to_not_convert"), rules);
    return true;
  }
  if (name == "mxfp4") {
    rules.all = Dtype::mxfp4;
    rules.only_routed = true;  // vLLM quantization/mxfp4.py: every linear layer is left as it is
    exclude(set(r, "modules_to_not_convert"), rules);
    return true;
  }
  if (name == "gptq" || name == "awq") return read_int4(r, name, rules);
  if (const auto groups = set(r, "config_groups");
      groups && (name.empty() || name == "compressed-tensors" || name == "modelopt")) {
    exclude(set(r, "ignore"), rules);
    rules.head = true;
    return read_groups(*groups, rules);
  }
  rules.why = name.empty() ? "a method without a name" : "the method " + name;
  return false;
}

void add_names(int layer, std::string_view matrix, Names& names) {
  for (const char* model : {"model.", "model.language_model.", "language_model.model.", ""})
    names.push_back(fmt::format("{}layers.{}.{}", model, layer, matrix));
}
/// Llama 4 calls a layer's mlp feed_forward, DeepSeek-V4 ffn.
Names names_of(int layer, std::string_view matrix) {
  Names names;
  add_names(layer, matrix, names);
  if (!matrix.starts_with("mlp.")) return names;
  for (const char* name : {"feed_forward", "ffn"})
    add_names(layer, fmt::format("{}.{}", name, matrix.substr(4)), names);
  return names;
}

// Counts the matrices of a class by type; the order is that of the first layers, for equal files equal.
using Votes = std::vector<std::pair<MatrixType, int>>;

void count(Votes& votes, MatrixType type) {
  const auto at = std::find_if(votes.begin(), votes.end(), [&](const auto& v) { return v.first == type; });
  if (at == votes.end()) {
    votes.emplace_back(type, 1);
  } else {
    ++at->second;
  }
}

std::string type_text(MatrixType t) {
  if (t.math == arithmetic_of(t.weights)) return std::string(to_string(t.weights));
  return fmt::format("{} in {}", to_string(t.weights), to_string(t.math));
}

MatrixType most(Votes votes, const char* what, std::vector<std::string>& notes) {
  std::sort(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.weights, a.first.math) < std::pair(b.first.weights, b.first.math);
  });
  MatrixType best;
  int most_votes = 0;
  std::string text;
  for (const auto& [type, n] : votes) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, type_text(type));
    // Of equally many the wider one: what is counted then fits.
    if (n > most_votes ||
        (n == most_votes && bytes_per_element(type.weights) > bytes_per_element(best.weights)))
      best = type, most_votes = n;
  }
  if (votes.size() > 1)
    notes.push_back(
        fmt::format("matrices of {} differ in type ({}): {} is taken for all", what, text, type_text(best)));
  return best;
}

void vote(const Rules& rules, int layer, std::initializer_list<const char*> matrices, Votes& votes) {
  for (const char* matrix : matrices) count(votes, rules.of(names_of(layer, matrix)));
}

/// All but the output projection.
void vote_attention(const Rules& rules, const Attention& a, int layer, Votes& votes) {
  switch (a.kind) {
    case AttentionKind::gqa:
      vote(rules, layer, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, votes);
      break;
    case AttentionKind::mla:
      vote(
          rules, layer,
          {"self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj"},
          votes);
      break;
    case AttentionKind::compressed:
      vote(rules, layer, {"attn.wq_a", "attn.wq_b", "attn.wkv"}, votes);
      break;
    case AttentionKind::delta:
      if (a.delta->channel_decay) {
        vote(rules, layer, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, votes);
      } else {
        vote(rules, layer, {"linear_attn.in_proj_qkv", "linear_attn.in_proj_z"}, votes);
      }
      break;
    case AttentionKind::mamba:
      vote(rules, layer, {"mixer.in_proj"}, votes);
      break;
    case AttentionKind::none:
      break;
  }
}

/// The names that DeepSeek and others give them; a list that excludes either excludes both.
void vote_shared(const Rules& rules, int layer, Votes& votes) {
  for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
    Names names = names_of(layer, fmt::format("mlp.shared_experts.{}", matrix));
    for (std::string& name : names_of(layer, fmt::format("mlp.shared_expert.{}", matrix)))
      names.push_back(std::move(name));
    count(votes, rules.of(names));
  }
}

/// What a mixer's output projection is called; null: it has none.
const char* out_proj_of(const Attention& a) {
  switch (a.kind) {
    case AttentionKind::gqa:
    case AttentionKind::mla:
      break;
    case AttentionKind::compressed:
      return "attn.wo_b";
    case AttentionKind::delta:
      return a.delta->channel_decay ? "self_attn.o_proj" : "linear_attn.out_proj";
    case AttentionKind::mamba:
      return "mixer.out_proj";
    case AttentionKind::none:
      return nullptr;
  }
  return "self_attn.o_proj";
}

Checkpoint classes(const Rules& rules, const Model& m, std::vector<std::string>& notes) {
  Votes attention, out_proj, dense, experts, shared;
  int layer = 0;
  for (const LayerRun& run : m.runs) {
    const FeedForward& ffn = m.ffns[run.ffn];
    for (const int end = layer + run.count; layer < end; ++layer) {
      const Attention& a = m.attentions[run.attention];
      vote_attention(rules, a, layer, attention);
      if (const char* const out = out_proj_of(a)) vote(rules, layer, {out}, out_proj);
      if (ffn.none()) continue;
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
  if (!out_proj.empty()) c.out_proj = most(out_proj, "output projections", notes);
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
  const bool read = read_rules(inner ? *inner : reader, rules);
  notes.insert(notes.end(), rules.notes.begin(), rules.notes.end());
  if (read) {
    Checkpoint out = classes(rules, m, notes);
    out.method = method_of(inner ? *inner : reader);
    return out;
  }
  notes.push_back(fmt::format(
      "the checkpoint's quantisation is not read ({}): say in the scenario's precision what it is",
      rules.why));
  return std::nullopt;
}

}  // namespace shardline
