#include "planner/engines/checkpoints.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <optional>
#include <string_view>

#include "models/model/catalog.hpp"
#include "planner/engines/model_names.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

/// Which matrices of a checkpoint have the type that it is named by; the others are in BF16. own: as its
/// maker stores them (of_maker). among_blocks: routed experts, beside blocks of FP8. unknown: nobody here has
/// read it.
enum class Stored : std::uint8_t { own, all_layers, feed_forward, among_blocks, unknown };

/// Of a model the first is its maker's own.
struct Published {
  std::string_view model;
  Dtype stored;
  std::string_view repository;
  Stored matrices = Stored::own;
  std::optional<Dtype> kv =
      {};  // nothing: the files of makers' own leave it to the engine, others nobody here has read
};

// Of the models' own makers as models/catalog names them, and of NVIDIA's Model Optimizer: NVFP4 of
// Llama-3.1-405B, DeepSeek-R1 and Qwen3-235B-A22B and FP8 of Llama-3.1 are named in the READMEs of
// NVIDIA/TensorRT-Model-Optimizer and NVIDIA/TensorRT-LLM and (nvidia/DeepSeek-R1-FP4) in sgl-project/sglang
// docs/advanced_features/attention_backend.md:139@49e384ce9d. Llama-3.3-70B has the config.json of
// Llama-3.1-70B (ai-dynamo/aiconfigurator
// src/aiconfigurator/model_configs/meta-llama--Llama-3.3-70B-Instruct_config.json
// @f577ab843), DeepSeek-V3 that of DeepSeek-R1 (the same, deepseek-ai--DeepSeek-V3_config.json @095f58a51).
// Which matrices: Llama's cards, "only the weights and activations of the linear operators within
// transformers blocks are quantized"; of Llama-3.1-70B-Instruct-FP8 also hf_quant_config.json as
// aiconfigurator bundles it
// @095f58a51, with kv_cache_quant_algo FP8. DeepSeek-R1-FP4: NVIDIA/Model-Optimizer issue 150, TensorRT-LLM
// tech blog 1. Makers' own: quantization_config of the config.json that aiconfigurator bundles @095f58a51,
// without which they are in its dtype (MiniMax-M3, Qwen3.5, Llama-4-Maverick: bfloat16). DeepSeek-V4-Pro's
// has blocks of FP8 and expert_dtype fp4; DeepSeek-V4-Flash's is cited by those who convert it
// (nsparks/DeepSeek-V4-Flash-FP4-FP8-GGUF: FP8 in blocks of 128, experts in MXFP4), and NVIDIA's NVFP4 of it
// keeps expert_dtype fp4. Kimi-K3's ignores all but the routed experts, and quantises no activations.
// Models of the catalogue that are not here have a checkpoint whose types nobody here has read.
constexpr std::array kPublished{
    Published{"deepseek-r1", Dtype::fp8_block, "deepseek-ai/DeepSeek-R1"},
    Published{"deepseek-r1", Dtype::fp4, "nvidia/DeepSeek-R1-FP4", Stored::feed_forward},
    Published{"deepseek-r1", Dtype::fp8_block, "deepseek-ai/DeepSeek-V3"},
    Published{"deepseek-v3.2", Dtype::fp8_block, "deepseek-ai/DeepSeek-V3.2"},
    Published{"deepseek-v4-flash", Dtype::mxfp4, "deepseek-ai/DeepSeek-V4-Flash", Stored::among_blocks},
    Published{"deepseek-v4-pro", Dtype::mxfp4, "deepseek-ai/DeepSeek-V4-Pro", Stored::among_blocks},
    Published{"kimi-k2", Dtype::fp8_block, "moonshotai/Kimi-K2-Instruct"},
    Published{"kimi-k3", Dtype::mxfp4, "moonshotai/Kimi-K3"},
    Published{"mimo-v2-flash", Dtype::fp8_block, "XiaomiMiMo/MiMo-V2-Flash"},
    Published{"minimax-m2.5", Dtype::fp8_block, "MiniMaxAI/MiniMax-M2.5"},
    Published{"minimax-m3", Dtype::bf16, "MiniMaxAI/MiniMax-M3"},
    Published{"gpt-oss-120b", Dtype::mxfp4, "openai/gpt-oss-120b"},
    Published{"gpt-oss-20b", Dtype::mxfp4, "openai/gpt-oss-20b"},
    Published{"llama-3.1-405b", Dtype::bf16, "meta-llama/Llama-3.1-405B-Instruct"},
    Published{"llama-3.1-405b", Dtype::fp8, "nvidia/Llama-3.1-405B-Instruct-FP8", Stored::all_layers},
    Published{"llama-3.1-405b", Dtype::fp4, "nvidia/Llama-3.1-405B-Instruct-FP4", Stored::all_layers},
    Published{"llama-3.1-70b", Dtype::bf16, "meta-llama/Llama-3.1-70B-Instruct"},
    Published{"llama-3.1-70b", Dtype::bf16, "meta-llama/Llama-3.3-70B-Instruct"},
    Published{"llama-3.1-70b", Dtype::fp8, "nvidia/Llama-3.1-70B-Instruct-FP8", Stored::all_layers,
              Dtype::fp8},
    Published{"llama-3.1-8b", Dtype::bf16, "meta-llama/Llama-3.1-8B-Instruct"},
    Published{"llama-3.1-8b", Dtype::fp8, "nvidia/Llama-3.1-8B-Instruct-FP8", Stored::all_layers},
    Published{"llama-4-maverick", Dtype::bf16, "meta-llama/Llama-4-Maverick-17B-128E-Instruct"},
    Published{"qwen3.5-397b-a17b", Dtype::bf16, "Qwen/Qwen3.5-397B-A17B"},
    Published{"qwen3-235b-a22b", Dtype::bf16, "Qwen/Qwen3-235B-A22B"},
    Published{"qwen3-235b-a22b", Dtype::fp8_block, "Qwen/Qwen3-235B-A22B-FP8"},
    Published{"qwen3-235b-a22b", Dtype::fp4, "nvidia/Qwen3-235B-A22B-FP4", Stored::unknown},
};

