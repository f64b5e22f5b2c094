// What engines start with drafts of a model's own module, and the options that say it. planner/README.md
// [P29].
#pragma once

#include "planner/engines/deploy.hpp"
#include "planner/engines/launch_rules.hpp"

namespace shardline {

/// Why the engine's plans of a model have no drafts, whatever else they are: it has no class of the model's
/// module. Nothing where it has, where nobody has read it, or the model has no module.
std::optional<std::string> no_module_of(const EngineProfile& engine, const Model& model);

/// Options of the plan's drafts, behind those of its degrees; nothing of a plan without. Of one that the
/// engine does not start with drafts, why no file says it.
void put_drafts(const Case& c, const Plan& plan, Deployment& d);

// Of each engine's row: LaunchRules::draft_modules, ::put_drafts.
std::span<const ReadArchitecture> vllm_draft_modules_of();
std::span<const ReadArchitecture> sglang_draft_modules_of();
std::span<const ReadArchitecture> trtllm_draft_modules_of();
void put_vllm_drafts(const Case& c, int drafts, LaunchOptions& options);
void put_sglang_drafts(const Case& c, int drafts, LaunchOptions& options);
void put_trtllm_drafts(const Case& c, int drafts, LaunchOptions& options);

Complaint vllm_draft_model(const Case& c, const Plan& p);
Complaint vllm_draft_modules(const Case& c, const Plan& p);
Complaint vllm_draft_stages(const Case& c, const Plan& p);
Complaint vllm_draft_graphs(const Case& c, const Plan& p);
Complaint vllm_draft_interleave(const Case& c, const Plan& p);
Complaint vllm_draft_dcp(const Case& c, const Plan& p);
Complaint sglang_draft_model(const Case& c, const Plan& p);
Complaint sglang_draft_mixed(const Case& c, const Plan& p);
Complaint trtllm_draft_model(const Case& c, const Plan& p);
Complaint trtllm_draft_modules(const Case& c, const Plan& p);
Complaint trtllm_draft_helix(const Case& c, const Plan& p);
Complaint trtllm_draft_replay(const Case& c, const Plan& p);
/// Of a pair of which one server alone drafts.
Complaint drafts_of_one(const Case& c, const Plan& prefill, const Plan& decode);
/// Of a pair that drafts over layers with a state.
Complaint drafts_over_states(const Case& c, const Plan& prefill, const Plan& decode);
/// Of engines that draft in one stage alone, whatever the model.
Complaint drafts_in_stages(const Case& c, const Plan& p);

inline constexpr LaunchRule kVllmDraftModel{
    "draft_model", "it has classes of modules that draft for some architectures",
    "vllm-project/vllm vllm/config/speculative.py:310-560, vllm/model_executor/models/registry.py:598-641"
    "@68afd7889723, of 23 June 2026, near v0.24.0",
    vllm_draft_model};
inline constexpr LaunchRule kVllmDraftModules{
    "draft_modules", "more drafts than modules are a multiple of these",
    "vllm-project/vllm vllm/config/speculative.py:805-819@68afd7889723, of 23 June 2026, near v0.24.0",
    vllm_draft_modules};
inline constexpr LaunchRule kVllmDraftStages{
    "draft_stages", "several stages need a class of the module that runs in stages (SupportsPP)",
    "vllm-project/vllm vllm/config/model.py:1176-1182, vllm/config/speculative.py:985-1003,1053, "
    "vllm/model_executor/models/deepseek_mtp.py:208@68afd7889723, of 23 June 2026, near v0.24.0; "
    "docs/features/speculative_decoding/README.md:193",
    vllm_draft_stages};
inline constexpr LaunchRule kVllmDraftGraphs{
    "draft_graphs",
    "the module of DeepSeek-V3.2 runs without graphs, kernel by kernel, which has no price here",
    "vllm-project/vllm vllm/config/speculative.py:600-602@68afd7889723, of 23 June 2026, near v0.24.0",
    vllm_draft_graphs};
inline constexpr LaunchRule kVllmDraftInterleave{
    "draft_interleave", "DCP with drafts deals tokens out one by one",
    "vllm-project/vllm vllm/v1/worker/cp_utils.py:25-29, vllm/v1/attention/backend.py:755@68afd7889723, of "
    "23 June 2026, near v0.24.0: no backend sets supports_mtp_with_cp_non_trivial_interleave_size",
    vllm_draft_interleave};
inline constexpr LaunchRule kVllmDraftDcp{
    "draft_dcp",
    "under DCP FlashAttention alone, on Hopper, verifies drafts by its kernels that decode; others compute "
    "them as prompts, which has no price here",
    "vllm-project/vllm vllm/v1/attention/backend.py:599-629, "
    "vllm/v1/attention/backends/mla/flashattn_mla.py:134@68afd7889723, of 23 June 2026, near v0.24.0",
    vllm_draft_dcp};
inline constexpr LaunchRule kSglangDraftModel{
    "draft_model", "it has classes of modules that draft for some architectures",
    "sgl-project/sglang python/sglang/srt: configs/model_config.py:523-612@49e384ce9d", sglang_draft_model};
inline constexpr LaunchRule kSglangDraftStages{
    "draft_stages", "speculative decoding runs in one stage",
    "sgl-project/sglang python/sglang/srt: server_args.py:6651-6654@49e384ce9d", drafts_in_stages};
inline constexpr LaunchRule kSglangDraftMixed{
    "draft_mixed", "with drafts no prompt rides on steps that decode: mixed chunks are turned off",
    "sgl-project/sglang python/sglang/srt: arg_groups/speculative_hook.py:282-287, "
    "server_args.py:6681-6684@49e384ce9d",
    sglang_draft_mixed};
inline constexpr LaunchRule kTrtllmDraftModel{
    "draft_model", "it has classes of modules that draft for some architectures",
    "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/models/modeling_speculative.py, MTPForCausalLM, near v1.3.0rc20",
    trtllm_draft_model};
inline constexpr LaunchRule kTrtllmDraftModules{
    "draft_modules", "several modules draft a token each, and no more",
    "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/models/modeling_speculative.py, MTPForCausalLM "
    "(mtp_num_layers), "
    "near v1.3.0rc20",
    trtllm_draft_modules};
inline constexpr LaunchRule kTrtllmDraftStages{
    "draft_stages", "speculative decoding is not with pipeline parallelism",
    "NVIDIA/TensorRT-LLM docs/source/features/feature-combination-matrix.md@01edceae1757; issue 9009",
    drafts_in_stages};
inline constexpr LaunchRule kTrtllmDraftHelix{
    "draft_helix", "speculative decoding is not with Helix",
    "NVIDIA/TensorRT-LLM docs/source/features/feature-combination-matrix.md@01edceae1757; pull request "
    "16003, of 6 July 2026, is to add it",
    trtllm_draft_helix};

inline constexpr LaunchRule kTrtllmDraftReplay{
    "draft_replay",
    "states of Mamba-2 are rolled back by computing accepted tokens anew, which has no price here",
    "NVIDIA/TensorRT-LLM pull request 13453, merged before v1.3.0rc20; "
    "tensorrt_llm/_torch/pyexecutor/mamba_cache_manager.py, ReplayStateUpdateMetadata@00bce92cbb90",
    trtllm_draft_replay};

// Pairs: the modules' caches are more layers of the pools that both sides register, and move with them.
inline constexpr PairRule kVllmDraftPair{
    "pair_drafts", "both halves load the modules that draft, or neither does: their caches are handed over",
    "vllm-project/vllm vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py, "
    "_validate_remote_agent_handshake (\"Number of KV layers must match\"), near v0.24.0: issue 48221; by "
    "name since pull request 49230, nixl/metadata.py, _get_speculative_compatibility_factors@02cfb534df56",
    drafts_of_one};
inline constexpr PairRule kSglangDraftPair{
    "pair_drafts",
    "both halves load the modules that draft, or neither does: who prefills hands their caches over, and the "
    "first drafts' hidden state; without them no curve of acceptance holds",
    "sgl-project/sglang python/sglang/srt: disaggregation/prefill.py, _init_kv_manager and "
    "process_batch_result_disagg_prefill@000c2b942308; pull request 17212 of unequal halves",
    drafts_of_one};
inline constexpr PairRule kTrtllmDraftPair{
    "pair_drafts", "both halves have speculative_config, or neither: their caches have as many layers",
    "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/batch_manager, inquireSupport (mNbKvHeadsPerLayer) of "
    "mlaCacheFormatter.cpp@203cb19113ba and cacheFormatter.cpp@859f042647d8; "
    "examples/disaggregated/slurm/benchmark/gen_worker_config.py@0eac701dcad0; pull request 14391",
    drafts_of_one};

inline constexpr PairRule kVllmStateDraftPair{
    "pair_state_drafts",
    "a request whose states were handed over cannot be verified: its first step knows of no step before",
    "ai-dynamo/dynamo issue 12198, open: vLLM's Mamba mixer stops in an assertion on the first step of a "
    "request that NIXL brought where the server that decodes drafts",
    drafts_over_states};
inline constexpr PairRule kTrtllmStateDraftPair{
    "pair_state_drafts", "how states are handed over beside those that drafts leave is not known",
    "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/mamba_cache_manager.py@00bce92cbb90: no test or "
    "document of both was found",
    drafts_over_states};

}  // namespace shardline
