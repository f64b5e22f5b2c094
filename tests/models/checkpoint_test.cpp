// Types of a checkpoint's matrices, from the four ways in which published files describe them.
#include "models/model/checkpoint.hpp"

#include <gmock/gmock.h>

#include "models/model/hf_config.hpp"
#include "sim/base/error.hpp"

namespace shardline {
namespace {

Model dense() {
  Model m;
  set_layers(m, std::vector<Attention>(4), std::vector<FeedForward>(4, {.inner = 8}));
  return m;
}

Model experts() {
  Attention mla;
  mla.kind = AttentionKind::mla;
  std::vector<FeedForward> ffns(8, {.inner = 8, .experts = 16, .experts_per_token = 2, .shared_experts = 1});
  ffns[0] = {.inner = 8};
  Model m;
  set_layers(m, std::vector(8, mla), ffns);
  return m;
}

struct Read {
  std::optional<Checkpoint> checkpoint;
  std::vector<std::string> notes;
};

Read read(const Model& m, const std::string& text) {
  Read out;
  Document document = Document::parse("config.json", text);
  out.checkpoint = read_checkpoint(document.root(), m, out.notes);
  document.finish();
  return out;
}

constexpr Dtype kFp4 = Dtype::fp4, kFp8 = Dtype::fp8, kBf16 = Dtype::bf16, kBlock = Dtype::fp8_block;

TEST(Checkpoint, BlocksOfFp8AsDeepSeekWritesThem) {
  const Read r =
      read(experts(), R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]})");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBlock, kBlock, kBlock, kBlock, kBf16, kBf16, {}}));
  EXPECT_TRUE(r.notes.empty());
  EXPECT_EQ(read(experts(), R"({"quant_method": "fp8"})").checkpoint->experts, kFp8);
}

TEST(Checkpoint, ModelOptExcludesModulesByNameAndByStar) {
  const Read r = read(experts(), R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4",
      "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head", "model.layers.*.self_attn*",
      "model.layers.0.*"]}})");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBf16, kBf16, kFp4, kFp4, kBf16, kBf16, kFp8}));
  EXPECT_TRUE(r.notes.empty());
  const Read plain = read(dense(), R"({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": null}})");
  EXPECT_EQ(plain.checkpoint, (Checkpoint{kFp8, kFp8, kBf16, kBf16, kBf16, kBf16, {}}));
}

// DeepSeek-V3.1-NVFP4: four of five attention projections are left as they are.
TEST(Checkpoint, TheTypeOfMostMatricesIsTakenAndSaid) {
  std::string excluded = R"("lm_head")";
  for (int layer = 0; layer < 8; ++layer) {
    for (const char* name : {"kv_a_proj_with_mqa", "kv_b_proj", "q_a_proj", "q_b_proj"})
      excluded += ", \"model.layers." + std::to_string(layer) + ".self_attn." + name + "\"";
  }
  const Read r =
      read(experts(), R"({"quantization": {"quant_algo": "NVFP4", "exclude_modules": [)" + excluded + "]}}");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBf16, kFp4, kFp4, kFp4, kBf16, kBf16, {}}));
  EXPECT_THAT(r.notes, testing::ElementsAre(
                           "matrices of attention differ in type (8 fp4, 32 bf16): bf16 is taken for all"));
}

TEST(Checkpoint, MixedPrecisionListsItsLayers) {
  const Read r =
      read(dense(), R"({"quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "NVFP4",
      "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"},
                           "model.layers.1.mlp": {"quant_algo": "NVFP4"},
                           "model.layers.2.mlp": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
                           "model.layers.3.mlp": {"quant_algo": "FP8"}}}})");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBf16, kFp4, kBf16, kBf16, kBf16, kBf16, kFp4}));
  EXPECT_THAT(r.notes,
              testing::ElementsAre(testing::HasSubstr("dense layers differ in type (7 fp4, 3 fp8, 2 bf16)")));
}

TEST(Checkpoint, CompressedTensorsIgnoresByExpression) {
  const Read r = read(experts(), R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
      "targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
      "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|down)_proj.*"],
      "kv_cache_scheme": {"num_bits": 8, "type": "float"}})");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBf16, kBf16, kFp4, kBf16, kBf16, kBf16, kFp8}));
  EXPECT_TRUE(r.notes.empty());
  EXPECT_EQ(read(dense(), R"({"config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8,
      "type": "float", "strategy": "block"}}}})")
                .checkpoint,
            (Checkpoint{kBlock, kBlock, kBf16, kBf16, kBf16, kBlock, {}}));
}

// Linear layers stay as they are, whether the list names them or not: vLLM's Mxfp4Config.
TEST(Checkpoint, Mxfp4AsGptOssWritesIt) {
  const Read r = read(experts(), R"({"quant_method": "mxfp4", "modules_to_not_convert":
      ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]})");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBf16, kBf16, kFp4, kBf16, kBf16, kBf16, {}}));
}

// Qwen and Llama 4 have a shared_expert, DeepSeek has shared_experts.
TEST(Checkpoint, SharedExpertsHaveATypeOfTheirOwn) {
  for (const char* name :
       {"shared_experts", "shared_expert", "model.layers.*.mlp.shared_experts", "re:.*shared_expert.*",
        "language_model.model.layers.*.feed_forward.shared_expert"}) {
    const Read r =
        read(experts(), R"({"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", ")" +
                            std::string(name) + R"("]}})");
    EXPECT_EQ(r.checkpoint, (Checkpoint{kFp4, kFp4, kFp4, kBf16, kBf16, kBf16, {}})) << name;
    EXPECT_TRUE(r.notes.empty()) << name;
  }
}

TEST(Checkpoint, OtherMethodsAreSaidAndNotGuessed) {
  for (const char* text :
       {R"({"quant_method": "gptq", "bits": 4})", R"({"quant_algo": "W4A8_AWQ"})",
        R"({"config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int"}}}})"}) {
    const Read r = read(dense(), text);
    EXPECT_EQ(r.checkpoint, std::nullopt) << text;
    EXPECT_EQ(r.notes.size(), 1u) << text;
  }
}

TEST(Checkpoint, FaultsAreLocated) {
  EXPECT_THROW(
      read(dense(), R"({"quant_method": "compressed-tensors", "ignore": ["re:("], "config_groups": {}})"),
      UserError);
  EXPECT_THROW(read(dense(), "[]"), UserError);
}

TEST(Checkpoint, AConfigWithoutQuantisationIsBf16) {
  const std::string head = R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128, "max_position_embeddings": 256)";
  EXPECT_EQ(parse_hf_config("t.json", head + "}").checkpoint, Checkpoint{});
  EXPECT_EQ(
      parse_hf_config("t.json", head + R"(, "quantization_config": {"quant_method": "fp8"}})").checkpoint,
      (Checkpoint{kFp8, kFp8, kBf16, kBf16, kBf16, kBf16, {}}));
}

}  // namespace
}  // namespace shardline
