#include "reports/atomic_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include "reports/standard_output.hpp"
#include "sim/base/error.hpp"
#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AtomicFile : public ::testing::Test {
 protected:
  void TearDown() override { chmod(folder_.c_str(), 0700); }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_)) out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }
  static std::string read(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
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
  return "no error";
}

// Runs `f` in a child (limits, users and signals stay there); true if it returned true.
template <class F>
bool in_child(F f) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    bool good = false;
    try {
      good = f();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
    }
    std::_Exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Ended by a signal that nobody catches, in the middle of a file.
TEST_F(AtomicFile, NothingIsLeftOfAFileWhoseProcessWasKilled) {
  std::ofstream(folder_ / "there") << "before";
  for (const char* const name : {"new", "there"}) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit least{1000, 1000};
      setrlimit(RLIMIT_FSIZE, &least);
      const rlimit none{0, 0};
      setrlimit(RLIMIT_CORE, &none);
      std::signal(SIGXFSZ, SIG_DFL);
      write_file(folder_ / name, std::string(100'000, 'x'));
      std::_Exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGXFSZ);
  }
  EXPECT_THAT(names(), ElementsAre("there"));
  EXPECT_EQ(read(folder_ / "there"), "before");
}

TEST_F(AtomicFile, ANameMayBeAsLongAsANameCanBe) {
  const std::string longest(255, 'n');
  write_file(folder_ / longest, "one");
  write_file(folder_ / longest, "two");
  EXPECT_THAT(names(), ElementsAre(longest));
  EXPECT_EQ(read(folder_ / longest), "two");
}

TEST_F(AtomicFile, WritesWholeTextAndNothingElse) {
  const std::string text = std::string("a\0b\r\n", 5) + std::string(1 << 20, 'x');
  write_file(folder_ / "out.csv", text);
  EXPECT_EQ(read(folder_ / "out.csv"), text);
  EXPECT_THAT(names(), ElementsAre("out.csv"));
}

TEST_F(AtomicFile, EmptyText) {
  write_file(folder_ / "out.csv", "");
  EXPECT_TRUE(fs::exists(folder_ / "out.csv"));
  EXPECT_EQ(read(folder_ / "out.csv"), "");
}

TEST_F(AtomicFile, ReplacesAnOlderFile) {
  write_file(folder_ / "out.csv", "old, and longer");
  write_file(folder_ / "out.csv", "new");
  EXPECT_EQ(read(folder_ / "out.csv"), "new");
  EXPECT_THAT(names(), ElementsAre("out.csv"));
}

