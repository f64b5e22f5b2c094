#include "models/model/model.hpp"

#include <gtest/gtest.h>

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
      {"kimi-k2", 1026408232448, 32.9},
      // Not published: llama-7b less keys and values of 31 or 24 heads.
      {"llama-7b-mqa", 5698228224, 5.7},
      {"llama-7b-gqa8", 5933109248, 5.9},
      {"llama-3-8b-1m", 8030261248, 8.0},
      {"qwen-2.5-14b", 14770033664, 14.8},
      {"yi-34b-200k", 34388917248, 34.4},
  };
  for (const Published& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(parameter_count(model(row.name)), row.parameters);
    EXPECT_NEAR(active_parameters(model(row.name)) / 1e9, row.active_billions, 0.05);
  }
  EXPECT_EQ(std::size(rows), catalog_names(testing::catalog_dir()).size());
}

TEST(Model, M1M2LayersAddUpToTheWhole) {
  for (const std::string& name : catalog_names(testing::catalog_dir())) {
    SCOPED_TRACE(name);
    const Model m = model(name);
    double sum = (m.tied_embeddings ? 1.0 : 2.0) * m.vocab * m.hidden;
    const double norm = m.norm == NormKind::rms ? m.hidden : 2.0 * m.hidden;
    for (int layer = 0; layer < m.layers; ++layer) {
      sum += attention_parameters(m) + ffn_parameters(m, layer) + (m.parallel_attention_ffn ? 1 : 2) * norm;
    }
    EXPECT_EQ(sum + norm, parameter_count(m));
  }
}

TEST(Model, M1AttentionByHand) {
  // 4096 x (4096 query + 2 x 1024 key/value) + 4096 x 4096 output
  EXPECT_EQ(attention_parameters(model("llama-3.1-8b")), 4096.0 * (4096 + 2 * 1024 + 4096));
  // q_a, its norm, q_b, kv_a, its norm, kv_b, output
  EXPECT_EQ(attention_parameters(model("deepseek-r1")), 7168.0 * 1536 + 1536 + 1536.0 * 128 * 192 +
                                                            7168.0 * 576 + 512 + 512.0 * 128 * 256 +
                                                            128.0 * 128 * 7168);
  // fused query/key/value with bias, output with bias
  EXPECT_EQ(attention_parameters(model("falcon-1b")), 2048.0 * 6144 + 6144 + 2048.0 * 2048 + 2048);
}

TEST(Model, M2DenseLayersComeFirst) {
  const Model r1 = model("deepseek-r1");
  EXPECT_EQ(ffn_parameters(r1, 2), 3.0 * 7168 * 18432);
  EXPECT_EQ(ffn_parameters(r1, 3), 257.0 * 3 * 7168 * 2048 + 256.0 * 7168 + 256);
  EXPECT_TRUE(is_dense_layer(r1, 2));
  EXPECT_FALSE(is_dense_layer(r1, 3));
  EXPECT_THROW(ffn_parameters(r1, 61), std::logic_error);
}

TEST(Model, M4KvBytesPerToken) {
  EXPECT_EQ(kv_bytes_per_token(model("llama-3.1-405b"), 0.5), Bytes(129024));
  EXPECT_EQ(kv_bytes_per_token(model("deepseek-r1"), 0.5), Bytes(17568));
  EXPECT_EQ(kv_bytes_per_token(model("llama-7b"), 2), Bytes(2.0 * 2 * 4096 * 32));
  EXPECT_EQ(kv_bytes_per_token(model("falcon-7b"), 2), Bytes(2.0 * 2 * 64 * 32));
}

TEST(Model, M5MatmulWeightsAreParametersWithoutNormsBiasesAndLookup) {
  const Model m = model("llama-3.1-405b");
  const double norms = (2.0 * m.layers + 1) * m.hidden;
  EXPECT_EQ(active_matmul_weights(m), parameter_count(m) - norms - 1.0 * m.vocab * m.hidden);
  const Model q = model("qwen3-235b-a22b");
  const double q_norms = (2.0 * q.layers + 1) * q.hidden + q.layers * 2.0 * q.attention.head_dim;
  EXPECT_EQ(active_matmul_weights(q), active_parameters(q) - q_norms - 1.0 * q.vocab * q.hidden);
}

TEST(Model, M6AttentionFlops) {
  EXPECT_EQ(attention_flops(model("llama-3.1-405b").attention, 1e6), Flops(4.0 * 128 * 128 * 1e6));
  EXPECT_EQ(attention_flops(model("deepseek-r1").attention, 1e6), Flops(2.0 * 128 * (512 + 64 + 512) * 1e6));
}

TEST(Model, M7FlopsPerTokenIsLinearInContext) {
  for (const std::string& name : catalog_names(testing::catalog_dir())) {
    SCOPED_TRACE(name);
    const Model m = model(name);
    EXPECT_EQ(flops_per_token(m, 0), Flops(2 * active_matmul_weights(m)));
    EXPECT_EQ(flops_per_token(m, 4096) - flops_per_token(m, 0),
              m.layers * attention_flops(m.attention, 4096));
  }
}

TEST(Model, CheckNamesTheFieldOfEachBrokenRule) {
  Model m = model("deepseek-r1");
  EXPECT_TRUE(check(m).empty());
  m.dense_layers = 61;
  m.experts_per_token = 257;
  const auto faults = check(m);
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0].field, "moe.first_dense_layers");
  EXPECT_EQ(faults[1].field, "moe.experts_per_token");
  m.experts_per_token = 256;  // tight: all experts may be visited
  m.dense_layers = 60;
  EXPECT_TRUE(check(m).empty());
}

}  // namespace
}  // namespace shardline
