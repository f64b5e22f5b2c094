#include "models/model/hf_config.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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
    EXPECT_EQ(parameter_count(ours), parameter_count(theirs));
    EXPECT_EQ(active_parameters(ours), active_parameters(theirs));
    EXPECT_EQ(kv_bytes(ours, 100000, 2), kv_bytes(theirs, 100000, 2));
    EXPECT_EQ(flops_per_token(ours, 100000), flops_per_token(theirs, 100000));
  }
}

// What Python writes of numbers that JSON has not: a key that is read refuses it
// (tests/bad/config/json_nan.json).
TEST(HfConfig, InfinityWhereNothingIsReadIsNoFault) {
  const std::string head = R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128, "max_position_embeddings": 256)";
  const auto read = [&](const std::string& more) {
    Model m = parse_hf_config("t.json", head + more + "}");
    m.notes.clear();  // that the key is not understood
    return m;
  };
  EXPECT_EQ(read(R"(, "time_step_limit": [0.0, Infinity])"), read(""));
  EXPECT_EQ(read(R"(, "own": {"least": -Infinity, "none": NaN})"), read(""));
  EXPECT_THROW(parse_hf_config("t.json", head + R"(, "head_dim": Infinity})"), UserError);
}

TEST(HfConfig, OtherFamiliesHaveTheirPublishedCounts) {
  EXPECT_EQ(parameter_count(import("mistral-7b-v0.3")), 7248023552);
  EXPECT_EQ(parameter_count(import("mixtral-8x7b")), 46702792704);
  EXPECT_EQ(parameter_count(import("qwen2.5-7b")), 7615616512);
  EXPECT_EQ(parameter_count(import("qwen3-8b")), 8190735360);
  EXPECT_EQ(parameter_count(import("deepseek-v2-lite")), 15706484224);
}

TEST(HfConfig, NotesSayWhatIsLeftOut) {
  const std::vector<std::string> r1 = {
      "not modelled: a token's experts lie in 4 of 8 groups",
      "counted apart, timed where steps draft (speculative): 1 multi-token-prediction layer(s)"};
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
  EXPECT_EQ(m.attentions[0].kv_heads, 4);
  EXPECT_EQ(m.attentions[0].head_dim, 16);
  EXPECT_FALSE(m.tied_embeddings);
  EXPECT_EQ(m.attention_bias, AttentionBias::none);
}

// A small model of `type`, with `more` keys.
Model tiny(const std::string& type, const std::string& more) {
  return parse_hf_config("t.json", R"({"model_type": ")" + type +
                                       R"(", "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "intermediate_size": 128,
    "max_position_embeddings": 256, )" +
                                       more + "}");
}

// One letter per layer: D dense, E experts; F full, S local.
std::string networks(const Model& m) {
  std::string text;
  for (const LayerRun& run : m.runs) text += std::string(run.count, m.ffns[run.ffn].dense() ? 'D' : 'E');
  return text;
}
std::string attentions(const Model& m) {
  std::string text;
  for (const LayerRun& run : m.runs)
    text += std::string(run.count, m.attentions[run.attention].reach.local() ? 'S' : 'F');
  return text;
}

TEST(HfConfig, DenseLayersOfQwenMoeInAnyOrder) {
  const std::string head = R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "mlp_only_layers": )";
  EXPECT_EQ(networks(tiny("qwen3_moe", head + "[0, 1]")), "DDEE");
  EXPECT_EQ(networks(tiny("qwen3_moe", head + "[0, 2]")), "DEDE");
  EXPECT_EQ(networks(tiny("qwen3_moe", head + R"([1], "decoder_sparse_step": 2)")), "DDDE");
  EXPECT_EQ(tiny("qwen3_moe", head + "[2]").ffns[1], FeedForward{.inner = 128});
  EXPECT_THROW(tiny("qwen3_moe", head + "[0, 1, 2, 3]"), UserError);
  EXPECT_THROW(tiny("qwen3_moe", head + "[4]"), UserError);
}

