// Types of a checkpoint's matrices, from the ways in which published files describe them.
#include "models/model/checkpoint.hpp"

#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

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
  mla.q_lora_rank = 8;
  std::vector<FeedForward> ffns(8, {.inner = 8, .experts = 16, .experts_per_token = 2, .shared_experts = 1});
  ffns[0] = {.inner = 8};
  Model m;
  set_layers(m, std::vector(8, mla), ffns);
  return m;
}

struct Read {
  std::optional<Checkpoint> checkpoint;  // but for its method
  std::string method;
  std::vector<std::string> notes;
};

Read read(const Model& m, const std::string& text) {
  Read out;
  Document document = Document::parse("config.json", text);
  out.checkpoint = read_checkpoint(document.root(), m, out.notes);
  document.finish();
  if (out.checkpoint) out.method = std::exchange(out.checkpoint->method, "");
  return out;
}

constexpr Dtype kFp4 = Dtype::fp4, kFp8 = Dtype::fp8, kBf16 = Dtype::bf16, kBlock = Dtype::fp8_block,
                kDynamic = Dtype::fp8_dynamic;
constexpr MatrixType kFp4Weights{Dtype::fp4, Dtype::bf16};

TEST(Checkpoint, BlocksOfFp8AsDeepSeekWritesThem) {
  const Read r =
      read(experts(), R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]})");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBlock, kBlock, kBlock, kBlock, kBlock, kBf16, kBf16, {}}));
  EXPECT_TRUE(r.notes.empty());
}

TEST(Checkpoint, NamesTheToolThatWroteIt) {
  const auto method = [](const char* text) { return read(dense(), text).method; };
  EXPECT_EQ(method(R"({"quant_method": "awq", "bits": 4, "group_size": 128})"), "awq");
  EXPECT_EQ(method(R"({"quant_method": "gptq", "bits": 4, "group_size": 128})"), "gptq");
  EXPECT_EQ(method(R"({"quantization": {"quant_algo": "W4A16_AWQ"}})"), "modelopt");
  EXPECT_EQ(method(R"({"config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8,
      "type": "float"}}}})"),
            "compressed-tensors/tensor");
}

// vLLM quantization/fp8.py: without blocks there is a scale per tensor, found while serving unless the scheme
// says that the file has it. With blocks it is always found.
TEST(Checkpoint, Fp8IsStaticOnlyWhereItSaysSo) {
  const auto type = [](const std::string& rest) {
    return read(experts(), R"({"quant_method": "fp8")" + rest + "}").checkpoint->experts;
  };
  EXPECT_EQ(type(""), kDynamic);
  EXPECT_EQ(type(R"(, "activation_scheme": "dynamic")"), kDynamic);
  EXPECT_EQ(type(R"(, "activation_scheme": "static")"), kFp8);
  EXPECT_EQ(type(R"(, "activation_scheme": "dynamic", "weight_block_size": [128, 128])"), kBlock);
  const Read ignored = read(dense(), R"({"quant_method": "fp8", "activation_scheme": "static",
      "ignored_layers": ["model.layers.*.self_attn.q_proj", "re:.*k_proj", "v_proj", "o_proj"]})");
  EXPECT_EQ(ignored.checkpoint, (Checkpoint{kBf16, kBf16, kFp8, kBf16, kBf16, kBf16, kBf16, {}}));
  const Read odd = read(dense(), R"({"quant_method": "fp8", "activation_scheme": "sideways"})");
  EXPECT_EQ(odd.checkpoint, std::nullopt);
  EXPECT_THAT(odd.notes, testing::ElementsAre(testing::HasSubstr("activation_scheme sideways")));
}

TEST(Checkpoint, ModelOptExcludesModulesByNameAndByStar) {
  const Read r = read(experts(), R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4",
      "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head", "model.layers.*.self_attn*",
      "model.layers.0.*"]}})");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBf16, kBf16, kBf16, kFp4, kFp4, kBf16, kBf16, kFp8}));
  EXPECT_TRUE(r.notes.empty());
  const Read plain = read(dense(), R"({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": null}})");
  EXPECT_EQ(plain.checkpoint, (Checkpoint{kFp8, kFp8, kFp8, kBf16, kBf16, kBf16, kBf16, {}}));
}

