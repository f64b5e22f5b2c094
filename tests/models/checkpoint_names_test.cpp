// What files of quantisation call matrices, family by family, and lists that match none.
#include "models/model/checkpoint_names.hpp"

#include <gmock/gmock.h>

#include "models/model/checkpoint.hpp"
#include "models/model/checkpoint_patterns.hpp"
#include "models/model/hf_config.hpp"
#include "models/model/model.hpp"
#include "sim/base/error.hpp"

namespace shardline {
namespace {

constexpr Dtype kNarrow = Dtype::fp4, kEight = Dtype::fp8, kWide = Dtype::bf16;

struct Named {
  std::optional<Checkpoint> checkpoint;
  std::vector<std::string> notes;
};

Named named(const Model& m, const std::string& text) {
  Named out;
  Document document = Document::parse("config.json", text);
  out.checkpoint = read_checkpoint(document.root(), m, out.notes);
  document.finish();
  return out;
}

Model gqa_model(const char* architecture, int layers) {
  Model m;
  m.architecture = architecture;
  set_layers(m, std::vector<Attention>(static_cast<std::size_t>(layers)),
             std::vector<FeedForward>(static_cast<std::size_t>(layers), {.inner = 8}));
  return m;
}

Model expert_model(const char* architecture, int layers, int shared) {
  Model m;
  m.architecture = architecture;
  set_layers(m, std::vector<Attention>(static_cast<std::size_t>(layers)),
             std::vector<FeedForward>(
                 static_cast<std::size_t>(layers),
                 {.inner = 8, .experts = 16, .experts_per_token = 2, .shared_experts = shared}));
  return m;
}

// M E M E * E: one module per layer, numbered as in the file.
Model nemotron() {
  Attention mamba, none;
  mamba.kind = AttentionKind::mamba;
  mamba.mamba = Mamba{.heads = 2, .head_dim = 4, .state = 8, .groups = 1, .conv = 4};
  none.kind = AttentionKind::none;
  FeedForward absent, network{.inner = 8, .experts = 16, .experts_per_token = 2, .shared_experts = 1};
  absent.absent = true;
  network.latent = 4;
  Model m;
  m.architecture = "NemotronHForCausalLM";
  m.ffn_kind = FfnKind::plain;
  set_layers(m, std::vector{mamba, none, mamba, none, Attention{}, none},
             std::vector{absent, network, absent, network, absent, network});
  return m;
}

TEST(CheckpointNames, NemotronsMixersAreByLayerAndKind) {
  std::string listed;
  for (const int layer : {1, 3, 5}) {
    for (const char* name : {"experts.0.up_proj", "experts.0.down_proj", "experts.15.up_proj"})
      listed += "\"backbone.layers." + std::to_string(layer) + ".mixer." + name +
                "\": {\"quant_algo\": \"NVFP4\"}, ";
  }
  for (const int layer : {0, 2})
    listed += "\"backbone.layers." + std::to_string(layer) + ".mixer.in_proj\": {\"quant_algo\": \"FP8\"}, ";
  const Named r = named(nemotron(), R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
      "ignore": ["lm_head"], "quantized_layers": {)" +
                                        listed +
                                        R"("backbone.layers.5.mixer.experts.7.down_proj":
      {"quant_algo": "NVFP4"}}})");
  ASSERT_TRUE(r.checkpoint);
  EXPECT_EQ(r.checkpoint->experts, kNarrow);
  EXPECT_EQ(r.checkpoint->shared, kWide);
  EXPECT_EQ(r.checkpoint->out_proj, kWide);
  // Two projections of Mamba against three of attention.
  EXPECT_EQ(r.checkpoint->attention, kWide);
  EXPECT_THAT(r.notes, testing::ElementsAre(testing::HasSubstr("attention differ in type (2 fp8, 3 bf16)")));

