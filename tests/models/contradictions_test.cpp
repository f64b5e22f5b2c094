// Where a config.json says the same of its layers twice: both agree, or the file is refused; where it says it
// elsewhere than others do, what is read is what the model's own classes read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "models/model/hf_config.hpp"
#include "sim/base/error.hpp"
#include "tests/models/files.hpp"

namespace shardline {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

/// A published configuration with `more` keys in front of its own.
Model with(const std::string& name, const std::string& more) {
  std::string text = testing::read_file(testing::hf_dir() / (name + ".json"));
  return parse_hf_config(name + ".json", text.insert(text.find('{') + 1, more));
}

void expect_as_published(const std::string& name, const std::string& more) {
  SCOPED_TRACE(name);
  Model ours = with(name, more), theirs = load_hf_config(testing::hf_dir() / (name + ".json"));
  for (Model* m : {&ours, &theirs}) m->source.clear();
  EXPECT_EQ(ours, theirs);
}

std::string listed(int layers, const std::function<std::string(int)>& of) {
  std::string out;
  for (int i = 0; i < layers; ++i) out += (i > 0 ? ", " : "") + of(i);
  return "[" + out + "]";
}

TEST(Contradictions, WhatAgreesChangesNothing) {
  expect_as_published("mimo-v2-flash",
                      R"("first_k_dense_replace": 1, "layer_types": )" + listed(48, [](int i) {
                        const bool full = i == 0 || i % 6 == 5;
                        return full ? R"("full_attention")" : R"("sliding_attention")";
                      }) + ",");
  expect_as_published("deepseek-v4-flash", R"("compress_rates": {"compressed_sparse_attention": 4},)");
}

TEST(Contradictions, WidthsOfHeadsAreTheSumOfTheirParts) {
  expect_as_published("glm-5.2", R"("qk_head_dim": 256,)");
  EXPECT_THROW(with("glm-5.2", R"("qk_head_dim": 17,)"), UserError);
}

TEST(Contradictions, NemotronsBlocksAgreeUnderAllTheirNames) {
  const std::string sizes =
      R"({"model_type": "nemotron_h", "hidden_size": 64, "max_position_embeddings": 256, "vocab_size": 100,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128,
      "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, )";
  const auto read = [&](const std::string& layers) {
    Model m = parse_hf_config("t.json", sizes + layers + "}");
    m.source.clear();
    return m;
  };
  const Model pattern = read(R"("hybrid_override_pattern": "M-M*")");
  const std::string old_names = R"("layers_block_type": ["mamba", "mlp", "mamba", "attention"])";
  const std::string new_names =
      R"("layers_block_type": ["linear_attention", "mlp", "linear_attention", "full_attention"])";
  for (const std::string& names : {old_names, new_names}) {
    EXPECT_EQ(read(names), pattern);
    EXPECT_EQ(read(names + R"(, "hybrid_override_pattern": "M-M*")"), pattern);
    EXPECT_THROW(read(names + R"(, "hybrid_override_pattern": "M-MM")"), UserError);
    EXPECT_THROW(read(names + R"(, "hybrid_override_pattern": "M-M*M")"), UserError);
  }
}

// Only what is said twice can contradict itself: Llama 4's step has a default, which moe_layers overrides.
TEST(Contradictions, OfADefaultThereAreNone) {
  const std::string sizes =
      R"({"model_type": "llama4_text", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "intermediate_size": 128,
      "max_position_embeddings": 256, "num_local_experts": 8, "num_experts_per_tok": 1, )";
  EXPECT_NO_THROW(parse_hf_config("t.json", sizes + R"("moe_layers": [1, 3]})"));
  EXPECT_NO_THROW(
      parse_hf_config("t.json", sizes + R"("moe_layers": [1, 3], "interleave_moe_layer_step": 2})"));
  EXPECT_THROW(parse_hf_config("t.json", sizes + R"("moe_layers": [0, 3], "interleave_moe_layer_step": 2})"),
               UserError);
}

