#include "planner/engines/draft_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

// Architectures whose modules an engine has a class for, with its name and place.
constexpr std::array kVllmModules{
    ReadArchitecture{"DeepseekV32ForCausalLM", "deepseek_mtp.py, config/speculative.py:312-322"},
    ReadArchitecture{"DeepseekV3ForCausalLM", "deepseek_mtp.py, config/speculative.py:312-322"},
    ReadArchitecture{"DeepseekV4ForCausalLM", "vllm.models.deepseek_v4, config/speculative.py:323-328"},
    ReadArchitecture{"Ernie4_5_MoeForCausalLM", "ernie_mtp.py, config/speculative.py:422-428"},
    ReadArchitecture{"Glm4MoeForCausalLM", "glm4_moe_mtp.py, config/speculative.py:390-397"},
    ReadArchitecture{"Glm4MoeLiteForCausalLM", "glm4_moe_lite_mtp.py, config/speculative.py:400-408"},
    ReadArchitecture{"GlmMoeDsaForCausalLM", "deepseek_mtp.py, config/speculative.py:312-322"},
    ReadArchitecture{"MiMoForCausalLM", "mimo_mtp.py, config/speculative.py:337-346"},
    ReadArchitecture{"MiMoV2FlashForCausalLM", "mimo_v2_mtp.py, config/speculative.py:373-388"},
    ReadArchitecture{"MiMoV2ForCausalLM", "mimo_v2_mtp.py, config/speculative.py:348-371"},
    ReadArchitecture{"MiniMaxM3ForCausalLM", "vllm.models.minimax_m3, config/speculative.py:532-560"},
    ReadArchitecture{"MiniMaxM3SparseForConditionalGeneration",
                     "vllm.models.minimax_m3, config/speculative.py:532-560"},
    ReadArchitecture{"NemotronHForCausalLM", "nemotron_h_mtp.py, config/speculative.py:434-445"},
    ReadArchitecture{"Qwen3NextForCausalLM", "qwen3_next_mtp.py, config/speculative.py:447-453"},
    ReadArchitecture{"Qwen3_5ForConditionalGeneration", "qwen3_5_mtp.py, config/speculative.py:469-489"},
    ReadArchitecture{"Qwen3_5MoeForConditionalGeneration", "qwen3_5_mtp.py, config/speculative.py:469-489"},
    ReadArchitecture{"Step3p5ForCausalLM", "step3p5_mtp.py, config/speculative.py:497-509"},
};
// Of those the classes that run in stages, by their bases.
constexpr std::array kVllmStagedModules{
    ReadArchitecture{"Glm4MoeLiteForCausalLM", "glm4_moe_lite_mtp.py:204"},
    ReadArchitecture{"NemotronHForCausalLM", "nemotron_h_mtp.py:312"},
};
// Lines are of configs/model_config.py, _config_draft_model.
constexpr std::array kSglangModules{
    ReadArchitecture{"DeepseekV32ForCausalLM", "DeepseekV3ForCausalLMNextN, 526-531"},
    ReadArchitecture{"DeepseekV3ForCausalLM", "DeepseekV3ForCausalLMNextN, 526-531"},
    ReadArchitecture{"DeepseekV4ForCausalLM", "DeepseekV4ForCausalLMNextN, 533-538"},
    ReadArchitecture{"Ernie4_5_MoeForCausalLM", "Ernie4_5_MoeForCausalLMMTP, 578-582"},
    ReadArchitecture{"Glm4MoeForCausalLM", "Glm4MoeForCausalLMNextN, 540-541"},
    ReadArchitecture{"Glm4MoeLiteForCausalLM", "Glm4MoeLiteForCausalLMNextN, 542-546"},
    ReadArchitecture{"GlmMoeDsaForCausalLM", "DeepseekV3ForCausalLMNextN, 526-531"},
    ReadArchitecture{"MiMoForCausalLM", "MiMoMTP, 560-561"},
    ReadArchitecture{"MiMoV2FlashForCausalLM", "MiMoV2MTP, 562-563"},
    ReadArchitecture{"MiMoV2ForCausalLM", "MiMoV2MTP, 562-563"},
    ReadArchitecture{"NemotronHForCausalLM", "NemotronHForCausalLMMTP, 604-609"},
    ReadArchitecture{"Qwen3MoeForCausalLM", "Qwen3MoeForCausalLMMTP, 588-590"},
    ReadArchitecture{"Qwen3NextForCausalLM", "Qwen3NextForCausalLMMTP, 584-586"},
    ReadArchitecture{"Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLMMTP, 592-598"},
    ReadArchitecture{"Qwen3_5MoeForConditionalGeneration", "Qwen3_5ForCausalLMMTP, 592-598"},
    ReadArchitecture{"Step3p5ForCausalLM", "Step3p5MTP, 564-565"},
};
// Those whose own files it takes the module from where nobody names others
// (arg_groups/speculative_hook.py:290-306).
constexpr std::array<std::string_view, 6> kSglangOwnFiles{"DeepseekV32ForCausalLM", "DeepseekV3ForCausalLM",
                                                          "DeepseekV4ForCausalLM",  "Glm4MoeForCausalLM",
                                                          "Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM"};
