#include "models/model/hf_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "models/model/checkpoint_rules.hpp"
#include "models/model/hf_import.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/error.hpp"
#include "sim/base/file_name.hpp"

namespace shardline {
namespace {

using hf::Family;
using hf::Import;

/// The first one, which engines choose their class by; empty: the file names none.
std::string read_architectures(const Reader& file, const Family& family, bool forced) {
  const auto given = file.find("architectures");
  std::string first;
  if (!given || given->is_null()) return first;
  for (const Reader& item : given->items()) {
    const std::string name = json_name(item);
    const auto has = [&](const Family& f) {
      return std::ranges::find(f.architectures, std::string_view(name)) != f.architectures.end();
    };
    // A name that goes with no model_type here may be a wrapper's or an engine's own.
    if (!forced && !name.empty() && !has(family) && std::ranges::any_of(hf::families(), has)) {
      item.fault(fmt::format("architecture {} contradicts model_type {}", name, family.model_type));
    }
    if (first.empty()) first = name;
  }
  return first;
}

void check_layer_types(Import& in) {
  if (in.knows("layer_types")) return;
  const auto types = in.find("layer_types");
  if (!types) return;
  for (const Reader& item : types->items()) {
    if (item.text() == "full_attention") continue;
    item.fault("layer_types: of this model_type only full_attention is modelled");
    return;
  }
  in.find_names("layer_types", {"full_attention"});  // one for each layer
}

/// Keys that may say what our `field` holds, or what it follows from where the first ones are missing.
struct FieldKeys {
  std::string_view field;
  std::array<std::string_view, 6> keys;  // empty: none
};
constexpr std::array kFieldKeys = {
    FieldKeys{"kv_heads", {"num_key_value_heads", "num_attention_groups", "num_attention_heads"}},
    FieldKeys{"rope_dim", {"qk_rope_head_dim", "head_dim"}},
    FieldKeys{"reach", {"sliding_window"}},
    FieldKeys{"experts_per_token",
              {"num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k", "moe_k",
               "top_k_experts"}},
    FieldKeys{"experts", {"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"}},
    FieldKeys{"shared_experts", {"n_shared_experts", "num_shared_experts", "moe_num_shared_experts"}},
    FieldKeys{"inner", {"intermediate_size"}},
    FieldKeys{"layers", {"num_hidden_layers", "n_layer", "hybrid_override_pattern", "layers_block_type"}},
    FieldKeys{"attentions", {"block_configs"}},
    FieldKeys{"ffns", {"block_configs"}},
    FieldKeys{"o_groups", {"o_groups"}},
    FieldKeys{"value_heads", {"linear_num_value_heads", "linear_num_key_heads"}},
    FieldKeys{"groups", {"n_groups", "mamba_num_heads"}},
    FieldKeys{"index.top_k", {"index_topk", "index_topk_blocks"}},
    FieldKeys{"index.shared", {"indexer_types", "index_topk_pattern", "index_topk_freq"}},
    FieldKeys{"drafts", {"num_nextn_predict_layers", "mtp_num_hidden_layers"}},
};

/// Where the file says what our `field` holds.
Reader locate(const Import& in, std::string_view field) {
  const auto close = field.find("].");
  std::string_view last = close == std::string_view::npos ? field : field.substr(close + 2);
  for (const std::string_view draft : {"drafts.attention.", "drafts.ffn."}) {
    if (last.starts_with(draft)) last.remove_prefix(draft.size());
  }
  const auto blocks = in.root.find("sparse_attention_config");
  if (last == "index.top_k" && blocks && blocks->is_map() && blocks->has("sparse_topk_blocks"))
    return blocks->at("sparse_topk_blocks");
  const auto row = std::ranges::find(kFieldKeys, last, &FieldKeys::field);
  if (row == kFieldKeys.end()) return in.root;
  // Where windows have heads of their own, the kind says whose they are.
  const bool local = in.local && field.starts_with("attentions[") &&
                     in.m.attentions[std::stoul(std::string(field.substr(11)))] == *in.local;
  const auto other = local ? in.root.find("attention_other_setting") : std::nullopt;
  for (const std::string_view key : row->keys) {
    const std::string own = fmt::format("swa_{}", key);
    if (key.empty()) break;
    if (other && other->is_map() && other->has(key)) return other->at(key);
    if (local && in.root.has(own)) return in.root.at(own);
    if (in.root.has(key)) return in.root.at(key);
  }
  return in.root;
}

/// The kinds of layers that the family found.
void set_kinds(Import& in) {
  in.is_local.resize(in.layers, false);
  in.has_experts.resize(in.layers, false);
  if (in.experts.experts > 0 && in.networks.empty() &&
      std::ranges::find(in.has_experts, true) == in.has_experts.end()) {
    for (const char* key :
         {"first_k_dense_replace", "mlp_only_layers", "moe_layer_freq", "moe_layers", "moe_layers_enum",
          "mlp_layer_types", "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_start_index",
          "moe_layer_end_index", "moe_layer_interval", "num_hidden_layers"}) {
      if (!in.root.has(key)) continue;
      const Reader at = in.root.at(key);
      return at.fault(fmt::format("{}: {} dense layers of {} leave no layer for the experts", at.path(),
                                  in.layers, in.layers),
                      {"expected one layer with experts at least, of this model_type"});
    }
    return in.root.fault("no layer has experts");
  }
  std::vector<Attention> attentions;
  std::vector<FeedForward> ffns;
  for (int i = 0; i < in.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    attentions.push_back(!in.mixers.empty() ? in.mixers.at(at) : in.is_local[i] ? *in.local : in.attention);
    ffns.push_back(!in.networks.empty() ? in.networks.at(at) : in.has_experts[i] ? in.experts : in.dense);
  }
  set_layers(in.m, attentions, ffns);
}

void note_other_keys(Import& in) {
  std::vector<std::string> other;
  for (const std::string& key : in.root.keys()) {
    if (!in.knows(key) && !hf::neutral(key)) other.push_back(key);
  }
  other.insert(other.end(), in.other.begin(), in.other.end());
  if (!other.empty())
    in.m.notes.push_back(fmt::format("config.json keys not understood: {}", fmt::join(other, ", ")));
}

/// The family whose model_type it is; null: none.
const Family* family_of(const std::string& model_type) {
  const auto rows = hf::families();
  const auto at = std::ranges::find_if(rows, [&](const Family& f) { return f.model_type == model_type; });
  return at == rows.end() ? nullptr : &*at;
}

/// Where the language model is described. A wrapper's own keys that nothing reads are noted.
Import enter(const Reader& file, const Family& family, bool forced) {
  // A wrapper that no family here names is read as one of a text alone: that lies inside.
  const auto text = file.find("text_config");
  const bool unnamed = forced && text && text->is_map() && !file.has("num_hidden_layers");
  const bool inside = family.text == hf::Text::inside || unnamed ||
                      (family.text == hf::Text::either && file.has("text_config"));
  if (!inside) return {.root = file, .file = file, .m = {}, .forced = forced, .drafts = hf::drafts_of(file)};
  Import in{.root = file.at("text_config"), .file = file, .m = {}, .wrapped = true, .forced = forced};
  in.root.allow_other_keys();
  in.drafts = hf::drafts_of(in.root);
  // A text of another family than the wrapper's would be read wrongly.
  const auto inner = in.find("model_type");
  const Family* const own = inner ? family_of(json_name(*inner)) : nullptr;
  if (!forced && own != nullptr && own->read != family.read)
    inner->fault(fmt::format("text_config of {} is of model_type {}", family.model_type, inner->text()));
  if (!forced && inner && own == nullptr)
    in.note(fmt::format("the model_type of text_config, {}, is unknown: it is read as the wrapper's, {}",
                        inner->text(), family.model_type));
  std::vector<std::string> other;
  for (const std::string& key : file.keys()) {
    if (!hf::of_media(key) && !hf::neutral(key) && !in.root.has(key)) other.push_back(key);
  }
  if (!other.empty()) in.note(fmt::format("config.json keys not understood: {}", fmt::join(other, ", ")));
  return in;
}

void read_vision(Import& in, const Reader& file, const Family& family) {
  if (!in.wrapped) return;
  const auto vision = file.find("vision_config");
  if (vision && vision->is_map() && family.vision != nullptr) return family.vision(in, *vision);
  in.note("not modelled: the vision tower and its projector");
}

void set_drafts(Import& in) {
  in.ignore({"num_nextn_predict_layers", "mtp_num_hidden_layers"});
  if (in.drafts == 0) return;
  const LayerRun& last = in.m.runs.back();
  in.m.drafts = DraftModules{in.drafts, in.draft_attention.value_or(in.m.attentions[last.attention]),
                             in.draft_ffn.value_or(in.m.ffns[last.ffn]), in.one_choice};
  list_draft_kind(in.m);
  in.note(fmt::format(
      "counted apart, timed where steps draft (speculative): {} multi-token-prediction layer(s)", in.drafts));
}

/// The family that the file names, or the one that it is to be read as.
const Family& choose_family(const Document& document, const std::string& as) {
  const Reader file = document.root();
  const auto type = file.find("model_type");
  if (!as.empty()) {
    if (const Family* const family = family_of(as)) return *family;
    Diagnostic d;
    d.what = fmt::format("{} {}: unknown model_type", argument_name("as"), as);
    d.details = expected_one_of(as, hf_model_types());
    throw UserError(std::vector<Diagnostic>{std::move(d)});
  }
  if (type && type->is_scalar() && family_of(type->text()) == nullptr) {
    std::vector<std::string> details = expected_one_of(type->text(), hf_model_types());
    details.emplace_back("or read it as one of these: " + argument_given("as", "llama") + ", " +
                         argument_given("as", "deepseek_v3") + ", ...; what that ignores is listed");
    type->fault("model_type: unknown name " + type->text(), std::move(details));
  }
  const std::size_t row = file.at("model_type").one_of(hf_model_types());
  document.finish();  // without a model_type nothing else has a meaning
  return hf::families()[row];
}

/// What is an object wherever it stands is one, or null.
void check_objects(const Reader& map) {
  for (const std::string_view key : hf::objects()) {
    const auto at = map.is_map() ? map.find(key) : std::nullopt;
    if (at && !at->is_null()) at->keys();  // a fault: expected a mapping
  }
}

/// Keys that a family refuses, unless it is read as another one: then they are among those not understood.
void refuse_others(Import& in, bool forced) {
  if (forced) return;
  check_objects(in.file);
  if (in.wrapped) check_objects(in.root);
  for (const hf::Refusal& refusal : hf::refusals()) {
    if (!in.knows(refusal.key)) in.refuse(refusal.key, refusal.why, refusal.nothing);
  }
  check_layer_types(in);
}

/// Where config.json says how its checkpoint is quantised: in quantization_config or, of older files of
/// compressed-tensors, compression_config (vllm-project/vllm,
/// transformers_utils/model_arch_config_convertor.py, _normalize_quantization_config); of the language model
/// first, as far as it is apart.
std::optional<Reader> quantisation_of(const Reader& text, const Reader& file) {
  for (const Reader& at : {text, file}) {
    for (const char* key : {"quantization_config", "compression_config"}) {
      auto found = at.find(key);
      if (found && !found->is_null()) return found;
    }
  }
  return std::nullopt;
}

/// What is not read has the types of no checkpoint, so that whoever asks for times is asked for types.
Checkpoint read_or_unread(const Reader& quantized, Model& m) {
  std::string unread;
  const std::optional<Checkpoint> read = read_checkpoint(quantized, m, m.notes, &unread);
  if (read) return *read;
  Checkpoint out;
  if (unread.empty()) return out;  // a fault, which is said
  const Location at = quantized.location();
  out.unread =
      fmt::format("types of {} not read: {} at {}:{}:{}", m.name, unread, at.file, at.line, at.column);
  out.assumed = out.unread;
  const auto inner = quantized.is_map() ? quantized.find("quantization") : std::nullopt;
  out.method = checkpoint::method_of(inner && inner->is_map() ? *inner : quantized);
  return out;
}

/// Notes where both files describe the checkpoint, and otherwise.
void compare_descriptions(const Checkpoint& own, const Document& beside, Model& m) {
  std::vector<std::string> unsaid;
  beside.root().allow_other_keys();
  std::optional<Checkpoint> other = read_checkpoint(beside.root(), m, unsaid);
  beside.finish();
  if (other) other->method = own.method;
  if (other == own) return;
  m.notes.emplace_back(
      "config.json and hf_quant_config.json do not say the same of the checkpoint's types: config.json's are "
      "taken, as vLLM and SGLang read it; TensorRT-LLM reads hf_quant_config.json first");
}

// DeepSeek-V4: experts of 4 bits with a scale of a byte per 32 elements, beside blocks of FP8
// (inference/model.py); those that a tool has made others of are listed as such.
void of_four_bits(Checkpoint& c) {
  const MatrixType blocks(Dtype::fp8_block), stored{Dtype::mxfp4, Dtype::fp8};
  if (c.experts == blocks) c.experts = stored;
  if (c.drafts && c.drafts->experts == blocks) c.drafts->experts = stored;
  if (c.drafts && *c.drafts == drafts_as_model(c)) c.drafts.reset();
}

Model import(const Document& document, const std::string& name, const std::string& file_name,
             const std::string& as) {
  const Reader file = document.root();
  file.allow_other_keys();
  if (const auto why = not_a_file_name(name))
    file.fault("the name of the model, from that of the file or folder, " + *why,
               {"expected a plain file name; rename the folder that holds config.json"});
  const Family& family = choose_family(document, as);
  const bool forced = !as.empty();
  Import in = enter(file, family, forced);
  in.m.name = name;
  for (const char* key : {"model_type", "architectures", "quantization_config", "compression_config"})
    in.understood.emplace(key);
  in.m.architecture = read_architectures(file, family, forced);
  if (forced)
    in.note(fmt::format("read as {}, as {} says: what it does not read is ignored", as, argument_name("as")));
  family.read(in);
  refuse_others(in, forced);
  document.finish();
  for (const auto& rule : in.rules) rule();
  document.finish();
  read_vision(in, file, family);
  set_kinds(in);
  document.finish();
  set_drafts(in);
  for (const ModelFault& fault : check(in.m)) {
    const Reader at = locate(in, fault.field);
    at.fault(at.path().empty() ? fault.what : at.path() + ": " + fault.what);
  }
  document.finish();
  const std::optional<Reader> quantized = quantisation_of(in.root, file);
  in.m.checkpoint = quantized ? read_or_unread(*quantized, in.m) : Checkpoint{};
  const auto expert_type = in.knows("expert_dtype") ? in.find("expert_dtype") : std::nullopt;
  const bool four_bits = expert_type && expert_type->text() == "fp4";
  if (four_bits && in.m.checkpoint) of_four_bits(*in.m.checkpoint);
  if (four_bits && !quantized)
    in.note("expert_dtype fp4 is read beside a quantization_config alone, as vLLM does: there is none");
  document.finish();
  note_other_keys(in);
  in.m.source = fmt::format("Hugging Face configuration {} (model_type {})", file_name, family.model_type);
  return in.m;
}

/// Whether config.json itself says how its checkpoint is quantised.
bool describes_quantisation(const Reader& root) {
  const auto text = root.find("text_config");
  return quantisation_of(text && text->is_map() ? *text : root, root).has_value();
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

std::string unread_types(const Model& m) { return m.checkpoint ? m.checkpoint->unread : ""; }

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

Model load_hf_config(const std::filesystem::path& file, const std::string& as) {
  const Document config = Document::load_json(file);
  Model m = import(config, model_name(file), file.string(), as);
  const std::filesystem::path beside = file.parent_path() / "hf_quant_config.json";
  std::error_code error;
  if (file.filename() != "config.json" || !std::filesystem::exists(beside, error)) return m;
  const Document document = Document::load_json(beside);
  // As vLLM reads them (transformers_utils/config.py): ModelOpt writes the same into both, and where only the
  // experts were narrowed, config.json alone knows what the rest is. TensorRT-LLM reads hf_quant_config.json
  // first and warns (_torch/model_config.py, quantization/modelopt_config.py, near v1.3.0rc20).
  if (m.checkpoint && m.checkpoint->assumed.empty() && describes_quantisation(config.root())) {
    compare_descriptions(*m.checkpoint, document, m);
    return m;
  }
  document.root().allow_other_keys();
  m.checkpoint = read_or_unread(document.root(), m);
  document.finish();
  return m;
}

Model parse_hf_config(const std::string& file, const std::string& text, const std::string& as) {
  return import(Document::parse_json(file, text), model_name(file), file, as);
}

}  // namespace shardline
