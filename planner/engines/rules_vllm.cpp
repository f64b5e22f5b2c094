// vLLM 0.24.0: vllm-project/vllm at tag v0.24.0, ee0da84ab9e0. `--tensor-parallel-size` t,
// `--data-parallel-size` d (its own requests and caches per rank), `--pipeline-parallel-size`,
// `--enable-expert-parallel`, `--decode-context-parallel-size` inside t.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "planner/engines/dispatch_room.hpp"
#include "planner/engines/draft_rules.hpp"
#include "planner/engines/file_methods.hpp"

namespace shardline {

namespace {

struct Flags {
  int tp = 1, pp = 1, dp = 1, dcp = 1;
  bool expert_parallel = false;
};

Flags flags_of(const Case& c, const Plan& p) {
  return {p.tpa, p.pp, p.dp, launched_as(p, LaunchedAs::dcp) ? sharers(c, p) : 1, p.ep > 1};
}

// FusedMoEParallelConfig.make: experts are spread whole over all ranks of a stage, or cut by all of them.
// Dense networks are of a TP group.
EngineLayout layout_of(const Flags& f) {
  const int ranks = f.tp * f.dp;
  EngineLayout e;
  e.pp = f.pp;
  e.dp = f.dp;
  e.tpa = e.dense = f.tp;
  e.ep = f.expert_parallel ? ranks : 1;
  e.tpf = f.expert_parallel ? 1 : ranks;
  e.sharers = f.dcp;
  return e;
}

EngineLayout layout(const Case& c, const Plan& p) { return layout_of(flags_of(c, p)); }

bool with_dcp(const Plan& p) { return launched_as(p, LaunchedAs::dcp); }

// Groups of one KV head, which a DCP group must lie in.
Complaint dcp_heads(const Case& c, const Plan& p) {
  if (!with_dcp(p)) return std::nullopt;
  const int dcp = sharers(c, p);
  if (p.tpa % dcp != 0) return fmt::format("dcp={} of tpa={}", dcp, p.tpa);
  for (const Attention& a : c.model.attentions) {
    if (a.none() || a.recurrent() || has_latents(a)) continue;
    if (p.tpa <= a.kv_heads) return fmt::format("tpa={} is not above the {} KV heads", p.tpa, a.kv_heads);
    if (dcp > p.tpa / a.kv_heads)
      return fmt::format("dcp={} of {} copies of a KV head", dcp, p.tpa / a.kv_heads);
    if (a.q_heads / a.kv_heads % dcp != 0)
      return fmt::format("dcp={} of the {} query heads of a KV head", dcp, a.q_heads / a.kv_heads);
  }
  return std::nullopt;
}

Complaint dcp_windows(const Case& c, const Plan& p) {
  // Pull requests 46145 and 46178 would have brought it, and were closed.
  if (with_dcp(p) && has_sparse(c.model)) return c.model.name + " has sparse attention with an index";
  if (!with_dcp(p) || (!has_local_attention(c.model) && c.model.attentions.size() == 1)) return std::nullopt;
  return c.model.name + " has windows, chunks, sinks or several kinds of attention";
}

Complaint dcp_cache(const Case& c, const Plan& p) {
  if (!with_dcp(p)) return std::nullopt;
  if (kernel_type(c.precision.kv) == Dtype::fp4)
    return fmt::format("a cache in {}", to_string(c.precision.kv));
  if (!has_latents(c.model) || element_bits(c.precision.kv) >= 16) return std::nullopt;
  return fmt::format("MLA with a cache in {}", to_string(c.precision.kv));
}

// CUTLASS's MLA on Blackwell has blocks of 128 tokens, whatever --block-size says.
Complaint dcp_interleave(const Case& c, const Plan& p) {
  if (!with_dcp(p)) return std::nullopt;
  const bool cutlass = has_latents(c.model) && architecture_of(c.system.device) == Architecture::blackwell;
  const int block = cutlass ? 128 : c.kv_block, own = std::stoi(option_text(p, "interleave"));
  if (block % own == 0) return std::nullopt;
  return fmt::format("interleave={} of blocks of {} tokens", own, block);
}

Complaint dcp_queries(const Case&, const Plan& p) {
  if (!with_dcp(p) || option_text(p, "queries") != "replicated") return std::nullopt;
  return std::string("queries=replicated");
}

// Of weights it asks nothing: queries are quantised to FP8 in the attention layer itself, and scales are 1
// where a checkpoint has none (model_executor/layers/attention/attention.py, query_quant, where
// kv_cache_dtype is nvfp4).
std::optional<CaseComplaint> cache_type(const Case& c) {
  if (auto out = fp32_cache(c)) return out;
  // Before Hopper FlashAttention 2 and FlashInfer have no sinks, and of MLA's kernels Triton's alone run.
  if (auto out = fp8_under_triton(c)) return out;
  if (kernel_type(c.precision.kv) != Dtype::fp4) return std::nullopt;
  if (has_latents(c.model))
    return CaseComplaint{"precision.kv", c.model.name + " has MLA, whose cache it does not keep in fp4",
                         "fp8 or bf16"};
  if (architecture_of(c.system.device) != Architecture::blackwell)
    return CaseComplaint{"precision.kv",
                         fmt::format("{} is no Blackwell, and FlashInfer reads caches in fp4 there alone",
                                     c.system.device.name),
                         "fp8 or bf16"};
  return std::nullopt;
}

// CUTLASS's kernels of compressed-tensors; ModelOpt's INT4 it does not read (modelopt.py:104-119).
std::optional<CaseComplaint> int4_math(const Case& c) {
  for (const KeptModule& k : kept_modules(c.model)) {
    const ModuleType t = c.precision.of(k.module);
    if (!in_int4_of_fp8(t)) continue;
    const bool hopper = architecture_of(c.system.device) == Architecture::hopper;
    if (hopper && t.weights == Dtype::int4) continue;
    return CaseComplaint{k.math_key,
                         fmt::format("{} of {} in {}, computed in fp8, on {}", k.name, c.model.name,
                                     to_string(t.weights), c.system.device.name),
                         fmt::format("bf16: precision.math, or {} of {} alone{}", k.math_key, k.name,
                                     hopper ? "; or a scale per 128 weights" : "; or a system of Hopper")};
  }
  return std::nullopt;
}

constexpr std::array kFeatures{LaunchedAs::tensor, LaunchedAs::pipeline, LaunchedAs::attention_dp,
                               LaunchedAs::dcp};

constexpr CaseRule kCases[]{
    {"model", "it has a class for each architecture that it starts",
     "vllm-project/vllm vllm/model_executor/models/registry.py, _TEXT_GENERATION_MODELS and "
     "_MULTIMODAL_MODELS, near v0.24.0",
     [](const Case& c) { return missing_model(c, kVllmRules); }},
    {"context", "a request fits into the model's maximum length, prompt and output together",
     "vllm-project/vllm vllm/config/model.py:2204-2228@ee0da84ab9",
     [](const Case& c) { return too_long(c, kVllmRules); }},
    {"weight_files", "it reads files of some tools alone, and of some types of each",
     "vllm-project/vllm vllm/model_executor/layers/quantization: __init__.py, QuantizationMethods and "
     "method_to_config, auto_gptq.py, AutoGPTQConfig.TYPE_MAP, near v0.24.0; "
     "modelopt.py:104-119,353-359@80e511772f3e, of 23 June 2026",
     [](const Case& c) { return unread_files(c, kVllmFiles); }},
    {"kv_block",
     "blocks have 16 tokens, or as many as a power of two up to 256 that --block-size says; of MiniMax-M3 "
     "128",
     "vllm-project/vllm vllm/config/cache.py, CacheConfig.DEFAULT_BLOCK_SIZE, "
     "vllm/v1/attention/backends/flash_attn.py, get_supported_kernel_block_sizes (multiples of 16), near "
     "v0.24.0",
     vllm_block_size},
    {"minimax_types", "MiniMax-M3's weights are in 16 bits or FP8: NVFP4 came with 0.25",
     "vllm-project/vllm vllm/models/minimax_m3/nvidia/model.py@v0.24.0; pull request 46756, of the release "
     "notes of v0.25.0",
     minimax_without_fp4},
    {"int8_device", "INT8 is multiplied by CUTLASS's kernels, which end with an error on Blackwell",
     "vllm-project/vllm csrc/libtorch_stable/quantization/w8a8/cutlass/c3x/scaled_mm_helper.hpp, "
     "dispatch_scaled_mm@8bfe65c7210f, which vllm/model_executor/kernels/linear/scaled_mm/cutlass.py, "
     "CutlassInt8ScaledMMLinearKernel.is_supported, takes for every CUDA device, near v0.24.0",
     int8_device},
    {"kv_type",
     "caches are in 16 bits or FP8, of MLA and of attention with sinks in FP8 from compute capability 8.9 "
     "on; in NVFP4 on Blackwell, not under MLA",
     "vllm-project/vllm vllm/v1/attention/backends/flashinfer.py:651-658, "
     "vllm/config/vllm.py:2160@ee0da84ab9; triton_attn.py, TritonAttentionImpl.__init__, pull request 43914; "
     "mla/triton_mla.py, TritonMLAImpl.__init__, of later versions, and issue 26431 (fp8e4nv on SM86); of "
     "sinks docs/design/attention_backends.md@001394336840",
     cache_type},
    {"index_device", "sparse attention under MLA and of DeepSeek-V4 has backends from Hopper on",
     "vllm-project/vllm vllm/v1/attention/backends/mla/flashmla_sparse.py:129-130, "
     "flashinfer_mla_sparse.py:89-90, vllm/platforms/cuda.py:93-142@80e511772f3e, of 23 June 2026, near "
     "v0.24.0",
     index_device},
    {"weight_math", "before Blackwell weights in FP4 are computed in 16 bits, by Marlin or Triton's kernels",
     "vllm-project/vllm vllm/model_executor/kernels/linear/nvfp4/marlin.py:18-40, "
     "vllm/model_executor/layers/fused_moe/oracle/mxfp4.py:329@ee0da84ab9",
     widened_weights},
    {"int4_math", "INT4 is computed in FP8 on Hopper, with a scale per 128 weights",
     "vllm-project/vllm vllm/model_executor: kernels/linear/mixed_precision/cutlass.py:31-71, "
     "layers/quantization/compressed_tensors/compressed_tensors.py:561-590,721-755@80e511772f3e, of 23 June "
     "2026, near v0.24.0",
     int4_math},
    {"compressed_cache",
     "DeepSeek-V4 keeps its rows in FP8 (fp8_ds_mla) where nobody asks for FlashInfer's attention, as launch "
     "files here do not",
     "vllm-project/vllm vllm/models/deepseek_v4/attention.py, _resolve_dsv4_kv_cache_dtype@0484480bc730; "
     "nvidia/model.py, _select_dsv4_attn_cls, near v0.24.0 (FlashMLA but for FLASHINFER_MLA_SPARSE_DSV4); "
     "issue 47174 (its assertion under 0.24.0)",
     compressed_cache},
};

constexpr CaseRule kUnpriced[]{
    {"weight_kernels",
     "weights in a type that the device does not compute in are widened to 16 bits by Marlin's kernels; "
     "ModelOpt's FP8 needs compute capability 8.9, until 0.26",
     "vllm-project/vllm vllm/model_executor: kernels/linear/nvfp4/marlin.py:18-40@ee0da84ab9; "
     "kernels/linear/scaled_mm/marlin.py, MarlinFP8ScaledMMLinearKernel, layers/fused_moe/oracle/nvfp4.py "
     "and fp8.py, near v0.24.0; pull request 50019",
     [](const Case& c) { return widened_unmeasured(c, "Marlin"); }},
};

constexpr LaunchRule kPlans[]{
    {"strategy",
     "tensor, pipeline, attention data and decode context parallelism; none of its attention backends has "
     "prefill context parallelism",
     "vllm-project/vllm vllm/v1/attention/backend.py:752, vllm/v1/worker/cp_utils.py:39-44@ee0da84ab9",
     [](const Case&, const Plan& p) { return missing_feature(kVllmRules, p); }},
    {"stages", "MiniMax-M3 runs in no stages, which came with 0.25",
     "vllm-project/vllm vllm/models/minimax_m3/nvidia/model.py:671-679@v0.24.0; pull request 45810 of 24 "
     "June 2026, of the release notes of v0.25.0; issue 45455",
     minimax_in_stages},
    kWholeTrays,
    {"nodes",
     "machines have equal parts of a server, or whole groups of data parallelism each, and groups above a "
     "machine whole machines; here one machine is filled after the other, as was priced",
     "vllm-project/vllm vllm/engine/arg_utils.py:1908-1940, "
     "docs/serving/expert_parallel_deployment.md:96-116@ee0da84ab9; vllm/config/parallel.py, "
     "nnodes_within_dp and local_world_size, near v0.24.0",
     [](const Case& c, const Plan& p) { return no_machines(c, p, vllm_machines); }},
    {"heads", "TP divides the query heads", "vllm-project/vllm vllm/config/model.py:1165@ee0da84ab9",
     [](const Case& c, const Plan& p) { return uneven_heads(c, p.tpa); }},
    {"kv_heads", "TP divides the KV heads, or is a multiple of them and copies them",
     "vllm-project/vllm vllm/model_executor/layers/linear.py:968-972@ee0da84ab9",
     [](const Case& c, const Plan& p) { return uneven_kv_heads(c, p.tpa); }},
    {"attention_layout", "ranks are PP x DP x TP, of which decode context parallelism takes its groups",
     "vllm-project/vllm vllm/config/parallel.py:793-801@ee0da84ab9",
     [](const Case& c, const Plan& p) { return other_attention(c, p, layout(c, p)); }},
    {"expert_layout", "experts lie whole on TP x DP ranks (--enable-expert-parallel), or all ranks cut each",
     "vllm-project/vllm vllm/model_executor/layers/fused_moe/config.py:1190-1240@ee0da84ab9",
     [](const Case& c, const Plan& p) { return other_experts(c, p, layout(c, p)); }},
    {"expert_tokens",
     "a server has one backend for the tokens of all its steps: DeepEP's kernels of few tokens for those "
     "that decode, of many for those that prefill, all-gather and reduce-scatter for both",
     "vllm-project/vllm vllm/model_executor/layers/fused_moe/all2all_utils.py, maybe_make_prepare_finalize; "
     "docs/serving/expert_parallel_deployment.md, docs/design/dbo.md@v0.24.0",
     other_expert_tokens},
    {"expert_width",
     "DeepEP's kernels of few tokens are compiled for hidden sizes, of which it takes the next larger one",
     "vllm-project/vllm vllm/model_executor/layers/fused_moe/prepare_finalize/deepep_ll.py, "
     "SUPPORTED_HIDDEN_SIZES and maybe_roundup_layer_hidden_size, near v0.24.0; deepseek-ai/DeepEP "
     "csrc/kernels/legacy/launch.cuh:113-133@dd758caf4518",
     [](const Case& c, const Plan& p) { return unheld_width(c, p, true); }},
    {"expert_ranks",
     "DeepEP takes fewer than 8 ranks or a multiple of 8, which divide the experts; before Hopper it has no "
     "kernels of few tokens and reaches no other machine; its kernels of many "
     "tokens reach other machines by those of 8 GPUs alone",
     "deepseek-ai/DeepEP csrc/legacy/buffer.hpp:114,1483@dd758caf4518, setup.py, issues 392 and 579; "
     "vllm-project/vllm vllm/distributed/device_communicators/all2all.py, DeepEPHTAll2AllManager, near "
     "v0.24.0",
     other_dispatch_ranks},
    {"expert_room", "DeepEP's kernels of few tokens count less than 1024 of a rank",
     "deepseek-ai/DeepEP csrc/kernels/legacy/internode_ll.cu:295-330@dd758caf4518 "
     "(LEGACY_FINISHED_SUM_TAG); sgl-project/sglang python/sglang/srt: "
     "layers/moe/token_dispatcher/deepep.py:351-359@49e384ce9d",
     crowded_dispatch},
    {"dense_layout", "the dense networks of a group are shared by its TP ranks",
     "vllm-project/vllm vllm/model_executor/layers/linear.py:438@ee0da84ab9",
     [](const Case& c, const Plan& p) { return other_dense(c, p, layout(c, p)); }},
    {"widths", "the ranks that cut a feed-forward network divide its width",
     "vllm-project/vllm vllm/model_executor/layers/linear.py:438,1546, "
     "vllm/model_executor/layers/fused_moe/config.py:1306@ee0da84ab9",
     [](const Case& c, const Plan& p) { return uneven_widths(c, layout(c, p).dense, layout(c, p).tpf); }},
    {"vocabulary", "TP divides the vocabulary, padded to a multiple of 64",
     "vllm-project/vllm vllm/model_executor/layers/vocab_parallel_embedding.py:258,302@ee0da84ab9",
     [](const Case& c, const Plan& p) { return uneven_vocabulary(c, p.tpa); }},
    {"blocks", "no rank cuts the 128 x 128 blocks of FP8, but in layers of several matrices (q, k and v)",
     "vllm-project/vllm vllm/model_executor/layers/quantization/utils/fp8_utils.py:1218-1243, "
     "vllm/model_executor/layers/quantization/fp8.py:562-574@ee0da84ab9; "
     "vllm/model_executor/layers/linear.py, ColumnParallelLinear._maybe_allow_fp8_block_shape_mismatch, pull "
     "request 30836",
     [](const Case& c, const Plan& p) {
       const EngineLayout e = layout(c, p);
       return cut_blocks(c, {e.tpa, e.dense, e.tpf, e.tpa, false, false});
     }},
    {"int4_parts", "a rank has multiples of 128 rows and columns of a matrix in INT4 that is computed in FP8",
     "vllm-project/vllm vllm/model_executor/kernels/linear/mixed_precision/cutlass.py:60-66@80e511772f3e, of "
     "23 June 2026, near v0.24.0",
     [](const Case& c, const Plan& p) {
       const EngineLayout e = layout(c, p);
       return cut_blocks(c, {e.tpa, e.dense, e.tpf, e.tpa}, in_int4_of_fp8);
     }},
    {"index_stages", "no stage begins on a layer that takes the choice of an index in an earlier stage",
     "vllm-project/vllm vllm/model_executor/models/deepseek_v2.py, DeepseekV2Model (topk_indices_buffer, "
     "make_empty_intermediate_tensors)@002d6073aa03; vllm/distributed/utils.py, get_pp_indices; issue 50853, "
     "C3",
     shared_choice_stage},
    {"dcp_heads",
     "DCP divides TP and, without MLA, lies inside the copies of a KV head and divides its queries",
     "vllm-project/vllm vllm/config/parallel.py:503-507, vllm/config/model.py:1185-1207@ee0da84ab9",
     dcp_heads},
    {"dcp_windows", "DCP needs one kind of attention, without windows, chunks or sinks",
     "vllm-project/vllm vllm/v1/core/kv_cache_coordinator.py:548, "
     "vllm/v1/core/single_type_kv_cache_manager.py:635,868@ee0da84ab9",
     dcp_windows},
    {"dcp_cache",
     "DCP under MLA needs a cache in 16 bits, and else none in NVFP4, which TensorRT-LLM's kernels alone "
     "read, without DCP",
     "vllm-project/vllm vllm/model_executor/layers/attention/mla_attention.py:682,802-803@ee0da84ab9; "
     "vllm/v1/attention/backends/flashinfer.py, pull requests 40177 (NVFP4 by trtllm-gen alone) and 47181 "
     "(trtllm-gen is off under DCP; closed)",
     dcp_cache},
    {"dcp_interleave", "tokens in a row on one rank divide a block of the cache",
     "vllm-project/vllm vllm/config/vllm.py:2131-2138, vllm/config/cache.py:46, "
     "vllm/v1/attention/backend.py:194-202, "
     "vllm/v1/attention/backends/mla/cutlass_mla.py:49-50@80e511772f3e, of 23 June 2026, near v0.24.0",
     dcp_interleave},
    {"dcp_queries", "DCP gathers queries: a later version can replicate their projection",
     "vllm-project/vllm vllm/envs.py@ee0da84ab9, without VLLM_DCP_Q_REPLICATE", dcp_queries},
    kVllmDraftModel,
    kVllmDraftModules,
    kVllmDraftStages,
    kVllmDraftGraphs,
    kVllmDraftInterleave,
    kVllmDraftDcp,
};

// Copies of KV heads that more ranks have for prompts than for answers are not told apart by who reads them.
// Latents need no heads, and models with states have descriptors of their own.
Complaint copied_heads(const Case& c, const Plan& prefill, const Plan& decode) {
  if (auto out = uneven_halves(prefill, decode)) return out;
  const int kv = first_attention(c.model).kv_heads;
  if (has_latents(c.model) || has_recurrence(c.model) || prefill.tpa <= decode.tpa || prefill.tpa <= kv)
    return std::nullopt;
  return fmt::format(
      "prompts over {} ranks copy {} KV heads, answers are over {}: tpa={} at most for prompts, or "
      "as many for answers",
      prefill.tpa, kv, decode.tpa, std::max(kv, decode.tpa));
}

constexpr PairRule kPairs[] = {
    {"pair_ranks",
     "the TP of one half divides the other's, and who prefills by more ranks copies no KV heads",
     "vllm-project/vllm vllm/distributed/kv_transfer/kv_connector/utils.py:521-557, "
     "kv_connector/v1/nixl/base_worker.py:1613-1619@80e511772f3e, of 23 June 2026, near v0.24.0",
     copied_heads},
    {"pair_stages", "caches are handed over between servers of one stage each",
     "vllm-project/vllm vllm/distributed/kv_transfer/kv_connector/v1/base.py:659-671, which NIXL's connector "
     "does not override, vllm/v1/engine/core.py:190@ee0da84ab9",
     [](const Case&, const Plan& prefill, const Plan& decode) -> Complaint {
       if (prefill.pp == 1 && decode.pp == 1) return std::nullopt;
       return fmt::format("these have {} and {} stages", prefill.pp, decode.pp);
     }},
    {"pair_dcp",
     "caches are handed over between servers whose ranks hold them whole or by heads: NIXL's connector reads "
     "the blocks of one rank, where decode context parallelism spreads them over several",
     "vllm-project/vllm vllm/distributed/kv_transfer/kv_connector/v1/nixl/worker.py and "
     "docs/features/nixl_connector_compatibility.md, near v0.24.0; pull request 50611, which adds it for MLA "
     "later",
     [](const Case&, const Plan& prefill, const Plan& decode) -> Complaint {
       for (const Plan* p : {&prefill, &decode}) {
         if (with_dcp(*p))
           return fmt::format("{} {}: tensor or attention data parallelism there, or one server for both",
                              to_string(*p), p == &prefill ? "prefills" : "decodes");
       }
       return std::nullopt;
     }},
    kVllmDraftPair,
    kVllmStateDraftPair,
};

}  // namespace

const LaunchRules kVllmRules{
    .engine = "vllm",
    .version = "0.24.0",
    .title = "vLLM",
    .layout = layout,
    .machines = vllm_machines,
    .features = kFeatures,
    .cases = kCases,
    .unpriced = kUnpriced,
    .plans = kPlans,
    .answers_alone = {},
    .pairs = kPairs,
    .architectures = &kVllmArchitectures,
    .files = &kVllmFiles,
    .long_context = "VLLM_ALLOW_LONG_MAX_MODEL_LEN",  // vllm/config/model.py:2222
    .draft_modules = vllm_draft_modules_of,
    .put_drafts = put_vllm_drafts,
    .block = vllm_block,
};

}  // namespace shardline