constexpr std::string_view kTypesOf = "types of ";

std::string not_read(const std::string& repository) {
  return fmt::format("{}{} not read", kTypesOf, repository);
}

// "owner/name". Neither begins with a dash or a dot ("-o/x" would be an option where servers are started):
// the hub refuses such (huggingface_hub, validate_repo_id).
bool in_form_of_repository(const std::string& name) {
  constexpr std::string_view kSigns = "-_.", kNotFirst = "-.";
  const auto slash = name.find('/');
  const auto fine = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kSigns.find(c) != std::string_view::npos ||
           c == '/';
  };
  return slash != std::string::npos && slash > 0 && slash + 1 < name.size() &&
         kNotFirst.find(name.front()) == kNotFirst.npos &&
         kNotFirst.find(name[slash + 1]) == kNotFirst.npos &&
         name.find('/', slash + 1) == std::string::npos && std::all_of(name.begin(), name.end(), fine);
}

// "Hugging Face tiiuae/falcon-7b config.json", as the sources of the catalogue are written.
std::string named_in(const std::string& source) {
  constexpr std::string_view before = "Hugging Face ", after = " config.json";
  const auto begin = source.find(before);
  if (begin == std::string::npos) return "";
  const auto from = begin + before.size(), to = source.find(after, from);
  if (to == std::string::npos) return "";
  const std::string name = source.substr(from, to - from);
  return in_form_of_repository(name) ? name : "";
}

