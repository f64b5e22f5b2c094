#include "models/model/catalog.hpp"

#include <gtest/gtest.h>

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
  const std::vector<std::string> names = {"deepseek-r1",  "falcon-1b",     "falcon-7b",       "kimi-k2",
                                          "llama-13b",    "llama-3-8b-1m", "llama-3.1-405b",  "llama-3.1-70b",
                                          "llama-3.1-8b", "llama-30b",     "llama-7b",        "llama-7b-gqa8",
                                          "llama-7b-mqa", "qwen-2.5-14b",  "qwen3-235b-a22b", "yi-34b-200k"};
  EXPECT_EQ(catalog_names(testing::catalog_dir()), names);
}

TEST(Catalog, EveryModelIsNamedAsItsFileAndHasASource) {
  for (const std::string& name : catalog_names(testing::catalog_dir())) {
    SCOPED_TRACE(name);
    const Model m = load_model(name, testing::catalog_dir());
    EXPECT_EQ(m.name, name);
    EXPECT_NE(m.source.find("arXiv"), std::string::npos);
    EXPECT_TRUE(check(m).empty());
  }
}

TEST(Catalog, LoadsByPathToo) {
  const Model by_name = load_model("kimi-k2", testing::catalog_dir());
  EXPECT_EQ(load_model((testing::catalog_dir() / "kimi-k2.yaml").string(), "no/such/folder"), by_name);
  EXPECT_EQ(load_model((testing::hf_dir() / "kimi-k2.json").string(), "no/such/folder").layers, 61);
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

TEST(Catalog, UnknownNameListsTheCatalogue) {
  EXPECT_EQ(error_of("llama-3.1-40b"),
            "unknown model llama-3.1-40b\n"
            "expected one of: deepseek-r1, falcon-1b, falcon-7b, kimi-k2, llama-13b, llama-3-8b-1m, "
            "llama-3.1-405b, "
            "llama-3.1-70b, "
            "llama-3.1-8b, llama-30b, llama-7b, llama-7b-gqa8, llama-7b-mqa, qwen-2.5-14b, qwen3-235b-a22b, "
            "yi-34b-200k\n"
            "did you mean llama-3.1-405b?\n"
            "or the path of a .yaml file, a config.json or a folder that holds one\n");
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

}  // namespace
}  // namespace shardline