TEST(HfConfig, DenseLayersOfDeepSeekInAnyOrder) {
  const std::string head =
      R"("q_lora_rank": null, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
    "v_head_dim": 16, "num_key_value_heads": 4, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "first_k_dense_replace": 1, )";
  const auto of = [&](const std::string& more) {
    return networks(parse_hf_config("t.json", R"({"model_type": "deepseek_v3", "hidden_size": 64,
      "num_hidden_layers": 5, "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128,
      "max_position_embeddings": 256, )" + head + more +
                                                  "}"));
  };
  EXPECT_EQ(of(R"("moe_layer_freq": 1)"), "DEEEE");
  EXPECT_EQ(of(R"("moe_layer_freq": 2)"), "DDEDE");
  EXPECT_EQ(of(R"("moe_layer_freq": [0, 1, 1, 0, 1])"), "DEEDE");
  // One layer is dense in front, and it is the first.
  EXPECT_THROW(of(R"("moe_layer_freq": [1, 0, 1, 1, 0])"), UserError);
  EXPECT_THROW(of(R"("moe_layer_freq": [0, 0, 1, 1, 0])"), UserError);
  EXPECT_THROW(of(R"("moe_layer_freq": [0, 1])"), UserError);
  EXPECT_THROW(of(R"("moe_layer_freq": [0, 1, 2, 1, 1])"), UserError);
  EXPECT_THROW(of(R"("moe_layer_freq": [1, 0, 0, 0, 0])"), UserError);
}

TEST(HfConfig, WindowsOfAllLayersOrOfTheLastOnes) {
  EXPECT_EQ(attentions(tiny("mistral", R"("sliding_window": 32)")), "SSSS");
  EXPECT_EQ(tiny("mistral", R"("sliding_window": 32)").attentions[0].reach, (Reach{ReachKind::window, 32}));
  EXPECT_EQ(attentions(tiny("mistral", R"("sliding_window": null)")), "FFFF");
  EXPECT_THROW(tiny("llama", R"("sliding_window": 32)"), UserError);
  for (const char* type : {"qwen2", "qwen3"}) {
    const std::string on = R"("use_sliding_window": true, "sliding_window": 32, "max_window_layers": )";
    EXPECT_EQ(attentions(tiny(type, on + "3")), "FFFS");
    EXPECT_EQ(attentions(tiny(type, on + "0")), "SSSS");
    EXPECT_EQ(attentions(tiny(type, on + "4")), "FFFF");
    EXPECT_EQ(attentions(tiny(type, on + R"(4, "layer_types": ["sliding_attention", "full_attention",
      "sliding_attention", "sliding_attention"])")),
              "SFSS");
    EXPECT_EQ(attentions(tiny(type, R"("use_sliding_window": false, "sliding_window": 32)")), "FFFF");
  }
  EXPECT_EQ(attentions(tiny("qwen3_moe", R"("use_sliding_window": true, "sliding_window": 32,
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32)")),
            "SSSS");
  // Heads' widths that follow from hidden are those of local layers, too.
  const Model m =
      parse_hf_config("t.json", R"({"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128, "max_position_embeddings": 256,
    "use_sliding_window": true, "max_window_layers": 1})");
  EXPECT_EQ(m.attentions[1].head_dim, 16);
  EXPECT_EQ(m.attentions[1].reach, (Reach{ReachKind::window, 4096}));
}

TEST(HfConfig, LayersOfGptOssAlternateByDefault) {
  const std::string more = R"("num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 32)";
  const Model m = tiny("gpt_oss", more);
  EXPECT_EQ(attentions(m), "SFSF");
  EXPECT_TRUE(m.attentions[0].sinks && m.attentions[1].sinks);
  EXPECT_EQ(m.attention_bias, AttentionBias::all);
  EXPECT_TRUE(m.ffn_bias && m.ffns[0].router_bias);
  EXPECT_EQ(attentions(tiny("gpt_oss", more + R"(, "layer_types": ["full_attention", "full_attention",
    "sliding_attention", "full_attention"])")),
            "FFSF");
  EXPECT_THROW(tiny("gpt_oss", more + R"(, "layer_types": ["full_attention"])"), UserError);
  // Null is no default: engines then have full attention throughout.
  const Model none =
      tiny("gpt_oss", R"("num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null)");
  EXPECT_EQ(attentions(none), "FFFF");
  EXPECT_EQ(none.notes.front(), "sliding_window is null: all layers have full attention");
  // Only routed experts are of four bits.
  const Checkpoint c = import("gpt-oss-120b").checkpoint.value();
  EXPECT_EQ(c, (Checkpoint{Dtype::bf16,
                           Dtype::bf16,
                           Dtype::bf16,
                           Dtype::mxfp4,
                           Dtype::bf16,
                           Dtype::bf16,
                           Dtype::bf16,
                           {},
                           "mxfp4"}));
}

