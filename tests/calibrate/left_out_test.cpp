// Rows and tables that no price can be taken from: each rule once, with rows beside it that stay.
#include "calibrate/left_out.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/calibrate.hpp"

namespace shardline {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Trap {
  const char* what;
  std::string text;
  std::size_t kept;
  const char* note;  // after "t.csv: "
};

constexpr const char* kMlaHead =
    "engine,scope,batch,seq_q,kv_cached,heads_local,dtype_compute,dtype_kv,dtype_gemm,kernel,latency_us\n";

std::vector<Trap> traps_of_mla() {
  const std::string mla = kMlaHead;
  const std::string old = mla + "vllm_0.14.0,kernel,1,64,0,16,bf16,bf16,,triton_mla,111\n";
  const std::string short_prompts = mla +
                                    "vllm_0.24.0,module,1,64,0,16,bf16,fp8,bf16,FLASHMLA,90\n"
                                    "vllm_0.24.0,module,1,64,0,16,bf16,fp8,bf16,FLASH_ATTN,80\n";
  const std::string prefix = mla +
                             "trtllm_1.3,kernel,1,64,0,16,bf16,bf16,,x,12\n"
                             "trtllm_1.3,kernel,1,64,128,16,bf16,bf16,,x,14\n";
  const std::string wide = mla +
                           "sglang_0.5.10,module_wideep,1,64,0,16,fp8_block,fp8,fp8_block,fa3,700\n"
                           "sglang_0.5.10,module_wideep,1,4096,0,16,fp8_block,fp8,fp8_block,fa3,2099\n"
                           "sglang_0.5.10,module_wideep,1,8192,0,16,fp8_block,fp8,fp8_block,fa3,2101\n"
                           // another kernel's shortest row is its own
                           "sglang_0.5.10,module_wideep,1,8192,0,16,fp8_block,fp8,fp8_block,fa4,900\n";
  return {
      {"host time of old kernels", old, 0, "1 row left out: kernels of vLLM 0.14.0: 100 us of host time"},
      {"absorbed kernels of vLLM", short_prompts, 1,
       "1 row left out: absorbed kernels of vLLM, which it takes for short prompts"},
      {"prefixes", prefix, 1, "1 row left out: a cached prefix, which the form has no term for"},
      {"eager modules", wide, 1,
       "3 rows left out: a wide-EP module below three times its shortest row: host time"},
  };
}

std::vector<Trap> traps_of_sparse_attention() {
  const std::string decode =
      "engine,model,layer,batch,kv_len,heads_local,tp,dtype_kv,dtype_gemm,kernel,latency_us\n";
  const std::string prefill =
      "engine,model,layer,batch,seq_q,kv_cached,heads_local,tp,dtype_kv,dtype_gemm,kernel,latency_us\n";
  const std::string linear = "engine,phase,kernel,batch,seq_q,heads_k,heads_v,head_dim,latency_us\n";
  return {
      {"blocks beyond graphs",
       decode + "sglang_0.5.14,glm-5,indexer,256,64,8,8,bf16,bf16,k,126\n"
                "sglang_0.5.14,glm-5,indexer,512,64,8,8,bf16,bf16,k,929\n"
                "sglang_0.5.16,MiniMax-M3,msa,512,64,8,8,bf16,bf16,k,464\n"
                "sglang_0.5.14,deepseek-v4-pro,csa,512,64,16,8,fp8,bf16,k,251\n"
                "vllm_0.24.0,glm-5,indexer,512,64,8,1,bf16,bf16,k,900\n",
       3, "2 rows left out: SGLang's blocks beyond 256 requests, launched eagerly: host time"},
      {"a dense fallback",
       decode + "trtllm_1.3.0rc23,MiniMax-M3,msa,1,7,64,1,bf16,bf16,default,231\n"
                "trtllm_1.3.0rc23,MiniMax-M3,msa,1,7,64,1,bf16,bf16,msa_fmha_sm100,131\n"
                "trtllm_1.3.0rc20,glm-5,indexer,1,7,64,1,bf16,bf16,default,231\n",
       2, "1 row left out: TensorRT-LLM's dense fallback of MSA"},
      {"short prompts",
       prefill + "sglang_0.5.14,glm-5,indexer,1,64,0,8,8,bf16,bf16,dsa_dense_mha_fa3,560\n"
                 "sglang_0.5.14,glm-5,indexer,1,64,4096,8,8,bf16,bf16,dsa_indexer_flashmla_sparse,1100\n",
       1, "1 row left out: short prompts through dense attention, launched eagerly: host time"},
      {"a convolution of keys alone",
       linear + "trtllm_1.3.0rc20,prefill,causal_conv1d_fn,1,1,16,32,128,5.5\n"
                "trtllm_1.3.0rc20,prefill,chunk_gated_delta_rule,1,1,16,32,128,23\n"
                "sglang_0.5.14,prefill,causal_conv1d_fn,1,1,16,32,128,2.5\n",
       2, "1 row left out: TensorRT-LLM's convolution of the keys' channels alone"},
      {"an eager convolution",
       linear + "vllm_0.1.dev19262,prefill,causal_conv1d_fn_qkv3,1,1,96,96,128,770\n"
                "sglang_0.5.16,prefill,causal_conv1d_fn_qkv3,1,1,96,96,128,9\n",
       1, "1 row left out: vLLM's convolution of KDA's prompts, launched eagerly: 0.8 ms of host time"},
  };
}

constexpr const char* kWideHead =
    "engine,kernel,phase,dtype,tokens,rank0_tokens,slots,hidden,inter,topk,experts,tp,ep,routing,latency_"
    "us\n";

// One row of DeepSeek-V3's experts behind DeepEP.
std::string deepep(const char* phase, int tokens, const char* routing, int us) {
  return "sglang_0.5.10,deepepmoe," + std::string(phase) + ",fp8_block," + std::to_string(tokens) +
         ",,256,7168,2048,8,256,1,4," + routing + "," + std::to_string(us) + "\n";
}

std::vector<Trap> traps_of_experts() {
  std::string blocks = kWideHead, host = kWideHead;
  for (const auto& [tokens, us] : {std::pair(128, 383), {256, 384}, {512, 387}, {1024, 468}, {2048, 710}})
    blocks += deepep("prefill", tokens, "uniform", us);
  // 128 rows of each expert and a multiple of it, and rows that the collector has drawn and padded.
  blocks += deepep("prefill", 4096, "uniform", 1197) + deepep("prefill", 8192, "uniform", 1533) +
            deepep("prefill", 2048, "power_law_1.2", 1370);
  for (const auto& [tokens, us] :
       {std::pair(64, 300), {128, 374}, {256, 376}, {512, 380}, {1024, 383}, {2048, 469}, {4096, 471}})
    host += deepep("prefill", tokens, "power_law_0.6", us);
  host += deepep("decode", 16, "power_law_0.6", 130);  // in a graph, and another kernel
  const std::string ranks = std::string(kWideHead) +
                            "trtllm_1.3.0rc10,wideep_compute_cutlass,,nvfp4,64,40,288,7168,2048,8,256,1,8,"
                            "power_law_1.01,90\n"
                            "trtllm_1.3.0rc10,torch_flow_cutlass,,nvfp4,64,,,7168,2048,8,256,1,8,"
                            "power_law_1.01,80\n";
  return {
      {"blocks of several experts", blocks, 3,
       "5 rows left out: even rows in blocks of 128 that hold several experts, of which one is read"},
      // 376 us is the median of the five shortest: 470 the end of what launches take.
      {"launches", host, 2,
       "6 rows left out: experts behind DeepEP's normal dispatch, as long as their launches take the host"},
      {"rows of one rank", ranks, 1,
       "1 row left out: experts by the rows of one rank, which the form has no column for"},
  };
}

std::vector<Trap> other_traps() {
  return {
      {"eager all-reduces",
       "engine,implementation,dtype,gpus,message_bytes,latency_us\n"
       "vllm_0.24.0,custom_eager,bf16,8,256,40\n"
       "vllm_0.24.0,custom_graph,bf16,8,256,8\n",
       1, "1 row left out: launched eagerly: host time"},
      {"sums of bytes",
       "op,dtype,gpus,message_bytes,latency_us\n"
       "all_reduce,int8,8,256,40\n"
       "all_reduce,fp16,8,256,8\n"
       "all_reduce,int8,4,256,8\n"
       "all_gather,int8,8,256,8\n",
       3, "1 row left out: an all-reduce of int8 on more than four GPUs: switches add no such numbers"},
      {"host time of old decode kernels",
       "engine,scope,batch,kv_len,heads_local,dtype_compute,dtype_kv,dtype_gemm,kernel,latency_us\n"
       "vllm_0.14.0,kernel,1,64,16,bf16,bf16,,triton_mla,111\n"
       "vllm_0.24.0,module,1,64,16,bf16,bf16,bf16,FLASHMLA,60\n",
       1, "1 row left out: kernels of vLLM 0.14.0: 100 us of host time"},
      {"decode in a table of prefill",
       "batch,seq_q,kv_cached,heads_q,heads_kv,head_dim,window,dtype_compute,dtype_kv,kernel,latency_us\n"
       "1,1,0,8,8,128,0,bf16,bf16,flashinfer_trtllmdecode,9\n"
       "1,1,0,8,8,128,0,bf16,bf16,flashinfer_trtllmprefill,9\n",
       1, "1 row left out: a kernel for decode"},
      {"a congested network",
       "implementation,phase,dtype,gpus,nodes,tokens_per_rank,hidden,topk,experts,sms,latency_us\n"
       "deepep_v050_normal,dispatch,fp8,64,8,128,7168,8,256,24,3000\n"
       "deepep_v050_normal,dispatch,fp8,32,4,128,7168,8,256,24,1000\n"
       "deepep_v050_ll,dispatch,fp8,64,8,128,7168,8,256,0,300\n",
       2, "1 row left out: a congested network of 64 GPUs"},
      {"even scores of groups",
       "kernel,dtype,tokens,hidden,inter,topk,experts,tp,ep,routing,latency_us\n"
       "fused_moe_triton,fp8_block,64,7168,2048,8,256,4,1,balanced,520.3\n"
       "fused_moe_triton,fp8_block,64,7168,2048,8,256,4,1,power_law_1.01,700.6\n"
       "fused_moe_triton,fp8_block,64,7168,2048,8,384,4,1,balanced,900\n"
       "fused_moe_triton,bf16,64,7168,2048,8,256,4,1,balanced,1500\n"
       "torch_flow_cutlass,fp8_block,64,7168,2048,8,256,4,1,balanced,900\n"
       "w4a4nvfp4moe_trtllm_trtllmnvfp4_mono,nvfp4,64,7168,2048,8,256,4,1,balanced,90\n",
       4,
       "2 rows left out: even scores under DeepSeek-V3's group-limited routing: half of the experts do all "
       "of the work"},
      {"unfused quantisation",
       "engine,op,dtype,m,k,latency_us\n"
       "sglang_0.5.14,scale_matrix,fp8,16,4096,9\n"
       "trtllm_1.3.0rc20,scale_matrix,fp8,16,4096,1.4\n",
       1, "1 row left out: SGLang's static path of unfused operations, which its kernels do not run"},
  };
}

TEST(LeftOut, EveryTrapIsNamedWithItsReason) {
  std::vector<Trap> traps = traps_of_mla();
  for (const Trap& t : traps_of_sparse_attention()) traps.push_back(t);
  for (Trap& other : traps_of_experts()) traps.push_back(std::move(other));
  for (Trap& other : other_traps()) traps.push_back(std::move(other));
  for (const Trap& trap : traps) {
    SCOPED_TRACE(trap.what);
    MeasurementTable t = parse_measurements("t.csv", trap.text);
    leave_out(t, "t.csv");
    EXPECT_EQ(t.size(), trap.kept);
    EXPECT_EQ(t.engines.size(), trap.kept);
    EXPECT_EQ(t.low.size(), trap.kept);
    EXPECT_EQ(t.samples.size(), trap.kept);
    EXPECT_EQ(t.file_rows.size(), trap.kept);
    for (std::size_t i = 0; i < t.family->columns.size(); ++i)
      EXPECT_EQ(t.words[i].size() + t.numbers[i].size(), trap.kept) << t.family->columns[i].name;
    EXPECT_THAT(t.notes, ElementsAre("t.csv: " + std::string(trap.note)));
  }
}

// Rows are told by their place in the file, though others before them are left out.
TEST(LeftOut, RowsKeepTheirPlaceInTheFile) {
  MeasurementTable t = parse_measurements("t.csv", "# gpu: H200\n" + std::string(kMlaHead) +
                                                       "trtllm_1.3,kernel,1,64,128,16,bf16,bf16,,x,14\n"
                                                       "\n"
                                                       "trtllm_1.3,kernel,1,64,0,16,bf16,bf16,,x,12\n"
                                                       "trtllm_1.3,kernel,1,64,256,16,bf16,bf16,,x,14\n"
                                                       "trtllm_1.3,kernel,1,96,0,16,bf16,bf16,,x,13\n");
  leave_out(t, "t.csv");
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t.file_row(0), 3u);
  EXPECT_EQ(t.file_row(1), 5u);
}

