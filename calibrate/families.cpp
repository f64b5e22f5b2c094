// The kinds of measured operations and their columns. README.md has them as a table.
#include <array>

#include "calibrate/measurement.hpp"

namespace shardline {

namespace {

using enum ColumnKind;

constexpr std::array kGemmTypes{"bf16", "fp8", "fp8_static", "fp8_block", "nvfp4"};
constexpr std::array kTypes{"bf16", "fp16", "fp8"};
constexpr std::array kScopes{"kernel", "module", "kernel_paged", "module_wideep", "absorbed"};
constexpr std::array kNcclOps{"all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"};
constexpr std::array kBmmOps{"mla_gen_pre", "mla_gen_post"};
constexpr std::array kPhases{"prepare", "dispatch", "combine", "combine_low_precision"};

// Tables of one engine's kernels need not name them, and those without prefixes need not say so.
constexpr ColumnSpec kKernel{"kernel", optional_name, {}, true};
constexpr ColumnSpec kCached{"kv_cached", size, {}, true};

constexpr std::array kGemm{ColumnSpec{"m"}, ColumnSpec{"n"}, ColumnSpec{"k"},
                           ColumnSpec{"dtype", name, kGemmTypes}, ColumnSpec{"kernel", name}};
constexpr std::array kPrefill{ColumnSpec{"batch"},
                              ColumnSpec{"seq_q"},
                              ColumnSpec{"kv_cached", size},
                              ColumnSpec{"heads_q"},
                              ColumnSpec{"heads_kv"},
                              ColumnSpec{"head_dim"},
                              ColumnSpec{"window", size},
                              ColumnSpec{"dtype_compute", name, kTypes},
                              ColumnSpec{"dtype_kv", name, kTypes},
                              ColumnSpec{"kernel", name}};
constexpr std::array kDecode{ColumnSpec{"batch"},
                             ColumnSpec{"kv_len"},
                             ColumnSpec{"heads_q"},
                             ColumnSpec{"heads_kv"},
                             ColumnSpec{"head_dim"},
                             ColumnSpec{"window", size},
                             ColumnSpec{"dtype_compute", name, kTypes},
                             ColumnSpec{"dtype_kv", name, kTypes},
                             ColumnSpec{"kernel", name}};
constexpr std::array kMlaPrefill{ColumnSpec{"scope", name, kScopes},
                                 ColumnSpec{"batch"},
                                 ColumnSpec{"seq_q"},
                                 kCached,
                                 ColumnSpec{"heads_local"},
                                 ColumnSpec{"dtype_compute", name},
                                 ColumnSpec{"dtype_kv", name},
                                 ColumnSpec{"dtype_gemm", optional_name},
                                 kKernel};
constexpr std::array kMlaDecode{ColumnSpec{"scope", name, kScopes},
                                ColumnSpec{"batch"},
                                ColumnSpec{"kv_len"},
                                ColumnSpec{"heads_local"},
                                ColumnSpec{"dtype_compute", name},
                                ColumnSpec{"dtype_kv", name},
                                ColumnSpec{"dtype_gemm", optional_name},
                                kKernel};
constexpr std::array kMlaBmm{ColumnSpec{"op", name, kBmmOps}, ColumnSpec{"tokens"}, ColumnSpec{"heads_local"},
                             ColumnSpec{"dtype", name}, kKernel};
// Tables of experts behind an exchange say which phase a kernel is of, how many rows the measured rank
// computes and how many places for experts there are, copies included.
constexpr std::array kMoePhases{"prefill", "decode"};
constexpr std::array kMoe{ColumnSpec{"kernel", name},
                          ColumnSpec{"dtype", name},
                          ColumnSpec{"tokens"},
                          ColumnSpec{"hidden"},
                          ColumnSpec{"inter"},
                          ColumnSpec{"topk"},
                          ColumnSpec{"experts"},
                          ColumnSpec{"tp"},
                          ColumnSpec{"ep"},
                          ColumnSpec{"routing", name},
                          ColumnSpec{"phase", optional_name, kMoePhases, true},
                          ColumnSpec{"rank0_tokens", optional_size, {}, true},
                          ColumnSpec{"slots", optional_size, {}, true}};
constexpr std::array kNccl{ColumnSpec{"op", name, kNcclOps}, ColumnSpec{"dtype", name}, ColumnSpec{"gpus"},
                           ColumnSpec{"message_bytes"}};
constexpr std::array kAllReduce{ColumnSpec{"implementation", name}, ColumnSpec{"dtype", name},
                                ColumnSpec{"gpus"}, ColumnSpec{"message_bytes"}};
constexpr std::array kAllToAll{ColumnSpec{"implementation", name},
                               ColumnSpec{"phase", name, kPhases},
                               ColumnSpec{"dtype", name},
                               ColumnSpec{"gpus"},
                               ColumnSpec{"nodes"},
                               ColumnSpec{"tokens_per_rank"},
                               ColumnSpec{"hidden"},
                               ColumnSpec{"topk"},
                               ColumnSpec{"experts"},
                               ColumnSpec{"sms", size}};
constexpr std::array kMerge{ColumnSpec{"rows"}, ColumnSpec{"heads"}, ColumnSpec{"head_dim"},
                            ColumnSpec{"parts"}, ColumnSpec{"dtype", name, kTypes}};
constexpr std::array kCopy{ColumnSpec{"copied_bytes"}};
constexpr std::array kRead{ColumnSpec{"read_bytes"}};
constexpr std::array kWrite{ColumnSpec{"written_bytes"}};
constexpr std::array kRingLanes{"attend", "message", "both"};
constexpr std::array kRing{
    ColumnSpec{"transport", name}, ColumnSpec{"gpus"},       ColumnSpec{"ring_q_rows"},
    ColumnSpec{"ring_kv_rows"},    ColumnSpec{"heads_q"},    ColumnSpec{"heads_kv"},
    ColumnSpec{"head_dim"},        ColumnSpec{"ring_bytes"}, ColumnSpec{"lane", name, kRingLanes}};
constexpr std::array kLaunch{ColumnSpec{"kernels"}, ColumnSpec{"mode", name}};
constexpr std::array kPeer{ColumnSpec{"transport", name}, ColumnSpec{"peer_bytes"}};

constexpr std::array kQuantizeOps{"compute_scale", "scale_matrix"};
constexpr std::array kQuantize{ColumnSpec{"op", name, kQuantizeOps}, ColumnSpec{"dtype", name},
                               ColumnSpec{"m"}, ColumnSpec{"k"}};

// Attention blocks of DSA, MSA and DeepSeek-V4, measured whole; kernels of them alone.
constexpr std::array kSparseKernel{
    ColumnSpec{"op", name},        ColumnSpec{"model", name}, ColumnSpec{"batch"},       ColumnSpec{"seq_q"},
    ColumnSpec{"kv_cached", size}, ColumnSpec{"heads"},       ColumnSpec{"kernel", name}};
constexpr std::array kSparseDecode{
    ColumnSpec{"model", name},    ColumnSpec{"layer", name},      ColumnSpec{"batch"},
    ColumnSpec{"kv_len"},         ColumnSpec{"heads_local"},      ColumnSpec{"tp"},
    ColumnSpec{"dtype_kv", name}, ColumnSpec{"dtype_gemm", name}, ColumnSpec{"kernel", name}};
constexpr std::array kSparsePrefill{
    ColumnSpec{"model", name}, ColumnSpec{"layer", name},     ColumnSpec{"batch"},
    ColumnSpec{"seq_q"},       ColumnSpec{"kv_cached", size}, ColumnSpec{"heads_local"},
    ColumnSpec{"tp"},          ColumnSpec{"dtype_kv", name},  ColumnSpec{"dtype_gemm", name},
    ColumnSpec{"kernel", name}};
constexpr std::array kLinearPhases{"prefill", "decode", "verify"};
constexpr std::array kLinearAttention{ColumnSpec{"phase", name, kLinearPhases},
                                      ColumnSpec{"kernel", name},
                                      ColumnSpec{"batch"},
                                      ColumnSpec{"seq_q"},
                                      ColumnSpec{"heads_k"},
                                      ColumnSpec{"heads_v"},
                                      ColumnSpec{"head_dim"}};
constexpr std::array kMamba{ColumnSpec{"phase", name, kLinearPhases},
                            ColumnSpec{"kernel", name},
                            ColumnSpec{"batch"},
                            ColumnSpec{"seq_q"},
                            ColumnSpec{"heads"},
                            ColumnSpec{"head_dim"},
                            ColumnSpec{"state"},
                            ColumnSpec{"groups"},
                            ColumnSpec{"chunk"}};
constexpr std::array kHyperOps{"pre", "post"};
constexpr std::array kHyper{ColumnSpec{"op", name, kHyperOps},
                            ColumnSpec{"tokens"},
                            ColumnSpec{"hidden"},
                            ColumnSpec{"streams"},
                            ColumnSpec{"sites"},
                            ColumnSpec{"kernel", name}};

constexpr std::array kFamilies{
    FamilySpec{"gemm", "[m, k] x [k, n]", kGemm},
    FamilySpec{"quantize", "a bf16 matrix [m, k] narrowed", kQuantize},
    FamilySpec{"attention_prefill", "causal attention of new tokens", kPrefill},
    FamilySpec{"attention_decode", "one query token per request", kDecode},
    FamilySpec{"mla_prefill", "MLA attention of new tokens", kMlaPrefill},
    FamilySpec{"mla_decode", "absorbed MLA attention", kMlaDecode},
    FamilySpec{"mla_bmm", "MLA's per-head projections", kMlaBmm},
    FamilySpec{"moe", "grouped expert GEMMs of one rank", kMoe},
    FamilySpec{"nccl", "NCCL collectives", kNccl},
    FamilySpec{"allreduce", "all-reduce kernels of an engine", kAllReduce},
    FamilySpec{"alltoall", "dispatch and combine of experts", kAllToAll},
    FamilySpec{"sparse_kernel", "kernels of sparse attention", kSparseKernel},
    FamilySpec{"sparse_decode", "blocks of sparse attention, one query token per request", kSparseDecode},
    FamilySpec{"sparse_prefill", "blocks of sparse attention of new tokens", kSparsePrefill},
    FamilySpec{"linear_attention", "GDN and KDA: convolution, scan, update of the state", kLinearAttention},
    FamilySpec{"mamba2", "Mamba-2's convolution", kMamba},
    FamilySpec{"mhc", "hyper-connections: streams mixed before and after a block", kHyper},
    FamilySpec{"merge", "partial attention outputs by log-sum-exp", kMerge},
    FamilySpec{"hbm_copy", "device copy, bytes read and as many written", kCopy},
    FamilySpec{"hbm_read", "device memory read once", kRead},
    FamilySpec{"hbm_write", "device memory written once", kWrite},
    FamilySpec{"launch", "empty kernels", kLaunch},
    FamilySpec{"p2p", "one message to one peer", kPeer},
    FamilySpec{"ring", "a step of ring attention: attend, message, both at once", kRing},
};

constexpr std::array kPower{"power_w"};
constexpr std::array kFull{"seq_q", "heads", "dtype_compute"};
constexpr std::array kUnpriced{
    UnpricedSpec{"power, with times of a release of its own", kPower},
    UnpricedSpec{"attention without a mask", kFull},
};

}  // namespace

std::span<const UnpricedSpec> unpriced_tables() { return kUnpriced; }

std::span<const FamilySpec> families() { return kFamilies; }

const FamilySpec& family(const std::string& wanted) {
  std::vector<std::string> names;
  for (const FamilySpec& f : kFamilies) {
    if (wanted == f.name) return f;
    names.emplace_back(f.name);
  }
  throw UserError(
      {Diagnostic{{}, "unknown family of measurements " + wanted, expected_one_of(wanted, names)}});
}

}  // namespace shardline