TEST_F(AtomicFile, PermissionsFollowTheMask) {
  const mode_t before = umask(027);
  write_file(folder_ / "out.csv", "x");
  EXPECT_EQ(umask(before), mode_t{027});
  struct stat s {};
  ASSERT_EQ(stat((folder_ / "out.csv").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, mode_t{0640});
}

// Or a private file would be published by the run that replaces it.
TEST_F(AtomicFile, PermissionsOfAFileThatIsThereStay) {
  for (const mode_t mode : {0600u, 0640u, 0755u}) {
    write_file(folder_ / "out.csv", "x");
    ASSERT_EQ(chmod((folder_ / "out.csv").c_str(), mode), 0);
    write_file(folder_ / "out.csv", "y");
    struct stat s {};
    ASSERT_EQ(stat((folder_ / "out.csv").c_str(), &s), 0);
    EXPECT_EQ(s.st_mode & 0777, mode);
  }
}

TEST_F(AtomicFile, WhatIsReadIsNotOverwritten) {
  fs::create_directory(folder_ / "tables");
  for (const char* name : {"own.csv", "tables/a.csv", "tables/notes.md"}) write_file(folder_ / name, "x");
  fs::create_symlink("own.csv", folder_ / "link");
  const std::vector<std::string> inputs{(folder_ / "own.csv").string(), (folder_ / "tables").string(),
                                        "llama-3.1-8b"};
  for (const char* name : {"own.csv", "link", "./tables/../own.csv", "tables/a.csv"})
    EXPECT_THAT(error_of([&] { refuse_to_overwrite("-o", folder_ / name, inputs); }),
                HasSubstr("is read; written, it would be lost"))
        << name;
  for (const char* name : {"new.csv", "tables/b.csv", "tables/notes.md", "tables", "nowhere/x"})
    EXPECT_NO_THROW(refuse_to_overwrite("-o", folder_ / name, inputs)) << name;
  EXPECT_NO_THROW(refuse_to_overwrite("-o", "", inputs));
}

// With --json the document takes standard output: what else is asked for there would go nowhere.
TEST_F(AtomicFile, StandardOutputBesideADocumentIsRefused) {
  EXPECT_TRUE(in_child([&] {
    const SilentOutput silent;
    for (const char* name : {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
      if (error_of([&] { write_file(name, "x"); }).find("the document of --json") == std::string::npos)
        return false;
    }
    write_file("/dev/null", "x");
    write_file(folder_ / "out.csv", "x");
    return true;
  }));
  EXPECT_THAT(names(), ElementsAre("out.csv"));
}

// A document on standard output is alone there: what is printed goes to standard error, even before it.
TEST_F(AtomicFile, StandardOutputIsKeptForADocument) {
  fs::create_symlink("/dev/stdout", folder_ / "link");
  for (const fs::path& name : {fs::path("-"), fs::path("/dev/stdout"), folder_ / "link"}) {
    SCOPED_TRACE(name);
    const fs::path out = folder_ / "out", err = folder_ / "err";
    EXPECT_TRUE(in_child([&] {
      if (std::freopen(out.c_str(), "w", stdout) == nullptr) return false;
      if (std::freopen(err.c_str(), "w", stderr) == nullptr) return false;
      if (!DocumentOutput::is_standard(name) || DocumentOutput::is_standard(folder_ / "other")) return false;
      std::fputs("before,", stdout);
      {
        const DocumentOutput document(name);
        std::fputs("note,", stdout);
        write_file(name, "document,");
        write_file(folder_ / "other", "x");
        std::fputs("note,", stdout);
      }
      std::fputs("after", stdout);
      return std::fflush(stdout) == 0 && !DocumentOutput::descriptor_of(name);
    }));
    EXPECT_EQ(read(out), "before,document,after");
    EXPECT_EQ(read(err), "note,note,");
  }
}

// There is nothing to be told apart on a terminal, or where nobody looks.
TEST_F(AtomicFile, DevicesAreNoDocuments) {
  EXPECT_TRUE(in_child([&] {
    if (std::freopen("/dev/null", "w", stdout) == nullptr) return false;
    return DocumentOutput::is_standard("-") && !DocumentOutput::is_standard("/dev/null");
  }));
}

TEST_F(AtomicFile, SymbolicLinkStaysAndItsTargetIsReplaced) {
  fs::create_directory(folder_ / "elsewhere");
  write_file(folder_ / "elsewhere" / "target", "old");
  fs::create_symlink("elsewhere/target", folder_ / "near");
  fs::create_symlink(folder_ / "near", folder_ / "link");
  write_file(folder_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "near"));
  EXPECT_FALSE(fs::is_symlink(folder_ / "elsewhere" / "target"));
  EXPECT_EQ(read(folder_ / "elsewhere" / "target"), "new");
  EXPECT_THAT(names(), ElementsAre("elsewhere", "link", "near"));
}

TEST_F(AtomicFile, SymbolicLinkToNoFileYet) {
  fs::create_directory(folder_ / "elsewhere");
  fs::create_symlink("elsewhere/target", folder_ / "link");
  make_folder_of(folder_ / "link");
  write_file(folder_ / "link", "x");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read(folder_ / "elsewhere" / "target"), "x");
}

TEST_F(AtomicFile, SymbolicLinkToItself) {
  fs::create_symlink("link", folder_ / "link");
  EXPECT_THAT(error_of([&] { write_file(folder_ / "link", "x"); }), HasSubstr("Too many levels"));
  EXPECT_THAT(names(), ElementsAre("link"));
}

// By a link, so that a faulty write_file would replace that and not the machine's device.
TEST_F(AtomicFile, DeviceIsWrittenTo) {
  fs::create_symlink("/dev/null", folder_ / "null");
  make_folder_of(folder_ / "null");
  write_file(folder_ / "null", "x");
  EXPECT_TRUE(fs::is_symlink(folder_ / "null"));
  fs::create_symlink("/dev/full", folder_ / "full");
  const std::string error = error_of([&] { write_file(folder_ / "full", "x"); });
  EXPECT_THAT(error, HasSubstr((folder_ / "full").string() + ": No space left on device"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "full"));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_THAT(names(), ElementsAre("full", "null"));
}

TEST_F(AtomicFile, PipeIsWrittenTo) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::string received;
  std::thread reader([&] { received = read(pipe); });
  write_file(pipe, "through");
  reader.join();
  EXPECT_EQ(received, "through");
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(AtomicFile, StandardOutputKeepsItsOrder) {
  fs::create_symlink("/dev/stdout", folder_ / "link");
  EXPECT_TRUE(in_child([&] {
    if (std::freopen((folder_ / "printed").c_str(), "w", stdout) == nullptr) return false;
    std::fputs("before,", stdout);
    write_file(folder_ / "link", "file,");
    std::fputs("after", stdout);
    return std::fflush(stdout) == 0;
  }));
  EXPECT_EQ(read(folder_ / "printed"), "before,file,after");
  EXPECT_THAT(names(), ElementsAre("link", "printed"));
}

