// Mutated inputs give a UserError or a valid model, never anything else.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "models/model/catalog.hpp"
#include "models/model/hf_config.hpp"
#include "sim/base/error.hpp"
#include "tests/models/files.hpp"
#include "tests/support/loads.hpp"
#include "tests/support/mutator.hpp"

namespace shardline {
namespace {

constexpr int kMutants = testing::part_of(6000);
const std::vector<std::string> kWords{"tokens", "gqa",        "mla",    "deepseek_v3",
                                      "window", "attentions", "sliding"};

void fuzz(const std::vector<std::filesystem::path>& files,
          const std::function<Model(const std::string&, const std::string&)>& parse) {
  std::vector<std::string> texts;
  for (const auto& file : files) texts.push_back(testing::read_file(file));
  ASSERT_FALSE(texts.empty());
  int valid = 0;
  for (std::uint64_t seed = 0; seed < kMutants; ++seed) {
    testing::Mutator mutator(seed, kWords);
    const std::string& base = texts[mutator.below(texts.size())];
    const std::string text = mutator.mutate(base, texts[mutator.below(texts.size())]);
    try {
      const Model m = parse("fuzz", text);
      EXPECT_TRUE(check(m).empty()) << "seed " << seed;
      EXPECT_TRUE(std::isfinite(flops_per_token(m, 1e6).value)) << "seed " << seed;
      EXPECT_LE(active_parameters(m), parameter_count(m)) << "seed " << seed;
      EXPECT_LE(kv_bytes(m, 1 << 20, 2), (1 << 20) * kv_bytes_per_token(m, 2)) << "seed " << seed;
      EXPECT_GE(kv_bytes(m, 1 << 20, 2), kv_bytes(m, 1 << 19, 2)) << "seed " << seed;
      ++valid;
    } catch (const UserError& e) {
      EXPECT_GT(std::string_view(e.what()).size(), 5u) << "seed " << seed;
    } catch (const std::exception& e) {
      ADD_FAILURE() << "seed " << seed << ": " << e.what() << "\n" << text;
    }
  }
  // Mutants on both sides of the line, or the test shows nothing.
  EXPECT_GT(valid, kMutants / 50);
  EXPECT_LT(valid, kMutants * 9 / 10);
}

TEST(ModelFuzz, Yaml) { fuzz(testing::files_in(testing::catalog_dir(), ".yaml"), parse_model); }

TEST(ModelFuzz, HuggingFaceConfig) {
  fuzz(testing::files_in(testing::hf_dir(), ".json"),
       [](const std::string& file, const std::string& text) { return parse_hf_config(file, text); });
}

}  // namespace
}  // namespace shardline
