// Pipes that results are written to: who reads may come late, read slowly, or never, and whoever waits can be
// stopped.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "reports/atomic_file.hpp"
#include "sim/base/cancel.hpp"
#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

class OutputPipe : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mkfifo(pipe().c_str(), 0600), 0); }
  fs::path pipe() const { return folder_ / "pipe"; }
  // Stopped at the tenth question; whoever asks seldom has the test run out of time.
  void expect_stopped(const std::string& text) const {
    int asked = 0;
    const CancelQuestion question = [&] { return ++asked == 10; };
    const CancelScope scope(&question);
    EXPECT_THROW(write_file(pipe(), text), Cancelled);
  }
  const std::string much_ = std::string(300'000, 'x');  // more than a pipe holds
  const TemporaryFolder own_;
  const fs::path folder_ = own_.path();
};

TEST_F(OutputPipe, OneThatNobodyReadsCanBeLeft) { expect_stopped("x"); }

TEST_F(OutputPipe, AReaderWhoDoesNotReadCanBeLeft) {
  const int both = open(pipe().c_str(), O_RDWR);
  ASSERT_GE(both, 0);
  expect_stopped(much_);
  close(both);
}

TEST_F(OutputPipe, ALateReaderReadsAll) {
  std::string received;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    std::ifstream in(pipe());
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    received.assign(std::istreambuf_iterator<char>(in), {});
  });
  write_file(pipe(), much_);
  reader.join();
  EXPECT_EQ(received, much_);
}

}  // namespace
}  // namespace shardline
