// Types of a module that drafts where a tool has quantised the model's experts alone
// (DeepSeek-V4-Flash-NVFP4).
#include <gtest/gtest.h>

#include <string>

#include "models/model/hf_config.hpp"
#include "tests/models/files.hpp"

namespace shardline {
namespace {

const MatrixType kBlocks = Dtype::fp8_block, kStored{Dtype::mxfp4, Dtype::fp8};

Model flash(const std::string& more) {
  std::string text = testing::read_file(testing::hf_dir() / "deepseek-v4-flash.json");
  return parse_hf_config("flash.json", text.insert(text.find('{') + 1, more));
}

// As the published file has it: entries of the layers' experts, and the module among what is left alone.
std::string nvfp4() {
  std::string listed;
  for (int layer = 0; layer < 43; ++layer)
    listed += std::string(layer > 0 ? ", " : "") + "\"layers." + std::to_string(layer) +
              ".ffn.experts\": {\"quant_algo\": \"NVFP4\", \"group_size\": 16}";
  return R"("quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic",
      "weight_block_size": [128, 128], "quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4",
      "ignore": ["*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"], "quantized_layers": {)" +
         listed + "}},";
}

constexpr const char* kBlocksOfFp8 =
    R"("quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
      "weight_block_size": [128, 128]},)";

TEST(DraftTypes, ExpertsOfFourBitsAreTheModulesToo) {
  const Model m = flash(std::string(R"("expert_dtype": "fp4",)") + kBlocksOfFp8);
  EXPECT_EQ(m.checkpoint->experts, kStored);
  EXPECT_EQ(m.checkpoint->attention, kBlocks);
  EXPECT_FALSE(m.checkpoint->drafts);  // as the model's own
  EXPECT_EQ(flash(kBlocksOfFp8).checkpoint->experts, kBlocks);
}

TEST(DraftTypes, FourBitsWithoutAConfigurationAreNotRead) {
  const auto notes = [](const Model& m) { return ::testing::PrintToString(m.notes); };
  EXPECT_NE(notes(flash(R"("expert_dtype": "fp4",)")).find("expert_dtype fp4 is read beside"),
            std::string::npos);
  EXPECT_EQ(notes(flash(R"("expert_dtype": "fp8",)")).find("expert_dtype"), std::string::npos);
}

// A rule of layers.0 is none of mtp.0: its experts are what they were before.
TEST(DraftTypes, AModuleThatWasLeftAloneIsStoredAsBefore) {
  const Model m = flash(R"("expert_dtype": "fp4",)" + nvfp4());
  EXPECT_EQ(m.checkpoint->experts, MatrixType(Dtype::fp4));
  ASSERT_TRUE(m.checkpoint->drafts);
  EXPECT_EQ(m.checkpoint->drafts->experts, kStored);
  EXPECT_EQ(m.checkpoint->drafts->attention, kBlocks);
  const Model fp8 = flash(nvfp4());
  ASSERT_TRUE(fp8.checkpoint->drafts);
  EXPECT_EQ(fp8.checkpoint->drafts->experts, kBlocks);
}

}  // namespace
}  // namespace shardline
