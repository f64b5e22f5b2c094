#include "models/model/hf_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "models/model/hf_import.hpp"
#include "sim/base/error.hpp"
#include "sim/base/file_name.hpp"

namespace shardline {
namespace {

using hf::Family;
using hf::Import;

// Keys that change neither a shape nor a count.
constexpr std::array kNeutral = {
    "_name_or_path",
    "alibi",  // a bias on scores, computed on the fly
    "apply_residual_connection_post_layernorm",
    "attention_dropout",
    "auto_map",
    "aux_loss_alpha",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "ep_size",
    "hidden_act",
    "hidden_dropout",
    "initializer_range",
    "layer_norm_epsilon",
    "norm_topk_prob",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "routed_scaling_factor",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "scoring_func",
    "seq_aux",
    "torch_dtype",
    "transformers_version",
    "unk_token_id",
    "use_cache",
};

struct Refusal {
  const char* key;
  const char* why;
};

// Refused when set to anything but null, false, 0 or an empty list, unless the family reads it.
constexpr std::array kRefused = {
    Refusal{"attention_chunk_size", "this model_type has no chunked attention"},
    Refusal{"audio_config", "only text models are modelled"},
    Refusal{"cross_attention_layers", "cross attention is not modelled"},
    Refusal{"full_attention_interval", "linear attention is not modelled"},
    Refusal{"index_topk", "sparse attention is not modelled"},
    Refusal{"is_encoder_decoder", "only decoders are modelled"},
    Refusal{"num_kv_shared_layers", "layers that share a KV cache are not modelled"},
    Refusal{"text_config",
            "only text models are modelled; give the inner configuration as a file of its own"},
    Refusal{"thinker_config", "only text models are modelled"},
    Refusal{"vision_config", "only text models are modelled"},
};

/// The first one, which engines choose their class by; empty: the file names none.
std::string read_architectures(const Reader& file, const Family& family) {
  const auto given = file.find("architectures");
  std::string first;
  if (!given || given->is_null()) return first;
  for (const Reader& item : given->items()) {
    const std::string name = item.text();
    if (!name.empty() && std::ranges::find(family.architectures, name) == family.architectures.end()) {
      item.fault(fmt::format("architecture {} contradicts model_type {}", name, family.model_type));
    }
    if (first.empty()) first = name;
  }
  return first;
}

void check_layer_types(Import& in) {
  if (in.understood.contains("layer_types")) return;
  const auto types = in.find("layer_types");
  if (!types) return;
  for (const Reader& item : types->items()) {
    if (item.text() == "full_attention") continue;
    item.fault("layer_types: of this model_type only full_attention is modelled");
    return;
  }
}

/// Where the file says what our `field` holds.
Reader locate(const Import& in, std::string_view field) {
  struct Pair {
    std::string_view field, key;
  };
  constexpr std::array kKeys = {
      Pair{"kv_heads", "num_key_value_heads"}, Pair{"rope_dim", "qk_rope_head_dim"},
      Pair{"reach", "sliding_window"},         Pair{"experts_per_token", "num_experts_per_tok"},
      Pair{"inner", "intermediate_size"},      Pair{"layers", "num_hidden_layers"},
  };
  const auto close = field.find("].");
  const std::string_view last = close == std::string_view::npos ? field : field.substr(close + 2);
  // Where windows have heads of their own, the kind says whose they are.
  const bool local = in.local && field.starts_with("attentions[") &&
                     in.m.attentions[std::stoul(std::string(field.substr(11)))] == *in.local;
  for (const Pair& pair : kKeys) {
    const std::string own = fmt::format("swa_{}", pair.key);
    if (pair.field == last && local && in.root.has(own)) return in.root.at(own);
    if (pair.field == last && in.root.has(pair.key)) return in.root.at(pair.key);
  }
  return in.root;
}

/// The kinds of layers that the family found.
void set_kinds(Import& in) {
  in.is_local.resize(in.layers, false);
  in.has_experts.resize(in.layers, false);
  if (in.experts.experts > 0 && std::ranges::find(in.has_experts, true) == in.has_experts.end()) {
    for (const char* key : {"first_k_dense_replace", "mlp_only_layers", "moe_layer_freq", "moe_layers",
                            "decoder_sparse_step", "interleave_moe_layer_step"}) {
      if (!in.root.has(key)) continue;
      in.root.at(key).fault(
          fmt::format("{} dense layers of {} leave no layer for the experts", in.layers, in.layers));
      return;
    }
    in.root.fault("no layer has experts");
    return;
  }
  std::vector<Attention> attentions;
  std::vector<FeedForward> ffns;
  for (int i = 0; i < in.layers; ++i) {
    attentions.push_back(in.is_local[i] ? *in.local : in.attention);
    ffns.push_back(in.has_experts[i] ? in.experts : in.dense);
  }
  set_layers(in.m, attentions, ffns);
}

void note_other_keys(Import& in) {
  std::vector<std::string> other;
  for (const std::string& key : in.root.keys()) {
    if (!in.understood.contains(key) && std::ranges::find(kNeutral, key) == kNeutral.end())
      other.push_back(key);
  }
  if (!other.empty())
    in.m.notes.push_back(fmt::format("config.json keys not understood: {}", fmt::join(other, ", ")));
}

// Keys of a wrapper that are of images and sound alone, or read elsewhere.
constexpr std::array kOfMedia = {
    "text_config",
    "vision_config",
    "audio_config",
    "model_type",
    "architectures",
    "quantization_config",
    "boi_token_index",
    "eoi_token_index",
    "image_token_index",
    "eoa_token_index",
    "boi_token_id",
    "eoi_token_id",
    "image_token_id",
    "video_token_id",
    "audio_token_id",
    "boa_token_id",
    "eoa_token_id",
    "mm_tokens_per_image",
    "vision_soft_tokens_per_image",
};

/// Where the language model is described. A wrapper's own keys that nothing reads are noted.
Import enter(const Reader& file, const Family& family) {
  if (*family.inner_type == '\0') return {.root = file, .m = {}};
  Import in{.root = file.at("text_config"), .m = {}, .wrapped = true};
  in.root.allow_other_keys();
  const auto inner = in.find("model_type");
  if (inner && inner->text() != family.inner_type)
    inner->fault(fmt::format("text_config of {} is of model_type {}", family.model_type, family.inner_type));
  std::vector<std::string> other;
  for (const std::string& key : file.keys()) {
    if (std::ranges::find(kOfMedia, key) == kOfMedia.end() &&
        std::ranges::find(kNeutral, key) == kNeutral.end() && !in.root.has(key))
      other.push_back(key);
  }
  if (!other.empty()) in.note(fmt::format("config.json keys not understood: {}", fmt::join(other, ", ")));
  return in;
}

Model import(const Document& document, const std::string& name, const std::string& file_name) {
  const Reader file = document.root();
  file.allow_other_keys();
  if (const auto why = not_a_file_name(name))
    file.fault("the name of the model, from that of the file or folder, " + *why,
               {"expected a plain file name; rename the folder that holds config.json"});
  const std::size_t row = file.at("model_type").one_of(hf_model_types());
  document.finish();  // without a model_type nothing else has a meaning
  const Family& family = hf::families()[row];
  Import in = enter(file, family);
  for (const char* key : {"model_type", "architectures", "quantization_config"}) in.understood.emplace(key);
  in.m.architecture = read_architectures(file, family);
  family.read(in);
  for (const Refusal& refusal : kRefused) {
    if (!in.understood.contains(refusal.key)) in.refuse(refusal.key, refusal.why);
  }
  check_layer_types(in);
  document.finish();
  for (const auto& rule : in.rules) rule();
  document.finish();
  set_kinds(in);
  document.finish();
  for (const ModelFault& fault : check(in.m)) locate(in, fault.field).fault(fault.what);
  document.finish();
  in.m.checkpoint = Checkpoint{};
  for (const Reader& at : {in.root, file}) {
    const auto quantized = at.find("quantization_config");
    if (!quantized || quantized->is_null()) continue;
    in.m.checkpoint = read_checkpoint(*quantized, in.m, in.m.notes);
    break;
  }
  document.finish();
  note_other_keys(in);
  in.m.name = name;
  in.m.source = fmt::format("Hugging Face configuration {} (model_type {})", file_name, family.model_type);
  return in.m;
}

/// Whether config.json itself says how its checkpoint is quantised.
bool describes_quantisation(const Reader& root) {
  const auto says = [](const Reader& at) {
    const auto quantised = at.is_map() ? at.find("quantization_config") : std::nullopt;
    return quantised && !quantised->is_null();
  };
  const auto text = root.find("text_config");
  return says(root) || (text && says(*text));
}

/// "llama-7b" for both "llama-7b/config.json" and "llama-7b.json". A folder given as . or .. has a name, too.
std::string model_name(const std::filesystem::path& file) {
  auto folder = file.parent_path().filename();
  if (folder == "." || folder == "..")
    folder = std::filesystem::absolute(file).lexically_normal().parent_path().filename();
  const auto name = file.filename() == "config.json" && !folder.empty() ? folder : file.stem();
  return name.empty() ? "config" : name.string();
}

}  // namespace

std::vector<std::string> hf_model_types() {
  std::vector<std::string> types;
  for (const Family& family : hf::families()) types.emplace_back(family.model_type);
  return types;
}

std::vector<std::string> hf_architectures() {
  std::vector<std::string> names;
  for (const Family& family : hf::families()) {
    for (const std::string_view name : family.architectures) {
      if (!name.empty()) names.emplace_back(name);
    }
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Model load_hf_config(const std::filesystem::path& file) {
  const Document config = Document::load(file);
  Model m = import(config, model_name(file), file.string());
  // As vLLM reads them (transformers_utils/config.py): ModelOpt writes the same into both, and where only the
  // experts were narrowed, config.json alone knows what the rest is.
  if (m.checkpoint && describes_quantisation(config.root())) return m;
  const std::filesystem::path beside = file.parent_path() / "hf_quant_config.json";
  std::error_code error;
  if (file.filename() != "config.json" || !std::filesystem::exists(beside, error)) return m;
  const Document document = Document::load(beside);
  document.root().allow_other_keys();
  m.checkpoint = read_checkpoint(document.root(), m, m.notes);
  document.finish();
  return m;
}

Model parse_hf_config(const std::string& file, const std::string& text) {
  return import(Document::parse(file, text), model_name(file), file);
}

}  // namespace shardline