TEST(HfConfig, LayersOfGemma3) {
  const Model m = tiny("gemma3_text", R"("sliding_window_pattern": 3)");
  EXPECT_EQ(attentions(m), "SSFS");
  EXPECT_TRUE(m.sandwich_norms && m.qk_norm && m.tied_embeddings);
  EXPECT_TRUE(m.notes.empty());
  EXPECT_EQ(attentions(tiny("gemma3_text", R"("_sliding_window_pattern": 2)")), "SFSF");
  EXPECT_THROW(tiny("gemma3_text", R"("use_bidirectional_attention": true)"), UserError);
  EXPECT_EQ(
      import("gemma-3-27b").notes,
      std::vector<std::string>{"counted, not timed: the vision tower and its projector, 0.42 B parameters"});
}

TEST(HfConfig, LayersOfGemma4) {
  const Model m = import("gemma-4-31b");
  ASSERT_EQ(m.attentions.size(), 2u);
  EXPECT_EQ(m.attentions[0],
            (Attention{.q_heads = 32, .kv_heads = 16, .head_dim = 256, .reach = {ReachKind::window, 1024}}));
  EXPECT_EQ(m.attentions[1], (Attention{.q_heads = 32, .kv_heads = 4, .head_dim = 512, .k_eq_v = true}));
  EXPECT_EQ(layers_of_attention(m, 0), 50);
  EXPECT_EQ(kv_bytes_per_token(m, 1), Bytes(50 * 8192 + 10 * 4096));
  // By hand; full layers have no matrices of values.
  const double sliding = 5376.0 * (3 * 8192) + 2 * 256, full = 5376.0 * (2 * 16384 + 2048) + 2 * 512;
  EXPECT_EQ(parameter_count(m),
            50 * sliding + 10 * full + 60 * (3.0 * 5376 * 21504 + 4 * 5376) + 5376 + 262144.0 * 5376);
  const std::string more = R"("global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": )";
  EXPECT_EQ(tiny("gemma4_text", more + "true").attentions[1].kv_heads, 1);
  EXPECT_EQ(tiny("gemma4_text", more + "false").attentions[1].kv_heads, 2);
  EXPECT_EQ(attentions(tiny("gemma4_text", more + "true")), "SSSF");  // the last one is full
  // Experts beside the dense network, which every token visits as a shared one: 128 is twice 64.
  const Model moe = tiny("gemma4_text", more + R"(true, "enable_moe_block": true, "num_experts": 8,
    "top_k_experts": 2, "moe_intermediate_size": 64)");
  EXPECT_EQ(
      moe.ffns,
      (std::vector{FeedForward{.inner = 64, .experts = 8, .experts_per_token = 2, .shared_experts = 2}}));
  for (const char* key : {"per_layer_config", "hidden_size_per_layer_input", "num_kv_shared_layers",
                          "use_bidirectional_attention"}) {
    EXPECT_THROW(tiny("gemma4_text", more + "true, \"" + key + "\": 1"), UserError) << key;
  }
}

TEST(HfConfig, LayersOfLlama4) {
  const std::string more = R"("num_local_experts": 8, "num_experts_per_tok": 1, "attention_chunk_size": 32,
    "use_qk_norm": false, )";
  EXPECT_EQ(attentions(tiny("llama4_text", more + R"("no_rope_layers": [])")), "SSSF");
  EXPECT_EQ(attentions(tiny("llama4_text", R"("num_local_experts": 8, "num_experts_per_tok": 1,
    "attention_chunk_size": null)")),
            "FFFF");
  EXPECT_EQ(attentions(tiny("llama4_text", more + R"("no_rope_layer_interval": 2)")), "SFSF");
  const Model m =
      tiny("llama4_text", more + R"("no_rope_layers": [1, 0, 0, 1], "interleave_moe_layer_step": 2,
    "intermediate_size_mlp": 256)");
  EXPECT_EQ(attentions(m), "SFFS");  // 1 has rotary embedding, and chunks
  EXPECT_EQ(networks(m), "DEDE");
  EXPECT_EQ(m.ffns[0], FeedForward{.inner = 256});
  EXPECT_EQ(m.ffns[1].shared_experts, 1);
  EXPECT_EQ(m.ffns[1].inner, 128);
  EXPECT_EQ(m.attentions[0].reach, (Reach{ReachKind::chunk, 32}));
  EXPECT_EQ(networks(tiny("llama4_text", more + R"("moe_layers": [0, 3])")), "EDDE");
  EXPECT_THROW(tiny("llama4_text", more + R"("moe_layers": [])"), UserError);
  EXPECT_THROW(tiny("llama4_text", more + R"("moe_layers": [4])"), UserError);
}

