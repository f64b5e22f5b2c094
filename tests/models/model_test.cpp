#include "models/model/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/model/catalog.hpp"
#include "sim/base/error.hpp"
#include "tests/models/files.hpp"

namespace shardline {
namespace {

Model model(const std::string& name) { return load_model(name, testing::catalog_dir()); }

struct Published {
  const char* name;
  double parameters;  // the checkpoint's exact count
  double active_billions;
};

TEST(Model, M3ParameterCountsArePublishedOnes) {
  const Published rows[] = {
      {"llama-7b", 6738415616, 6.7},
      {"llama-13b", 13015864320, 13.0},
      {"llama-30b", 32528943616, 32.5},
      {"falcon-1b", 1311625216, 1.3},
      {"falcon-7b", 6921720704, 6.9},
      {"llama-3.1-8b", 8030261248, 8.0},
      {"llama-3.1-70b", 70553706496, 70.6},
      {"llama-3.1-405b", 405853388800, 405.9},
      {"deepseek-r1", 671026419200, 37.6},
      {"qwen3-235b-a22b", 235093634560, 22.2},
      {"qwen3-32b", 32762123264, 32.8},
      {"kimi-k2", 1026408232448, 32.9},
      // Not published: llama-7b less keys and values of 31 or 24 heads.
      {"llama-7b-mqa", 5698228224, 5.7},
      {"llama-7b-gqa8", 5933109248, 5.9},
      {"llama-3-8b-1m", 8030261248, 8.0},
      {"qwen-2.5-14b", 14770033664, 14.8},
      {"yi-34b-200k", 34388917248, 34.4},
      {"gpt-oss-120b", 116829156672, 5.7},
      {"gpt-oss-20b", 20914757184, 4.2},
      {"gemma-3-27b", 27009346304, 27.0},
      {"llama-4-maverick", 400711848960, 17.2},
      {"llama-4-scout", 107769861120, 17.2},
      {"mimo-v2-flash", 308778780864, 15.4},
      // Those of 2026, added up tensor by tensor from their code apart from this library.
      {"deepseek-v3.2", 671877944064, 38.4},
      {"deepseek-v4-pro", 1572997201763, 49.8},
      {"deepseek-v4-flash", 284332240471, 13.8},
      {"glm-5.2", 743377019904, 41.25},
      {"kimi-k3", 2779484476000, 105.4},
      {"minimax-m3", 426174572928, 26.0},
      {"minimax-m2.5", 228689764864, 11.0},
      {"qwen3.5-397b-a17b", 396346350336, 17.3},
      {"nemotron-3-super-120b-a12b", 120668707840, 12.8},
      {"gemma-4-31b", 30697345280, 30.7},
  };
  for (const Published& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(parameter_count(model(row.name)), row.parameters);
    EXPECT_NEAR(active_parameters(model(row.name)) / 1e9, row.active_billions, 0.05);
  }
  EXPECT_EQ(std::size(rows), catalog_names(testing::catalog_dir()).size());
}

// Of models whose layers are of several kinds: what model cards say, to the digits they give.
TEST(Model, M3CountsAreThoseOfModelCards) {
  struct Card {
    const char* name;
    double billions, active_billions;
    bool embedding_is_active;
  };
  const Card cards[] = {
      // The gpt-oss model card counts the output head as active and the embedding not.
      {"gpt-oss-120b", 116.83, 5.13, false}, {"gpt-oss-20b", 20.91, 3.61, false},
      {"gemma-3-27b", 27.0, 27.0, true},     {"llama-4-maverick", 400, 17, true},
      {"mimo-v2-flash", 309, 15, true},
  };
  for (const Card& card : cards) {
    SCOPED_TRACE(card.name);
    const Model m = model(card.name);
    EXPECT_NEAR(parameter_count(m) / 1e9 / card.billions, 1, 0.005);
    const double table = card.embedding_is_active ? 0 : 1.0 * m.vocab * m.hidden;
    EXPECT_NEAR((active_parameters(m) - table) / 1e9, card.active_billions, 0.5);
    if (!card.embedding_is_active) {
      EXPECT_NEAR((active_parameters(m) - table) / 1e9, card.active_billions, 0.005);
    }
  }
  // Scout's 109 B hold a vision tower, too: 34 layers of width 1408 and inner width 5632 with biases, two
  // norms each, patches of 588, 577 positions, adapter and projector (transformers modeling_llama4.py).
  const double w = 1408, f = 5632;
  const double vision = 34 * (4 * w * w + 4 * w + 2 * w * f + f + w + 4 * w) + 588 * w + w + 577 * w + 4 * w +
                        f * 4096 + 4096.0 * 4096 + 4096.0 * 5120;
  EXPECT_NEAR((parameter_count(model("llama-4-scout")) + vision) / 109e9, 1, 0.005);
  EXPECT_NEAR(active_parameters(model("llama-4-scout")) / 1e9, 17, 0.5);
}

TEST(Model, M1M2LayersAddUpToTheWhole) {
  for (const std::string& name : catalog_names(testing::catalog_dir())) {
    SCOPED_TRACE(name);
    const Model m = model(name);
    double sum = (m.tied_embeddings ? 1.0 : 2.0) * m.vocab * m.hidden;
    const double norm = m.norm == NormKind::rms ? m.hidden : 2.0 * m.hidden;
    const double n = m.residual.streams;
    for (const LayerRun& run : m.runs) {
      const Attention& a = m.attentions[run.attention];
      const FeedForward& f = m.ffns[run.ffn];
      int norms = m.parallel_attention_ffn ? 1 : (a.none() ? 0 : 1) + (f.none() ? 0 : 1);
      if (m.sandwich_norms) norms *= 2;
      // mHC: two mappings of n streams to n weights twice and n x n once, biases and three scales of each
      const double mixing = n > 1 ? 2 * ((2 * n + n * n) * n * m.hidden + 2 * n + n * n + 3) : 0;
      const double weighting = m.residual.block > 0 ? 4.0 * m.hidden : 0;
      for (int layer = 0; layer < run.count; ++layer)
        sum += attention_parameters(m, a) + ffn_parameters(m, f) + norms * norm + mixing + weighting;
    }
    if (n > 1) sum += n * n * m.hidden + n + 1;
    if (m.residual.block > 0) sum += 2.0 * m.hidden;
    EXPECT_EQ(sum + norm, parameter_count(m));
  }
}

double attention(const std::string& name, int kind = 0) {
  const Model m = model(name);
  return attention_parameters(m, m.attentions[kind]);
}

TEST(Model, M1AttentionByHand) {
  // 4096 x (4096 query + 2 x 1024 key/value) + 4096 x 4096 output
  EXPECT_EQ(attention("llama-3.1-8b"), 4096.0 * (4096 + 2 * 1024 + 4096));
  // q_a, its norm, q_b, kv_a, its norm, kv_b, output
  EXPECT_EQ(attention("deepseek-r1"), 7168.0 * 1536 + 1536 + 1536.0 * 128 * 192 + 7168.0 * 576 + 512 +
                                          512.0 * 128 * 256 + 128.0 * 128 * 7168);
  // 64 heads of 64 over 8, biases on all four, and a sink per query head
  EXPECT_EQ(attention("gpt-oss-120b"),
            2880.0 * (4096 + 2 * 512) + 4096 + 2 * 512 + 4096.0 * 2880 + 2880 + 64);
  EXPECT_EQ(attention("gpt-oss-120b", 1), attention("gpt-oss-120b"));
  // keys of 192, values of 128; 4 KV heads where attention is full, 8 and sinks where it slides
  EXPECT_EQ(attention("mimo-v2-flash"), 4096.0 * (64 * 192 + 4 * 192 + 4 * 128) + 64.0 * 128 * 4096);
  EXPECT_EQ(attention("mimo-v2-flash", 1), 4096.0 * (64 * 192 + 8 * 192 + 8 * 128) + 64.0 * 128 * 4096 + 64);
  // query/key norms
  EXPECT_EQ(attention("gemma-3-27b"), 5376.0 * (4096 + 2 * 2048 + 4096) + 2 * 128);
  // fused query/key/value with bias, output with bias
  EXPECT_EQ(attention("falcon-1b"), 2048.0 * 6144 + 6144 + 2048.0 * 2048 + 2048);
}

TEST(Model, M2KindsOfFeedForwardNetworks) {
  const Model r1 = model("deepseek-r1");
  EXPECT_EQ(ffn_parameters(r1, r1.ffns[0]), 3.0 * 7168 * 18432);
  EXPECT_EQ(ffn_parameters(r1, r1.ffns[1]), 257.0 * 3 * 7168 * 2048 + 256.0 * 7168 + 256);
  EXPECT_EQ(r1.runs, (std::vector<LayerRun>{{0, 0, 3}, {0, 1, 58}}));
  EXPECT_EQ(dense_layers(r1), 3);
  EXPECT_EQ(layers_of_ffn(r1, 1), 58);
  // every expert has biases: of gate, up and down; and the router one per expert
  const Model oss = model("gpt-oss-20b");
  EXPECT_EQ(ffn_parameters(oss, oss.ffns[0]), 32 * (3.0 * 2880 * 2880 + 2 * 2880 + 2880) + 32.0 * 2880 + 32);
}

TEST(Model, LayersOfSeveralKinds) {
  const Model llama4 = model("llama-4-maverick");
  ASSERT_EQ(llama4.attentions.size(), 2u);
  EXPECT_EQ(llama4.attentions[0].reach, (Reach{ReachKind::chunk, 8192}));
  // chunked+dense, chunked+experts, chunked+dense, full+experts
  EXPECT_EQ(llama4.runs.size(), 48u);
  EXPECT_EQ((std::vector<LayerRun>(llama4.runs.begin(), llama4.runs.begin() + 4)),
            (std::vector<LayerRun>{{0, 0, 1}, {0, 1, 1}, {0, 0, 1}, {1, 1, 1}}));
  EXPECT_EQ(layers_of_attention(llama4, 0), 36);
  EXPECT_EQ(dense_layers(llama4), 24);
  EXPECT_EQ(least_dense_inner(llama4), 16384);
  EXPECT_EQ(least_expert_inner(llama4), 8192);
  EXPECT_TRUE(has_local_attention(llama4));
  EXPECT_EQ(one_attention(llama4), nullptr);
  EXPECT_EQ(one_ffn(llama4), nullptr);

  const Model mimo = model("mimo-v2-flash");
  EXPECT_EQ(layers_of_attention(mimo, 0), 9);
  EXPECT_EQ(layers_of_attention(mimo, 1), 39);
  EXPECT_EQ(least_kv_heads(mimo), 4);
  EXPECT_EQ(least_q_heads(mimo), 64);
  EXPECT_EQ(least_experts(mimo), 256);
  // full+dense, 4 x sliding, full, then 7 x (5 x sliding, full)
  EXPECT_EQ(mimo.runs.size(), 3u + 14);
  EXPECT_EQ(mimo.runs.back(), (LayerRun{0, 1, 1}));

  const Model gemma = model("gemma-3-27b");
  EXPECT_EQ(layers_of_attention(gemma, 1), 10);
  EXPECT_EQ(gemma.runs.back(), (LayerRun{0, 0, 2}));  // 62 layers are no whole number of sixes
  EXPECT_EQ(least_experts(gemma), 0);
  EXPECT_FALSE(has_experts(gemma));
  EXPECT_NE(one_ffn(gemma), nullptr);

  const Model llama = model("llama-3.1-8b");
  EXPECT_FALSE(has_local_attention(llama));
  EXPECT_EQ(one_attention(llama)->q_heads, 32);
  EXPECT_EQ(least_expert_inner(llama), 0);
  EXPECT_EQ(dense_layers(llama), 32);
}

TEST(Model, SetLayersJoinsAndNumbersKindsAsTheyAppear) {
  Attention full{.q_heads = 4, .kv_heads = 2, .head_dim = 8}, local = full;
  local.reach = {ReachKind::window, 16};
  const FeedForward dense{.inner = 32};
  Model m;
  m.hidden = 32;
  m.vocab = 10;
  set_layers(m, std::vector{local, local, full, local}, std::vector(4, dense));
  EXPECT_EQ(m.attentions, (std::vector{local, full}));
  EXPECT_EQ(m.ffns, std::vector{dense});
  EXPECT_EQ(m.runs, (std::vector<LayerRun>{{0, 0, 2}, {1, 0, 1}, {0, 0, 1}}));
  EXPECT_EQ(m.layers(), 4);
  EXPECT_TRUE(check(m).empty());
  EXPECT_THROW(set_layers(m, std::vector{local}, std::vector(2, dense)), std::logic_error);
}

TEST(Model, M4KvBytesPerToken) {
  EXPECT_EQ(kv_bytes_per_token(model("llama-3.1-405b"), 0.5), Bytes(129024));
  EXPECT_EQ(kv_bytes_per_token(model("deepseek-r1"), 0.5), Bytes(17568));
  EXPECT_EQ(kv_bytes_per_token(model("llama-7b"), 2), Bytes(2.0 * 2 * 4096 * 32));
  EXPECT_EQ(kv_bytes_per_token(model("falcon-7b"), 2), Bytes(2.0 * 2 * 64 * 32));
}

TEST(Model, M4TokensKept) {
  const Reach full, window{ReachKind::window, 128}, chunk{ReachKind::chunk, 8192};
  EXPECT_EQ(kept_tokens(full, 1 << 20), 1 << 20);
  EXPECT_EQ(kept_tokens(window, 127), 127);
  EXPECT_EQ(kept_tokens(window, 128), 128);
  EXPECT_EQ(kept_tokens(window, 129), 128);
  EXPECT_EQ(kept_tokens(chunk, 8191), 8191);
  EXPECT_EQ(kept_tokens(chunk, 8193), 8192);  // the fullest chunk so far
}

TEST(Model, M4KvCacheOfARequest) {
  // 18 layers keep 128 tokens and 18 all; 8 heads of 64, keys and values
  const Model oss = model("gpt-oss-120b");
  EXPECT_EQ(kv_bytes(oss, 1 << 20, 2), Bytes(2.0 * 1024 * 18 * (128 + 1048576.0)));
  EXPECT_EQ(kv_bytes(oss, 100, 2), 100 * kv_bytes_per_token(oss, 2));
  EXPECT_EQ(kv_bytes_per_token(oss, 2), Bytes(2.0 * 1024 * 36));
  // 36 layers of chunks of 8192, 12 full
  EXPECT_EQ(kv_bytes(model("llama-4-maverick"), 100000, 1), Bytes(2048.0 * (36 * 8192 + 12 * 100000)));
  // 9 full layers of 4 x (192 + 128), 39 of 8 x (192 + 128) that keep 128 tokens
  const Model mimo = model("mimo-v2-flash");
  EXPECT_EQ(kv_elements_per_layer(mimo.attentions[0]), 1280);
  EXPECT_EQ(kv_elements_per_layer(mimo.attentions[1]), 2560);
  EXPECT_EQ(kv_bytes(mimo, 262144, 1), Bytes(9 * 1280.0 * 262144 + 39 * 2560.0 * 128));
  const Model llama = model("llama-3.1-8b");
  EXPECT_EQ(kv_bytes(llama, 1000, 2), 1000 * kv_bytes_per_token(llama, 2));
}

TEST(Model, M5MatmulWeightsAreParametersWithoutNormsBiasesAndLookup) {
  const Model m = model("llama-3.1-405b");
  const double norms = (2.0 * m.layers() + 1) * m.hidden;
  EXPECT_EQ(active_matmul_weights(m), parameter_count(m) - norms - 1.0 * m.vocab * m.hidden);
  const Model q = model("qwen3-235b-a22b");
  const double q_norms = (2.0 * q.layers() + 1) * q.hidden + q.layers() * 2.0 * q.attentions[0].head_dim;
  EXPECT_EQ(active_matmul_weights(q), active_parameters(q) - q_norms - 1.0 * q.vocab * q.hidden);
  // dense and expert layers, two attentions; sinks and the routers' biases are not multiplied with
  const Model mimo = model("mimo-v2-flash");
  const double rest = (2.0 * 48 + 1) * 4096 + 39 * 64 + 47 * 256 + 1.0 * mimo.vocab * mimo.hidden;
  EXPECT_EQ(active_matmul_weights(mimo), active_parameters(mimo) - rest);
}

TEST(Model, M6AttentionFlops) {
  EXPECT_EQ(attention_flops(model("llama-3.1-405b").attentions[0], 1e6), Flops(4.0 * 128 * 128 * 1e6));
  EXPECT_EQ(attention_flops(model("deepseek-r1").attentions[0], 1e6),
            Flops(2.0 * 128 * (512 + 64 + 512) * 1e6));
  EXPECT_EQ(attention_flops(model("mimo-v2-flash").attentions[0], 1e6), Flops(2.0 * 64 * (192 + 128) * 1e6));
}

TEST(Model, M7FlopsPerTokenIsLinearInContext) {
  for (const std::string& name : catalog_names(testing::catalog_dir())) {
    SCOPED_TRACE(name);
    const Model m = model(name);
    Flops states(0), attention(0);
    for (const LayerRun& run : m.runs) {
      const Attention& a = m.attentions[run.attention];
      if (a.recurrent()) states += run.count * mixer_flops(a, 1);
      // 128 tokens are within every window and chunk, and fewer than any index chooses.
      attention += run.count * attention_flops(a, 128);
      if (a.index && !a.index->shared && !a.compression)
        attention += run.count * Flops(2.0 * a.index->heads * a.index->dim * 128);
      if (!a.compression || a.compression->ratio == 0) continue;
      const int rows = 128 / a.compression->ratio;
      attention += run.count * attention_flops(a, rows);
      if (a.index) attention += run.count * Flops(2.0 * a.index->heads * a.index->dim * rows);
    }
    EXPECT_EQ(flops_per_token(m, 0), Flops(2 * active_matmul_weights(m)) + states);
    EXPECT_NEAR((flops_per_token(m, 128) - flops_per_token(m, 0)).value / std::max(1.0, attention.value), 1,
                1e-12);
  }
}

TEST(Model, M7AQuerySeesWhatIsInReach) {
  const auto of_attention = [](const Model& m, double context) {
    return flops_per_token(m, context) - flops_per_token(m, 0);
  };
  // 18 sliding layers see 128 keys, 18 all
  EXPECT_EQ(of_attention(model("gpt-oss-120b"), 100000), Flops(4.0 * 64 * 64 * 18 * (128 + 100000)));
  const Model llama4 = model("llama-4-scout");
  const auto chunked = [&](double context) {
    return of_attention(llama4, context).value / (4.0 * 40 * 128) - 12 * context;
  };
  EXPECT_EQ(chunked(8192), 36 * 8192);
  EXPECT_EQ(chunked(8193), 36 * 1);  // the first token of a chunk sees itself alone
  EXPECT_EQ(chunked(16384), 36 * 8192);
  EXPECT_EQ(chunked(20000), 36 * (20000 - 16384));
  // The last position's reach says the same.
  const Reach reach = llama4.attentions[0].reach;
  EXPECT_EQ(19999 - reach.first(19999) + 1, 20000 - 16384);
}

std::vector<std::string> fields(const Model& m) {
  std::vector<std::string> names;
  for (const ModelFault& fault : check(m)) names.push_back(fault.field);
  return names;
}

TEST(Model, CheckNamesTheFieldOfEachBrokenRule) {
  using Names = std::vector<std::string>;
  const Model r1 = model("deepseek-r1");
  EXPECT_TRUE(check(r1).empty());
  Model m = r1;
  m.ffns[1].experts_per_token = 257;
  m.ffns[0].inner = 0;
  EXPECT_EQ(fields(m), (Names{"ffns[0].inner", "ffns[1].experts_per_token"}));
  m = r1;
  m.ffns[1].experts_per_token = 64;  // tight, as is that all experts may be visited
  EXPECT_TRUE(check(m).empty());
  m.ffns[1].experts_per_token = 65;
  EXPECT_EQ(fields(m), (Names{"ffns[1].experts_per_token"}));
  m.ffns[1].experts = m.ffns[1].experts_per_token = 8;
  EXPECT_TRUE(check(m).empty());
  m = r1;
  m.attentions[0].reach = {ReachKind::window, 128};
  m.attentions[0].sinks = true;
  EXPECT_EQ(fields(m), (Names{"attentions[0].reach", "attentions[0].sinks"}));
  m = r1;
  m.ffns[0].shared_experts = 1;
  EXPECT_EQ(fields(m), Names{"ffns[0].experts"});
  m = r1;
  m.ffns[1].shared_experts = limits::kExperts + 1;
  EXPECT_EQ(fields(m), Names{"ffns[1].shared_experts"});
  m = r1;
  m.runs = {{0, 1, 61}};
  EXPECT_EQ(fields(m), Names{"ffns[0]"});  // no layer is dense
}

TEST(Model, CheckOfKindsAndRuns) {
  using Names = std::vector<std::string>;
  const Model gemma = model("gemma-3-27b");
  Model m = gemma;
  m.attentions[1] = m.attentions[0];
  EXPECT_EQ(fields(m), Names{"attentions[1]"});
  m = gemma;
  m.attentions[0].reach.tokens = 0;
  EXPECT_EQ(fields(m), Names{"attentions[0].reach"});
  m = gemma;
  m.attentions[1].reach.tokens = 7;
  EXPECT_EQ(fields(m), Names{"attentions[1].reach"});
  m = gemma;
  m.attentions[1].v_dim = m.attentions[1].head_dim;
  EXPECT_EQ(fields(m), Names{"attentions[1].v_dim"});
  m = gemma;
  m.runs.push_back(m.runs.back());
  m.runs[0].ffn = 1;
  m.runs[1].attention = -1;
  EXPECT_EQ(fields(m), (Names{"runs[0]", "runs[1]", "runs[" + std::to_string(m.runs.size() - 1) + "]"}));
  m = gemma;
  m.runs[2].count = 0;
  EXPECT_EQ(fields(m), Names{"runs[2]"});
  m = gemma;
  m.runs[2].count = limits::kLayers;
  EXPECT_EQ(fields(m), Names{"layers"});
  m = gemma;
  m.parallel_attention_ffn = true;
  EXPECT_EQ(fields(m), Names{"sandwich_norms"});
  EXPECT_EQ(fields(Model{}), (Names{"layers", "attentions", "ffns"}));
}

}  // namespace
}  // namespace shardline