// DeepSeek-V3.1-NVFP4: all attention projections but the output projection are left as they are.
TEST(Checkpoint, OutputProjectionsHaveATypeOfTheirOwn) {
  std::string excluded = R"("lm_head")";
  for (int layer = 0; layer < 8; ++layer) {
    for (const char* name : {"kv_a_proj_with_mqa", "kv_b_proj", "q_a_proj", "q_b_proj"})
      excluded += ", \"model.layers." + std::to_string(layer) + ".self_attn." + name + "\"";
  }
  const Read r =
      read(experts(), R"({"quantization": {"quant_algo": "NVFP4", "exclude_modules": [)" + excluded + "]}}");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBf16, kFp4, kFp4, kFp4, kFp4, kBf16, kBf16, {}}));
  EXPECT_TRUE(r.notes.empty());
  // A file may also leave the output projections alone as they are.
  std::string ignored;
  for (int layer = 0; layer < 4; ++layer)
    ignored +=
        std::string(layer ? ", " : "") + "\"model.layers." + std::to_string(layer) + ".self_attn.o_proj\"";
  EXPECT_EQ(read(dense(), R"({"quant_method": "fp8", "weight_block_size": [128, 128],
      "ignored_layers": [)" + ignored +
                              "]}")
                .checkpoint,
            (Checkpoint{kBlock, kBf16, kBlock, kBf16, kBf16, kBf16, kBf16, {}}));
}

TEST(Checkpoint, TheTypeOfMostMatricesIsTakenAndSaid) {
  const Read r = read(experts(), R"({"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head",
      "q_a_proj", "q_b_proj", "kv_b_proj", "model.layers.0.self_attn.o_proj"]}})");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBf16, kFp4, kFp4, kFp4, kFp4, kBf16, kBf16, {}}));
  EXPECT_THAT(r.notes,
              testing::ElementsAre(
                  "matrices of attention differ in type (8 fp4, 24 bf16): bf16 is taken for all",
                  "matrices of output projections differ in type (7 fp4, 1 bf16): fp4 is taken for all"));
}

TEST(Checkpoint, MixedPrecisionListsItsLayers) {
  const Read r =
      read(dense(), R"({"quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "NVFP4",
      "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"},
                           "model.layers.1.mlp": {"quant_algo": "NVFP4"},
                           "model.layers.2.mlp": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
                           "model.layers.3.mlp": {"quant_algo": "FP8"}}}})");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBf16, kBf16, kFp4, kBf16, kBf16, kBf16, kBf16, kFp4}));
  EXPECT_THAT(r.notes,
              testing::ElementsAre(testing::HasSubstr(
                  "dense layers differ in type (4 fp4, 3 fp4 in bf16, 3 fp8, 2 bf16): fp4 is taken")));
}

TEST(Checkpoint, CompressedTensorsIgnoresByExpression) {
  const Read r = read(experts(), R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
      "targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
      "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|down)_proj.*"],
      "kv_cache_scheme": {"num_bits": 8, "type": "float"}})");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBf16, kBf16, kBf16, kFp4Weights, kBf16, kBf16, kBf16, kFp8}));
  EXPECT_TRUE(r.notes.empty());
  EXPECT_EQ(read(dense(), R"({"config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8,
      "type": "float", "strategy": "block"}, "input_activations": {"num_bits": 8, "type": "float",
      "strategy": "group", "dynamic": true}}}})")
                .checkpoint,
            (Checkpoint{kBlock, kBlock, kBlock, kBf16, kBf16, kBf16, kBlock, {}}));
}

// Linear layers stay as they are, whether the list names them or not: vLLM's Mxfp4Config.
TEST(Checkpoint, Mxfp4AsGptOssWritesIt) {
  const Read r = read(experts(), R"({"quant_method": "mxfp4", "modules_to_not_convert":
      ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]})");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBf16, kBf16, kBf16, Dtype::mxfp4, kBf16, kBf16, kBf16, {}}));
}

// Qwen and Llama 4 have a shared_expert, DeepSeek has shared_experts.
TEST(Checkpoint, SharedExpertsHaveATypeOfTheirOwn) {
  for (const char* name :
       {"shared_experts", "shared_expert", "model.layers.*.mlp.shared_experts", "re:.*shared_expert.*",
        "language_model.model.layers.*.feed_forward.shared_expert"}) {
    const Read r =
        read(experts(), R"({"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", ")" +
                            std::string(name) + R"("]}})");
    EXPECT_EQ(r.checkpoint, (Checkpoint{kFp4, kFp4, kFp4, kFp4, kBf16, kBf16, kBf16, {}})) << name;
    EXPECT_TRUE(r.notes.empty()) << name;
  }
}

