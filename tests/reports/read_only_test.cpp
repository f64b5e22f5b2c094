// Files that may not be written to are not replaced either, though their folder would let one.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "reports/atomic_file.hpp"
#include "reports/output_folder.hpp"
#include "sim/base/error.hpp"
#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ReadOnly : public ::testing::Test {
 protected:
  void SetUp() override { chmod(folder_.c_str(), 0777); }
  // What `write` is refused with, by a user who is not root, to whom nothing is read-only.
  std::string refusal(const std::function<void()>& write) const {
    int ends[2];
    if (pipe(ends) != 0) return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
      std::string said;
      if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) said = "still root";
      try {
        write();
      } catch (const UserError& e) {
        said = e.what();
      }
      _exit(::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    close(ends[1]);
    std::string text(4000, '\0');
    const ssize_t size = read(ends[0], text.data(), text.size());
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return text.substr(0, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  }
  void put(const std::string& name, mode_t mode) const {
    std::ofstream(folder_ / name) << "precious";
    chmod((folder_ / name).c_str(), mode);
    if (geteuid() == 0) {
      EXPECT_EQ(chown((folder_ / name).c_str(), 65534, 65534), 0);
    }
  }
  std::string text_of(const std::string& name) const {
    std::ifstream in(folder_ / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  const TemporaryFolder own_;
  const fs::path folder_ = own_.path();
};

TEST_F(ReadOnly, AFileIsNotReplaced) {
  put("mine", 0444);
  put("ours", 0644);
  const std::string expected = "cannot write " + (folder_ / "mine").string() + ": Permission denied\n";
  EXPECT_EQ(refusal([&] { write_file(folder_ / "mine", "x"); }), expected);
  EXPECT_EQ(refusal([&] { write_file(folder_ / "mine", "x", AfterInterrupt::refuse, IfRead::replace); }),
            expected);
  EXPECT_EQ(refusal([&] { require_place_of(folder_ / "mine"); }), expected);
  EXPECT_EQ(text_of("mine"), "precious");
  EXPECT_EQ(refusal([&] { require_place_of(folder_ / "ours"); }), "");
  EXPECT_EQ(refusal([&] { write_file(folder_ / "ours", "x"); }), "");
  EXPECT_EQ(text_of("ours"), "x");
}

TEST_F(ReadOnly, OneOfAFolderIsNotReplaced) {
  const auto write = [&](const char* name) {
    return refusal([&] {
      OutputFolder files(folder_ / "out");
      files.write("run.json", "new");
      files.write(name, "new");
      files.publish();
    });
  };
  EXPECT_EQ(write("launch.txt"), "");
  chmod((folder_ / "out" / "launch.txt").c_str(), 0444);
  EXPECT_THAT(write("launch.txt"), HasSubstr("launch.txt: Permission denied"));  // exchanged as a whole
  put("out/thesis.txt", 0444);
  EXPECT_THAT(write("thesis.txt"), HasSubstr("thesis.txt: Permission denied"));  // one by one
  EXPECT_EQ(text_of("out/thesis.txt"), "precious");
  EXPECT_EQ(write("other"), "");
}

}  // namespace
}  // namespace shardline
