#include "models/model/checkpoint_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "models/model/json_name.hpp"

namespace shardline::checkpoint {

std::optional<MatrixType> TypeRules::take(const TypeFound& found) {
  if (!found.type) why = found.why;
  if (!found.note.empty() && std::find(notes.begin(), notes.end(), found.note) == notes.end())
    notes.push_back(found.note);
  return found.type;
}

namespace {

void exclude(const std::optional<Reader>& list, TypeRules& rules, Listed listed = Listed::names) {
  if (!list) return;
  const std::vector<Reader> items = list->items();
  rules.excluded.reserve(items.size());
  for (const Reader& item : items) rules.exclude(Pattern(item, listed));
}

void read_kv(const Reader& r, TypeRules& rules) {
  const TypeFound found = type_of_cache(r);
  if (found.type) rules.kv = found.type->weights;
  if (!found.why.empty())
    rules.notes.push_back(found.why + " is not read: say in the scenario's precision what it is");
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Targets may be classes of modules. vLLM asks whether the class's name holds the target in either case
// (compressed_tensors/utils.py, find_matched_target, 68afd7889723), so that "Linear" is every linear layer.
bool every_linear(const std::string& target) { return !target.empty() && lower(target) == "linear"; }

// Groups of compressed-tensors. Without targets a group is of all linear layers; one of attention alone is of
// the cache, and vLLM leaves it out (compressed_tensors.py, from_config).
bool read_groups(const Reader& groups, TypeRules& rules) {
  for (const std::string& name : groups.keys()) {
    const Reader group = groups.at(name);
    const auto targets = set(group, "targets");
    const std::vector<Reader> named = targets ? targets->items() : std::vector<Reader>{};
    if (named.size() == 1 && json_name(named[0]).ends_with("Attention")) continue;
    const auto type = rules.take(type_of_group(group));
    if (!type) return false;
    if (!targets) rules.all = type;
    for (const Reader& target : named) {
      if (every_linear(json_name(target))) {
        rules.all = type;
      } else {
        rules.list(Pattern(target), *type);
      }
    }
  }
  return rules.why.empty();
}

// An algorithm and, of INT4, its group (ModelOpt's group_size; 128 where the file says none).
TypeFound algorithm_of(const Reader& r, const std::string& name) {
  TypeFound found = type_of_algorithm(name);
  const auto group = set(r, "group_size");
  if (!group || !found.type || found.type->weights != Dtype::int4) return found;
  return int4_weights(group->integer(-1, 1 << 20), found.type->math);
}

bool read_listed(const Reader& r, TypeRules& rules) {
  const auto layers = set(r, "quantized_layers");
  if (!layers) return true;
  for (const std::string& name : layers->keys()) {
    const Reader layer = layers->at(name);
    const auto type = rules.take(algorithm_of(layer, json_name(layer.at("quant_algo"))));
    if (!type) {
      rules.why += " of " + name;
      return false;
    }
    rules.list(Pattern(layer, name), *type);
  }
  return rules.why.empty();
}

// Whether matrices are scaled in blocks: two sides of at least one, and of any matrix at most.
bool in_blocks(const Reader& r) {
  const auto sides = set(r, "weight_block_size");
  if (!sides) return false;
  constexpr std::int64_t kMostSide = 1 << 20;
  const std::vector<Reader> items = sides->items();
  for (const Reader& side : items) side.integer(1, kMostSide);
  if (sides->is_sequence() && items.size() != 2)
    sides->fault(sides->path() + ": expected two sides of a block, such as [128, 128]");
  return true;
}

// ModelOpt's own description, of hf_quant_config.json or in config.json, whose groups say the same again. An
// experts-only file over a checkpoint in blocks of FP8 (quant_method fp8) leaves all else in those blocks.
bool read_modelopt(const Reader& r, TypeRules& rules) {
  const std::string algorithm = json_name(r.at("quant_algo"));
  const bool mixed = lower(algorithm) == "mixed_precision";
  const auto method = set(r, "quant_method");
  if (mixed && method && json_name(*method) == "fp8" && in_blocks(r)) {
    rules.all = Dtype::fp8_block;
    return read_listed(r, rules);
  }
  if (!mixed) {
    rules.all = rules.take(algorithm_of(r, algorithm));
    if (!rules.all) return false;
  }
  exclude(set(r, "exclude_modules"), rules);
  exclude(set(r, "ignore"), rules);
  // Every recipe leaves the head out, whether the file says so or not; a mixed one lists it, or it stays.
  rules.head = mixed || !rules.excluded.empty();
  return read_listed(r, rules) && rules.why.empty();
}

// DeepSeek's blocks, and one scale per tensor: vllm-project/vllm 68afd7889723 quantization/fp8.py, whose
// scales of activations are dynamic unless activation_scheme is static, and always so with blocks.
bool read_fp8(const Reader& r, TypeRules& rules) {
  const auto scheme = set(r, "activation_scheme");
  const std::string named = scheme ? json_name(*scheme) : "dynamic";
  if (named != "static" && named != "dynamic") {
    rules.why = "the activation_scheme " + named;
    return false;
  }
  rules.all = in_blocks(r) ? Dtype::fp8_block : named == "static" ? Dtype::fp8 : Dtype::fp8_dynamic;
  exclude(set(r, "modules_to_not_convert"), rules);
  exclude(set(r, "ignored_layers"), rules);
  if (set(r, "ignore"))
    rules.notes.emplace_back(
        "ignore says nothing in files of the method fp8, as in vLLM: modules_to_not_convert or "
        "ignored_layers would");
  return rules.why.empty();
}

std::int64_t number(const Reader& r, const char* key, const char* other, std::int64_t otherwise) {
  auto at = set(r, key);
  if (!at) at = set(r, other);
  return at ? at->integer(-1, 1 << 20) : otherwise;
}

// GPTQModel's rules by layer, the first that matches from a name's beginning: "-:" leaves a matrix as it is,
// "+:" or nothing gives it bits or a group of its own (vllm-project/vllm 68afd7889723,
// quantization/utils/gptq_utils.py, get_dynamic_override).
bool read_dynamic(const Reader& r, std::int64_t bits, std::int64_t group, TypeRules& rules) {
  const auto dynamic = set(r, "dynamic");
  if (!dynamic) return true;
  for (const std::string& key : dynamic->keys()) {
    const Reader own = dynamic->at(key);
    const std::string expression = key.starts_with("-:") || key.starts_with("+:") ? key.substr(2) : key;
    own.keys();  // a fault where it is no mapping, {} for want of more
    if (key.starts_with("-:")) {
      rules.list(Pattern(own, "re:" + expression), rules.unquantised);
      continue;
    }
    const std::int64_t n = number(own, "bits", "bits", bits);
    if (n != 4) {
      rules.why = fmt::format("the method gptq with {} bits of {}", n, key);
      return false;
    }
    const std::int64_t size = number(own, "group_size", "group_size", group);
    const auto type = rules.take(int4_weights(size, Dtype::bf16));
    rules.list(Pattern(own, "re:" + expression), *type);
  }
  return rules.why.empty();
}

// Parts of names, or lists of them: all else stays as it is (gptq_utils.py, is_layer_gptq_quantized).
void read_blocks(const Reader& r, TypeRules& rules) {
  const auto blocks = set(r, "modules_in_block_to_quantize");
  if (!blocks) return;
  for (const Reader& item : blocks->items()) {
    for (const Reader& name : item.is_sequence() ? item.items() : std::vector<Reader>{item})
      rules.keep(Pattern(name, Listed::parts));
  }
}

bool flag(const Reader& r, const char* key, bool when_missing) {
  const auto at = set(r, key);
  return at ? at->boolean() : when_missing;
}

// GPTQ and AWQ: integers of 4 bits under BF16 arithmetic (auto_gptq.py, auto_awq.py of vllm-project/vllm
// 68afd7889723). The head stays as it is unless GPTQ's lm_head says otherwise. That GPTQ's files have zero
// points counts nowhere but where engines have no kernels for them: all have rows of zeros.
bool read_int4(const Reader& r, const std::string& method, TypeRules& rules) {
  const std::int64_t bits = number(r, "bits", "w_bit", 4);
  const std::int64_t group = number(r, "group_size", "q_group_size", 128);
  rules.zero_points = method == "gptq" && !flag(r, "sym", true);
  if (bits != 4) {
    rules.why = fmt::format("the method {} with {} bits{}", method, bits,
                            rules.zero_points ? " and zero points" : "");
    return false;
  }
  rules.all = rules.take(int4_weights(group, Dtype::bf16));
  exclude(set(r, "modules_to_not_convert"), rules, Listed::parts);
  rules.head = flag(r, "lm_head", false);
  read_blocks(r, rules);
  return read_dynamic(r, bits, group, rules);
}

/// Sparsity is no type: what is stored of a matrix with half its numbers left out is less than is counted.
void note_sparsity(const Reader& r, TypeRules& rules) {
  const auto sparse = set(r, "sparsity_config");
  const auto format = sparse ? set(*sparse, "format") : std::nullopt;
  if (!sparse || !sparse->is_map() || (format && json_name(*format) == "dense")) return;
  rules.notes.push_back(fmt::format("sparsity_config{} is not read: matrices are counted and priced dense",
                                    format ? " " + format->text() : ""));
}

}  // namespace

namespace {

std::string name_of_method(const Reader& r) {
  if (const auto method = set(r, "quant_method")) {
    const std::string name = json_name(*method);
    // Names of kernels of vLLM, under which it reads the same files.
    return name == "awq_marlin" ? "awq" : name == "gptq_marlin" ? "gptq" : name;
  }
  if (set(r, "quant_algo")) return "modelopt";
  return set(r, "config_groups") ? "compressed-tensors" : "";
}

// compressed_tensors/quantization/quant_args.py, QuantizationArgs: without a strategy, one scale per tensor,
// or one per group where a group has a size.
std::string strategy_of(const Reader& group) {
  const auto weights = group.is_map() ? set(group, "weights") : std::nullopt;
  if (!weights || !weights->is_map()) return "none";
  if (const auto named = set(*weights, "strategy")) return json_name(*named);
  return set(*weights, "group_size") ? "group" : "tensor";
}

}  // namespace

std::string method_of(const Reader& r) {
  const std::string name = name_of_method(r);
  const auto groups = set(r, "config_groups");
  if (name != "compressed-tensors" || !groups || !groups->is_map() || groups->keys().empty()) return name;
  return name + "/" + strategy_of(groups->at(groups->keys().front()));
}

bool read_rules(const Reader& r, TypeRules& rules) {
  read_kv(r, rules);
  note_sparsity(r, rules);
  const std::string name = set(r, "quant_method") ? name_of_method(r) : "";
  if (set(r, "quant_algo")) return read_modelopt(r, rules);
  if (name == "fp8") return read_fp8(r, rules);
  if (name == "fbgemm_fp8") {  // a scale per row of the weights and per token
    rules.all = Dtype::fp8_dynamic;
    exclude(set(r, "modules_to_not_convert"), rules);
    return rules.why.empty();
  }
  if (name == "mxfp4") {
    rules.all = Dtype::mxfp4;
    rules.only_routed = true;  // vLLM quantization/mxfp4.py: every linear layer is left as it is
    exclude(set(r, "modules_to_not_convert"), rules);
    return rules.why.empty();
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

}  // namespace shardline::checkpoint
