// Names of models as people copy them: addresses of Hugging Face, tags of Ollama's, revisions.
#include "planner/engines/model_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/scenario/shipped.hpp"
#include "planner/studies/plan_question.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

TEST(ModelNames, AddressesAreTheirRepositories) {
  const std::string own = "meta-llama/Llama-3.1-8B-Instruct";
  for (const char* form :
       {"https://huggingface.co/{}", "https://huggingface.co/{}/", "http://www.huggingface.co/{}",
        "https://huggingface.co/{}/tree/main", "https://huggingface.co/{}/blob/main/config.json",
        "https://huggingface.co/{}?library=vllm", "https://huggingface.co/{}#usage", "huggingface.co/{}",
        "hf.co/{}", "HTTPS://HuggingFace.co/{}", "hf://{}", "hf://models/{}", "hf:{}"}) {
    std::string address = form;
    address.replace(address.find("{}"), 2, own);
    EXPECT_EQ(without_address(address), own) << address;
  }
}

TEST(ModelNames, OthersAreAsTheyWere) {
  for (const char* name : {"llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "https://huggingface.co/",
                           "https://huggingface.co/meta-llama", "https://example.com/a/b",
                           "models/x/config.json", "https://huggingface.co//x", "hf.co/a/", ""})
    EXPECT_EQ(without_address(name), name);
}

TEST(ModelNames, TagsAreTold) {
  EXPECT_EQ(without_tag("llama-3.1-8b:latest"), "llama-3.1-8b");
  EXPECT_EQ(without_tag("llama3.1:70b"), "llama3.1-70b");
  EXPECT_EQ(without_tag("meta-llama/Llama-3.1-8B-Instruct@main"), "meta-llama/Llama-3.1-8B-Instruct");
  for (const char* none : {"llama-3.1-8b", "https://example.com/a:b", ":latest", ""})
    EXPECT_EQ(without_tag(none), "");
}

std::string fault_of(const std::string& model) {
  PlanQuestion q;
  q.model = model;
  q.system = "h100-hgx";
  q.input = 4096;
  try {
    plan_defaults(q, shipped_catalogs(), std::nullopt);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(ModelNames, OfATagTheModelThatIsMeantIsSaid) {
  EXPECT_THAT(fault_of("llama3.1:70b"), HasSubstr("did you mean llama-3.1-70b?"));
  EXPECT_THAT(fault_of("llama-3.1-8b:latest"), HasSubstr("did you mean llama-3.1-8b?"));
  EXPECT_THAT(fault_of("gpt-oss:120b"), HasSubstr("did you mean gpt-oss-120b?"));
  EXPECT_THAT(fault_of("meta-llama/Llama-3.1-8B-Instruct:fp8"),
              HasSubstr("did you mean meta-llama/Llama-3.1-8B-Instruct?"));
  EXPECT_THAT(fault_of("gemma3:27b"), HasSubstr("names have no tags"));
}

TEST(ModelNames, QuantisedOnesHaveABaseAndAType) {
  struct Case {
    const char *name, *base, *types, *here;
  };
  for (const Case& c :
       {Case{"RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic", "Llama-3.1-70B-Instruct", "FP8-dynamic",
             "fp8"},
        Case{"hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "Llama-3.1-8B-Instruct", "AWQ-INT4",
             "int4"},
        Case{"neuralmagic/Qwen3-32B-quantized.w4a16", "Qwen3-32B", "quantized.w4a16", "int4"},
        Case{"x/gpt-oss-120b-NVFP4", "gpt-oss-120b", "NVFP4", "fp4"},
        Case{"unsloth/Llama-3.1-8B-Instruct-GGUF", "Llama-3.1-8B-Instruct", "GGUF", "int4"}}) {
    const auto found = quantised_name(c.name);
    ASSERT_TRUE(found) << c.name;
    EXPECT_EQ(found->base, c.base);
    EXPECT_EQ(found->types, c.types);
    EXPECT_EQ(found->here, c.here);
  }
  for (const char* plain : {"Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B-Instruct", "a/b", "fp8/model"})
    EXPECT_FALSE(quantised_name(plain)) << plain;
}

TEST(ModelNames, OfUnknownRepositoriesWhatIsNearIsSaid) {
  EXPECT_THAT(fault_of("meta-llama/Meta-Llama-3.1-9B-Instruct"),
              HasSubstr("unknown model meta-llama/Meta-Llama-3.1-9B-Instruct"));
  EXPECT_THAT(fault_of("Meta-Llama-3.1-70B-Instruct"),
              HasSubstr("did you mean meta-llama/Llama-3.1-70B-Instruct?"));
  EXPECT_THAT(fault_of("llama-3.1-8b-fp8"), HasSubstr("did you mean nvidia/Llama-3.1-8B-Instruct-FP8?"));
  EXPECT_THAT(fault_of("Llama-3.1-70B-INT4"),
              HasSubstr("did you mean llama-3.1-70b --set precision.weights=int4?"));
  EXPECT_THAT(fault_of("unsloth/Llama-3.1-8B-Instruct"),
              HasSubstr("did you mean meta-llama/Llama-3.1-8B-Instruct?"));
  const std::string quantised = fault_of("RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic");
  EXPECT_THAT(quantised, HasSubstr("meta-llama/Llama-3.1-70B-Instruct --set precision.weights=fp8"));
  EXPECT_THAT(quantised, HasSubstr("nobody here has read"));
  const std::string family = fault_of("Qwen/Qwen2-7B-Instruct");
  EXPECT_THAT(family, HasSubstr("known of this family: Qwen/"));
  EXPECT_EQ(family.find("deepseek"), family.npos) << family;
  // Of no family that is known: all that are known are too many to read.
  EXPECT_THAT(fault_of("mistralai/Mixtral-8x7B-Instruct-v0.1"),
              HasSubstr("known here\ngive its files: hf download"));
}

}  // namespace
}  // namespace shardline
