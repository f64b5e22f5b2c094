// Scores of models in blocks that were measured with flat ones. calibrate/README.md [F12].
#include "calibrate/scores.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <span>
#include <string>
#include <vector>

#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

// Selections whose excess on flat scores is 10 us and 0.1 ns a key.
MeasurementTable kernels() {
  std::string text = "engine,op,model,batch,seq_q,kv_cached,heads,kernel,latency_us\n";
  for (int batch = 1; batch <= 64; batch *= 4) {
    for (int keys = 4096; keys <= 131072; keys *= 2) {
      const double top = 4 + 2e-4 * keys;
      text +=
          fmt::format("sglang_0.5.14,topk_flat,glm-5,{},1,{},64,k,{}\n", batch, keys, top + 10 + 1e-4 * keys);
      text += fmt::format("sglang_0.5.14,topk_top_last,glm-5,{},1,{},64,k,{}\n", batch, keys, top);
    }
  }
  return parse_measurements("sparse_kernel.csv", text);
}

MeasurementTable blocks() {
  const std::string head =
      "engine,model,layer,batch,kv_len,heads_local,tp,dtype_kv,dtype_gemm,kernel,latency_us\n";
  return parse_measurements("dsa_decode.csv",
                            head +
                                "sglang_0.5.14,glm-5,indexer,4,8192,64,1,fp8,bf16,k,150\n"
                                "sglang_0.5.14,glm-5,indexer,4,12000,64,1,fp8,bf16,k,150\n"
                                "sglang_0.5.14,glm-5.2,skip_indexer,4,8192,64,1,fp8,bf16,k,90\n"
                                "vllm_0.24.0,glm-5,indexer,4,8192,64,1,fp8,bf16,k,160\n");
}

TEST(ScoresOfModels, F12TakesOffWhatFlatOnesTakeMore) {
  const System h200 = testing::catalog_system("h200-hgx");
  std::vector<std::string> notes;
  const std::vector<MeasurementTable> tables{kernels(), blocks()};
  const auto out = with_scores_of_models(h200, tables, notes);
  ASSERT_EQ(out.size(), 2u);
  const auto us = [&](std::size_t row) { return out[1].median[row].value * 1e6; };
  EXPECT_NEAR(us(0), 150 - 10 - 0.8192, 1e-9);  // measured in the same shape
  EXPECT_NEAR(us(1), 150 - 10 - 1.2, 1.5);      // by a fit between
  EXPECT_EQ(us(2), 90);                         // does not select
  EXPECT_EQ(us(3), 160);                        // nothing is known of its kernel
  EXPECT_EQ(out[1].low[0].value, out[1].median[0].value);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0],
            "sparse_decode: 2 rows less what selecting takes more on flat scores, 1 of them as "
            "measured in the same shape");
  EXPECT_THAT(notes[1], HasSubstr("1 rows that select on flat scores as they are"));
  EXPECT_EQ(&out[0], &tables[0]);  // not copied
  EXPECT_EQ(tables[1].median[0].value, 150e-6);
  EXPECT_EQ(parse_measurements("changed.csv", measurement_csv(out[1])).word("model"),
            tables[1].word("model"));
}

TEST(ScoresOfModels, F12TablesWithoutChangesAreNotCopied) {
  const std::vector<MeasurementTable> kernels_alone{kernels()}, blocks_alone{blocks()};
  for (const auto& tables : {std::span(kernels_alone), std::span(blocks_alone)}) {
    std::vector<std::string> notes;
    const auto out = with_scores_of_models(testing::catalog_system("h200-hgx"), tables, notes);
    EXPECT_EQ(&out[0], &tables[0]);
  }
}

TEST(ScoresOfModels, F12WithoutKernelsRowsStayAsTheyAre) {
  std::vector<std::string> notes;
  const std::vector<MeasurementTable> tables{blocks()};
  const auto out = with_scores_of_models(testing::catalog_system("h200-hgx"), tables, notes);
  for (std::size_t row = 0; row < 4; ++row) EXPECT_EQ(out[0].median[row].value, tables[0].median[row].value);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("3 rows"));
}

}  // namespace
}  // namespace shardline
