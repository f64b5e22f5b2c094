#include "calibrate/aiconfigurator_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace shardline::aiconfigurator {

namespace {

using enum CellKind;

// Older releases call rows float16 that their collectors measured on bf16 tensors.
constexpr std::array kGemmTypes{Name{"bfloat16", "bf16"},       Name{"bf16", "bf16"},
                                Name{"float16", "bf16"},        Name{"fp8", "fp8"},
                                Name{"fp8_block", "fp8_block"}, Name{"nvfp4", "nvfp4"}};
constexpr std::array kAttentionTypes{Name{"bfloat16", "bf16"}, Name{"bf16", "bf16"}, Name{"float16", "bf16"},
                                     Name{"fp8", "fp8"}, Name{"fp8_e4m3", "fp8"}};
constexpr std::array kMoeTypes{Name{"bfloat16", "bf16"},
                               Name{"bf16", "bf16"},
                               Name{"float16", "bf16"},
                               Name{"fp8", "fp8"},
                               Name{"fp8_block", "fp8_block"},
                               Name{"nvfp4", "nvfp4"},
                               Name{"int4_wo", "int4_wo"},
                               Name{"w4afp8", "w4afp8"},
                               Name{"w4a16_mxfp4", "w4a16_mxfp4"},
                               Name{"w4a16_nvfp4", "w4a16_nvfp4"},
                               Name{"w4a8_mxfp4_mxfp8", "w4a8_mxfp4_mxfp8"}};
constexpr std::array kMessageTypes{Name{"half", "fp16"}, Name{"float16", "fp16"}, Name{"bfloat16", "bf16"},
                                   Name{"int8", "int8"}};
constexpr std::array kLinks{Name{"NVLinkTwoSided", "trtllm_nvlink_two_sided"},
                            Name{"NVLinkOneSided", "trtllm_nvlink_one_sided"}};
constexpr std::array kBackends{Name{"deepep_ht", "deepep_normal"},
                               Name{"deepep_ll", "deepep_ll"},
                               Name{"trtllm_deepep_ht", "trtllm_deepep_normal"},
                               Name{"trtllm_deepep_ll", "trtllm_deepep_ll"},
                               Name{"nvlink_two_sided", "trtllm_nvlink_two_sided"},
                               Name{"nvlink_one_sided", "trtllm_nvlink_one_sided"}};
constexpr std::array kPhases{Name{"prepare", "prepare"}, Name{"dispatch", "dispatch"},
                             Name{"combine", "combine"}};

double bytes_of(std::string_view type) { return type == "int8" ? 1 : 2; }

std::string lower(std::string_view word) {
  std::string out(word);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

bool other_beam_width(Row& r) {
  if (r.number("beam_width") <= 1) return false;
  r.leave_out(fmt::format("beam_width {:.0f}", r.number("beam_width")));
  return true;
}

constexpr std::array kCommon{Column{"framework", text}, Column{"version", text}, Column{"device", text},
                             Column{"op_name", word}, Column{"kernel_source", word}};
constexpr std::array kIgnored{"tp_size",
                              "architecture",
                              "power",
                              "power_limit",
                              "compute_bound",
                              "used_cuda_graph",
                              "transmit_us",
                              "notify_us",
                              "combine_bandwidth_gbps",
                              "dispatch_bandwidth_gbps",
                              "vllm_max_model_len",
                              "vllm_max_num_seqs",
                              "vllm_max_num_batched_tokens"};

constexpr std::array kGemmOps{"gemm"};
constexpr std::array kGemm{Column{"gemm_dtype", word}, Column{"m"}, Column{"n"}, Column{"k"},
                           Column{"latency", milliseconds}};
void read_gemm(Row& r) {
  r.add("gemm", r.number("latency"),
        {{"m", r.number("m")},
         {"n", r.number("n")},
         {"k", r.number("k")},
         {"dtype", r.named("gemm_dtype", kGemmTypes)},
         {"kernel", std::string(r.word("kernel_source"))}});
}

constexpr std::array kAttentionOps{"context_attention", "generation_attention"};
constexpr std::array kAttention{Column{"batch_size"},
                                Column{"isl"},
                                Column{"num_heads"},
                                Column{"num_key_value_heads"},
                                Column{"head_dim"},
                                Column{"window_size", size, true},
                                Column{"beam_width", size, true},
                                Column{"attn_dtype", word},
                                Column{"kv_cache_dtype", word},
                                Column{"step", size},
                                Column{"latency", milliseconds}};
void read_attention(Row& r) {
  if (other_beam_width(r)) return;
  const bool prefill = r.word("op_name") == "context_attention";
  // SGLang's name of FlashAttention-3.
  const std::string kernel(r.word("kernel_source") == "flash_attention" ? "fa3" : r.word("kernel_source"));
  std::vector<Field> fields{{"batch", r.number("batch_size")},
                            {"heads_q", r.number("num_heads")},
                            {"heads_kv", r.number("num_key_value_heads")},
                            {"head_dim", r.number("head_dim")},
                            {"window", r.number("window_size")},
                            {"dtype_compute", r.named("attn_dtype", kAttentionTypes)},
                            {"dtype_kv", r.named("kv_cache_dtype", kAttentionTypes)},
                            {"kernel", kernel}};
  if (prefill) {
    fields.push_back({"seq_q", r.number("isl")});
    fields.push_back({"kv_cached", r.number("step")});
  } else {
    fields.push_back({"kv_len", r.number("isl") + r.number("step")});
  }
  r.add(prefill ? "attention_prefill" : "attention_decode", r.number("latency"), std::move(fields));
}

// SGLang's wide-EP collectors write a module of type fp8_block under the kernels' op_name: left out.
void read_mla(Row& r, const char* scope, bool prefill, std::string gemm_type) {
  const Field scoped{"scope", std::string(scope)}, batch{"batch", r.number("batch_size")},
      heads{"heads_local", r.number("num_heads")},
      compute{"dtype_compute", r.named("mla_dtype", kAttentionTypes)},
      kv{"dtype_kv", r.named("kv_cache_dtype", kAttentionTypes)}, gemm{"dtype_gemm", std::move(gemm_type)};
  if (!prefill) {
    r.add("mla_decode", r.number("latency"),
          {scoped, batch, {"kv_len", r.number("isl") + r.number("step")}, heads, compute, kv, gemm});
  } else if (r.number("step") > 0) {
    r.leave_out("prefill behind a cached prefix (step > 0)");
  } else {
    r.add("mla_prefill", r.number("latency"),
          {scoped, batch, {"seq_q", r.number("isl")}, heads, compute, kv, gemm});
  }
}

constexpr std::array kMlaOps{"mla_context", "mla_generation"};
constexpr std::array kMla{Column{"mla_dtype", word},
                          Column{"kv_cache_dtype", word},
                          Column{"num_heads"},
                          Column{"batch_size"},
                          Column{"isl"},
                          Column{"step", size},
                          Column{"latency", milliseconds}};
void read_mla_kernel(Row& r) { read_mla(r, "kernel", r.word("op_name") == "mla_context", ""); }

constexpr std::array kMlaModuleOps{"mla_context_module", "mla_generation_module"};
constexpr std::array kMlaModule{Column{"model", word},
                                Column{"mla_dtype", word},
                                Column{"kv_cache_dtype", word},
                                Column{"gemm_type", word},
                                Column{"num_heads"},
                                Column{"batch_size"},
                                Column{"isl"},
                                Column{"step", size},
                                Column{"latency", milliseconds}};
void read_mla_module(Row& r) {
  const std::string_view path = r.word("model");
  const std::string_view model = path.substr(path.rfind('/') + 1);
  const bool known = (model.starts_with("DeepSeek-V3") && !model.starts_with("DeepSeek-V3.2")) ||
                     model.starts_with("DeepSeek-R1");
  if (!known) return r.leave_out(fmt::format("model {}: not the projections of DeepSeek-V3", path));
  std::string gemm_type = r.named("gemm_type", kGemmTypes);
  read_mla(r, "module", r.word("op_name") == "mla_context_module", std::move(gemm_type));
}

constexpr std::array kMlaBmmOps{"mla_gen_pre", "mla_gen_post", "mla_bmm_gen_pre", "mla_bmm_gen_post"};
constexpr std::array kMlaBmm{Column{"bmm_dtype", word}, Column{"num_tokens"}, Column{"num_heads"},
                             Column{"latency", milliseconds}};
void read_mla_bmm(Row& r) {
  r.add("mla_bmm", r.number("latency"),
        {{"op", std::string(r.word("op_name").ends_with("pre") ? "mla_gen_pre" : "mla_gen_post")},
         {"tokens", r.number("num_tokens")},
         {"heads_local", r.number("num_heads")},
         {"dtype", r.named("bmm_dtype", kAttentionTypes)}});
}

constexpr std::array kMoeOps{"moe"};
constexpr std::array kMoe{Column{"moe_dtype", word},      Column{"num_tokens"},  Column{"hidden_size"},
                          Column{"inter_size"},           Column{"topk"},        Column{"num_experts"},
                          Column{"moe_tp_size"},          Column{"moe_ep_size"}, Column{"distribution", word},
                          Column{"latency", milliseconds}};
void read_moe(Row& r) {
  std::string_view kernel = r.word("kernel_source");
  if (kernel.starts_with("moe_torch_flow")) kernel.remove_prefix(4);
  r.add("moe", r.number("latency"),
        {{"kernel", std::string(kernel)},
         {"dtype", r.named("moe_dtype", kMoeTypes)},
         {"tokens", r.number("num_tokens")},
         {"hidden", r.number("hidden_size")},
         {"inter", r.number("inter_size")},
         {"topk", r.number("topk")},
         {"experts", r.number("num_experts")},
         {"tp", r.number("moe_tp_size")},
         {"ep", r.number("moe_ep_size")},
         {"routing", std::string(r.word("distribution"))}});
}

constexpr std::array kNcclOps{"all_reduce", "all_gather", "reduce_scatter", "alltoall"};
constexpr std::array kNccl{Column{"nccl_dtype", word}, Column{"num_gpus"}, Column{"message_size"},
                           Column{"latency", milliseconds}};
void read_nccl(Row& r) {
  const std::string type = r.named("nccl_dtype", kMessageTypes);
  r.add("nccl", r.number("latency"),
        {{"op", std::string(r.word("op_name"))},
         {"dtype", type},
         {"gpus", r.number("num_gpus")},
         {"message_bytes", r.number("message_size") * bytes_of(type)}});
}

constexpr std::array kAllReduceOps{"all_reduce"};
constexpr std::array kAllReduce{Column{"allreduce_dtype", word},
                                Column{"num_gpus"},
                                Column{"message_size"},
                                Column{"latency", milliseconds},
                                Column{"implementation", text, true},
                                Column{"backend", text, true}};
void read_allreduce(Row& r) {
  const std::string kernel = lower(r.word("kernel_source"));
  std::string name = lower(r.word("implementation"));
  if (name.empty()) name = lower(r.word("backend"));
  if (name.empty() || (name == "trtllm" && kernel != "trtllm")) name = kernel;
  if (name.ends_with("_eager") || kernel.ends_with("_eager"))
    return r.leave_out("launched eagerly, not from a CUDA graph");
  const std::string type = r.named("allreduce_dtype", kMessageTypes);
  r.add("allreduce", r.number("latency"),
        {{"implementation", name == "trtllm" ? "trtllm_auto" : name},
         {"dtype", type},
         {"gpus", r.number("num_gpus")},
         {"message_bytes", r.number("message_size") * bytes_of(type)}});
}

void add_exchange(Row& r, std::string implementation, std::string phase, std::string type, double us,
                  double gpus, double nodes, double sms, const char* tokens, const char* topk) {
  r.add("alltoall", us,
        {{"implementation", std::move(implementation)},
         {"phase", std::move(phase)},
         {"dtype", std::move(type)},
         {"gpus", gpus},
         {"nodes", nodes},
         {"tokens_per_rank", r.number(tokens)},
         {"hidden", r.number("hidden_size")},
         {"topk", r.number(topk)},
         {"experts", r.number("num_experts")},
         {"sms", sms}});
}

// DeepEP's own benchmarks dispatch FP8 and combine BF16; their tables do not say how many GPUs a node has.
double deepep_gpus(const Row& r) {
  const std::string_view device = r.word("device");
  const bool four = device.find("GB200") != device.npos || device.find("GB300") != device.npos;
  return r.number("node_num") * (four ? 4 : 8);
}

constexpr std::array kDeepEpOps{"normal"};
constexpr std::array kDeepEp{Column{"node_num"},
                             Column{"hidden_size"},
                             Column{"num_token"},
                             Column{"num_topk"},
                             Column{"num_experts"},
                             Column{"dispatch_sms", size},
                             Column{"dispatch_transmit_us", microseconds},
                             Column{"dispatch_notify_us", microseconds},
                             Column{"combine_sms", size},
                             Column{"combine_transmit_us", microseconds},
                             Column{"combine_notify_us", microseconds}};
void read_deepep(Row& r) {
  add_exchange(r, "deepep_normal", "dispatch", "fp8",
               r.number("dispatch_transmit_us") + r.number("dispatch_notify_us"), deepep_gpus(r),
               r.number("node_num"), r.number("dispatch_sms"), "num_token", "num_topk");
  add_exchange(r, "deepep_normal", "combine", "bf16",
               r.number("combine_transmit_us") + r.number("combine_notify_us"), deepep_gpus(r),
               r.number("node_num"), r.number("combine_sms"), "num_token", "num_topk");
}

constexpr std::array kDeepEpLlOps{"ll"};
constexpr std::array kDeepEpLl{Column{"node_num"},
                               Column{"hidden_size"},
                               Column{"num_token"},
                               Column{"num_topk"},
                               Column{"num_experts"},
                               Column{"combine_avg_t_us", microseconds},
                               Column{"dispatch_avg_t_us", microseconds}};
void read_deepep_ll(Row& r) {
  add_exchange(r, "deepep_ll", "dispatch", "fp8", r.number("dispatch_avg_t_us"), deepep_gpus(r),
               r.number("node_num"), 0, "num_token", "num_topk");
  add_exchange(r, "deepep_ll", "combine", "bf16", r.number("combine_avg_t_us"), deepep_gpus(r),
               r.number("node_num"), 0, "num_token", "num_topk");
}

constexpr std::array kTrtllmOps{"alltoall_prepare", "alltoall_dispatch", "alltoall_combine",
                                "alltoall_combine_low_precision"};
constexpr std::array kTrtllm{Column{"moe_dtype", word},
                             Column{"num_tokens"},
                             Column{"hidden_size"},
                             Column{"topk"},
                             Column{"num_experts"},
                             Column{"moe_ep_size"},
                             Column{"num_nodes", count, true},
                             Column{"distribution", text, true},
                             Column{"latency", milliseconds}};
void read_trtllm(Row& r) {
  const double gpus = r.number("moe_ep_size");
  // Without a column of nodes the rows are of GB200, four GPUs to a node.
  const double stated = r.number("num_nodes");
  const double nodes = stated > 0 ? stated : std::max(1.0, std::floor(gpus / 4));
  std::string implementation = r.named("kernel_source", kLinks);
  add_exchange(r, std::move(implementation), std::string(r.word("op_name").substr(9)),
               r.named("moe_dtype", kMoeTypes), r.number("latency"), gpus, nodes, 0, "num_tokens", "topk");
}

constexpr std::array kExchangeOps{"moe_a2a"};
constexpr std::array kExchange{Column{"comm_backend", word},
                               Column{"phase", word},
                               Column{"comm_dtype", word},
                               Column{"ep_size"},
                               Column{"node_num"},
                               Column{"hidden_size"},
                               Column{"topk"},
                               Column{"num_experts"},
                               Column{"num_tokens"},
                               Column{"sms", size, true},
                               Column{"latency", microseconds}};
void read_exchange(Row& r) {
  std::string phase = r.named("phase", kPhases), type;
  if (r.word("comm_dtype") == "default") {
    if (lower(r.word("framework")) != "sglang")
      return r.leave_out(fmt::format("comm_dtype default of {}", r.word("framework")));
    type = phase == "combine" ? "bf16" : "fp8";
  } else if (r.word("comm_dtype") == "fp4" && phase == "combine") {
    phase = "combine_low_precision";
    type = "nvfp4";
  } else {
    type = r.named("comm_dtype", kMoeTypes);
  }
  std::string implementation = r.named("comm_backend", kBackends);
  add_exchange(r, std::move(implementation), std::move(phase), std::move(type), r.number("latency"),
               r.number("ep_size"), r.number("node_num"), r.number("sms"), "num_tokens", "topk");
}

constexpr std::array kTables{
    Table{"gemm", kGemm, kGemmOps, read_gemm},
    Table{"attention", kAttention, kAttentionOps, read_attention},
    Table{"MLA", kMla, kMlaOps, read_mla_kernel},
    Table{"MLA modules", kMlaModule, kMlaModuleOps, read_mla_module},
    Table{"MLA bmm", kMlaBmm, kMlaBmmOps, read_mla_bmm},
    Table{"moe", kMoe, kMoeOps, read_moe},
    Table{"nccl", kNccl, kNcclOps, read_nccl},
    Table{"custom allreduce", kAllReduce, kAllReduceOps, read_allreduce},
    Table{"DeepEP normal", kDeepEp, kDeepEpOps, read_deepep},
    Table{"DeepEP low latency", kDeepEpLl, kDeepEpLlOps, read_deepep_ll},
    Table{"TensorRT-LLM alltoall", kTrtllm, kTrtllmOps, read_trtllm},
    Table{"MoE alltoall", kExchange, kExchangeOps, read_exchange},
};

}  // namespace

std::span<const Table> tables() { return kTables; }
std::span<const Column> common_columns() { return kCommon; }
std::span<const char* const> ignored_columns() { return kIgnored; }

}  // namespace shardline::aiconfigurator
