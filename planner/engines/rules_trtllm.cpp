// TensorRT-LLM 1.3.0rc20, PyTorch backend, as trtllm-serve starts it. Read in versions of its files near tag
// v1.3.0rc20 (NVIDIA/TensorRT-LLM c25c23f71786), none of which is kept under that commit. Where a rule names
// a line it is of the commit behind it, which says the same as the versions near the tag (mapping.py is of
// 1.2.0rc2, mla.py of the tag's time). Else it names the symbol, whose line was found at no
// commit.
// `tensor_parallel_size`, `pipeline_parallel_size`, `enable_attention_dp` (then every TP rank is a group of
// attention), `moe_expert_parallel_size`, and `context_parallel_size` with cp_type HELIX.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "planner/engines/draft_rules.hpp"
#include "planner/engines/file_methods.hpp"
#include "planner/engines/launch_rules.hpp"
#include "planner/engines/trtllm_caches.hpp"
#include "planner/engines/trtllm_weights.hpp"
#include "planner/layers/share.hpp"

namespace shardline {

namespace {

struct Flags {
  int tp = 1, pp = 1, cp = 1, moe_ep = 1;
  bool attention_dp = false;
};

Flags flags_of(const Plan& p) { return {p.dp > 1 ? p.dp * p.tpa : p.tpa, p.pp, p.kvp, p.ep, p.dp > 1}; }

// mapping.py: MoE ranks are TP x CP, of which EP leaves the rest to MoE TP. Under attention DP dense networks
// are whole on every rank (models/modeling_deepseekv3.py, _compute_mlp_tp_size); under Helix their ranks are
// TP x CP (Mapping.repurpose_helix_cp_to_tp).
EngineLayout layout_of(const Flags& f) {
  const int ranks = f.tp * f.cp;
  EngineLayout e;
  e.pp = f.pp;
  e.dp = f.attention_dp ? f.tp : 1;
  e.tpa = f.attention_dp ? 1 : f.tp;
  e.kvp = e.sharers = f.cp;
  e.ep = f.moe_ep;
  e.tpf = f.moe_ep > 0 ? ranks / f.moe_ep : 0;
  e.dense = f.attention_dp ? 1 : ranks;
  return e;
}

EngineLayout layout(const Plan& p) { return layout_of(flags_of(p)); }

bool with_helix(const Plan& p) { return launched_as(p, LaunchedAs::helix); }

// Output projections are row-parallel over TP x CP.
// A rank has n_groups // tp_size groups of Mamba-2 (_torch/modules/mamba/mamba2_mixer.py): of one group none.
Complaint heads(const Case& c, const Plan& p) {
  return uneven_heads(c, layout(p).tpa * layout(p).kvp, false);
}

// DeepSeek's dense networks take fewer ranks where TP does not divide them.
Complaint widths(const Case& c, const Plan& p) {
  return has_experts(c.model) ? std::nullopt : uneven_widths(c, layout(p).dense, 1);
}

// Classes that keep the mapping with context-parallel ranks: DeepSeek-V3 (also Kimi-K2) and Qwen3 without
// experts.
Complaint helix_model(const Case& c, const Plan& p) {
  const Model& m = c.model;
  const bool qwen3 = m.qk_norm && !has_experts(m) && !m.sandwich_norms && !has_local_attention(m);
  if (!with_helix(p) || has_latents(m) || qwen3) return std::nullopt;
  return m.name + " has neither MLA nor Qwen3's dense layers";
}

Complaint helix_device(const Case& c, const Plan& p) {
  if (!with_helix(p) || architecture_of(c.system.device) == Architecture::blackwell) return std::nullopt;
  return c.system.device.name + " is no Blackwell";
}

Complaint helix_step(const Case& c, const Plan& p) {
  if (!with_helix(p) || !c.batch.prefills()) return std::nullopt;
  return std::string("a step that prefills");
}

Complaint helix_overlap(const Case&, const Plan& p) {
  if (!with_helix(p) || option_text(p, "chunks") == "1") return std::nullopt;
  return "chunks=" + option_text(p, "chunks");
}

Complaint helix_values(const Case&, const Plan& p) {
  if (!with_helix(p) || option_text(p, "value_up") != "before") return std::nullopt;
  return std::string("value_up=before");
}

// MLA has kernels for pages of one size alone: FlashMLA's 64 on Hopper, where others fall back to kernels
// that it no longer has, and trtllm-gen's 32 on Blackwell.
std::optional<int> block(const Case& c) {
  if (!has_latents(c.model)) return std::nullopt;
  return architecture_of(c.system.device) == Architecture::hopper ? 64 : 32;
}

std::optional<CaseComplaint> block_size(const Case& c) {
  if (!has_latents(c.model)) {
    if (std::has_single_bit(static_cast<unsigned>(c.kv_block))) return std::nullopt;
    return CaseComplaint{"kv_block", fmt::format("blocks of {} tokens", c.kv_block),
                         fmt::format("a power of two, for instance {} tokens", kTrtllmRules.own_block)};
  }
  const int own = block(c).value_or(c.kv_block);
  if (c.kv_block == own) return std::nullopt;
  return CaseComplaint{
      "kv_block",
      fmt::format("blocks of {} tokens of {}, which has MLA, on {}", c.kv_block, c.model.name,
                  c.system.device.name),
      fmt::format("{} tokens, as --set kv_block='{} tokens' on the command line, or no kv_block: "
                  "it follows from the engine",
                  own, own)};
}

Complaint helix_blocks(const Case& c, const Plan& p) {
  if (!with_helix(p)) return std::nullopt;
  for (const Segment& s : c.batch.decode) {
    const long long blocks = (s.length() + c.kv_block - 1) / c.kv_block;
    if (blocks < p.kvp) return fmt::format("{} blocks over kvp={}", blocks, p.kvp);
  }
  return std::nullopt;
}

std::optional<CaseComplaint> latents_device(const Case& c) {
  if (!has_latents(c.model) || architecture_of(c.system.device) != Architecture::ampere) return std::nullopt;
  return CaseComplaint{"models",
                       fmt::format("{} has MLA, {} is older than Hopper", c.model.name, c.system.device.name),
                       "a system of Hopper or Blackwell"};
}

std::optional<CaseComplaint> gemma_device(const Case& c) {
  if (!c.model.architecture.starts_with("Gemma4") ||
      architecture_of(c.system.device) == Architecture::blackwell)
    return std::nullopt;
  return CaseComplaint{"models", fmt::format("{} on {}", c.model.name, c.system.device.name),
                       "a system of Blackwell"};
}

// Kernels of grouped experts take parts of such widths; those in MXFP4 are padded (fused_moe_cutlass.py,
// __init__).
Complaint expert_parts(const Case& c, const Plan& p) {
  const Dtype t = kernel_type(c.precision.of(Module::experts).weights);
  if (!has_experts(c.model) || t == Dtype::mxfp4) return std::nullopt;
  const bool scaled = t == Dtype::fp8_block || t == Dtype::int4;
  const Count whole = scaled ? 128 : 256 / element_bits(t);
  for (const FeedForward& f : c.model.ffns) {
    if (f.routed() && f.inner % (p.tpf * whole) != 0)
      return fmt::format("experts of width {} in {} over tpf={}, no multiples of {}", f.inner, to_string(t),
                         p.tpf, whole);
  }
  return std::nullopt;
}

// Weights in INT4 that have a scale per so many inputs; 0: none have.
int inputs_per_scale(ModuleType t) {
  return t.weights == Dtype::int4 ? 128 : t.weights == Dtype::int4_group32 ? 32 : 0;
}

// What reads rows that ranks share (the output projection, the last of a dense network) has whole groups of
// its inputs on each.
Complaint int4_groups(const Case& c, const Plan& p) {
  const EngineLayout e = layout(p);
  const auto cut = [](const char* what, Count inputs, int ranks, int group) -> Complaint {
    if (group == 0 || inputs % (Count{ranks} * group) == 0) return std::nullopt;
    return fmt::format("{} of {} inputs over {} ranks, no multiples of {}", what, inputs, ranks, group);
  };
  const int of_output = inputs_per_scale(c.precision.of(Module::out_proj));
  for (const Attention& a : c.model.attentions) {
    if (a.none() || a.recurrent()) continue;
    const Count inputs = Count{a.q_heads} * value_width(a);
    if (auto out = cut("an output projection", inputs, e.tpa * e.kvp, of_output)) return out;
  }
  const int of_dense = inputs_per_scale(c.precision.of(Module::dense_ffn));
  for (const FeedForward& f : c.model.ffns) {
    if (!f.dense()) continue;
    if (auto out = cut("a dense network", f.inner, e.dense, of_dense)) return out;
  }
  return std::nullopt;
}

// Classes that assert that there is one stage. DecoderModel.__pp_init__ of models/modeling_utils.py cuts the
// others, as stages.cpp does; its own tests run stages of DeepSeek's, Llama's, Llama 4's, Qwen3's with
// experts and Nemotron-H's (tests/integration/test_lists/qa/llm_function_core.txt@00333caf9083).
constexpr std::array kOfOneStage{
    ReadArchitecture{"GptOssForCausalLM", "models/modeling_gpt_oss.py@050b6cb92871"},
    ReadArchitecture{"Gemma4ForCausalLM", "models/modeling_gemma4.py@00e7d1037d24"},
    ReadArchitecture{"Gemma4ForConditionalGeneration", "models/modeling_gemma4mm.py@001a6a01bdef"},
};

Complaint stages(const Case& c, const Plan& p) { return more_stages(c, p, kOfOneStage); }

Complaint two_batches(const Case&, const Plan& p) {
  return p[kOverlap] == Overlap::none ? Complaint() : "overlap=two_batch";
}

constexpr std::array kFeatures{LaunchedAs::tensor, LaunchedAs::pipeline, LaunchedAs::attention_dp,
                               LaunchedAs::helix};

// helix_step, below.
constexpr std::array kAnswersAlone{LaunchedAs::helix};

constexpr CaseRule kCases[]{
    {"model", "its PyTorch backend has a class for each architecture that it starts",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/models/_arch_index.py:36-121@065ff9e93780; "
     "docs/source/models/supported-models.md of 1.3.0rc20",
     [](const Case& c) { return missing_model(c, kTrtllmRules); }},
    {"context", "a longer request would be cut down to the model's maximum length",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/model_engine.py, _init_max_seq_len, near v1.3.0rc20",
     [](const Case& c) { return too_long(c, kTrtllmRules); }},
    {"weight_files", "it reads files of some tools alone, and of some types of each",
     "NVIDIA/TensorRT-LLM tensorrt_llm/llmapi/llm_utils.py, _update_from_hf_quant_config (Unsupported "
     "quantization_config), models/quant_config_utils.py, update_quant_config_from_compressed_tensors, pull "
     "requests 14468 and, of MXFP4 there, later, 17269; docs/source/features/quantization.md@09d4c79ba941; "
     "tensorrt_llm/_torch/modules/linear.py, get_quant_method@00bbf71e7964, near v1.3.0rc20",
     [](const Case& c) { return unread_files(c, kTrtllmFiles); }},
    {"mla_device", "MLA has kernels from Hopper on",
     "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/common/attentionOp.cpp:3091,3097 of v1.3.0rc20, as quoted by "
     "ai-dynamo/aiconfigurator collector/trtllm/collect_mla.py:192-218@095f58a51",
     latents_device},
    {"gemma_device", "attention of Gemma 4 has kernels on Blackwell alone",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/models/modeling_gemma4.py:263-270 of v1.3.0rc20 and "
     "FlashInfer's fmhaRunner.cuh:37, as quoted by ai-dynamo/aiconfigurator "
     "collector/trtllm/collect_attn.py:108-125@095f58a51",
     gemma_device},
    {"kv_type",
     "caches are in 16 bits or FP8; in NVFP4 on Blackwell, not under MLA and beside attention projections in "
     "static FP8 or NVFP4; in the checkpoint's type where it names one",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/model_loader.py:29-34,47,67-81@004b733e0ed7; "
     "docs/source/features/quantization.md:96-102@09d4c79ba941; cpp/tensorrt_llm/thop/dsv3RopeOp.cpp, "
     "MLARopeGeneration, before 09d521c522f2; tensorrt_llm/_torch/modules/linear.py, FP8QDQLinearMethod and "
     "NVFP4LinearMethod, and modules/attention.py, Attention.forward, near v1.3.0rc20",
     trtllm_cache_type},
    {"weight_type",
     "NVFP4 on Blackwell, MXFP4 there and of experts on Hopper, FP8 from Hopper on, with a scale per row "
     "on Hopper alone, of experts with static scales or in blocks, INT4 before Blackwell, of experts as W4A8 "
     "on Hopper alone",
     "NVIDIA/TensorRT-LLM docs/source/features/quantization.md:94-102@09d4c79ba941, "
     "cpp/tensorrt_llm/kernels/cutlass_kernels/fp8_rowwise_gemm/fp8_rowwise_gemm_template.h, "
     "dispatchToArch@0193dbd41892, tensorrt_llm/_torch/modules/fused_moe/fused_moe_cutlass.py, "
     "_QUANT_SUPPORT_TABLE, quantization.py, load_activation_scales_fp8_qdq, near v1.3.0rc20; "
     "model_config.py:329-345 of v1.3.0rc20, as quoted by ai-dynamo/aiconfigurator "
     "collector/trtllm/collect_moe.py:433-476@095f58a51",
     trtllm_weight_type},
    {"cache_scale",
     "on Hopper prompts of GQA over a cache in FP8 need output projections in FP8, whose scale they are "
     "written by",
     "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/common/attentionOp.cpp:681, "
     "tensorrt_llm/_torch/modules/attention.py:648-670,758-761, "
     "tensorrt_llm/_torch/attention_backend/trtllm.py:1434,1452 of v1.3.0rc20, as quoted by "
     "ai-dynamo/aiconfigurator collector/trtllm/collect_attn.py:157-180@095f58a51",
     trtllm_cache_scale},
    {"weight_math", "before Blackwell weights in MXFP4 are computed in 16 bits, by Triton's kernels",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/modules/fused_moe/fused_moe_cutlass.py, _QUANT_SUPPORT_TABLE, "
     "near v1.3.0rc20",
     widened_weights},
    {"minimax_types", "MiniMax-M3's weights are in 16 bits",
     "NVIDIA/TensorRT-LLM docs/source/deployment-guide/deployment-guide-for-minimax-m3-on-trtllm.md, near "
     "v1.3.0rc20; pull request 15587 of 26 June 2026",
     minimax_in_16_bits},
    {"kv_block",
     "MLA has kernels for blocks of 32 tokens on Blackwell, and of 64 on Hopper; others take a power of two",
     "NVIDIA/TensorRT-LLM docs/source/features/helix.md:44-45@04c8822cc42f; "
     "docs/source/advanced/kv-cache-reuse.md@c3589f17f24f; of MLA's pages pull request 10261, as quoted by "
     "ai-dynamo/aiconfigurator collector/trtllm/collect_mla.py:38-51@095f58a51",
     block_size},
};

constexpr LaunchRule kPlans[]{
    {"strategy",
     "tensor, pipeline and attention data parallelism, and Helix; no other sharing of caches or tokens",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/modules/mla.py:437-442@c0261efa8a46; "
     "attention.py:448-450@00547a25ac61",
     [](const Case&, const Plan& p) { return missing_feature(kTrtllmRules, p); }},
    kWholeTrays,
    {"attention_layout", "attention DP makes every TP rank a group of its own; ranks are TP x PP x CP",
     "NVIDIA/TensorRT-LLM tensorrt_llm/mapping.py:99-102,221-223@b35ac1b64368",
     [](const Case& c, const Plan& p) { return other_attention(c, p, layout(p)); }},
    {"heads", "TP x CP divide the query heads",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/modules/mla.py:455@c0261efa8a46; attention.py:465@00547a25ac61",
     heads},
    {"kv_heads", "TP divides the KV heads, or is a multiple of them and copies them",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/models/modeling_utils.py:101-106@000a01de66f0",
     [](const Case& c, const Plan& p) { return uneven_kv_heads(c, layout(p).tpa); }},
    {"widths", "TP x CP divide the width of a model without experts",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/modules/linear.py, Linear.__init__, near v1.3.0rc20", widths},
    {"expert_layout", "MoE TP x MoE EP are the ranks of a stage",
     "NVIDIA/TensorRT-LLM tensorrt_llm/mapping.py:66,104-109@b35ac1b64368",
     [](const Case& c, const Plan& p) { return other_experts(c, p, layout(p)); }},
    {"experts", "EP divides the experts",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/modules/fused_moe/fused_moe_wide_ep.py:145@99bca8929698",
     [](const Case& c, const Plan& p) { return uneven_experts(c, p.ep); }},
    {"stages", "classes of models whose layers hand nothing on run in one stage",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/models/modeling_gpt_oss.py@050b6cb92871, "
     "modeling_gemma4.py@00e7d1037d24; pull request 7911",
     stages},
    {"index_stages", "no stage begins on a layer that takes the choice of an index in an earlier stage",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/attention_backend/sparse/dsa/module.py, "
     "initialize_sparse_attn@7638bff8cc4b; tensorrt_llm/mapping.py, pp_layers",
     shared_choice_stage},
    {"int4_groups", "a rank's inputs of a matrix in INT4 are whole groups, of 128 or 32, that share a scale",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/modules/linear.py, W4A16_AWQ_LinearMethod.create_weights and "
     "W4A8_AWQ_LinearMethod.create_weights, near v1.3.0rc20",
     int4_groups},
    {"expert_parts", "parts of an expert are multiples of 128 wide in block FP8 and INT4, else of 256 bits",
     "NVIDIA/TensorRT-LLM's checks near v1.3.0rc20, as quoted by ai-dynamo/aiconfigurator "
     "collector/trtllm/collect_moe.py:380-426@095f58a51",
     expert_parts},
    {"dense_layout", "under attention DP dense networks are whole on every rank",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/models/modeling_deepseekv3.py, _compute_mlp_tp_size, near "
     "v1.3.0rc20",
     [](const Case& c, const Plan& p) { return other_dense(c, p, layout(p)); }},
    {"two_batches", "no option of it overlaps two halves of a batch",
     "NVIDIA/TensorRT-LLM tensorrt_llm/llmapi/llm_args.py, TorchLlmArgs, near v1.3.0rc20", two_batches},
    {"helix_model", "Helix is of DeepSeek's MLA and of Qwen3 without experts",
     "NVIDIA/TensorRT-LLM docs/source/features/helix.md:30-32@04c8822cc42f, pull request 11570; "
     "tensorrt_llm/_torch/models/modeling_deepseekv3.py and modeling_qwen3.py, mapping_with_cp, near "
     "v1.3.0rc20",
     helix_model},
    {"helix_device", "Helix is of Blackwell",
     "NVIDIA/TensorRT-LLM docs/source/features/helix.md:30@04c8822cc42f", helix_device},
    {"helix_step", "Helix decodes alone: contexts are computed by servers of their own",
     "NVIDIA/TensorRT-LLM docs/source/features/helix.md:22@04c8822cc42f", helix_step},
    {"helix_overlap", "it has no HOP-B: the exchange of partial outputs overlaps no attention",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/modules/mla.py, _attn_forward_gen@c0261efa8a46", helix_overlap},
    {"expert_tokens",
     "NVLink kernels carry tokens to experts where NVLink joins all ranks, all-gather and reduce-scatter "
     "beyond",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/modules/fused_moe/communication/communication_factory.py, "
     "create_strategy@673f3412c98c; its DeepEP is on by default @03c36d6222ad and turned off by launch files",
     other_expert_tokens},
    {"helix_values", "Helix exchanges latents and makes values of them afterwards",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/modules/mla.py, _attn_forward_gen@c0261efa8a46", helix_values},
    {"helix_blocks", "a request has a block of tokens for every Helix rank",
     "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/request_utils.py:381-387@fd3b44f15391",
     helix_blocks},
    kTrtllmDraftModel,
    kTrtllmDraftModules,
    kTrtllmDraftStages,
    kTrtllmDraftHelix,
    kTrtllmDraftReplay,
};

constexpr CaseRule kUnpriced[]{
    {"block_kernels",
     "before Blackwell MiniMax-M3's chosen blocks are attended by a dense fallback, 10 to 50 times slower "
     "than other engines' kernels, of which prices here have no form",
     "NVIDIA/TensorRT-LLM as measured by ai-dynamo/aiconfigurator, collector/trtllm/collect_msa_module.py"
     "@095f58a51",
     minimax_by_fallback},
};

// Both halves are of one case, so that blocks and types of their caches are alike, as they have to be.
constexpr PairRule kPairs[]{
    {"pair_helix", "servers for prompts hand their caches on whole: Helix is of answers alone",
     "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/batch_manager/cacheFormatter.cpp, CacheFormatter::inquireSupport, "
     "near v1.3.0rc20; docs/source/features/helix.md:22@04c8822cc42f",
     [](const Case&, const Plan& prefill, const Plan&) {
       return with_helix(prefill) ? Complaint(fmt::format("prompts under kvp={}", prefill.kvp)) : Complaint();
     }},
    kTrtllmDraftPair,
    kTrtllmStateDraftPair,
};

}  // namespace

const LaunchRules kTrtllmRules{
    .engine = "trtllm",
    .version = "1.3.0rc20",
    .title = "TensorRT-LLM",
    .layout = [](const Case&, const Plan& p) { return layout(p); },
    .machines = trtllm_machines,
    .features = kFeatures,
    .cases = kCases,
    .unpriced = kUnpriced,
    .plans = kPlans,
    .answers_alone = kAnswersAlone,
    .pairs = kPairs,
    .architectures = &kTrtllmArchitectures,
    .files = &kTrtllmFiles,
    .long_context = "TLLM_ALLOW_LONG_MAX_MODEL_LEN",  // _torch/pyexecutor/model_engine.py, _init_max_seq_len
    .draft_modules = trtllm_draft_modules_of,
    .put_drafts = put_trtllm_drafts,
    // thop/attentionOp.cpp:1235 of v1.3.0rc20: ai-dynamo/aiconfigurator collect_mla.py:38-51@095f58a51.
    .block = block,
    .own_block = 32,  // llmapi/llm_args.py, KvCacheConfig.tokens_per_block
};

}  // namespace shardline