// Names of repositories are found in either case on Hugging Face.
bool alike(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

// Meta's repositories of Llama 3.1 were named Meta-Llama-3.1-...; Hugging Face leads from the one name to the
// other (oumi-ai/oumi pull request 1357).
std::string present_name(const std::string& repository) {
  constexpr std::string_view kFormer = "meta-llama/Meta-Llama-3.1-", kPresent = "meta-llama/Llama-3.1-";
  const bool former = repository.size() > kFormer.size() &&
                      alike(std::string_view(repository).substr(0, kFormer.size()), kFormer);
  return former ? std::string(kPresent) + repository.substr(kFormer.size()) : repository;
}

std::string with_own_files(const std::string& repository) {
  return fmt::format(
      "give its files: hf download {} config.json hf_quant_config.json --local-dir DIR, then ./DIR (hf auth "
      "login first where its owner grants access)",
      repository);
}

// What an unknown repository may be: quantised weights of one that is known, another spelling of one, or else
// those of its family.
std::vector<std::string> meant_by(const std::string& repository, const std::vector<std::string>& known) {
  const auto same = [](const std::string& name) {
    return [&name](const std::string& other) { return same_base(name, other); };
  };
  if (const auto at = std::find_if(known.begin(), known.end(), same(repository)); at != known.end())
    return {fmt::format("did you mean {}?", *at)};
  if (const auto q = quantised_name(repository)) {
    const auto at = std::find_if(known.begin(), known.end(), same(q->base));
    if (at != known.end())
      return {fmt::format(
          "{} is known, with weights in {}: {} {}; which matrices {} leaves in other types, nobody here "
          "has read",
          *at, q->here, *at, argument_given("set", "precision.weights=" + q->here), q->types)};
  }
  std::vector<std::string> family, all = expected_one_of(repository, known);
  const std::string asked = family_of(repository);
  std::copy_if(known.begin(), known.end(), std::back_inserter(family),
               [&](const std::string& other) { return !asked.empty() && family_of(other) == asked; });
  if (family.empty())
    all.erase(all.begin());  // all that are known are too many to read
  else
    all.front() = fmt::format("known of this family: {}", fmt::join(family, ", "));
  return all;
}

// FP8 in blocks: all but the router and the head (modules_to_not_convert of DeepSeek, Kimi and Qwen's files).
// MXFP4: the routed experts alone (gpt-oss: vLLM quantization/mxfp4.py; Kimi-K3).
Checkpoint of_maker(Dtype stored) {
  Checkpoint out;
  SL_CHECK(stored == Dtype::bf16 || stored == Dtype::fp8_block || stored == Dtype::mxfp4,
           "of other types a checkpoint leaves out matrices of its own choice");
  if (stored == Dtype::fp8_block)
    out.attention = out.out_proj = out.dense_ffn = out.experts = out.shared = stored;
  if (stored == Dtype::mxfp4) out.experts = stored;
  return out;
}

Checkpoint types_of(const Published& p) {
  Checkpoint out = p.matrices == Stored::own ? of_maker(p.stored) : Checkpoint{};
  if (p.matrices == Stored::all_layers) out.attention = out.out_proj = p.stored;
  if (p.matrices == Stored::all_layers || p.matrices == Stored::feed_forward)
    out.dense_ffn = out.experts = out.shared = p.stored;
  if (p.matrices == Stored::among_blocks) {  // DeepSeek-V4 computes them in FP8 (inference/model.py)
    out = of_maker(Dtype::fp8_block);
    out.experts = {p.stored, Dtype::fp8};
  }
  out.kv = p.kv;
  return out;
}

Dtype main_type(const Case& c) {
  return kernel_type(c.precision.of(has_experts(c.model) ? Module::experts : Module::dense_ffn).weights);
}

}  // namespace

Checkpoint checkpoint_by_default(const Model& model) {
  const auto* const own = std::find_if(kPublished.begin(), kPublished.end(),
                                       [&](const Published& p) { return p.model == model.name; });
  if (own != kPublished.end()) {
    SL_CHECK(own->matrices != Stored::unknown, "of a model the first is its maker's own, which was read");
    Checkpoint out = types_of(*own);
    out.assumed = own->repository;
    return out;
  }
  Checkpoint out;
  const std::string source = named_in(model.source);
  out.assumed = source.empty() ? "one in bf16" : not_read(source) + ": BF16 assumed";
  return out;
}

bool looks_like_repository(const std::string& name) {
  std::error_code error;
  return in_form_of_repository(name) && !name.ends_with(".yaml") && !name.ends_with(".yml") &&
         !name.ends_with(".json") && !std::filesystem::exists(name, error);
}

bool names_checkpoint(const std::string& assumed) {
  return !assumed.empty() && !assumed.starts_with(kTypesOf);
}

