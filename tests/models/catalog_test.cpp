#include "models/model/catalog.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "sim/base/error.hpp"
#include "tests/models/files.hpp"

namespace shardline {
namespace {

std::string error_of(const std::string& name_or_path) {
  try {
    load_model(name_or_path, testing::catalog_dir());
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Catalog, NamesAreSortedFileNames) {
  const std::vector<std::string> names = {
      "deepseek-r1",   "deepseek-v3.2",   "deepseek-v4-flash", "deepseek-v4-pro",
      "falcon-1b",     "falcon-7b",       "gemma-3-27b",       "gemma-4-31b",
      "glm-5.2",       "gpt-oss-120b",    "gpt-oss-20b",       "kimi-k2",
      "kimi-k3",       "llama-13b",       "llama-3-8b-1m",     "llama-3.1-405b",
      "llama-3.1-70b", "llama-3.1-8b",    "llama-30b",         "llama-4-maverick",
      "llama-4-scout", "llama-7b",        "llama-7b-gqa8",     "llama-7b-mqa",
      "mimo-v2-flash", "minimax-m2.5",    "minimax-m3",        "nemotron-3-super-120b-a12b",
      "qwen-2.5-14b",  "qwen3-235b-a22b", "qwen3-32b",         "qwen3.5-397b-a17b",
      "yi-34b-200k"};
  EXPECT_EQ(catalog_names(testing::catalog_dir()), names);
}

TEST(Catalog, EveryModelIsNamedAsItsFileAndHasASource) {
  for (const std::string& name : catalog_names(testing::catalog_dir())) {
    SCOPED_TRACE(name);
    const Model m = load_model(name, testing::catalog_dir());
    EXPECT_EQ(m.name, name);
    EXPECT_TRUE(m.source.find("Hugging Face") != std::string::npos ||
                m.source.find("arXiv") != std::string::npos)
        << m.source;
    EXPECT_TRUE(check(m).empty());
  }
}

TEST(Catalog, LoadsByPathToo) {
  const Model by_name = load_model("kimi-k2", testing::catalog_dir());
  EXPECT_EQ(load_model((testing::catalog_dir() / "kimi-k2.yaml").string(), "no/such/folder"), by_name);
  EXPECT_EQ(load_model((testing::hf_dir() / "kimi-k2.json").string(), "no/such/folder").layers(), 61);
}

TEST(Catalog, LoadsAFolderWithAConfig) {
  const auto folder = std::filesystem::path(SHARDLINE_BINARY_DIR) / "my-llama";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(testing::hf_dir() / "llama-7b.json", folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(load_model(folder.string(), testing::catalog_dir()).name, "my-llama");
  std::filesystem::remove(folder / "config.json");
  EXPECT_EQ(error_of(folder.string()), folder.string() + ": the folder holds no config.json\n");
}

TEST(Catalog, UnknownNamesHaveAShortAnswer) {
  const std::size_t all = catalog_names(testing::catalog_dir()).size();
  const std::string given = "hf download OWNER/NAME config.json --local-dir DIR, then ./DIR\n";
  const std::string another =
      "\nor another of " + std::to_string(all) + " (shardline list models), or its config.json: " + given;
  EXPECT_EQ(error_of("llama-3.1-40b"), "unknown model llama-3.1-40b\ndid you mean llama-3.1-405b?" + another);
  EXPECT_EQ(error_of("gpt-oss"),
            "unknown model gpt-oss\ndid you mean one of gpt-oss-120b, gpt-oss-20b?" + another);
  EXPECT_EQ(error_of("deepseek"),
            "unknown model deepseek\ndid you mean one of deepseek-r1, deepseek-v3.2, deepseek-v4-flash or 1 "
            "other?" +
                another);
  const std::string none =
      "\nthe catalogue has none like it (" + std::to_string(all) + " models: shardline list models)\n";
  EXPECT_EQ(error_of("Mixtral-8x7B"), "unknown model Mixtral-8x7B" + none +
                                          "give its config.json, whose model_type mixtral is read: " + given);
  EXPECT_EQ(error_of("bloom-7b"), "unknown model bloom-7b" + none + "give its config.json: " + given);
  for (const std::string closed : {"gpt-4", "Claude-3", "gemini-pro"})
    EXPECT_EQ(error_of(closed),
              "unknown model " + closed + none +
                  "it is published without weights and config.json: its sizes are not known\n");
  // Four lines of 80 columns at most, the last of them wrapped behind two blanks.
  for (const std::string name :
       {"llama", "deepseek", "mixtral-8x7b-instruct-v0.1", "qwen3-vl-moe-30b", "x", "gpt-5"}) {
    std::istringstream lines(error_of(name));
    std::size_t rows = 0;
    for (std::string line; std::getline(lines, line);)
      rows += line.size() <= 80 ? 1 : 1 + (line.size() - 80 + 77) / 78;
    EXPECT_LE(rows, 4u) << error_of(name);
  }
}

TEST(Catalog, WrongPaths) {
  EXPECT_EQ(error_of("nowhere/model.yaml"), "nowhere/model.yaml: no such file or folder\n");
  const std::string text = (testing::source_dir() / "models" / "CMakeLists.txt").string();
  EXPECT_EQ(error_of(text),
            text + ": a model is a .yaml file, a .json file or a folder with a config.json\n");
  EXPECT_THROW(catalog_names("no/such/folder"), UserError);
}

TEST(Catalog, ANameCannotLeaveTheCatalogue) {
  EXPECT_EQ(error_of("../catalog/kimi-k2"), "../catalog/kimi-k2: no such file or folder\n");
}

std::string head(const std::string& layers) {
  return "name: tiny\nsource: \"made up\"\nlayers: " + layers +
         "\nhidden: 64\nvocab: 100\nmax_context: 256 tokens\n";
}

TEST(Catalog, NoWindowIsOfAllKinds) {
  try {
    parse_model("t.yaml", head("2") + R"(
attention: {kind: gqa, q_heads: 4, kv_heads: 2, head_dim: 16, window: 8 tokens}
attentions: {near: {sinks: true}, full: {}}
ffn: {kind: gated, inner: 128}
order: {attention: [near, full]}
)");
    FAIL() << "a window that full would have, too";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("t.yaml:8:71: attention.window: a window or chunk is of one kind"),
              std::string::npos)
        << e.what();
  }
}

TEST(Catalog, KindsShareWhatAttentionSays) {
  const Model m = parse_model("t.yaml", head("5") + R"(
attention: {kind: gqa, q_heads: 4, kv_heads: 2, head_dim: 16, bias: qkv}
attentions:
  near: {sinks: true, window: 8 tokens}
  wide: {chunk: 32 tokens, q_heads: 8}
  values: {v_dim: 8, window: 8 tokens}
ffn: {kind: gated, inner: 128}
order: {attention: {first: [near], then: [values, {kind: wide, count: 2}]}}
)");
  const Attention near{
      .q_heads = 4, .kv_heads = 2, .head_dim = 16, .reach = {ReachKind::window, 8}, .sinks = true};
  Attention values = near, wide = near;
  values.sinks = wide.sinks = false;
  values.v_dim = 8;
  wide.q_heads = 8;
  wide.reach = {ReachKind::chunk, 32};
  EXPECT_EQ(m.attentions, (std::vector{near, values, wide}));  // numbered by the first layer of each
  EXPECT_EQ(m.runs, (std::vector<LayerRun>{{0, 0, 1}, {1, 0, 1}, {2, 0, 2}, {1, 0, 1}}));
  EXPECT_EQ(m.attention_bias, AttentionBias::qkv);
}

TEST(Catalog, OneAttentionMayHaveAWindow) {
  const Model m = parse_model("t.yaml", head("2") + R"(
attention: {kind: gqa, q_heads: 4, kv_heads: 2, head_dim: 16, v_dim: 16, window: 8 tokens, sinks: true}
ffn: {kind: gated, inner: 128}
)");
  EXPECT_EQ(m.attentions[0].reach, (Reach{ReachKind::window, 8}));
  EXPECT_TRUE(m.attentions[0].sinks);
  EXPECT_EQ(m.attentions[0].v_dim, 0);  // as wide as keys
  EXPECT_EQ(m.runs.size(), 1u);
}

TEST(Catalog, FeedForwardNetworksInAnyOrder) {
  const Model m = parse_model("t.yaml", head("6") + R"(
attention: {kind: gqa, q_heads: 4, kv_heads: 2, head_dim: 16}
ffn: {kind: gated}
ffns:
  narrow: {inner: 32}
  wide: {inner: 128}
  experts: {experts: 8, experts_per_token: 2, shared_experts: 1, inner: 16}
order: {ffn: [{kind: wide, count: 2}, experts, narrow]}
)");
  EXPECT_EQ(m.ffns[0], FeedForward{.inner = 128});
  EXPECT_EQ(m.ffns[2], FeedForward{.inner = 32});
  EXPECT_EQ(m.runs, (std::vector<LayerRun>{{0, 0, 2}, {0, 1, 1}, {0, 2, 1}, {0, 0, 2}}));
  EXPECT_EQ(dense_layers(m), 5);
}

}  // namespace
}  // namespace shardline
