// Folders are read and removed without std::filesystem's iterators, which end the process without memory.
#include "sim/base/folder.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

class FolderTest : public ::testing::Test {
 protected:
  void put(const char* name) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << "x";
  }
  const TemporaryFolder own_;
  const fs::path folder_ = own_.path();
};

TEST_F(FolderTest, EntriesAreSorted) {
  for (const char* name : {"b", "a/x", ".hidden", "c"}) put(name);
  std::error_code error;
  EXPECT_EQ(folder_entries(folder_, error),
            (std::vector<fs::path>{folder_ / ".hidden", folder_ / "a", folder_ / "b", folder_ / "c"}));
  EXPECT_FALSE(error);
  EXPECT_TRUE(folder_entries(folder_ / "none", error).empty());
  EXPECT_TRUE(error);
}

TEST_F(FolderTest, IsRemovedWithAllInItAndLinksAreNotFollowed) {
  for (const char* name : {"gone/a/b/c/x", "gone/.y", "gone/z", "kept/x"}) put(name);
  fs::create_directory_symlink(folder_ / "kept", folder_ / "gone/link");
  fs::create_symlink(folder_ / "nowhere", folder_ / "gone/broken");
  remove_folder(folder_ / "gone");
  EXPECT_FALSE(fs::exists(folder_ / "gone"));
  EXPECT_TRUE(fs::exists(folder_ / "kept/x"));
  remove_folder(folder_ / "gone");  // of none nothing
}

TEST_F(FolderTest, AWayThroughWhatIsNotThereIsLeftOut) {
  fs::create_directories(folder_ / "real" / "inner");
  fs::create_directory_symlink(folder_ / "real" / "inner", folder_ / "link");
  const fs::path canonical = fs::canonical(folder_);
  EXPECT_EQ(without_detours(folder_ / "none" / ".." / "x"), canonical / "x");
  EXPECT_EQ(without_detours(folder_ / "none" / ".." / ".." / canonical.filename() / "x"), canonical / "x");
  EXPECT_EQ(without_detours(folder_ / "link" / "none" / ".." / "x"), canonical / "real" / "inner" / "x");
  for (const char* kept : {"none/x", "link/../x", "real/inner/../x", "x"})
    EXPECT_EQ(without_detours(folder_ / kept), folder_ / kept) << kept;
  EXPECT_EQ(without_detours(""), "");
  EXPECT_EQ(without_detours("-"), "-");
}

}  // namespace
}  // namespace shardline
