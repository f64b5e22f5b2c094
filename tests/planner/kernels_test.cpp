// Which measured kernels a scenario's ops are priced by: those of a framework, or one by name [H64].
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hardware/machine/frameworks.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/named_kernels.hpp"
#include "planner/search/provenance.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

Case case_with(const std::string& kernels, const std::string& system = "h200-hgx",
               const std::string& kv = "bf16", const std::string& model = "llama-3.1-8b") {
  const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                          source_path("scenarios")};
  const std::string text = "name: t\nsystem: " + system + "\nmodels: [" + model +
                           "]\ncontext: 32Ki tokens\n" + "precision: {weights: bf16, kv: " + kv +
                           ", math: bf16}\n" + (kernels.empty() ? "" : "kernels: " + kernels + "\n") +
                           "strategies: [tensor]\ngpus: [1]\nbatch: [1]\n";
  return parse_scenario("t.yaml", text, catalogs).studies.at(0).study;
}

/// Kernels of the fits that price a decode step's ops, by family; with the framework in front.
std::map<std::string, std::string> kernels_of(const Case& c,
                                              const char* plan = "tensor:tpa=2,tpf=2,batch=4") {
  Evaluator e(c);
  e.simulate(parse_plan(plan));
  std::map<std::string, std::string> out;
  for (const Op& op : e.schedule().ops) {
    const KernelFit* f = e.cost().price(op).fit;
    if (f == nullptr) continue;
    const auto column = kernel_column(*f->form);
    out[f->form->family] = f->framework + "/" + (column ? f->words[*column] : "");
  }
  return out;
}

