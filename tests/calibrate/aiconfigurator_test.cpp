// Tables of AIConfigurator: one excerpt of each kind (their columns, invented rows) beside the table that it
// must be read as, what is left out or joined, and mutants. Faults: tests/bad/measurement/aic_*.csv.
#include "calibrate/aiconfigurator.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/mutator.hpp"

namespace shardline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Excerpt {
  const char* name;
  std::string theirs, ours;  // ours: the same rows as our own format holds them
  std::vector<std::string> notes = {};
};

std::vector<Excerpt> gemm_excerpts() {
  return {
      {"gemm",
       "framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency\n"
       "TRTLLM,1.3.0rc20,NVIDIA GB200,gemm,torch_flow,bfloat16,1,7168,2048,0.0091\n"
       "TRTLLM,1.3.0rc20,NVIDIA GB200,gemm,torch_flow,fp8,128,7168,2048,0.0137\n"
       "TRTLLM,1.3.0rc20,NVIDIA GB200,gemm,deepgemm,fp8_block,4096,7168,2048,0.0612\n"
       "TRTLLM,1.3.0rc20,NVIDIA GB200,gemm,torch_flow,nvfp4,16384,7168,2048,0.1508\n"
       "TRTLLM,1.3.0rc20,NVIDIA GB200,gemm,torch_flow,int8_wo,16384,7168,2048,0.31\n",
       "m,n,k,dtype,kernel,latency_us\n"
       "1,7168,2048,bf16,torch_flow,9.1\n"
       "128,7168,2048,fp8,torch_flow,13.7\n"
       "4096,7168,2048,fp8_block,deepgemm,61.2\n"
       "16384,7168,2048,nvfp4,torch_flow,150.8\n",
       {"t.csv: 1 row left out: gemm_dtype int8_wo"}},
      {"gemm with power, of an older release",
       "framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency,power_limit,power,compute_"
       "bound\n"
       "TRTLLM,1.2.0rc1,NVIDIA H200,gemm,torch_flow,float16,64,4096,4096,0.0125,700,412.5,0\n"
       "TRTLLM,1.2.0rc1,NVIDIA H200,gemm,torch_flow,float16,65,4096,4096,0.0126,,,\n"
       "TRTLLM,1.2.0rc1,NVIDIA H200,gemm,torch_flow,float16,66,4096,4096,0.0127\n",
       "m,n,k,dtype,kernel,latency_us\n"
       "64,4096,4096,bf16,torch_flow,12.5\n"
       "65,4096,4096,bf16,torch_flow,12.6\n"
       "66,4096,4096,bf16,torch_flow,12.7\n"},
  };
}

std::vector<Excerpt> attention_excerpts() {
  return {
      {"context attention",
       "framework,version,device,op_name,kernel_source,batch_size,isl,num_heads,num_key_value_heads,head_dim,"
       "window_size,beam_width,attn_dtype,kv_cache_dtype,step,latency\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,context_attention,torch_flow,4,4096,64,8,128,0,1,bfloat16,fp8,0,1.75\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,context_attention,torch_flow,1,16384,64,8,64,128,1,fp8,fp8,0,0.41\n"
       "TRTLLM,1.3.0rc20,NVIDIA "
       "H200,context_attention,torch_flow,1,512,64,8,128,0,1,bfloat16,bfloat16,1536,0.1\n"
       "SGLang,0.5.14,NVIDIA "
       "H200,context_attention,flash_attention,2,16384,40,8,128,0,1,bfloat16,bfloat16,0,9.4\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,context_attention,torch_flow,4,4096,64,8,128,0,1,bfloat16,int8,0,1.6\n",
       "batch,seq_q,kv_cached,heads_q,heads_kv,head_dim,window,dtype_compute,dtype_kv,kernel,latency_us\n"
       "4,4096,0,64,8,128,0,bf16,fp8,torch_flow,1750\n"
       "1,16384,0,64,8,64,128,fp8,fp8,torch_flow,410\n"
       "1,512,1536,64,8,128,0,bf16,bf16,torch_flow,100\n"
       "2,16384,0,40,8,128,0,bf16,bf16,fa3,9400\n",
       {"t.csv: 1 row left out: kv_cache_dtype int8"}},
      {"generation attention without a window, with an index",
       ",framework,version,device,op_name,kernel_source,batch_size,isl,num_heads,num_key_value_heads,head_"
       "dim,"
       "beam_width,attn_dtype,kv_cache_dtype,step,latency\n"
       "0,VLLM,0.20.0,NVIDIA "
       "GB200,generation_attention,vllm_flashinfer,32,1,16,8,256,1,bfloat16,bfloat16,8191,0.29\n"
       "1,VLLM,0.20.0,NVIDIA "
       "GB200,generation_attention,vllm_flashinfer,1,1,12,4,128,1,bfloat16,bfloat16,1,0.0069\n"
       "2,VLLM,0.20.0,NVIDIA "
       "GB200,generation_attention,vllm_flashinfer,1,1,12,4,128,4,bfloat16,bfloat16,1,0.0079\n",
       "batch,kv_len,heads_q,heads_kv,head_dim,window,dtype_compute,dtype_kv,kernel,latency_us\n"
       "32,8192,16,8,256,0,bf16,bf16,vllm_flashinfer,290\n"
       "1,2,12,4,128,0,bf16,bf16,vllm_flashinfer,6.9\n",
       {"t.csv: 1 row left out: beam_width 4"}},
  };
}