// What a group of compressed-tensors is: the schemes of compressed_tensors/quantization/quant_scheme.py.
TEST(Checkpoint, GroupsTellStaticFromDynamicAndWeightsAlone) {
  struct Row {
    const char *weights, *inputs;
    MatrixType type;
  };
  for (const Row& row : std::vector<Row>{
           // FP8, FP8_DYNAMIC, FP8_BLOCK, and weights of FP8 alone
           {R"("num_bits": 8, "type": "float", "strategy": "tensor")",
            R"({"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false})", kFp8},
           {R"("num_bits": 8, "type": "float", "strategy": "channel")",
            R"({"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true})", kDynamic},
           {R"("num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128])",
            R"({"num_bits": 8, "type": "float", "strategy": "group", "dynamic": true})", kBlock},
           {R"("num_bits": 8, "type": "float", "strategy": "channel")", "null", {kFp8, kBf16}},
           // NVFP4 ("local": the scales of groups are found while serving), NVFP4A16, MXFP4A16
           {R"("num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16)",
            R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "dynamic": "local"})", kFp4},
           {R"("num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16)", "null",
            kFp4Weights},
           {R"("num_bits": 4, "type": "float", "group_size": 32, "scale_dtype": "torch.uint8")", "null",
            Dtype::mxfp4},
           // W4A16, of Kimi-K2.5 in groups of 32, and W4AFP8
           {R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 128)", "null", Dtype::int4},
           {R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 32)", "null",
            Dtype::int4_group32},
           {R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 128)",
            R"({"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true})",
            {Dtype::int4, kFp8}},
       }) {
    const Read r =
        read(dense(), std::string(R"({"quant_method": "compressed-tensors", "config_groups": {"a": {
        "targets": ["Linear"], "weights": {)") +
                          row.weights + R"(}, "input_activations": )" + row.inputs +
                          R"(}}, "ignore": ["lm_head"]})");
    ASSERT_TRUE(r.checkpoint) << row.weights << row.inputs << (r.notes.empty() ? "" : r.notes[0]);
    EXPECT_EQ(r.checkpoint->attention, row.type) << row.weights << row.inputs;
    EXPECT_EQ(r.checkpoint->dense_ffn, row.type) << row.weights << row.inputs;
    EXPECT_EQ(r.checkpoint->head, kBf16);
    EXPECT_TRUE(r.notes.empty()) << r.notes[0];
  }
}

TEST(Checkpoint, ModelOptsAlgorithmsAreToldApart) {
  struct Row {
    const char* algorithm;
    MatrixType type;
  };
  for (const Row& row : std::vector<Row>{{"FP8", kFp8},
                                         {"FP8_PER_CHANNEL_PER_TOKEN", kDynamic},
                                         {"fp8_pb_wo", kBlock},
                                         {"NVFP4", kFp4},
                                         {"W4A16_NVFP4", kFp4Weights},
                                         {"W4A8_NVFP4_FP8", {kFp4, kFp8}},
                                         {"W4A8_MXFP4_MXFP8", {Dtype::mxfp4, kFp8}},
                                         {"W4A16_MXFP4", Dtype::mxfp4},
                                         {"W4A16_AWQ", Dtype::int4}}) {
    const Read r =
        read(dense(), std::string(R"({"quantization": {"quant_algo": ")") + row.algorithm + "\"}}");
    ASSERT_TRUE(r.checkpoint) << row.algorithm;
    EXPECT_EQ(r.checkpoint->attention, row.type) << row.algorithm;
  }
}

// Experts of NVFP4 over DeepSeek-V4's blocks of FP8: all else is as it was.
TEST(Checkpoint, ExpertsAloneOverBlocks) {
  std::string listed;
  for (int layer = 1; layer < 8; ++layer)
    listed += std::string(listed.empty() ? "" : ", ") + "\"layers." + std::to_string(layer) +
              ".ffn.experts\": {\"quant_algo\": \"NVFP4\", \"group_size\": 16}";
  const Read r = read(experts(), R"({"quant_method": "fp8", "activation_scheme": "dynamic",
      "weight_block_size": [128, 128], "quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4",
      "ignore": ["*.attn.*", "*.ffn.shared_experts.*", "head"], "quantized_layers": {)" +
                                     listed + "}}");
  EXPECT_EQ(r.checkpoint, (Checkpoint{kBlock, kBlock, kBlock, kFp4, kBlock, kBf16, kBf16, {}}));
}

// Integers of 4 bits under BF16 arithmetic; the head only where GPTQ says so.
TEST(Checkpoint, GptqAndAwqAreWeightsAlone) {
  const MatrixType int4 = Dtype::int4;
  EXPECT_EQ(int4.math, kBf16);
  EXPECT_EQ(read(dense(), R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false})")
                .checkpoint,
            (Checkpoint{int4, int4, int4, kBf16, kBf16, kBf16, kBf16, {}}));
  EXPECT_EQ(
      read(dense(), R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": true})").checkpoint,
      (Checkpoint{int4, int4, int4, kBf16, kBf16, kBf16, int4, {}}));
  EXPECT_EQ(read(dense(), R"({"quant_method": "awq", "w_bit": 4, "q_group_size": 32,
                              "modules_to_not_convert": ["self_attn"]})")
                .checkpoint,
            (Checkpoint{kBf16, kBf16, Dtype::int4_group32, kBf16, kBf16, kBf16, kBf16, {}}));
  const Read odd = read(dense(), R"({"quant_method": "gptq", "bits": 4, "group_size": 64})");
  EXPECT_EQ(odd.checkpoint->attention, int4);
  EXPECT_THAT(odd.notes, testing::ElementsAre(testing::HasSubstr("scale per 64 elements")));
}

