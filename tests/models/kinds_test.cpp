// Mixers and networks of 2026's models: what they hold, keep, read and compute, by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "models/model/cache.hpp"
#include "models/model/catalog.hpp"
#include "models/model/hf_config.hpp"
#include "sim/base/error.hpp"
#include "tests/models/files.hpp"

namespace shardline {
namespace {

constexpr std::int64_t kMillion = 1'000'000;

Model model(const std::string& name) { return load_model(name, testing::catalog_dir()); }
double read_gb(const std::string& name, Dtype kv) {
  return decode_read_bytes(model(name), kMillion, kv).value / 1e9;
}
double kept_gb(const std::string& name, Dtype kv) {
  return cache_bytes(model(name), kMillion, kv).value / 1e9;
}

TEST(Kinds, M14BytesReadPerStepAtAMillionTokens) {
  EXPECT_EQ(read_gb("deepseek-r1", Dtype::fp8), 61 * 576e6 / 1e9);
  // 132 bytes of every index key, 656 of 2048 rows
  EXPECT_DOUBLE_EQ(read_gb("deepseek-v3.2", Dtype::fp8), 61 * (132e6 + 656.0 * 2048) / 1e9);
  // index keys in 21 of 78 layers
  EXPECT_DOUBLE_EQ(read_gb("glm-5.2", Dtype::fp8), (21 * 132e6 + 78 * 656.0 * 2048) / 1e9);
  const auto v4 = [](double csa, double hca, double layers, double top_k) {
    return (csa * (132 * 250000.0 + 584 * top_k) + hca * 584 * 7812 + layers * 128 * 584) / 1e9;
  };
  EXPECT_DOUBLE_EQ(read_gb("deepseek-v4-pro", Dtype::fp8), v4(30, 31, 61, 1024));
  EXPECT_DOUBLE_EQ(read_gb("deepseek-v4-flash", Dtype::fp8), v4(21, 20, 43, 512));
  // states are read and written
  EXPECT_NEAR(read_gb("kimi-k3", Dtype::bf16), (24 * 1152e6 + 2 * 449372160.0) / 1e9, 1e-9);
  EXPECT_NEAR(read_gb("qwen3.5-397b-a17b", Dtype::bf16), (15 * 2048e6 + 2 * 192061440.0) / 1e9, 1e-9);
  EXPECT_DOUBLE_EQ(read_gb("minimax-m3", Dtype::bf16), (3 * 2048e6 + 57 * (256e6 + 1984 * 2048.0)) / 1e9);
  EXPECT_DOUBLE_EQ(read_gb("gpt-oss-120b", Dtype::bf16), 18 * 2048 * (1e6 + 128) / 1e9);
  EXPECT_DOUBLE_EQ(read_gb("gemma-4-31b", Dtype::fp8), (10 * 4096e6 + 50 * 8192 * 1024.0) / 1e9);
}

TEST(Kinds, M14BytesKeptAtAMillionTokens) {
  EXPECT_DOUBLE_EQ(kept_gb("deepseek-v3.2", Dtype::fp8), 61 * 788e6 / 1e9);
  EXPECT_DOUBLE_EQ(kept_gb("glm-5.2", Dtype::fp8), (78 * 656e6 + 21 * 132e6) / 1e9);
  // Rows of 584 bytes, as FlashMLA packs them, and index keys of 132: each of 4 tokens (CSA) or 128 (HCA).
  const auto v4 = [](double csa, double hca, double layers) {
    return (csa * (584 + 132) * 250'000 + hca * 584 * 7'812 + layers * 128 * 584) / 1e9;
  };
  EXPECT_DOUBLE_EQ(kept_gb("deepseek-v4-pro", Dtype::fp8), v4(30, 31, 61));
  EXPECT_DOUBLE_EQ(kept_gb("deepseek-v4-flash", Dtype::fp8), v4(21, 20, 43));
  EXPECT_DOUBLE_EQ(kept_gb("minimax-m3", Dtype::bf16), (60 * 2048e6 + 57 * 256e6) / 1e9);
  EXPECT_EQ(cache_bytes_per_token(model("deepseek-v4-pro"), Dtype::fp8), Bytes(30 * 179 + 31 * 4.5625));
  EXPECT_EQ(cache_bytes_per_token(model("nemotron-3-super-120b-a12b"), Dtype::bf16), Bytes(8 * 1024));
  // Full attention keeps what kv_bytes says; recurrences keep no token.
  EXPECT_EQ(cache_bytes(model("llama-3.1-8b"), 1000, Dtype::bf16), kv_bytes(model("llama-3.1-8b"), 1000, 2));
  EXPECT_EQ(decode_read_bytes(model("llama-3.1-8b"), 0, Dtype::bf16), Bytes(0));
}

TEST(Kinds, M14StatesByHand) {
  EXPECT_EQ(state_bytes(model("kimi-k3")), Bytes(69 * (96 * 128 * 128 * 4.0 + 3 * 96 * 128 * 3 * 2)));
  EXPECT_EQ(state_bytes(model("qwen3.5-397b-a17b")),
            Bytes(45 * (64 * 128 * 128 * 4.0 + (2 * 16 * 128 + 64 * 128) * 3 * 2)));
  EXPECT_EQ(state_bytes(model("nemotron-3-super-120b-a12b")),
            Bytes(40 * (128 * 64 * 128 * 4.0 + (128 * 64 + 2 * 8 * 128) * 3 * 2)));
  EXPECT_EQ(state_bytes(model("llama-3.1-8b")), Bytes(0));
}

TEST(Kinds, M15OperationsByHand) {
  const Model v32 = model("deepseek-v3.2");
  EXPECT_EQ(mixer_flops(v32.attentions[0], 1e6),
            Flops(2.0 * 64 * 128 * 1e6 + 2.0 * 128 * (576 + 512) * 2048));
  EXPECT_EQ(mixer_flops(v32.attentions[0], 1000),
            Flops(2.0 * 64 * 128 * 1e3 + 2.0 * 128 * (576 + 512) * 1e3));
  const Model v4 = model("deepseek-v4-pro");
  ASSERT_EQ(v4.attentions[1].index->top_k, 1024);
  EXPECT_EQ(mixer_flops(v4.attentions[1], 1e6),
            Flops(2.0 * 128 * 1024 * (128 + 1024) + 2.0 * 64 * 128 * 250000));
  EXPECT_EQ(mixer_flops(v4.attentions[0], 1e6), Flops(2.0 * 128 * 1024 * (128 + 7812)));
  EXPECT_EQ(mixer_flops(model("kimi-k3").attentions[0], 5), Flops(8.0 * 96 * 128 * 128));
  EXPECT_EQ(mixer_flops(model("nemotron-3-super-120b-a12b").attentions[0], 5), Flops(6.0 * 128 * 64 * 128));
}

// Every field of a kind tells two models apart, whatever set_layers joins.
TEST(Kinds, EveryNewFieldMakesAKindOfItsOwn) {
  const FeedForward experts{.inner = 8, .experts = 4, .experts_per_token = 2, .shared_experts = 1};
  std::vector<FeedForward> ffns(7, experts);
  ffns[1].shared_inner = 3;
  ffns[2].shared_gate = true;
  ffns[3].latent = 4;
  ffns[4].latent_norm = true;
  ffns[5].hashed = true;
  ffns[6] = {.absent = true};
  std::vector<Attention> mixers(7, Attention{.q_heads = 4, .kv_heads = 4, .head_dim = 8});
  mixers[1].k_eq_v = true;
  mixers[2].gate = OutputGate::head;
  mixers[3].index = SparseIndex{.heads = 1, .dim = 8, .top_k = 2};
  mixers[4].index = SparseIndex{.heads = 1, .dim = 8, .top_k = 2, .shared = true};
  mixers[5].delta = DeltaRule{.key_heads = 1};
  mixers[6].mamba = Mamba{.heads = 1};
  Model m;
  set_layers(m, mixers, ffns);
  EXPECT_EQ(m.attentions.size(), 7u);
  EXPECT_EQ(m.ffns.size(), 7u);
}

std::string fault_of(const std::string& text) {
  try {
    parse_hf_config("t.json", text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Kinds, FaultsOfNewKeysAreLocated) {
  const std::string kimi = R"({"model_type": "kimi_linear", "hidden_size": 64, "num_hidden_layers": 2,
"vocab_size": 100, "max_position_embeddings": 256, "num_attention_heads": 4, "kv_lora_rank": 32, "qk_rope_head_dim": 8,
"qk_nope_head_dim": 16, "v_head_dim": 16, "intermediate_size": 128, "num_experts": 8, "num_experts_per_token": 2,
"moe_intermediate_size": 32, "linear_attn_config": {"num_heads": 4, "head_dim": 16, )";
  const auto lists = [&](const std::string& kda, const std::string& full) {
    return fault_of(kimi + "\n\"kda_layers\": " + kda + ", \"full_attn_layers\": " + full + "}}");
  };
  EXPECT_EQ(lists("[1]", "[2]"), "no error");
  EXPECT_THAT(lists("[1, 2]", "[2]"),
              ::testing::HasSubstr(
                  "t.json:5:19: linear_attn_config.kda_layers[1]: layer 2 is in full_attn_layers, too"));
  EXPECT_THAT(lists("[1]", "[]"),
              ::testing::HasSubstr("layer 2 of 2 is in neither kda_layers nor full_attn_layers"));
  EXPECT_THAT(lists("[0]", "[2]"),
              ::testing::HasSubstr("linear_attn_config.kda_layers[0]: expected 1 to 2, found 0"));
  EXPECT_THAT(lists("[\"1\"]", "[2]"), ::testing::HasSubstr("expected an integer"));
  EXPECT_THAT(
      fault_of(R"({"model_type": "nemotron_h", "hidden_size": 64, "vocab_size": 100, "num_hidden_layers": 3,
"max_position_embeddings": 256, "intermediate_size": 64, "hybrid_override_pattern": "--"})"),
      ::testing::HasSubstr("hybrid_override_pattern: 2 layers, but num_hidden_layers is 3"));
  EXPECT_THAT(fault_of(R"({"model_type": "nemotron_h", "hidden_size": 64, "vocab_size": 100,
"max_position_embeddings": 256, "intermediate_size": 64, "hybrid_override_pattern": "-X"})"),
              ::testing::HasSubstr("hybrid_override_pattern: letter 1 is X"));
  const std::string v4 =
      R"({"model_type": "deepseek_v4", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
"max_position_embeddings": 256, "num_attention_heads": 4, "q_lora_rank": 16, "o_groups": 2, "o_lora_rank": 8, "head_dim": 32,
"qk_rope_head_dim": 8, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 4, "n_routed_experts": 8,
"num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_hash_layers": 1, "compress_ratios": )";
  EXPECT_EQ(fault_of(v4 + "[4, 128]}"), "no error");
  EXPECT_THAT(fault_of(v4 + "[4]}"), ::testing::HasSubstr("compress_ratios: 1 entries for 2 layers"));
  EXPECT_THAT(fault_of(v4 + "[4, 128, 0]}"), ::testing::HasSubstr("compress_ratios: 3 entries for 2 layers"));
  EXPECT_EQ(fault_of(v4 + R"([4, 128, 0], "num_nextn_predict_layers": 1})"), "no error");
  EXPECT_EQ(fault_of(v4 + R"([4, 128], "num_nextn_predict_layers": 5})"), "no error");
  EXPECT_THAT(fault_of(v4 + R"([4, 128, 0], "num_nextn_predict_layers": 5})"),
              ::testing::AllOf(::testing::HasSubstr(
                                   "compress_ratios: 3 entries for 2 layers and 5 of multi-token prediction"),
                               ::testing::HasSubstr("expected 2 or 7, one of each layer")));
  EXPECT_THAT(fault_of(v4 + "null}"),
              ::testing::HasSubstr("compress_ratios: expected 0, 4 or 128 for each layer, found null"));
  EXPECT_THAT(fault_of(v4 + R"([4, 128], "hc_sinkhorn_iters": "x"})"),
              ::testing::HasSubstr("hc_sinkhorn_iters: expected an integer"));
  EXPECT_THAT(fault_of(v4 + R"([4, 128], "compress_rope_theta": true})"),
              ::testing::HasSubstr("compress_rope_theta: expected a number"));
  EXPECT_THAT(fault_of(v4 + "[4, 7]}"),
              ::testing::HasSubstr("compress_ratios[1]: expected 0, 4 or 128, found 7"));
}

TEST(Kinds, AnUnknownTypeCanBeReadAsAKnownOne) {
  const std::string text =
      R"({"model_type": "novel", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 100, "intermediate_size": 128, "max_position_embeddings": 256, "index_topk": 8, "novelty": 1})";
  EXPECT_THAT(fault_of(text), ::testing::HasSubstr("--as llama"));
  const Model m = parse_hf_config("t.json", text, "llama");
  EXPECT_THAT(m.notes, ::testing::Contains(::testing::HasSubstr("not understood: index_topk, novelty")));
  EXPECT_THROW(parse_hf_config("t.json", text, "lama"), UserError);
}

// What model cards and repositories say, in billions, to the digits that they give; where a wrapper's or a
// draft's parameters are part of that, so they are here.
TEST(Kinds, PublishedConfigurationsHaveTheirPublishedSizes) {
  const char* const named = std::getenv("SHARDLINE_CONFIGS");
  const std::filesystem::path folder =
      named ? named : testing::source_dir().parent_path() / "shared" / "models";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no folder of configurations: " << folder;
  struct Row {
    const char* name;
    double billions;
    bool whole;          // with drafts and vision
    double rounded = 0;  // to how much, where half of it is more than 0.5 %
  };
  const Row rows[] = {{"DeepSeek-R1", 671, false},
                      {"DeepSeek-V3.1-NVFP4", 671, false},
                      {"DeepSeek-V3.2", 671, false},
                      {"DeepSeek-V3.2-NVFP4", 671, false},
                      {"DeepSeek-V4-Flash-FP8", 284, false},
                      {"DeepSeek-V4-Flash-NVFP4", 284, false},
                      {"DeepSeek-V4-Pro", 1600, true},
                      {"GLM-5-FP8", 744, false},
                      {"GLM-5.2-NVFP4", 753, true},
                      {"Gemma-4-31B-IT-NVFP4", 30.7, false},
                      {"Kimi-K2-Instruct", 1000, false, 100},
                      {"Kimi-K2.5", 1000, false, 100},
                      {"Kimi-K3", 2800, false, 100},
                      {"Llama-3.1-70B-Instruct-FP8", 70.6, false},
                      {"Llama-3_3-Nemotron-Super-49B-v1", 49.9, false},
                      {"Llama-4-Maverick-17B-128E-Instruct", 400, false},
                      {"MiMo-7B-Base", 7.83, true},
                      {"MiMo-V2-Flash", 309, false},
                      {"MiniMax-M2.5", 229, false},
                      {"MiniMax-M3", 428, false},
                      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.6, false},
                      {"NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", 120.6, false},
                      {"Nemotron-H-56B-Base-8K", 56.3, false},
                      {"Qwen3-235B-A22B-FP8", 235, false},
                      {"Qwen3-32B-FP8", 32.8, false},
                      {"Qwen3-32B-FP8-Static-PerTensor", 32.8, false},
                      {"Qwen3-VL-30B-A3B-Instruct", 31.1, true},
                      {"Qwen3-VL-8B-Instruct", 8.77, true},
                      {"Qwen3.5-397B-A17B", 397, false},
                      {"Qwen3.6-27B-NVFP4", 27.8, true},
                      {"Step-3.7-Flash", 196.81, true},
                      {"gpt-oss-120b", 116.83, false}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const Model m = load_hf_config(folder / row.name / "config.json");
    EXPECT_NEAR((row.whole ? all_parameters(m) : parameter_count(m)) / 1e9, row.billions,
                std::max(0.005 * row.billions, row.rounded / 2));
  }
}

}  // namespace
}  // namespace shardline
