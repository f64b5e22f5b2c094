// Which types published checkpoints are said to have: those that somebody has read, and no others.
#include "planner/engines/checkpoints.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "models/model/catalog.hpp"
#include "planner/scenario/precision_keys.hpp"
#include "planner/scenario/shipped.hpp"
#include "tests/hardware/fitted.hpp"
#include "tests/planner/launchable.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Own {
  const char* repository;
  MatrixType attention, experts;  // of a dense model its FFN
};

// Read in the makers' config.json, a second time: quantization_config (fp8 with weight_block_size: all but
// router and head; mxfp4 and pack-quantized: routed experts), expert_dtype, dtype.
const std::map<std::string, Own> kRead{
    {"deepseek-r1", {"deepseek-ai/DeepSeek-R1", Dtype::fp8_block, Dtype::fp8_block}},
    {"deepseek-v3.2", {"deepseek-ai/DeepSeek-V3.2", Dtype::fp8_block, Dtype::fp8_block}},
    {"deepseek-v4-flash", {"deepseek-ai/DeepSeek-V4-Flash", Dtype::fp8_block, {Dtype::mxfp4, Dtype::fp8}}},
    {"deepseek-v4-pro", {"deepseek-ai/DeepSeek-V4-Pro", Dtype::fp8_block, {Dtype::mxfp4, Dtype::fp8}}},
    {"gpt-oss-120b", {"openai/gpt-oss-120b", Dtype::bf16, Dtype::mxfp4}},
    {"gpt-oss-20b", {"openai/gpt-oss-20b", Dtype::bf16, Dtype::mxfp4}},
    {"kimi-k2", {"moonshotai/Kimi-K2-Instruct", Dtype::fp8_block, Dtype::fp8_block}},
    {"kimi-k3", {"moonshotai/Kimi-K3", Dtype::bf16, {Dtype::mxfp4, Dtype::bf16}}},
    {"llama-3.1-405b", {"meta-llama/Llama-3.1-405B-Instruct", Dtype::bf16, Dtype::bf16}},
    {"llama-3.1-70b", {"meta-llama/Llama-3.1-70B-Instruct", Dtype::bf16, Dtype::bf16}},
    {"llama-3.1-8b", {"meta-llama/Llama-3.1-8B-Instruct", Dtype::bf16, Dtype::bf16}},
    {"llama-4-maverick", {"meta-llama/Llama-4-Maverick-17B-128E-Instruct", Dtype::bf16, Dtype::bf16}},
    {"mimo-v2-flash", {"XiaomiMiMo/MiMo-V2-Flash", Dtype::fp8_block, Dtype::fp8_block}},
    {"minimax-m2.5", {"MiniMaxAI/MiniMax-M2.5", Dtype::fp8_block, Dtype::fp8_block}},
    {"minimax-m3", {"MiniMaxAI/MiniMax-M3", Dtype::bf16, Dtype::bf16}},
    {"qwen3-235b-a22b", {"Qwen/Qwen3-235B-A22B", Dtype::bf16, Dtype::bf16}},
    {"qwen3.5-397b-a17b", {"Qwen/Qwen3.5-397B-A17B", Dtype::bf16, Dtype::bf16}},
};

const std::filesystem::path kCatalog = source_path("models/catalog");

// The case of a model whose checkpoint an engine chooses, as scenarios make it.
Case by_default(const std::string& model) {
  Case c = decode_case("llama-3.1-8b", "h100-hgx", 1024);
  c.model = load_model(model, kCatalog);
  c.model.checkpoint = checkpoint_by_default(c.model);
  const Checkpoint& own = *c.model.checkpoint;
  c.precision = all_bf16();
  c.precision.attention_weights = own.attention.weights;
  c.precision.out_proj_weights = own.out_proj.weights;
  c.precision.ffn_weights = own.dense_ffn.weights;
  c.precision.expert_weights = own.experts.weights;
  c.precision.shared_weights = own.shared.weights;
  c.precision.assumed.weights = true;
  return c;
}

TEST(Checkpoints, P20NoCheckpointThatWasNotReadHasTypes) {
  int read = 0;
  for (const std::string& name : catalog_names(kCatalog)) {
    SCOPED_TRACE(name);
    const Case c = by_default(name);
    const Checkpoint& own = *c.model.checkpoint;
    const auto at = kRead.find(name);
    if (at != kRead.end()) {
      ++read;
      EXPECT_EQ(own.assumed, at->second.repository);
      EXPECT_EQ(own.attention, at->second.attention);
      EXPECT_EQ(has_experts(c.model) ? own.experts : own.dense_ffn, at->second.experts);
      EXPECT_EQ(checkpoint_of(c), at->second.repository);
      EXPECT_THAT(types_not_read(c), IsEmpty());
      EXPECT_THAT(stored_otherwise(c), IsEmpty());
      continue;
    }
    EXPECT_EQ(own.attention, MatrixType(Dtype::bf16));
    EXPECT_EQ(own.experts, MatrixType(Dtype::bf16));
    const std::string repository = checkpoint_of(c);
    if (repository.empty()) {  // weights that nobody has published
      EXPECT_EQ(own.assumed, "one in bf16");
      EXPECT_THAT(types_not_read(c), IsEmpty());
      continue;
    }
    EXPECT_FALSE(names_checkpoint(own.assumed));
    EXPECT_EQ(types_not_read(c), fmt::format("types of {} not read: BF16 assumed", repository));
    EXPECT_EQ(own.assumed, types_not_read(c));
  }
  EXPECT_EQ(read, std::ssize(kRead));
}