// vLLM and SGLang have kernels for symmetric ones, sym: true.
TEST(Checkpoint, ZeroPointsOfGptqAreRead) {
  const auto has = [](const std::string& rest) {
    return read(dense(), R"({"quant_method": "gptq", "bits": 4, "group_size": 128)" + rest + "}")
        .checkpoint->zero_points;
  };
  EXPECT_FALSE(has(""));
  EXPECT_FALSE(has(R"(, "sym": true)"));
  EXPECT_TRUE(has(R"(, "sym": false)"));
  EXPECT_FALSE(
      read(dense(), R"({"quant_method": "awq", "bits": 4, "zero_point": true})").checkpoint->zero_points);
  EXPECT_THAT(read(dense(), R"({"quant_method": "gptq", "bits": 8, "sym": false})").notes,
              testing::ElementsAre(testing::HasSubstr("the method gptq with 8 bits and zero points")));
}

TEST(Checkpoint, OtherMethodsAreSaidByNameAndNotGuessed) {
  struct Row {
    const char *text, *named;
  };
  for (const Row& row : std::vector<Row>{
           {R"({"quant_method": "quark"})", "the method quark"},
           {R"({"quant_method": "quark", "config_groups": {}})", "the method quark"},
           {R"({"quant_method": "bitsandbytes", "load_in_4bit": true})", "the method bitsandbytes"},
           {R"({"quant_method": "gptq", "bits": 8})", "the method gptq with 8 bits"},
           {R"({"quant_algo": "MXFP8", "quant_method": "modelopt"})", "the algorithm MXFP8"},
           {R"({"quant_algo": "W8A8_SQ_PER_CHANNEL"})", "the algorithm W8A8_SQ_PER_CHANNEL"},
           {R"({"config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int"}}}})",
            "weights of int8"},
           {R"({"config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int"},
                "input_activations": {"num_bits": 8, "type": "int"}}}})",
            "activations of int8"}}) {
    const Read r = read(dense(), row.text);
    EXPECT_EQ(r.checkpoint, std::nullopt) << row.text;
    EXPECT_THAT(r.notes,
                testing::ElementsAre(testing::HasSubstr(std::string("not read (") + row.named + ")")))
        << row.text;
  }
  const Read cache =
      read(dense(), R"({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "INT8"}})");
  EXPECT_EQ(cache.checkpoint->kv, std::nullopt);
  EXPECT_THAT(cache.notes, testing::ElementsAre(testing::HasSubstr("a KV cache of INT8 is not read")));
}

// Every configuration below a folder: its quantisation is read, or refused by a name. Model and quantisation
// are apart, so families that are not modelled are tried too.
TEST(Checkpoint, PublishedConfigurationsAreReadOrRefusedByName) {
  const char* folder = std::getenv("SHARDLINE_CONFIGS");
  if (folder == nullptr) GTEST_SKIP() << "SHARDLINE_CONFIGS names no folder of configurations";
  int read_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "config.json" && name != "hf_quant_config.json") continue;
    SCOPED_TRACE(entry.path().string());
    const Document document = Document::load(entry.path());
    const Reader root = document.root();
    root.allow_other_keys();
    auto at = root.find(name == "config.json" ? "quantization_config" : "quantization");
    if (!at) {
      const auto text = root.find("text_config");
      if (text && text->is_map()) at = text->find("quantization_config");
    }
    if (!at || at->is_null()) continue;
    at->allow_other_keys();
    std::vector<std::string> notes;
    const auto checkpoint = read_checkpoint(*at, experts(), notes);
    if (checkpoint) {
      ++read_files;
      std::string types;
      for (const MatrixType& t : {checkpoint->attention, checkpoint->out_proj, checkpoint->dense_ffn,
                                  checkpoint->experts, checkpoint->shared, checkpoint->head})
        types += std::string(to_string(t.weights)) + "/" + std::string(to_string(t.math)) + " ";
      types += "kv " + (checkpoint->kv ? std::string(to_string(*checkpoint->kv)) : "-");
      std::printf("%-45s %-22s %s\n", entry.path().parent_path().filename().c_str(), name.c_str(),
                  types.c_str());
    } else {
      EXPECT_THAT(notes.back(), testing::HasSubstr("is not read ("));
      std::printf("%-45s %-22s %s\n", entry.path().parent_path().filename().c_str(), name.c_str(),
                  notes.back().c_str());
    }
  }
  EXPECT_GT(read_files, 0);
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
      (Checkpoint{kDynamic, kDynamic, kDynamic, kBf16, kBf16, kBf16, kBf16, {}, "fp8"}));
}

}  // namespace
}  // namespace shardline
