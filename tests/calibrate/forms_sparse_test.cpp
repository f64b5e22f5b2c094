// [H69] to [H71]: fits to rows of a form with 1 % noise predict shapes that they have not seen.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "calibrate/fit.hpp"
#include "calibrate/rows.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using Shapes = std::vector<std::vector<double>>;

/// Every third shape is withheld.
void expect_prediction(const Form& form, const std::vector<std::string>& words, const Shapes& shapes,
                       const std::vector<double>& truth) {
  ASSERT_EQ(truth.size(), form.parameters.size());
  FormContext c;
  ASSERT_TRUE(form.context(words, testing::catalog_system("h200-hgx"), c));
  std::mt19937_64 rng(5);
  FitRows seen;
  seen.width = form.numbers.size();
  std::vector<double> exact;
  Shapes withheld;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::vector<double>& x = shapes[i];
    const double t = form.seconds(x, c, truth);
    if (i % 3 == 1) {
      withheld.push_back(x);
      exact.push_back(t);
      continue;
    }
    double noise = -6;
    for (int k = 0; k < 12; ++k) noise += static_cast<double>(rng() >> 11) * 0x1p-53;
    seen.numbers.insert(seen.numbers.end(), x.begin(), x.end());
    seen.seconds.push_back(t * std::exp(0.01 * noise));
  }
  const FitResult found = fit(form, c, seen);
  std::vector<double> predicted;
  for (const std::vector<double>& x : withheld) predicted.push_back(form.seconds(x, c, found.parameters));
  const FitError error = summarise(predicted, exact);
  EXPECT_LT(error.median, 0.01);
  EXPECT_LT(error.p90, 0.03);
}

// The rows of one name that are two kernels, by heads; other kernels and families have one.
TEST(HiddenKernels, F15AreVariantsOfTheirOwn) {
  const auto variants = [](const std::string& kernel) {
    std::string text =
        "engine,model,layer,batch,kv_len,heads_local,tp,dtype_kv,dtype_gemm,kernel,latency_us\n";
    for (const int heads : {1, 16, 17, 32, 64})
      text += "trtllm_1.3.0rc23,MiniMax-M3,msa,1,4095," + std::to_string(heads) + ",1,bf16,bf16," + kernel +
              ",131\n";
    const MeasurementTable table = parse_measurements("t.csv", text);
    return rows_of(kSparseDecodeForm, testing::catalog_system("gb200-nvl72"), table).variants;
  };
  const auto two = variants("msa_fmha_sm100");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two.at({"MiniMax-M3", "msa", "bf16", "bf16", "msa_fmha_sm100_one_kv_head"}).size(), 2u);
  EXPECT_EQ(two.at({"MiniMax-M3", "msa", "bf16", "bf16", "msa_fmha_sm100"}).size(), 3u);
  // Rows are predicted by the fit of theirs. us, of 64 requests of 131,071 tokens (AIConfigurator 095f58a51).
  const System gb200 = testing::catalog_system("gb200-nvl72");
  const std::string rows =
      "engine,model,layer,batch,kv_len,heads_local,tp,dtype_kv,dtype_gemm,kernel,latency_us\n"
      "trtllm_1.3.0rc23,MiniMax-M3,msa,64,131071,16,1,bf16,bf16,msa_fmha_sm100,3696.6\n"
      "trtllm_1.3.0rc23,MiniMax-M3,msa,64,131071,32,1,bf16,bf16,msa_fmha_sm100,570.9\n";
  const std::vector<MeasurementTable> tables{parse_measurements("t.csv", rows)};
  const Evaluation evaluation = evaluate(gb200, gb200.calibration, tables);
  ASSERT_EQ(evaluation.rows.size(), 2u);
  for (const PredictedRow& row : evaluation.rows) {
    EXPECT_NEAR(row.predicted / row.measured, 1, 0.15);
    EXPECT_FALSE(row.extrapolated);
  }
  const auto one = variants("MiniMaxM3SparseMSAImpl");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one.begin()->second.size(), 5u);
}

TEST(FormsSparseFit, H69AnUpdateOfStates) {
  Shapes shapes;
  for (double batch = 1; batch <= 1024; batch *= 2) {
    for (const double drafts : {1.0, 2.0, 4.0, 8.0}) {
      for (const double heads : {24.0, 48.0, 96.0}) shapes.push_back({batch, drafts, heads, heads, 128});
    }
  }
  expect_prediction(kLinearAttentionForm, {"verify", "fused_recurrent_kda"}, shapes,
                    {3, 5, 0.8, 40, 1500, 5e3, 0.5, 0.9, 1});
}

TEST(FormsSparseFit, H70HyperConnections) {
  Shapes shapes;
  for (double tokens = 1; tokens <= 1 << 19; tokens *= 2) {
    for (const double hidden : {4096.0, 7168.0}) shapes.push_back({tokens, hidden, 4, 2});
  }
  expect_prediction(kHyperConnectionForm, {"post", "x"}, shapes, {2.5, 0.1, 2, 200, 3, 1.2, 30});
}

TEST(FormsSparseFit, H71ABlockInDecode) {
  Shapes shapes;
  for (double batch = 1; batch <= 256; batch *= 2) {
    for (double keys = 64; keys <= 1 << 18; keys *= 4) {
      for (const double heads : {16.0, 32.0, 64.0, 128.0}) shapes.push_back({batch, keys, heads});
    }
  }
  expect_prediction(kSparseDecodeForm,
                    {"deepseek-v3.2", "indexer", "fp8", "fp8_block", "dsa_indexer_flashmla_kv"}, shapes,
                    {78, 240, 0.83, 0.8, 12, 0.43, 0.7, 0.19, 2, 0.58, 1.5, 5});
}

// Of a step whose rows sort flat scores what each comparison takes is found, too.
TEST(FormsSparseFit, H71SortingOfFlatScores) {
  Shapes shapes;
  for (double batch = 1; batch <= 256; batch *= 2) {
    for (double keys = 512; keys <= 1 << 16; keys *= 1.5) shapes.push_back({batch, std::round(keys), 64});
  }
  expect_prediction(kSparseDecodeForm,
                    {"deepseek-v4-flash", "csa", "fp8", "fp8_block", "DeepseekV4TrtllmAttention"}, shapes,
                    {60, 40, 0.7, 0.6, 5, 0.3, 0.7, 0.8, 9, 0.4, 1.4, 13});
}

}  // namespace
}  // namespace shardline