// It is another form than that of the kernels that the engine runs for prompts without context parallelism.
TEST(LeftOut, AbsorbedPromptsAreAScopeOfTheirOwn) {
  MeasurementTable t =
      parse_measurements("t.csv", std::string(kMlaHead) +
                                      "sglang_0.5.14,kernel,1,64,0,16,bf16,bf16,,flash_attention,12\n"
                                      "sglang_0.5.14,kernel,1,64,0,16,bf16,bf16,,trtllm_mla,12\n"
                                      "vllm_0.24.0,kernel,1,64,0,16,bf16,bf16,,flash_attention,12\n");
  leave_out(t, "t.csv");
  EXPECT_THAT(t.word("scope"), ElementsAre("absorbed", "kernel", "kernel"));
  EXPECT_TRUE(t.notes.empty());
}

TEST(LeftOut, TheRightRowsStay) {
  MeasurementTable t = parse_measurements("t.csv",
                                          "engine,implementation,dtype,gpus,message_bytes,latency_us\n"
                                          "vllm_0.24.0,custom_eager,bf16,8,256,40\n"
                                          "sglang_0.5.14,customallreduce_graph,bf16,4,512,8\n"
                                          "sglang_0.5.14,customallreduce_eager,bf16,8,256,30\n"
                                          "vllm_0.24.0,custom_graph,bf16,8,1024,9\n");
  leave_out(t, "t.csv");
  EXPECT_THAT(t.engines, ElementsAre("sglang", "vllm"));
  EXPECT_THAT(t.versions, ElementsAre("0.5.14", "0.24.0"));
  EXPECT_THAT(t.word("implementation"), ElementsAre("customallreduce_graph", "custom_graph"));
  EXPECT_THAT(t.number("gpus"), ElementsAre(4, 8));
  EXPECT_DOUBLE_EQ(t.median[1].value, 9e-6);
}