std::string refusal(const std::string& kernels, const std::string& system = "h200-hgx") {
  try {
    case_with(kernels, system);
  } catch (const UserError& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Kernels, AreThoseOfTheFramework) {
  const auto none = kernels_of(case_with(""));
  EXPECT_EQ(none.at("gemm"), "trtllm/torch_flow");
  EXPECT_EQ(none.at("attention_decode"), "trtllm/torch_flow");
  EXPECT_EQ(none.at("allreduce"), "trtllm/trtllm_auto");
  EXPECT_EQ(kernels_of(case_with("{framework: trtllm}")), none);
  const auto sglang = kernels_of(case_with("{framework: sglang}"));
  EXPECT_EQ(sglang.at("gemm"), "sglang/torch_linear");
  EXPECT_EQ(sglang.at("attention_decode"), "sglang/fa3");
  EXPECT_EQ(sglang.at("allreduce"), "sglang/customallreduce_graph");
  const auto vllm = kernels_of(case_with("{framework: vllm}"));
  EXPECT_EQ(vllm.at("gemm"), "vllm/linear");
  EXPECT_EQ(vllm.at("attention_decode"), "vllm/flash_attn_fa3");
  EXPECT_EQ(vllm.at("allreduce"), "vllm/custom_graph");
  const auto blackwell = kernels_of(case_with("{framework: sglang}", "gb200-nvl72"));
  EXPECT_EQ(blackwell.at("attention_decode"), "sglang/trtllm_mha");
}

TEST(Kernels, AreThoseThatTheScenarioNames) {
  const auto named =
      kernels_of(case_with("{framework: sglang, attention_decode: triton, gemm: [trtllm/torch_flow]}"));
  EXPECT_EQ(named.at("attention_decode"), "sglang/triton");
  EXPECT_EQ(named.at("gemm"), "trtllm/torch_flow");
  EXPECT_EQ(named.at("allreduce"), "sglang/customallreduce_graph");
  EXPECT_THAT(costs_text(case_with("{attention_decode: torch_flow}").system),
              HasSubstr("; kernels of trtllm 1.3.0rc20; attention_decode torch_flow"));
  EXPECT_THAT(costs_text(case_with("{framework: vllm}").system), HasSubstr("; kernels of vllm 0.24.0"));
}

// Blocks of sparse attention, of DSA, MSA and DeepSeek-V4, and hyper-connections: by the framework, or by
// name.
TEST(Kernels, OfSparseAttentionAreThoseOfTheFrameworkOrNamed) {
  const char* const kPlan = "tensor:tpa=8,ep=8,batch=4";
  const auto on = [&](const char* system, const char* model, const std::string& kernels, const char* kv) {
    return kernels_of(case_with(kernels, system, kv, model), kPlan);
  };
  const auto m3 = [&](const char* system, const char* framework) {
    return on(system, "minimax-m3", std::string("{framework: ") + framework + "}", "fp8").at("sparse_decode");
  };
  EXPECT_EQ(m3("h200-hgx", "sglang"), "sglang/minimax_decode_triton_sparse_topk_split");
  EXPECT_EQ(m3("h200-hgx", "vllm"), "vllm/MiniMaxM3SparseTritonImpl");
  EXPECT_EQ(m3("gb200-nvl72", "vllm"), "vllm/MiniMaxM3SparseMSAImpl");
  const auto v4 = [&](const char* framework) {
    return on("h200-hgx", "deepseek-v4-pro", std::string("{framework: ") + framework + "}", "fp8");
  };
  EXPECT_EQ(v4("sglang").at("sparse_decode"), "sglang/compressed_flashmla");
  EXPECT_EQ(v4("vllm").at("sparse_decode"), "vllm/FLASHMLA_SPARSE_DSV4");
  EXPECT_THAT(v4("sglang").at("mhc"), HasSubstr("sglang/tilelang_mhc_"));
  EXPECT_THAT(v4("vllm").at("mhc"), HasSubstr("vllm/mhc_"));
  for (const std::string named : {"FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE"}) {
    EXPECT_EQ(on("gb200-nvl72", "deepseek-v3.2", "{framework: vllm, sparse_decode: " + named + "}", "bf16")
                  .at("sparse_decode"),
              "vllm/" + named);
  }
  // Of names that were not measured, and in steps that nothing of the family runs in.
  const auto refused = [&](const std::string& kernels, const char* model) {
    try {
      case_with(kernels, "h200-hgx", "bf16", model);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refused("{framework: vllm, sparse_decode: FLASHMLA_SPARS}", "deepseek-v3.2"),
              HasSubstr("did you mean FLASHMLA_SPARSE?"));
  EXPECT_THAT(refused("{framework: vllm, sparse_decode: FLASHMLA_SPARSE}", "llama-3.1-8b"),
              HasSubstr("kernels.sparse_decode prices nothing: no listed model has sparse attention"));
  EXPECT_THAT(refused("{framework: vllm, sparse_prefill: FLASHMLA_SPARSE}", "deepseek-v3.2"),
              HasSubstr("kernels.sparse_prefill prices nothing: it is of prefill"));
  EXPECT_THAT(refused("{framework: sglang, mhc: tilelang_mhc_pre}", "deepseek-v3.2"),
              HasSubstr("no listed model has hyper-connections"));
}

// Another framework's kernel is not the engine's own, whatever was measured of it.
TEST(Kernels, OfOthersCountAsFitted) {
  const auto basis = [](const std::string& kernels) {
    const Case c = case_with(kernels);
    Evaluator e(c);
    e.simulate(parse_plan("tensor:tpa=2,tpf=2,batch=4"));
    for (const Op& op : e.schedule().ops)
      if (op.kind == OpKind::gemm && op.launches > 0) return e.cost().price(op).basis;
    return Basis::none;
  };
  EXPECT_EQ(basis("{framework: sglang}"), Basis::measured);
  EXPECT_EQ(basis("{framework: sglang, gemm: trtllm/torch_flow}"), Basis::fitted);
}

// GPT-OSS is stored in MXFP4: what it computes in follows the framework and the generation.
TEST(Kernels, SayWhatExpertsInMxfp4ComputeIn) {
  const auto math = [](const std::string& system, const std::string& kernels, const std::string& more = "") {
    const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                            source_path("scenarios")};
    const std::string text = "name: t\nsystem: " + system +
                             "\nmodels: [gpt-oss-120b]\ncontext: 8Ki tokens\n" +
                             "precision: {expert_weights: mxfp4, kv: bf16, weights: bf16" + more + "}\n" +
                             (kernels.empty() ? "" : "kernels: " + kernels + "\n") +
                             "strategies: [tensor]\ngpus: [8]\nbatch: [1]\n";
    return parse_scenario("t.yaml", text, catalogs).studies.at(0).study.precision.of(Module::experts).math;
  };
  EXPECT_EQ(math("gb200-nvl72", ""), Dtype::fp8);
  EXPECT_EQ(math("gb200-nvl72", "{framework: sglang}"), Dtype::fp8);
  EXPECT_EQ(math("gb200-nvl72", "{framework: vllm}"), Dtype::bf16);
  EXPECT_EQ(math("h100-hgx", ""), Dtype::bf16);
  EXPECT_EQ(math("gb200-nvl72", "", ", expert_math: bf16"), Dtype::bf16);
}

// DeepSeek-V4's own code computes them in FP8. Engines have kernels for that on Blackwell alone: elsewhere
// they widen them, and nobody has to say so. Only the experts: its shared ones are in blocks of FP8.
TEST(Kernels, EnginesWidenExpertsInMxfp4BeforeBlackwell) {
  const auto types = [](const std::string& system, const std::string& more) {
    const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                            source_path("scenarios"), source_path("planner/engines")};
    const std::string text = "name: t\nsystem: " + system +
                             "\nmodels: [deepseek-v4-pro]\ncontext: 8Ki tokens\nstrategies: [tensor]\n"
                             "gpus: [16]\nbatch: [1]\n" +
                             more;
    return parse_scenario("t.yaml", text, catalogs).studies.at(0).study.precision;
  };
  // TensorRT-LLM's version has no class for the model.
  for (const char* engine : {"engine: vllm\n", "engine: sglang\n"}) {
    SCOPED_TRACE(engine);
    const Precision hopper = types("h200-hgx", engine);
    EXPECT_EQ(hopper.of(Module::experts).weights, Dtype::mxfp4);
    EXPECT_EQ(hopper.of(Module::experts).math, Dtype::bf16);
    EXPECT_EQ(hopper.dispatch, Dtype::bf16);
    EXPECT_TRUE(hopper.assumed.expert_math);
    EXPECT_EQ(hopper.of(Module::shared_experts).math, Dtype::fp8);
    EXPECT_EQ(hopper.of(Module::attention).math, Dtype::fp8);
    EXPECT_EQ(types("gb200-nvl72", engine).of(Module::experts).math, Dtype::fp8);
  }
  EXPECT_THROW(types("h200-hgx", "engine: vllm\nprecision: {expert_math: fp8}\n"), UserError);
}

