// Every rule of what engines start [P21], by a plan that it refuses and the nearest that it lets pass; and
// deployments that are known to start.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "planner/engines/launch_rules.hpp"
#include "tests/planner/launchable.hpp"
#include "tests/planner/sglang_rules.hpp"
#include "tests/planner/trtllm_rules.hpp"
#include "tests/planner/vllm_rules.hpp"

namespace shardline {
namespace {

using namespace testing;

// What an engine starts by kernels that nobody has measured, and the nearest that has a price.
const std::map<std::string, std::vector<RuleCase>> kUnpriced{
    {"vllm",
     {{"weight_kernels",
       {kL70, kH100, "tensor:tpa=8,tpf=8", all_in_fp4},
       {kL70, kH100, "tensor:tpa=8,tpf=8", fp4_in_bf16}},
      {"weight_kernels",
       {kL70, kH100, "tensor:tpa=8,tpf=8", all_in_fp4},
       {kL70, kGb, "tensor:tpa=8,tpf=8", all_in_fp4}},
      {"weight_kernels",
       {kL70, kA100, "tensor:tpa=8,tpf=8", all_in_fp8},
       {kL70, kH100, "tensor:tpa=8,tpf=8", all_in_fp8}},
      {"weight_kernels",
       {kQwen, kA100, "tensor:tpa=8,tpf=8", experts_in_blocks},
       {kOss, kA100, "tensor:tpa=8,tpf=8", experts_in_mxfp4}}}},
    {"trtllm", {{"block_kernels", {kM3, kH100, "tensor:tpa=4,ep=4"}, {kM3, kGb, "tensor:tpa=4,ep=4"}}}},
    {"sglang",
     {{"gptq_kernels",
       {kL70, kH100, "tensor:tpa=8,tpf=8", gptq_with_zero_points},
       {kL70, kH100, "tensor:tpa=8,tpf=8", int4_of<"gptq">}},
      {"cache_kernels",
       {kL70, kGb, "tensor:tpa=8,tpf=8", cached_in_fp4},
       {kL70, kGb, "tensor:tpa=8,tpf=8", cached_in_fp8}},
      {"weight_kernels",
       {kR1, kH100, "tensor:tpa=8,tpf=8", all_in_fp4},
       {kR1, kGb, "tensor:tpa=8,tpf=8", all_in_fp4}},
      {"weight_kernels",
       {kL70, kA100, "tensor:tpa=8,tpf=8", all_in_fp8},
       {kL70, kA100, "tensor:tpa=8,tpf=8", fp8_in_bf16}}}},
};

const std::map<std::string, const std::vector<RuleCase>*> kCases{
    {"vllm", &kVllm}, {"sglang", &kSglang}, {"trtllm", &kTrtllm}};

TEST(Launchable, EveryRuleRefusesAPlanAndLetsTheNearestPass) {
  for (const auto& [engine, cases] : kCases) {
    for (const RuleCase& r : *cases) {
      SCOPED_TRACE(fmt::format("{} {}: {}", engine, r.rule, r.refused.plan));
      const Case refusing = case_of(engine, r.refused);
      const Plan refused = parse_plan(r.refused.plan);
      EXPECT_EQ(check_plan(refusing, refused).has_value(), !r.possible)
          << check_plan(refusing, refused).value_or("");
      const auto refusal = does_not_start(refusing, refused);
      ASSERT_TRUE(refusal) << "it starts";
      EXPECT_EQ(refusal->rule, r.rule) << refusal->text;
      const Case starting = case_of(engine, r.starts);
      const Plan starts = parse_plan(r.starts.plan);
      EXPECT_EQ(check_plan(starting, starts).value_or(""), "");
      const auto none = does_not_start(starting, starts);
      EXPECT_FALSE(none) << none->rule << ": " << none->text;
      // Without an engine every plan is priced.
      Case ideal = refusing;
      ideal.engine = nullptr;
      EXPECT_FALSE(does_not_start(ideal, refused));
    }
  }
}

// It starts, and is refused all the same where it is asked for: no kernel of W4A4 stands for one of W4A16.
TEST(Launchable, WhatNoKernelWasMeasuredOfHasNoPrice) {
  for (const auto& [engine, cases] : kUnpriced) {
    for (const RuleCase& r : cases) {
      SCOPED_TRACE(fmt::format("{} {} on {}", engine, r.refused.model, r.refused.system));
      const Case refusing = case_of(engine, r.refused);
      EXPECT_FALSE(does_not_start(refusing)) << does_not_start(refusing)->text;
      const auto unpriced = has_no_price(refusing);
      ASSERT_TRUE(unpriced);
      EXPECT_EQ(unpriced->rule, r.rule);
      const char* const by = unpriced->rule == "cache_kernels"   ? "widens"
                             : unpriced->rule == "gptq_kernels"  ? "ExLlama"
                             : unpriced->rule == "block_kernels" ? "fallback"
                                                                 : "Marlin";
      EXPECT_NE(unpriced->text.find(by), std::string::npos) << unpriced->text;
      const char* const instead = unpriced->rule == "block_kernels" ? "engine vllm" : "bf16";
      EXPECT_NE(unpriced->instead.find(instead), std::string::npos) << unpriced->instead;
      const Case priced = case_of(engine, r.starts);
      EXPECT_FALSE(does_not_start(priced)) << does_not_start(priced)->text;
      EXPECT_FALSE(has_no_price(priced)) << has_no_price(priced)->text;
      Case ideal = refusing;
      ideal.engine = nullptr;
      EXPECT_FALSE(has_no_price(ideal));
    }
  }
}

// SGLang reads caches in FP4 by widening all of them, which is no kernel of fewer bytes.
TEST(Launchable, ACacheThatIsWidenedWholeHasNoPrice) {
  const Case refusing = case_of("sglang", {kL70, kGb, "", cached_in_fp4});
  EXPECT_FALSE(does_not_start(refusing));
  const auto unpriced = has_no_price(refusing);
  ASSERT_TRUE(unpriced);
  EXPECT_EQ(unpriced->rule, "cache_kernels");
  EXPECT_FALSE(has_no_price(case_of("sglang", {kL70, kGb, "", cached_in_fp8})));
  EXPECT_FALSE(has_no_price(case_of("vllm", {kL70, kGb, "", cached_in_fp4})));
}

// Types of weights and devices that a refusal offers, as a user would take them up.
std::vector<std::string> offered(const std::string& text, const std::string& before) {
  std::vector<std::string> out;
  auto at = text.find(before);
  if (at == std::string::npos) return out;
  at += before.size();
  while (true) {
    const auto end = text.find_first_of(" ,;", at);
    out.push_back(text.substr(at, end - at));
    if (end == std::string::npos || text.compare(end, 4, " or ") != 0) return out;
    at = end + 4;
  }
}

// Whatever is offered in place of weights that an engine refuses starts and has a price.
TEST(Launchable, WhatARefusalOffersIsAccepted) {
  const std::map<std::string, const char*> systems{{"Ampere", kA100}, {"Hopper", kH100}, {"Blackwell", kGb}};
  const std::map<std::string, Dtype> types{{"fp4", Dtype::fp4},   {"mxfp4", Dtype::mxfp4},
                                           {"fp8", Dtype::fp8},   {"fp8_block", Dtype::fp8_block},
                                           {"int4", Dtype::int4}, {"bf16", Dtype::bf16}};
  const auto reason = [](const Case& c) {
    if (const auto refusal = does_not_start(c)) return refusal->text;
    const auto unpriced = has_no_price(c);
    return unpriced ? unpriced->text : std::string();
  };
  int refused = 0, tried = 0;
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    for (const char* model : {kR1, kL70, kL405, kQwen, kQwen14, kOss, "mimo-v2-flash"}) {
      for (const auto& [own, system] : systems) {
        for (const auto& [name, type] : types) {
          for (const bool experts_alone : {false, true}) {
            Case c = case_of(engine, {model, system, ""});
            (experts_alone ? c.precision.expert_weights.emplace() : c.precision.weights) = type;
            (experts_alone ? c.precision.expert_math.emplace() : c.precision.math) = arithmetic_of(type);
            auto refusal = does_not_start(c);
            if (!refusal) refusal = has_no_price(c);
            if (!refusal || (refusal->rule != "weight_type" && refusal->rule != "weight_kernels")) continue;
            SCOPED_TRACE(fmt::format("{} {} on {} in {}: {}", engine, model, system, name, refusal->instead));
            ++refused;
            for (const std::string& other : offered(refusal->instead, "weights all of ")) {
              ASSERT_TRUE(types.contains(other)) << other;
              Case taken = case_of(engine, {model, system, ""});
              taken.precision.weights = types.at(other);
              taken.precision.math = arithmetic_of(types.at(other));
              EXPECT_EQ(reason(taken), "") << other;
              ++tried;
            }
            for (const std::string& other : offered(refusal->instead, "a system of ")) {
              ASSERT_TRUE(systems.contains(other)) << other;
              EXPECT_NE(other, own);
              Case taken = c;
              taken.system = case_of(engine, {model, systems.at(other), ""}).system;
              taken.kv_block = own_block_of(engine, taken);
              EXPECT_EQ(reason(taken), "") << other;
              ++tried;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_GT(tried, 100);
}

// Deployments whose measurements are public (InferenceMAX's scripts, SemiAnalysisAI/InferenceX) or that the
// engines' documentation starts: no rule may stand in their way.
TEST(Launchable, WhatIsPubliclyStartedStarts) {
  const char* const h200 = "h200-hgx";
  const std::vector<std::pair<std::string, Try>> known{
      {"trtllm", {kL70, h200, "tensor:tpa=1"}},
      {"trtllm", {kL70, h200, "tensor:tpa=2,tpf=2", in_fp8_all_through}},
      {"vllm", {kL70, h200, "tensor:tpa=4,tpf=4", cached_in_fp8}},
      {"vllm", {kL70, h200, "tensor:tpa=8,tpf=8", cached_in_fp8}},
      {"trtllm", {kR1, h200, "tensor:tpa=8,ep=8", in_blocks}},
      {"trtllm", {kR1, h200, "dp_ep:dp=8,ep=8", in_blocks}},
      {"trtllm", {kR1, h200, "dp_ep:dp=16,ep=16,moe_a2a=gather", in_blocks}},
      {"vllm", {kR1, h200, "tensor:tpa=8,tpf=8", in_blocks}},
      {"vllm", {kR1, h200, "dp_ep:dp=16,ep=16", in_blocks}},
      {"vllm", {kR1, h200, "dcp:tpa=8,ep=8,dcp=8,exchange=a2a", in_blocks}},
      {"vllm", {kQwen, h200, "dcp:tpa=8,ep=8,dcp=2", in_blocks}},
      {"sglang", {kR1, h200, "tensor:tpa=8,tpf=8", in_blocks}},
      // docs/basic_usage/deepseek_v3.md, "Multi-token Prediction": steps 3, topk 1, 4 draft tokens.
      {"sglang",
       {kR1, h200, "tensor:tpa=8,tpf=8,drafts=3", [](Case& c) { in_blocks(c), accepts_drafts(c); }}},
      {"sglang",
       {kR1, h200, "dp_ep:dp=8,ep=8,dense_tp=1,drafts=3", [](Case& c) { in_blocks(c), accepts_drafts(c); }}},
      {"vllm", {kR1, h200, "tensor:tpa=8,tpf=8,drafts=1", [](Case& c) { in_blocks(c), accepts_drafts(c); }}},
      {"trtllm", {kR1, h200, "dp_ep:dp=8,ep=8,drafts=3", [](Case& c) { in_blocks(c), accepts_drafts(c); }}},
      {"sglang", {kR1, h200, "dp_ep:dp=16,ep=16,dense_tp=1", in_blocks}},
      {"trtllm", {kOss, kH100, "tensor:tpa=2,tpf=2", experts_in_mxfp4}},
      {"vllm", {kOss, kH100, "tensor:tpa=4,tpf=4", experts_in_mxfp4}},
      {"vllm", {kOss, kH100, "tensor:tpa=8,tpf=8", experts_in_mxfp4}},
      {"trtllm", {kR1, kGb, "helix:kvp=8,tpa=2,ep=16,value_up=after", weights_in_fp4}},
      // NVIDIA/TensorRT-LLM tests/integration/defs/accuracy/test_disaggregated_serving.py,
      // test_auto_dtype_with_helix@00bb903d965f: pp1tp1cp4, pp1tp2cp2, pp1dp2cp2, pp2tp1cp2.
      {"trtllm", {kR1, kGb, "helix:kvp=4,ep=4,value_up=after"}},
      {"trtllm", {kR1, kGb, "helix:kvp=2,tpa=2,ep=4,value_up=after"}},
      {"trtllm", {kR1, kGb, "helix:dp=2,kvp=2,ep=4,dense_tp=1,value_up=after"}},
      {"trtllm", {kR1, kGb, "helix:pp=2,kvp=2,ep=2,value_up=after"}},
  };
  for (const auto& [engine, t] : known) {
    SCOPED_TRACE(fmt::format("{} {}", engine, t.plan));
    const Case c = case_of(engine, t);
    const Plan p = parse_plan(t.plan);
    EXPECT_EQ(check_plan(c, p).value_or(""), "");
    const auto refusal = does_not_start(c, p);
    EXPECT_FALSE(refusal) << refusal->rule << ": " << refusal->text;
  }
}

TEST(Launchable, EveryRuleIsTriedAndNamesItsSource) {
  ASSERT_EQ(launch_rules().size(), kCases.size());
  for (const LaunchRules* rules : launch_rules()) {
    std::set<std::string> ids, tried;
    const auto add = [&](const auto& rule) {
      SCOPED_TRACE(fmt::format("{} {}", rules->engine, rule.id));
      EXPECT_TRUE(ids.insert(rule.id).second) << "twice";
      EXPECT_GT(std::string_view(rule.says).size(), 10u);
      const std::string_view source(rule.source);
      const auto has = [&](const char* part) { return source.find(part) != std::string_view::npos; };
      const bool file = has(".py") || has(".md"), version = has("@") || has("near v");
      EXPECT_TRUE(source.starts_with("hardware/") || (file && version)) << source;
    };
    for (const CaseRule& rule : rules->cases) add(rule);
    for (const CaseRule& rule : rules->unpriced) add(rule);
    for (const LaunchRule& rule : rules->plans) add(rule);
    for (const RuleCase& r : *kCases.at(rules->engine)) tried.insert(r.rule);
    if (const auto at = kUnpriced.find(rules->engine); at != kUnpriced.end()) {
      for (const RuleCase& r : at->second) tried.insert(r.rule);
    }
    EXPECT_EQ(ids, tried) << rules->engine;
  }
}

}  // namespace
}  // namespace shardline
