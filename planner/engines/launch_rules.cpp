#include "planner/engines/launch_rules.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <set>

#include "planner/engines/dispatch_room.hpp"
#include "planner/layers/share.hpp"
#include "planner/layers/stages.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline {

namespace {

constexpr int kBlock = 128;        // of block FP8, both ways
constexpr int kVocabPadding = 64;  // DEFAULT_VOCAB_PADDING_SIZE of vLLM and SGLang

std::string ranks_text(int ranks) { return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"); }

// A matrix side that `ranks` share, in whole blocks of each.
Complaint cut(const char* what, long long width, int ranks) {
  if (width % ranks == 0 && width / ranks % kBlock == 0) return std::nullopt;
  return fmt::format("{} of {} over {} cut blocks of {}", what, width, ranks_text(ranks), kBlock);
}

Complaint first_of(std::initializer_list<Complaint> all) {
  for (const Complaint& c : all) {
    if (c) return c;
  }
  return std::nullopt;
}

// Ranks beyond the KV heads hold copies of one.
Complaint cut_gqa(const Attention& a, int ranks, bool qkv) {
  const int kv = std::max(a.kv_heads / ranks, 1);
  Complaint out;
  if (qkv)
    out = first_of({cut("queries", static_cast<long long>(a.q_heads) * a.head_dim, ranks),
                    cut("keys", static_cast<long long>(kv) * a.head_dim, 1),
                    cut("values", static_cast<long long>(kv) * value_width(a), 1)});
  if (!out && ranks > 1)
    out = cut("attention outputs", static_cast<long long>(a.q_heads) * value_width(a), ranks);
  return out;
}

Complaint cut_mla(const Attention& a, int ranks) {
  if (ranks == 1) return std::nullopt;
  const long long heads = a.q_heads;
  return first_of({cut("queries", heads * (a.nope_dim + a.rope_dim), ranks),
                   cut("keys and values", heads * (a.nope_dim + a.v_dim), ranks),
                   cut("attention outputs", heads * a.v_dim, ranks)});
}

bool in_blocks(ModuleType t) { return t.weights == Dtype::fp8_block; }

std::string layout_text(int dp, int cache, int cp, int tpa) {
  return fmt::format("{} attention group{} of {}{}{}", dp, dp == 1 ? "" : "s", ranks_text(tpa),
                     cp > 1 ? fmt::format(" x {} context-parallel ones", cp) : "",
                     cache > 1 ? fmt::format(" x {} cache shards", cache) : "");
}

}  // namespace

bool launched_as(const Plan& p, LaunchedAs feature) { return strategy(p.strategy).launched_as == feature; }

std::string option_text(const Plan& p, std::string_view key) {
  for (const Option* option : strategy(p.strategy).options) {
    if (key == option->key) return value_text(*option, p.options);
  }
  return "";
}

int sharers(const Case& c, const Plan& p) {
  return strategy(p.strategy).decodes ? cache_share(c, first_attention(c.model), p).sharers.size : 1;
}

Complaint other_attention(const Case& c, const Plan& p, const EngineLayout& e) {
  if (p.pp != e.pp) return fmt::format("{} stages become {}", p.pp, e.pp);
  if (p.dp != e.dp || p.kvp != e.kvp || p.cp != e.cp || p.tpa != e.tpa)
    return fmt::format("{} become {}", layout_text(p.dp, p.kvp, p.cp, p.tpa),
                       layout_text(e.dp, e.kvp, e.cp, e.tpa));
  if (const int own = sharers(c, p); own != e.sharers)
    return fmt::format("a cache that {} share is shared by {}", own, e.sharers);
  return std::nullopt;
}

Complaint other_experts(const Case& c, const Plan& p, const EngineLayout& e) {
  if (!has_experts(c.model) || (p.ep == e.ep && p.tpf == e.tpf)) return std::nullopt;
  return fmt::format("ep={},tpf={} becomes ep={},tpf={}", p.ep, p.tpf, e.ep, e.tpf);
}

Complaint other_dense(const Case& c, const Plan& p, const EngineLayout& e) {
  const int own = dense_ffn_ranks(p);
  if (!has_dense(c.model) || (p.dp == 1 && p.dense_tp == 0) || own == e.dense) return std::nullopt;
  return fmt::format("dense layers over {} run over {}", ranks_text(own), e.dense);
}

Complaint uneven_halves(const Plan& prefill, const Plan& decode) {
  if (prefill.tpa % decode.tpa == 0 || decode.tpa % prefill.tpa == 0) return std::nullopt;
  return fmt::format("prompts over {} ranks, answers over {}", prefill.tpa, decode.tpa);
}

Complaint uneven_heads(const Case& c, int ranks, bool copies_group) {
  for (const Attention& a : c.model.attentions) {
    if (a.q_heads % ranks != 0) return fmt::format("{} query heads over {}", a.q_heads, ranks_text(ranks));
    // Each rank has whole key heads with their value heads: num_k_heads // tp_size in Qwen3-Next's model of
    // vllm (model_executor/models/qwen3_next.py), sglang (srt/models/qwen3_next.py) and TensorRT-LLM
    // (_torch/models/modeling_qwen3_next.py).
    if (a.delta && a.delta->key_heads % ranks != 0)
      return fmt::format("{} key heads of linear attention over {}", a.delta->key_heads, ranks_text(ranks));
    // vllm model_executor/layers/mamba/mamba_mixer2.py and sglang layers/attention/mamba/mamba.py copy the
    // group of a layer that has one, and no others ("num_groups must equal 1").
    if (a.mamba && a.mamba->groups % ranks != 0 && !(copies_group && a.mamba->groups == 1))
      return fmt::format("{} groups of Mamba-2 over {}", a.mamba->groups, ranks_text(ranks));
  }
  return std::nullopt;
}

Complaint uneven_kv_heads(const Case& c, int ranks) {
  for (const Attention& a : c.model.attentions) {
    if (a.none() || a.recurrent() || has_latents(a)) continue;
    const bool even = ranks >= a.kv_heads ? ranks % a.kv_heads == 0 : a.kv_heads % ranks == 0;
    if (!even) return fmt::format("{} KV heads over {}", a.kv_heads, ranks_text(ranks));
  }
  return std::nullopt;
}

Complaint uneven_widths(const Case& c, int dense, int tpf) {
  for (const FeedForward& f : c.model.ffns) {
    const int ranks = f.dense() ? dense : tpf;
    if (!f.none() && f.inner % ranks != 0)
      return fmt::format("{} of width {} over {}", f.dense() ? "a dense network" : "experts", f.inner,
                         ranks_text(ranks));
  }
  return std::nullopt;
}

Complaint uneven_vocabulary(const Case& c, int ranks) {
  const int padded = (c.model.vocab + kVocabPadding - 1) / kVocabPadding * kVocabPadding;
  if (padded % ranks == 0) return std::nullopt;
  return fmt::format("a vocabulary of {}, padded to {}, over {}", c.model.vocab, padded, ranks_text(ranks));
}

Complaint uneven_experts(const Case& c, int ep) {
  for (const FeedForward& f : c.model.ffns) {
    if (f.routed() && f.experts % ep != 0) return fmt::format("{} experts over ep={}", f.experts, ep);
  }
  return std::nullopt;
}

Complaint cut_blocks(const Case& c, const Cuts& cuts, bool (*whole)(ModuleType)) {
  const auto asked = [&](Module m) { return (whole ? whole : in_blocks)(c.precision.of(m)); };
  if (asked(Module::attention)) {
    for (const Attention& a : c.model.attentions) {
      if (a.none() || a.recurrent()) continue;
      if (auto out = has_latents(a) ? cut_mla(a, cuts.attention) : cut_gqa(a, cuts.attention, cuts.qkv))
        return out;
    }
  }
  for (const FeedForward& f : c.model.ffns) {
    if (f.none()) continue;
    if (f.dense()) {
      if (!asked(Module::dense_ffn) || (cuts.dense == 1 && !cuts.gate_up)) continue;
      if (auto out = cut("a dense network", f.inner, cuts.dense)) return out;
      continue;
    }
    if (asked(Module::experts)) {
      if (auto out = cut("experts", f.inner, cuts.experts)) return out;
    }
    if (f.shared_experts > 0 && asked(Module::shared_experts) && (cuts.shared > 1 || cuts.gate_up)) {
      if (auto out = cut("shared experts", f.shared_width(), cuts.shared)) return out;
    }
  }
  return std::nullopt;
}

Complaint more_stages(const Case& c, const Plan& p, std::span<const ReadArchitecture> of_one) {
  if (p.pp == 1) return std::nullopt;
  const auto at = std::find_if(of_one.begin(), of_one.end(),
                               [&](const ReadArchitecture& a) { return c.model.architecture == a.name; });
  if (at == of_one.end()) return std::nullopt;
  return fmt::format("{} stages of {} ({}, {}): pp=1", p.pp, c.model.name, at->name, at->place);
}

Complaint part_of_tray(const Case& c, const Plan& p) {
  const int tray = c.system.fabric.gpus_per_tray(), gpus = p.gpus();
  const bool whole = gpus > tray ? gpus % tray == 0 : std::has_single_bit(static_cast<unsigned>(gpus));
  if (c.any_gpus || whole) return std::nullopt;
  return fmt::format("{} GPUs, of trays or nodes of {}; {} lifts that", gpus, tray,
                     argument_name("any-gpus"));
}

Complaint no_machines(const Case& c, const Plan& p,
                      std::optional<Machines> (*machines)(const Case&, const Plan&)) {
  if (machines(c, p)) return std::nullopt;
  const int most = gpus_per_machine(c.system), gpus = p.gpus(), parts = p.dp > 1 ? p.dp : p.pp;
  const std::string plan =
      parts > 1 ? fmt::format("{} {} of {} GPUs", parts, p.dp > 1 ? "groups" : "stages", gpus / parts)
                : fmt::format("{} GPUs", gpus);
  if (gpus % most == 0)
    return fmt::format("{}: neither whole machines of {} to each nor whole ones to each machine", plan, most);
  return fmt::format("{} fill machines of {} unequally: {} or {} GPUs", plan, most, gpus / most * most,
                     (gpus / most + 1) * most);
}

Complaint other_expert_tokens(const Case& c, const Plan& p) {
  if (!groups_share_experts(c, p)) return std::nullopt;
  const TokenExchange& e = c.engine->tokens_to_experts;
  const int domain = c.system.fabric.gpus_per_node;
  const bool gathers = p[kExpertTokens] == ExpertTokens::gather, across = p.ranks_per_stage() > domain;
  if (e.gathers == TokenExchange::Gathers::across && gathers != across)
    return gathers ? "moe_a2a=gather of ranks that one NVLink domain joins"
                   : fmt::format("dispatch and combine of {} ranks in NVLink domains of {}: moe_a2a=gather",
                                 p.ranks_per_stage(), domain);
  if (!gathers && e.of_server && serves_both(c))
    return std::string(
        "dispatch and combine in a server that prefills and decodes: moe_a2a=gather, or pools");
  return std::nullopt;
}

Complaint unheld_width(const Case& c, const Plan& p, bool pads) {
  if (!groups_share_experts(c, p) || p[kExpertTokens] == ExpertTokens::gather || c.batch.prefills())
    return std::nullopt;
  const long long hidden = c.model.hidden, held = dispatched_width(hidden);
  if (held == hidden || (pads && held > 0)) return std::nullopt;
  return fmt::format("hidden size {} of {}, which they have no instance for: moe_a2a=gather", hidden,
                     c.model.name);
}

Complaint missing_feature(const LaunchRules& rules, const Plan& p) {
  const LaunchedAs feature = strategy(p.strategy).launched_as;
  if (std::find(rules.features.begin(), rules.features.end(), feature) != rules.features.end())
    return std::nullopt;
  const std::vector<std::string> others = engines_with(feature);
  if (others.empty()) return fmt::format("no engine has {}", to_string(p.strategy));
  return fmt::format("it has no {}; {} {}", to_string(feature), fmt::join(others, " and "),
                     others.size() == 1 ? "has" : "have");
}

std::optional<CaseComplaint> too_long(const Case& c, const LaunchRules& rules) {
  if (c.any_context || c.longest() <= c.model.max_context) return std::nullopt;
  return CaseComplaint{
      "tokens",
      fmt::format("{} tokens are more than the {} of {}", c.longest(), c.model.max_context, c.model.name),
      fmt::format("at most {} tokens, or any_context: true, which {} starts with {}=1", c.model.max_context,
                  rules.title, rules.long_context)};
}

std::optional<CaseComplaint> widened_weights(const Case& c) {
  if (architecture_of(c.system.device) == Architecture::blackwell) return std::nullopt;
  for (const KeptModule& k : kept_modules(c.model)) {
    const ModuleType t = c.precision.of(k.module);
    const bool narrow =
        t.weights == Dtype::fp4 || t.weights == Dtype::fp4_unscaled || t.weights == Dtype::mxfp4;
    if (narrow && t.math != Dtype::bf16 && t.math != arithmetic_of(t.weights))
      return CaseComplaint{k.math_key,
                           fmt::format("{} of {} in {}, computed in {} on {}", k.name, c.model.name,
                                       to_string(t.weights), to_string(t.math), c.system.device.name),
                           fmt::format("bf16: precision.math, or {} of {} alone", k.math_key, k.name)};
  }
  return std::nullopt;
}

std::optional<CaseComplaint> widened_unmeasured(const Case& c, const char* kernels) {
  for (const KeptModule& k : kept_modules(c.model)) {
    const ModuleType t = c.precision.of(k.module);
    if (t.math != arithmetic_of(t.weights) || c.system.device.achieved(t.math) > FlopsPerSecond(0)) continue;
    // Both engines ask for compute capability 8.9 of ModelOpt's FP8, which is static as few others are.
    const char* const but = t.weights == Dtype::fp8 ? ", but for ModelOpt's, which it refuses" : "";
    return CaseComplaint{
        k.weights_key,
        fmt::format("{} of {} in {} on {} run by its {} kernels, on weights alone (W{}A16){}; no measurement "
                    "here has them",
                    k.name, c.model.name, to_string(t.weights), c.system.device.name, kernels,
                    element_bits(t.weights), but),
        fmt::format(
            "a checkpoint in {}, or a system of {}; precision: {{math: bf16}} prices products of BF16 "
            "with fewer bytes in their place, extrapolated",
            c.system.device.achieved(Dtype::fp8) > FlopsPerSecond(0) ? "fp8 or bf16" : "bf16",
            element_bits(t.weights) == 4 ? "Blackwell" : "Hopper or Blackwell")};
  }
  return std::nullopt;
}

std::vector<KeptModule> kept_modules(const Model& m) {
  std::vector<KeptModule> out{
      {Module::attention, "precision.attention_weights", "precision.attention_math", "projections"}};
  if (has_dense(m))
    out.push_back({Module::dense_ffn, "precision.ffn_weights", "precision.ffn_math", "dense networks"});
  if (has_experts(m))
    out.push_back({Module::experts, "precision.expert_weights", "precision.expert_math", "experts"});
  if (std::any_of(m.ffns.begin(), m.ffns.end(), [](const FeedForward& f) { return f.shared_experts > 0; }))
    out.push_back(
        {Module::shared_experts, "precision.shared_weights", "precision.shared_math", "shared experts"});
  return out;
}

bool has_sparse_latents(const Model& m) { return has_latents(m) && has_sparse(m); }

Complaint shared_choice_stage(const Case& c, const Plan& p) {
  for (int stage = 1; shares_index(c.model) && stage < p.pp; ++stage) {
    const int first = layers_of_stage(c, p.pp, stage).first;
    if (takes_choice(c.model, first))
      return fmt::format("stage {} of {} begins on layer {} of {}, which takes an earlier one's choice",
                         stage + 1, p.pp, first, c.model.name);
  }
  return std::nullopt;
}

std::optional<CaseComplaint> fp8_under_triton(const Case& c) {
  if (kernel_type(c.precision.kv) != Dtype::fp8 || architecture_of(c.system.device) != Architecture::ampere)
    return std::nullopt;
  const bool sinks = std::any_of(c.model.attentions.begin(), c.model.attentions.end(),
                                 [](const Attention& a) { return a.sinks && !a.compression; });
  if (!sinks && (!has_latents(c.model) || has_sparse(c.model))) return std::nullopt;
  return CaseComplaint{
      "precision.kv",
      fmt::format("{} has {}, which {} reads by Triton's kernels, from caches in 16 bits alone", c.model.name,
                  sinks ? "sinks" : "MLA", c.system.device.name),
      "bf16"};
}

std::optional<CaseComplaint> index_device(const Case& c) {
  const bool chooses = has_sparse_latents(c.model) || has_compression(c.model);
  if (!chooses || architecture_of(c.system.device) != Architecture::ampere) return std::nullopt;
  return CaseComplaint{
      "models",
      fmt::format("{} has sparse attention, {} is older than Hopper", c.model.name, c.system.device.name),
      "a system of Hopper or Blackwell"};
}

std::optional<CaseComplaint> fp32_cache(const Case& c) {
  if (c.precision.kv != Dtype::fp32) return std::nullopt;
  return CaseComplaint{"precision.kv", "no decode kernel reads a cache in fp32", "bf16 or fp8"};
}

std::optional<CaseComplaint> compressed_cache(const Case& c) {
  if (!has_compression(c.model) || kernel_type(c.precision.kv) == Dtype::fp8) return std::nullopt;
  return CaseComplaint{"precision.kv",
                       fmt::format("a cache in {} of {}, whose attention reads rows in FP8 alone",
                                   to_string(c.precision.kv), c.model.name),
                       "fp8, as --set precision.kv=fp8 on the command line"};
}

namespace {

// What the rules "heads" and "kv_heads" of all three engines ask of attention's TP.
Complaint unequal(const Case& c, int tpa) {
  if (auto complaint = uneven_heads(c, tpa)) return complaint;
  return uneven_kv_heads(c, tpa);
}

// "tpa=16, tpa=24 and tpa=32"
std::string sizes_text(const std::set<int>& sizes) {
  std::string out;
  for (auto at = sizes.begin(); at != sizes.end(); ++at) {
    const bool last = std::next(at) == sizes.end();
    out += fmt::format("{}tpa={}", at == sizes.begin() ? "" : last ? " and " : ", ", *at);
  }
  return out;
}

}  // namespace

std::optional<Diagnostic> unequal_heads(const Case& c, std::span<const Plan> plans) {
  if (c.engine != nullptr) return std::nullopt;
  std::set<int> asked, nearest;
  std::size_t count = 0;
  for (const Plan& plan : plans) {
    if (!unequal(c, plan.tpa)) continue;
    ++count;
    asked.insert(plan.tpa);
  }
  if (asked.empty()) return std::nullopt;
  for (const int tpa : asked) {
    int below = tpa - 1, above = tpa + 1;
    while (below > 0 && unequal(c, below)) --below;
    while (above <= least_q_heads(c.model) && unequal(c, above)) ++above;
    if (below > 0) nearest.insert(below);
    if (above <= least_q_heads(c.model)) nearest.insert(above);
  }
  const std::string where =
      plans.size() > 1 ? fmt::format(" in {} of {} plans", count, plans.size()) : std::string();
  return Diagnostic{{},
                    fmt::format("no engine starts {}{}: {}; priced as the rank with most heads",
                                sizes_text(asked), where, *unequal(c, *asked.begin())),
                    {fmt::format("nearest that they start: {}", sizes_text(nearest))}};
}

}  // namespace shardline