// A named kernel that no op of the plan can run is said, not dropped.
TEST(Kernels, ThatAreNamedAndNotUsedAreSaid) {
  const Plan plan = parse_plan("tensor:tpa=2,tpf=2,batch=4");
  const auto said = [&](const Case& c) {
    std::string out;
    for (const Diagnostic& d : unused_kernels(c, std::span(&plan, 1))) out += d.what + "\n";
    return out;
  };
  EXPECT_EQ(said(case_with("{framework: sglang, attention_decode: triton}")), "");
  const Case fp8 = case_with("{framework: vllm, attention_decode: flash_attn_fa4}", "h200-hgx", "fp8");
  EXPECT_THAT(said(fp8),
              HasSubstr("kernels.attention_decode names flash_attn_fa4, which was not measured for these "
                        "types"));
  EXPECT_THAT(said(fp8), HasSubstr("by attention_decode bf16 fp8 flash_attn_fa3"));
}

// SGLang's products with static scales cost what its dynamic ones do: said, not shown as their own price.
TEST(Kernels, ThatSearchForScalesTheCheckpointHasAreSaid) {
  const Plan plan = parse_plan("tensor:tpa=2,tpf=2,batch=4");
  const auto said = [&](const std::string& framework, const std::string& weights) {
    const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                            source_path("scenarios")};
    const std::string text =
        "name: t\nsystem: h200-hgx\nmodels: [llama-3.1-8b]\ncontext: 32Ki tokens\n"
        "precision: {kv: fp8, weights: " +
        weights +
        "}\n"
        "kernels: {framework: " +
        framework +
        "}\n"
        "strategies: [tensor]\ngpus: [1]\nbatch: [1]\n";
    const Case c = parse_scenario("t.yaml", text, catalogs).studies.at(0).study;
    std::string out;
    for (const Diagnostic& d : searched_scales(c, std::span(&plan, 1))) out += d.what;
    return out;
  };
  EXPECT_THAT(said("sglang", "fp8"), HasSubstr("static fp8 is priced as fp8_dynamic is"));
  EXPECT_THAT(said("sglang", "fp8"), HasSubstr("of sglang/"));
  EXPECT_THAT(said("sglang", "fp8"), HasSubstr("ffn down, ffn up, out projection, qkv"));
  EXPECT_EQ(said("sglang", "fp8_dynamic"), "");
  EXPECT_EQ(said("sglang", "bf16"), "");
  EXPECT_EQ(said("vllm", "fp8"), "");
  EXPECT_EQ(said("trtllm", "fp8"), "");
}

// Another generation's kernels are chosen by the rules of the machine that they were measured on.
TEST(Kernels, OfAnotherGenerationAreChosenByItsRules) {
  const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                          source_path("scenarios")};
  for (const char* like : {"h100-hgx", "h200-hgx", "a100-sxm"}) {
    System s = load_system("b200-hgx", catalogs.systems);
    const System from = load_system(like, catalogs.systems);
    s.calibration = from.calibration;
    s.calibration.like = like;
    s.kernels = from.kernels;
    EXPECT_NO_THROW(CostModel{s}) << like;
  }
}