std::vector<Excerpt> mla_excerpts() {
  return {
      {"context MLA",
       "framework,version,device,op_name,kernel_source,mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,tp_"
       "size,"
       "step,latency\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,mla_context,default,bfloat16,bfloat16,128,1,4096,1,0,0.912\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,mla_context,default,bfloat16,fp8,16,4,1024,8,0,0.081\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,mla_context,default,bfloat16,fp8,16,4,1024,8,1024,0.12\n"
       "SGLang,0.5.0,NVIDIA H200,mla_context,fa3,fp8_block,fp8,16,4,1024,1,0,0.2\n",
       "scope,batch,seq_q,heads_local,dtype_compute,dtype_kv,dtype_gemm,latency_us\n"
       "kernel,1,4096,128,bf16,bf16,,912\n"
       "kernel,4,1024,16,bf16,fp8,,81\n",
       {"t.csv: 1 row left out: mla_dtype fp8_block",
        "t.csv: 1 row left out: prefill behind a cached prefix (step > 0)"}},
      {"generation MLA",
       "framework,version,device,op_name,kernel_source,mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,tp_"
       "size,"
       "step,latency\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,mla_generation,default,bfloat16,fp8,128,8,1,1,4095,0.0283\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,mla_generation,default,bfloat16,fp8,128,8,1,1,131071,0.31\n",
       "scope,batch,kv_len,heads_local,dtype_compute,dtype_kv,dtype_gemm,latency_us\n"
       "kernel,8,4096,128,bf16,fp8,,28.3\n"
       "kernel,8,131072,128,bf16,fp8,,310\n"},
      {"generation MLA modules",
       "framework,version,device,op_name,kernel_source,model,architecture,mla_dtype,kv_cache_dtype,gemm_type,"
       "num_heads,batch_size,isl,tp_size,step,latency\n"
       "VLLM,0.20.0,NVIDIA H200,mla_generation_module,default,deepseek-ai/DeepSeek-V3,DeepseekV3ForCausalLM,"
       "bfloat16,fp8,fp8_block,16,1,1,1,2048,0.0888\n"
       "VLLM,0.20.0,NVIDIA H200,mla_generation_module,default,nvidia/DeepSeek-R1-NVFP4,DeepseekV3ForCausalLM,"
       "bfloat16,bfloat16,nvfp4,128,512,1,1,4095,1.06\n"
       "VLLM,0.20.0,NVIDIA H200,mla_generation_module,default,moonshotai/Kimi-K2,DeepseekV3ForCausalLM,"
       "bfloat16,fp8,fp8_block,16,1,1,1,2047,0.09\n"
       "VLLM,0.20.0,NVIDIA "
       "H200,dsa_generation_module,default,deepseek-ai/DeepSeek-V3.2,DeepseekV32ForCausalLM,"
       "bfloat16,fp8,fp8_block,16,1,1,1,2047,0.09\n",
       "scope,batch,kv_len,heads_local,dtype_compute,dtype_kv,dtype_gemm,latency_us\n"
       "module,1,2049,16,bf16,fp8,fp8_block,88.8\n"
       "module,512,4096,128,bf16,bf16,nvfp4,1060\n",
       {"t.csv: 1 row left out: model moonshotai/Kimi-K2: not the projections of DeepSeek-V3",
        "t.csv: 1 row left out: op_name dsa_generation_module"}},
      {"MLA bmm",
       "framework,version,device,op_name,kernel_source,bmm_dtype,num_tokens,num_heads,latency\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,mla_gen_pre,default,bfloat16,1,128,0.0059\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,mla_bmm_gen_post,trtllm_bmm_out,fp8,8192,16,0.045\n",
       "op,tokens,heads_local,dtype,latency_us\n"
       "mla_gen_pre,1,128,bf16,5.9\n"
       "mla_gen_post,8192,16,fp8,45\n"},
  };
}

