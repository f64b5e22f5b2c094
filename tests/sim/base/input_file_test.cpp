// Pipes with a name: who writes may come late, in pieces, or never, and whoever waits can be stopped.
#include "sim/base/input_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/line_reader.hpp"
#include "sim/base/read_text.hpp"
#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

class InputFileTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mkfifo(pipe().c_str(), 0600), 0); }
  fs::path pipe() const { return folder_ / "pipe"; }
  // Writes the parts, each a little later than the reader could have it.
  std::thread writer(std::vector<std::string> parts) const {
    return std::thread([file = pipe(), parts = std::move(parts)] {
      const auto later = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
      later();
      const int descriptor = open(file.c_str(), O_WRONLY);
      for (const std::string& part : parts) {
        later();
        EXPECT_EQ(write(descriptor, part.data(), part.size()), static_cast<ssize_t>(part.size()));
      }
      later();
      close(descriptor);
    });
  }
  const TemporaryFolder own_;
  const fs::path folder_ = own_.path();
};

// Stops at the tenth question; whoever asks seldom has the test run out of time.
template <class Read>
void expect_stopped(Read read) {
  int asked = 0;
  const CancelQuestion question = [&] { return ++asked == 10; };
  const CancelScope scope(&question);
  EXPECT_THROW(read(), Cancelled);
}

TEST_F(InputFileTest, APipeWithoutAWriterCanBeLeft) {
  expect_stopped([&] { read_text(pipe(), kLargestDocument); });
  expect_stopped([&] {
    InputStream in(pipe());
    LineReader lines(in, "pipe");
    lines.next();
  });
}

TEST_F(InputFileTest, AWriterWhoDoesNotWriteCanBeLeft) {
  const int both = open(pipe().c_str(), O_RDWR);
  ASSERT_GE(both, 0);
  expect_stopped([&] { read_text(pipe(), kLargestDocument); });
  ASSERT_EQ(write(both, "half", 4), 4);
  expect_stopped([&] { read_text(pipe(), kLargestDocument); });
  close(both);
}

TEST_F(InputFileTest, AllThatALateWriterWritesIsRead) {
  const std::string much(300'000, 'x');  // more than a pipe holds
  std::thread slow = writer({"a", much, "b"});
  EXPECT_EQ(read_text(pipe(), kLargestDocument), "a" + much + "b");
  slow.join();
  std::thread lines = writer({"one\ntw", "o\n"});
  InputStream in(pipe());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "one\ntwo\n");
  lines.join();
}

TEST_F(InputFileTest, AWriterWhoLeavesWithoutAWordIsAnEnd) {
  std::thread silent = writer({});
  EXPECT_EQ(read_text(pipe(), kLargestDocument), "");
  silent.join();
}

TEST_F(InputFileTest, TheReasonIsSaid) {
  fs::create_symlink("loop", folder_ / "loop");
  for (const auto& [name, reason] :
       {std::pair("none", "no such file"), std::pair("loop", "Too many levels of symbolic links")}) {
    try {
      InputStream in(folder_ / name);
      FAIL() << name;
    } catch (const UserError& e) {
      EXPECT_EQ(std::string(e.what()), "cannot read " + (folder_ / name).string() + ": " + reason + "\n");
    }
  }
}

}  // namespace
}  // namespace shardline
