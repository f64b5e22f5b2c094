// Who may do what in an output folder, before and after it is exchanged; and what its manifest says of files
// that somebody has changed.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "reports/output_folder.hpp"
#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

class FolderAccess : public ::testing::Test {
 protected:
  fs::path out() const { return own_.path() / "out"; }
  void write(const std::vector<std::pair<std::string, std::string>>& texts) const {
    OutputFolder files(out());
    for (const auto& [name, text] : texts) files.write(name, text);
    files.publish();
  }
  static std::string text_of(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  const TemporaryFolder own_;
};

mode_t mode_of(const fs::path& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 ? found.st_mode & 07777 : 0;
}

// An empty one, one that is exchanged, folders in it and files: a private one is not published.
TEST_F(FolderAccess, FoldersAndFilesKeepWhoMayDoWhat) {
  fs::create_directory(out());
  chmod(out().c_str(), 0700);
  write({{"a", "1"}, {"in/b", "2"}});
  EXPECT_EQ(mode_of(out()), 0700U);
  chmod((out() / "in").c_str(), 0710);
  chmod((out() / "in/b").c_str(), 0600);
  chmod((out() / "manifest.json").c_str(), 0640);
  write({{"a", "3"}, {"in/b", "4"}});
  EXPECT_EQ(text_of(out() / "in/b"), "4");
  EXPECT_EQ(mode_of(out()), 0700U);
  EXPECT_EQ(mode_of(out() / "in"), 0710U);
  EXPECT_EQ(mode_of(out() / "in/b"), 0600U);
  EXPECT_EQ(mode_of(out() / "manifest.json"), 0640U);
}

// A folder of another group, as teams share them: what is made in it is the group's. Only root gives folders
// away to any group.
TEST_F(FolderAccess, AFolderOfAnotherGroupStaysTheirs) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has folders of any group";
  constexpr gid_t kTeam = 4242;
  fs::create_directory(out());
  ASSERT_EQ(chown(out().c_str(), 0, kTeam), 0);
  ASSERT_EQ(chmod(out().c_str(), 02770), 0);
  for (const char* text : {"1", "2"}) {
    write({{"a", text}, {"in/b", text}});
    EXPECT_EQ(mode_of(out()), 02770U);
    for (const char* name : {".", "a", "in", "in/b", "manifest.json"}) {
      struct stat found {};
      ASSERT_EQ(stat((out() / name).c_str(), &found), 0) << name;
      EXPECT_EQ(found.st_gid, kTeam) << name;
    }
    EXPECT_EQ(text_of(out() / "in/b"), text);
  }
}

// The list says what is there, not what once was.
TEST_F(FolderAccess, AFileThatWasChangedIsListedAsItIs) {
  write({{"a", "abc"}, {"b", "1"}, {"c", "same"}});
  std::ofstream(out() / "a") << "abd";  // as long as before
  write({{"b", "2"}});
  const auto manifest = manifest_of(out());
  ASSERT_TRUE(manifest);
  EXPECT_TRUE(manifest->at("a").earlier);
  EXPECT_EQ(manifest->at("a").sha256, manifest_entry("abd").sha256);
  EXPECT_EQ(manifest->at("c").sha256, manifest_entry("same").sha256);
}

}  // namespace
}  // namespace shardline