std::vector<Excerpt> moe_excerpts() {
  return {
      {"MoE",
       "framework,version,device,op_name,kernel_source,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_"
       "experts,"
       "moe_tp_size,moe_ep_size,distribution,latency,vllm_max_model_len,vllm_max_num_seqs,"
       "vllm_max_num_batched_tokens,used_cuda_graph\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,moe,moe_torch_flow_cutlass,fp8,64,7168,2048,8,256,1,16,power_law_1.01,"
       "0.0527,,,,True\n"
       "TRTLLM,1.3.0rc20,NVIDIA "
       "H200,moe,moe_torch_flow,w4a16_mxfp4,64,2880,2880,4,128,1,1,balanced,0.21,,,,True\n"
       "VLLM,0.20.1,NVIDIA H200,moe,vllm_fused_moe,bfloat16,1,4096,1536,8,128,1,64,balanced,0.0393,,,,True\n"
       "VLLM,0.20.1,NVIDIA "
       "H200,moe,vllm_fused_moe,bfloat61,1,4096,1536,8,128,1,64,balanced,0.0393,,,,True\n",
       "kernel,dtype,tokens,hidden,inter,topk,experts,tp,ep,routing,latency_us\n"
       "torch_flow_cutlass,fp8,64,7168,2048,8,256,1,16,power_law_1.01,52.7\n"
       "torch_flow,w4a16_mxfp4,64,2880,2880,4,128,1,1,balanced,210\n"
       "vllm_fused_moe,bf16,1,4096,1536,8,128,1,64,balanced,39.3\n",
       {"t.csv: 1 row left out: moe_dtype bfloat61 (did you mean bfloat16?)"}},
  };
}

