// Files that are none: what a pipe had is there for every reading of a question, and for no other question.
#include "sim/base/read_text.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "sim/base/error.hpp"

namespace shardline {
namespace {

// One that can be read without waiting for who writes.
class FullPipe {
 public:
  explicit FullPipe(const std::string& text) {
    EXPECT_EQ(pipe(ends_), 0);
    EXPECT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(ends_[1]);
  }
  ~FullPipe() { close(ends_[0]); }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;
  std::string path() const { return "/dev/fd/" + std::to_string(ends_[0]); }

 private:
  int ends_[2];
};

TEST(ReadText, APipeIsReadOnceAndGivesItsTextAgain) {
  const FullPipe pipe("name: x\n");
  const PipesKept kept;
  EXPECT_EQ(text_size(pipe.path(), kLargestDocument), 8u);
  EXPECT_EQ(read_text(pipe.path(), kLargestDocument), "name: x\n");
  {
    const PipesKept inner;
    EXPECT_EQ(read_text(pipe.path(), kLargestDocument), "name: x\n");
  }
  EXPECT_EQ(read_text(pipe.path(), kLargestDocument), "name: x\n");
  EXPECT_THROW(read_text(pipe.path(), 7), UserError);
}

TEST(ReadText, WhatAPipeHadIsOfOneQuestion) {
  const FullPipe pipe("name: x\n");
  EXPECT_EQ(text_size(pipe.path(), kLargestDocument), 0u);  // not taken out
  {
    const PipesKept kept;
    EXPECT_EQ(read_text(pipe.path(), kLargestDocument), "name: x\n");
  }
  EXPECT_EQ(read_text(pipe.path(), kLargestDocument), "");
}

TEST(ReadText, AByteOrderMarkIsNoText) {
  const FullPipe pipe("\xef\xbb\xbfm,n\n1,2\n");
  EXPECT_EQ(read_text(pipe.path(), kLargestTable), "m,n\n1,2\n");
}

TEST(ReadText, TwoPipesAreTwoTexts) {
  const FullPipe one("1"), two("2");
  const PipesKept kept;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(read_text(one.path(), kLargestDocument), "1");
    EXPECT_EQ(read_text(two.path(), kLargestDocument), "2");
  }
}

}  // namespace
}  // namespace shardline