Model published_model(const std::string& asked, const std::filesystem::path& catalog_dir) {
  const std::string repository = present_name(asked);
  const auto same = [&](std::string_view other) { return alike(other, repository); };
  std::vector<std::string> known;
  for (const Published& p : kPublished) {
    known.emplace_back(p.repository);
    if (!same(p.repository)) continue;
    if (p.matrices == Stored::unknown)
      throw UserError({Diagnostic{
          {},
          fmt::format("which matrices of {} are in {} is not known here", p.repository, to_string(p.stored)),
          {"or " + with_own_files(repository)}}});
    Model m = load_model(std::string(p.model), catalog_dir);
    m.checkpoint = types_of(p);
    m.source = fmt::format("Hugging Face {} config.json; {}", p.repository, m.source);  // which one is served
    return m;
  }
  for (const std::string& name : catalog_names(catalog_dir)) {
    Model m = load_model(name, catalog_dir);
    const std::string source = named_in(m.source);
    if (source.empty()) continue;
    known.push_back(source);
    if (!same(source)) continue;
    m.checkpoint = checkpoint_by_default(m);
    if (names_checkpoint(m.checkpoint->assumed)) m.checkpoint->assumed.clear();
    return m;
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  std::vector<std::string> details = meant_by(repository, known);
  details.push_back((details.empty() ? "" : "or ") + with_own_files(repository));
  throw UserError({Diagnostic{
      {},
      fmt::format("unknown model {}: no such folder, and no configuration of such a repository is known here",
                  asked),
      details}});
}

std::vector<std::string> repositories_begun_by(const std::string& name) {
  constexpr std::size_t kShortest = 6;  // "llama" alone begins most of them
  std::vector<std::string> out;
  if (name.size() < kShortest) return out;
  const std::string present =
      present_name("meta-llama/" + name).substr(std::string_view("meta-llama/").size());
  for (const Published& p : kPublished) {
    const std::string_view own = p.repository.substr(p.repository.find('/') + 1);
    if (p.matrices == Stored::unknown || !alike(own.substr(0, present.size()), present)) continue;
    if (own.size() == present.size())
      return {std::string(p.repository)};  // DeepSeek-V3, of DeepSeek-V3.1, too
    out.emplace_back(p.repository);
  }
  return out;
}

std::string checkpoint_of(const Case& c) {
  bool known = false;
  const std::string own = named_in(c.model.source);
  for (const Published& p : kPublished) {
    if (p.repository == own && p.stored == main_type(c)) return own;
  }
  for (const Published& p : kPublished) {
    if (p.model != c.model.name) continue;
    if (p.stored == main_type(c)) return std::string(p.repository);
    known = true;
  }
  // Of models that are not listed the source's own checkpoint is taken to be in BF16 (types_not_read).
  return !known && main_type(c) == Dtype::bf16 ? named_in(c.model.source) : "";
}

bool runs_repository_code(const Case& c) {
  constexpr std::string_view kOwner = "moonshotai/";
  return checkpoint_of(c).starts_with(kOwner) || named_in(c.model.source).starts_with(kOwner);
}

std::optional<Dtype> checkpoint_cache(const Case& c) {
  const std::string repository = checkpoint_of(c);
  const auto* const at = std::find_if(kPublished.begin(), kPublished.end(),
                                      [&](const Published& p) { return p.repository == repository; });
  return at == kPublished.end() ? std::nullopt : at->kv;
}

std::string cache_not_read(const Case& c) {
  const std::string repository = checkpoint_of(c);
  const bool unread = std::any_of(kPublished.begin(), kPublished.end(), [&](const Published& p) {
    return p.repository == repository && p.matrices != Stored::own && p.matrices != Stored::among_blocks &&
           !p.kv;
  });
  return unread ? repository : "";
}

std::vector<PublishedCheckpoint> published_checkpoints(const Model& model) {
  std::vector<PublishedCheckpoint> out;
  for (const Published& p : kPublished) {
    if (p.model != model.name || p.matrices == Stored::unknown) continue;
    const bool whole =
        p.matrices == Stored::all_layers || (p.matrices == Stored::own && p.stored != Dtype::mxfp4);
    out.push_back({std::string(p.repository), p.stored, whole, types_of(p)});
  }
  return out;
}

std::string types_not_read(const Case& c) {
  const std::string repository = checkpoint_of(c);
  const bool read = std::any_of(kPublished.begin(), kPublished.end(), [&](const Published& p) {
    return p.repository == repository && p.matrices != Stored::unknown;
  });
  if (repository.empty() || read) return "";
  return not_read(repository) + (c.precision.assumed.weights ? ": BF16 assumed" : "");
}

std::string stored_otherwise(const Case& c) {
  const std::string repository = checkpoint_of(c);
  const auto* const at = std::find_if(kPublished.begin(), kPublished.end(), [&](const Published& p) {
    return p.repository == repository && p.matrices != Stored::unknown;
  });
  if (at == kPublished.end()) return "";
  const Checkpoint own = types_of(*at);
  std::string out;
  const auto compare = [&](const char* what, Module m, const MatrixType& stored) {
    if (kernel_type(c.precision.of(m).weights) == kernel_type(stored.weights)) return;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", what, to_string(stored.weights));
  };
  compare("attention", Module::attention, own.attention);
  compare("output projection", Module::out_proj, own.out_proj);
  if (has_dense(c.model)) compare("dense FFN", Module::dense_ffn, own.dense_ffn);
  if (has_experts(c.model)) compare("experts", Module::experts, own.experts);
  const bool shared = std::any_of(c.model.ffns.begin(), c.model.ffns.end(),
                                  [](const FeedForward& f) { return f.shared_experts > 0; });
  if (shared) compare("shared experts", Module::shared_experts, own.shared);
  compare("LM head", Module::head, own.head);
  return out;
}

std::string stored_types(const Case& c) {
  const auto type = [&](Module m) { return to_string(kernel_type(c.precision.of(m).weights)); };
  std::string out = fmt::format("attention {}", type(Module::attention));
  if (has_dense(c.model)) out += fmt::format(", dense FFN {}", type(Module::dense_ffn));
  if (has_experts(c.model)) out += fmt::format(", experts {}", type(Module::experts));
  return out + fmt::format(", LM head {}", type(Module::head));
}

}  // namespace shardline
