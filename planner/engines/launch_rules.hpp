// The tables of rules behind launchable.hpp, one per engine, and what engines ask alike. An engine's layout
// is computed from its flags, as the engine does, and compared with the plan: a plan starts if some flags
// make its layout.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/engines/architectures.hpp"
#include "planner/engines/launch_options.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/engines/machines.hpp"

namespace shardline {

/// What is wrong with a plan, or nothing.
using Complaint = std::optional<std::string>;

struct FileMethod;  // file_methods.hpp

struct LaunchRule {
  const char* id;
  const char* says;
  const char* source;
  Complaint (*refuses)(const Case& c, const Plan& plan);
};

/// What is wrong with the case, at which key, and what would not be.
struct CaseComplaint {
  std::string key, text, instead;
};
struct CaseRule {
  const char* id;
  const char* says;
  const char* source;
  std::optional<CaseComplaint> (*refuses)(const Case& c);
};

/// What is wrong with two servers, of which one hands the caches of its prompts to the other.
struct PairRule {
  const char* id;
  const char* says;
  const char* source;
  Complaint (*refuses)(const Case& c, const Plan& prefill, const Plan& decode);
};

/// How the ranks of a stage share attention and feed-forward networks, once an engine has started.
struct EngineLayout {
  int pp = 1, dp = 1, kvp = 1, cp = 1, tpa = 1;
  int ep = 1, tpf = 1, dense = 1;
  int sharers = 1;  // ranks that share one cache by sequence
};

struct LaunchRules {
  const char* engine;   // EngineProfile::name
  const char* version;  // that they were read in
  const char* title;
  EngineLayout (*layout)(const Case& c, const Plan& plan);  // what the flags of a plan make
  /// The machines that it starts a plan on, each rank where it was priced; nullopt: there are none.
  std::optional<Machines> (*machines)(const Case& c, const Plan& plan);
  std::span<const LaunchedAs> features;
  std::span<const CaseRule> cases;
  std::span<const CaseRule> unpriced;  // cases that it starts, by kernels that nobody here has measured
  std::span<const LaunchRule> plans;
  std::span<const LaunchedAs> answers_alone;  // features of servers that get their prompts from others
  std::span<const PairRule> pairs;            // of servers that prefill and that decode
  const ArchitectureTable* architectures;     // that it has classes for
  const std::span<const FileMethod>* files;   // that it has readers for
  const char* long_context;  // variable that, set to 1, lets it start lengths beyond the model's maximum
  /// Architectures whose own modules it has classes for, with the class and its place.
  std::span<const ReadArchitecture> (*draft_modules)();
  /// Options of `drafts` tokens, one at least, of such a module. What it has against them is among `plans`,
  /// in rules whose names begin with draft_.
  void (*put_drafts)(const Case& c, int drafts, LaunchOptions& options);
  /// Tokens of a block of the cache, where it has kernels for one size alone; null: it never does.
  std::optional<int> (*block)(const Case& c) = nullptr;
  /// The same where blocks are a choice and nobody chose, which is all that launch files of some start.
  int own_block = 16;
};

/// vLLM's blocks: those of attention that chooses blocks of tokens (MiniMax-M3) are 128 tokens.
std::optional<int> vllm_block(const Case& c);
std::optional<CaseComplaint> vllm_block_size(const Case& c);
/// Of MiniMax-M3 what an engine's version lacks.
std::optional<CaseComplaint> minimax_without_fp4(const Case& c);
std::optional<CaseComplaint> minimax_in_16_bits(const Case& c);
std::optional<CaseComplaint> minimax_by_fallback(const Case& c);
Complaint minimax_in_stages(const Case& c, const Plan& plan);
/// Whether any module's weights are narrower than 16 bits.
bool quantised(const Case& c);
/// Blocks of another size than an engine has whose launch files name none (vLLM, SGLang).
std::optional<CaseComplaint> other_block(const Case& c, const LaunchRules& rules);

extern const LaunchRules kVllmRules, kSglangRules, kTrtllmRules;
std::span<const LaunchRules* const> launch_rules();
std::string title_of(const LaunchRules& rules);  // "vLLM 0.24.0"
/// Those of an engine of that name ("sglang"), which there is (checked).
const LaunchRules& rules_named(const std::string& engine);
/// Those of the profile's engine and version. Throws UserError where nobody has read them.
const LaunchRules& rules_of(const EngineProfile& engine);

/// What an engine ("sglang") has against a plan, whatever engine the case names.
std::optional<Refusal> refused_by(const std::string& engine, const Case& c, const Plan& plan);

/// In what the plan's layout is another one. Dense networks count where a plan has a choice of their ranks,
/// between groups of attention.
Complaint other_attention(const Case& c, const Plan& plan, const EngineLayout& engine);
Complaint other_experts(const Case& c, const Plan& plan, const EngineLayout& engine);
Complaint other_dense(const Case& c, const Plan& plan, const EngineLayout& engine);

/// Ranks that share one cache by sequence, in any strategy.
int sharers(const Case& c, const Plan& plan);
bool launched_as(const Plan& plan, LaunchedAs feature);
/// An option as in the plan's text; empty: its strategy does not have it.
std::string option_text(const Plan& plan, std::string_view key);

/// Two servers of which neither's attention TP divides the other's.
Complaint uneven_halves(const Plan& prefill, const Plan& decode);

/// Query heads that `ranks` do not share evenly; KV heads that they neither share nor copy evenly.
Complaint uneven_heads(const Case& c, int ranks, bool copies_group = true);
Complaint uneven_kv_heads(const Case& c, int ranks);
/// Widths of the dense networks over `dense` ranks and of each expert over `tpf`.
Complaint uneven_widths(const Case& c, int dense, int tpf);
/// The vocabulary, padded to a multiple of 64.
Complaint uneven_vocabulary(const Case& c, int ranks);
Complaint uneven_experts(const Case& c, int ep);

/// Several stages of a model whose class runs in one alone, by a list of such classes and where that is said.
Complaint more_stages(const Case& c, const Plan& plan, std::span<const ReadArchitecture> of_one);

/// Ranks over which matrices are cut, and which layers of several of them an engine asks: queries, keys and
/// values, and the first two of a network with a gate. What reads a row's parts behind them is asked always.
struct Cuts {
  int attention = 1, dense = 1, experts = 1, shared = 1;
  bool qkv = true, gate_up = true;
};
/// Block FP8 has a scale per 128 x 128 elements: blocks that a cut goes through. Of other types, too, whose
/// kernels take whole multiples of 128 rows and columns.
Complaint cut_blocks(const Case& c, const Cuts& cuts, bool (*whole)(ModuleType) = nullptr);

/// Weights in INT4 under activations in FP8 (W4A8).
inline bool in_int4_of_fp8(ModuleType t) {
  return (t.weights == Dtype::int4 || t.weights == Dtype::int4_group32) && t.math == Dtype::fp8;
}

/// Tokens that the engine carries to experts in the other way (ExpertTokens), by its profile.
Complaint other_expert_tokens(const Case& c, const Plan& plan);

/// Hidden sizes that DeepEP's kernels of few tokens have no instance for; an engine that pads takes the next
/// larger one.
Complaint unheld_width(const Case& c, const Plan& plan, bool pads);

/// Ranks that the engine puts on no machines so that each is where it was priced, and the nearest numbers of
/// GPUs that fill machines.
Complaint no_machines(const Case& c, const Plan& plan,
                      std::optional<Machines> (*machines)(const Case& c, const Plan& plan));

/// GPU counts that are neither whole trays or nodes nor a power of two inside one.
Complaint part_of_tray(const Case& c, const Plan& plan);
/// A strategy whose feature the engine does not have.
Complaint missing_feature(const LaunchRules& rules, const Plan& plan);
/// A model for whose architecture the engine has no class.
std::optional<CaseComplaint> missing_model(const Case& c, const LaunchRules& rules);
/// Requests longer than the model has positions for.
std::optional<CaseComplaint> too_long(const Case& c, const LaunchRules& rules);
/// A cache in FP32, for which no engine has kernels.
std::optional<CaseComplaint> fp32_cache(const Case& c);
/// Compressed attention (DeepSeek-V4) over a cache in another type than FP8, where kernels read no other.
std::optional<CaseComplaint> compressed_cache(const Case& c);
/// Sparse attention with an index under MLA (DeepSeek-V3.2's DSA).
bool has_sparse_latents(const Model& m);
/// A stage that begins on a layer which takes the choice of an index in an earlier stage, of engines whose
/// stages do not hand choices on.
Complaint shared_choice_stage(const Case& c, const Plan& plan);
/// That, or compressed attention, before Hopper, from which on engines have kernels for them.
std::optional<CaseComplaint> index_device(const Case& c);
/// A cache in FP8 on Ampere of MLA or of attention with sinks, for which vLLM and SGLang have Triton's
/// kernels alone there. Triton converts FP8 as both store it (e4m3, its fp8e4nv) from compute capability 8.9
/// on (triton-lang/triton python/triton/language/semantic.py, cast). Sparse attention has no kernels there at
/// all: index_device().
std::optional<CaseComplaint> fp8_under_triton(const Case& c);

/// Classes of a model's matrices whose types engines have rules for, and their keys.
struct KeptModule {
  Module module;
  const char* weights_key;
  const char* math_key;
  const char* name;
};
std::vector<KeptModule> kept_modules(const Model& m);

/// Weights in FP4 on a device without arithmetic in FP4, beside a third arithmetic, neither theirs nor 16
/// bits: kernels there widen them to 16 bits, so that no other is run.
std::optional<CaseComplaint> widened_weights(const Case& c);
/// Weights that were to be multiplied in their own type, FP4 or FP8, on a device without units for it: an
/// engine widens them to 16 bits in `kernels` ("Marlin") of its own. No such kernel was measured; a price of
/// the arithmetic that the checkpoint names would be that of another machine.
std::optional<CaseComplaint> widened_unmeasured(const Case& c, const char* kernels);

/// The hardware's rule, the same for all engines.
inline constexpr LaunchRule kWholeTrays{
    .id = "gpus",
    .says = "GPUs are handed out by whole trays or nodes, and by powers of two inside one",
    .source = "hardware/catalog, fabric.tray and fabric.gpus_per_node",
    .refuses = part_of_tray,
};

/// Of plans of bare kernels, which no engine is asked about: that the ranks of some have unequal numbers of
/// heads, which none of the engines starts, and the nearest sizes with which they do not. Nothing where they
/// are equal in all, or where an engine's own rules are asked.
std::optional<Diagnostic> unequal_heads(const Case& c, std::span<const Plan> plans);

}  // namespace shardline