TEST(HfConfig, LayersOfMimo) {
  const std::string more = R"("n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "swa_num_key_value_heads": 4, "v_head_dim": 8, "add_swa_attention_sink_bias": true, "sliding_window_size": 32,
    "moe_layer_freq": [0, 1, 0, 1], )";
  const Model m = tiny("mimo_v2_flash", more + R"("hybrid_layer_pattern": [0, 1, 1, 0])");
  EXPECT_EQ(attentions(m), "FSSF");
  EXPECT_EQ(networks(m), "DEDE");
  EXPECT_EQ(m.attentions[0].kv_heads, 2);
  EXPECT_EQ(m.attentions[1].kv_heads, 4);
  EXPECT_EQ(m.attentions[1].v_dim, 8);
  EXPECT_TRUE(!m.attentions[0].sinks && m.attentions[1].sinks);
  EXPECT_TRUE(m.ffns[1].router_bias);
  EXPECT_THROW(tiny("mimo_v2_flash", more + R"("hybrid_layer_pattern": null)"), UserError);
  EXPECT_THROW(tiny("mimo_v2_flash", more + R"("hybrid_layer_pattern": [])"), UserError);
}

// The language model of a wrapper is the same as in a file of its own.
TEST(HfConfig, AWrapperHoldsItsLanguageModel) {
  const std::string text = R"({"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 7,
    "intermediate_size": 128, "sliding_window": 32})";
  Model alone = parse_hf_config("t.json", text);
  const auto wrap = [](const std::string& inner, const std::string& more) {
    return parse_hf_config("t.json", R"({"model_type": "gemma3", "text_config": )" + inner + more + "}");
  };
  Model inside = wrap(text, R"(, "vision_config": {"model_type": "siglip"}, "novelty": 1)");
  EXPECT_EQ(inside.notes[0], "config.json keys not understood: novelty");
  EXPECT_GT(inside.vision_parameters, 0);
  inside.vision_parameters = 0;
  for (Model* m : {&alone, &inside}) {
    m->notes.clear();
    m->source.clear();
  }
  EXPECT_EQ(alone, inside);
  EXPECT_EQ(wrap(text, R"(, "quantization_config": {"quant_method": "fp8"})").checkpoint->attention,
            Dtype::fp8_dynamic);
  EXPECT_THROW(wrap(R"({"model_type": "llama"})", ""), UserError);
  EXPECT_THROW(wrap("[]", ""), UserError);
  EXPECT_THROW(parse_hf_config("t.json", R"({"model_type": "gemma3"})"), UserError);
}

// What config.json says of its quantisation comes before the file beside it, which is for those that say
// nothing.
TEST(HfConfig, QuantisationIsInEitherFile) {
  const std::filesystem::path folder = std::filesystem::path(SHARDLINE_BINARY_DIR) / "quantised";
  std::filesystem::create_directories(folder);
  const auto load = [&](const std::string& own, const std::string& beside) {
    std::ofstream(folder / "config.json")
        << R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
               "vocab_size": 100, "intermediate_size": 128, "max_position_embeddings": 256)"
        << own << "}";
    std::ofstream(folder / "hf_quant_config.json") << beside;
    return load_hf_config(folder / "config.json").checkpoint;
  };
  const std::string fp8 = R"({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})";
  const std::string blocks =
      R"(, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]})";
  EXPECT_EQ(load("", fp8)->attention, Dtype::fp8);
  EXPECT_EQ(load(R"(, "quantization_config": null)", fp8)->kv, Dtype::fp8);
  EXPECT_EQ(load(blocks, fp8)->attention, Dtype::fp8_block);
  EXPECT_EQ(load(blocks, fp8)->kv, std::nullopt);
  EXPECT_EQ(load(R"(, "quantization_config": {"quant_method": "quark"})", fp8)->attention, Dtype::fp8);
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