// Whatever types are asked for: what is said to be stored so was read.
TEST(Checkpoints, P20NorInOtherTypes) {
  for (const std::string& name : catalog_names(kCatalog)) {
    Case c = by_default(name);
    c.precision.assumed.weights = false;
    for (const Dtype type : {Dtype::fp4, Dtype::fp8, Dtype::fp8_block, Dtype::mxfp4, Dtype::bf16}) {
      c.precision = all_bf16();
      c.precision.weights = type;
      const std::string repository = checkpoint_of(c);
      if (repository.empty() || kRead.contains(name)) continue;
      EXPECT_EQ(types_not_read(c), fmt::format("types of {} not read", repository)) << name;
    }
  }
  Case c = by_default("qwen3-235b-a22b");
  c.precision = all_bf16();
  c.precision.expert_weights = Dtype::fp4;
  EXPECT_EQ(checkpoint_of(c), "nvidia/Qwen3-235B-A22B-FP4");
  EXPECT_EQ(types_not_read(c), "types of nvidia/Qwen3-235B-A22B-FP4 not read");
}

TEST(Checkpoints, P20OneThatIsNamedIsNotReadEither) {
  const Model gemma = published_model("google/gemma-3-27b-it", kCatalog);
  EXPECT_EQ(gemma.checkpoint->assumed, "types of google/gemma-3-27b-it not read: BF16 assumed");
  EXPECT_THAT(published_model("MiniMaxAI/MiniMax-M3", kCatalog).checkpoint->assumed, IsEmpty());
}

// Those that a refusal may offer: none whose types nobody read, the maker's first.
TEST(Checkpoints, P20ThoseOfAModel) {
  const auto of = [](const char* model) { return published_checkpoints(load_model(model, kCatalog)); };
  const auto r1 = of("deepseek-r1"), llama = of("llama-3.1-70b");
  ASSERT_EQ(r1.size(), 3u);
  EXPECT_EQ(r1[0].repository, "deepseek-ai/DeepSeek-R1");
  EXPECT_TRUE(r1[0].whole);
  EXPECT_EQ(r1[1].repository, "nvidia/DeepSeek-R1-FP4");
  EXPECT_EQ(r1[2].repository, "deepseek-ai/DeepSeek-V3");
  EXPECT_FALSE(r1[1].whole) << "its attention is in BF16";
  EXPECT_EQ(r1[1].types.attention.weights, Dtype::bf16);
  EXPECT_EQ(r1[1].types.experts.weights, Dtype::fp4);
  ASSERT_EQ(llama.size(), 3u);
  EXPECT_EQ(llama[2].type, Dtype::fp8);
  EXPECT_EQ(llama[2].types.kv, Dtype::fp8);
  for (const PublishedCheckpoint& p : of("qwen3-235b-a22b")) EXPECT_NE(p.type, Dtype::fp4);
  EXPECT_THAT(of("gemma-3-27b"), IsEmpty());
}

