// reports/accuracy.md on sparse attention behind longer caches than those that fits saw.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/calibrate/accuracy_support.hpp"

namespace shardline::cli {
namespace {

// A kernel that some calibration has a fit of, whose rows are what the form says with its parameters.
struct Shipped {
  MeasuredTables tables;
  const KernelFit* fit = nullptr;
  FormContext context;
};

Shipped shipped(const char* family, const std::string& model) {
  Shipped out;
  out.tables.system = load_system("h200-hgx", kCatalog);
  for (const KernelFit& f : out.tables.system.calibration.fits) {
    if (f.form == find_form(family) && f.words[0] == model) out.fit = &f;
  }
  EXPECT_NE(out.fit, nullptr);
  EXPECT_TRUE(out.fit->form->context(out.fit->words, out.tables.system, out.context));
  return out;
}

// Columns: numbers, words, time.
std::string table(const Shipped& s, const std::vector<std::vector<double>>& rows, double longest,
                  double factor, const std::string& engine = "") {
  const Form& form = *s.fit->form;
  std::string text = engine.empty() ? "" : "engine,";
  for (const char* word : form.words) text += std::string(word) + ",";
  for (const char* number : form.numbers) text += std::string(number) + ",";
  text += "tp,latency_us\n";
  for (const std::vector<double>& x : rows) {
    if (!engine.empty()) text += engine + ",";
    for (const std::string& word : s.fit->words) text += word + ",";
    for (const double v : x) text += fmt::format("{},", v);
    const double slower = x[1] + (x.size() > 3 ? x[2] : 0) >= longest && x[0] == 1 ? factor : 1;
    text += fmt::format("1,{:.9g}\n", 1e6 * slower * form.seconds(x, s.context, s.fit->parameters));
  }
  return text;
}

// One request of 131,072 tokens takes a quarter longer than the form says, all else what it says: the form is
// told by the shorter ones, and the error stands where one request is.
TEST(AccuracyOfSparse, TheLongestCachesOfBlocksAreJudgedByShorterOnes) {
  Shipped s = shipped("sparse_decode", "deepseek-v3.2");
  std::vector<std::vector<double>> rows;
  for (double batch = 1; batch <= 64; batch *= 2) {
    for (double keys = 64; keys <= 131072; keys *= 2) {
      for (const double heads : {16.0, 32.0, 64.0, 128.0}) rows.push_back({batch, keys, heads});
    }
  }
  s.tables.tables = {parse_measurements("dsa_decode.csv", table(s, rows, 131072, 1.25))};
  const std::string found = longest_sparse_section(std::vector<MeasuredTables>{s.tables}, 2);
  EXPECT_THAT(found, ::testing::HasSubstr("## Longest caches of sparse attention"));
  const auto row = rows_with(found, "decode").at(0);
  EXPECT_EQ(row[1], "h200-hgx");
  EXPECT_EQ(row[2], "deepseek-v3.2 indexer");
  EXPECT_EQ(row[3], "1");
  EXPECT_THAT(row[4], ::testing::MatchesRegex("-(19|20|21) \\[-(19|20|21), -(19|20|21)\\] 4"));
  EXPECT_THAT(row[5], ::testing::MatchesRegex("[+-][01] .* 8"));
  EXPECT_THAT(found, ::testing::HasSubstr("Decode: 86 % of 28 rows within 15 %."));
  EXPECT_THAT(found, ::testing::Not(::testing::HasSubstr("Prompts:")));
}

TEST(AccuracyOfSparse, RowsOfOtherEnginesAndKernelsWithoutAFitAreNotThere) {
  EXPECT_EQ(longest_sparse_section({}), "");
  Shipped s = shipped("sparse_decode", "deepseek-v3.2");
  std::vector<std::vector<double>> rows;
  for (double batch = 1; batch <= 64; batch *= 2) {
    for (double keys = 64; keys <= 131072; keys *= 2) rows.push_back({batch, keys, 64});
  }
  // One engine's rows are what the form says, another's ten times as long.
  s.tables.system.calibration.framework = "vllm";
  const std::string own = table(s, rows, 0, 1, "vllm_0.24.0"),
                    other = table(s, rows, 64, 10, "sglang_0.5.14");
  s.tables.tables = {parse_measurements("dsa_decode.csv", own + other.substr(other.find('\n') + 1))};
  const auto row =
      rows_with(longest_sparse_section(std::vector<MeasuredTables>{s.tables}, 1), "decode").at(0);
  EXPECT_THAT(row[4], ::testing::MatchesRegex("[+-][01] .* 1"));
  s.tables.system.calibration.fits = std::vector<KernelFit>{};
  EXPECT_EQ(longest_sparse_section(std::vector<MeasuredTables>{s.tables}, 1), "");
}

}  // namespace
}  // namespace shardline::cli