// One row of CutlassFP8 and three of its shapes, which take `apart` times what few rows do.
std::string products(double apart, const char* kernel) {
  std::string text = "m,n,k,dtype,kernel,latency_us\n";
  for (const int n : {512, 4096, 8192}) {
    for (const int m : {1, 2, 16, 17}) {
      const double us = 7 * (m == 1 ? apart : 1) * (m == 17 ? 9 : 1);
      text += std::to_string(m) + "," + std::to_string(n) + ",4096,fp8," + kernel + "," + std::to_string(us) +
              "\n";
    }
  }
  // Nothing to compare it with: what the kernel does elsewhere.
  return text + "1,12288,256,fp8," + kernel + ",20\n1,512,4096,bf16,linear,80\n2,512,4096,bf16,linear,8\n";
}

TEST(LeftOut, OneRowThatWaitsForItsQuantisation) {
  const auto kept = [](const std::string& text, std::vector<std::string>& notes) {
    MeasurementTable t = parse_measurements("t.csv", text);
    leave_out(t, "t.csv");
    notes = t.notes;
    return t.number("m");
  };
  std::vector<std::string> notes;
  // Other kernels may have one of their own for a single row.
  EXPECT_THAT(kept(products(3, "CutlassFP8"), notes), ElementsAre(2, 16, 17, 2, 16, 17, 2, 16, 17, 1, 2));
  EXPECT_THAT(
      notes, ElementsAre("t.csv: 4 rows left out: one row of vLLM's CutlassFP8 that waits for a quantisation "
                         "in single operations"));
  EXPECT_EQ(kept(products(1.4, "CutlassFP8"), notes).size(), 15u);  // as on Hopper
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_EQ(kept(products(3, "sgl_kernel_fp8_scaled_mm"), notes).size(), 15u);
  EXPECT_THAT(notes, IsEmpty());
}