std::vector<Excerpt> collective_excerpts() {
  return {
      {"NCCL, with repeats",
       "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency\n"
       "TRTLLM,2.29.2,NVIDIA H100 80GB HBM3,all_gather,NCCL,half,8,256,0.0105\n"
       "TRTLLM,2.29.2,NVIDIA H100 80GB HBM3,all_gather,NCCL,int8,8,512,0.0107\n"
       "TRTLLM,2.29.2,NVIDIA H100 80GB HBM3,alltoall,NCCL,half,4,268435456,1.49\n"
       "TRTLLM,2.29.2,NVIDIA H100 80GB HBM3,all_gather,NCCL,half,8,256,0.0145\n"
       "TRTLLM,2.29.2,NVIDIA H100 80GB HBM3,all_gather,NCCL,half,8,256,0.0109\n"
       "TRTLLM,2.29.2,NVIDIA H100 80GB HBM3,alltoall,NCCL,half,4,268435456,1.51\n"
       "TRTLLM,2.29.2,NVIDIA H100 80GB HBM3,all_gathr,NCCL,half,8,256,0.0109\n",
       "op,dtype,gpus,message_bytes,latency_us\n"
       "all_gather,fp16,8,512,10.9\n"
       "all_gather,int8,8,512,10.7\n"
       "alltoall,fp16,4,536870912,1500\n",
       {"t.csv: 1 row left out: op_name all_gathr",
        "t.csv: 5 rows of 2 shapes replaced by the median of each shape"}},
      {"all-reduce of TensorRT-LLM",
       "framework,version,device,op_name,kernel_source,allreduce_dtype,num_gpus,message_size,latency,"
       "implementation\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,all_reduce,TRTLLM,bfloat16,8,128,0.0026,trtllm\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,all_reduce,TRTLLM,bfloat16,8,536870912,4.0,trtllm\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,all_reduce,TRTLLM_MNNVL,bfloat16,8,128,0.0029,trtllm\n"
       "TRTLLM,1.3.0rc20,NVIDIA H200,all_reduce,TRTLLM,bfloat16,4,128,0.0,trtllm\n",
       "implementation,dtype,gpus,message_bytes,latency_us\n"
       "trtllm_auto,bf16,8,256,2.6\n"
       "trtllm_auto,bf16,8,1073741824,4000\n"
       "trtllm_mnnvl,bf16,8,256,2.9\n",
       {"t.csv: 1 row left out: a time of 0"}},
      {"all-reduce of vLLM",
       "framework,version,device,op_name,kernel_source,allreduce_dtype,num_gpus,message_size,latency,"
       "backend\n"
       "vLLM,0.20.0,NVIDIA GB200,all_reduce,vLLM_custom_graph,bfloat16,2,128,0.0069,vllm_graph\n"
       "vLLM,0.20.0,NVIDIA GB200,all_reduce,vLLM_custom_eager,bfloat16,2,128,0.0637,vllm_eager\n"
       "vLLM,0.20.0,NVIDIA GB300,all_reduce,vLLM_custom_graph,bfloat16,2,128,0.0059,vllm_graph\n",
       "implementation,dtype,gpus,message_bytes,latency_us\n"
       "vllm_graph,bf16,2,256,6.9\n",
       {"t.csv: 1 row left out: device NVIDIA GB300, the first row's is NVIDIA GB200",
        "t.csv: 1 row left out: launched eagerly, not from a CUDA graph"}},
  };
}