TEST_F(AtomicFile, FolderOfAFile) {
  make_folder_of(folder_ / "a" / "b" / "out.csv");
  EXPECT_TRUE(fs::is_directory(folder_ / "a" / "b"));
  EXPECT_FALSE(fs::exists(folder_ / "a" / "b" / "out.csv"));
  EXPECT_THAT(error_of([&] { make_folder_of(folder_ / "a"); }), HasSubstr("Is a directory"));
  make_folder_of("out.csv");
}

TEST_F(AtomicFile, MissingFolderIsNamed) {
  const fs::path file = folder_ / "none" / "out.csv";
  const std::string error = error_of([&] { write_file(file, "x"); });
  EXPECT_THAT(error, HasSubstr(file.string()));
  EXPECT_THAT(error, HasSubstr("No such file or directory"));
}

TEST_F(AtomicFile, TargetIsAFolder) {
  fs::create_directory(folder_ / "out.csv");
  EXPECT_THAT(error_of([&] { write_file(folder_ / "out.csv", "x"); }), HasSubstr("Is a directory"));
  EXPECT_THAT(names(), ElementsAre("out.csv"));
}

TEST_F(AtomicFile, NoRoomLeavesTheOldFileAndNoTemporary) {
  write_file(folder_ / "out.csv", "old");
  EXPECT_TRUE(in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    const std::string error = error_of([&] { write_file(folder_ / "out.csv", std::string(10000, 'x')); });
    return error.find("File too large") != std::string::npos && error.find("out.csv") != std::string::npos;
  }));
  EXPECT_EQ(read(folder_ / "out.csv"), "old");
  EXPECT_THAT(names(), ElementsAre("out.csv"));
}

TEST_F(AtomicFile, ReadOnlyFolder) {
  ASSERT_EQ(chmod(folder_.c_str(), 0555), 0);
  EXPECT_TRUE(in_child([&] {
    // Root writes everywhere.
    if (geteuid() == 0 && setuid(65534) != 0) return false;
    return error_of([&] { write_file(folder_ / "out.csv", "x"); }).find("Permission denied") !=
               std::string::npos &&
           error_of([&] { make_output_folder(folder_); }).find("Permission denied") != std::string::npos &&
           error_of([&] { make_output_folder(folder_ / "a"); }).find("Permission denied") !=
               std::string::npos;
  }));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(AtomicFile, InterruptLeavesNoFile) {
  EXPECT_TRUE(in_child([&] {
    catch_interrupts();
    if (interrupted()) return false;
    std::raise(SIGINT);
    if (!interrupted()) return false;
    return error_of([&] { write_file(folder_ / "out.csv", "x"); }).find("interrupted") != std::string::npos;
  }));
  EXPECT_THAT(names(), IsEmpty());
}

// ThreadSanitizer finds a race here unless the flag may be read on a thread that the signal did not come to.
TEST_F(AtomicFile, EveryThreadSeesAnInterrupt) {
  EXPECT_TRUE(in_child([&] {
    catch_interrupts();
    std::thread other([] {
      while (!interrupted()) std::this_thread::yield();
    });
    std::raise(SIGINT);
    other.join();
    return interrupted();
  }));
}

TEST_F(AtomicFile, MeasurementsOutliveAnInterrupt) {
  EXPECT_TRUE(in_child([&] {
    catch_interrupts();
    std::raise(SIGINT);
    write_file(folder_ / "out.csv", "x", AfterInterrupt::write);
    return true;
  }));
  EXPECT_EQ(read(folder_ / "out.csv"), "x");
}

TEST_F(AtomicFile, SecondInterruptEndsTheProgram) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    catch_interrupts();
    std::raise(SIGINT);
    std::raise(SIGINT);
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST_F(AtomicFile, OutputFolderWithParents) {
  make_output_folder(folder_ / "a" / "b");
  make_output_folder(folder_ / "a" / "b");
  EXPECT_TRUE(fs::is_directory(folder_ / "a" / "b"));
}

TEST_F(AtomicFile, OutputFolderIsAFile) {
  write_file(folder_ / "x", "");
  EXPECT_THAT(error_of([&] { make_output_folder(folder_ / "x"); }), HasSubstr((folder_ / "x").string()));
  EXPECT_THAT(error_of([&] { make_output_folder(folder_ / "x" / "y"); }), HasSubstr("Not a directory"));
}

}  // namespace
}  // namespace shardline
