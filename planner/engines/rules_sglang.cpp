// SGLang 0.5.14: sgl-project/sglang at tag v0.5.14, 49e384ce9d; its files are below python/sglang/srt.
// `--tp-size` is all ranks of a pipeline stage; `--dp-size` with `--enable-dp-attention` and `--attn-cp-size`
// are parts of it. `--ep-size` and `--moe-dp-size` share the experts, `--moe-dense-tp-size` the dense
// networks.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/engines/dispatch_room.hpp"
#include "planner/engines/draft_rules.hpp"
#include "planner/engines/file_methods.hpp"
#include "planner/engines/sglang_caches.hpp"
#include "planner/engines/sglang_experts.hpp"
#include "planner/layers/share.hpp"

namespace shardline {

namespace {

struct Flags {
  int tp = 1, pp = 1, dp = 1, attn_cp = 1, ep = 1, moe_dp = 1;
  int moe_dense_tp = 0;  // 0: not given
};

bool prefill_cp(const Plan& p) { return p.cp > 1; }

// MoE data parallelism: context-parallel ranks that hold copies of the experts.
Flags flags_of(const Case& c, const Plan& p) {
  Flags f{p.dp * p.cp * p.tpa, p.pp, p.dp, p.cp, p.ep, 1, 0};
  if (prefill_cp(p) && !spreads_experts(p)) f.moe_dp = p.cp;
  if (p.dp > 1 && has_dense(c.model) && dense_ffn_ranks(p) == 1) f.moe_dense_tp = 1;
  return f;
}

// distributed/parallel_state.py, initialize_model_parallel; layers/dp_attention.py. Under MLA prefill context
// parallelism takes all of a group and leaves no choice of the others (server_args.py:3652-3681); of
// DeepSeek-V4 likewise, with DeepEP's experts (deepseek_v4_hook.py:74-95, models/deepseek_v4.py:1574).
EngineLayout layout_of(const Case& c, Flags f) {
  if (f.attn_cp > 1 && (has_latents(c.model) || has_compression(c.model))) {
    f.attn_cp = f.tp / f.dp;
    f.ep = f.tp;
    f.moe_dp = f.moe_dense_tp = 1;
  }
  EngineLayout e;
  e.pp = f.pp;
  e.dp = f.dp;
  e.cp = f.attn_cp;
  e.tpa = f.tp / f.dp / f.attn_cp;
  e.ep = f.ep;
  e.tpf = f.tp / f.ep / f.moe_dp;
  e.dense = f.moe_dense_tp > 0 ? f.moe_dense_tp : f.tp;
  return e;
}

EngineLayout layout(const Case& c, const Plan& p) { return layout_of(c, flags_of(c, p)); }

// Integer divisions leave ranks out where the experts' groups do not make up TP.
Complaint expert_groups(const Case& c, const Plan& p) {
  const Flags f = flags_of(c, p);
  if (f.ep * f.moe_dp == 0 || f.tp % (f.ep * f.moe_dp) != 0)
    return fmt::format("ep={} x moe_dp={} do not divide {}", f.ep, f.moe_dp, f.tp);
  if (f.moe_dp > 1 && f.pp > 1) return fmt::format("moe_dp={} with {} stages", f.moe_dp, f.pp);
  if (f.moe_dp > 1 && f.ep > 1 && f.ep * f.moe_dp != f.tp)
    return fmt::format("ep={} x moe_dp={} are not the {} ranks", f.ep, f.moe_dp, f.tp);
  if (spreads_experts(p) && p.tpf > 1)
    return fmt::format("tokens are sent to experts on ep={} of {} ranks", f.ep, f.tp);
  return std::nullopt;
}

// Their classes keep the group of context-parallel ranks; others run as if each had all tokens.
bool of_qwen_moe(const Model& m) {
  return has_experts(m) && !has_local_attention(m) && !has_latents(m) &&
         (m.qk_norm || m.attention_bias == AttentionBias::qkv);
}

Complaint cp_model(const Case& c, const Plan& p) {
  if (!prefill_cp(p)) return std::nullopt;
  if (has_recurrence(c.model)) return c.model.name + " has layers that keep a state";
  if (has_latents(c.model) || has_compression(c.model) || of_qwen_moe(c.model)) return std::nullopt;
  return c.model.name + " is neither of MLA nor a Qwen model with experts";
}

// Classes whose forward() takes nothing from a stage before it (pp_proxy_tensors), read of every class that
// architectures.cpp lists.
constexpr std::array kOfOneStage{
    ReadArchitecture{"Ernie4_5_MoeForCausalLM", "models/ernie4.py:331"},
    ReadArchitecture{"Gemma3ForCausalLM", "models/gemma3_causal.py:757"},
    ReadArchitecture{"Gemma3ForConditionalGeneration", "models/gemma3_mm.py:343"},
    ReadArchitecture{"Llama4ForConditionalGeneration", "models/mllama4.py:565"},
    ReadArchitecture{"MiMoForCausalLM", "models/mimo.py:83"},
    ReadArchitecture{"Qwen3NextForCausalLM", "models/qwen3_next.py:1067"},
};

Complaint stages(const Case& c, const Plan& p) { return more_stages(c, p, kOfOneStage); }

// FlashInfer's CUTLASS runs the experts of Nemotron-H in 16 bits or FP8 before Blackwell; in FP4 Marlin does.
Complaint expert_runner(const Case& c, const Plan& p) {
  const int tp = p.ranks_per_stage();
  if (c.model.architecture != "NemotronHForCausalLM" || !has_experts(c.model) || p.ep == 1 || p.ep == tp ||
      architecture_of(c.system.device) == Architecture::blackwell ||
      element_bits(c.precision.of(Module::experts).weights) < 8)
    return std::nullopt;
  return fmt::format("ep={} of {} ranks of {}: ep=1 or ep={}", p.ep, tp, c.model.name, tp);
}

Complaint cp_device(const Case& c, const Plan& p) {
  if (!prefill_cp(p) || !has_latents(c.model) || architecture_of(c.system.device) == Architecture::hopper)
    return std::nullopt;
  return fmt::format("MLA on {}", c.system.device.name);
}

Complaint cp_ranks(const Case& c, const Plan& p) {
  if (!prefill_cp(p) || p.ranks_per_stage() <= 8) return std::nullopt;
  if (!has_sparse_latents(c.model) && !has_compression(c.model)) return std::nullopt;
  return fmt::format("{} of sparse attention on {} ranks", c.model.name, p.ranks_per_stage());
}

// The layers that it can interleave are those of DeepSeek's, Qwen3's and MiMo-V2's classes; they hand no
// choice of tokens from one layer to the next.
Complaint two_batch_model(const Case& c, const Plan& p) {
  if (p[kOverlap] == Overlap::none) return std::nullopt;
  if (shares_index(c.model)) return c.model.name + " has layers that take the index of an earlier one";
  const auto shares = [](const FeedForward& f) { return f.shared_experts > 0; };
  const bool qwen3 = of_qwen_moe(c.model) && c.model.qk_norm &&
                     std::none_of(c.model.ffns.begin(), c.model.ffns.end(), shares);
  if (p[kOverlap] == Overlap::none || has_latents(c.model) || qwen3) return std::nullopt;
  return c.model.name + " is neither of MLA nor a Qwen3 model with experts";
}

// Mixed steps have no order of stages.
Complaint two_batch_step(const Case& c, const Plan& p) {
  if (p[kOverlap] == Overlap::none || c.batch.kind() != StepKind::mixed) return std::nullopt;
  return "prompts beside requests that decode";
}

Cuts cuts_of(const Case& c, const Plan& p) {
  const EngineLayout e = layout(c, p);
  // Shared experts are whole on every rank where tokens are sent to experts, and shared by all ranks of the
  // stage where these are gathered (models/deepseek_v2.py).
  const bool sends = p.dp > 1 || p.cp > 1;
  const bool gathers = p.dp > 1 && p[kExpertTokens] == ExpertTokens::gather;
  // models/mimo_v2.py, MiMoV2Attention (skip_block_quant_check): keys of 192.
  const bool qkv = !c.model.architecture.starts_with("MiMoV2");
  return {e.tpa, e.dense, e.tpf, gathers ? p.ranks_per_stage() : sends ? 1 : e.tpa, qkv};
}

// INT4 with activations in FP8 is of experts alone: dense matrices of such checkpoints are in block FP8
// (layers/quantization/w4afp8.py:93-105), and compressed-tensors has no such pair.
std::optional<CaseComplaint> int4_math(const Case& c) {
  for (const KeptModule& k : kept_modules(c.model)) {
    const ModuleType t = c.precision.of(k.module);
    if (k.module == Module::experts || !in_int4_of_fp8(t)) continue;
    return CaseComplaint{
        k.math_key,
        fmt::format("{} of {} in {}, computed in fp8", k.name, c.model.name, to_string(t.weights)),
        fmt::format("bf16: precision.math, or {} of {} alone", k.math_key, k.name)};
  }
  return std::nullopt;
}

// Triton's kernel of experts, the only one of FP8 there, does not compile before compute capability 8.9.
std::optional<CaseComplaint> fp8_experts(const Case& c) {
  if (!has_experts(c.model) || architecture_of(c.system.device) != Architecture::ampere) return std::nullopt;
  const Dtype t = c.precision.of(Module::experts).weights;
  if (element_bits(t) != 8) return std::nullopt;
  return CaseComplaint{
      "precision.expert_weights",
      fmt::format("experts of {} in {} on {}", c.model.name, to_string(t), c.system.device.name),
      "bf16 or int4 for experts, or a system of Hopper or Blackwell"};
}

constexpr std::array kFeatures{LaunchedAs::tensor, LaunchedAs::pipeline, LaunchedAs::attention_dp,
                               LaunchedAs::prefill_cp};

constexpr CaseRule kCases[]{
    {"model",
     "it has a class for each architecture that it starts, or takes that of the Transformers library where "
     "this leaves attention to it",
     "sgl-project/sglang python/sglang/srt: models/registry.py and model_loader/utils.py, "
     "get_model_architecture and resolve_transformers_arch, near v0.5.14",
     [](const Case& c) { return missing_model(c, kSglangRules); }},
    {"context", "a request fits into the model's maximum length, prompt and output together",
     "sgl-project/sglang python/sglang/srt: configs/model_config.py:667-694@49e384ce9d",
     [](const Case& c) { return too_long(c, kSglangRules); }},
    {"weight_files", "it reads files of some tools alone, and of some types of each",
     "sgl-project/sglang python/sglang/srt: configs/model_config.py:1145-1157@49e384ce9d, "
     "layers/quantization/__init__.py, BASE_QUANTIZATION_METHODS, and gptq.py, GPTQConfig (its "
     "get_quant_method of experts, too), near v0.5.14",
     [](const Case& c) { return unread_files(c, kSglangFiles); }},
    {"kv_block",
     "launch files name no page size but of pairs, whose pages the engine needs: blocks say nothing",
     "sgl-project/sglang python/sglang/srt: server_args.py, page_size@49e384ce9d",
     [](const Case& c) { return other_block(c, kSglangRules); }},
    {"int8_device", "INT8 is multiplied by kernels of Turing to Hopper, which end with an error on Blackwell",
     "sgl-project/sglang sgl-kernel/csrc/gemm/int8_gemm_kernel.cu, int8_scaled_mm@1f2840c9c9f6, which "
     "python/sglang/srt/layers/quantization/w8a8_int8.py and compressed_tensors call, near v0.5.14",
     int8_device},
    {"kv_type",
     "caches are in 16 bits or FP8, of MLA and of sinks in FP8 from compute capability 8.9 on; in FP4 with "
     "the attention that is its default on Blackwell, not of sparse attention nor of Nemotron-H",
     "sgl-project/sglang python/sglang/srt: server_args.py:591-601,3426-3429,4407-4446,4727-4800, "
     "arg_groups/nemotron_h_hook.py:60-61@49e384ce9d; _get_default_attn_backend@e93c60e6ab43; pull request "
     "18882; triton-lang/triton python/triton/language/semantic.py, cast (fp8e4nv)",
     sglang_cache_type},
    {"index_device",
     "the index of sparse attention, of DeepSeek-V4, too, is computed by DeepGEMM, from Hopper on",
     "sgl-project/sglang python/sglang/srt: layers/attention/dsa/dsa_indexer.py:704-716,892, "
     "layers/attention/dsa_backend.py:858, layers/deep_gemm_wrapper/configurer.py@49e384ce9d; issue 33194",
     index_device},
    {"weight_type", "experts in FP8 need a device that computes in FP8",
     "sgl-project/sglang python/sglang/srt: layers/quantization/fp8.py, Fp8MoEMethod, near v0.5.14; pull "
     "request 30681, which adds Marlin's kernels later",
     fp8_experts},
    {"weight_math", "before Blackwell weights in FP4 are computed in 16 bits, by Marlin or Triton's kernels",
     "sgl-project/sglang python/sglang/srt: layers/quantization/fp4_utils.py:157, "
     "layers/quantization/modelopt_quant.py:1771, layers/quantization/mxfp4.py:336-345@49e384ce9d",
     widened_weights},
    {"int4_math", "INT4 is computed in FP8 in experts alone",
     "sgl-project/sglang python/sglang/srt: layers/quantization/w4afp8.py:93-105, "
     "layers/quantization/compressed_tensors/compressed_tensors.py:550-565@49e384ce9d",
     int4_math},
    {"compressed_cache",
     "DeepSeek-V4 keeps packed rows of 584 bytes per token, in FP8 beside 64 numbers in BF16, and no others",
     "sgl-project/sglang python/sglang/srt: mem_cache/deepseek_v4_memory_pool.py, "
     "DeepSeekV4SingleKVPool.create_buffer@418025512e12 and @007bddd4a95b (asserts store_dtype uint8; "
     "--kv-cache-dtype bfloat16 passes the options and stops there, issue 33194); of BF16 pull request 28033 "
     "of June 2026, closed",
     compressed_cache},
};

constexpr CaseRule kUnpriced[]{
    {"gptq_kernels", "of GPTQ's files Marlin's kernels take symmetric ones, ExLlama's, in float16, the rest",
     "sgl-project/sglang python/sglang/srt: layers/quantization/gptq.py, "
     "GPTQMarlinConfig.is_gptq_marlin_compatible and GPTQConfig.get_supported_act_dtypes, "
     "model_loader/loader.py, _get_quantization_config, near v0.5.14",
     gptq_kernels},
    {"cache_kernels",
     "a cache in FP4 is dequantised as a whole, to 16 bits, by each layer that attends to it",
     "sgl-project/sglang python/sglang/srt: mem_cache/memory_pool.py:1781-1815,2390-2408@49e384ce9d",
     sglang_unpriced_cache},
    {"weight_kernels",
     "weights in a type that the device does not compute in are widened to 16 bits by Marlin's kernels; "
     "ModelOpt's FP8 needs compute capability 8.9",
     "sgl-project/sglang python/sglang/srt: layers/quantization/modelopt_quant.py:1771@49e384ce9d; "
     "layers/quantization/fp8_utils.py, can_auto_enable_marlin_fp8, and modelopt_quant.py, "
     "ModelOptFp8Config.get_min_capability, near v0.5.14",
     [](const Case& c) { return widened_unmeasured(c, "Marlin"); }},
};

constexpr LaunchRule kPlans[]{
    {"strategy",
     "tensor, pipeline, attention data and prefill context parallelism; decode context parallelism came with "
     "0.5.15",
     "sgl-project/sglang python/sglang/srt: server_args.py:823@v0.5.15, not in 49e384ce9d",
     [](const Case&, const Plan& p) { return missing_feature(kSglangRules, p); }},
    kWholeTrays,
    // Of a quantised checkpoint no group of Mamba-2 is copied to several ranks ("Tensor parallel currently
    // supported for quantized models only if tensor parallel world size divides num groups",
    // layers/attention/mamba/mamba.py).
    {"heads", "attention TP divides the query heads",
     "sgl-project/sglang python/sglang/srt: layers/linear.py:949@49e384ce9d",
     [](const Case& c, const Plan& p) { return uneven_heads(c, layout(c, p).tpa, !quantised(c)); }},
    {"kv_heads", "attention TP divides the KV heads, or is a multiple of them and copies them",
     "sgl-project/sglang python/sglang/srt: layers/linear.py:950-955@49e384ce9d",
     [](const Case& c, const Plan& p) { return uneven_kv_heads(c, layout(c, p).tpa); }},
    {"cp_model",
     "prefill context parallelism is of DeepSeek's MLA, of DeepSeek-V4 and of Qwen models with experts, "
     "without layers that keep a state",
     "sgl-project/sglang python/sglang/srt: models/deepseek_v2.py:1528, models/deepseek_v4.py:282, "
     "models/qwen3_moe.py:971, models/qwen2_moe.py:829@49e384ce9d",
     cp_model},
    {"cp_device",
     "prefill context parallelism under MLA: FlashAttention 3, on Hopper; of sparse attention verified there",
     "sgl-project/sglang python/sglang/srt: server_args.py:3562-3589,3652-3681, "
     "layers/cp/base.py:72-78@49e384ce9d",
     cp_device},
    {"cp_ranks", "prefill context parallelism of sparse attention is of one machine, 8 ranks at most",
     "sgl-project/sglang python/sglang/srt: server_args.py:3578-3580@49e384ce9d", cp_ranks},
    {"stages", "models run in stages whose class hands its hidden states on",
     "sgl-project/sglang python/sglang/srt: model_executor/model_runner.py:591-599@49e384ce9d", stages},
    {"attention_layout",
     "TP is all ranks of a stage, data and context parallelism are parts of it; under MLA and of DeepSeek-V4 "
     "context parallelism leaves no attention TP",
     "sgl-project/sglang python/sglang/srt: layers/dp_attention.py:245-259, "
     "server_args.py:3652-3681@49e384ce9d",
     [](const Case& c, const Plan& p) { return other_attention(c, p, layout(c, p)); }},
    {"expert_groups",
     "EP x MoE DP divide the ranks of a stage; tokens are sent to experts with EP = TP alone",
     "sgl-project/sglang python/sglang/srt: server_args.py:5017-5039,5274-5360, "
     "distributed/parallel_state.py:2034-2036@49e384ce9d",
     expert_groups},
    {"expert_exchange",
     "tokens are dispatched to experts in block FP8, or in INT4 computed in FP8, by classes that expect it",
     "sgl-project/sglang python/sglang/srt: layers/moe/ep_moe/layer.py:79-140,188-206, "
     "layers/quantization/fp8.py:890-905, models/gpt_oss.py:260-263@49e384ce9d; pull request 16462",
     sglang_undispatched},
    {"mxfp4_ranks", "before Blackwell experts in MXFP4 have kernels without EP alone",
     "sgl-project/sglang python/sglang/srt: server_args.py:3914-3931@49e384ce9d; "
     "layers/quantization/mxfp4.py, process_weights_after_loading, near v0.5.14",
     sglang_widened_experts},
    {"expert_runner",
     "before Blackwell the experts of Nemotron-H are whole on EP = TP ranks or cut by all of them",
     "sgl-project/sglang python/sglang/srt: arg_groups/nemotron_h_hook.py:36-58, "
     "server_args.py:5107-5117@49e384ce9d",
     expert_runner},
    {"expert_width",
     "DeepEP's kernels of few tokens, which steps that decode take, are compiled for hidden sizes",
     "deepseek-ai/DeepEP csrc/kernels/legacy/launch.cuh:113-133@dd758caf4518; sgl-project/sglang "
     "python/sglang/srt: layers/moe/utils.py, DeepEPMode.resolve, near v0.5.14",
     [](const Case& c, const Plan& p) { return unheld_width(c, p, false); }},
    {"expert_ranks",
     "DeepEP takes fewer than 8 ranks or a multiple of 8, which divide the experts; before Hopper it has no "
     "kernels of few tokens and reaches no other machine; its kernels of many "
     "tokens reach more than 8 ranks by machines of 8 GPUs alone",
     "deepseek-ai/DeepEP csrc/legacy/buffer.hpp:114,1483@dd758caf4518, setup.py, issues 392 and 579; "
     "sgl-project/sglang python/sglang/srt: layers/moe/token_dispatcher/deepep.py, near v0.5.14",
     other_dispatch_ranks},
    {"expert_room", "DeepEP's kernels of few tokens count less than 1024 of a rank",
     "sgl-project/sglang python/sglang/srt: layers/moe/token_dispatcher/deepep.py:351-359@49e384ce9d; "
     "deepseek-ai/DeepEP csrc/kernels/legacy/internode_ll.cu:295-330@dd758caf4518",
     crowded_dispatch},
    {"expert_layout", "what EP and MoE DP leave of a stage's ranks cuts each expert",
     "sgl-project/sglang python/sglang/srt: distributed/parallel_state.py:2034-2036@49e384ce9d",
     [](const Case& c, const Plan& p) { return other_experts(c, p, layout(c, p)); }},
    {"dense_layout",
     "between groups of attention dense networks are whole on every rank or shared by all of the stage",
     "sgl-project/sglang python/sglang/srt: server_args.py:6663-6667@49e384ce9d",
     [](const Case& c, const Plan& p) { return other_dense(c, p, layout(c, p)); }},
    {"experts", "EP divides the experts",
     "sgl-project/sglang python/sglang/srt: layers/moe/fused_moe_triton/layer.py:210@49e384ce9d",
     [](const Case& c, const Plan& p) { return uneven_experts(c, p.ep); }},
    {"widths", "the ranks that cut a feed-forward network divide its width",
     "sgl-project/sglang python/sglang/srt: layers/linear.py:345,1396, "
     "layers/moe/fused_moe_triton/layer.py:216@49e384ce9d",
     [](const Case& c, const Plan& p) { return uneven_widths(c, layout(c, p).dense, layout(c, p).tpf); }},
    {"vocabulary", "TP divides the vocabulary, padded to a multiple of 64",
     "sgl-project/sglang python/sglang/srt: layers/vocab_parallel_embedding.py:258-263,316@49e384ce9d",
     [](const Case& c, const Plan& p) { return uneven_vocabulary(c, p.ranks_per_stage()); }},
    {"blocks", "no rank cuts the 128 x 128 blocks of FP8, but of MiMo-V2's queries, keys and values",
     "sgl-project/sglang python/sglang/srt: layers/quantization/fp8.py:390-407,929-952, "
     "layers/quantization/fp8_utils.py:1809-1825@49e384ce9d; models/mimo_v2.py, skip_block_quant_check",
     [](const Case& c, const Plan& p) { return cut_blocks(c, cuts_of(c, p)); }},
    {"two_batch_model",
     "two halves of a batch overlap in DeepSeek's MLA, each layer with an index of its own, and in Qwen3 "
     "models with experts",
     "sgl-project/sglang python/sglang/srt: batch_overlap/operations_strategy.py:36-69, "
     "server_args.py:3547-3558@49e384ce9d",
     two_batch_model},
    {"two_batch_step", "two halves of a batch overlap in steps that decode alone or prefill alone",
     "sgl-project/sglang python/sglang/srt: batch_overlap/operations_strategy.py:87-101@49e384ce9d",
     two_batch_step},
    {"nodes",
     "a node holds whole stages, or a stage whole nodes, as many ranks on each; here one node is filled "
     "after the other, as was priced",
     "sgl-project/sglang python/sglang/srt: entrypoints/engine.py:1376-1404@49e384ce9d",
     [](const Case& c, const Plan& p) { return no_machines(c, p, sglang_machines); }},
    kSglangDraftModel,
    kSglangDraftStages,
    kSglangDraftMixed,
};

constexpr PairRule kPairs[] = {
    {"pair_ranks", "the attention TP of one half divides the other's",
     "sgl-project/sglang python/sglang/srt: disaggregation/common/conn.py:281-313@49e384ce9d",
     [](const Case&, const Plan& prefill, const Plan& decode) { return uneven_halves(prefill, decode); }},
    {"pair_stages", "who decodes has as many stages as who prefills, or one",
     "sgl-project/sglang python/sglang/srt: disaggregation/common/conn.py:342-345@49e384ce9d",
     [](const Case&, const Plan& prefill, const Plan& decode) -> Complaint {
       if (decode.pp == 1 || decode.pp == prefill.pp) return std::nullopt;
       return fmt::format("{} stages decode, {} prefill", decode.pp, prefill.pp);
     }},
    kSglangDraftPair,
};

}  // namespace

const LaunchRules kSglangRules{
    .engine = "sglang",
    .version = "0.5.14",
    .title = "SGLang",
    .layout = layout,
    .machines = sglang_machines,
    .features = kFeatures,
    .cases = kCases,
    .unpriced = kUnpriced,
    .plans = kPlans,
    .answers_alone = {},
    .pairs = kPairs,
    .architectures = &kSglangArchitectures,
    .files = &kSglangFiles,
    .long_context = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",  // configs/model_config.py:678
    .draft_modules = sglang_draft_modules_of,
    .put_drafts = put_sglang_drafts,
};

}  // namespace shardline