std::vector<Excerpt> all_to_all_excerpts() {
  return {
      {"DeepEP normal",
       "framework,version,device,op_name,node_num,kernel_source,hidden_size,num_token,num_topk,num_experts,"
       "dispatch_sms,dispatch_transmit_us,dispatch_notify_us,combine_sms,combine_transmit_us,combine_notify_"
       "us\n"
       "sglang,0.5.12,NVIDIA H200,normal,2,deepep,7168,4096,8,256,24,812.5,37.5,20,1400,25\n",
       "implementation,phase,dtype,gpus,nodes,tokens_per_rank,hidden,topk,experts,sms,latency_us\n"
       "deepep_normal,dispatch,fp8,16,2,4096,7168,8,256,24,850\n"
       "deepep_normal,combine,bf16,16,2,4096,7168,8,256,20,1425\n"},
      {"DeepEP low latency",
       "framework,version,device,op_name,kernel_source,node_num,hidden_size,num_token,num_topk,num_experts,"
       "combine_avg_t_us,combine_bandwidth_gbps,dispatch_avg_t_us,dispatch_bandwidth_gbps\n"
       "sglang,0.5.12,NVIDIA GB200,ll,deepep,1,2048,1,8,128,11.7,2.5,12.78,1.3\n",
       "implementation,phase,dtype,gpus,nodes,tokens_per_rank,hidden,topk,experts,sms,latency_us\n"
       "deepep_ll,dispatch,fp8,4,1,1,2048,8,128,0,12.78\n"
       "deepep_ll,combine,bf16,4,1,1,2048,8,128,0,11.7\n"},
      {"all-to-all of TensorRT-LLM",
       "framework,version,device,op_name,kernel_source,moe_dtype,num_tokens,hidden_size,topk,num_experts,"
       "moe_ep_size,distribution,latency\n"
       "TRTLLM,1.3.0rc10,NVIDIA "
       "GB200,alltoall_prepare,NVLinkTwoSided,bfloat16,1,7168,8,256,2,balanced,0.0114\n"
       "TRTLLM,1.3.0rc10,NVIDIA GB200,alltoall_dispatch,NVLinkOneSided,nvfp4,64,7168,8,256,64,balanced,0.03\n"
       "TRTLLM,1.3.0rc10,NVIDIA GB200,alltoall_combine_low_precision,NVLinkTwoSided,nvfp4,1,7168,8,256,8,"
       "balanced,0.0159\n"
       "TRTLLM,1.3.0rc10,NVIDIA GB200,alltoall_combine,NCCL,nvfp4,1,7168,8,256,8,balanced,0.0159\n",
       "implementation,phase,dtype,gpus,nodes,tokens_per_rank,hidden,topk,experts,sms,latency_us\n"
       "trtllm_nvlink_two_sided,prepare,bf16,2,1,1,7168,8,256,0,11.4\n"
       "trtllm_nvlink_one_sided,dispatch,nvfp4,64,16,64,7168,8,256,0,30\n"
       "trtllm_nvlink_two_sided,combine_low_precision,nvfp4,8,2,1,7168,8,256,0,15.9\n",
       {"t.csv: 1 row left out: kernel_source NCCL"}},
      {"MoE all-to-all, in microseconds",
       "framework,version,device,op_name,kernel_source,comm_backend,phase,comm_dtype,ep_size,node_num,hidden_"
       "size,"
       "topk,num_experts,num_tokens,sms,transmit_us,notify_us,latency\n"
       "SGLang,0.5.12,NVIDIA "
       "H200,moe_a2a,deepep,deepep_ht,dispatch,default,8,1,7168,8,256,4096,24,800,50,850\n"
       "SGLang,0.5.12,NVIDIA H200,moe_a2a,deepep,deepep_ll,combine,default,8,1,7168,8,256,1,,10.5,0,10.5\n"
       "TRTLLM,1.3.0rc10,NVIDIA "
       "H200,moe_a2a,NVLinkTwoSided,nvlink_two_sided,combine,fp4,8,2,7168,8,256,1,0,15,0,15\n"
       "TRTLLM,1.3.0rc10,NVIDIA "
       "H200,moe_a2a,NVLinkTwoSided,nvlink_two_sided,combine,fp8,8,2,7168,8,256,1,0,12,0,12\n"
       "vLLM,0.24.0,NVIDIA "
       "H200,moe_a2a,deepep,deepep_ht,dispatch,default,8,1,7168,8,256,4096,20,800,50,850\n",
       "implementation,phase,dtype,gpus,nodes,tokens_per_rank,hidden,topk,experts,sms,latency_us\n"
       "deepep_normal,dispatch,fp8,8,1,4096,7168,8,256,24,850\n"
       "deepep_ll,combine,bf16,8,1,1,7168,8,256,0,10.5\n"
       "trtllm_nvlink_two_sided,combine_low_precision,nvfp4,8,2,1,7168,8,256,0,15\n"
       "trtllm_nvlink_two_sided,combine,fp8,8,2,1,7168,8,256,0,12\n",
       {"t.csv: 1 row left out: comm_dtype default of vLLM"}},
  };
}

const std::vector<Excerpt>& excerpts() {
  static const std::vector<Excerpt> kExcerpts = [] {
    std::vector<Excerpt> all;
    for (const auto& of_kind : {gemm_excerpts(), attention_excerpts(), mla_excerpts(), moe_excerpts(),
                                collective_excerpts(), all_to_all_excerpts()})
      all.insert(all.end(), of_kind.begin(), of_kind.end());
    return all;
  }();
  return kExcerpts;
}