// modeling_speculative.py, MTPForCausalLM, by model_type: glm4_moe, deepseek_v3, deepseek_v32, glm_moe_dsa,
// exaone_moe, nemotron_h, qwen3_next.
constexpr std::array kTrtllmModules{
    ReadArchitecture{"DeepseekV32ForCausalLM", "modeling_deepseekv3.py, DeepseekV3MTP"},
    ReadArchitecture{"DeepseekV3ForCausalLM", "modeling_deepseekv3.py, DeepseekV3MTP"},
    ReadArchitecture{"Glm4MoeForCausalLM", "modeling_glm.py, Glm4MTP"},
    ReadArchitecture{"GlmMoeDsaForCausalLM", "modeling_deepseekv3.py, DeepseekV3MTP"},
    ReadArchitecture{"NemotronHForCausalLM", "modeling_nemotron_h.py, NemotronHMTP"},
    ReadArchitecture{"Qwen3NextForCausalLM", "modeling_qwen3_next.py, Qwen3NextMTP"},
};

bool drafting(const Plan& p) { return p[kDrafts] > 0; }

bool listed_module(std::span<const ReadArchitecture> list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const ReadArchitecture& a) { return name == a.name; });
}

// Of a model without a name nobody can say.
Complaint missing_module(const Case& c, const Plan& p, std::span<const ReadArchitecture> list) {
  const std::string& name = c.model.architecture;
  if (!drafting(p) || name.empty() || listed_module(list, name)) return std::nullopt;
  return fmt::format("drafts={} of {}, which it has none for: no drafts", p[kDrafts], name);
}

int module_count(const Case& c) { return c.model.drafts ? c.model.drafts->count : 0; }

bool on_hopper_alone(const Case& c) { return architecture_of(c.system.device) == Architecture::hopper; }

}  // namespace

std::optional<std::string> no_module_of(const EngineProfile& engine, const Model& m) {
  const std::span<const ReadArchitecture> list = rules_of(engine).draft_modules();
  if (!m.drafts || m.architecture.empty() || listed_module(list, m.architecture)) return std::nullopt;
  return fmt::format("{} has no class for the module that drafts for {}", title_of(engine), m.name);
}

Complaint drafts_in_stages(const Case&, const Plan& p) {
  if (!drafting(p) || p.pp == 1) return std::nullopt;
  return fmt::format("drafts={} in {} stages: pp=1, or no drafts", p[kDrafts], p.pp);
}

Complaint drafts_of_one(const Case&, const Plan& prefill, const Plan& decode) {
  if (drafting(prefill) == drafting(decode)) return std::nullopt;
  return fmt::format("drafts={} where prompts are computed, {} where answers are: {} for both",
                     prefill[kDrafts], decode[kDrafts], std::max(prefill[kDrafts], decode[kDrafts]));
}

Complaint drafts_over_states(const Case& c, const Plan& prefill, const Plan& decode) {
  if (!has_recurrence(c.model) || (!drafting(prefill) && !drafting(decode))) return std::nullopt;
  return fmt::format("drafts={} of {}, whose layers keep states: no drafts, or servers that do both",
                     std::max(prefill[kDrafts], decode[kDrafts]), c.model.name);
}

Complaint vllm_draft_model(const Case& c, const Plan& p) { return missing_module(c, p, kVllmModules); }

Complaint vllm_draft_modules(const Case& c, const Plan& p) {
  const int k = p[kDrafts], n = module_count(c);
  if (n == 0 || k <= n || k % n == 0) return std::nullopt;
  return fmt::format("drafts={} of {} modules: {} or {}", k, n, k / n * n, (k / n + 1) * n);
}

Complaint vllm_draft_stages(const Case& c, const Plan& p) {
  return listed_module(kVllmStagedModules, c.model.architecture) ? std::nullopt : drafts_in_stages(c, p);
}

Complaint vllm_draft_graphs(const Case& c, const Plan& p) {
  if (!drafting(p) || c.model.architecture != "DeepseekV32ForCausalLM") return std::nullopt;
  return fmt::format("drafts={} of {}: no drafts, or engine sglang", p[kDrafts], c.model.name);
}

