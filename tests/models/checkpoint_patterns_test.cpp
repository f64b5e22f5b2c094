// Lists of names and patterns, looked up at once: as each pattern alone has it.
#include "models/model/checkpoint_patterns.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "models/model/checkpoint_rules.hpp"
#include "models/model/hf_config.hpp"
#include "sim/base/reader.hpp"

namespace shardline::checkpoint {
namespace {

using ::testing::HasSubstr;

/// Texts whose parts repeat, so that many are runs of others.
class Texts {
 public:
  explicit Texts(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return random_() % n; }
  std::string name(std::size_t most) {
    const char* parts[] = {"model", "layers", "0", "1", "12", "mlp", "experts", "up_proj", "gate", "q"};
    std::string out = parts[below(10)];
    for (std::size_t left = below(most); left > 0; --left) out += std::string(".") + parts[below(10)];
    return out;
  }
  std::string pattern() {
    std::string out = name(5);
    for (std::size_t signs = below(3); signs > 0; --signs) {
      const char* sign[] = {"*", "?", "[0-9]", "*.", ".*", "[!1]"};
      out.insert(below(out.size() + 1), sign[below(6)]);
    }
    return out;
  }

 private:
  std::mt19937 random_;
};

TEST(CheckpointPatterns, ANamesRunsAreThoseOfATable) {
  Texts texts(1);
  for (int round = 0; round < 200; ++round) {
    NameTable table;
    std::vector<std::string> kept;
    for (int i = 0; i < 40; ++i) {
      const std::string text = texts.name(4);
      const bool known = std::find(kept.begin(), kept.end(), text) != kept.end();
      const std::size_t place = table.add(text);
      EXPECT_EQ(place == kept.size(), !known);
      if (!known) kept.push_back(text);
      EXPECT_EQ(table.text(place), text);
    }
    EXPECT_EQ(table.size(), kept.size());
    const std::string name = texts.name(8);
    std::vector<std::string> theirs, ours;
    each_run(name, [&](std::string_view run) {
      if (std::find(kept.begin(), kept.end(), run) != kept.end()) theirs.emplace_back(run);
    });
    table.each_in(name, [&](std::size_t place) { ours.emplace_back(table.text(place)); });
    std::sort(theirs.begin(), theirs.end());
    std::sort(ours.begin(), ours.end());
    EXPECT_EQ(ours, theirs) << name;
  }
}

// Of texts with more parts than are told apart.
TEST(CheckpointPatterns, LongRunsAreFound) {
  std::string text = "a";
  for (int i = 0; i < 70; ++i) text += ".a";
  NameTable table;
  table.add(text);
  table.add(text + ".a");
  std::size_t found = 0;
  table.each_in(text + ".a.a", [&](std::size_t) { ++found; });
  EXPECT_EQ(found, 5u);  // three of 71 parts, two of 72
}

TEST(CheckpointPatterns, ManyAtOnceMatchWhatEachMatches) {
  Texts texts(2);
  std::size_t matched = 0, runs = 0;
  for (int round = 0; round < 300; ++round) {
    const Listed listed = round % 3 == 0 ? Listed::parts : Listed::names;
    std::string list = "[";
    for (int i = 0; i < 30; ++i) list += fmt::format("{}\"{}\"", i > 0 ? ", " : "", texts.pattern());
    const Document document = Document::parse_json("t.json", list + "]");
    Patterns patterns;
    std::vector<Pattern> each;
    for (const Reader& item : document.root().items()) {
      patterns.add(Pattern(item, listed));
      each.emplace_back(item, listed);
      runs += each.back().run().empty() ? 0 : 1;
    }
    std::vector<Matrix> matrices(5, {MatrixPart::dense, false, {}});
    for (Matrix& one : matrices) {
      for (int i = 0; i < 4; ++i) one.names.push_back(texts.name(7));
      const auto matches = [&](const Pattern& p) {
        return std::any_of(one.names.begin(), one.names.end(), [&](const auto& n) { return p.matches(n); });
      };
      const auto first = std::find_if(each.begin(), each.end(), matches);
      const auto ours = patterns.first(one.names);
      ASSERT_EQ(ours.value_or(each.size()), static_cast<std::size_t>(first - each.begin())) << list;
      matched += ours ? 1 : 0;
    }
  }
  EXPECT_GT(matched, 500u);
  EXPECT_GT(runs, 2000u);
}

TEST(CheckpointPatterns, WhatMatchesNothingIsSaidOnceInItsOrder) {
  const Document document = Document::parse_json(
      "t.json",
      R"(["layers.7.q", "a*.q", "layers.0.mlp.experts.9.up", "layers.7.q", "layers.*.q", "b*", "layers.0.experts.3"])");
  Patterns patterns;
  for (const Reader& item : document.root().items()) patterns.add(Pattern(item));
  const std::vector<Matrix> matrices{
      {MatrixPart::dense, false, {"model.layers.0.mlp.experts.0.up", "layers.0.q"}}};
  const std::vector<std::string_view> none{"layers.7.q", "a*.q", "b*", "layers.0.experts.3"};
  EXPECT_EQ(patterns.without_match(matrices), none);
}

std::string config(const std::string& ignored) {
  return R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 100, "intermediate_size": 128, "max_position_embeddings": 256, "quantization_config":
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": [)" +
         ignored + "]}}";
}

// Tens of thousands that a whole part tells apart are read; of others there is a most, as of expressions.
TEST(CheckpointPatterns, OfThoseThatNothingTellsApartThereIsAMost) {
  std::string apart = R"("model.layers.0.mlp*")", alike = R"("lm_head")";
  for (int i = 0; i < 20'000; ++i) apart += fmt::format(", \"model*.{}.self_attn.q_proj\"", i);
  for (int i = 0; i < 2'001; ++i) alike += fmt::format(", \"*{}_proj*\"", i);
  const Model read = parse_hf_config("t.json", config(apart));
  EXPECT_EQ(unread_types(read), "");
  EXPECT_EQ(read.checkpoint->attention, Dtype::fp4);
  EXPECT_THAT(unread_types(parse_hf_config("t.json", config(alike))),
              HasSubstr("more than 2000 patterns that no whole part of a name tells apart"));
}

}  // namespace
}  // namespace shardline::checkpoint