TEST(AiConfigurator, EveryKindOfTableIsReadAsOurOwn) {
  for (const Excerpt& e : excerpts()) {
    SCOPED_TRACE(e.name);
    const MeasurementTable read = parse_measurements("t.csv", e.theirs);
    const MeasurementTable ours = parse_measurements("t.csv", e.ours);
    EXPECT_STREQ(read.family->name, ours.family->name);
    EXPECT_EQ(read.numbers, ours.numbers);
    EXPECT_EQ(read.words, ours.words);
    EXPECT_EQ(read.samples, ours.samples);
    EXPECT_EQ(read.notes, e.notes);
    ASSERT_EQ(read.size(), ours.size());
    for (std::size_t i = 0; i < read.size(); ++i) {
      EXPECT_NEAR(read.median[i].value / ours.median[i].value, 1, 1e-14) << i;
      EXPECT_EQ(read.low[i], read.median[i]);
      EXPECT_EQ(read.high[i], read.median[i]);
    }
  }
}

TEST(AiConfigurator, WhatTheRowsShareIsProvenance) {
  const MeasurementTable t = parse_measurements(
      "t.csv",
      "# exported: 2026-11-21\n"
      "framework,version,device,op_name,kernel_source,bmm_dtype,num_tokens,num_heads,latency\r\n"
      "TRTLLM,1.3.0rc20,\"NVIDIA H200, SXM\",mla_gen_pre,default,bfloat16,1,128,0.0059\r\n"
      "TRTLLM,1.3.0rc10,\"NVIDIA H200, SXM\",mla_gen_pre,default,bfloat16,2,128,0.0059\r\n");
  using Pair = std::pair<std::string, std::string>;
  EXPECT_THAT(t.provenance, ElementsAre(Pair{"exported", "2026-11-21"},
                                        Pair{"source", "AIConfigurator, TRTLLM 1.3.0rc20, TRTLLM 1.3.0rc10"},
                                        Pair{"gpu", "NVIDIA H200, SXM"}));
  EXPECT_THAT(t.notes, IsEmpty());
  EXPECT_EQ(t.size(), 2u);
}

// The name of a file says nothing; two columns of AIConfigurator's do.
TEST(AiConfigurator, IsKnownByItsColumns) {
  for (const Excerpt& e : excerpts()) {
    EXPECT_TRUE(is_aiconfigurator(e.theirs.substr(0, e.theirs.find('\n')))) << e.name;
    EXPECT_FALSE(is_aiconfigurator(e.ours.substr(0, e.ours.find('\n')))) << e.name;
  }
  EXPECT_FALSE(is_aiconfigurator("device,m,n,k,dtype,kernel,latency_us"));
}

// Of an even number of repeats the mean of the middle two.
TEST(AiConfigurator, RepeatsBecomeTheirMedian) {
  std::string text =
      "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency\n";
  for (const char* latency : {"0.04", "0.01", "0.03", "9"})
    text += fmt::format("TRTLLM,2.29.2,NVIDIA H200,all_reduce,NCCL,half,8,1024,{}\n", latency);
  const MeasurementTable t = parse_measurements("t.csv", text);
  ASSERT_EQ(t.size(), 1u);
  EXPECT_DOUBLE_EQ(t.median[0].value, 35e-6);
  EXPECT_THAT(t.notes, ElementsAre("t.csv: 4 rows of 1 shape replaced by the median of each shape"));
}

TEST(AiConfigurator, MutantsEndInATableOrAUserError) {
  const std::vector<std::string> words{"latency", "bfloat16", "-1",      "nan",     "1e400", "0",    ",",
                                       "\n",      "\"",       "TRTLLM,", "op_name", "\r",    "step", "fp8"};
  int valid = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    testing::Mutator mutator(seed, words);
    const std::string text = mutator.mutate(excerpts()[mutator.below(excerpts().size())].theirs,
                                            excerpts()[mutator.below(excerpts().size())].theirs);
    try {
      const MeasurementTable t = parse_measurements("fuzz", text);
      ++valid;
      ASSERT_GT(t.size(), 0u);
      for (std::size_t i = 0; i < t.size(); ++i) EXPECT_GT(t.median[i].value, 0) << seed;
      const MeasurementTable back = parse_measurements("again", measurement_csv(t));
      EXPECT_EQ(back.family, t.family) << seed;
      EXPECT_EQ(back.numbers, t.numbers) << seed;
    } catch (const UserError& e) {
      ++refused;
      EXPECT_FALSE(e.diagnostics().empty());
    }
  }
  EXPECT_GT(valid, 300);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace shardline
