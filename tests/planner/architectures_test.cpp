// Which engines have a class for which model [P21].
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "models/model/catalog.hpp"
#include "models/model/hf_config.hpp"
#include "planner/engines/checkpoints.hpp"
#include "planner/engines/launch_rules.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "planner/studies/sweep.hpp"
#include "tests/planner/launchable.hpp"

namespace shardline {
namespace {

using namespace testing;

// Imported, but not known of an engine in its version: under it a result says that it was not checked. Of
// Step-3.7 engines have classes under the name that the maker's file gives (Step3p7ForConditionalGeneration),
// not that of the file here.
const std::map<std::string, std::set<std::string>> kNotLookedFor = {
    {"vllm",
     {"Qwen3VLForCausalLM", "Qwen3VLMoeForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM",
      "Step3p7FlashForCausalLM"}},
    {"sglang",
     {"Ernie4_5ForCausalLM", "Qwen3VLForCausalLM", "Qwen3VLMoeForCausalLM", "Qwen3_5ForCausalLM",
      "Qwen3_5MoeForCausalLM", "Step3p7FlashForCausalLM"}},
    {"trtllm",
     {"Qwen2MoeForCausalLM", "Qwen3NextForCausalLM", "Qwen3VLForConditionalGeneration",
      "Qwen3VLMoeForConditionalGeneration", "SeedOssForCausalLM", "Step3p5ForCausalLM",
      "Step3p7FlashForCausalLM"}},
};

TEST(Architectures, EveryOneThatIsImportedWasLookedForInEveryEngine) {
  for (const LaunchRules* rules : launch_rules()) {
    std::set<std::string> read;
    for (const auto list : {rules->architectures->has, rules->architectures->lacks}) {
      for (const ReadArchitecture& a : list) {
        EXPECT_TRUE(read.insert(a.name).second) << rules->engine << " says twice: " << a.name;
        EXPECT_NE(std::string_view(a.place), "") << a.name;
      }
    }
    for (const std::string& name : hf_architectures()) {
      const bool looked_for = !kNotLookedFor.at(rules->engine).contains(name);
      EXPECT_EQ(read.erase(name) == 1, looked_for) << rules->engine << ": " << name;
    }
    EXPECT_EQ(read, std::set<std::string>{}) << rules->engine;
  }
}

TEST(Architectures, EveryModelOfTheCatalogueHasOne) {
  for (const std::string& name : catalog_names(source_path("models/catalog"))) {
    const Model m = load_model(name, source_path("models/catalog"));
    EXPECT_NE(m.architecture, "") << name;
  }
}

// Both ways for each engine, by models whose answer is known from outside: TensorRT-LLM 1.3.0rc20's table of
// supported models, SGLang's pull request 37227, which adds Falcon later, and rows of the measured tables.
TEST(Architectures, EnginesStartTheModelsThatTheyHave) {
  const std::map<std::string, std::map<std::string, bool>> known{
      {"vllm", {{"falcon-7b", true}, {"mimo-v2-flash", true}, {"kimi-k2", true}, {"llama-4-scout", true}}},
      {"sglang",
       {{"falcon-7b", false}, {"falcon-1b", false}, {"mimo-v2-flash", true}, {"gemma-3-27b", true}}},
      {"trtllm",
       {{"falcon-7b", false}, {"mimo-v2-flash", false}, {"kimi-k2", true}, {"gpt-oss-120b", true}}}};
  for (const auto& [engine, models] : known) {
    for (const auto& [model, starts] : models) {
      SCOPED_TRACE(engine + " " + model);
      Case c = decode_case(model, "h100-hgx", 1'024);
      c.precision = all_bf16();
      c.engine = profile(engine);
      c.kv_block = own_block_of(engine, c);
      const auto refusal = does_not_start(c);
      ASSERT_EQ(refusal.has_value(), !starts) << refusal->text;
      EXPECT_FALSE(unchecked_model(c));
      if (starts) continue;
      EXPECT_EQ(refusal->rule, "model");
      EXPECT_EQ(refusal->key, "models");
      EXPECT_NE(refusal->instead.find("vllm (vLLM 0.24.0)"), std::string::npos) << refusal->instead;
    }
  }
}

// Of today's models, by sources other than the tables: release notes of vLLM 0.24.0 (DeepSeek-V4, on SM120
// beside GLM-5.1) and of SGLang 0.5.12 (DeepSeek-V4), tables of supported models of TensorRT-LLM 1.3.0rc20
// (DeepSeek-V3.2, GLM-5, no DeepSeek-V4) and 1.3.0rc13 (MiniMax-M2), release notes of vLLM 0.24.0 and of
// TensorRT-LLM 1.3.0rc19 (MiniMax-M3) and 1.3.0rc9 (Qwen3.5).
TEST(Architectures, TodaysModelsAreKnownOrSaidNotToBe) {
  using enum HasArchitecture;
  const std::map<std::string, std::map<std::string, HasArchitecture>> known{
      {"vllm",
       {{"deepseek-v4-pro", yes},
        {"deepseek-v3.2", yes},
        {"glm-5.2", yes},
        {"minimax-m2.5", yes},
        {"qwen3.5-397b-a17b", yes},
        {"nemotron-3-super-120b-a12b", yes},
        {"kimi-k3", no},
        {"minimax-m3", yes}}},
      {"sglang",
       {{"deepseek-v4-pro", yes},
        {"deepseek-v3.2", yes},
        {"glm-5.2", yes},
        {"minimax-m2.5", yes},
        {"qwen3.5-397b-a17b", yes},
        {"nemotron-3-super-120b-a12b", yes},
        {"kimi-k3", no},
        {"minimax-m3", no}}},
      {"trtllm",
       {{"deepseek-v3.2", yes},
        {"glm-5.2", yes},
        {"minimax-m2.5", yes},
        {"nemotron-3-super-120b-a12b", yes},
        {"mimo-v2-flash", no},
        {"deepseek-v4-pro", no},
        {"minimax-m3", yes},
        {"qwen3.5-397b-a17b", yes},
        {"kimi-k3", no}}}};
  for (const LaunchRules* rules : launch_rules()) {
    const auto at = known.find(rules->engine);
    if (at == known.end()) continue;
    for (const auto& [model, has] : at->second) {
      const Model m = load_model(model, source_path("models/catalog"));
      EXPECT_EQ(has_architecture(*rules->architectures, m.architecture), has)
          << rules->engine << " " << model;
    }
  }
}

TEST(Architectures, WhatNobodyLookedForIsPricedAndSaidNotToBeChecked) {
  for (const char* const engine : {"vllm", "sglang", "trtllm"}) {
    for (const char* const name : {"", "SomebodysForCausalLM"}) {
      SCOPED_TRACE(std::string(engine) + " " + name);
      Study study;
      study.question = Sweep{};
      study.study = case_of(engine, {kL70, kH100, "tensor:tpa=4,tpf=4"});
      study.study.model.architecture = name;
      EXPECT_FALSE(does_not_start(study.study));
      const auto note = unchecked_model(study.study);
      ASSERT_TRUE(note);
      EXPECT_NE(note->find("was not checked"), std::string::npos) << *note;
      EXPECT_NE(note->find(*name == '\0' ? "no architecture of it is given" : name), std::string::npos);
      const auto warns = [&](const Study& s) {
        Evaluator e(s.study);
        const SimulatedPlan found = simulate_plan(s, e, parse_plan("tensor:tpa=4,tpf=4"));
        return std::any_of(found.unread.begin(), found.unread.end(),
                           [&](const Diagnostic& d) { return d.what == *note; });
      };
      EXPECT_TRUE(warns(study));
      study.study.engine = nullptr;
      EXPECT_FALSE(unchecked_model(study.study));
      EXPECT_FALSE(warns(study));
    }
  }
}

// Where no plan is left there are no plans whose warnings would say it.
TEST(Architectures, WhatNobodyLookedForIsSaidWhereNoPlanFits) {
  for (const char* const name : {"Step3p7FlashForCausalLM", "DeepseekV3ForCausalLM"}) {
    Study study;
    Sweep sweep;
    sweep.search.strategies = {parse_plan("tensor:tpa=1,tpf=1").strategy};
    sweep.search.gpus = {1};
    sweep.search.batches = {1};
    study.question = sweep;
    study.study = case_of("sglang", {kR1, kH100, ""});
    study.study.model.architecture = name;
    const SweepAnswer answer = answer_sweep(
        study, {}, [](std::uint64_t, std::uint64_t) {}, [] { return true; });
    ASSERT_FALSE(answer.any()) << "671 B parameters on one GPU";
    const auto note = unchecked_model(study.study);
    EXPECT_EQ(note.has_value(), name == std::string("Step3p7FlashForCausalLM"));
    const bool said = std::any_of(answer.unread.begin(), answer.unread.end(),
                                  [&](const Diagnostic& d) { return note && d.what == *note; });
    EXPECT_EQ(said, note.has_value());
  }
}

TEST(Architectures, OfAConfigJsonTheFirstNameCounts) {
  const std::string rest = R"("model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32,
    "num_attention_heads": 71, "vocab_size": 65024})";
  EXPECT_EQ(parse_hf_config("m.json", R"({"architectures": ["RWForCausalLM", "FalconForCausalLM"], )" + rest)
                .architecture,
            "RWForCausalLM");
  EXPECT_EQ(parse_hf_config("m.json", "{" + rest).architecture, "");
  // A quantised sibling is of the architecture of its model.
  EXPECT_EQ(published_model("nvidia/DeepSeek-R1-FP4", source_path("models/catalog")).architecture,
            "DeepseekV3ForCausalLM");
}

}  // namespace
}  // namespace shardline