TEST(LeftOut, TablesOfOneEngineStayWhole) {
  MeasurementTable t = parse_measurements("t.csv",
                                          "scope,batch,seq_q,heads_local,dtype_compute,dtype_kv,dtype_gemm,"
                                          "latency_us\nkernel,1,64,16,bf16,bf16,,9\n");
  leave_out(t, "t.csv");
  EXPECT_EQ(t.size(), 1u);
  EXPECT_THAT(t.notes, IsEmpty());
}

TEST(LeftOut, ReleasesAgreeOnTheNamesOfExpertKernels) {
  MeasurementTable t =
      parse_measurements("t.csv",
                         "kernel,dtype,tokens,hidden,inter,topk,experts,tp,ep,routing,latency_us\n"
                         "moe_torch_flow,w4a8_mxfp4_mxfp8,1,2880,2880,4,128,1,1,balanced,20\n"
                         "fused_moe_triton,bf16,1,2880,2880,4,128,1,1,balanced,20\n");
  leave_out(t, "t.csv");
  EXPECT_THAT(t.word("kernel"), ElementsAre("torch_flow", "fused_moe_triton"));
}

// Of DeepEP's experts those of decode steps are another kernel; even rows are called as elsewhere, and are no
// ties of a router.
TEST(LeftOut, PhasesOfDeepEpAreKernelsOfTheirOwn) {
  std::string text = kWideHead;
  for (const int tokens : {32, 64, 128, 256, 512}) text += deepep("prefill", tokens, "power_law_0.6", 380);
  text += deepep("prefill", 8192, "uniform", 1533) + deepep("decode", 512, "uniform", 737) +
          deepep("decode", 256, "power_law_0.6", 700);
  MeasurementTable t = parse_measurements("t.csv", text);
  leave_out(t, "t.csv");
  EXPECT_THAT(t.word("kernel"), ElementsAre("deepepmoe", "deepepmoe_masked", "deepepmoe_masked"));
  EXPECT_THAT(t.word("routing"), ElementsAre("balanced", "balanced", "power_law_0.6"));
  EXPECT_THAT(t.number("tokens"), ElementsAre(8192, 512, 256));
  EXPECT_THAT(t.number("rank0_tokens"), ElementsAre(0, 0, 0));
}

