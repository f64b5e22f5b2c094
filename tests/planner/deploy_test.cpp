// Launch lines of engines, and what they do not say.
#include "planner/engines/deploy.hpp"

#include <gmock/gmock.h>

#include <map>

#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using ::testing::Contains, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not, ::testing::Pair,
    ::testing::StartsWith, ::testing::UnorderedElementsAre;

std::vector<Deployment> of(const Case& c, const std::string& plan) {
  return deployments(c, parse_plan(plan));
}

// Plans that differ in dense_tp have the same options: a note tells apart those that the engine runs
// otherwise.
TEST(Deploy, OtherRanksOfDenseLayersAreNotedUnderAttentionDp) {
  Case r1 = decode_case("deepseek-r1", "gb200-nvl72", 100'000);
  const auto noted = [&](const std::string& plan) {
    std::map<std::string, std::string> out;
    for (const Deployment& d : of(r1, plan)) {
      for (const std::string& note : d.notes) {
        if (note.find("dense layers") != std::string::npos) out[d.engine] = note;
      }
    }
    return out;
  };
  const std::string trtllm = "TensorRT-LLM", whole = " runs the dense layers whole on every rank",
                    timed = "; this plan was timed with them ",
                    end = ", which no option sets: expect another time";
  const auto cut = [](int ranks) {
    return " runs the dense layers cut over " + std::to_string(ranks) + " ranks";
  };
  EXPECT_THAT(noted("dp_ep:dp=16,tpa=2,ep=32,batch=2"),
              UnorderedElementsAre(Pair(trtllm, trtllm + whole + timed + "cut over 2 ranks" + end),
                                   Pair("SGLang", "SGLang" + cut(32) + timed + "cut over 2 ranks" + end)));
  EXPECT_THAT(noted("dp_ep:dp=16,tpa=2,ep=32,dense_tp=32,batch=2"),
              UnorderedElementsAre(Pair(trtllm, trtllm + whole + timed + "cut over 32 ranks" + end),
                                   Pair("vLLM", "vLLM" + cut(2) + timed + "cut over 32 ranks" + end)));
  EXPECT_THAT(noted("dp_ep:dp=16,tpa=2,ep=32,dense_tp=1,batch=2"),
              UnorderedElementsAre(Pair("vLLM", "vLLM" + cut(2) + timed + "whole on every rank" + end)));
  EXPECT_THAT(noted("tensor:tpa=8,ep=8,batch=2"), IsEmpty());
  cut_layers(r1, 58, 0);  // experts alone
  EXPECT_THAT(noted("dp_ep:dp=16,tpa=2,ep=32,batch=2"), IsEmpty());
}

// SGLang has a flag for dense layers that every rank has for itself.
TEST(Deploy, SglangIsToldOfDenseLayersOnEachRank) {
  const Case r1 = decode_case("deepseek-r1", "gb200-nvl72", 100'000);
  const auto sglang = [&](const std::string& plan) { return of(r1, plan).back(); };
  const Deployment alone = sglang("dcp:dp=2,tpa=8,ep=16,dense_tp=1,batch=4,dcp=4");
  ASSERT_EQ(alone.engine, "SGLang");
  EXPECT_THAT(options_text(alone), HasSubstr(" --moe-dense-tp-size 1"));
  EXPECT_THAT(alone.notes, Not(Contains(HasSubstr("dense layers"))));
  const Deployment group = sglang("dcp:dp=2,tpa=8,ep=16,batch=4,dcp=4");
  EXPECT_THAT(options_text(group), Not(HasSubstr("dense")));
  EXPECT_THAT(
      group.notes,
      Contains(StartsWith(
          "SGLang runs the dense layers cut over 16 ranks; this plan was timed with them cut over 8 ranks")));
}

// SGLang's prefill context parallelism gathers KV, as allgather_kv does: its options make the plan's layout.
TEST(Deploy, SglangIsToldOfContextParallelPrefills) {
  Case qwen = decode_case("qwen3-235b-a22b", "h100-hgx", 32'768);
  qwen.batch = prefill_batch({{0, 32'768}});
  qwen.precision = all_bf16();
  const auto sglang = [](const Case& c, const std::string& plan) {
    for (const Deployment& d : of(c, plan)) {
      if (d.engine == "SGLang") return d;
    }
    return Deployment{};
  };
  const Deployment copies = sglang(qwen, "allgather_kv:cp=2,tpa=4,tpf=4");
  EXPECT_EQ(copies.unsaid, "");
  EXPECT_THAT(copies.notes, IsEmpty());
  EXPECT_THAT(options_text(copies), HasSubstr("--tp-size 8 "));
  EXPECT_THAT(options_text(copies),
              HasSubstr("--attn-cp-size 2 --enable-prefill-cp --cp-strategy zigzag --attention-backend fa3 "
                        "--moe-dp-size 2"));
  const Deployment spread = sglang(qwen, "allgather_kv:cp=4,tpa=4,ep=16");
  EXPECT_EQ(spread.unsaid, "");
  EXPECT_THAT(options_text(spread), HasSubstr("--tp-size 16 "));
  EXPECT_THAT(options_text(spread), HasSubstr(" --ep-size 16 "));
  EXPECT_THAT(options_text(spread), Not(HasSubstr("--moe-dp-size")));
  // Others run allgather_kv in their place, and say so.
  const Deployment ring = sglang(qwen, "ring_pass_kv:cp=2,tpa=4,tpf=4");
  EXPECT_EQ(ring.unsaid, "");
  EXPECT_THAT(ring.notes, Contains(HasSubstr("expect allgather_kv's TTFT")));
  EXPECT_EQ(options_text(ring), options_text(copies));
}

TEST(Deploy, SglangsContextParallelismHasLimits) {
  const auto unsaid = [](const char* model, const char* system, const char* plan, int prompts) {
    Case c = decode_case(model, system, 32'768);
    c.batch = prefill_batch({{0, 32'768, prompts}});
    c.precision = all_bf16();
    c.precision.kv = Dtype::fp8;  // the only one of DeepSeek-V4
    for (const Deployment& d : of(c, plan)) {
      if (d.engine == "SGLang") return d.unsaid;
    }
    return std::string("nothing of SGLang");
  };
  EXPECT_EQ(unsaid("deepseek-r1", "h200-hgx", "allgather_kv:cp=8,tpa=1,ep=8", 1), "");
  EXPECT_THAT(unsaid("deepseek-r1", "h200-hgx", "allgather_kv:cp=8,tpa=1,ep=8", 2),
              HasSubstr("one prompt at a time"));
  EXPECT_THAT(unsaid("deepseek-r1", "gb200-nvl72", "allgather_kv:cp=8,tpa=1,ep=8", 1),
              HasSubstr("does not run on Blackwell"));
  EXPECT_THAT(unsaid("llama-3.1-70b", "h100-hgx", "allgather_kv:cp=2,tpa=4,tpf=4", 1),
              HasSubstr("neither of MLA nor a Qwen model with experts"));
  // DeepSeek-V4: any number of prompts, attention not under TP, experts on all ranks, one machine.
  EXPECT_EQ(unsaid("deepseek-v4-pro", "h200-hgx", "allgather_kv:cp=8,tpa=1,ep=8", 2), "");
  EXPECT_EQ(unsaid("deepseek-v4-pro", "gb200-nvl72", "allgather_kv:cp=8,tpa=1,ep=8", 1), "");
  EXPECT_NE(unsaid("deepseek-v4-pro", "h200-hgx", "allgather_kv:cp=4,tpa=2,ep=8", 1), "");
  EXPECT_NE(unsaid("deepseek-v4-pro", "h200-hgx", "allgather_kv:cp=8,tpa=1,tpf=1", 1), "");
  EXPECT_THAT(unsaid("deepseek-v4-pro", "gb200-nvl72", "allgather_kv:cp=16,tpa=1,ep=16", 1),
              HasSubstr("on 16 ranks"));
}

// Its experts in MXFP4 are widened on Hopper, by kernels that SGLang has to be told.
TEST(Deploy, SglangIsToldKernelsOfDeepSeekV4OnHopper) {
  const auto runner = [](const char* system, Dtype experts) {
    Case c = decode_case("deepseek-v4-pro", system, 32'768);
    c.precision.kv = Dtype::fp8;
    c.precision.expert_weights = experts;
    for (const Deployment& d : of(c, "tensor:tpa=8,tpf=8,batch=4")) {
      const LaunchOption* o = find(d.options, "--moe-runner-backend");
      if (d.profile == "sglang") return o == nullptr ? std::string() : o->value;
    }
    return std::string("no SGLang");
  };
  EXPECT_EQ(runner("h200-hgx", Dtype::mxfp4), "flashinfer_mxfp4");
  EXPECT_EQ(runner("h200-hgx", Dtype::fp8_block), "");
  EXPECT_EQ(runner("gb200-nvl72", Dtype::mxfp4), "");
}

// DeepSeek-V4's tokens are interleaved, and its kernels are its own.
TEST(Deploy, SglangInterleavesTheTokensOfDeepSeekV4) {
  Case c = decode_case("deepseek-v4-pro", "h200-hgx", 32'768);
  c.batch = prefill_batch({{0, 32'768}});
  c.precision = all_bf16();
  c.precision.kv = Dtype::fp8;
  for (const Deployment& d : of(c, "allgather_kv:cp=8,tpa=1,ep=8")) {
    if (d.engine != "SGLang") continue;
    EXPECT_THAT(options_text(d), HasSubstr("--attn-cp-size 8 --enable-prefill-cp --cp-strategy interleave"));
    EXPECT_THAT(options_text(d), Not(HasSubstr("fa3")));
    EXPECT_THAT(d.notes, Contains(HasSubstr("one by one")));
    return;
  }
  FAIL() << "nothing of SGLang";
}

}  // namespace
}  // namespace shardline