Complaint vllm_draft_interleave(const Case&, const Plan& p) {
  if (!drafting(p) || !launched_as(p, LaunchedAs::dcp)) return std::nullopt;
  const std::string each = option_text(p, "interleave");
  if (each == "1") return std::nullopt;
  return fmt::format("drafts={} with {} tokens in a row on one rank: interleave=1", p[kDrafts], each);
}

Complaint vllm_draft_dcp(const Case& c, const Plan& p) {
  if (!drafting(p) || !launched_as(p, LaunchedAs::dcp) || on_hopper_alone(c)) return std::nullopt;
  return fmt::format("drafts={} under DCP on {}: no drafts, or tensor", p[kDrafts], c.system.device.name);
}

Complaint sglang_draft_model(const Case& c, const Plan& p) { return missing_module(c, p, kSglangModules); }

Complaint sglang_draft_mixed(const Case& c, const Plan& p) {
  if (!drafting(p) || c.batch.kind() != StepKind::mixed) return std::nullopt;
  return fmt::format(
      "drafts={} in steps that decode and prefill: no drafts, or prompts in steps of their own", p[kDrafts]);
}

Complaint trtllm_draft_model(const Case& c, const Plan& p) { return missing_module(c, p, kTrtllmModules); }

Complaint trtllm_draft_modules(const Case& c, const Plan& p) {
  const int n = module_count(c);
  if (n <= 1 || p[kDrafts] <= n) return std::nullopt;
  return fmt::format("drafts={} of {} modules: drafts={} at most", p[kDrafts], n, n);
}

Complaint trtllm_draft_replay(const Case& c, const Plan& p) {
  const auto mamba = [](const Attention& a) { return a.mamba.has_value(); };
  if (!drafting(p) || std::none_of(c.model.attentions.begin(), c.model.attentions.end(), mamba))
    return std::nullopt;
  return fmt::format("drafts={} of {}: no drafts, or engine vllm or sglang", p[kDrafts], c.model.name);
}

Complaint trtllm_draft_helix(const Case&, const Plan& p) {
  if (!drafting(p) || !launched_as(p, LaunchedAs::helix)) return std::nullopt;
  return fmt::format("drafts={} with kvp={}: no drafts, or tensor", p[kDrafts], p.kvp);
}

std::span<const ReadArchitecture> vllm_draft_modules_of() { return kVllmModules; }
std::span<const ReadArchitecture> sglang_draft_modules_of() { return kSglangModules; }
std::span<const ReadArchitecture> trtllm_draft_modules_of() { return kTrtllmModules; }

void put_vllm_drafts(const Case&, int k, LaunchOptions& o) {
  put(o, "--speculative-config", fmt::format(R"({{"method":"mtp","num_speculative_tokens":{}}})", k));
}

// Accepted are drafts of a chain, one at each position: --speculative-eagle-topk 1, behind which the engine
// verifies as many tokens as it drafts and one (arg_groups/speculative_hook.py:382-390 at v0.5.14).
void put_sglang_drafts(const Case& c, int k, LaunchOptions& o) {
  put(o, "--speculative-algorithm", "EAGLE");
  put(o, "--speculative-num-steps", k);
  put(o, "--speculative-eagle-topk", 1);
  put(o, "--speculative-num-draft-tokens", k + 1);
  const auto& own = kSglangOwnFiles;
  if (std::find(own.begin(), own.end(), c.model.architecture) == own.end())
    put_variable(o, "--speculative-draft-model-path", "MODEL");
}

// Both keys, which must be equal (docs/source/features/speculative-decoding.md@04c8822cc42f); where a model
// has one module it drafts all of them.
void put_trtllm_drafts(const Case&, int k, LaunchOptions& o) {
  put(o, "speculative_config.decoding_type", "MTP");
  put(o, "speculative_config.max_draft_len", k);
  put(o, "speculative_config.num_nextn_predict_layers", k);
}

namespace {

// The engine's rules of drafts alone, whatever others it has against the plan.
std::string drafts_unsaid(const Case& c, const Plan& p, const LaunchRules& engine) {
  for (const LaunchRule& rule : engine.plans) {
    if (!std::string_view(rule.id).starts_with("draft_")) continue;
    if (const auto complaint = rule.refuses(c, p)) return fmt::format("{} ({})", rule.says, *complaint);
  }
  return "";
}

}  // namespace

void put_drafts(const Case& c, const Plan& p, Deployment& d) {
  const int k = p[kDrafts];
  if (k == 0) return;
  const LaunchRules& engine = rules_named(d.profile);
  if (std::string why = drafts_unsaid(c, p, engine); !why.empty()) {
    if (d.unsaid.empty()) d.unsaid = std::move(why);
    return;
  }
  engine.put_drafts(c, k, d.options);
}

}  // namespace shardline
