#include "reports/staged_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>

#include "reports/atomic_file.hpp"
#include "reports/output_folder.hpp"
#include "sim/base/error.hpp"
#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StagedFolderTest : public ::testing::Test {
 protected:
  fs::path out() const { return folder_ / "out"; }
  // All that is in the folder of the test, hidden names too.
  std::vector<std::string> all() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (!entry.is_directory()) names.push_back(entry.path().lexically_relative(folder_).string());
    std::sort(names.begin(), names.end());
    return names;
  }
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
  const fs::path folder_ = own_.path();
};

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST_F(StagedFolderTest, NothingBeforeItIsPublishedAndNothingBesideAfter) {
  {
    OutputFolder files(out());
    files.write("a", "1");
    files.write("in/b", "2");
    EXPECT_FALSE(fs::exists(out()));
    files.publish();
  }
  EXPECT_THAT(all(), ElementsAre("out/a", "out/in/b", "out/manifest.json"));
  { OutputFolder(out()).write("a", "2"); }  // not published
  EXPECT_THAT(all(), ElementsAre("out/a", "out/in/b", "out/manifest.json"));
  EXPECT_EQ(text_of(out() / "a"), "1");
}

TEST_F(StagedFolderTest, MessagesNameFilesInTheirPlace) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit least{16, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &least), 0);
  const std::string of_file = error_of([&] { write({{"launch/1.sh", std::string(17, 'x')}}); });
  const std::string of_manifest = error_of([&] { write({{"launch/1.sh", "x"}}); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(of_file, "cannot write " + (out() / "launch/1.sh").string() + ": File too large\n");
  EXPECT_EQ(of_manifest, "cannot write " + (out() / "manifest.json").string() + ": File too large\n");
  EXPECT_THAT(all(), ElementsAre());
}

TEST_F(StagedFolderTest, TheManifestHoldsHashes) {
  write({{"a", "abc"}});
  const auto manifest = manifest_of(out());
  ASSERT_TRUE(manifest);
  ASSERT_EQ(manifest->size(), 1U);
  EXPECT_EQ(manifest->at("a").bytes, 3U);
  EXPECT_EQ(manifest->at("a").sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(StagedFolderTest, AKnownFolderIsExchangedInOneStep) {
  write({{"a", "1"}, {"b", "2"}});
  struct stat before {
  }, after{};
  stat(out().c_str(), &before);
  write({{"b", "3"}, {"c", "4"}});
  stat(out().c_str(), &after);
  EXPECT_NE(before.st_ino, after.st_ino);
  EXPECT_THAT(all(),
              ElementsAre("out/a", "out/b", "out/c", "out/manifest.json"));  // of another command, perhaps
  EXPECT_EQ(text_of(out() / "b"), "3");
  EXPECT_EQ(manifest_of(out())->size(), 3U);
}

TEST_F(StagedFolderTest, WhatOthersPutThereStays) {
  fs::create_directories(out() / "mine");
  std::ofstream(out() / "mine" / "x") << "x";
  write({{"a", "1"}});
  write({{"a", "2"}});
  EXPECT_THAT(all(), ElementsAre("out/a", "out/manifest.json", "out/mine/x"));
  EXPECT_EQ(text_of(out() / "a"), "2");
  std::ofstream(out() / "manifest.json") << "of something else";
  EXPECT_THAT(error_of([&] { write({{"a", "3"}}); }), HasSubstr("no list of ours"));
  EXPECT_EQ(text_of(out() / "a"), "2");
}

TEST_F(StagedFolderTest, LinksAndPipesInTheFolderAreRefused) {
  std::ofstream(folder_ / "outside") << "kept";
  fs::create_directory(out());
  fs::create_symlink(folder_ / "outside", out() / "a");
  ASSERT_EQ(mkfifo((out() / "p").c_str(), 0600), 0);
  fs::create_directory(folder_ / "elsewhere");
  fs::create_directory_symlink(folder_ / "elsewhere", out() / "in");
  EXPECT_THAT(error_of([&] { write({{"a", "1"}}); }), HasSubstr("a is a symbolic link"));
  EXPECT_THAT(error_of([&] { write({{"p", "1"}}); }), HasSubstr("p is a device or a pipe"));
  EXPECT_THAT(error_of([&] { write({{"in/a", "1"}}); }), HasSubstr("in is a symbolic link"));
  EXPECT_EQ(text_of(folder_ / "outside"), "kept");
  EXPECT_TRUE(fs::is_empty(folder_ / "elsewhere"));
}

TEST_F(StagedFolderTest, ALinkToAFolderIsFollowed) {
  fs::create_directory(folder_ / "real");
  fs::create_directory_symlink("real", out());
  write({{"a", "1"}});
  EXPECT_TRUE(fs::is_symlink(out()));
  EXPECT_EQ(text_of(folder_ / "real" / "a"), "1");
  fs::remove(out());
  fs::create_directory_symlink("nowhere", out());
  EXPECT_THAT(error_of([&] { write({{"a", "1"}}); }), HasSubstr("a symbolic link that leads nowhere"));
}

TEST_F(StagedFolderTest, TheParentOfALinkIsThatOfWhereItLeads) {
  fs::create_directories(folder_ / "real" / "inner");
  fs::create_directory_symlink(folder_ / "real" / "inner", folder_ / "link");
  const fs::path asked = folder_ / "link" / ".." / "x";
  for (const char* text : {"1", "2"}) {  // not there, then there
    const FolderClaim claim(asked);
    OutputFolder files(asked);
    files.write("a", text);
    files.publish();
    EXPECT_EQ(text_of(folder_ / "real" / "x" / "a"), text);
  }
  EXPECT_FALSE(fs::exists(folder_ / "x"));
}

TEST_F(StagedFolderTest, AFolderThatAProcessStandsInIsNotExchanged) {
  write({{"a", "1"}});
  const fs::path before = fs::current_path();
  fs::current_path(out());
  OutputFolder files(".");
  files.write("a", "2");
  files.publish();
  EXPECT_EQ(text_of("a"), "2");  // and not that of the folder that was
  fs::current_path(before);
  EXPECT_EQ(text_of(out() / "a"), "2");
}

TEST_F(StagedFolderTest, WhatAKilledRunLeftIsRemovedByTheNext) {
  const pid_t child = fork();
  if (child == 0) {
    OutputFolder files(out());
    files.write("a", "1");
    _exit(0);  // without destructors, as a kill
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(all().size(), 2U);                      // the file, and the mark of its stage
  { const OutputFolder other(folder_ / "other"); }  // no business of another folder
  ASSERT_EQ(all().size(), 2U);
  write({{"b", "1"}});
  EXPECT_THAT(all(), ElementsAre("out/b", "out/manifest.json"));
}

TEST_F(StagedFolderTest, FoldersOfOthersStayWhateverTheyAreCalled) {
  fs::create_directories(out() / ".shardline-backup");
  std::ofstream(out() / ".shardline-backup" / "thesis.txt") << "precious";
  fs::create_directories(folder_ / ".out.shardline-backup");
  std::ofstream(folder_ / ".out.shardline-backup" / "unfinished") << "a list of our own";
  write({{"a", "1"}});  // staged within
  EXPECT_EQ(text_of(out() / ".shardline-backup" / "thesis.txt"), "precious");
  fs::remove_all(out());
  write({{"a", "1"}});  // and beside
  EXPECT_EQ(text_of(folder_ / ".out.shardline-backup" / "unfinished"), "a list of our own");
}

TEST_F(StagedFolderTest, WhatSomebodyPutIntoAnAbandonedStageStays) {
  const pid_t child = fork();
  if (child == 0) {
    OutputFolder files(out());
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(all().size(), 1U);
  const fs::path stage = (folder_ / all().front()).parent_path();
  std::ofstream(stage / "mine") << "x";
  write({{"a", "1"}});
  EXPECT_EQ(text_of(stage / "mine"), "x");
  fs::remove(stage / "mine");
  write({{"a", "2"}});
  EXPECT_FALSE(fs::exists(stage));
}

// Somebody saves files in the moment between the look and the exchange.
class Interfered : public StagedFolder {
 public:
  Interfered(const fs::path& folder, std::function<void()> meanwhile)
      : StagedFolder(folder), folder_(folder), meanwhile_(std::move(meanwhile)) {}
  std::string publish(const std::string& name, const std::string& text) {
    write_staged_file(path(), folder_, name, text);
    return StagedFolder::publish({{name, manifest_entry(text)}}, {}).kept;
  }

 protected:
  void looked() override { meanwhile_(); }

 private:
  fs::path folder_;
  std::function<void()> meanwhile_;
};

TEST_F(StagedFolderTest, WhatIsSavedWhileTheFolderIsExchangedStays) {
  write({{"a", "1"}, {"launch/1.sh", "x"}});
  {
    Interfered folder(out(), [&] {
      std::ofstream(out() / "thesis.txt") << "precious";
      std::ofstream(out() / "launch" / "mine.sh") << "precious";
      fs::create_directories(out() / "notes" / "empty");
      std::ofstream(out() / "notes" / "n") << "precious";
      fs::create_symlink("elsewhere", out() / "link");
    });
    EXPECT_EQ(folder.publish("a", "2"), "");
  }
  EXPECT_THAT(all(), ElementsAre("out/a", "out/launch/1.sh", "out/launch/mine.sh", "out/link",
                                 "out/manifest.json", "out/notes/n", "out/thesis.txt"));
  EXPECT_EQ(text_of(out() / "a"), "2");
  EXPECT_EQ(text_of(out() / "thesis.txt"), "precious");
  EXPECT_EQ(text_of(out() / "launch" / "mine.sh"), "precious");
  EXPECT_TRUE(fs::is_directory(out() / "notes" / "empty"));
  EXPECT_TRUE(fs::is_symlink(out() / "link"));
}

TEST_F(StagedFolderTest, WhatIsSavedUnderANameOfOursIsKeptBesideAndSaid) {
  write({{"a", "1"}});
  std::string said;
  {
    Interfered folder(out(), [&] { std::ofstream(out() / "b") << "precious"; });
    said = folder.publish("b", "2");
  }
  EXPECT_EQ(text_of(out() / "b"), "2");
  const std::string begin = "what was put into " + out().string() + " while it was written is in ";
  ASSERT_TRUE(said.starts_with(begin)) << said;
  const fs::path kept = said.substr(begin.size());
  EXPECT_EQ(text_of(kept / "b"), "precious");
  write({{"c", "3"}});  // which removes what killed runs left
  EXPECT_EQ(text_of(kept / "b"), "precious");
  fs::remove(kept / "b");
  write({{"c", "4"}});
  EXPECT_FALSE(fs::exists(kept.parent_path()));
}

TEST_F(StagedFolderTest, WhatIsSavedIntoAnEmptyFolderMeanwhileStays) {
  fs::create_directory(out());
  {
    Interfered folder(out(), [&] { std::ofstream(out() / "thesis.txt") << "precious"; });
    EXPECT_EQ(folder.publish("a", "1"), "");
  }
  EXPECT_THAT(all(), ElementsAre("out/a", "out/manifest.json", "out/thesis.txt"));
}

TEST_F(StagedFolderTest, ARunKilledBehindTheExchangeLosesNothing) {
  write({{"a", "1"}, {"in/b", "1"}});
  const pid_t child = fork();
  if (child == 0) {
    Interfered folder(out(), [&] { _exit(0); });
    folder.publish("a", "2");
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  fs::path stage;
  for (const auto& entry : fs::directory_iterator(folder_))
    if (entry.path() != out()) stage = entry.path();
  std::ofstream(stage / "exchanged") << "shardline stage\n";  // as if it had come so far
  fs::create_directory(stage / "files" / "mine");
  write({{"a", "3"}});
  EXPECT_TRUE(fs::is_directory(stage / "files" / "mine"));
  EXPECT_FALSE(fs::exists(stage / "files" / "a"));  // of the run that was killed
  fs::remove(stage / "files" / "mine");
  write({{"a", "4"}});
  EXPECT_FALSE(fs::exists(stage));
  EXPECT_THAT(all(), ElementsAre("out/a", "out/in/b", "out/manifest.json"));
}

TEST_F(StagedFolderTest, ASecondRunIsRefusedUntilTheFirstEnds) {
  std::optional<FolderClaim> first(std::in_place, out() / "deep");
  EXPECT_THAT(error_of([&] { FolderClaim(out() / "deep"); }), HasSubstr("another run writes to"));
  EXPECT_TRUE(fs::is_directory(out() / "deep"));
  first.reset();
  EXPECT_FALSE(fs::exists(out()));  // nothing was written
  const FolderClaim again(out() / "deep");
}

// What is claimed at the beginning is what is written at the end.
TEST_F(StagedFolderTest, ALinkInPlaceOfAClaimedFolderIsNotFollowed) {
  fs::create_directories(folder_ / "victim" / "sub");
  std::ofstream(folder_ / "victim" / "sub" / "a") << "precious";
  const auto swap = [&] {
    fs::rename(out(), folder_ / "moved");
    fs::create_directory_symlink("victim", out());
  };
  const auto back = [&] {
    fs::remove(out());
    fs::rename(folder_ / "moved", out());
  };
  const auto sub = [&] {
    OutputFolder files(out() / "sub");
    files.write("a", "1");
    files.publish();
  };
  {
    const FolderClaim claim(out() / "sub");
    swap();
    EXPECT_THAT(error_of(sub), HasSubstr("when this run began, and leads to"));
    back();
    sub();
    EXPECT_EQ(text_of(out() / "sub" / "a"), "1");
    const auto late = [&] {
      OutputFolder files(out() / "sub");
      files.write("a", "2");
      swap();
      files.publish();
    };
    EXPECT_THAT(error_of(late), HasSubstr("when this run began, and leads to"));
    back();
  }
  const auto unclaimed = [&] {
    OutputFolder files(out() / "sub");
    files.write("a", "2");
    swap();
    fs::create_directories(folder_ / "victim" / "sub");
    files.publish();
  };
  EXPECT_NE(error_of(unclaimed), "");
  EXPECT_EQ(text_of(folder_ / "victim" / "sub" / "a"), "precious");
}

TEST_F(StagedFolderTest, TheLockOfAKilledRunIsGone) {
  const pid_t child = fork();
  if (child == 0) {
    const FolderClaim claim(out());
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(error_of([&] { FolderClaim{out()}; }), "");
}

}  // namespace
}  // namespace shardline