// Keys inside of a value are noted like those of the file.
TEST(Contradictions, UnknownKeysOfInnerMappingsAreNoted) {
  const auto noted = [](const std::string& name, const std::string& at, const std::string& key) {
    std::string text = testing::read_file(testing::hf_dir() / (name + ".json"));
    const std::size_t inside = text.find('{', text.find(at));
    return parse_hf_config("t.json", text.insert(inside + 1, "\"" + key + "\": 3,")).notes;
  };
  EXPECT_THAT(noted("kimi-k3", "linear_attn_config", "num_head"),
              Contains("config.json keys not understood: text_config.linear_attn_config.num_head"));
  EXPECT_THAT(noted("minimax-m3", "sparse_attention_config", "sparse_topk_block"),
              Contains("config.json keys not understood: sparse_attention_config.sparse_topk_block"));
  for (const char* name : {"kimi-k3", "minimax-m3"})
    EXPECT_THAT(load_hf_config(testing::hf_dir() / (std::string(name) + ".json")).notes,
                Each(Not(HasSubstr("not understood"))));
}

// moonshotai/Kimi-Linear-48B-A3B-Instruct, config.json: the context is model_max_length. Published: 48B, 3B
// of them active, of the weights 49.1B (transformers counts embedding and head).
TEST(Contradictions, KimiLinearsContextIsItsModelMaxLength) {
  const std::string text =
      R"({"architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "hidden_size": 2304,
      "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 72,
      "vocab_size": 163840, "intermediate_size": 9216, "model_max_length": 1048576, "kv_lora_rank": 512,
      "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "mla_use_nope": true, "linear_attn_config": {"kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17,
      18, 19, 21, 22, 23, 25, 26], "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "num_heads": 32,
      "head_dim": 128, "short_conv_kernel_size": 4}, "num_experts": 256, "num_experts_per_token": 8,
      "num_shared_experts": 1, "moe_intermediate_size": 1024, "first_k_dense_replace": 1, "moe_layer_freq": 1,
      "moe_router_activation_func": "sigmoid", "num_nextn_predict_layers": 0)";
  const Model m = parse_hf_config("t.json", text + "}");
  EXPECT_EQ(m.max_context, 1048576);
  EXPECT_NEAR(parameter_count(m) / 1e9, 49.12, 0.005);
  EXPECT_EQ(m.layers(), 27);
  EXPECT_EQ(parse_hf_config("t.json", text + R"(, "max_position_embeddings": 1048576})").max_context,
            1048576);
  EXPECT_THROW(parse_hf_config("t.json", text + R"(, "max_position_embeddings": 131072})"), UserError);
}

// Blocks that draft of Step-3.5 and 3.7: layers 45 to 47 are in no list of experts, and slide.
TEST(Contradictions, StepsDraftsAreDenseAndSlide) {
  const std::string sizes =
      R"({"model_type": "step3p5", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
      "num_attention_groups": 2, "head_dim": 16, "vocab_size": 100, "intermediate_size": 128,
      "max_position_embeddings": 256, "sliding_window": 32, "moe_num_experts": 8, "moe_top_k": 2,
      "moe_intermediate_size": 32, "share_expert_dim": 32, "num_nextn_predict_layers": 2, )";
  const auto types = [](const std::string& drafts) {
    return R"("layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention")" +
           drafts + "]";
  };
  const auto read = [&](const std::string& more) { return parse_hf_config("t.json", sizes + more + "}"); };
  const std::string windows = R"(, "sliding_attention", "sliding_attention")";
  const Model dense = read(R"("moe_layers_enum": "2,3", )" + types(windows));
  EXPECT_EQ(dense.drafts->ffn, FeedForward{.inner = 128});
  EXPECT_EQ(dense.drafts->attention.reach, (Reach{ReachKind::window, 32}));
  const Model listed_too = read(R"("moe_layers_enum": "2,3,4,5", )" + types(windows));
  EXPECT_EQ(listed_too.drafts->ffn.experts, 8);
  const Model full = read(R"("moe_layers_enum": "2,3", )" + types(R"(, "full_attention", "full_attention")"));
  EXPECT_FALSE(full.drafts->attention.reach.local());
  const Model mixed =
      read(R"("moe_layers_enum": "2,3", )" + types(R"(, "full_attention", "sliding_attention")"));
  EXPECT_THAT(mixed.notes, Contains(HasSubstr("the first one's is taken for all")));
  EXPECT_FALSE(mixed.drafts->attention.reach.local());
  EXPECT_THROW(read(types(R"(, "sliding")")), UserError);
  const std::string counted = R"("moe_layers_enum": "2,3", "first_k_dense_replace": )";
  EXPECT_NO_THROW(read(counted + "2, " + types(windows)));
  EXPECT_THROW(read(counted + "1, " + types(windows)), UserError);
}

