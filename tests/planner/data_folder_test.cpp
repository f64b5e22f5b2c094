// Where the data are looked for: the variable, else above the program or the library.
#include "planner/scenario/data_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "planner/scenario/shipped.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// An empty tree, and the variable as it was after the test.
class DataFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("shardline_data_test_" + std::to_string(::getpid()));
    fs::create_directories(root_);
    if (const char* old = std::getenv(kDataVariable)) old_ = old;
    unsetenv(kDataVariable);
  }
  void TearDown() override {
    fs::remove_all(root_);
    if (old_)
      setenv(kDataVariable, old_->c_str(), 1);
    else
      unsetenv(kDataVariable);
  }
  fs::path installed(const fs::path& prefix) {
    fs::create_directories(root_ / prefix / "share/shardline/models/catalog");
    return root_ / prefix / "share/shardline";
  }

  fs::path root_;
  std::optional<std::string> old_;
};

TEST_F(DataFolders, PrefixOfAProgramALibraryOrAPythonModule) {
  const fs::path data = installed("usr");
  for (const char* object :
       {"usr/bin/shardline", "usr/lib/libshardline.so.0", "usr/lib/x86_64-linux-gnu/libshardline.so",
        "usr/lib/python3/dist-packages/shardline/core.so"}) {
    EXPECT_EQ(data_above(root_ / object), data) << object;
  }
  // None of this tree: a machine may have some above its temporary folder.
  EXPECT_EQ(data_above(root_ / "opt/bin/shardline"), data_above(root_));
}

TEST_F(DataFolders, TheNearestWins) {
  installed("usr");
  const fs::path local = installed("usr/local");
  EXPECT_EQ(data_above(root_ / "usr/local/bin/shardline"), local);
}

TEST_F(DataFolders, AnEmptyShareIsNotTaken) {
  const fs::path data = installed("usr");
  fs::create_directories(root_ / "usr/local/share/shardline");
  EXPECT_EQ(data_above(root_ / "usr/local/bin/shardline"), data);
}

TEST_F(DataFolders, TheVariableGoesFirst) {
  const fs::path data = installed("elsewhere");
  setenv(kDataVariable, data.c_str(), 1);
  EXPECT_EQ(find_data().path, data);
  EXPECT_TRUE(find_data().from_environment);
  EXPECT_EQ(data_text(), data.string() + " (SHARDLINE_DATA)");
  EXPECT_EQ(shipped_catalogs().models, data / "models/catalog");
}

TEST_F(DataFolders, AWrongVariableIsNamedAndNotPassedOver) {
  setenv(kDataVariable, (root_ / "nothing").c_str(), 1);
  try {
    find_data();
    FAIL() << "no error";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("SHARDLINE_DATA=" + (root_ / "nothing").string() + " has no data"));
  }
  EXPECT_THAT(data_text(), HasSubstr("none: "));
}

TEST_F(DataFolders, AnEmptyVariableIsNone) {
  setenv(kDataVariable, "", 1);
  EXPECT_FALSE(find_data().from_environment);
}

// The build tree's links lead to the sources, folder by folder.
TEST_F(DataFolders, ABuildTreeReadsItsSources) {
  const fs::path data = find_data().path;
  for (const char* folder :
       {"models/catalog", "hardware/catalog", "hardware/calibrations", "hardware/kernels", "planner/engines",
        "planner/serving", "scenarios", "calibrate/validate"}) {
    EXPECT_TRUE(fs::equivalent(data / folder, fs::path(SHARDLINE_SOURCE_DIR) / folder)) << folder;
  }
}

}  // namespace
}  // namespace shardline