TEST(LeftOut, RowsOfOneRankAreNumbersOrNothing) {
  const std::string text =
      std::string(kWideHead) +
      "sglang_0.5.10,deepepmoe,prefil,fp8_block,64,x,256,7168,2048,8,256,1,4,uniform,9\n";
  try {
    parse_measurements("t.csv", text);
    ADD_FAILURE() << "was read";
  } catch (const UserError& e) {
    ASSERT_EQ(e.diagnostics().size(), 2u);
    EXPECT_EQ(e.diagnostics()[0].what, "phase: unknown name prefil");
    EXPECT_EQ(e.diagnostics()[1].what, "rank0_tokens: expected a number, found \"x\"");
  }
}

// A folder that goes with the test.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(std::filesystem::path(SHARDLINE_BINARY_DIR) / ("left_out_" + name)) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& file, const std::string& text) const {
    std::ofstream(path_ / file, std::ios::binary) << text;
    return (path_ / file).string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(LeftOut, TablesWithoutAFormAreLeftOutOfFoldersAndRefusedAlone) {
  const Folder folder("tables");
  folder.write("gemm.csv", "m,n,k,dtype,kernel,latency_us\n1,64,64,bf16,x,3\n");
  struct {
    const char* file;
    const char* columns;
    const char* what;
  } const others[] = {
      {"power.csv", "engine,m,n,k,dtype,kernel,power_w,power_limit_w",
       "power, with times of a release of its own"},
      {"vision.csv", "engine,kernel,batch,seq_q,heads,head_dim,dtype_compute", "attention without a mask"},
  };
  std::vector<std::string> notes;
  for (const auto& o : others) {
    const std::string alone = folder.write(o.file, std::string(o.columns) + ",latency_us\n");
    const std::string expected = std::string("a table of ") + o.what + ": no form prices it";
    notes.push_back(std::string(o.file) + ": left out, " + expected);
    try {
      load_tables({alone});
      ADD_FAILURE() << o.file << " was read";
    } catch (const UserError& e) {
      EXPECT_EQ(e.diagnostics()[0].what, expected);
      EXPECT_EQ(e.diagnostics()[0].where.line, 1);
    }
  }
  const Tables read = load_tables({folder.path()});
  EXPECT_THAT(read.names, ElementsAre("gemm.csv"));
  EXPECT_EQ(read.tables.size(), 1u);
  EXPECT_EQ(read.notes, notes);
}

TEST(LeftOut, AFolderWithoutAnyPricedTableIsRefused) {
  const Folder folder("nothing");
  folder.write("vision.csv", "engine,kernel,batch,seq_q,heads,head_dim,dtype_compute,latency_us\n");
  EXPECT_THROW(load_tables({folder.path()}), UserError);
}

TEST(HashOf, DependsOnEveryByteAndOnWhereFilesEnd) {
  const std::vector<std::string> a{"ab", "c"}, b{"a", "bc"}, c{"ab", "d"};
  EXPECT_NE(hash_of(a), hash_of(b));
  EXPECT_NE(hash_of(a), hash_of(c));
  EXPECT_EQ(hash_of(a).size(), 16u);
}

}  // namespace
}  // namespace shardline