TEST(Contradictions, ModulesThatDraftAreNotedWhereTheyAreSaidTwice) {
  EXPECT_THAT(load_hf_config(testing::hf_dir() / "minimax-m3.json").drafts->count, 1);
  EXPECT_THAT(with("minimax-m3", R"("num_mtp_modules": 7,)").notes,
              Contains(HasSubstr("num_mtp_modules 7 beside num_nextn_predict_layers 1: 1 is counted")));
  EXPECT_THAT(with("minimax-m3", R"("num_mtp_modules": 1,)").notes, Each(Not(HasSubstr("num_mtp_modules"))));
  EXPECT_THROW(with("minimax-m3", R"("num_mtp_modules": "abc",)"), UserError);
  const auto sharing = [](const std::string& value) {
    const std::string key = R"("index_share_for_mtp_iteration": )";
    std::string text = testing::read_file(testing::hf_dir() / "glm-5.2.json");
    return parse_hf_config("glm-5.2.json", text.replace(text.find(key), key.size() + 4, key + value));
  };
  EXPECT_TRUE(sharing("true").drafts->one_choice);
  EXPECT_FALSE(sharing("false").drafts->one_choice);
  EXPECT_THROW(sharing("\"yes\""), UserError);
}

Model read_as(const std::string& text, const std::string& as) { return parse_hf_config("t.json", text, as); }

constexpr const char* kOfLlama = R"("hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 256)";

// What the family that it is read as would refuse is one more key that is not understood.
TEST(Contradictions, ReadAsAnotherFamilyNothingIsRefused) {
  const std::string text =
      std::string(R"({"model_type": "olmo3", "sliding_window": 32, "n_routed_experts": 4, )") + kOfLlama +
      "}";
  EXPECT_THROW(read_as(text, ""), UserError);
  EXPECT_THAT(read_as(text, "llama").notes,
              Contains("config.json keys not understood: sliding_window, n_routed_experts"));
}

// A wrapper that nobody here knows has the text of a model inside.
TEST(Contradictions, AWrapperIsReadAsTheFamilyOfItsText) {
  const std::string text =
      std::string(
          R"({"model_type": "mistral3", "vision_config": {}, "text_config": {"model_type": "mistral", )") +
      kOfLlama + "}}";
  const Model m = read_as(text, "llama");
  EXPECT_EQ(m.hidden, 64);
  EXPECT_THAT(m.notes, Contains(HasSubstr("vision tower")));
  EXPECT_THROW(read_as(text, ""), UserError);
}

TEST(Contradictions, ListsThatOnlyRepeatAreAsLongAsTheLayers) {
  const std::string head = std::string(R"({"model_type": "llama", )") + kOfLlama;
  EXPECT_NO_THROW(read_as(head + R"(, "layer_types": ["full_attention", "full_attention"]})", ""));
  EXPECT_THROW(read_as(head + R"(, "layer_types": ["full_attention"]})", ""), UserError);
}

TEST(Contradictions, DraftsAndChoicesAreSaidOnce) {
  EXPECT_NO_THROW(with("glm-5.2", R"("mtp_num_hidden_layers": 1,)"));
  EXPECT_THROW(with("glm-5.2", R"("mtp_num_hidden_layers": 3,)"), UserError);
  std::string text = testing::read_file(testing::hf_dir() / "glm-5.2.json");
  const std::size_t from = text.find("\"indexer_types\""), to = text.find(']', from);
  ASSERT_NE(from, std::string::npos);
  text.replace(from, text.find(',', to) + 1 - from,
               "\"index_topk_pattern\": \"" + std::string(78, 'F') + "\",");
  EXPECT_THROW(read_as(text, ""), UserError);  // beside index_topk_freq 4
}

TEST(Contradictions, ASharedExpertWithoutWidthIsNone) {
  std::string text = testing::read_file(testing::hf_dir() / "qwen3.5-397b-a17b.json");
  const std::size_t at = text.find("\"shared_expert_intermediate_size\":");
  ASSERT_NE(at, std::string::npos);
  const std::size_t value = text.find_first_of("0123456789", at);
  text.replace(value, text.find_first_not_of("0123456789", value) - value, "0");
  const Model m = read_as(text, "");
  EXPECT_EQ(m.ffns.front().shared_experts, 0);
  EXPECT_FALSE(m.ffns.front().shared_gate);
}

}  // namespace
}  // namespace shardline