// A refusal of DeepSeek's types names what its maker publishes, and says of others that nobody does.
TEST(Checkpoints, P21RefusalsOfferWhatIsPublished) {
  const auto refusal = [](const char* model, const char* system, const char* precision) {
    try {
      parse_scenario("q.yaml",
                     fmt::format("name: q\nsystem: {}\nengine: trtllm\nmodels: [{}]\ncontext: 4Ki tokens\n"
                                 "strategies: [tensor]\ngpus: [8]\nbatch: 1\n{}",
                                 system, model, precision),
                     shipped_catalogs());
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string r1 = refusal("nvidia/DeepSeek-R1-FP4", "h100-hgx", "");
  EXPECT_THAT(r1, HasSubstr("models: [deepseek-ai/DeepSeek-R1], as it is published\n"));
  EXPECT_THAT(r1,
              HasSubstr("hypothetical, no checkpoint of deepseek-r1 with all its weights so is known here"));
  EXPECT_THAT(refusal("deepseek-ai/DeepSeek-R1", "h100-hgx", ""), IsEmpty()) << "what is offered starts";
  const std::string llama = refusal("llama-3.1-70b", "h100-hgx", "precision: {weights: fp4, kv: bf16}\n");
  EXPECT_THAT(llama,
              HasSubstr("models: [nvidia/Llama-3.1-70B-Instruct-FP8], as it is published, and no types"));
  EXPECT_THAT(llama, HasSubstr(" on the command line, as nvidia/Llama-3.1-70B-Instruct-FP8 is stored"));
}

TEST(Checkpoints, P20CachesThatFilesName) {
  Case c = by_default("llama-3.1-70b");
  EXPECT_FALSE(checkpoint_cache(c));
  c.precision = all_bf16();
  c.precision.weights = Dtype::fp8;
  EXPECT_EQ(checkpoint_cache(c), Dtype::fp8);
  c.model.name = "mine";
  EXPECT_FALSE(checkpoint_cache(c));
}

// Of DeepSeek-V4 no engine starts with the cache that others have where nobody says a type; its own files,
// converted ones and the user's alike. What the scenario says stays.
TEST(Checkpoints, P20CachesOfDeepSeekV4AreInFp8) {
  for (const char* name : {"deepseek-v4-flash", "deepseek-v4-pro", "deepseek-r1"}) {
    SCOPED_TRACE(name);
    const bool packed = name != std::string("deepseek-r1");
    Case c = by_default(name);
    // Before Blackwell experts in MXFP4 are computed in 16 bits.
    scenario_parts::PrecisionKeys asked;
    if (packed) asked.expert_math = Dtype::bf16;
    c.precision = scenario_parts::precision_of(asked, c.model, c.system);
    EXPECT_EQ(c.precision.kv, packed ? Dtype::fp8 : Dtype::bf16);
    EXPECT_TRUE(c.precision.assumed.kv) << "and it is said";
    asked.kv = Dtype::bf16;
    EXPECT_EQ(scenario_parts::precision_of(asked, c.model, c.system).kv, Dtype::bf16);
    c.model.checkpoint->kv = Dtype::bf16;
    EXPECT_EQ(scenario_parts::precision_of({}, c.model, c.system).kv, Dtype::bf16) << "as files say";
    for (const char* engine : {"vllm", "sglang"}) {
      c.engine = testing::profile(engine);
      c.kv_block = own_block_of(engine, c);
      EXPECT_FALSE(does_not_start(c)) << does_not_start(c)->text;
      Case wide = c;
      wide.precision.kv = Dtype::bf16;
      EXPECT_EQ(does_not_start(wide).has_value(), packed);
      if (packed) {
        EXPECT_THAT(does_not_start(wide)->instead, HasSubstr("--set precision.kv=fp8"));
      }
    }
  }
}

// SGLang keeps the cache of sparse attention under MLA in FP8 on Blackwell where nobody says a type.
TEST(Checkpoints, P20CachesOfSparseLatentsUnderSglang) {
  for (const char* name : {"deepseek-v3.2", "glm-5.2", "deepseek-r1", "minimax-m3"}) {
    const bool sparse = name == std::string("deepseek-v3.2") || name == std::string("glm-5.2");
    for (const char* device : {"h200-hgx", "b200-hgx", "gb200-nvl72"}) {
      SCOPED_TRACE(fmt::format("{} on {}", name, device));
      Case c = by_default(name);
      c.system = testing::system_named(device);
      const auto cache = [&](const char* engine, const scenario_parts::PrecisionKeys& asked) {
        const Precision p =
            scenario_parts::precision_of(asked, c.model, c.system, testing::profile(engine).get());
        EXPECT_EQ(p.assumed.kv, !asked.kv && !c.model.checkpoint->kv);
        return p.kv;
      };
      const bool hopper = device == std::string("h200-hgx");
      EXPECT_EQ(cache("sglang", {}), sparse && !hopper ? Dtype::fp8 : Dtype::bf16);
      EXPECT_EQ(cache("vllm", {}), Dtype::bf16);
      scenario_parts::PrecisionKeys asked;
      asked.kv = Dtype::bf16;
      EXPECT_EQ(cache("sglang", asked), Dtype::bf16);
      c.model.checkpoint->kv = Dtype::bf16;
      EXPECT_EQ(cache("sglang", {}), Dtype::bf16) << "as files say";
    }
  }
}

// "Hugging Face configuration config.json (model_type llama)" names no repository.
TEST(Checkpoints, P20FilesOfTheUsersAreOfNoRepository) {
  Case c = by_default("llama-3.1-8b");
  c.model.name = "mine";
  c.model.source = "Hugging Face configuration config.json (model_type llama)";
  EXPECT_THAT(checkpoint_of(c), IsEmpty());
  EXPECT_THAT(types_not_read(c), IsEmpty());
}

// Where a server is started, a name that begins with a dash is an option.
TEST(Checkpoints, P20ARepositoryBeginsWithNoDash) {
  Case c = by_default("llama-3.1-8b");
  c.model.name = "mine";
  for (const char* const repository : {"-o/x", "x/-o", ".x/y", "x/.y", "$(x)/y"}) {
    c.model.source = std::string("Hugging Face ") + repository + " config.json";
    EXPECT_THAT(checkpoint_of(c), IsEmpty()) << repository;
  }
  c.model.source = "Hugging Face x-1/y.2_z config.json";
  EXPECT_EQ(checkpoint_of(c), "x-1/y.2_z");
}

}  // namespace
}  // namespace shardline
