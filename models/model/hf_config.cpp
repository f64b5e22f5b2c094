#include "models/model/hf_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "models/model/hf_import.hpp"
#include "sim/base/error.hpp"
#include "sim/base/file_name.hpp"

namespace shardline {
namespace hf {
namespace {

bool is_set(const Reader& at) {
  if (at.is_null()) return false;
  if (at.is_sequence()) return !at.items().empty();
  if (at.is_map()) return !at.keys().empty();
  const std::string text = at.text();
  return text != "false" && text != "0";
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

void Import::refuse(std::string_view key, std::string_view why) {
  const auto at = find(key);
  if (at && is_set(*at)) at->fault(fmt::format("{}: {}", key, why));
}

}  // namespace hf

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

// Refused in every family when set to anything but null, false, 0 or an empty list.
constexpr std::array kRefused = {
    Refusal{"attention_chunk_size", "chunked attention is not modelled"},
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

void check_architectures(Import& in, const Family& family) {
  const auto given = in.find("architectures");
  if (!given) return;
  for (const Reader& item : given->items()) {
    const std::string name = item.text();
    if (!name.empty() && std::ranges::find(family.architectures, name) == family.architectures.end()) {
      item.fault(fmt::format("architecture {} contradicts model_type {}", name, family.model_type));
    }
  }
}

void check_layer_types(Import& in) {
  const auto types = in.find("layer_types");
  if (!types) return;
  for (const Reader& item : types->items()) {
    if (item.text() == "full_attention") continue;
    item.fault("layer_types: only full_attention is modelled");
    return;
  }
}

/// Where the file says what our `field` holds.
Reader locate(const Import& in, std::string_view field) {
  struct Pair {
    std::string_view field, key;
  };
  constexpr std::array kKeys = {
      Pair{"attention.kv_heads", "num_key_value_heads"},
      Pair{"attention.rope_dim", "qk_rope_head_dim"},
      Pair{"moe.first_dense_layers", "first_k_dense_replace"},
      Pair{"moe.first_dense_layers", "mlp_only_layers"},
      Pair{"moe.experts_per_token", "num_experts_per_tok"},
      Pair{"ffn.inner", "intermediate_size"},
      Pair{"layers", "num_hidden_layers"},
  };
  for (const Pair& pair : kKeys) {
    if (pair.field == field && in.root.has(pair.key)) return in.root.at(pair.key);
  }
  return in.root;
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

Model import(const Document& document, const std::string& name, const std::string& file) {
  Import in{.root = document.root(), .m = {}};
  in.root.allow_other_keys();
  if (const auto why = not_a_file_name(name))
    in.root.fault("the name of the model, from that of the file or folder, " + *why,
                  {"expected a plain file name; rename the folder that holds config.json"});
  const std::size_t row = in.need("model_type").one_of(hf_model_types());
  document.finish();  // without a model_type nothing else has a meaning
  const Family& family = hf::families()[row];
  for (const Refusal& refusal : kRefused) in.refuse(refusal.key, refusal.why);
  check_architectures(in, family);
  check_layer_types(in);
  family.read(in);
  document.finish();
  for (const auto& rule : in.rules) rule();
  document.finish();
  for (const ModelFault& fault : check(in.m)) locate(in, fault.field).fault(fault.what);
  document.finish();
  if (const auto quantized = in.find("quantization_config")) {
    in.m.checkpoint = read_checkpoint(*quantized, in.m, in.m.notes);
  } else {
    in.m.checkpoint = Checkpoint{};
  }
  document.finish();
  note_other_keys(in);
  in.m.name = name;
  in.m.source = fmt::format("Hugging Face configuration {} (model_type {})", file, family.model_type);
  return in.m;
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

Model load_hf_config(const std::filesystem::path& file) {
  Model m = import(Document::load(file), model_name(file), file.string());
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