  const auto out = [&](const char* excluded) {
    return named(nemotron(), std::string(R"({"quant_method": "modelopt", "quant_algo": "NVFP4",
      "ignore": ["lm_head", ")") +
                                 excluded + "\"]}");
  };
  EXPECT_EQ(out("*shared_experts*").checkpoint->shared, kWide);
  EXPECT_EQ(out("backbone.layers.*.mixer.out_proj").checkpoint->out_proj, kWide);
  EXPECT_EQ(out("backbone.layers.4*").checkpoint->attention, kWide);  // 3 against 2
  EXPECT_THAT(out("*fc1_latent_proj*").notes,
              testing::ElementsAre(testing::HasSubstr("experts' latents are stored in bf16")));
  EXPECT_THAT(out("backbone.layers.*.self_attn*").notes,
              testing::ElementsAre(testing::HasSubstr(
                  "1 of 2 entries that say what is left out match no matrix that is known here of "
                  "NemotronHForCausalLM: backbone.layers.*.self_attn*; they leave nothing out")));
}

TEST(CheckpointNames, EachFamilyHasItsOwn) {
  struct Row {
    Model model;
    const char* excluded;
    Checkpoint without;  // what the exclusion leaves in BF16, of FP8
  };
  const Checkpoint dense_only{kEight, kEight, kEight, kWide, kWide, kWide, kWide, {}};
  const Checkpoint with_experts{kEight, kEight, kWide, kEight, kWide, kWide, kWide, {}};
  const auto but = [](Checkpoint c, MatrixType Checkpoint::*member) {
    c.*member = kWide;
    return c;
  };
  for (const Row& row : std::vector<Row>{
           {expert_model("MixtralForCausalLM", 2, 0), "model.layers.*.block_sparse_moe.experts*",
            but(with_experts, &Checkpoint::experts)},
           {expert_model("MiniMaxM2ForCausalLM", 2, 0), "re:.*block_sparse_moe.experts.\\\\d+.w[123]$",
            but(with_experts, &Checkpoint::experts)},
           {gqa_model("Phi3ForCausalLM", 2), "*self_attn.qkv_proj", but(dense_only, &Checkpoint::attention)},
           {gqa_model("Phi3ForCausalLM", 2), "*.mlp", but(dense_only, &Checkpoint::dense_ffn)},
           {gqa_model("FalconForCausalLM", 2), "transformer.h.*.self_attention.query_key_value",
            but(dense_only, &Checkpoint::attention)},
           {gqa_model("FalconForCausalLM", 2), "*.self_attention.dense",
            but(dense_only, &Checkpoint::out_proj)},
           {expert_model("Llama4ForConditionalGeneration", 2, 0), "*feed_forward.experts*",
            but(with_experts, &Checkpoint::experts)},
           // What engines fuse, of a model whose matrices are apart.
           {gqa_model("LlamaForCausalLM", 2), "*qkv_proj*", but(dense_only, &Checkpoint::attention)}}) {
    const Named r = named(row.model, std::string(R"({"quant_method": "modelopt", "quant_algo": "FP8",
        "ignore": ["lm_head", ")") + row.excluded +
                                         "\"]}");
    ASSERT_TRUE(r.checkpoint) << row.excluded;
    Checkpoint found = *r.checkpoint;
    found.method.clear();
    EXPECT_EQ(found, row.without) << row.model.architecture << " " << row.excluded;
    EXPECT_TRUE(r.notes.empty()) << row.excluded << ": " << r.notes[0];
  }
}

TEST(CheckpointNames, ExclusionsGoBeforeTargets) {
  const Named r = named(gqa_model("LlamaForCausalLM", 2), R"({"quant_method": "compressed-tensors",
      "config_groups": {"a": {"targets": ["re:.*(self_attn|mlp)\\..*_proj$"],
      "weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8, "type": "float"}}},
      "ignore": ["lm_head", "re:.*self_attn.*"]})");
  EXPECT_EQ(r.checkpoint->attention, kWide);
  EXPECT_EQ(r.checkpoint->out_proj, kWide);
  EXPECT_EQ(r.checkpoint->dense_ffn, kEight);
}

TEST(CheckpointNames, GptqsRulesByLayer) {
  const auto gptq = [](const std::string& rest) {
    return named(gqa_model("LlamaForCausalLM", 2),
                 R"({"quant_method": "gptq", "bits": 4, "group_size": 128, )" + rest + "}");
  };
  const Named without = gptq(R"("dynamic": {"-:.*self_attn.*": {}, "-:.*down_proj.*": {}})");
  EXPECT_EQ(without.checkpoint->attention, kWide);
  EXPECT_EQ(without.checkpoint->dense_ffn, MatrixType(Dtype::int4));
  const Named group = gptq(R"("dynamic": {"+:.*mlp.*": {"group_size": 32}})");
  EXPECT_EQ(group.checkpoint->dense_ffn, MatrixType(Dtype::int4_group32));
  EXPECT_EQ(group.checkpoint->attention, MatrixType(Dtype::int4));
  // The first rule that matches is the one.
  EXPECT_EQ(
      gptq(R"("dynamic": {"+:.*q_proj": {}, "+:.*k_proj": {}, "+:.*v_proj": {}, "-:.*self_attn.*": {}})")
          .checkpoint->attention,
      MatrixType(Dtype::int4));
  const Named eight = gptq(R"("dynamic": {"+:.*self_attn.*": {"bits": 8}})");
  EXPECT_EQ(eight.checkpoint, std::nullopt);
  EXPECT_THAT(eight.notes[0], testing::HasSubstr("gptq with 8 bits of +:.*self_attn.*"));
  const Named blocks = gptq(R"("modules_in_block_to_quantize": [["mlp.gate_proj", "mlp.up_proj"],
      ["mlp.down_proj"]])");
  EXPECT_EQ(blocks.checkpoint->attention, kWide);
  EXPECT_EQ(blocks.checkpoint->dense_ffn, MatrixType(Dtype::int4));
}

TEST(CheckpointNames, AwqListsPartsOfNames) {
  const Named r = named(gqa_model("LlamaForCausalLM", 2), R"({"quant_method": "awq", "bits": 4,
      "modules_to_not_convert": ["self_attn.q", "attn.k_p", "v_proj"]})");
  EXPECT_EQ(r.checkpoint->attention, kWide);
  EXPECT_EQ(r.checkpoint->out_proj, MatrixType(Dtype::int4));
  EXPECT_TRUE(r.notes.empty());
}

TEST(CheckpointNames, PatternsAreFnmatchs) {
  using checkpoint::glob;
  EXPECT_TRUE(glob("model.layers.?.mlp", "model.layers.3.mlp"));
  EXPECT_FALSE(glob("model.layers.?.mlp", "model.layers.13.mlp"));
  EXPECT_TRUE(glob("model.layers.[1-7]?.*", "model.layers.13.mlp"));
  EXPECT_FALSE(glob("model.layers.[1-7]?.*", "model.layers.83.mlp"));
  EXPECT_TRUE(glob("*.[!0]", "a.1"));
  EXPECT_FALSE(glob("*.[!0]", "a.0"));
  EXPECT_TRUE(glob("a[", "a["));  // no set: it stands for itself
  EXPECT_TRUE(glob("*[02].x*", "layers.12.xy"));
  EXPECT_FALSE(glob("a?", "a"));
}

TEST(CheckpointNames, ExpressionsOfPythonAloneAreRefusedByName) {
  const auto with = [](const char* expression) {
    return named(gqa_model("LlamaForCausalLM", 2), std::string(R"({"quant_method": "compressed-tensors",
      "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}},
      "ignore": ["lm_head", ")") + expression + "\"]}");
  };
  const Named behind = with("re:.*(?<!foo)self_attn.*");
  EXPECT_EQ(behind.checkpoint, std::nullopt);
  EXPECT_THAT(behind.notes, testing::ElementsAre(testing::HasSubstr("whose (?< is Python's alone")));
  EXPECT_EQ(with("re:(?i).*SELF_ATTN.*").checkpoint->attention, kWide);
}

TEST(CheckpointNames, HeadsOfMixedListsAndGroupsOfInt4) {
  const Named head = named(gqa_model("LlamaForCausalLM", 1), R"({"quant_algo": "MIXED_PRECISION",
      "quantized_layers": {"lm_head": {"quant_algo": "FP8"}, "model.layers.0.mlp": {"quant_algo": "FP8"}}})");
  EXPECT_EQ(head.checkpoint->head, kEight);
  EXPECT_TRUE(head.notes.empty());
  EXPECT_EQ(named(gqa_model("LlamaForCausalLM", 1), R"({"quant_algo": "W4A16_AWQ", "group_size": 32})")
                .checkpoint->dense_ffn,
            MatrixType(Dtype::int4_group32));
}

TEST(CheckpointNames, DraftsAndIndicesHaveTypesOfTheirOwn) {
  Attention mla;
  mla.kind = AttentionKind::mla;
  mla.q_lora_rank = 8;
  mla.index = SparseIndex{.heads = 2, .dim = 4, .top_k = 8};
  const FeedForward network{.inner = 8, .experts = 16, .experts_per_token = 2};
  Model m;
  m.architecture = "DeepseekV32ForCausalLM";
  set_layers(m, std::vector(3, mla), std::vector(3, network));
  m.drafts = DraftModules{1, mla, network};
  const auto without = [&](const char* excluded) {
    return named(m, std::string(R"({"quant_algo": "FP8", "ignore": ["lm_head", ")") + excluded + "\"]}");
  };
  const Named all = without("nothing");
  EXPECT_EQ(all.checkpoint->index, std::nullopt);
  EXPECT_EQ(all.checkpoint->drafts, std::nullopt);
  const Named index = without("*indexer*");
  EXPECT_EQ(index.checkpoint->index, kWide);
  EXPECT_EQ(index.checkpoint->attention, kEight);
  EXPECT_EQ(index.checkpoint->drafts, std::nullopt);
  EXPECT_TRUE(index.notes.empty());
  const Named drafts = without("model.layers.3*");
  EXPECT_EQ(drafts.checkpoint->drafts, (DraftMatrices{kWide, kWide, kWide, kWide, kWide}));
  EXPECT_EQ(drafts.checkpoint->experts, kEight);
  EXPECT_EQ(drafts.checkpoint->index, std::nullopt);
  EXPECT_TRUE(drafts.notes.empty());
  EXPECT_EQ(without("model.layers.3.mlp.*").checkpoint->drafts,
            (DraftMatrices{kEight, kEight, kWide, kWide, kWide}));
  // One layer of three: most of the model's matrices are as they were, and it is said that one is not.
  EXPECT_THAT(without("model.layers.2.self_attn.indexer*").notes,
              testing::ElementsAre(testing::HasSubstr("matrices of the sparse attention's index differ")));
  EXPECT_THAT(without("model.layers.4*").notes, testing::ElementsAre(testing::HasSubstr("match no matrix")));
}

TEST(CheckpointNames, ModulesWithoutATypeAreNoSurprise) {
  for (const char* name : {"model.layers.77.self_attn.indexer.k_norm.bias", "model.layers.3.mlp.gate", "gate",
                           "e_score_correction_bias", "model.embed_tokens", "*vision_tower*", "re:.*router"})
    EXPECT_TRUE(checkpoint::without_type(name)) << name;
  for (const char* name : {"model.layers.3.mlp.gate_proj", "*self_attn*", "lm_head", "*gate_up_proj"})
    EXPECT_FALSE(checkpoint::without_type(name)) << name;
  EXPECT_EQ(checkpoint::of_first_expert("mlp.experts.17.up_proj"), "mlp.experts.0.up_proj");
  EXPECT_EQ(checkpoint::of_first_expert("mlp.shared_experts.up_proj"), "mlp.shared_experts.up_proj");
}

TEST(CheckpointNames, UnreadAndOlderKeys) {
  const std::string head =
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128,
    "max_position_embeddings": 256)";
  const Model unread =
      parse_hf_config("t.json", head + R"(, "quantization_config": {"quant_method": "bitsandbytes"}})");
  EXPECT_THAT(unread_types(unread), testing::StartsWith("types of t not read: the method bitsandbytes at "
                                                        "t.json:3:"));
  EXPECT_TRUE(unread.notes.empty());
  const Model older = parse_hf_config("t.json", head + R"(, "compression_config": {"quant_method": "fp8"}})");
  EXPECT_EQ(older.checkpoint->attention, MatrixType(Dtype::fp8_dynamic));
  EXPECT_EQ(unread_types(older), "");
  EXPECT_TRUE(older.notes.empty());
}

}  // namespace
}  // namespace shardline