// Kernels of a framework that none were measured of are no other framework's under its name.
TEST(Kernels, OfAnOwnCalibrationAreNotThoseOfAnotherFramework) {
  System s = load_system("h100-hgx", source_path("hardware/catalog"));
  s.calibration.name.clear();  // as of another file
  std::erase_if(s.calibration.fits.edit(), [](const KernelFit& f) { return f.framework != "trtllm"; });
  EXPECT_THROW(use_framework(s, "sglang", source_path("hardware/catalog")), UserError);
}

TEST(Kernels, ThatWereNotMeasuredAreRefused) {
  EXPECT_THAT(refusal("{framework: vlm}"), HasSubstr("t.yaml:6:22: unknown framework vlm"));
  EXPECT_THAT(refusal("{framework: vlm}"), HasSubstr("did you mean vllm?"));
  EXPECT_THAT(refusal("{attention_decode: fa3}"),
              HasSubstr("no kernel fa3 of attention_decode was measured here"));
  EXPECT_THAT(refusal("{attention_decode: fa3}"), HasSubstr("fa3 is known with framework: sglang"));
  EXPECT_THAT(refusal("{framework: sglang, attention_decode: fa4}"), HasSubstr("did you mean fa3?"));
  EXPECT_THAT(refusal("{framework: sglang}", "h100-gti"), HasSubstr("has no calibration"));
  // Another framework's, and how it becomes known.
  EXPECT_THAT(refusal("{attention_decode: sglang/triton}"),
              HasSubstr("kernels of sglang are known with framework: sglang"));
  // One fault is said once.
  for (const char* both :
       {"{framework: vlm, attention_decode: flash_attn_fa3}", "{framework: [vllm, sglang], gemm: linear}"}) {
    const std::string said = refusal(both);
    EXPECT_THAT(said, HasSubstr("framework"));
    EXPECT_EQ(said.find("was measured here"), std::string::npos) << said;
  }
  EXPECT_EQ(refusal("{framework: [vllm, sglang]}").find("unknown framework"), std::string::npos);
  EXPECT_THAT(refusal("{alltoall: deepep_ll}", "a100-sxm"), HasSubstr("none of kernels.alltoall was"));
  EXPECT_THAT(refusal("{gemm: torch_flow}", "h100-gti"), HasSubstr("has no calibration"));
}

// Families that no step looks at; prompts of a served decode and both parts of a conversation are looked at.
TEST(Kernels, OfStepsThatNothingRunsAreRefused) {
  const auto said = [](const std::string& question, const std::string& kernels) -> std::string {
    const std::string text = "name: t\nsystem: h200-hgx\n" + question + "kernels: " + kernels + "\n";
    try {
      parse_scenario("t.yaml", text, shipped_catalogs());
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  const std::string plans = "strategies: [tensor]\ngpus: [1]\nbatch: [1]\n";
  const std::string llama = "models: [llama-3.1-8b]\nprecision: {weights: bf16, kv: bf16, math: bf16}\n";
  const std::string decode = llama + plans + "context: 32Ki tokens\n";
  const std::string prefill = llama + plans + "phase: prefill\nrequests: [{new: 32Ki tokens}]\n";
  const std::string both =
      llama + plans + "phase: mixed\ncontext: 32Ki tokens\nrequests: [{new: 2Ki tokens}]\n";
  const std::string served =
      llama + plans + "engine: trtllm\nworkload: {input: 8Ki tokens, output: 1Ki tokens}\n";
  const std::string talk =
      llama + "conversation: {cp: 2, tpa: 1, turns: [{new: 32Ki tokens, output: 100 tokens}]}\n";
  const std::string of_prefill = "{attention_prefill: torch_flow}",
                    of_decode = "{attention_decode: torch_flow}";
  EXPECT_THAT(said(decode, of_prefill),
              HasSubstr("kernels.attention_prefill prices nothing: it is of prefill"));
  EXPECT_THAT(said(prefill, of_decode),
              HasSubstr("kernels.attention_decode prices nothing: it is of decode"));
  EXPECT_EQ(said(decode, of_decode), "");
  EXPECT_EQ(said(prefill, of_prefill), "");
  for (const std::string& question : {both, served, talk}) {
    EXPECT_EQ(said(question, of_prefill), "") << question;
    EXPECT_EQ(said(question, of_decode), "") << question;
  }
  // Exchanges of experts carry other messages, too; of several models one is enough.
  EXPECT_EQ(said(decode, "{alltoall: deepep_ll}"), "");
  EXPECT_THAT(said(decode, "{moe: torch_flow_cutlass}"), HasSubstr("kernels.moe prices nothing"));
  std::string two = decode;
  two.replace(two.find("llama-3.1-8b"), 12, "llama-3.1-8b, deepseek-r1");
  EXPECT_EQ(said(two, "{moe: torch_flow_cutlass}").find("prices nothing"), std::string::npos);
}

}  // namespace
}  // namespace shardline
