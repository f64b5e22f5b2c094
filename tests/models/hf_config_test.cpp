#include "models/model/hf_config.hpp"

#include <gtest/gtest.h>

#include "models/model/catalog.hpp"
#include "sim/base/error.hpp"
#include "tests/models/files.hpp"

namespace shardline {
namespace {

Model import(const std::string& name) { return load_hf_config(testing::hf_dir() / (name + ".json")); }

TEST(HfConfig, EveryCatalogueModelEqualsItsImport) {
  for (const std::string& name : catalog_names(testing::catalog_dir())) {
    SCOPED_TRACE(name);
    Model ours = load_model(name, testing::catalog_dir());
    Model theirs = import(name);
    EXPECT_EQ(theirs.name, name);
    for (Model* m : {&ours, &theirs}) {
      m->source.clear();
      m->notes.clear();
      m->checkpoint.reset();  // a catalogue model is of no checkpoint
    }
    EXPECT_EQ(ours, theirs);
  }
}

TEST(HfConfig, OtherFamiliesHaveTheirPublishedCounts) {
  EXPECT_EQ(parameter_count(import("mistral-7b-v0.3")), 7248023552);
  EXPECT_EQ(parameter_count(import("mixtral-8x7b")), 46702792704);
  EXPECT_EQ(parameter_count(import("qwen2.5-7b")), 7615616512);
  EXPECT_EQ(parameter_count(import("qwen3-8b")), 8190735360);
  EXPECT_EQ(parameter_count(import("deepseek-v2-lite")), 15706484224);
}

TEST(HfConfig, NotesSayWhatIsLeftOut) {
  const std::vector<std::string> r1 = {"not modelled: a token's experts lie in 4 of 8 groups",
                                       "not modelled: 1 multi-token-prediction layer(s)"};
  EXPECT_EQ(import("deepseek-r1").notes, r1);
  EXPECT_EQ(import("qwen2.5-7b").notes,
            std::vector<std::string>{"config.json keys not understood: use_mrope"});
  EXPECT_TRUE(import("llama-3.1-8b").notes.empty());
}

TEST(HfConfig, ReadsFalconsOlderNames) {
  const Model m = parse_hf_config("old.json", R"({"model_type": "RefinedWebModel", "hidden_size": 4544,
    "n_layer": 32, "n_head": 71, "vocab_size": 65024, "multi_query": true, "parallel_attn": true, "bias": false})");
  EXPECT_EQ(parameter_count(m), 6921720704);
  EXPECT_EQ(m.notes.size(), 1u);  // the context is a default
}

TEST(HfConfig, DefaultsOfMissingKeysAreThoseOfTheLibrary) {
  const Model m =
      parse_hf_config("t.json", R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128, "max_position_embeddings": 256})");
  EXPECT_EQ(m.attention.kv_heads, 4);
  EXPECT_EQ(m.attention.head_dim, 16);
  EXPECT_FALSE(m.tied_embeddings);
  EXPECT_EQ(m.attention_bias, AttentionBias::none);
}

TEST(HfConfig, DenseLayersOfQwenMoeMustComeFirst) {
  const std::string head = R"({"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "intermediate_size": 128,
    "max_position_embeddings": 256, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "mlp_only_layers": )";
  const Model m = parse_hf_config("t.json", head + "[0, 1]}");
  EXPECT_EQ(m.dense_layers, 2);
  EXPECT_EQ(m.ffn_inner, 128);
  EXPECT_THROW(parse_hf_config("t.json", head + "[0, 2]}"), UserError);
  EXPECT_THROW(parse_hf_config("t.json", head + "[0, 1, 2, 3]}"), UserError);
}

// A model's name is that of the folder of its results, so ".." would lead out of it.
TEST(HfConfig, FoldersGivenByDotsHaveTheirOwnName) {
  namespace fs = std::filesystem;
  const std::string text = testing::read_file(testing::hf_dir() / "llama-3.1-8b.json");
  const fs::path here = fs::current_path();
  EXPECT_EQ(parse_hf_config("llama/config.json", text).name, "llama");
  EXPECT_EQ(parse_hf_config("./config.json", text).name, here.filename());
  EXPECT_EQ(parse_hf_config("../config.json", text).name, here.parent_path().filename());
  EXPECT_EQ(parse_hf_config("llama/../config.json", text).name, here.filename());
  EXPECT_EQ(parse_hf_config("/config.json", text).name, "config");
  EXPECT_EQ(parse_hf_config("/../config.json", text).name, "config");
}

TEST(HfConfig, ANameThatIsNoFileNameIsRefused) {
  const std::string text = testing::read_file(testing::hf_dir() / "llama-3.1-8b.json");
  try {
    parse_hf_config("red\x1b[31m/config.json", text);
    ADD_FAILURE() << "no error";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("from that of the file or folder, holds a control character"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace shardline
